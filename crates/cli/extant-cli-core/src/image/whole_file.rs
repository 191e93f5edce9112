//! Files of the host that appear under their names only when they are complete.

use crate::format::show::ShowPath;
use crate::messages::advised::advised;
use anyhow::{Context, Result, anyhow};
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file under a temporary name in the directory of its path. If it is dropped, the name disappears.
pub struct WholeFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl WholeFile {
    /// Creates a file that will replace the file at a path. Symbolic links are followed.
    pub fn replacing(path: &Path) -> Result<Self> {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        Self::beside(real)
    }

    /// Creates a file for a path at which nothing is.
    pub fn new(path: &Path) -> Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(exists().into());
        }
        Self::beside(path.to_path_buf())
    }

    fn beside(path: PathBuf) -> Result<Self> {
        let dir = directory_of(&path);
        let file = tempfile::Builder::new()
            .prefix(".extant-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(dir)
            .map_err(|e| match e.raw_os_error() {
                // The error of the system, without the temporary name.
                Some(code) => io::Error::from_raw_os_error(code).into(),
                None if e.kind() == io::ErrorKind::NotFound => advised(
                    "no such file or directory",
                    format_args!("mkdir -p {} makes its directory", dir.shown()),
                ),
                None => anyhow!(io::Error::from(e.kind())),
            })?;
        Ok(Self { file, path })
    }

    /// Returns the file to write to.
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Renames the file to its final name, and replaces an existing file of that name.
    pub fn replace(self) -> Result<()> {
        self.file.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }

    /// Gives the file its name, which must still be free.
    pub fn name(self) -> Result<()> {
        let named = self.file.persist_noclobber(&self.path);
        named.map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => exists(),
            _ => e.error,
        })?;
        Ok(())
    }
}

/// Returns the directory that holds the name of a path.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

fn exists() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::EXIST.raw_os_error())
}

/// Writes a file, and gives it its name at the end. An existing file stays until then, so that an error destroys
/// nothing. A pipe or a device is written to as it is.
pub fn write_whole<W>(path: &Path, write: impl FnOnce(&mut File) -> Result<W>) -> Result<W> {
    let context = || path.shown();
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        let file = std::fs::OpenOptions::new().write(true).open(path);
        return write(&mut file.with_context(context)?);
    }
    let mut whole = WholeFile::replacing(path).with_context(context)?;
    let written = write(whole.file())?;
    whole.replace().with_context(context)?;
    Ok(written)
}

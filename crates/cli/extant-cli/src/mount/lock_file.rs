//! A file that exists as long as an image is mounted, like that of fuse2fs.

use anyhow::{Context, Result};
use extant_cli_core::format::show::ShowPath;
use rustix::fs::{AtFlags, unlinkat};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// The lock file, with its directory, through which a confined server may remove it.
pub struct LockFile {
    dir: File,
    name: OsString,
}

impl LockFile {
    /// Makes the file.
    pub fn make(file: &Path) -> Result<Self> {
        let shown = || file.shown();
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = File::open(dir.unwrap_or(Path::new("."))).with_context(shown)?;
        std::fs::write(file, "").with_context(shown)?;
        let name = file.file_name().unwrap_or_default().to_owned();
        Ok(Self { dir, name })
    }

    /// Returns the directory.
    pub fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // A file that is already gone is no failure.
        let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
    }
}

//! Copying trees between the host's file systems and a volume, by several threads.

#[cfg(feature = "archives")]
mod archive;
mod volume;

pub use volume::{PathMessages, VolumeSide};

use crate::api::bytes;
use crate::api::dir::Dir;
use crate::base::error::Error;
use ext4_format::FileType;
use extant_mkfs::{MkfsError, SourceError};
use extant_transfer::{HostSide, Monitor, Reason, Route, Rules, Side, SidePath};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// An error, and the path where it was met.
///
/// ```
/// # let volume = extant::doc_volume();
/// fn count(volume: &extant::Volume) -> extant::Result<u64> {
///     let mut files = 0;
///     for entry in volume.walk("/")? {
///         files += u64::from(entry?.file_type() == extant::FileType::Regular); // a PathError becomes an Error
///     }
///     Ok(files)
/// }
/// assert_eq!(count(&volume)?, 0);
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
#[non_exhaustive]
pub struct PathError {
    /// The path.
    pub path: PathBuf,
    /// The error.
    pub source: Error,
}

impl From<PathError> for Error {
    fn from(error: PathError) -> Self {
        error.source
    }
}

impl From<PathError> for std::io::Error {
    fn from(error: PathError) -> Self {
        let kind = std::io::Error::from_raw_os_error(error.source.errno()).kind();
        Self::new(kind, error)
    }
}

/// Counts of copied objects until now.
///
/// ```
/// let nothing = extant::CopyCounts::default();
/// assert_eq!(nothing.files, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyCounts {
    /// Directories made.
    pub directories: u64,
    /// Regular files, each counted once however many names it has.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, FIFOs and sockets.
    pub specials: u64,
    /// Second and further names of files.
    pub hard_links: u64,
    /// Bytes of data, without holes.
    pub bytes: u64,
    /// Owners, devices and extended attributes that the host refused, because only root may set them or because its
    /// file system does not support them.
    pub refused: u64,
}

/// Options for copying a tree: [`Dir::copy_tree_in`], [`Dir::copy_tree_out`] and [`Dir::import_archive`].
///
/// ```
/// use extant::{CopyCounts, CopyOptions};
/// let show = |done: &CopyCounts| eprint!("\r{} files", done.files);
/// let options = CopyOptions::new().threads(4).owners(false).progress(&show);
/// # let _ = options;
/// ```
#[derive(Clone, Copy)]
#[must_use = "options copy nothing by themselves"]
pub struct CopyOptions<'a> {
    threads: usize,
    owners: bool,
    progress: Option<&'a (dyn Fn(&CopyCounts) + Sync)>,
    cancel: Option<&'a AtomicBool>,
}

impl Default for CopyOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> CopyOptions<'a> {
    /// Makes options with a thread for each CPU and with owners kept.
    pub fn new() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            owners: true,
            progress: None,
            cancel: None,
        }
    }

    /// Sets the number of threads, at least one.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Sets whether owners and groups are kept. Otherwise the copies belong to the caller.
    pub fn owners(mut self, yes: bool) -> Self {
        self.owners = yes;
        self
    }

    /// Sets a function to call after each piece of work, from the thread that did it.
    pub fn progress(mut self, told: &'a (dyn Fn(&CopyCounts) + Sync)) -> Self {
        self.progress = Some(told);
        self
    }

    /// Sets a flag that ends the copy with [`Error::Interrupted`] soon after it becomes true, within a mebibyte of data
    /// for each thread.
    ///
    /// ```
    /// use std::sync::atomic::AtomicBool;
    /// # let volume = extant::doc_volume();
    /// # let host = tempfile::tempdir().unwrap();
    /// let stop = AtomicBool::new(true); // set by another thread, or by a handler of signals
    /// let options = extant::CopyOptions::new().cancel(&stop);
    /// let copied = volume.copy_tree_in(host.path(), "/copy", &options);
    /// assert!(matches!(copied.unwrap_err().source, extant::Error::Interrupted));
    /// ```
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Returns the options of a copy by `threads` threads.
    fn rules(&self, threads: usize) -> Rules {
        Rules {
            keep_owner: self.owners,
            owner_may_be_refused: true,
            ..Rules::all(threads)
        }
    }
}

impl std::fmt::Debug for CopyOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CopyOptions")
            .field("threads", &self.threads)
            .field("owners", &self.owners)
            .finish_non_exhaustive()
    }
}

impl Dir {
    /// Copies a tree of the host into the volume, with owners, permissions, times, extended attributes, ACLs, hard
    /// links, holes, devices and symbolic links. `to` must not exist; what a copy that failed has made stays there.
    ///
    /// ```
    /// # let host = tempfile::tempdir().unwrap();
    /// # std::fs::write(host.path().join("hosts"), "127.0.0.1 localhost\n").unwrap();
    /// # let volume = extant::doc_volume();
    /// let copied = volume.copy_tree_in(host.path(), "/etc", &extant::CopyOptions::new())?;
    /// assert_eq!((copied.directories, copied.files, copied.bytes), (1, 1, 20));
    /// assert_eq!(volume.read_to_string("/etc/hosts")?, "127.0.0.1 localhost\n");
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error, with the path on the side where it was met: [`Error::Exists`] for a `to` that exists,
    /// [`Error::Io`] of the host.
    pub fn copy_tree_in(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: &CopyOptions<'_>,
    ) -> Result<CopyCounts, PathError> {
        let volume = VolumeSide::new(self);
        copy(
            (&HostSide::new(), from.as_ref()),
            (&volume, to.as_ref()),
            options,
        )
    }

    /// Copies a tree of the volume to the host, likewise. `to` must not exist, so that nothing existing is replaced,
    /// and no symbolic link is followed, whatever the volume holds. Attributes that only root may set are left out and
    /// counted, if the caller is not root.
    ///
    /// ```
    /// # let host = tempfile::tempdir().unwrap();
    /// # let volume = extant::doc_volume();
    /// volume.create_dir_all("/srv/www")?;
    /// volume.write("/srv/www/index.html", "<p>hello")?;
    /// let to = host.path().join("srv");
    /// let copied = volume.copy_tree_out("/srv", &to, &extant::CopyOptions::new())?;
    /// assert_eq!((copied.directories, copied.files), (2, 1));
    /// assert_eq!(std::fs::read_to_string(to.join("www/index.html")).unwrap(), "<p>hello");
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`copy_tree_in`](Self::copy_tree_in); and corruption for a name that would lead out of its directory.
    pub fn copy_tree_out(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: &CopyOptions<'_>,
    ) -> Result<CopyCounts, PathError> {
        let volume = VolumeSide::new(self);
        copy(
            (&volume, from.as_ref()),
            (&HostSide::new(), to.as_ref()),
            options,
        )
    }
}

/// Copies a tree to a path that must not exist.
fn copy(
    (src, from): (&dyn Side, &Path),
    (dst, to): (&dyn Side, &Path),
    options: &CopyOptions<'_>,
) -> Result<CopyCounts, PathError> {
    let counting = Counting::new(options);
    let rules = Rules {
        only_new: true,
        ..options.rules(options.threads)
    };
    let route = Route {
        src,
        dst,
        rules: &rules,
        monitor: &counting,
    };
    let copied = route.tree(bytes(from), bytes(to));
    copied.map_err(|e| path_error(e, to))?;
    Ok(counting.counts())
}

/// Converts an error of a copy. If the error has no path, its path is `top`.
fn path_error(error: anyhow::Error, top: &Path) -> PathError {
    let place = error.downcast_ref::<SidePath>();
    let path = place.map_or(top, |place| &place.path).to_path_buf();
    PathError {
        path,
        source: source(error),
    }
}

/// Converts an error of a copy to an error of the engine. Errors of the host that concern the tree become the errors that a
/// volume returns.
fn source(error: anyhow::Error) -> Error {
    let error = match error.downcast::<Error>() {
        Ok(own) => return own,
        Err(other) => other,
    };
    let error = match error.downcast::<SourceError>() {
        Ok(error) => return MkfsError::from(error).into(),
        Err(other) => other,
    };
    if let Some(reason) = error.downcast_ref::<Reason>() {
        return match reason {
            Reason::NotFound => Error::NotFound,
            Reason::NotDirectory => Error::NotDirectory,
            Reason::IsDirectory | Reason::DirectoryInTheWay => Error::IsDirectory,
            Reason::FileInTheWay => Error::Exists,
            Reason::PathLeaves => Error::Invalid("a path in the archive has '..'"),
            Reason::Name(_) => Error::Invalid("not a valid file name"),
        };
    }
    let source = match error.downcast::<Errno>() {
        Ok(errno) => io::Error::from(errno),
        Err(error) => match error.downcast::<io::Error>() {
            Ok(error) if error.raw_os_error().is_none() => return Error::Std(error),
            Ok(error) => error,
            Err(error) => io::Error::other(error.to_string()),
        },
    };
    match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound,
        io::ErrorKind::AlreadyExists => Error::Exists,
        io::ErrorKind::NotADirectory => Error::NotDirectory,
        _ => Error::Io {
            context: "host".into(),
            source,
        },
    }
}

/// Counts of a copy, which are reported to the caller.
struct Counting<'a> {
    options: &'a CopyOptions<'a>,
    directories: AtomicU64,
    files: AtomicU64,
    symlinks: AtomicU64,
    specials: AtomicU64,
    hard_links: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
}

impl<'a> Counting<'a> {
    fn new(options: &'a CopyOptions<'a>) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            options,
            directories: zero(),
            files: zero(),
            symlinks: zero(),
            specials: zero(),
            hard_links: zero(),
            bytes: zero(),
            refused: zero(),
        }
    }

    fn counts(&self) -> CopyCounts {
        CopyCounts {
            directories: self.directories.load(Relaxed),
            files: self.files.load(Relaxed),
            symlinks: self.symlinks.load(Relaxed),
            specials: self.specials.load(Relaxed),
            hard_links: self.hard_links.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}

impl Monitor for Counting<'_> {
    fn check(&self) -> anyhow::Result<()> {
        if self.options.cancel.is_some_and(|flag| flag.load(Relaxed)) {
            return Err(Error::Interrupted.into());
        }
        Ok(())
    }

    fn made(&self, kind: FileType) {
        let counter = match kind {
            FileType::Directory => &self.directories,
            FileType::Regular => &self.files,
            FileType::Symlink => &self.symlinks,
            _ => &self.specials,
        };
        counter.fetch_add(1, Relaxed);
    }

    fn linked(&self) {
        self.hard_links.fetch_add(1, Relaxed);
    }

    fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn warn(&self, _: &str, _: &str) {}

    fn refused(&self, _: &str, _: &str) {
        self.refused.fetch_add(1, Relaxed);
    }

    fn step(&self) {
        if let Some(progress) = self.options.progress {
            progress(&self.counts());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credentials, OpenOptions};

    /// Makes a tree with all kinds of files in a volume.
    fn furnish(volume: &Dir) -> crate::Result<()> {
        volume.create_dir_all("/tree/a/b/c")?;
        for n in 0..200 {
            volume.write(format!("/tree/a/file{n}"), vec![n as u8; n * 97])?;
        }
        volume.hard_link("/tree/a/file7", "/tree/a/b/seven")?;
        volume.symlink("../nowhere", "/tree/a/b/link")?;
        volume.mknod("/tree/a/fifo", FileType::Fifo, 0o640, 0)?;
        let sparse = volume.create_new_file("/tree/sparse")?;
        sparse.write_all_at(b"far", 10 << 20)?;
        sparse.set_len(20 << 20)?;
        volume.set_xattr(
            "/tree/a/file9",
            "user.origin",
            b"here",
            crate::SetXattr::Any,
        )?;
        volume.set_permissions("/tree/a/b", 0o2755)?;
        Ok(())
    }

    /// Returns all attributes that a copy keeps, by path.
    fn shown(volume: &Dir, top: &str) -> Vec<String> {
        let mut found = Vec::new();
        for entry in volume.walk(top).unwrap().sorted(true) {
            let entry = entry.unwrap();
            let path = entry.path();
            let m = volume.symlink_metadata(path).unwrap();
            let kept = (m.mode(), m.uid(), m.gid(), m.nlink(), m.mtime(), m.rdev());
            let content = match m.file_type() {
                FileType::Regular => {
                    let data = volume.read(path).unwrap();
                    let sum = data
                        .iter()
                        .fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(*b)));
                    format!("{} {sum:x}", data.len())
                }
                FileType::Symlink => format!("{:?}", volume.read_link(path).unwrap()),
                _ => String::new(),
            };
            let xattrs = volume.list_xattrs(path).unwrap();
            let path = path.strip_prefix(top).unwrap().display();
            found.push(format!("{path} {kept:?} {xattrs:?} {content}"));
        }
        found
    }

    #[test]
    fn a_tree_comes_back_from_the_host_as_it_was() {
        let volume = crate::doc_volume();
        furnish(&volume).unwrap();
        volume.sync().unwrap();
        let host = tempfile::tempdir().unwrap();
        let out = host.path().join("out");
        for threads in [1, 3] {
            let told = AtomicU64::new(0);
            let tell = |_: &CopyCounts| {
                told.fetch_add(1, Relaxed);
            };
            let options = CopyOptions::new().threads(threads).progress(&tell);
            let copied = volume.copy_tree_out("/tree", &out, &options).unwrap();
            let back = volume.copy_tree_in(&out, "/back", &options).unwrap();
            assert_eq!((copied.directories, copied.files), (4, 201));
            assert_eq!(
                (copied.symlinks, copied.specials, copied.hard_links),
                (1, 1, 1)
            );
            // The part of a sparse file that is a hole depends on the size of blocks.
            let bytes = back.bytes;
            assert_eq!(back, CopyCounts { bytes, ..copied });
            assert!(told.load(Relaxed) > 2);
            let sparse = volume.metadata("/back/sparse").unwrap();
            assert!(sparse.len() == 20 << 20 && sparse.blocks() < 1000);
            volume.sync().unwrap();
            if copied.refused == 0 {
                assert_eq!(shown(&volume, "/back"), shown(&volume, "/tree"));
            }
            volume.remove_dir_all("/back").unwrap();
            std::fs::remove_dir_all(&out).unwrap();
        }
    }

    #[test]
    fn nothing_that_is_there_is_touched() {
        let volume = crate::doc_volume();
        volume.create_dir_all("/tree/dir").unwrap();
        let host = tempfile::tempdir().unwrap();
        let options = CopyOptions::new();
        let there = volume.copy_tree_out("/tree", host.path(), &options);
        assert!(matches!(there.unwrap_err().source, Error::Exists));
        let there = volume.copy_tree_in(host.path(), "/tree", &options);
        assert!(matches!(there.unwrap_err().source, Error::Exists));
        let none = volume.copy_tree_out("/none", host.path().join("new"), &options);
        let none = none.unwrap_err();
        assert!(matches!(none.source, Error::NotFound) && none.path == Path::new("/none"));
        assert!(!host.path().join("new").exists());
        std::fs::write(host.path().join("file"), "data").unwrap();
        let file = volume.copy_tree_in(host.path().join("file"), "/new", &options);
        assert!(matches!(file.unwrap_err().source, Error::NotDirectory));
        assert!(!volume.exists("/new").unwrap());
    }

    #[test]
    fn an_error_says_where_and_ends_all_threads() {
        let volume = crate::doc_volume();
        furnish(&volume).unwrap();
        let secret = OpenOptions::new().write(true).create_new(true).mode(0o600);
        secret.open(&volume, "/tree/a/b/c/secret").unwrap();
        let host = tempfile::tempdir().unwrap();
        let user = volume.as_user(Credentials::new(1000, 1000, &[]));
        let failed = user.copy_tree_out("/tree", host.path().join("out"), &CopyOptions::new());
        let failed = failed.unwrap_err();
        assert_eq!(failed.path, Path::new("/tree/a/b/c/secret"), "{failed}");
        assert!(matches!(failed.source, Error::PermissionDenied), "{failed}");
    }
}

//! Copying trees between the host's file systems and a volume, by several threads.
//!
//! A thread takes a directory, makes it on the other side, and leaves its subdirectories and pieces of its files to
//! idle threads. Work that must wait until nothing is added any more comes last: second names of files, then owners,
//! permissions and times of directories, the deepest first.

mod archive;
mod host;
mod side;
mod volume;

use crate::api::dir::Dir;
use crate::base::error::Error;
use host::HostSide;
use side::{Meta, Side};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use volume::VolumeSide;

use ext4_format::FileType;

/// Files that one thread takes at a time.
const PIECE: usize = 64;
/// Bytes that are read at a time.
const CHUNK: u64 = 1 << 20;

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

    /// Fails if the caller has set the flag.
    fn check(&self) -> Result<(), Error> {
        if self.cancel.is_some_and(|flag| flag.load(Relaxed)) {
            return Err(Error::Interrupted);
        }
        Ok(())
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
        let host = HostSide::new(from.as_ref());
        let volume = VolumeSide::new(self, to.as_ref());
        Copy::new(&host, &volume, options).run()
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
        let volume = VolumeSide::new(self, from.as_ref());
        let host = HostSide::new(to.as_ref());
        Copy::new(&volume, &host, options).run()
    }
}

/// Something that a thread can do. Paths are relative to the tops.
enum Task {
    Directory(PathBuf),
    Files(PathBuf, Vec<OsString>),
}

#[derive(Default)]
struct Queue {
    tasks: Vec<Task>,
    /// Threads that work on a task, which may find more.
    busy: usize,
    failed: Option<PathError>,
}

#[derive(Default)]
struct Counters {
    directories: AtomicU64,
    files: AtomicU64,
    symlinks: AtomicU64,
    specials: AtomicU64,
    hard_links: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
}

impl Counters {
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

struct Copy<'a> {
    from: &'a dyn Side,
    to: &'a dyn Side,
    options: &'a CopyOptions<'a>,
    queue: Mutex<Queue>,
    changed: Condvar,
    counters: Counters,
    /// The path of the first name of each file that has several.
    first_names: Mutex<HashMap<(u64, u64), PathBuf>>,
    /// Second names: the first one, and the path.
    links: Mutex<Vec<(PathBuf, PathBuf)>>,
    /// Directories that still need their attributes, those above before those below.
    directories: Mutex<Vec<(PathBuf, Meta)>>,
}

/// Locks a mutex, even after a panic of another thread: the panic ends the copy anyway, and locks hold nothing half
/// done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds the path at which an error was met.
fn at<T>(side: &dyn Side, path: &Path, result: Result<T, Error>) -> Result<T, PathError> {
    result.map_err(|source| PathError {
        path: side.at(path),
        source,
    })
}

impl<'a> Copy<'a> {
    fn new(from: &'a dyn Side, to: &'a dyn Side, options: &'a CopyOptions<'a>) -> Self {
        Self {
            from,
            to,
            options,
            queue: Mutex::default(),
            changed: Condvar::new(),
            counters: Counters::default(),
            first_names: Mutex::default(),
            links: Mutex::default(),
            directories: Mutex::default(),
        }
    }

    fn run(self) -> Result<CopyCounts, PathError> {
        let top = Path::new("");
        let meta = at(self.from, top, self.from.meta(top))?;
        if meta.file_type != FileType::Directory {
            return at(self.from, top, Err(Error::NotDirectory));
        }
        self.make_directory(top, meta)?;
        lock(&self.queue)
            .tasks
            .push(Task::Directory(PathBuf::new()));
        std::thread::scope(|s| {
            for _ in 1..self.options.threads {
                s.spawn(|| self.work());
            }
            self.work();
        });
        if let Some(failed) = lock(&self.queue).failed.take() {
            return Err(failed);
        }
        at(self.to, top, self.options.check())?;
        for (old, new) in &*lock(&self.links) {
            at(self.to, new, self.to.link(old, new))?;
            self.counters.hard_links.fetch_add(1, Relaxed);
        }
        for (path, meta) in lock(&self.directories).iter().rev() {
            self.keep(path, meta)?;
        }
        Ok(self.counters.counts())
    }

    /// Takes tasks until all are done, or one has failed.
    fn work(&self) {
        while let Some(task) = self.next() {
            let stopped = at(self.to, Path::new(""), self.options.check());
            let done = stopped.and_then(|()| match task {
                Task::Directory(path) => self.directory(&path),
                Task::Files(dir, names) => self.files(&dir, &names),
            });
            let mut queue = lock(&self.queue);
            queue.busy -= 1;
            if let Err(e) = done {
                queue.failed.get_or_insert(e);
            }
            drop(queue);
            self.changed.notify_all();
            if let Some(told) = self.options.progress {
                told(&self.counters.counts());
            }
        }
    }

    fn next(&self) -> Option<Task> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.failed.is_some() {
                return None;
            }
            if let Some(task) = queue.tasks.pop() {
                queue.busy += 1;
                return Some(task);
            }
            if queue.busy == 0 {
                return None;
            }
            let waited = self.changed.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn make_directory(&self, path: &Path, meta: Meta) -> Result<(), PathError> {
        at(self.to, path, self.to.make_dir(path))?;
        lock(&self.directories).push((path.to_path_buf(), meta));
        self.counters.directories.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Makes the directories in one, and leaves its files as pieces of work.
    fn directory(&self, dir: &Path) -> Result<(), PathError> {
        let names = at(self.from, dir, self.from.list(dir))?;
        let (mut tasks, mut files) = (Vec::new(), Vec::new());
        for (name, kind) in names {
            if kind != FileType::Directory {
                files.push(name);
                continue;
            }
            let path = dir.join(name);
            let meta = at(self.from, &path, self.from.meta(&path))?;
            self.make_directory(&path, meta)?;
            tasks.push(Task::Directory(path));
        }
        for piece in files.chunks(PIECE) {
            tasks.push(Task::Files(dir.to_path_buf(), piece.to_vec()));
        }
        lock(&self.queue).tasks.append(&mut tasks);
        self.changed.notify_all();
        Ok(())
    }

    fn files(&self, dir: &Path, names: &[OsString]) -> Result<(), PathError> {
        names.iter().try_for_each(|name| {
            let path = dir.join(name);
            let meta = at(self.from, &path, self.from.meta(&path))?;
            self.file(&path, &meta)
        })
    }

    /// Copies anything but a directory.
    fn file(&self, path: &Path, meta: &Meta) -> Result<(), PathError> {
        if meta.links > 1 {
            let mut first_names = lock(&self.first_names);
            if let Some(first) = first_names.get(&meta.id) {
                lock(&self.links).push((first.clone(), path.to_path_buf()));
                return Ok(());
            }
            first_names.insert(meta.id, path.to_path_buf());
        }
        match meta.file_type {
            FileType::Symlink => {
                let target = at(self.from, path, self.from.read_link(path))?;
                at(self.to, path, self.to.symlink(&target, path))?;
                self.counters.symlinks.fetch_add(1, Relaxed);
            }
            FileType::Regular => {
                self.content(path, meta)?;
                self.counters.files.fetch_add(1, Relaxed);
            }
            _ => {
                let made = at(self.to, path, self.to.special(path, meta))?;
                if !made {
                    self.counters.refused.fetch_add(1, Relaxed);
                    return Ok(());
                }
                self.counters.specials.fetch_add(1, Relaxed);
            }
        }
        self.keep(path, meta)
    }

    /// Copies the data of a file, without its holes.
    fn content(&self, path: &Path, meta: &Meta) -> Result<(), PathError> {
        let from = at(self.from, path, self.from.open(path))?;
        let to = at(self.to, path, self.to.create(path))?;
        let mut buf = vec![0; usize::try_from(meta.size.clamp(1, CHUNK)).unwrap_or(1)];
        let mut offset = 0;
        while let Some((start, end)) = at(self.from, path, from.next_data(offset, meta.size))? {
            offset = start;
            while offset < end {
                at(self.to, path, self.options.check())?;
                let want = usize::try_from((end - offset).min(CHUNK)).unwrap_or(1);
                let n = at(self.from, path, from.read_at(&mut buf[..want], offset))?;
                if n == 0 {
                    // The file was cut meanwhile.
                    return Ok(());
                }
                at(self.to, path, to.write_all_at(&buf[..n], offset))?;
                offset += n as u64;
                self.counters.bytes.fetch_add(n as u64, Relaxed);
            }
        }
        if offset < meta.size {
            at(self.to, path, to.set_len(meta.size))?;
        }
        Ok(())
    }

    /// Keeps attributes and extended attributes.
    fn keep(&self, path: &Path, meta: &Meta) -> Result<(), PathError> {
        let xattrs = at(self.from, path, self.from.xattrs(path))?;
        let kept = self.to.keep(path, meta, self.options.owners, &xattrs);
        let refused = at(self.to, path, kept)?;
        self.counters.refused.fetch_add(refused, Relaxed);
        Ok(())
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

//! The contents of all files of a tree, read ahead by several threads.

use super::copy::PathError;
use super::dir::Dir;
use super::node::Node;
use super::tree::{Walk, WalkEntry};
use crate::base::error::{Error, Result};
use crate::base::parallel::panicked;
use ext4_format::FileType;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Files that a thread takes at a time.
const BATCH: usize = 48;
/// Batches that are read ahead of the caller.
const AHEAD: u64 = 4;
/// Maximum of threads: more would only wait for the walk and for the caller.
const THREADS: usize = 4;

/// Bytes of contents that end a batch: the rest of its files is read when the caller asks for more.
const BATCH_BYTES: usize = 16 << 20;
/// Bytes by which memory for contents grows at least: room for a batch of ordinary files.
const GROWTH: usize = 512 << 10;
/// Bytes that memory for contents may have to be kept for a later batch.
const KEPT: usize = 4 << 20;
/// Bytes of the largest file that a batch holds. A size comes from the disk, and a sparse file of a hostile image would fill the memory.
const LARGEST: u64 = 1 << 30;

/// The contents of the files of a batch, one behind the other. The memory of a batch that the caller has dropped is used again: fresh
/// memory costs more than the copy of the bytes into it, because the kernel clears it.
#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    /// Bytes in use. Those behind are left over from an earlier batch.
    used: usize,
}

impl Contents {
    /// Returns room for a file, or an error if it is too large or memory cannot hold it.
    fn room(&mut self, size: u64) -> Result<&mut [u8]> {
        if size > LARGEST {
            return Err(Error::FileTooLarge);
        }
        let no_memory = || Error::Io {
            context: format!("memory for a file of {size} bytes"),
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        let len = usize::try_from(size).map_err(|_| no_memory())?;
        let end = self.used.checked_add(len).ok_or_else(no_memory)?;
        if let Some(more) = end.checked_sub(self.bytes.len()) {
            let more = more.max(GROWTH);
            self.bytes.try_reserve(more).map_err(|_| no_memory())?;
            self.bytes.resize(end, 0);
        }
        Ok(&mut self.bytes[self.used..end])
    }

    /// Notes that `len` bytes of the room are a file; returns where they are.
    fn filled(&mut self, len: usize) -> Range<usize> {
        let start = self.used;
        self.used += len;
        start..self.used
    }
}

/// Files of a tree with their contents, in the order of the walk.
///
/// ```
/// # let volume = extant::doc_volume();
/// volume.write("/motd", "hello")?;
/// let batch = volume.read_files("/")?.next().expect("a file")?;
/// let (path, content) = batch.files().next().expect("a file");
/// assert_eq!(path, std::path::Path::new("/motd"));
/// assert_eq!(content.expect("a sound file"), b"hello");
/// # Ok::<(), extant::Error>(())
/// ```
pub struct FileBatch {
    files: Vec<(PathBuf, Result<Range<usize>>)>,
    contents: Contents,
    /// Files that are not read yet, because those before them are large.
    rest: Vec<WalkEntry>,
    spare: Arc<Spare>,
}

impl FileBatch {
    /// Returns the path of each file, and its contents or why they could not be read.
    pub fn files(&self) -> impl Iterator<Item = (&Path, Result<&[u8], &Error>)> {
        self.files.iter().map(|(path, place)| {
            let content = place.as_ref().map(|at| &self.contents.bytes[at.clone()]);
            (path.as_path(), content)
        })
    }
}

impl Drop for FileBatch {
    /// Keeps the memory for a later batch.
    fn drop(&mut self) {
        if self.contents.bytes.len() <= KEPT {
            self.spare.lock().push(std::mem::take(&mut self.contents));
        }
    }
}

impl fmt::Debug for FileBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBatch")
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}

/// Memory of batches that the caller has dropped. Nothing is read while the lock is held.
#[derive(Default)]
struct Spare(Mutex<Vec<Contents>>);

impl Spare {
    fn lock(&self) -> MutexGuard<'_, Vec<Contents>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a file to the end of the contents. If the volume is open for reading only and its caller may read everything, the file is found
/// by its inode number without another look-up. Its data are read once, so the volume does not keep them in memory.
fn read_one(entry: &WalkEntry, contents: &mut Contents) -> Result<Range<usize>> {
    let dir = entry.parent();
    let engine = dir.engine()?;
    if dir.who().is_privileged() && engine.store.check_writable().is_err() {
        match Node::of_engine(dir.caller.any_engine(), entry.ino()) {
            // A damaged bitmap may call the inode free. Its name still leads to it.
            Err(Error::StaleInode(_)) => {}
            node => {
                let node = node?;
                let size = node.metadata()?.len();
                let len = node.read_cached(contents.room(size)?, 0)?;
                return Ok(contents.filled(len));
            }
        }
    }
    let file = dir.open_file(entry.file_name())?;
    let size = file.metadata()?.len();
    let len = file.read_at(contents.room(size)?, 0)?;
    Ok(contents.filled(len))
}

/// Reads files until the contents have `most` bytes.
fn read_batch(entries: Vec<WalkEntry>, spare: &Arc<Spare>, most: usize) -> FileBatch {
    let mut contents = spare.lock().pop().unwrap_or_default();
    contents.used = 0;
    let mut files = Vec::with_capacity(entries.len());
    let mut entries = entries.into_iter();
    while contents.used < most
        && let Some(entry) = entries.next()
    {
        let place = read_one(&entry, &mut contents);
        files.push((entry.path().to_path_buf(), place));
    }
    FileBatch {
        files,
        contents,
        rest: entries.collect(),
        spare: Arc::clone(spare),
    }
}

/// Reads a batch in a thread that the caller waits for. A panic is an error, so that the caller does not wait for ever.
fn read_caught(
    entries: Vec<WalkEntry>,
    spare: &Arc<Spare>,
    most: usize,
) -> Result<FileBatch, PathError> {
    let first = entries.first().map(|entry| entry.path().to_path_buf());
    let read = catch_unwind(AssertUnwindSafe(|| read_batch(entries, spare, most)));
    read.map_err(|panic| PathError {
        path: first.unwrap_or_default(),
        source: panicked(panic),
    })
}

/// The walk, and the batches that were read and not fetched yet.
struct ReadAhead {
    /// `None` at the end of the walk, after an error of it, and after the caller has gone.
    walk: Option<Walk>,
    /// The number of batches that threads have taken, and of those that the caller has fetched.
    taken: u64,
    fetched: u64,
    ready: BTreeMap<u64, Result<FileBatch, PathError>>,
    failed: Option<PathError>,
}

impl ReadAhead {
    /// Takes the names of the next batch. Directories, links and special files are left out.
    fn take(&mut self) -> Option<(u64, Vec<WalkEntry>)> {
        let mut entries = Vec::with_capacity(BATCH);
        while entries.len() < BATCH {
            match self.walk.as_mut().and_then(Iterator::next) {
                Some(Ok(entry)) if entry.file_type() == FileType::Regular => {
                    entries.push(entry);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    self.failed = Some(error);
                    self.walk = None;
                }
                None => {
                    self.walk = None;
                    break;
                }
            }
        }
        if entries.is_empty() {
            return None;
        }
        self.taken += 1;
        Some((self.taken - 1, entries))
    }

    /// Like [`take`](Self::take), in a thread that the caller waits for: a panic of the walk is an error at its end.
    fn take_caught(&mut self) -> Option<(u64, Vec<WalkEntry>)> {
        let taken = catch_unwind(AssertUnwindSafe(|| self.take()));
        taken.unwrap_or_else(|panic| {
            self.walk = None;
            self.failed = Some(PathError {
                path: PathBuf::new(),
                source: panicked(panic),
            });
            None
        })
    }
}

struct Shared {
    state: Mutex<ReadAhead>,
    changed: Condvar,
    spare: Arc<Spare>,
    /// Bytes of contents that end a batch.
    batch_bytes: usize,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, ReadAhead> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, ReadAhead>) -> MutexGuard<'s, ReadAhead> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads batches until the walk ends.
    fn work(&self) {
        let mut state = self.state();
        while state.walk.is_some() {
            if state.taken >= state.fetched + AHEAD {
                state = self.wait(state);
                continue;
            }
            let Some((number, entries)) = state.take_caught() else {
                break;
            };
            drop(state);
            let found = read_caught(entries, &self.spare, self.batch_bytes);
            state = self.state();
            state.ready.insert(number, found);
            self.changed.notify_all();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the next batch, or reads it if no thread reads ahead; returns `None` at the end.
    fn fetch(&self, alone: bool) -> Result<Option<FileBatch>, PathError> {
        let mut state = self.state();
        loop {
            let next = state.fetched;
            if let Some(found) = state.ready.remove(&next) {
                state.fetched += 1;
                drop(state);
                self.changed.notify_all();
                return found.map(Some);
            }
            if alone && let Some((_, entries)) = state.take() {
                state.fetched += 1;
                return Ok(Some(read_batch(entries, &self.spare, self.batch_bytes)));
            }
            if state.walk.is_none() && state.taken == next {
                return state.failed.take().map_or(Ok(None), Err);
            }
            state = self.wait(state);
        }
    }
}

/// All regular files below a directory with their contents, read ahead by several threads: [`Dir::read_files`].
///
/// Each batch has up to 48 files, or fewer if they have 16 MiB or more. At most four batches are read ahead. After an error of the walk the
/// iterator ends.
///
/// ```
/// # let volume = extant::doc_volume();
/// for n in 0..100 {
///     volume.write(format!("/{n}"), "text")?;
/// }
/// let mut bytes = 0;
/// for batch in volume.read_files("/")? {
///     for (path, content) in batch?.files() {
///         assert!(path.starts_with("/"));
///         bytes += content.map_or(0, <[u8]>::len);
///     }
/// }
/// assert_eq!(bytes, 400);
/// # Ok::<(), extant::Error>(())
/// ```
pub struct ReadFiles {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Files of the last batch that are not read yet.
    rest: Vec<WalkEntry>,
}

impl ReadFiles {
    fn new(walk: Walk, threads: usize, batch_bytes: usize) -> Self {
        let state = ReadAhead {
            walk: Some(walk),
            taken: 0,
            fetched: 0,
            ready: BTreeMap::new(),
            failed: None,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            spare: Arc::default(),
            batch_bytes,
        });
        let spawn = |_| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().spawn(move || shared.work())
        };
        Self {
            threads: (0..threads).map_while(|n| spawn(n).ok()).collect(),
            shared,
            rest: Vec::new(),
        }
    }
}

impl Iterator for ReadFiles {
    type Item = Result<FileBatch, PathError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest);
        let found = if rest.is_empty() {
            self.shared.fetch(self.threads.is_empty()).transpose()?
        } else {
            Ok(read_batch(
                rest,
                &self.shared.spare,
                self.shared.batch_bytes,
            ))
        };
        Some(found.map(|mut batch| {
            self.rest = std::mem::take(&mut batch.rest);
            batch
        }))
    }
}

impl Drop for ReadFiles {
    /// Ends the threads.
    fn drop(&mut self) {
        let walk = self.shared.state().walk.take();
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // The caller has gone, and needs no error.
            let _ = thread.join();
        }
        drop(walk);
    }
}

impl fmt::Debug for ReadFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadFiles").finish_non_exhaustive()
    }
}

impl Dir {
    /// Reads all regular files below a directory, in the order of their paths. Links are not followed, except one that the path ends in.
    /// A file that is removed meanwhile is [`Error::NotFound`] in its batch, and one of more than 1 GiB is [`Error::FileTooLarge`]: read it
    /// with [`open_file`](Self::open_file).
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_dir("/etc")?;
    /// volume.write("/etc/hostname", "box")?;
    /// let batches = volume.read_files("/etc")?.collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(batches[0].files().count(), 1);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_files(&self, path: impl AsRef<Path>) -> Result<ReadFiles> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.read_files_with(path, cpus.min(THREADS))
    }

    /// Like [`read_files`](Self::read_files), with a number of threads that help the caller. With 0 the caller reads, for devices that are
    /// to be read by its thread.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert!(volume.read_files_with("/", 0)?.next().is_none()); // lost+found is a directory
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_files_with(&self, path: impl AsRef<Path>, threads: usize) -> Result<ReadFiles> {
        Ok(ReadFiles::new(
            self.walk(path)?.sorted(true),
            threads,
            BATCH_BYTES,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::credentials::Credentials;
    use crate::volume::options::VolumeOptions;
    use blockdev::MemDevice;

    fn read_all(reads: ReadFiles) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut found = Vec::new();
        for batch in reads {
            for (path, content) in batch.expect("a sound walk").files() {
                found.push((path.to_path_buf(), content.ok().map(<[u8]>::to_vec)));
            }
        }
        found
    }

    /// Bytes that end a batch in these tests.
    const FEW: usize = 8192;

    /// Files below, at and above the size that ends a batch, in several directories.
    fn write_tree(volume: &crate::Volume) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut written = Vec::new();
        for dir in 0..3 {
            volume.create_dir(format!("/{dir}")).expect("room");
            for n in 0..80 {
                let size = if n == 40 { FEW - 1 + dir } else { n * 7 };
                let path = PathBuf::from(format!("/{dir}/{n:02}"));
                let content = vec![(n + dir) as u8; size];
                volume.write(&path, &content).expect("room");
                written.push((path, Some(content)));
            }
        }
        written
    }

    #[test]
    fn files_come_in_the_order_of_their_paths() {
        let volume = crate::doc_volume();
        let written = write_tree(&volume);
        for threads in [0, 1, 3] {
            let walk = volume.walk("/").expect("a directory").sorted(true);
            let reads = ReadFiles::new(walk, threads, FEW);
            assert!(read_all(reads) == written, "{threads} threads");
        }
    }

    #[test]
    fn a_volume_for_reading_is_read_by_number() {
        let device = Arc::new(MemDevice::new(16 << 20));
        let options = extant_mkfs::MkfsOptions {
            size: Some(16 << 20),
            ..Default::default()
        };
        extant_mkfs::format(&*device, &options).expect("memory");
        let open = |read_only| {
            let options = VolumeOptions::new().read_only(read_only);
            options
                .open_device(Arc::clone(&device) as _)
                .expect("a sound image")
        };
        let volume = open(false);
        let written = write_tree(&volume);
        volume.close().expect("memory");
        let volume = open(true);
        assert!(read_all(volume.read_files("/").expect("a directory")) == written);
        assert_eq!(
            volume.memory().data,
            0,
            "data that are read by name are kept"
        );
    }

    #[test]
    fn a_file_of_any_size_takes_bounded_memory() {
        let volume = crate::doc_volume();
        let file = volume.create_new_file("/sparse").expect("room");
        file.set_len(LARGEST + 1).expect("a hole");
        volume.write("/zero", "0").expect("room");
        let found = read_all(volume.read_files("/").expect("a directory"));
        let found: Vec<_> = found
            .iter()
            .map(|(_, content)| content.as_deref())
            .collect();
        assert_eq!(found, [None, Some(b"0".as_slice())]);
    }

    #[test]
    fn a_caller_reads_what_it_may_read() {
        let volume = crate::doc_volume();
        let home = volume.create_dir("/home").expect("room");
        home.write("open", "1").expect("room");
        home.write("secret", "2").expect("room");
        home.set_permissions("secret", 0o600).expect("a file");
        let user = home.as_user(Credentials::new(1000, 1000, &[]));
        let found = read_all(user.read_files(".").expect("a directory"));
        let found: Vec<_> = found
            .iter()
            .map(|(_, content)| content.as_deref())
            .collect();
        assert_eq!(found, [Some(b"1".as_slice()), None]);
    }

    #[test]
    fn a_caller_that_leaves_early_leaves_no_thread() {
        let volume = crate::doc_volume();
        write_tree(&volume);
        let mut reads = volume.read_files_with("/", 3).expect("a directory");
        let shared = Arc::downgrade(&reads.shared);
        assert!(reads.next().is_some());
        drop(reads);
        assert_eq!(shared.strong_count(), 0);
    }
}

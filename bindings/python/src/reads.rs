//! All files of a tree, read ahead by several threads.

use crate::error::raise;
use crate::handle::Owner;
use extant::unstable::Node;
use extant::{Error, FileType, PathError, Volume, Walk, WalkEntry};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Files that a thread takes at a time.
const PIECE: usize = 48;
/// Pieces that are read ahead of the caller.
const AHEAD: u64 = 4;
/// Maximum of threads: more would only wait for the walk and for the caller.
const THREADS: usize = 4;

/// Bytes of contents that end a piece: the rest of its files is read when the caller asks for more.
const PIECE_BYTES: usize = 16 << 20;
/// Bytes by which memory for contents grows at least: room for a piece of ordinary files.
const GROWTH: usize = 512 << 10;
/// Bytes that memory for contents may have to be kept for a later piece.
const KEPT: usize = 4 << 20;

/// The contents of the files of a piece, one behind the other. The memory of a piece that the caller has fetched is used again: fresh memory
/// costs more than the copy of the bytes into it, because the kernel clears it.
#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    /// Bytes in use. Those behind are left over from an earlier piece.
    used: usize,
}

impl Contents {
    /// Returns room for a file, or an error if memory cannot hold it.
    fn room(&mut self, size: u64) -> extant::Result<&mut [u8]> {
        let no_memory = || Error::Io {
            context: format!("memory for a file of {size} bytes"),
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        let len = usize::try_from(size).map_err(|_| no_memory())?;
        let end = self.used.checked_add(len).ok_or_else(no_memory)?;
        if let Some(more) = end.checked_sub(self.bytes.len()) {
            // The size comes from the disk, so it is not trusted.
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

/// Files that were read: paths, and places in the contents.
#[derive(Default)]
struct Piece {
    files: Vec<(PathBuf, extant::Result<Range<usize>>)>,
    contents: Contents,
    /// Files that are not read yet, because those before them are large.
    rest: Vec<WalkEntry>,
}

/// The walk, and the pieces that were read and not fetched yet.
struct ReadAhead {
    /// `None` at the end of the walk, after an error of it, and after the caller has gone.
    walk: Option<Walk>,
    /// The number of pieces that threads have taken, and of those that the caller has fetched.
    taken: u64,
    fetched: u64,
    ready: BTreeMap<u64, Piece>,
    failed: Option<PathError>,
}

struct Shared {
    volume: Volume,
    /// Whether nothing changes the volume, so that an inode keeps its number.
    read_only: bool,
    state: Mutex<ReadAhead>,
    /// Memory of pieces that the caller has fetched. Nothing is read while this lock is held.
    spare: Mutex<Vec<Contents>>,
    changed: Condvar,
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

    fn spare(&self) -> MutexGuard<'_, Vec<Contents>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the names of the next piece. Directories, links and special files are left out.
    fn take(&self, state: &mut ReadAhead) -> Option<(u64, Vec<WalkEntry>)> {
        let mut entries = Vec::with_capacity(PIECE);
        while entries.len() < PIECE {
            match state.walk.as_mut().and_then(Iterator::next) {
                Some(Ok(entry)) if entry.file_type() == FileType::Regular => {
                    entries.push(entry);
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    state.failed = Some(error);
                    state.walk = None;
                }
                None => {
                    state.walk = None;
                    break;
                }
            }
        }
        if entries.is_empty() {
            return None;
        }
        state.taken += 1;
        Some((state.taken - 1, entries))
    }

    /// Reads a file to the end of the contents. If nothing changes the volume, the number of the inode leads to the file without another
    /// look-up, and the data, which are read once, are not kept in the volume's memory.
    fn read_one(&self, entry: &WalkEntry, contents: &mut Contents) -> extant::Result<Range<usize>> {
        if self.read_only {
            match Node::of_number(&self.volume, entry.ino()) {
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
        let file = entry.parent().open_file(entry.file_name())?;
        let size = file.metadata()?.len();
        let len = file.read_at(contents.room(size)?, 0)?;
        Ok(contents.filled(len))
    }

    fn read(&self, entries: Vec<WalkEntry>) -> Piece {
        let mut contents = self.spare().pop().unwrap_or_default();
        contents.used = 0;
        let mut files = Vec::with_capacity(entries.len());
        let mut entries = entries.into_iter();
        while contents.used < PIECE_BYTES
            && let Some(entry) = entries.next()
        {
            let place = self.read_one(&entry, &mut contents);
            files.push((entry.path().to_path_buf(), place));
        }
        Piece {
            files,
            contents,
            rest: entries.collect(),
        }
    }

    /// Keeps the memory of a piece for a later one.
    fn give_back(&self, contents: Contents) {
        if contents.bytes.len() <= KEPT {
            self.spare().push(contents);
        }
    }

    /// Reads pieces until the walk ends.
    fn work(&self) {
        let mut state = self.state();
        while state.walk.is_some() {
            if state.taken >= state.fetched + AHEAD {
                state = self.wait(state);
                continue;
            }
            let Some((number, entries)) = self.take(&mut state) else {
                break;
            };
            drop(state);
            let found = self.read(entries);
            state = self.state();
            state.ready.insert(number, found);
            self.changed.notify_all();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the next piece, or reads it if no thread reads ahead; returns an empty piece at the end.
    fn fetch(&self, alone: bool) -> Result<Piece, PathError> {
        let mut state = self.state();
        loop {
            let next = state.fetched;
            if let Some(found) = state.ready.remove(&next) {
                state.fetched += 1;
                drop(state);
                self.changed.notify_all();
                return Ok(found);
            }
            if alone && let Some((_, entries)) = self.take(&mut state) {
                state.fetched += 1;
                return Ok(self.read(entries));
            }
            if state.walk.is_none() && state.taken == next {
                return state.failed.take().map_or(Ok(Piece::default()), Err);
            }
            state = self.wait(state);
        }
    }
}

/// A walk that returns files with their contents.
#[pyclass(frozen, module = "extant")]
pub struct NativeReads {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    alone: bool,
    /// Files of the last piece that are not read yet.
    rest: Mutex<Vec<WalkEntry>>,
    owner: Owner,
}

impl Drop for NativeReads {
    /// Ends the threads.
    fn drop(&mut self) {
        let threads = std::mem::take(self.threads.get_mut().unwrap_or_else(|e| e.into_inner()));
        let shared = &self.shared;
        if self.owner.is_parent() {
            // The threads and the volume are those of the parent. The volume stays referenced.
            return std::mem::forget((threads, Arc::clone(shared)));
        }
        Python::attach(|py| {
            py.detach(|| {
                let walk = shared.state().walk.take();
                shared.changed.notify_all();
                for thread in threads {
                    // A panic of it is an error of the library, which the volume reports.
                    let _ = thread.join();
                }
                drop(walk);
            });
        });
    }
}

impl NativeReads {
    /// Starts to read; with `alone` only the caller reads, for devices whose reads need the interpreter.
    pub fn new(volume: Volume, walk: Walk, alone: bool) -> Self {
        let state = ReadAhead {
            walk: Some(walk),
            taken: 0,
            fetched: 0,
            ready: BTreeMap::new(),
            failed: None,
        };
        let shared = Arc::new(Shared {
            read_only: volume.read_only().is_some(),
            volume,
            state: Mutex::new(state),
            spare: Mutex::default(),
            changed: Condvar::new(),
        });
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if alone { 0 } else { cpus.min(THREADS) };
        let spawn = |_| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().spawn(move || shared.work())
        };
        let threads: Vec<_> = (0..threads).map_while(|n| spawn(n).ok()).collect();
        Self {
            alone: threads.is_empty(),
            shared,
            threads: Mutex::new(threads),
            rest: Mutex::default(),
            owner: Owner::new(),
        }
    }
}

impl NativeReads {
    fn rest(&self) -> MutexGuard<'_, Vec<WalkEntry>> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl NativeReads {
    /// Returns the next files: paths and contents; an empty list at the end.
    fn next_some<'py>(&self, py: Python<'py>) -> PyResult<Vec<(OsString, Bound<'py, PyBytes>)>> {
        self.owner.check()?;
        let rest = std::mem::take(&mut *self.rest());
        let found = py.detach(|| {
            if rest.is_empty() {
                self.shared.fetch(self.alone)
            } else {
                Ok(self.shared.read(rest))
            }
        });
        let found = found.map_err(|e| raise(&e.source, Some(&e.path)))?;
        let Piece {
            files,
            contents,
            rest,
        } = found;
        *self.rest() = rest;
        let one = |(path, place): (PathBuf, extant::Result<Range<usize>>)| {
            let place = place.map_err(|e| raise(&e, Some(&path)))?;
            let data = PyBytes::new(py, &contents.bytes[place]);
            Ok((path.into_os_string(), data))
        };
        let made = files.into_iter().map(one).collect();
        self.shared.give_back(contents);
        made
    }
}

//! All files of a tree, read ahead by several threads.

use crate::error::raise;
use crate::handle::Owner;
use extant::{FileType, PathError, Volume, Walk};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Files that a thread takes at a time.
const PIECE: usize = 16;
/// Pieces that are read ahead of the caller.
const AHEAD: u64 = 16;
/// Maximum of threads: more would only wait for the walk and for the caller.
const THREADS: usize = 4;

type Found = (PathBuf, extant::Result<Vec<u8>>);

/// The walk, and the pieces that were read and not fetched yet.
struct ReadAhead {
    /// `None` at the end of the walk, after an error of it, and after the caller has gone.
    walk: Option<Walk>,
    /// The number of pieces that threads have taken, and of those that the caller has fetched.
    taken: u64,
    fetched: u64,
    ready: BTreeMap<u64, Vec<Found>>,
    failed: Option<PathError>,
}

struct Shared {
    volume: Volume,
    state: Mutex<ReadAhead>,
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

    /// Takes the paths of the next piece. Directories, links and special files are left out.
    fn take(&self, state: &mut ReadAhead) -> Option<(u64, Vec<PathBuf>)> {
        let mut paths = Vec::with_capacity(PIECE);
        while paths.len() < PIECE {
            match state.walk.as_mut().and_then(Iterator::next) {
                Some(Ok(entry)) if entry.file_type() == FileType::Regular => {
                    paths.push(entry.path().to_path_buf());
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
        if paths.is_empty() {
            return None;
        }
        state.taken += 1;
        Some((state.taken - 1, paths))
    }

    fn read(&self, paths: Vec<PathBuf>) -> Vec<Found> {
        let read = |path: PathBuf| {
            let data = self.volume.read(&path);
            (path, data)
        };
        paths.into_iter().map(read).collect()
    }

    /// Reads pieces until the walk ends.
    fn work(&self) {
        let mut state = self.state();
        while state.walk.is_some() {
            if state.taken >= state.fetched + AHEAD {
                state = self.wait(state);
                continue;
            }
            let Some((number, paths)) = self.take(&mut state) else {
                break;
            };
            drop(state);
            let found = self.read(paths);
            state = self.state();
            state.ready.insert(number, found);
            self.changed.notify_all();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the next piece, or reads it if no thread reads ahead; returns nothing at the end.
    fn fetch(&self, alone: bool) -> Result<Vec<Found>, PathError> {
        let mut state = self.state();
        loop {
            let next = state.fetched;
            if let Some(found) = state.ready.remove(&next) {
                state.fetched += 1;
                drop(state);
                self.changed.notify_all();
                return Ok(found);
            }
            if alone && let Some((_, paths)) = self.take(&mut state) {
                state.fetched += 1;
                return Ok(self.read(paths));
            }
            if state.walk.is_none() && state.taken == next {
                return state.failed.take().map_or(Ok(Vec::new()), Err);
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
            volume,
            state: Mutex::new(state),
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
            owner: Owner::new(),
        }
    }
}

#[pymethods]
impl NativeReads {
    /// Returns the next files: paths and contents; an empty list at the end.
    fn next_some<'py>(&self, py: Python<'py>) -> PyResult<Vec<(OsString, Bound<'py, PyBytes>)>> {
        self.owner.check()?;
        let found = py.detach(|| self.shared.fetch(self.alone));
        let found = found.map_err(|e| raise(&e.source, Some(&e.path)))?;
        let one = |(path, data): Found| {
            let data = data.map_err(|e| raise(&e, Some(&path)))?;
            Ok((path.into_os_string(), PyBytes::new(py, &data)))
        };
        found.into_iter().map(one).collect()
    }
}

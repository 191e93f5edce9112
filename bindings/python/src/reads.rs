//! All files of a tree, read ahead by several threads.

use crate::error::raise;
use extant::{FileType, Volume, Walk};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files that are read by one call.
const FILES: usize = 512;
/// Files that a thread takes at a time.
const PIECE: usize = 16;

/// A walk that returns files with their contents.
#[pyclass(frozen, module = "extant")]
pub struct NativeReads {
    /// The volume, for reading, and the walk.
    state: Mutex<Option<(Volume, Walk)>>,
}

impl Drop for NativeReads {
    /// Releases the interpreter, as the volume may be the last user of a device in Python.
    fn drop(&mut self) {
        let state = self.state.get_mut().map_or(None, |state| state.take());
        Python::attach(|py| py.detach(|| drop(state)));
    }
}

type Found = (PathBuf, extant::Result<Vec<u8>>);

impl NativeReads {
    pub fn new(volume: Volume, walk: Walk) -> Self {
        Self {
            state: Mutex::new(Some((volume, walk))),
        }
    }

    /// Walks to the next files, and reads them. Directories, links and special files are left out.
    fn some(&self) -> Result<Vec<Found>, extant::PathError> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        let Some((volume, walk)) = state.as_mut() else {
            return Ok(Vec::new());
        };
        let mut paths = Vec::with_capacity(FILES);
        while paths.len() < FILES {
            let Some(entry) = walk.next().transpose()? else {
                break;
            };
            if entry.file_type() == FileType::Regular {
                paths.push(entry.path().to_path_buf());
            }
        }
        let found = read_all(volume, paths);
        if found.is_empty() {
            *state = None;
        }
        Ok(found)
    }
}

/// Reads files by as many threads as there are CPUs, and returns them in their order.
fn read_all(volume: &Volume, paths: Vec<PathBuf>) -> Vec<Found> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cpus.min(paths.len().div_ceil(PIECE));
    if threads < 2 {
        let read = |path: PathBuf| (volume.read(&path), path);
        return paths.into_iter().map(read).map(|(r, p)| (p, r)).collect();
    }
    let (paths, next) = (&paths, AtomicUsize::new(0));
    let pieces = Mutex::new(Vec::new());
    let work = || {
        loop {
            let first = next.fetch_add(PIECE, Ordering::Relaxed);
            let Some(some) = paths.get(first..paths.len().min(first.saturating_add(PIECE))) else {
                return;
            };
            if some.is_empty() {
                return;
            }
            let read = some.iter().map(|path| (path.clone(), volume.read(path)));
            let read: Vec<Found> = read.collect();
            let mut pieces = pieces.lock().unwrap_or_else(|e| e.into_inner());
            pieces.push((first, read));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut pieces = pieces.into_inner().unwrap_or_else(|e| e.into_inner());
    pieces.sort_unstable_by_key(|(first, _)| *first);
    pieces.into_iter().flat_map(|(_, read)| read).collect()
}

#[pymethods]
impl NativeReads {
    /// Returns the next files: paths and contents; an empty list at the end.
    fn next_some<'py>(&self, py: Python<'py>) -> PyResult<Vec<(OsString, Bound<'py, PyBytes>)>> {
        let found = py.detach(|| self.some());
        let found = found.map_err(|e| raise(&e.source, Some(&e.path)))?;
        let one = |(path, data): Found| {
            let data = data.map_err(|e| raise(&e, Some(&path)))?;
            let path = path.into_os_string();
            Ok((path, PyBytes::new(py, &data)))
        };
        found.into_iter().map(one).collect()
    }
}

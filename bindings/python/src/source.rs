//! Sources of files: directories and archives of the host, and archives that a file object of Python's reads.

use extant::mkfs::{ArchiveInput, Source, TreeSource};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file object that a call reads, until the call ends. A thread that unpacks ahead may outlive the call that needed the
/// archive, and must not touch the interpreter then, which may be at its end.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<Option<Py<PyAny>>>>);

impl Gate {
    fn file(&self) -> MutexGuard<'_, Option<Py<PyAny>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a read that is under way, and lets no other begin.
    pub fn close(&self, py: Python<'_>) {
        // A read needs the interpreter, so the wait is without it. The object is dropped with it.
        let file = py.detach(|| self.file().take());
        drop(file);
    }
}

impl Read for Gate {
    /// Reads the file object; a closed gate is its end.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let file = self.file();
        let Some(file) = file.as_ref() else {
            return Ok(0);
        };
        Python::attach(|py| {
            let got = file.bind(py).call_method1("read", (buf.len(),))?;
            let bytes = got.cast_into::<PyBytes>()?;
            let bytes = bytes.as_bytes();
            let n = bytes.len().min(buf.len());
            buf[..n].copy_from_slice(&bytes[..n]);
            Ok(n)
        })
        .map_err(|e: PyErr| io::Error::from(e))
    }
}

/// Returns an archive: a path, or a file object that reads it until the gate is closed.
pub fn archive(from: &Bound<'_, PyAny>, gate: &Gate) -> PyResult<ArchiveInput> {
    if from.hasattr("read")? {
        *gate.file() = Some(from.clone().unbind());
        let reader = Box::new(gate.clone());
        let name = "archive".into();
        return Ok(ArchiveInput::Reader { name, reader });
    }
    Ok(ArchiveInput::File(from.extract()?))
}

/// Returns a source of a new volume: a directory, or an archive.
pub fn source(from: &Bound<'_, PyAny>, gate: &Gate) -> PyResult<Source> {
    if !from.hasattr("read")? {
        let path: PathBuf = from.extract()?;
        if path.is_dir() {
            return Ok(Source::Tree(TreeSource::new(path)));
        }
    }
    archive(from, gate).map(Source::Archive)
}

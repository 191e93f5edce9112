//! Sources of files: directories and archives of the host, and archives that a file object of Python's reads.

use extant::mkfs::{ArchiveInput, Source, TreeSource};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The file object that a call reads, until the call ends. A thread that unpacks ahead may outlive the call that needed the
/// archive, and must not touch the interpreter then, which may be at its end.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<Input>>);

#[derive(Default)]
struct Input {
    file: Option<Py<PyAny>>,
    /// The exception of a read. An error of an archive keeps only its text.
    raised: Option<PyErr>,
}

impl Gate {
    fn input(&self) -> MutexGuard<'_, Input> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a read that is under way, and lets no other begin. If the call failed because a read did, the result is the
    /// exception of the read.
    pub fn close<R>(&self, py: Python<'_>, done: PyResult<R>) -> PyResult<R> {
        // A read needs the interpreter, so the wait is without it. The object is dropped with it.
        let input = py.detach(|| std::mem::take(&mut *self.input()));
        done.map_err(|error| match input.raised {
            // The exception of a signal handler, such as KeyboardInterrupt, stays.
            Some(raised) if error.is_instance_of::<PyException>(py) => raised,
            _ => error,
        })
    }
}

impl Read for Gate {
    /// Reads the file object; a closed gate is its end.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut input = self.input();
        let Input { file, raised } = &mut *input;
        let Some(file) = file else {
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
        .map_err(|e: PyErr| {
            let text = e.to_string();
            *raised = Some(e);
            io::Error::other(text)
        })
    }
}

/// Returns an archive: a path, or a file object that reads it until the gate is closed.
pub fn archive(from: &Bound<'_, PyAny>, gate: &Gate) -> PyResult<ArchiveInput> {
    if from.hasattr("read")? {
        gate.input().file = Some(from.clone().unbind());
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

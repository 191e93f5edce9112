//! All files of a tree, with their contents.

use crate::error::raise;
use crate::handle::Owner;
use extant::ReadFiles;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

/// The contents of the files of a tree, read ahead by several threads.
#[pyclass(frozen, module = "extant")]
pub struct NativeReads {
    reads: Mutex<Option<ReadFiles>>,
    owner: Owner,
}

impl Drop for NativeReads {
    /// Ends the threads. Those of a parent process, and its volume, are not touched.
    fn drop(&mut self) {
        let reads = self.reads.get_mut().unwrap_or_else(PoisonError::into_inner);
        let reads = reads.take();
        if self.owner.is_parent() {
            return std::mem::forget(reads);
        }
        Python::attach(|py| py.detach(|| drop(reads)));
    }
}

impl NativeReads {
    pub fn new(reads: ReadFiles) -> Self {
        Self {
            reads: Mutex::new(Some(reads)),
            owner: Owner::new(),
        }
    }
}

#[pymethods]
impl NativeReads {
    /// Returns the next files: paths and contents; an empty list at the end.
    fn next_some<'py>(&self, py: Python<'py>) -> PyResult<Vec<(OsString, Bound<'py, PyBytes>)>> {
        self.owner.check()?;
        let next = || {
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            reads.as_mut().and_then(Iterator::next).transpose()
        };
        let Some(batch) = py
            .detach(next)
            .map_err(|e| raise(&e.source, Some(&e.path)))?
        else {
            return Ok(Vec::new());
        };
        let files = batch.files().map(|(path, content)| {
            let content = content.map_err(|e| raise(e, Some(path)))?;
            Ok((path.as_os_str().to_owned(), PyBytes::new(py, content)))
        });
        files.collect()
    }
}

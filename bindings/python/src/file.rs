//! An open file of a volume, by offsets; `python/extant/_file.py` wraps it in an `io` object.

use crate::error::raise;
use crate::handle::{Drops, Handle};
use extant::{Fallocate, File};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

#[pyclass(frozen, module = "extant")]
pub struct NativeFile {
    file: Handle<Arc<File>>,
}

impl NativeFile {
    pub fn new(file: File, drops: Drops) -> Self {
        Self {
            file: Handle::new(Arc::new(file), drops),
        }
    }

    fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&File) -> extant::Result<R> + Send,
    ) -> PyResult<R> {
        let file = self.file.get()?.ok_or_else(|| {
            pyo3::exceptions::PyValueError::new_err("I/O operation on closed file.")
        })?;
        py.detach(|| f(&file)).map_err(|e| raise(&e, None))
    }
}

#[pymethods]
impl NativeFile {
    /// Reads up to `size` bytes from `offset`; fewer at the end of the file.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        size: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let left = self
            .with(py, |f| Ok(f.metadata()?.len()))?
            .saturating_sub(offset);
        let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        let bytes = PyBytes::new_with(py, size, |bytes| {
            done = self.with(py, |f| {
                let mut done = 0;
                while done < size {
                    match f.read_at(&mut bytes[done..], offset + done as u64)? {
                        0 => break,
                        n => done += n,
                    }
                }
                Ok(done)
            })?;
            Ok(())
        })?;
        if done < size {
            // The file was cut meanwhile.
            return Ok(PyBytes::new(py, &bytes.as_bytes()[..done]));
        }
        Ok(bytes)
    }

    /// Writes all of `data` at `offset`.
    fn write_at(&self, py: Python<'_>, data: &[u8], offset: u64) -> PyResult<usize> {
        self.with(py, |f| f.write_all_at(data, offset))?;
        Ok(data.len())
    }

    /// Writes `data` behind the end, in one step; returns where it ends.
    fn append(&self, py: Python<'_>, data: &[u8]) -> PyResult<u64> {
        self.with(py, |f| f.append(data).map(|range| range.end))
    }

    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |f| Ok(f.metadata()?.len()))
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.with(py, |f| f.set_len(size))
    }

    /// Makes data and attributes durable.
    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, File::sync_all)
    }

    fn seek_data(&self, py: Python<'_>, offset: u64) -> PyResult<u64> {
        self.with(py, |f| f.seek_data(offset))
    }

    fn seek_hole(&self, py: Python<'_>, offset: u64) -> PyResult<u64> {
        self.with(py, |f| f.seek_hole(offset))
    }

    fn fallocate(&self, py: Python<'_>, offset: u64, len: u64) -> PyResult<()> {
        let how = Fallocate::Allocate { keep_size: false };
        self.with(py, |f| f.fallocate(how, offset, len))
    }

    fn close(&self, py: Python<'_>) {
        self.file.close(py);
    }
}

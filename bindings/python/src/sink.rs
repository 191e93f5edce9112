//! A file object of Python's, or a file of the host, to which an archive is written.

use crate::error::raise_io;
use extant::Packing;
use pyo3::exceptions::{PyBlockingIOError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// The destination of an archive.
pub enum Sink {
    /// A new file, made at the first write: an export that fails earlier leaves an existing file as it is.
    Path(PathBuf, Option<File>),
    /// A file object with a `write` method; whether it is an `io.RawIOBase`.
    Object(Py<PyAny>, bool),
}

impl Sink {
    pub fn new(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !given.hasattr("write")? {
            return Ok(Self::Path(given.extract()?, None));
        }
        let raw = given.py().import("io")?.getattr("RawIOBase")?;
        Ok(Self::Object(
            given.clone().unbind(),
            given.is_instance(&raw)?,
        ))
    }

    /// Returns the packing that was asked for, or that the name of the file asks for; a file object gets a plain tar archive.
    pub fn packing(&self, format: Option<&str>) -> PyResult<Packing> {
        match (format, self) {
            (Some(format), _) => format.parse().map_err(|e| {
                PyValueError::new_err(format!("'{format}' is not an archive format: {e:#}"))
            }),
            (None, Self::Object(..)) => Ok(Packing::TAR),
            (None, Self::Path(path, _)) => Packing::of_name(path).ok_or_else(|| {
                let path = path.display();
                PyValueError::new_err(format!(
                    "{path}: unknown suffix of an archive: pass its format"
                ))
            }),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Path(path, file) => {
                let written = match file {
                    Some(file) => file.write(bytes),
                    None => File::create(&*path).and_then(|made| file.insert(made).write(bytes)),
                };
                // The exception names this file, and not the path in the volume.
                written.map_err(|e| match e.kind() {
                    // `write_all` calls again.
                    io::ErrorKind::Interrupted => e,
                    _ => io::Error::other(raise_io(e, path)),
                })
            }
            // `io::Error::other`, because `write_all` calls again after the kind `Interrupted`.
            Self::Object(object, raw) => Python::attach(|py| {
                let written = object.call_method1(py, "write", (PyBytes::new(py, bytes),))?;
                match written.extract::<Option<usize>>(py)? {
                    Some(n) if n <= bytes.len() => Ok(n),
                    Some(_) => Err(PyValueError::new_err(
                        "write() returned more bytes than it was given",
                    )),
                    // A raw file returns None if it cannot write now. Other objects return None for want of a count.
                    None if *raw => Err(PyBlockingIOError::new_err(
                        "the file cannot be written without blocking",
                    )),
                    None => Ok(bytes.len()),
                }
            })
            .map_err(io::Error::other),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! A Python file object as a device.

use extant::blockdev::BlockDevice;
use pyo3::exceptions::{PyOSError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::io;

/// A file object opened in binary mode, with `seek` and `read`; to be written, with `write` and `flush` as well.
pub struct PyDevice {
    file: Py<PyAny>,
    /// A lock of Python. A thread that waits for it releases the interpreter.
    lock: Py<PyAny>,
    len: u64,
    writable: bool,
}

impl PyDevice {
    pub fn new(file: Bound<'_, PyAny>, writable: bool) -> PyResult<Self> {
        let py = file.py();
        // A file object may lack the method, which belongs to those of `io`.
        if writable && file.hasattr("writable")? && !file.call_method0("writable")?.is_truthy()? {
            let text = "the file object of the image is not open for writing";
            return Err(PyOSError::new_err((30, text)));
        }
        let len = file.call_method1("seek", (0, 2))?.extract()?;
        let lock = py.import("threading")?.call_method0("Lock")?.unbind();
        Ok(Self {
            file: file.unbind(),
            lock,
            len,
            writable,
        })
    }

    fn locked<R>(&self, f: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> io::Result<R> {
        Python::attach(|py| {
            let lock = self.lock.bind(py);
            lock.call_method0("acquire")?;
            let done = f(self.file.bind(py));
            lock.call_method0("release")?;
            done
        })
        .map_err(io::Error::from)
    }
}

impl BlockDevice for PyDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_only(&self) -> bool {
        !self.writable
    }

    fn read_at(&self, offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        self.locked(|file| {
            file.call_method1("seek", (offset,))?;
            while !buf.is_empty() {
                let got = file.call_method1("read", (buf.len(),))?;
                let got = got.cast_into::<PyBytes>().map_err(|_| {
                    PyTypeError::new_err(
                        "read() of the image must return bytes: open the file in binary mode",
                    )
                })?;
                let bytes = got.as_bytes();
                let n = bytes.len().min(buf.len());
                if n == 0 {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                }
                let (now, rest) = std::mem::take(&mut buf).split_at_mut(n);
                now.copy_from_slice(&bytes[..n]);
                buf = rest;
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        if offset
            .checked_add(buf.len() as u64)
            .is_none_or(|end| end > self.len)
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.locked(|file| {
            file.call_method1("seek", (offset,))?;
            let mut left = buf;
            while !left.is_empty() {
                let written = file.call_method1("write", (PyBytes::new(file.py(), left),))?;
                // A raw file may write a part, or return None if it cannot write now.
                let n = written.extract::<Option<usize>>()?.unwrap_or(0);
                if n == 0 || n > left.len() {
                    return Err(io::Error::from(io::ErrorKind::WriteZero).into());
                }
                left = &left[n..];
            }
            Ok(())
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.locked(|file| {
            if !self.writable {
                return Ok(());
            }
            file.call_method0("flush")?;
            // An object other than a file of the system needs no flush below it.
            if let Ok(fd) = file.call_method0("fileno") {
                file.py().import("os")?.call_method1("fsync", (fd,))?;
            }
            Ok(())
        })
    }
}

//! Errors as Python knows them: `OSError` of the right kind, or `CorruptError` for an image that breaks a rule of the format.

use extant::Error;
use extant::format::FormatError;
use extant::mkfs::MkfsError;
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::io::ErrorKind;
use std::path::Path;

create_exception!(
    extant,
    CorruptError,
    PyOSError,
    "An image breaks a rule of the format. The message names the rule and the place: block, inode, group or offset."
);

/// Returns the number of an error: for errors on the host that of the system.
fn errno(error: &Error) -> i32 {
    let Error::Io { source, .. } = error else {
        return error.errno();
    };
    source.raw_os_error().unwrap_or(match source.kind() {
        ErrorKind::NotFound => 2,
        ErrorKind::PermissionDenied => 13,
        ErrorKind::WouldBlock | ErrorKind::ResourceBusy => 16,
        ErrorKind::IsADirectory => 21,
        ErrorKind::ReadOnlyFilesystem => 30,
        _ => error.errno(),
    })
}

/// Returns the exception for an error; `path` is the file of the call.
pub fn raise(error: &Error, path: Option<&Path>) -> PyErr {
    let (errno, text) = (errno(error), error.to_string());
    match (error, path) {
        (Error::Format(FormatError::Corrupt { .. } | FormatError::Checksum { .. }), _) => {
            CorruptError::new_err((errno, text))
        }
        // The interpreter makes FileNotFoundError and its like of the number.
        (_, Some(path)) => PyOSError::new_err((errno, text, path.as_os_str().to_os_string())),
        (_, None) => PyOSError::new_err((errno, text)),
    }
}

/// Returns the exception for an error of making an image: `ValueError` for invalid options.
pub fn raise_mkfs(error: MkfsError) -> PyErr {
    match error {
        MkfsError::Io { source, .. } if source.raw_os_error().is_some() => PyErr::from(source),
        other => PyValueError::new_err(other.to_string()),
    }
}

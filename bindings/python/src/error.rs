//! Errors as Python knows them: `OSError` of the right kind, or `CorruptError` for an image that breaks a rule of the format.

use extant::Error;
use extant::mkfs::MkfsError;
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::path::Path;

create_exception!(
    extant,
    CorruptError,
    PyOSError,
    "An image breaks a rule of the format. The message names the rule and the place: block, inode, group or offset."
);

/// The exception for an error; `path` names the file that the call was about.
pub fn raise(error: &Error, path: Option<&Path>) -> PyErr {
    let (errno, text) = (error.errno(), error.to_string());
    match (error, path) {
        (Error::Format(_), _) => CorruptError::new_err((errno, text)),
        // The interpreter makes FileNotFoundError and its like of the number.
        (_, Some(path)) => PyOSError::new_err((errno, text, path.as_os_str().to_os_string())),
        (_, None) => PyOSError::new_err((errno, text)),
    }
}

/// The exception for an error of making an image: `ValueError` for options that no file system can have.
pub fn raise_mkfs(error: MkfsError) -> PyErr {
    match error {
        MkfsError::Io { source, .. } if source.raw_os_error().is_some() => PyErr::from(source),
        other => PyValueError::new_err(other.to_string()),
    }
}

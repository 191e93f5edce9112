//! Errors as Python knows them: `OSError` of the right kind, or `CorruptError` for an image that breaks a rule of the format.

use extant::Error;
use extant::format::FormatError;
use extant::mkfs::MkfsError;
use extant_offline::{EUCLEAN, Failure, errno_of};
use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::io;
use std::path::Path;

create_exception!(
    extant,
    CorruptError,
    PyOSError,
    "An image breaks a rule of the format. The message names the rule and the place: block, inode, group or offset."
);

/// Returns the number of an error: for errors on the host that of the system.
fn errno(error: &Error) -> i32 {
    match error {
        Error::Io { source, .. } => errno_of(source),
        _ => error.errno(),
    }
}

/// Returns the exception that a file object or a callback of the caller raised, if it is a cause of the error.
fn raised(error: &Error) -> Option<PyErr> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(match error {
        // A transparent error is not among its own sources.
        Error::Std(error) => error,
        other => other,
    });
    while let Some(error) = cause {
        if let Some(raised) = error.downcast_ref::<PyErr>() {
            return Some(Python::attach(|py| raised.clone_ref(py)));
        }
        // An `io::Error` does not count the error that it holds among its sources.
        let held = error.downcast_ref().and_then(io::Error::get_ref);
        cause = match held {
            Some(held) => Some(held),
            None => error.source(),
        };
    }
    None
}

/// Returns the text of an error without its number, which the exception has.
fn text(error: &dyn std::fmt::Display, errno: i32) -> String {
    error
        .to_string()
        .replace(&format!(" (os error {errno})"), "")
}

/// Returns the exception for a change of a closed image that failed; `ValueError` for an invalid value.
pub fn raise_failure(failure: Failure) -> PyErr {
    match failure.errno {
        EUCLEAN => CorruptError::new_err((EUCLEAN, failure.text)),
        22 => PyValueError::new_err(failure.text),
        errno => PyOSError::new_err((errno, text(&failure.text, errno))),
    }
}

/// Returns the exception for an error; `path` is the file of the call. An exception of the caller's own object stays as it is.
pub fn raise(error: &Error, path: Option<&Path>) -> PyErr {
    if let Some(raised) = raised(error) {
        return raised;
    }
    let errno = errno(error);
    let text = text(error, errno);
    match (error, path) {
        (Error::Format(FormatError::Corrupt { .. } | FormatError::Checksum { .. }), _) => {
            CorruptError::new_err((errno, text))
        }
        // The interpreter makes FileNotFoundError and its like of the number.
        (_, Some(path)) => PyOSError::new_err((errno, text, path.as_os_str().to_os_string())),
        (_, None) => PyOSError::new_err((errno, text)),
    }
}

/// Returns the exception for an error of the host, with its number and the path.
pub fn raise_io(error: io::Error, path: &Path) -> PyErr {
    let errno = errno_of(&error);
    PyOSError::new_err((errno, text(&error, errno), path.as_os_str().to_os_string()))
}

/// Returns the exception for an error of making an image: `ValueError` for invalid options.
pub fn raise_mkfs(error: MkfsError) -> PyErr {
    match error {
        MkfsError::Io { ref source, .. } if source.raw_os_error().is_some() => {
            let errno = errno_of(source);
            PyOSError::new_err((errno, text(&error, errno)))
        }
        other => PyValueError::new_err(other.to_string()),
    }
}

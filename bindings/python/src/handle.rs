//! Handles of the library behind Python's objects, and forks of the process.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::mem::forget;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

#[pyfunction]
fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Registers a function that counts the forks of the interpreter.
pub fn count_forks(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let hooks = pyo3::types::PyDict::new(m.py());
    hooks.set_item("after_in_child", wrap_pyfunction!(forked, m)?)?;
    let os = m.py().import("os")?;
    os.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// The process that made a handle. A child has its memory, but none of its threads, and would write to the same image.
#[derive(Clone, Copy)]
pub struct Owner(u32);

impl Owner {
    pub fn new() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    pub fn is_parent(self) -> bool {
        self.0 != FORKS.load(Ordering::Relaxed)
    }

    /// Returns an error in a child of the owner.
    pub fn check(self) -> PyResult<()> {
        if self.is_parent() {
            return Err(PyRuntimeError::new_err(
                "the volume was opened before a fork: open the image in this process",
            ));
        }
        Ok(())
    }
}

/// Cost of dropping a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Drops {
    /// The drop may write, or wait for a device that may be a Python object.
    Slowly,
    /// The drop does neither, because the value belongs to a volume that is open for reading only, on a device of the host.
    AtOnce,
}

impl Drops {
    /// Drops a value, and releases the interpreter meanwhile if the drop may take long.
    ///
    /// A thread that waits for the interpreter while the interpreter ends waits forever. The threads of pyarrow close files also after the last
    /// statement of a program, and at exit pyarrow waits for its threads.
    fn run<T: Send>(self, py: Python<'_>, value: T) {
        match self {
            Self::Slowly => py.detach(|| drop(value)),
            Self::AtOnce => drop(value),
        }
    }
}

/// A volume or file until it is closed. A child of its process cannot use it, and does not write when it drops it.
pub struct Handle<T: Send> {
    value: RwLock<Option<T>>,
    owner: Owner,
    drops: Drops,
}

impl<T: Clone + Send> Handle<T> {
    pub fn new(value: T, drops: Drops) -> Self {
        Self {
            value: RwLock::new(Some(value)),
            owner: Owner::new(),
            drops,
        }
    }

    /// Returns the value, or `None` if it is closed.
    pub fn get(&self) -> PyResult<Option<T>> {
        // Checked first: another thread may have held the lock at the fork.
        self.owner.check()?;
        Ok(self.value.read().map_or(None, |value| value.clone()))
    }

    /// Takes the value to close it; `None` in a child of the owner.
    pub fn take(&self) -> Option<T> {
        if self.owner.is_parent() {
            return None;
        }
        self.value.write().map_or(None, |mut value| value.take())
    }

    /// Closes the value, if it is open.
    pub fn close(&self, py: Python<'_>) {
        self.drops.run(py, self.take());
    }
}

impl<T: Send> Drop for Handle<T> {
    fn drop(&mut self) {
        let value = self.value.get_mut().map_or(None, |value| value.take());
        if self.owner.is_parent() {
            return forget(value);
        }
        if value.is_some() {
            Python::attach(|py| self.drops.run(py, value));
        }
    }
}

//! Calls that take long, and that a signal ends.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Calls `work` on a separate thread, and sets `stop` when the interpreter has a signal for the caller. If the system
/// refuses the thread, the caller does the work, and signals wait for its end.
pub fn interruptible<R: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    work: impl FnOnce() -> R + Send,
) -> PyResult<R> {
    let (caller, ended) = (std::thread::current(), AtomicBool::new(false));
    let ended = &ended;
    // The work is taken by the thread, or by the caller after a thread was refused.
    let work = Mutex::new(Some(work));
    let take = || {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        work.map(|work| work())
    };
    std::thread::scope(|scope| {
        let started = std::thread::Builder::new().spawn_scoped(scope, || {
            let made = take();
            ended.store(true, Ordering::Release);
            caller.unpark();
            made
        });
        let Ok(worker) = started else {
            let made = py.detach(take);
            py.check_signals()?;
            return made.ok_or_else(panicked);
        };
        let mut signal = Ok(());
        while !ended.load(Ordering::Acquire) && !worker.is_finished() {
            py.detach(|| std::thread::park_timeout(Duration::from_millis(50)));
            if signal.is_ok() {
                signal = py.check_signals();
                stop.fetch_or(signal.is_err(), Ordering::Relaxed);
            }
        }
        // The worker may drop Python objects at its end.
        let made = py.detach(|| worker.join());
        signal?;
        made.ok().flatten().ok_or_else(panicked)
    })
}

fn panicked() -> PyErr {
    PyRuntimeError::new_err("a thread of the library panicked")
}

/// A callable that receives the progress of a call, and the flag that ends the call. An exception of the callable ends the call, too.
pub struct Progress<'a> {
    callable: Option<Py<PyAny>>,
    stop: &'a AtomicBool,
    /// Held while a thread calls. Threads that want to call have released the interpreter.
    one_at_a_time: Mutex<()>,
    raised: Mutex<Option<PyErr>>,
}

impl<'a> Progress<'a> {
    pub fn new(callable: Option<Py<PyAny>>, stop: &'a AtomicBool) -> Self {
        Self {
            callable,
            stop,
            one_at_a_time: Mutex::new(()),
            raised: Mutex::new(None),
        }
    }

    /// Calls the callable, unless the call is to end.
    pub fn tell(
        &self,
        call: impl for<'py> FnOnce(Python<'py>, &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>>,
    ) {
        let Some(callable) = &self.callable else {
            return;
        };
        let lock = &self.one_at_a_time;
        let _called = lock.lock().unwrap_or_else(PoisonError::into_inner);
        // After the lock, because the call of another thread may have ended the work.
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        Python::attach(|py| {
            if let Err(error) = call(py, callable.bind(py)) {
                self.stop.store(true, Ordering::Relaxed);
                let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
                raised.get_or_insert(error);
            }
        });
    }

    /// Returns the exception of the callable if there was one, otherwise the result of the call.
    pub fn end<R>(self, done: PyResult<R>) -> PyResult<R> {
        let raised = self.raised.into_inner();
        match raised.unwrap_or_else(PoisonError::into_inner) {
            Some(raised) => Err(raised),
            None => done,
        }
    }
}

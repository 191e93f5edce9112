//! Calls that take long, and that a signal ends.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Calls `work` on a separate thread, and sets `stop` when the interpreter has a signal for the caller.
pub fn interruptible<R: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    work: impl FnOnce() -> R + Send,
) -> PyResult<R> {
    let (caller, ended) = (std::thread::current(), AtomicBool::new(false));
    let ended = &ended;
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let made = work();
            ended.store(true, Ordering::Release);
            caller.unpark();
            made
        });
        let mut signal = Ok(());
        while !ended.load(Ordering::Acquire) && !worker.is_finished() {
            py.detach(|| std::thread::park_timeout(Duration::from_millis(50)));
            if signal.is_ok() {
                signal = py.check_signals();
                stop.store(signal.is_err(), Ordering::Relaxed);
            }
        }
        // The worker may drop Python objects at its end.
        let made = py.detach(|| worker.join());
        signal?;
        made.map_err(|_| PyRuntimeError::new_err("a thread of the library panicked"))
    })
}

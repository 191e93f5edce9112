//! The native module of the Python package `extant`: the library's calls, with the interpreter's lock released while
//! they work. The interface of Python programs is in `python/extant`.

mod device;
mod error;
mod file;
mod handle;
mod info;
mod offline;
mod reads;
mod sink;
mod source;
mod volume;
mod work;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// `gil_used = false`: without a global lock, any number of threads call at once. All classes are frozen, so that threads share
// references only. What changes behind them has a lock: volumes and files the `RwLock` of `Handle`, read-ahead and sources of archives a
// `Mutex`, and a file object that is a device a lock of Python's. A `Sink` belongs to one call.
#[pymodule(gil_used = false)]
fn _extant(m: &Bound<'_, PyModule>) -> PyResult<()> {
    handle::count_forks(m)?;
    m.add("CorruptError", m.py().get_type::<error::CorruptError>())?;
    m.add_class::<volume::NativeVolume>()?;
    m.add_class::<file::NativeFile>()?;
    m.add_function(wrap_pyfunction!(offline::check, m)?)?;
    m.add_class::<reads::NativeReads>()?;
    m.add_function(wrap_pyfunction!(offline::repair, m)?)?;
    m.add_function(wrap_pyfunction!(offline::resize, m)?)?;
    m.add_function(wrap_pyfunction!(offline::tune, m)?)?;
    m.add_function(wrap_pyfunction!(offline::inspect, m)?)?;
    Ok(())
}

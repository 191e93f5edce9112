//! The native module of the Python package `extant`: the library's calls, with the interpreter's lock released while
//! they work. The interface of Python programs is in `python/extant`.

mod device;
mod error;
mod file;
mod info;
mod offline;
mod reads;
mod source;
mod volume;
mod work;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule(gil_used = false)]
fn _extant(m: &Bound<'_, PyModule>) -> PyResult<()> {
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

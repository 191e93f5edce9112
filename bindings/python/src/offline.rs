//! Check and repair of images that are not open.

use crate::device::PyDevice;
use crate::error::CorruptError;
use extant::blockdev::{Access, BlockDevice, FileDevice};
use extant_check::{CheckOptions, Finding};
use extant_repair::Error;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Opens an image: a path, or a file object.
fn device(image: &Bound<'_, PyAny>, writable: bool) -> PyResult<Box<dyn BlockDevice>> {
    if image.hasattr("read")? {
        return Ok(Box::new(PyDevice::new(image.clone(), writable)?));
    }
    let path: PathBuf = image.extract()?;
    let access = match writable {
        true => Access::ReadWrite,
        false => Access::ReadOnly,
    };
    Ok(Box::new(FileDevice::open(path, access)?))
}

fn finding<'py>(py: Python<'py>, found: &Finding) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("rule", format!("{:?}", found.rule))?;
    out.set_item("detail", &found.detail)?;
    out.set_item("place", found.place.to_string())?;
    out.set_item("inode", found.place.inode.map(|ino| ino.0))?;
    out.set_item("block", found.place.block.map(|block| block.0))?;
    out.set_item("group", found.place.group.map(|group| group.0))?;
    out.set_item("offset", found.place.offset)?;
    out.set_item("path", found.path.as_deref())?;
    Ok(out)
}

/// Checks an image: returns a dictionary with `faults`, `findings` and the counts of the check. A pending journal is
/// replayed in memory.
#[pyfunction]
pub fn check<'py>(py: Python<'py>, image: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let device = device(image, false)?;
    let report = py.detach(|| extant_check::check(&*device, &CheckOptions::default()));
    let report = report.map_err(|e| CorruptError::new_err(e.to_string()))?;
    let out = PyDict::new(py);
    let findings: PyResult<Vec<_>> = report.findings.iter().map(|f| finding(py, f)).collect();
    out.set_item("findings", findings?)?;
    out.set_item("faults", report.faults)?;
    out.set_item("notes", report.notes)?;
    out.set_item("inodes", report.inodes)?;
    out.set_item("directories", report.directories)?;
    out.set_item("blocks", report.blocks)?;
    Ok(out)
}

/// Mends an image; with `dry_run` it only plans. `undo` is the file that takes the change back.
#[pyfunction]
#[pyo3(signature = (image, *, safe_only, dry_run, undo))]
pub fn repair<'py>(
    py: Python<'py>,
    image: &Bound<'py, PyAny>,
    safe_only: bool,
    dry_run: bool,
    undo: Option<PathBuf>,
) -> PyResult<Bound<'py, PyDict>> {
    let device = device(image, !dry_run)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| u32::try_from(now.as_secs()).unwrap_or(u32::MAX));
    let failed = |error: Error| match error {
        Error::Io(e) => PyErr::from(e),
        Error::Format(_) | Error::Superblock(_) | Error::Check(_) => {
            CorruptError::new_err(error.to_string())
        }
        Error::InUse(_) => PyOSError::new_err((16, error.to_string())),
        other => PyRuntimeError::new_err(other.to_string()),
    };
    let plan = py.detach(|| {
        let mut decide = |mend: &extant_repair::Mend| !safe_only || mend.is_safe();
        let plan = extant_repair::plan(&*device, now, &mut decide)?;
        if !dry_run && !plan.is_empty() {
            plan.write(&*device, undo.as_deref(), None)?;
        }
        Ok(plan)
    });
    let plan = plan.map_err(failed)?;
    let mends = |mends: &[extant_repair::Mend]| -> PyResult<Vec<_>> {
        let one = |mend: &extant_repair::Mend| {
            let out = PyDict::new(py);
            out.set_item("place", &mend.place)?;
            out.set_item("text", &mend.text)?;
            out.set_item("loses", &mend.loses)?;
            Ok(out)
        };
        mends.iter().map(one).collect()
    };
    let out = PyDict::new(py);
    out.set_item("mends", mends(&plan.mends)?)?;
    out.set_item("declined", mends(&plan.declined)?)?;
    out.set_item("faults_before", plan.before.faults)?;
    out.set_item("faults_after", plan.after.faults)?;
    Ok(out)
}

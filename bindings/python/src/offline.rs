//! Closed images: check, repair, resize, tune and inspect.

use crate::device::PyDevice;
use crate::error::{CorruptError, raise_failure, raise_io};
use crate::work::{Progress, interruptible};
use extant::blockdev::{Access, BlockDevice, FileDevice};
use extant_check::inspect::{InspectError, Inspector, Record, Request, Value};
use extant_check::{CheckStep, Finding};
use extant_offline::{Image, Writing};
use extant_resize::NewSize;
use extant_tune::TuneOptions;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Opens an image: a path, or a file object.
fn image(given: &Bound<'_, PyAny>, writable: bool) -> PyResult<Image> {
    if given.hasattr("read")? {
        let device = PyDevice::new(given.clone(), writable)?;
        return Ok(Image::Device(Box::new(device)));
    }
    let path: PathBuf = given.extract()?;
    Image::open(&path, !writable).map_err(raise_failure)
}

/// Passes a step of a check to a callable of Python.
fn tell(progress: &Progress<'_>, step: CheckStep) {
    progress.tell(|_, callable| callable.call1((step.pass_name(), step.done, step.total)));
}

fn finding<'py>(py: Python<'py>, found: &Finding) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("rule", found.rule.name())?;
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
#[pyo3(signature = (given, progress))]
pub fn check<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let image = image(given, false)?;
    let stop = AtomicBool::new(false);
    let progress = Progress::new(progress, &stop);
    let tell = |step| tell(&progress, step);
    let report = interruptible(py, &stop, || extant_offline::check(&image, &stop, &tell));
    let report = progress.end(report.and_then(|report| report.map_err(raise_failure)))?;
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
#[pyo3(signature = (given, *, safe_only, dry_run, undo, progress))]
pub fn repair<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyAny>,
    safe_only: bool,
    dry_run: bool,
    undo: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let image = image(given, !dry_run)?;
    let undo = undo.as_deref();
    let writing = Writing { dry_run, undo };
    let stop = AtomicBool::new(false);
    let progress = Progress::new(progress, &stop);
    let tell = |step| tell(&progress, step);
    let plan = interruptible(py, &stop, || {
        extant_offline::repair(&image, safe_only, writing, &stop, &tell)
    });
    let plan = progress.end(plan.and_then(|plan| plan.map_err(raise_failure)))?;
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

/// Resizes an image to `size` bytes, or with `None` to the least size.
#[pyfunction]
#[pyo3(signature = (given, size, *, dry_run, undo))]
pub fn resize<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyAny>,
    size: Option<u64>,
    dry_run: bool,
    undo: Option<PathBuf>,
) -> PyResult<Bound<'py, PyDict>> {
    let image = image(given, !dry_run)?;
    let undo = undo.as_deref();
    let writing = Writing { dry_run, undo };
    let size = size.map_or(NewSize::Least, NewSize::Bytes);
    let stop = AtomicBool::new(false);
    let plan = interruptible(py, &stop, || {
        extant_offline::resize(&image, size, writing, &stop)
    })?;
    let plan = plan.map_err(raise_failure)?;
    let out = PyDict::new(py);
    out.set_item("block_size", plan.block_size)?;
    out.set_item("old_blocks", plan.old_blocks)?;
    out.set_item("new_blocks", plan.new_blocks)?;
    out.set_item("moved_blocks", plan.moved)?;
    out.set_item("size", plan.bytes())?;
    Ok(out)
}

/// Changes properties of an image; returns the changes, each as place and text.
#[pyfunction]
#[pyo3(signature = (
    given, *, label, uuid, features, quota, mount_options, reserved_percent, max_mounts, check_interval, journal_size,
    dry_run, undo
))]
#[allow(clippy::too_many_arguments)] // The keywords of the Python function.
pub fn tune(
    py: Python<'_>,
    given: &Bound<'_, PyAny>,
    label: Option<String>,
    uuid: Option<[u8; 16]>,
    features: String,
    quota: String,
    mount_options: String,
    reserved_percent: Option<f64>,
    max_mounts: Option<i16>,
    check_interval: Option<u32>,
    journal_size: Option<u64>,
    dry_run: bool,
    undo: Option<PathBuf>,
) -> PyResult<Vec<(String, String)>> {
    let options = TuneOptions {
        label: label.map(String::into_bytes),
        uuid,
        features,
        quota,
        mount_options,
        reserved_percent,
        max_mounts,
        check_interval,
        journal: journal_size.is_some(),
        journal_mib: journal_size.map(|bytes| bytes >> 20),
        ..TuneOptions::default()
    };
    let image = image(given, !dry_run)?;
    let undo = undo.as_deref();
    let writing = Writing { dry_run, undo };
    let stop = AtomicBool::new(false);
    let plan = interruptible(py, &stop, || {
        extant_offline::tune(&image, options, writing, &stop)
    })?;
    let changes = plan.map_err(raise_failure)?.changes;
    Ok(changes.into_iter().map(|c| (c.place, c.text)).collect())
}

fn value<'py>(py: Python<'py>, value: Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Number(n) | Value::Hex(n) | Value::Octal(n) => n.into_pyobject(py)?.into_any(),
        Value::Time(n) => n.into_pyobject(py)?.into_any(),
        Value::Is(yes) => yes.into_pyobject(py)?.to_owned().into_any(),
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::Name(bytes) | Value::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        _ => py.None().into_bound(py),
    })
}

fn record<'py>(py: Python<'py>, found: Record) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("kind", found.kind)?;
    for (name, field) in found.fields {
        out.set_item(name, value(py, field)?)?;
    }
    Ok(out)
}

/// Answers a request about the structures of an image; returns a dictionary for each record.
#[pyfunction]
pub fn inspect<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyAny>,
    request: Vec<Vec<u8>>,
    replay: bool,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let device: Box<dyn BlockDevice> = if given.hasattr("read")? {
        Box::new(PyDevice::new(given.clone(), false)?)
    } else {
        let path: PathBuf = given.extract()?;
        Box::new(FileDevice::open(&path, Access::ReadOnly).map_err(|e| raise_io(e, &path))?)
    };
    let request = Request::new(request).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let answer = py.detach(|| {
        let inspector = Inspector::open(&*device, replay)
            .map_err(|e| CorruptError::new_err((extant_offline::EUCLEAN, e.to_string())))?;
        let mut records = Vec::new();
        let answered = inspector.answer(&request, &mut |record| {
            records.push(record);
            Ok(())
        });
        match answered {
            Ok(()) => Ok(records),
            Err(InspectError::Output(e)) => Err(PyErr::from(e)),
            Err(InspectError::Missing(text)) => {
                Err(pyo3::exceptions::PyFileNotFoundError::new_err((2, text)))
            }
            Err(error) => Err(PyValueError::new_err(error.to_string())),
        }
    });
    answer?.into_iter().map(|r| record(py, r)).collect()
}

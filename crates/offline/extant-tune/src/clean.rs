//! The check before and after a change.

use crate::error::Error;
use blockdev::BlockDevice;
use extant_check::{CheckOptions, Report};

pub(crate) fn as_it_stands() -> CheckOptions {
    CheckOptions {
        replay: false,
        ..CheckOptions::default()
    }
}

/// Fails for an image with faults.
pub(crate) fn require_clean(device: &dyn BlockDevice) -> Result<(), Error> {
    match fault(&extant_check::check(device, &as_it_stands())?) {
        Some(finding) => Err(Error::NotClean(finding)),
        None => Ok(()),
    }
}

pub(crate) fn fault(report: &Report) -> Option<String> {
    let is_fault = |f: &&extant_check::Finding| f.rule.severity() == extant_check::Severity::Fault;
    let finding = report.findings.iter().find(is_fault)?;
    Some(finding.to_string())
}

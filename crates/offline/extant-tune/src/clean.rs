//! The check before and after a change.

use crate::error::Error;
use blockdev::BlockDevice;
use extant_check::{CheckOptions, Finding, Report, Rule, Severity};

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

/// Fails for an image with faults other than wrong counts of quotas. A change of features removes the files of quotas or
/// updates their counts, and the result is checked afterwards.
pub(crate) fn require_clean_except_quotas(device: &dyn BlockDevice) -> Result<(), Error> {
    let mut report = extant_check::check(device, &as_it_stands())?;
    report
        .findings
        .retain(|finding| finding.rule != Rule::QuotaUsage);
    match fault(&report) {
        Some(finding) => Err(Error::NotClean(finding)),
        None => Ok(()),
    }
}

/// Returns the error of a change whose result has a fault, if it has one. A wrong count of a quota was there before the
/// change.
pub(crate) fn broken(report: &Report) -> Option<Error> {
    let finding = fault(report)?;
    let mut faults = report.findings.iter().filter(|f| is_fault(f));
    Some(if faults.all(|fault| fault.rule == Rule::QuotaUsage) {
        Error::NotClean(finding)
    } else {
        Error::Broken(finding)
    })
}

fn is_fault(finding: &Finding) -> bool {
    finding.rule.severity() == Severity::Fault
}

pub(crate) fn fault(report: &Report) -> Option<String> {
    let finding = report.findings.iter().find(|f| is_fault(f))?;
    Some(finding.to_string())
}

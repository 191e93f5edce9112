//! The check before and after a change.

use crate::error::{Error, refused};
use blockdev::BlockDevice;
use extant_check::{CheckOptions, Finding, Report, Rule, Severity};

pub(crate) fn as_it_stands() -> CheckOptions {
    CheckOptions {
        replay: false,
        ..CheckOptions::default()
    }
}

/// Checks an image. A volume whose journal is on another device is refused, because no repair brings the journal here.
fn report(device: &dyn BlockDevice) -> Result<Report, Error> {
    if ext4_image::Image::open(device)?.sb.has_external_journal() {
        return refused(
            "its journal is on another device: tune2fs -O ^has_journal of e2fsprogs removes it",
        );
    }
    Ok(extant_check::check(device, &as_it_stands())?)
}

/// Fails for an image with faults.
pub(crate) fn require_clean(device: &dyn BlockDevice) -> Result<(), Error> {
    match fault(&report(device)?) {
        Some(finding) => Err(Error::NotClean(finding)),
        None => Ok(()),
    }
}

/// Fails for an image with faults other than wrong counts of quotas. A change of features removes the files of quotas or
/// updates their counts, and the result is checked afterwards.
pub(crate) fn require_clean_except_quotas(device: &dyn BlockDevice) -> Result<(), Error> {
    let mut report = report(device)?;
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

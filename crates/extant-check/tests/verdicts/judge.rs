//! Two verdicts on an image.

use blockdev::MemDevice;
use extant_check::{CheckOptions, Report, Rule, Severity};
use std::process::Command;

/// Ours; with the journal replayed or as the image stands.
pub fn check(device: &MemDevice, replay: bool) -> Report {
    let options = CheckOptions {
        threads: 2,
        replay,
        ..CheckOptions::default()
    };
    // What cannot be read at all is not clean.
    extant_check::check(device, &options).unwrap_or_else(|_| {
        let mut report = Report::default();
        report.faults = 1;
        report
    })
}

/// e2fsck's: whether the image is clean, and what it said.
pub fn judge(device: &MemDevice) -> (bool, String) {
    let dir = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap();
    let path = dir.path().join("image");
    crate::common::write_image(device, &path);
    let out = Command::new("timeout")
        .args(["-s", "KILL", "20", "e2fsck", "-fn"])
        .arg(&path)
        .output()
        .expect("e2fsck runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let text = text + &String::from_utf8_lossy(&out.stderr);
    (out.status.code() == Some(0), text)
}

/// Whether e2fsck told of a fault, of some of which its exit code does not tell.
#[allow(dead_code)] // each user has its own part
pub fn tells(text: &str) -> bool {
    text.contains("? no") || text.contains("Clearing fields beyond")
}

/// Differences that are meant.
pub fn is_explained(report: &Report, clean: bool, text: &str) -> bool {
    if !clean {
        // It tries to write to an image that it opened for reading, and stops there.
        return text.contains("e2fsck: aborted");
    }
    let mut faults = report
        .findings
        .iter()
        .filter(|f| f.rule.severity() == Severity::Fault);
    let told = |what: &str| text.contains(what);
    // Counts and bitmaps do not agree where a mapping cannot be read.
    let depth = report
        .findings
        .iter()
        .any(|f| f.rule == Rule::Extents && f.detail.contains("depth"));
    faults.all(|fault| match fault.rule {
        // e2fsck says that they are invalid, and its exit code does not tell.
        Rule::Descriptor => told("descriptor checksums are invalid"),
        // Nor does it of a journal without has_journal.
        Rule::Journal if told("flag is clear, but a journal is present") => true,
        // e2fsck does not look at these fields; the kernel and the engine refuse the journal for them.
        Rule::Journal => {
            fault.detail.contains("journal's first block")
                || fault.detail.contains("journal length")
                || fault.detail.contains("journal start outside its log")
        }
        // e2fsck takes any place in the volume, also one where no backup is; resizing would write there.
        Rule::ResizeInode => true,
        // The hash is of whole words, and e2fsck does not mind what is in the last one behind the value.
        Rule::Attributes => fault.detail.contains("checksum of the extended attribute"),
        // e2fsck does not look at the depth of a node below the root; the kernel and the engine refuse it.
        Rule::Extents | Rule::BlockBitmap | Rule::GroupCount | Rule::InodeBlocks => depth,
        _ => false,
    })
}

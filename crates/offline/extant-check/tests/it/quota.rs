//! Quota files compared with the actual use: the verdict is e2fsck's.

use crate::it::verdict;
use blockdev::{BlockDevice, MemDevice};
use extant_check::{Report, Rule};
use extant_testing::quota::{self, KINDS};
use verdict::{check, judge};

/// Returns an image whose quota files are right. Some users share nodes of the tree, and some do not.
fn image(args: &[&str]) -> MemDevice {
    const USERS: [u32; 5] = [0, 5, 300, 70_000, 4_000_000_000];
    quota::image(args, |i| (USERS[i as usize % 5], i * 3), true)
}

fn has(report: &Report, rule: Rule, detail: &str) -> bool {
    report
        .findings
        .iter()
        .any(|f| f.rule == rule && f.detail.contains(detail))
}

#[test]
fn what_is_counted_is_clean() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for kind in KINDS {
        let device = image(kind);
        let (clean, text) = judge(&device);
        assert!(clean, "{kind:?}: {text}");
        let report = check(&device, true);
        assert!(
            report.findings.is_empty(),
            "{kind:?}: {:?}",
            report.findings
        );
    }
}

#[test]
fn a_wrong_count_is_a_fault() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let sound = image(KINDS[1]);
    for (request, detail) in [
        (
            "set_inode_field /sub/file7 uid 71000",
            "user 71000: it says 0 bytes and 0 inodes",
        ),
        ("set_inode_field /sub/file7 gid 1", "group 21: it says"),
        (
            "set_inode_field /sub/file8 projid 9",
            "project 9: it says 0",
        ),
    ] {
        let device = quota::changed(&sound, request);
        let (clean, text) = judge(&device);
        assert!(!clean, "{request}: {text}");
        let report = check(&device, true);
        assert!(
            has(&report, Rule::QuotaUsage, detail),
            "{request}: {:?}",
            report.findings
        );
        assert!(!report.is_clean());
    }
}

#[test]
fn a_damaged_tree_is_a_fault() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = image(KINDS[0]);
    let first = quota::first_block(&device);
    for (at, bytes) in [
        (0, &[0u8, 0][..]),
        (4, &[7]),
        (20, &[0xff, 0xff, 0xff, 0x7f]),
    ] {
        let broken = device.snapshot();
        broken.write_at(first + at, bytes).unwrap();
        let report = check(&broken, true);
        assert!(
            has(&report, Rule::Quota, "quota file"),
            "{at}: {:?}",
            report.findings
        );
        // e2fsck does not look at the magic number, for which the kernel refuses the file.
        let (clean, text) = judge(&broken);
        assert!(clean == (at == 0), "{at}: {text}");
    }
}

/// Random bytes in the tree: damage that e2fsck finds is found, and every check ends.
#[test]
fn hostile_trees_end() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = image(KINDS[0]);
    let first = quota::first_block(&device);
    let (mut faults, mut missed) = (0, Vec::new());
    for seed in 0..60 {
        let broken = quota::damaged(&device, first, seed);
        let report = check(&broken, true);
        let (clean, text) = judge(&broken);
        faults += u32::from(!report.is_clean());
        if report.is_clean() && !clean {
            missed.push(format!("seed {seed}: {text}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(faults > 10, "{faults}");
}

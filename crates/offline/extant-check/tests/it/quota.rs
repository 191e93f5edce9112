//! Quota files compared with the actual use: the verdict is e2fsck's.

use crate::it::common;
use crate::it::verdict;
use blockdev::{BlockDevice, MemDevice};
use common::Rng;
use extant_check::{Report, Rule};
use extant_testing::common::load_image;
use std::process::Command;
use verdict::{check, judge};

/// Makes an image by mke2fs from files of several owners, and changes it by debugfs.
fn image(args: &[&str], requests: &[&str]) -> MemDevice {
    let dir = needs::memory_dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    for i in 0..40 {
        std::fs::write(tree.join(format!("sub/file{i}")), vec![7; i * 700]).unwrap();
    }
    let path = dir.path().join("image");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-d"])
        .arg(&tree)
        .args(args)
        .arg(&path)
        .arg("16M")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    for i in 0..40u32 {
        // Owners that share nodes of the tree, and some that do not.
        let uid = [0u32, 5, 300, 70_000, 4_000_000_000][i as usize % 5];
        debugfs(&path, &format!("set_inode_field /sub/file{i} uid {uid}"));
        debugfs(
            &path,
            &format!("set_inode_field /sub/file{i} gid {}", i * 3),
        );
    }
    // mke2fs does not count the files that it copies.
    let out = Command::new("e2fsck").arg("-fy").arg(&path).output();
    assert!(out.unwrap().status.code().is_some_and(|code| code < 2));
    for request in requests {
        debugfs(&path, request);
    }
    load_image(&path)
}

fn debugfs(path: &std::path::Path, request: &str) {
    let done = Command::new("debugfs")
        .args(["-w", "-R", request])
        .arg(path)
        .output();
    assert!(done.unwrap().status.success(), "{request}");
}

fn has(report: &Report, rule: Rule, detail: &str) -> bool {
    report
        .findings
        .iter()
        .any(|f| f.rule == rule && f.detail.contains(detail))
}

const KINDS: [&[&str]; 5] = [
    &["-O", "quota", "-b", "1024"],
    &[
        "-O",
        "quota,project",
        "-E",
        "quotatype=usrquota:grpquota:prjquota",
    ],
    &["-O", "quota,^extent,^64bit,^metadata_csum", "-b", "1024"],
    &["-O", "quota,orphan_file", "-E", "quotatype=grpquota"],
    &["-O", "quota,bigalloc", "-C", "16384"],
];

#[test]
fn what_is_counted_is_clean() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for kind in KINDS {
        let device = image(kind, &[]);
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
        let device = image(KINDS[1], &[request]);
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

/// Returns the offset of the first block of the user's quota file.
fn places(device: &MemDevice) -> Vec<usize> {
    let bytes = device.to_bytes().unwrap();
    let magic = [0x11, 0x1f, 0xc0, 0xd9];
    let blocks = bytes.chunks(1024).enumerate();
    blocks
        .filter(|(_, b)| b[..4] == magic)
        .map(|(i, _)| i * 1024)
        .collect()
}

#[test]
fn a_damaged_tree_is_a_fault() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = image(KINDS[0], &[]);
    let first = *places(&device).first().unwrap();
    for (at, bytes) in [
        (0, &[0u8, 0][..]),
        (4, &[7]),
        (20, &[0xff, 0xff, 0xff, 0x7f]),
    ] {
        let broken = device.snapshot();
        broken.write_at((first + at) as u64, bytes).unwrap();
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
    let device = image(KINDS[0], &[]);
    let first = *places(&device).first().unwrap();
    let (mut faults, mut missed) = (0, Vec::new());
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let broken = device.snapshot();
        for _ in 0..1 + rng.below(3) {
            // The tree's first blocks are one after the other.
            let at = first as u64 + rng.below(8 * 256) * 4;
            let value = [rng.below(12) as u32, rng.next() as u32][rng.below(2) as usize];
            broken.write_at(at, &value.to_le_bytes()).unwrap();
        }
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

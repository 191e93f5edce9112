//! Directories with names inside their inodes (`inline_data`), values of attributes in inodes (`ea_inode`), and encrypted names.

use crate::changes::{change_and_judge, of_features};
use blockdev::MemDevice;
use ext4_format::InodeNr;
use extant_testing::common::load_image;
use extant_testing::{folded, image, verdict, walk};
use extant_tune::TuneOptions;
use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn types_of_files_in_inodes_go_and_come() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let dir = needs::memory_dir();
    let (from, path) = (dir.path().join("tree"), dir.path().join("image"));
    for n in 0..6 {
        let below = from.join(format!("d{n}/below"));
        std::fs::create_dir_all(&below).unwrap();
        for i in 0..n {
            std::fs::write(below.join(format!("file{i}")), "f").unwrap();
        }
        std::os::unix::fs::symlink("x", below.join("link")).unwrap();
    }
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-O", "inline_data", "-d"]);
    let out = mke2fs.arg(&from).arg(&path).arg("8M").output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let device = load_image(&path);
    let files = image::tree(&device);
    for features in [
        "^filetype",
        "filetype",
        "^filetype,^metadata_csum",
        "filetype",
    ] {
        change_and_judge(&device, &of_features(features));
        assert!(image::tree(&device) == files, "{features}");
    }
}

/// Each value in an inode counts as an inode of the owner.
#[test]
fn quota_counts_values_in_inodes() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let dir = needs::memory_dir();
    let (path, value) = (dir.path().join("image"), dir.path().join("value"));
    std::fs::write(&value, [b'v'; 9000]).unwrap();
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-O", "ea_inode,quota"]);
    let out = mke2fs.arg(&path).arg("16M").output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let value = value.display();
    let mut requests = String::new();
    for n in 0..4 {
        requests += &format!("write {value} f{n}\nea_set -f {value} f{n} user.large\n");
        requests += &format!("sif f{n} uid {}\n", n % 2);
    }
    folded::debugfs(&path, requests.as_bytes());
    Command::new("e2fsck")
        .arg("-fy")
        .arg(&path)
        .output()
        .unwrap();
    let device = load_image(&path);
    assert!(verdict::judge(&device).0);
    for (features, quota) in [
        ("^has_journal", ""),
        ("", "^usrquota"),
        ("project", ""),
        ("^quota", ""),
        ("quota", ""),
    ] {
        let options = TuneOptions {
            quota: quota.into(),
            ..of_features(features)
        };
        change_and_judge(&device, &options);
    }
}

/// Encrypted names hold any byte, also in directories that are rebuilt.
#[test]
fn encrypted_names_of_any_byte_are_kept() {
    needs::tools!("mke2fs", "debugfs");
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-b", "1024", "-O"]);
    mke2fs.arg("encrypt,^metadata_csum,^metadata_csum_seed");
    let out = mke2fs.arg(&path).arg("8M").output().unwrap();
    assert!(out.status.success(), "{out:?}");
    // A mknod of debugfs takes a name, not a path.
    let mut requests = String::from("mkdir d\ncd d\n");
    for n in 0..80 {
        requests += &format!("mknod name-{n:02}-aaaaaaaa p\n");
    }
    let context = dir.path().join("context");
    std::fs::write(&context, [&[1u8, 1, 4, 0][..], &[7; 24]].concat()).unwrap();
    // The flags are those of an extent tree and of encryption.
    requests += &format!(
        "cd /\nsif d flags 0x80800\nea_set -f {} d c\n",
        context.display()
    );
    folded::debugfs(&path, requests.as_bytes());
    let mut bytes = std::fs::read(&path).unwrap();
    // debugfs has no prefix for the attribute of encryption, whose name is "c" with the index 9.
    let at = bytes.windows(4).position(|w| w == [0, 0, 2, 0xea]).unwrap();
    (bytes[at + 4], bytes[at + 5]) = (1, 9);
    bytes[at + 16..at + 20].fill(0);
    bytes[at + 20] = b'c';
    let odd = b"\0/any/\0bytes\x01\xff";
    let ends: Vec<_> = (0..bytes.len() - 16)
        .filter(|&at| {
            bytes[at..].starts_with(b"name-") && bytes[at + 7..].starts_with(b"-aaaaaaaa")
        })
        .collect();
    assert!(ends.len() >= 80, "{}", ends.len());
    for at in ends {
        let number = [bytes[at + 5], bytes[at + 6]];
        bytes[at..at + 14].copy_from_slice(&odd[..14]);
        bytes[at + 14..at + 16].copy_from_slice(&number);
    }
    let device = MemDevice::from_bytes(&bytes);
    let report = extant_check::check(&device, &extant_check::CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    for features in ["metadata_csum", "^dir_index", "dir_index", "^filetype"] {
        let plan = extant_tune::plan(&device, &of_features(features))
            .unwrap_or_else(|e| panic!("{features}: {e}"));
        assert!(
            plan.changes
                .iter()
                .any(|change| change.place == "directories")
        );
        plan.writes.write(&device, None, None).unwrap();
    }
    let report = extant_check::check(&device, &extant_check::CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    std::fs::write(&path, device.to_bytes().unwrap()).unwrap();
    let volume = walk::Volume::open(&path);
    let (of_dir, _) = volume.names(&volume.inode(InodeNr::ROOT))[&b"d"[..]];
    let names = volume.names(&volume.inode(of_dir));
    let expected = (0..80).map(|n| [&odd[..14], format!("{n:02}").as_bytes()].concat());
    let dots = [&b"."[..], b".."].map(Vec::from);
    let expected: BTreeSet<_> = dots.into_iter().chain(expected).collect();
    assert!(names.into_keys().eq(expected));
}

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

/// The hashes of values in inodes begin with the seed of the checksums, which follows the UUID.
#[test]
fn values_in_inodes_follow_a_new_uuid() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let value = |device: &MemDevice, n: u32| {
        let dir = needs::memory_dir();
        let path = dir.path().join("image");
        std::fs::write(&path, device.to_bytes().unwrap()).unwrap();
        let mut debugfs = Command::new("debugfs");
        debugfs.args(["-R", &format!("ea_get -V f{n} user.large")]);
        let out = debugfs.arg(&path).output().unwrap();
        assert!(out.stdout.starts_with(b"vvv"), "{out:?}");
        out.stdout
    };
    for features in [
        "ea_inode",
        "ea_inode,^metadata_csum",
        "ea_inode,metadata_csum_seed",
        "ea_inode,inline_data,quota",
    ] {
        let device = with_values(features);
        let before = [0, 1, 2, 3].map(|n| value(&device, n));
        for (n, (change, uuid)) in [
            ("", true),
            ("metadata_csum,metadata_csum_seed", false),
            ("", true),
            ("^metadata_csum_seed", false),
            ("^metadata_csum", true),
            ("", true),
            ("metadata_csum", true),
        ]
        .into_iter()
        .enumerate()
        {
            let options = TuneOptions {
                features: change.into(),
                uuid: uuid.then_some([n as u8 + 1; 16]),
                now: 1_700_000_000,
                ..TuneOptions::default()
            };
            let plan = extant_tune::plan(&device, &options)
                .unwrap_or_else(|e| panic!("{features}, {n} {change}: {e}"));
            plan.writes.write(&device, None, None).unwrap();
            let (clean, text) = verdict::judge(&MemDevice::from_bytes(&device.to_bytes().unwrap()));
            assert!(clean, "{features}, {n} {change}: {text}");
        }
        assert!(
            [0, 1, 2, 3].map(|n| value(&device, n)) == before,
            "{features}"
        );
    }
}

/// Returns an image whose files share values in inodes, in records and in blocks of attributes.
fn with_values(features: &str) -> MemDevice {
    let dir = needs::memory_dir();
    let (path, value) = (dir.path().join("image"), dir.path().join("value"));
    let short = dir.path().join("short");
    std::fs::write(&value, [b'v'; 9000]).unwrap();
    std::fs::write(&short, [b's'; 300]).unwrap();
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-O", features]);
    let out = mke2fs.arg(&path).arg("16M").output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let (value, short) = (value.display(), short.display());
    let mut requests = String::new();
    for n in 0..4 {
        requests += &format!("write {value} f{n}\n");
        if n > 1 {
            // The record has no room beside it, so that the next ones are in a block.
            requests += &format!("ea_set f{n} user.inside {}\n", "i".repeat(40));
            requests += &format!("ea_set -f {short} f{n} user.first\n");
        }
        requests += &format!("ea_set -f {value} f{n} user.large\n");
        requests += &format!("ea_set -f {value} f{n} user.with-a-longer-name-for-the-block\n");
    }
    folded::debugfs(&path, requests.as_bytes());
    let fixed = Command::new("e2fsck").arg("-fy").arg(&path).output();
    assert!(fixed.unwrap().status.code().is_some_and(|code| code < 2));
    let device = load_image(&path);
    assert!(verdict::judge(&device).0);
    device
}

/// e2fsck does not count symbolic links whose targets are inline data, and tune2fs does.
#[test]
fn quota_of_links_inside_their_inodes_is_clean_to_both() {
    needs::tools!("mke2fs", "e2fsck", "tune2fs");
    let dir = needs::memory_dir();
    let (from, path) = (dir.path().join("tree"), dir.path().join("image"));
    std::fs::create_dir(&from).unwrap();
    for (n, len) in [4, 59, 60, 61, 100, 140, 500].into_iter().enumerate() {
        let (target, link) = ("t".repeat(len), from.join(format!("link{n}")));
        std::os::unix::fs::symlink(target, &link).unwrap();
        std::fs::write(from.join(format!("file{n}")), "f".repeat(len)).unwrap();
    }
    for kind in ["inline_data", "inline_data,project", "inline_data,bigalloc"] {
        for size in ["256", "1024"] {
            let mut mke2fs = Command::new("mke2fs");
            mke2fs.args(["-q", "-F", "-t", "ext4", "-I", size, "-O", kind, "-d"]);
            let out = mke2fs.arg(&from).arg(&path).arg("16M").output().unwrap();
            assert!(out.status.success(), "{out:?}");
            let device = load_image(&path);
            for features in ["quota", "^has_journal", "has_journal"] {
                let options = TuneOptions {
                    features: features.into(),
                    now: 1_700_000_000,
                    ..TuneOptions::default()
                };
                let plan = extant_tune::plan(&device, &options).unwrap();
                plan.writes.write(&device, None, None).unwrap();
                let (clean, text) =
                    verdict::judge(&MemDevice::from_bytes(&device.to_bytes().unwrap()));
                assert!(clean, "{kind}, {size}, {features}: {text}");
            }
            let tuned = Command::new("tune2fs")
                .args(["-O", "quota"])
                .arg(&path)
                .output();
            assert!(tuned.unwrap().status.success());
            let options = extant_check::CheckOptions::default();
            let report = extant_check::check(&load_image(&path), &options).unwrap();
            assert!(report.is_clean(), "{kind}, {size}: {:#?}", report.findings);
        }
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

//! Images after `extant resize`, mounted by the kernel for writing: every file is unchanged, and the kernel's writes
//! leave the volume clean.

use crate::cli::support::{Mounted, Scratch, printed};
use crate::cli::trees::{make_tree, same, snapshot};
use crate::common;
use std::fs;
use std::process::Command;

/// Name of the directory that the kernel writes after each change.
const ADDED: &str = "added by the kernel";

/// Returns the features of an image, as dumpe2fs names them.
fn features(s: &Scratch) -> String {
    let out = Command::new("dumpe2fs").arg("-h").arg(&s.image).output();
    let text = String::from_utf8(out.unwrap().stdout).unwrap();
    let line = text.lines().find(|l| l.starts_with("Filesystem features:"));
    format!("{} ", line.unwrap())
}

/// Returns an image of mke2fs with the tree of the directory next to it.
fn filled(size: &str, args: &[&str]) -> Option<Scratch> {
    let s = Scratch::mke2fs(size, args)?;
    make_tree(&s.host("tree"));
    s.ok(&["import", "%", "@tree"]);
    Some(s)
}

/// Changes an image, and lets the kernel judge it. `None` if this system cannot mount.
#[track_caller]
fn judged(s: &Scratch, change: &[&str]) -> Option<()> {
    let ran = s.run(&[&["resize", "%"], change].concat());
    assert_eq!(ran.code, Some(0), "{change:?}: {}", ran.stderr);
    s.clean();
    let mounted = Mounted::to_write(s)?;
    let mut found = snapshot(mounted.path());
    found.retain(|path, _| !path.starts_with("lost+found") && !path.starts_with(ADDED));
    same(&found, &snapshot(&s.host("tree")));
    // In blocks and inodes that did not exist, or were in use, before.
    let added = mounted.path().join(ADDED);
    let _ = fs::remove_dir_all(&added);
    fs::create_dir(&added).unwrap();
    // The kernel reserves some blocks, so the smallest volume has hardly any free ones.
    let count = if change == ["-M"] { 1 } else { 40 };
    for i in 0..count {
        fs::create_dir(added.join(i.to_string())).unwrap();
        fs::write(added.join(format!("{i}/file")), vec![i as u8; 9000]).unwrap();
    }
    mounted.unmount();
    s.clean();
    Some(())
}

#[test]
fn the_kernel_writes_to_what_was_resized() {
    let step = if common::torture() { 1 } else { 2 };
    let shapes = [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^resize_inode"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^64bit,uninit_bg",
        ],
        &["-t", "ext4", "-b", "1024", "-g", "2048", "-O", "^flex_bg"],
        &["-t", "ext3", "-I", "256", "-b", "2048"],
        &["-t", "ext2", "-I", "256", "-b", "1024"],
    ];
    for (shape, args) in shapes.into_iter().enumerate() {
        let Some(s) = filled("64M", args) else { return };
        // Each shape takes some of the sizes, and two of them every width, unless the run is long.
        let sizes: &[&[&str]] = match shape % step {
            _ if step == 1 => &[&["300M"], &["90M"], &["-M"], &["+30M"]],
            0 => &[&["300M"], &["-M"], &["+30M"]],
            _ => &[&["90M"], &["+30M"]],
        };
        for change in sizes {
            let Some(()) = judged(&s, change) else { return };
        }
        let is_ext4 = args.contains(&"ext4") && shape < 4 / step;
        for (change, wide) in [("-b", true), ("-s", false), ("-b", true)] {
            if is_ext4 {
                let Some(()) = judged(&s, &[change]) else {
                    return;
                };
                assert_eq!(features(&s).contains(" 64bit "), wide, "{args:?}: {change}");
            }
        }
    }
}

/// Descriptors that do not fit into a group move to the groups that they describe.
#[test]
fn the_kernel_writes_to_what_went_over_to_meta_bg() {
    for more in ["resize_inode", "^resize_inode"] {
        let features_of = format!("^has_journal,{more}");
        let args = [
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "256",
            "-N",
            "2000",
            "-E",
            "resize=30000",
            "-O",
        ];
        let Some(s) = filled("20M", &[&args[..], &[&features_of]].concat()) else {
            return;
        };
        for (size, meta) in [
            ("24M", false),
            ("1800M", true),
            ("60M", true),
            ("500M", true),
        ] {
            let Some(()) = judged(&s, &[size]) else {
                return;
            };
            assert_eq!(features(&s).contains(" meta_bg "), meta, "{more}: {size}");
        }
    }
}

/// Block numbers beyond 32 bits, in extents, descriptors and the directories' own blocks. The kernel places
/// directories of the root in random groups, so that some are beyond.
#[test]
fn the_kernel_writes_beyond_2_to_the_32_blocks() {
    const DIRS: usize = 40;
    if !needs::have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    let args = [
        "-t",
        "ext4",
        "-N",
        "2000000",
        "-J",
        "size=16",
        "-O",
        "sparse_super2,^resize_inode",
    ];
    let s = Scratch::in_memory().made("15T", &args);
    make_tree(&s.host("tree"));
    s.ok(&["import", "%", "@tree"]);
    s.ok(&["resize", "%", "19T"]);
    s.clean();
    // Blocks near their inodes, not in groups found by an earlier search.
    let Some(mounted) = Mounted::with(&s, "loop,rw,noatime,mb_optimize_scan=0") else {
        return;
    };
    let content = |i: usize| vec![i as u8; 300_000 + i];
    for i in 0..DIRS {
        let dir = mounted.path().join(format!("added {i}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), content(i)).unwrap();
    }
    mounted.unmount();
    // All requests in one run, because each run reads 200,000 descriptors.
    let requests: String = (0..DIRS)
        .map(|i| format!("blocks \"/added {i}/file\"\n"))
        .collect();
    fs::write(s.host("requests"), requests).unwrap();
    let beyond = || {
        let mut debugfs = Command::new("debugfs");
        let printed = printed(debugfs.arg("-f").arg(s.host("requests")).arg(&s.image));
        let text = String::from_utf8(printed).unwrap();
        let firsts = text
            .lines()
            .filter_map(|line| line.split(' ').next()?.parse().ok());
        let firsts: Vec<u64> = firsts.collect();
        assert_eq!(firsts.len(), DIRS);
        firsts
            .iter()
            .filter(|block| **block > u32::MAX.into())
            .count()
    };
    assert!(beyond() > 0);
    let read = s.ok(&["cat", ":/added 7/file", ":/added 39/file"]);
    assert_eq!(read.as_bytes(), [content(7), content(39)].concat());
    s.ok(&["check", "%"]);
    s.ok(&["defrag", "%"]);
    s.clean();
    s.ok(&["resize", "%", "15T"]);
    s.clean();
    assert_eq!(beyond(), 0);
    let Some(mounted) = Mounted::to_write(&s) else {
        return;
    };
    for i in 0..DIRS {
        let found = fs::read(mounted.path().join(format!("added {i}/file"))).unwrap();
        assert!(found == content(i), "added {i}");
    }
    let mut found = snapshot(mounted.path());
    found.retain(|path, _| {
        !path.starts_with("lost+found") && !path.to_string_lossy().starts_with("added ")
    });
    same(&found, &snapshot(&s.host("tree")));
    mounted.unmount();
    s.clean();
}

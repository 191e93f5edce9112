//! Volumes with quota: the files stay, also where they or their inodes move, and the use follows mappings that get more blocks.

use crate::it::common;
use crate::it::image::{fragmented, tree};
use crate::it::shapes::{MIB, chance, cut_everywhere, inode_plan, plan, resized};
use blockdev::{BlockDevice, MemDevice};
use ext4_format::superblock::RawSuperblock;
use extant_resize::NewSize;
use extant_testing::common::load_image;
use std::process::Command;

/// Arguments of mke2fs. Groups are small so that there are several.
const SHAPES: &[&[&str]] = &[
    &["-O", "quota", "-g", "2048"],
    &["-O", "quota,project", "-g", "2048"],
    &["-O", "quota,project,^extents,^64bit", "-g", "2048"],
    &["-O", "project", "-g", "2048"],
    &["-O", "quota,project,bigalloc", "-C", "4096", "-g", "512"],
    &["-O", "quota,project,^metadata_csum,^flex_bg", "-g", "2048"],
];

/// Runs a program of e2fsprogs on an image, and returns its output. e2fsck mends what debugfs leaves behind.
fn run(device: &MemDevice, program: &str, args: &[&str]) -> (MemDevice, String) {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::write_image(device, &path);
    let out = Command::new(program)
        .args(args)
        .arg(&path)
        .output()
        .unwrap();
    assert!(out.status.code().is_some_and(|code| code < 4), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    (load_image(&path), text)
}

/// Applies requests of debugfs, and has e2fsck count the use.
fn changed(device: &MemDevice, requests: &[String]) -> MemDevice {
    let dir = needs::memory_dir();
    let file = dir.path().join("requests");
    std::fs::write(&file, requests.join("\n")).unwrap();
    let file = file.display().to_string();
    let (device, _) = run(device, "debugfs", &["-w", "-f", &file]);
    run(&device, "e2fsck", &["-fy"]).0
}

/// Returns a volume whose fragmented files belong to several users, groups and projects.
fn filled(shape: &[&str]) -> MemDevice {
    let args = [&["-t", "ext4", "-I", "256", "-J", "size=4"], shape].concat();
    let device = MemDevice::from_bytes(&fragmented("24M", &args).unwrap());
    let mut requests = Vec::new();
    for (n, name) in ["first", "second", "small03", "large"].iter().enumerate() {
        for (field, id) in [("uid", 1000), ("gid", 2000), ("projid", 3000)] {
            if field != "projid" || shape[1].contains("project") {
                requests.push(format!("sif {name} {field} {}", id + n % 3));
            }
        }
    }
    changed(&device, &requests)
}

fn superblock(device: &MemDevice) -> RawSuperblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    RawSuperblock::parse(&bytes).unwrap()
}

/// Returns the use by users, groups and projects as debugfs lists it.
fn uses(device: &MemDevice) -> Vec<String> {
    let sb = superblock(device);
    let kinds = [
        (sb.usr_quota_inum.get(), "list_quota user"),
        (sb.grp_quota_inum.get(), "list_quota group"),
        (sb.prj_quota_inum.get(), "list_quota project"),
    ];
    let there = kinds.into_iter().filter(|(ino, _)| *ino != 0);
    there
        .map(|(_, request)| run(device, "debugfs", &["-R", request]).1)
        .collect()
}

#[test]
fn volumes_with_quota_grow_shrink_and_count() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for shape in SHAPES {
        let what = shape.join(" ");
        let device = filled(shape);
        let (files, before) = (tree(&device), uses(&device));
        assert_eq!(before.is_empty(), shape[1] == "project", "{what}");
        // e2fsck judges each, and compares the files with its own count.
        let grown = resized(&device, NewSize::Bytes(60 * MIB), None, &what);
        assert_eq!(uses(&grown), before, "{what}: grown");
        let least = resized(&grown, NewSize::Least, None, &what);
        let again = resized(&least, NewSize::Bytes(80 * MIB), Some(true), &what);
        for device in [&grown, &least, &again] {
            assert!(tree(device) == files, "{what}");
            assert_eq!(uses(device).len(), before.len(), "{what}");
        }
        let wide = again.snapshot();
        inode_plan(&wide, 512)
            .unwrap()
            .write(&wide, None, None)
            .unwrap();
        assert!(tree(&wide) == files, "{what}: larger inodes");
        resized(&wide, NewSize::Same, None, &what);
    }
}

/// The quota file of projects has an inode as any file does, and it may be in a group that goes away.
#[test]
fn the_file_of_projects_gets_another_number() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = filled(SHAPES[1]);
    let sb = superblock(&device);
    let (old, far) = (sb.prj_quota_inum.get(), sb.inodes_count.get() - 3);
    // The table of the last group was never used, and has no checksum of a bitmap.
    let group = (far - 1) / sb.inodes_per_group.get();
    let requests = [
        format!("set_bg {group} itable_unused 0"),
        format!("set_bg {group} flags 4"),
        format!("set_bg {group} checksum calc"),
        format!("copy_inode <{old}> <{far}>"),
        format!("seti <{far}>"),
        format!("clri <{old}>"),
        format!("freei <{old}>"),
        format!("ssv prj_quota_inum {far}"),
    ];
    let device = changed(&device, &requests);
    assert_eq!(superblock(&device).prj_quota_inum.get(), far);
    let before = uses(&device);
    assert!(before[2].contains("3002"), "{before:?}");
    let smaller = plan(&device, NewSize::Least, None).unwrap();
    assert!(smaller.renumbered > 0 && smaller.moved > 0);
    let least = resized(&device, NewSize::Least, None, "least");
    let now = superblock(&least).prj_quota_inum.get();
    assert!(now != far && now != 0, "{now}");
    assert!(uses(&least)[2].contains("3002"));
    cut_everywhere(&device, &smaller, 10);
}

#[test]
fn changes_of_volumes_with_quota_by_chance_keep_every_file() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    chance(SHAPES, filled);
}

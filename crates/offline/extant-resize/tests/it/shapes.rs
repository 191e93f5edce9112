//! Volumes of many shapes grow and shrink: e2fsck finds them clean, and every file keeps its bytes.

use crate::it::common;
use crate::it::image::{self, tree};
use crate::it::record_in_log::{self, Change};
use crate::it::verdict;
use blockdev::{Access, BlockDevice, FaultDevice, FileDevice, MemDevice, Op};
use ext4_format::superblock::RawSuperblock;
use extant_resize::{Error, NewSize, Plan, ResizeOptions};
use extant_testing::common::load_image;
use std::process::Command;
use std::sync::Arc;

pub(crate) const MIB: u64 = 1 << 20;

/// Returns a volume with files; without the large one, which takes long to read.
fn filled(shape: &[&str]) -> MemDevice {
    let device = image::populate_sized("24M", shape, false, 300);
    let volume = common::open(&device);
    volume.remove_file("/far").unwrap();
    volume.close().unwrap();
    device.snapshot()
}

/// Returns the shapes of this run: some of them, or all in long runs.
fn shapes() -> impl Iterator<Item = &'static &'static [&'static str]> {
    let every = if common::torture() { 1 } else { 4 };
    SHAPES.iter().skip(2).chain(&SHAPES[..2]).step_by(every)
}

/// Returns a device of another length with the same bytes.
pub(crate) fn with_len(device: &MemDevice, len: u64) -> MemDevice {
    let mut bytes = device.to_bytes().unwrap();
    bytes.resize(len as usize, 0);
    MemDevice::from_bytes(&bytes)
}

pub(crate) fn plan(device: &MemDevice, size: NewSize, wide: Option<bool>) -> Result<Plan, Error> {
    let options = ResizeOptions {
        wide,
        ..ResizeOptions::new(size)
    };
    extant_resize::plan(device, &options)
}

/// Makes the change, and lets e2fsck judge it.
pub(crate) fn resized(
    device: &MemDevice,
    size: NewSize,
    wide: Option<bool>,
    what: &str,
) -> MemDevice {
    let plan = plan(device, size, wide).unwrap_or_else(|e| panic!("{what}: {size:?}: {e}"));
    let device = with_len(device, device.len().max(plan.bytes()));
    plan.write(&device, None, None).unwrap();
    let device = with_len(&device, plan.bytes());
    let (clean, text) = verdict::judge(&device);
    assert!(clean, "{what}: {size:?}, {wide:?}: {text}");
    device
}

const SHAPES: &[&[&str]] = &[
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    &[
        "-t", "ext4", "-b", "1024", "-g", "2048", "-J", "size=1", "-N", "2000",
    ],
    &[
        "-t", "ext4", "-b", "1024", "-g", "2048", "-J", "size=1", "-O", "^flex_bg",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "2048",
        "-J",
        "size=1",
        "-O",
        "^64bit,^metadata_csum,uninit_bg",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "2048",
        "-J",
        "size=1",
        "-O",
        "^resize_inode",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "1024",
        "-J",
        "size=1",
        "-O",
        "meta_bg,^resize_inode",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "2048",
        "-J",
        "size=1",
        "-O",
        "sparse_super2,^resize_inode",
    ],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-g",
        "1024",
        "-J",
        "size=1",
        "-O",
        "^resize_inode,^flex_bg,^sparse_super",
    ],
    &[
        "-t", "ext4", "-b", "1024", "-g", "4096", "-I", "128", "-J", "size=1",
    ],
];

#[test]
fn every_shape_grows_shrinks_and_keeps_its_files() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for shape in shapes() {
        let what = shape.join(" ");
        let device = filled(shape);
        let before = tree(&device);
        assert!(before.len() > 100);
        let grown = resized(&device, NewSize::Bytes(61 * MIB), None, &what);
        assert!(tree(&grown) == before, "{what}: grown");
        let least = resized(&grown, NewSize::Least, None, &what);
        assert!(tree(&least) == before, "{what}: least");
        let shrunk = resized(&device, NewSize::Least, None, &what);
        assert!(tree(&shrunk) == before, "{what}: shrunk");
        let again = resized(&shrunk, NewSize::Bytes(40 * MIB), None, &what);
        assert!(tree(&again) == before, "{what}: grown again");
    }
}

#[test]
fn descriptors_become_wide_and_narrow() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for shape in shapes() {
        let what = shape.join(" ");
        let device = filled(shape);
        let before = tree(&device);
        for wide in [false, true, false] {
            let device = resized(&device, NewSize::Same, Some(wide), &what);
            assert!(tree(&device) == before, "{what}");
        }
    }
}

#[test]
fn a_cut_at_any_write_leaves_the_old_or_the_new() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = filled(SHAPES[4]);
    let plan = plan(&device, NewSize::Least, None).unwrap();
    assert!(plan.moved > 0 && plan.renumbered > 0, "{plan:?}");
    cut_everywhere(&device, &plan, 15);
}

#[test]
fn a_cut_with_the_record_in_the_log_leaves_the_old_or_the_new() {
    let Some(device) = record_in_log::full_volume("^metadata_csum,^64bit") else {
        return;
    };
    let plan = plan(&device, NewSize::Same, Some(true)).unwrap();
    let change = Change {
        write: &|device| plan.write(device, None, None).unwrap(),
        open: &|image| {
            let image = Arc::new(image.snapshot());
            record_in_log::reverted(&image);
            let volume = common::open(&image);
            volume.remove_file("/fill").unwrap();
            volume.sync().unwrap();
            record_in_log::expect_clean(&image.snapshot());
            volume.close().unwrap();
        },
    };
    // Only the descriptors and the superblock change.
    record_in_log::cut_everywhere(&device, &change, 1);
}

/// Cuts the change at writes from the first to the last, at more than `least` of them; each leaves a clean volume with every file.
pub(crate) fn cut_everywhere(device: &MemDevice, plan: &Plan, least: u64) {
    let before = tree(device);
    let dir = needs::memory_dir();
    let beside = dir.path().join("undo");
    let (mut cut_at, mut cuts, mut taken_back) = (0, 0, 0);
    loop {
        let cut = FaultDevice::new(device.snapshot());
        cut.fail_after(Op::Write, cut_at);
        let done = plan.write(&cut, None, Some(&beside));
        cut.heal();
        let image = cut.inner();
        if beside.exists() {
            taken_back += 1;
            assert!(ext4_image::take_back_interrupted(image, &beside).unwrap());
        }
        let (clean, text) = verdict::judge(image);
        assert!(clean, "cut at write {cut_at}: {text}");
        if done.is_ok() {
            break;
        }
        assert!(tree(image) == before, "cut at write {cut_at}");
        cuts += 1;
        cut_at += 1 + cut_at / if common::torture() { 16 } else { 10 };
    }
    assert!(cuts > least && taken_back > 2, "{cuts}, {taken_back}");
}

pub(crate) fn inode_plan(device: &MemDevice, bytes: u16) -> Result<Plan, Error> {
    let options = ResizeOptions {
        inode_size: Some(bytes),
        ..ResizeOptions::new(NewSize::Same)
    };
    extant_resize::plan(device, &options)
}

#[test]
fn inodes_become_larger_and_keep_their_files() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for shape in shapes() {
        let mut args = shape.to_vec();
        if !args.contains(&"-I") {
            args.extend(["-I", "128"]);
        }
        let what = args.join(" ");
        let mut device = filled(&args);
        let before = tree(&device);
        for bytes in [256, 1024] {
            let plan = inode_plan(&device, bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
            plan.write(&device, None, None).unwrap();
            let (clean, text) = verdict::judge(&device);
            assert!(clean, "{what}: {bytes}: {text}");
            assert!(tree(&device) == before, "{what}: {bytes}");
            device = device.snapshot();
        }
        // New files have the times of larger inodes, and the volume stays usable.
        let device = std::sync::Arc::new(device);
        let volume = common::open(&device);
        volume.write("/later", b"more").unwrap();
        volume.close().unwrap();
        let (clean, text) = verdict::judge(&device);
        assert!(clean, "{what}: used: {text}");
    }
}

#[test]
fn inodes_do_not_become_smaller_or_odd() {
    needs::tools!("mke2fs");
    let device = common::mem_image("16M", &["-t", "ext4", "-b", "1024", "-I", "256"]);
    for bytes in [128, 300, 2048, 0] {
        let error = inode_plan(&device, bytes).unwrap_err();
        assert!(matches!(error, Error::InodeSize { .. }), "{bytes}: {error}");
    }
    assert!(inode_plan(&device, 256).unwrap().is_empty());
    // Tables of twice the length do not fit into a full volume.
    let args = ["-t", "ext4", "-b", "1024", "-N", "8000", "-I", "128"];
    let device = common::mem_image("4M", &args);
    let error = inode_plan(&device, 1024).unwrap_err();
    assert!(
        matches!(
            error,
            Error::NoRoom | Error::TooSmall(_) | Error::Refused(_)
        ),
        "{error}"
    );
}

#[test]
fn a_cut_of_larger_inodes_leaves_the_old_or_the_new() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = filled(&[
        "-t", "ext4", "-b", "1024", "-g", "2048", "-I", "128", "-J", "size=1",
    ]);
    let plan = inode_plan(&device, 256).unwrap();
    cut_everywhere(&device, &plan, 10);
}

/// Descriptors for which a group has no room are stored in the groups that they describe, as by resize2fs. This also
/// holds for a volume that grows step by step, shrinks, and grows again.
#[test]
fn descriptors_that_outgrow_a_group_go_to_their_groups() {
    needs::tools!("mke2fs", "e2fsck", "dumpe2fs");
    let dir = needs::memory_dir();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for i in 0..50 {
        std::fs::write(tree.join(format!("file{i}")), vec![i; 3000]).unwrap();
    }
    for more in [
        "resize_inode",
        "^resize_inode",
        "^flex_bg",
        "^64bit,^metadata_csum",
    ] {
        let path = dir.path().join("image");
        let _ = std::fs::remove_file(&path);
        let made = Command::new("mke2fs")
            .args([
                "-q", "-F", "-t", "ext4", "-b", "1024", "-g", "256", "-N", "512",
            ])
            .args(["-E", "resize=20000", "-O", &format!("^has_journal,{more}")])
            .arg("-d")
            .arg(&tree)
            .arg(&path)
            .arg("8M")
            .output()
            .unwrap();
        assert!(made.status.success(), "{more}: {made:?}");
        let listed = || {
            let out = Command::new("dumpe2fs").arg("-h").arg(&path).output();
            String::from_utf8(out.unwrap().stdout).unwrap()
        };
        for size in [12, 1800, 1900, 40, 1700] {
            let image = FileDevice::open(&path, Access::ReadWrite).unwrap();
            let options = ResizeOptions::new(NewSize::Bytes(size * MIB));
            let plan = extant_resize::plan(&image, &options);
            let plan = plan.unwrap_or_else(|e| panic!("{more}: {size}: {e}"));
            image.set_len(image.len().max(plan.bytes())).unwrap();
            // The volume has no free blocks for the record.
            plan.write(&image, None, Some(&dir.path().join("undo")))
                .unwrap();
            image.set_len(plan.bytes()).unwrap();
            drop(image);
            let out = Command::new("e2fsck").arg("-fn").arg(&path).output();
            let out = out.unwrap();
            assert!(out.status.success(), "{more}: {size}: {out:?}");
            let has = listed().contains(" meta_bg ");
            assert_eq!(has, size != 12, "{more}: {size}: {}", listed());
        }
        let cat = Command::new("debugfs")
            .args(["-R", "cat /file7"])
            .arg(&path)
            .output();
        assert_eq!(cat.unwrap().stdout, [7; 3000], "{more}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    needs::tools!("mke2fs", "e2fsck");
    let refused = |args: &[&str], size| {
        let device = common::mem_image("16M", args);
        plan(&device, size, None).unwrap_err().to_string()
    };
    let small = NewSize::Bytes(8 * MIB);
    assert!(refused(&["-t", "ext4", "-b", "1024"], NewSize::Bytes(MIB / 8)).contains("too few"));
    let dirty = image::populate(&["-t", "ext4"], true);
    let error = plan(&dirty, small, None).unwrap_err();
    assert!(matches!(error, Error::Journal), "{error}");
    let damaged = common::mem_image("16M", &["-t", "ext4", "-b", "1024"]).snapshot();
    damaged.write_at(1024 + 12, &[1, 2]).unwrap();
    let error = plan(&damaged, small, None).unwrap_err();
    assert!(
        matches!(error, Error::Superblock(_) | Error::Damaged(_)),
        "{error}"
    );
}

/// The block of multiple mount protection is no file's, and moves as the blocks of files do.
#[test]
fn the_block_of_mount_protection_moves() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let mut args = vec!["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "mmp"];
    args.push("-Emmp_update_interval=1");
    let device = common::mem_image("16M", &args);
    common::open(&device).write("/kept", vec![5; 5000]).unwrap();
    let block = |device: &MemDevice| {
        let mut bytes = [0; 1024];
        device.read_at(1024, &mut bytes).unwrap();
        RawSuperblock::parse(&bytes).unwrap().mmp_block.get()
    };
    // The block goes to a place that the smaller volume does not have.
    const FAR: u64 = 12_000;
    let near = block(&device);
    let mut bytes = [0; 1024];
    device.read_at(near * 1024, &mut bytes).unwrap();
    device.write_at(FAR * 1024, &bytes).unwrap();
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    common::write_image(&device, &path);
    let requests = [
        format!("setb {FAR}"),
        format!("freeb {near}"),
        format!("ssv mmp_block {FAR}"),
    ];
    for request in requests {
        let edited = Command::new("debugfs")
            .args(["-w", "-R", &request])
            .arg(&path)
            .output();
        assert!(edited.unwrap().status.success());
    }
    // debugfs leaves the counts of free blocks.
    let mended = Command::new("e2fsck")
        .arg("-fy")
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(mended.status.code(), Some(1));
    let device = Arc::new(load_image(&path));
    assert_eq!(block(&device), FAR);
    let small = resized(&device, NewSize::Bytes(8 * MIB), None, "mmp");
    assert!(block(&small) < 8192, "{}", block(&small));
    let small = Arc::new(small);
    assert_eq!(common::open(&small).read("/kept").unwrap(), vec![5; 5000]);
    let large = resized(&small.snapshot(), NewSize::Bytes(64 * MIB), None, "mmp");
    common::open(&Arc::new(large)).write("/more", b"x").unwrap();
}

/// Sizes and conversions by chance, one after the other: each is refused, or leaves a clean volume with the same files, also when it
/// is made again from a cut at some write.
#[test]
fn changes_by_chance_keep_every_file() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    chance(SHAPES, filled);
}

pub(crate) fn chance(shapes: &[&[&str]], filled: fn(&[&str]) -> MemDevice) {
    let seeds = match std::env::var("EXTANT_SEEDS") {
        Ok(seeds) => seeds.parse().unwrap(),
        Err(_) => 2,
    };
    let (mut made, mut refused) = (0, 0);
    for seed in 0..seeds {
        let mut rng = common::Rng::new(seed);
        let shape = shapes[rng.below(shapes.len() as u64) as usize];
        let mut device = filled(shape);
        let before = tree(&device);
        for step in 0..4 {
            let size = match rng.below(5) {
                0 => NewSize::Least,
                1 => NewSize::Same,
                _ => NewSize::Bytes(5 * MIB + rng.below(120 * MIB)),
            };
            let wide = [None, None, Some(true), Some(false)][rng.below(4) as usize];
            let what = format!("seed {seed}, step {step}, {shape:?}: {size:?}, {wide:?}");
            let plan = match plan(&device, size, wide) {
                Ok(plan) => plan,
                Err(Error::Unsound(why)) => panic!("{what}: {why}"),
                Err(Error::Damaged(why)) => panic!("{what}: damaged: {why}"),
                Err(_) => {
                    refused += 1;
                    continue;
                }
            };
            let longer = with_len(&device, device.len().max(plan.bytes()));
            let dir = needs::memory_dir();
            let beside = dir.path().join("undo");
            let cut = FaultDevice::new(longer);
            cut.fail_after(Op::Write, rng.below(3000));
            let whole = plan.write(&cut, None, Some(&beside)).is_ok();
            cut.heal();
            if !whole {
                ext4_image::take_back_interrupted(&cut, &beside).unwrap();
                assert!(tree(cut.inner()) == before, "{what}: cut");
                plan.write(&cut, None, Some(&beside)).unwrap();
            }
            device = with_len(cut.inner(), plan.bytes());
            let (clean, text) = verdict::judge(&device);
            assert!(clean, "{what}: {text}");
            assert!(tree(&device) == before, "{what}: other files");
            made += 1;
        }
    }
    println!("{made} changes made, {refused} refused");
    assert!(made > 0);
}

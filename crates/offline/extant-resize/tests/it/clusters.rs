//! Volumes whose bitmaps count clusters (`bigalloc`): files move by whole clusters, and structures share them.

use crate::it::common;
use crate::it::image::{fragmented, tree};
use crate::it::shapes::{MIB, chance, cut_everywhere, inode_plan, plan, resized, with_len};
use blockdev::{BlockDevice, MemDevice};
use extant_resize::{Error, NewSize};
use extant_testing::common::load_image;
use extant_testing::mounted::{Mounted, able};
use std::process::Command;

/// Arguments of mke2fs. Groups are small so that there are several, and the last one is partial.
const SHAPES: &[&[&str]] = &[
    &["-O", "bigalloc", "-C", "16384", "-g", "512"],
    &["-O", "bigalloc,^resize_inode", "-C", "4096", "-g", "256"],
    &["-O", "bigalloc", "-b", "4096", "-C", "65536", "-g", "256"],
    &[
        "-O",
        "bigalloc,meta_bg,^resize_inode",
        "-C",
        "4096",
        "-g",
        "256",
    ],
    &[
        "-O",
        "bigalloc,sparse_super2,^resize_inode",
        "-C",
        "8192",
        "-g",
        "256",
    ],
    &[
        "-O",
        "bigalloc,^flex_bg,^has_journal",
        "-C",
        "16384",
        "-g",
        "256",
    ],
    &[
        "-O",
        "bigalloc,^metadata_csum,uninit_bg,^64bit",
        "-C",
        "2048",
        "-g",
        "512",
    ],
    &[
        "-O",
        "bigalloc,^metadata_csum,^uninit_bg,^resize_inode",
        "-C",
        "2048",
        "-g",
        "256",
    ],
    &[
        "-O",
        "bigalloc,inline_data,mmp",
        "-C",
        "4096",
        "-g",
        "512",
        "-I",
        "256",
    ],
];

fn filled(shape: &[&str]) -> MemDevice {
    let args = [&["-t", "ext4", "-I", "128", "-J", "size=4"], shape].concat();
    // Small files have whole clusters.
    let size = if shape.contains(&"65536") {
        "41M"
    } else {
        "24M"
    };
    MemDevice::from_bytes(&fragmented(size, &args).unwrap())
}

/// Returns the shapes of this run: some of them, or all in long runs.
fn shapes() -> impl Iterator<Item = &'static &'static [&'static str]> {
    let every = if common::torture() { 1 } else { 3 };
    SHAPES.iter().step_by(every)
}

#[test]
fn clusters_grow_shrink_and_keep_their_files() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for shape in shapes() {
        let what = shape.join(" ");
        let device = filled(shape);
        let before = tree(&device);
        assert!(before.len() > 100);
        let grown = resized(&device, NewSize::Bytes(device.len() * 5 / 2), None, &what);
        assert!(tree(&grown) == before, "{what}: grown");
        let least = resized(&grown, NewSize::Least, None, &what);
        assert!(tree(&least) == before, "{what}: least");
        let shrunk = resized(&device, NewSize::Least, None, &what);
        assert!(tree(&shrunk) == before, "{what}: shrunk");
        assert!(
            least.len() < device.len() && shrunk.len() < device.len(),
            "{what}"
        );
        let again = resized(&shrunk, NewSize::Bytes(device.len() * 2), None, &what);
        assert!(tree(&again) == before, "{what}: grown again");
    }
}

#[test]
fn inodes_and_descriptors_of_clusters_become_larger() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for shape in shapes() {
        let what = shape.join(" ");
        let mut device = filled(shape);
        let before = tree(&device);
        for wide in [false, true] {
            device = resized(&device, NewSize::Same, Some(wide), &what);
            assert!(tree(&device) == before, "{what}: {wide}");
        }
        for bytes in [256, 512] {
            let plan = inode_plan(&device, bytes).unwrap_or_else(|e| panic!("{what}: {e}"));
            plan.write(&device, None, None).unwrap();
            // A plan to keep the size judges the volume.
            device = resized(&device, NewSize::Same, None, &what);
            assert!(tree(&device) == before, "{what}: {bytes}");
        }
    }
}

#[test]
fn a_cut_among_clusters_leaves_the_old_or_the_new() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = filled(SHAPES[1]);
    let smaller = plan(&device, NewSize::Least, None).unwrap();
    assert!(smaller.moved > 0);
    cut_everywhere(&device, &smaller, 10);
}

#[test]
fn changes_of_clusters_by_chance_keep_every_file() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    chance(SHAPES, filled);
}

/// Descriptors that outgrow the first group displace the blocks behind them, or go to their groups.
#[test]
fn many_groups_of_clusters_get_their_descriptors() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let many = common::amount(120, 900);
    for more in ["^resize_inode", "resize_inode"] {
        let features = format!("bigalloc,{more}");
        let device = filled(&["-O", &features, "-C", "2048", "-g", "256", "-N", "512"]);
        let before = tree(&device);
        let many = resized(&device, NewSize::Bytes(many as u64 * MIB), None, more);
        assert!(tree(&many) == before, "{more}");
        let few = resized(&many, NewSize::Bytes(30 * MIB), None, more);
        assert!(tree(&few) == before, "{more}");
    }
}

#[test]
fn a_full_volume_of_clusters_grows() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let least = resized(&filled(SHAPES[0]), NewSize::Least, None, "least");
    let before = tree(&least);
    // Tables of twice the length have no room.
    let error = inode_plan(&least, 1024).unwrap_err();
    assert!(matches!(error, Error::NoRoom), "{error}");
    let error = plan(&least, NewSize::Bytes(least.len() - 16384), None).unwrap_err();
    assert!(
        matches!(error, Error::NoRoom | Error::TooSmall(_)),
        "{error}"
    );
    // One cluster more, and part of one.
    let more = resized(
        &least,
        NewSize::Bytes(least.len() + 16384 + 5000),
        None,
        "more",
    );
    assert_eq!(more.len(), least.len() + 16384);
    assert!(tree(&more) == before);
}

/// Linux finds its files in a volume that shrank and grew, and uses every free cluster.
#[test]
fn linux_fills_volumes_that_changed() {
    if !able() || !needs::have(&["debugfs"]) {
        return;
    }
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    let shape = [
        "-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "8192", "-g", "256",
    ];
    common::mke2fs(&path, "24M", &shape);
    let mounted = Mounted::new(&path, "");
    for n in 0..120u8 {
        // Linux spreads directories over the groups.
        let folder = mounted.path().join(format!("d{}", n % 10));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("f{n}")), vec![n; usize::from(n) * 300]).unwrap();
    }
    mounted.unmount();
    let device = load_image(&path);
    let before = tree(&device);
    let renumbered = plan(&device, NewSize::Least, None).unwrap().renumbered;
    assert!(renumbered > 0, "{renumbered}");
    let least = resized(&device, NewSize::Least, None, "least");
    assert!(tree(&least) == before, "least");
    let grown = resized(&least, NewSize::Bytes(31 * MIB), None, "grown");
    common::write_image(&grown, &path);
    let mounted = Mounted::new(&path, "");
    let full = std::fs::write(mounted.path().join("fill"), vec![7; 32 << 20]);
    assert_eq!(full.unwrap_err().raw_os_error(), Some(28));
    std::fs::remove_file(mounted.path().join("fill")).unwrap();
    mounted.unmount();
    common::assert_clean_file(&path, "filled");
    let after = load_image(&path);
    assert!(tree(&after) == before, "filled");
}

/// Clusters of 1 MiB: the structures of a group are in one.
#[test]
fn large_clusters_grow_and_shrink() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for block in ["1024", "4096"] {
        let args = [
            "-t", "ext4", "-O", "bigalloc", "-b", block, "-C", "1M", "-g", "256",
        ];
        let mut device = common::mem_image("60M", &args).snapshot();
        for size in [
            NewSize::Bytes(300 * MIB),
            NewSize::Least,
            NewSize::Bytes(90 * MIB),
        ] {
            device = resized(&device, size, None, block);
        }
        assert_eq!(device.len(), 90 * MIB);
    }
}

/// `resize2fs` leaves most volumes with clusters and several groups damaged. Where it does not, ours has no fewer free blocks.
#[test]
fn as_many_free_blocks_as_by_resize2fs() {
    needs::tools!("mke2fs", "e2fsck", "debugfs", "resize2fs", "dumpe2fs");
    let dir = needs::memory_dir();
    let (path, mut compared) = (dir.path().join("image"), 0);
    let free = |device: &MemDevice| {
        common::write_image(device, &path);
        let out = Command::new("dumpe2fs")
            .arg("-h")
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        ["Block count:", "Free inodes:", "Free blocks:"].map(|name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse::<u64>().unwrap()
        })
    };
    for shape in [SHAPES[3], SHAPES[2]] {
        let what = shape.join(" ");
        let device = filled(shape);
        let len = device.len() * 3;
        common::write_image(&with_len(&device, len), &path);
        let out = Command::new("resize2fs")
            .arg("-f")
            .arg(&path)
            .output()
            .unwrap();
        assert!(out.status.success(), "{what}: {out:?}");
        let judged = Command::new("e2fsck")
            .arg("-fn")
            .arg(&path)
            .output()
            .unwrap();
        if !judged.status.success() {
            continue;
        }
        let theirs = free(&load_image(&path));
        let ours = free(&resized(&device, NewSize::Bytes(len), None, &what));
        assert_eq!(ours[..2], theirs[..2], "{what}");
        assert!(ours[2] >= theirs[2], "{what}: {ours:?}, {theirs:?}");
        compared += 1;
    }
    assert!(compared > 0);
}

/// Damaged superblocks and descriptors are errors, or plans whose volume the check finds clean.
#[test]
fn damaged_clusters_are_errors() {
    needs::tools!("mke2fs", "debugfs");
    let args = [
        "-t",
        "ext4",
        "-O",
        "bigalloc,^metadata_csum,^has_journal",
        "-C",
        "4096",
    ];
    let bytes = fragmented("8M", &[&args[..], &["-g", "256", "-N", "600"]].concat()).unwrap();
    let (mut rng, mut refused) = (common::Rng::new(3), 0);
    for _ in 0..common::amount(60, 5000) {
        let device = MemDevice::from_bytes(&bytes);
        // The fields on sizes, features and places of the superblock, and the descriptors.
        let at = match rng.below(3) {
            0 => 2048 + rng.below(600),
            1 => 1024 + rng.below(100),
            _ => 1024 + 200 + rng.below(180),
        };
        device.write_at(at, &[rng.below(256) as u8]).unwrap();
        let size = [
            NewSize::Least,
            NewSize::Bytes(20 * MIB),
            NewSize::Bytes(5 * MIB),
        ];
        let size = size[rng.below(3) as usize];
        refused += u32::from(plan(&device, size, None).is_err());
    }
    assert!(refused > 15, "{refused}");
}

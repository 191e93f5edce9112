//! Wrong bitmaps, on volumes whose checksums do not reveal them.

use crate::common::*;
use crate::damage::image::*;
use blockdev::{BlockDevice, MemDevice};
use extant::{Error, OpenOptions, Volume};

const KINDS: &[(&str, &[&str])] = &[
    (
        "flex_bg",
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", PLAIN],
    ),
    ("no flex_bg", &["-t", "ext3", "-b", "1024", "-J", "size=1"]),
    ("no journal", &["-t", "ext2", "-b", "1024"]),
    (
        "meta_bg",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^metadata_csum,^uninit_bg,meta_bg,^resize_inode",
        ],
    ),
    (
        "sparse_super2",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^metadata_csum,^uninit_bg,sparse_super2,^resize_inode",
        ],
    ),
    (
        "4 KiB",
        &["-t", "ext4", "-J", "size=4", "-g", "1024", "-O", PLAIN],
    ),
];

fn zero(device: &MemDevice, block: u64) {
    let size = geometry(device).block_size as usize;
    device
        .write_at(block * size as u64, &vec![0; size])
        .unwrap();
}

/// Writes files until that fails, and returns the error.
fn fill(volume: &Volume) -> Error {
    for n in 0..400 {
        let done = volume.write(format!("/new{n}"), [0xee; 50_000]);
        if let Err(e) = done.and_then(|()| volume.sync()) {
            return e;
        }
    }
    panic!("20 MB in a volume of 16");
}

/// Bitmaps of zeros, with counts that agree with them or not. The engine allocates neither superblocks, descriptors,
/// bitmaps, inode tables and the journal, nor blocks of files in a group whose count disagrees.
#[test]
fn the_volumes_own_blocks_are_never_handed_out() {
    needs::tools!("mke2fs", "e2fsck");
    for (kind, args) in KINDS {
        for agreeing in [false, true] {
            let what = format!(
                "{kind}, counts {}",
                if agreeing { "agree" } else { "disagree" }
            );
            let device = base("16M", args);
            let geo = geometry(&*device);
            for group in 0..geo.groups {
                zero(&device, desc(&*device, group).block_bitmap.0);
                if agreeing {
                    let all = geo.blocks_in_group(ext4_format::GroupNr(group));
                    change_desc(&*device, group, |d| d.free_blocks = all);
                }
            }
            let before = (0..geo.groups)
                .map(|g| desc(&*device, g))
                .collect::<Vec<_>>();
            let (volume, found) = open_noting(&device);
            let error = fill(&volume);
            assert!(
                matches!(error, Error::Format(_)),
                "{what}: corruption is no lack of space: {error}"
            );
            let _ = volume.close();
            let found = found.lock().unwrap();
            let bitmaps = found.iter().filter(|d| d.function == "block_bitmap");
            assert!(bitmaps.count() > 0, "{what}: {found:?}");
            let sb = superblock(&*device);
            assert!(
                sb.error_count.get() > 0 && sb.state.get() & 2 != 0,
                "{what}"
            );
            for (g, before) in before.iter().enumerate() {
                let after = desc(&*device, g as u32);
                assert_eq!(after.inode_table, before.inode_table, "{what}");
            }
            is_kept(&device, &what);
        }
    }
}

/// A damaged group is left out, and the others are used.
#[test]
fn allocation_goes_on_in_other_groups() {
    needs::tools!("mke2fs", "e2fsck");
    for (kind, args) in KINDS {
        let device = base("16M", args);
        if geometry(&*device).groups < 2 {
            continue;
        }
        change_desc(&*device, 0, |d| d.free_blocks -= 1);
        let (volume, found) = open_noting(&device);
        volume.write("/new", [7; 30_000]).unwrap();
        volume.sync().unwrap();
        assert_eq!(volume.read("/new").unwrap(), [7; 30_000]);
        volume.close().unwrap();
        let found = found.lock().unwrap();
        let rule = "count of free blocks that the bitmap agrees with at group 0";
        assert!(
            found.iter().any(|d| d.rule.contains(rule)),
            "{kind}: {found:?}"
        );
        is_kept(&device, kind);
    }
}

/// A reserved inode that is free by the bitmap, and a count of inodes that disagrees with it.
#[test]
fn inode_bitmaps_that_lie_are_not_used() {
    needs::tools!("mke2fs", "e2fsck");
    for (what, rule) in [
        ("reserved", "reserved inode marked free at inode 4"),
        (
            "count",
            "count of free inodes that the bitmap agrees with at group 0",
        ),
    ] {
        let device = base(
            "16M",
            &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", PLAIN],
        );
        let first = desc(&*device, 0);
        if what == "reserved" {
            let at = first.inode_bitmap.offset(1024);
            let mut byte = [0];
            device.read_at(at, &mut byte).unwrap();
            device.write_at(at, &[byte[0] & !(1 << 3)]).unwrap();
            change_desc(&*device, 0, |d| d.free_inodes += 1);
        } else {
            change_desc(&*device, 0, |d| d.free_inodes -= 3);
        }
        let (volume, found) = open_noting(&device);
        let per_group = volume.geometry().inodes_per_group;
        let file = volume.create_new_file("/new").unwrap();
        assert!(file.ino() > per_group, "{what}: not in the damaged group");
        drop(file);
        volume.close().unwrap();
        let found = found.lock().unwrap();
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert!(found[0].rule.contains(rule), "{what}: {found:?}");
        let sb = superblock(&*device);
        assert_eq!(sb.error_count.get(), 1, "{what}");
        assert!(sb.last_error_func.starts_with(b"inode_bitmap\0"), "{what}");
        assert_eq!(
            sb.last_error_ino.get(),
            if what == "reserved" { 4 } else { 0 }
        );
        is_kept(&device, what);
    }
}

/// An inode in the part of a table that the descriptor counts as unused. e2fsck notices it when the count of free
/// inodes is lower than that of unused ones, so the engine neither takes nor frees inodes of the group. Tested with a
/// bitmap that agrees with the count, and with one that does not.
#[test]
fn a_group_with_an_inode_where_its_table_is_unused_stays_as_it_is() {
    needs::tools!("mke2fs", "e2fsck");
    for agreeing in [true, false] {
        let device = base(
            "16M",
            &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
        );
        // The inode is in the root's group, where a directory need not be.
        let volume = open(&device);
        volume.write("/held", [1; 5000]).unwrap();
        volume.close().unwrap();
        change_desc(&*device, 0, |d| {
            d.itable_unused += 1;
            d.free_inodes -= u32::from(!agreeing);
        });
        let before = desc(&*device, 0);
        assert!(before.itable_unused > before.free_inodes, "e2fsck sees it");
        let (volume, found) = open_noting(&device);
        let per_group = volume.geometry().inodes_per_group;
        let file = volume.create_new_file("/new").unwrap();
        assert!(file.ino() > per_group, "not in the damaged group");
        drop(file);
        let held = volume.open_file("/held").unwrap();
        for path in ["/link", "/held"] {
            let replaced = volume.rename("/new", path);
            for removed in [volume.remove_file(path), replaced] {
                assert!(
                    matches!(removed, Err(Error::Format(_))),
                    "{path}: {removed:?}"
                );
            }
        }
        drop(held);
        volume.close().unwrap();
        let after = desc(&*device, 0);
        assert_eq!(after.free_inodes, before.free_inodes);
        assert_eq!(after.itable_unused, before.itable_unused);
        let found = found.lock().unwrap();
        let rule = "in the part of its table that is marked as unused";
        assert!(found.iter().any(|d| d.rule.contains(rule)), "{found:?}");
        is_kept(&device, "an inode in the unused part");
        assert!(superblock(&*device).state.get() & 2 != 0);
    }
}

/// The engine does not rewrite a bitmap that no checksum guards: it may hold anything.
#[test]
fn a_count_of_unused_inodes_stays_where_groups_have_no_checksums() {
    needs::tools!("mke2fs", "e2fsck");
    let device = base(
        "16M",
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", PLAIN],
    );
    change_desc(&*device, 0, |d| d.itable_unused = 0xfff0);
    let volume = open(&device);
    for n in 0..40 {
        volume.create_new_file(format!("/dir/{n}")).unwrap();
    }
    volume.close().unwrap();
    assert_eq!(desc(&*device, 0).itable_unused, 0xfff0);
}

/// Extents of a file that lead into an inode table are neither read nor written.
#[test]
fn a_mapping_into_the_volumes_own_blocks_is_refused() {
    needs::tools!("mke2fs", "e2fsck");
    let device = base(
        "16M",
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", PLAIN],
    );
    let volume = open(&device);
    let ino = volume.metadata("/dir/keep").unwrap().ino();
    volume.close().unwrap();
    let place = inode_place(&*device, ino);
    let table = desc(&*device, 1).inode_table.0;
    // The first extent of the root node: header of 12 bytes, then block, length, and the physical block in two parts.
    let at = place + 40 + 12 + 8;
    device.write_at(at, &(table as u32).to_le_bytes()).unwrap();
    let before = device.to_bytes().unwrap();
    let (volume, found) = open_noting(&device);
    let read = volume.read("/dir/keep");
    assert!(matches!(read, Err(Error::Format(_))), "{read:?}");
    let file = volume
        .open_file_with("/dir/keep", &OpenOptions::new().write(true))
        .unwrap();
    let written = file.write_at(&[1; 4096], 0);
    assert!(matches!(written, Err(Error::Format(_))), "{written:?}");
    drop(file);
    volume.close().unwrap();
    let found = found.lock().unwrap();
    assert!(
        found
            .iter()
            .all(|d| d.function == "read_mapping" && d.ino != 0),
        "{found:?}"
    );
    assert_eq!(found.len(), 1, "said once: {found:?}");
    let after = device.to_bytes().unwrap();
    let table = table as usize * 1024;
    assert!(before[table..table + 4096] == after[table..table + 4096]);
}

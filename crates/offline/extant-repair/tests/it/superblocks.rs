//! Superblocks with values that cannot be, or that lead to structures of another kind.

use crate::it::debugfs::{Image, NOW, WITHOUT_CHECKSUMS};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};

/// Only the wrong checksum of the superblock tells this volume from one that was cut off.
#[test]
fn a_count_of_blocks_beyond_the_device_is_set_without_a_backup() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("4M", 1024, &["-O", "metadata_csum"]);
    image.write("file", &[b'x'; 3000]);
    let before = image.files();
    image.edit(1024 + 7, 1, |high| high[0] = 0x13);
    image.repair("a count of blocks");
    assert_eq!(image.files(), before);
}

#[test]
fn files_begin_behind_the_reserved_inodes_of_mke2fs() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &[]);
    for n in 0..20 {
        image.write(&format!("f{n}"), &[n; 3000]);
    }
    let before = image.files();
    image.change(&["ssv first_ino 17"]);
    image.mend("files in reserved inodes");
    assert_eq!(image.files(), before);
}

/// debugfs writes the numbers to all copies of the superblock.
#[test]
fn numbers_that_no_superblock_has_are_set() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for request in [
        "ssv desc_size 32",
        "ssv min_extra_isize 200",
        "ssv want_extra_isize 33",
        "ssv usr_quota_inum 12",
    ] {
        let image = Image::new("16M", 1024, &["-O", "64bit"]);
        image.write("file", &[b'f'; 3000]);
        let before = image.files();
        image.change(&[request]);
        let plan = image.repair(request);
        assert!(!plan.mends.is_empty(), "{request}");
        assert!(image.files() == before, "{request}");
    }
}

/// Changes the primary superblock alone, and its checksum.
fn set(image: &Image, change: impl FnOnce(&mut RawSuperblock)) {
    image.edit(SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, |bytes| {
        let mut sb = RawSuperblock::parse(bytes).unwrap();
        change(&mut sb);
        sb.set_checksum();
        bytes.copy_from_slice(sb.bytes());
    });
}

/// A doubled block size doubles the length of the volume, and its journal lies beyond the device.
#[test]
fn another_size_of_blocks_is_that_of_the_backup() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in ["metadata_csum", "^metadata_csum,^metadata_csum_seed"] {
        let image = Image::new("32M", 1024, &["-O", features]);
        image.write("file", &[b'f'; 3000]);
        let before = image.files();
        set(&image, |sb| sb.log_block_size.set(1));
        image.repair(features);
        assert!(image.files() == before, "{features}");
    }
}

/// The block of a translator is in use, and is known to be so by nothing else. Without translators the volume is as one of Linux.
#[test]
fn translators_of_the_hurd_are_refused_by_name() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let args = ["-o", "hurd", "-O", "^has_journal,^metadata_csum,^64bit"];
    let image = Image::new("8M", 1024, &args);
    image.write("file", &[b'f'; 3000]);
    image.change(&["sif file version 0"]);
    let plan = image.repair("nothing");
    assert_eq!(plan.mends.len(), 0, "{:#?}", plan.mends);
    image.change(&["sif file version 700", "ssv free_blocks_count 7"]);
    let device = image.device();
    let before = device.to_bytes().unwrap();
    let refused = extant_repair::plan(&device, NOW, &mut |_| true).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("translators of the Hurd"), "{text}");
    assert!(device.to_bytes().unwrap() == before);
}

/// More inodes in a group than a block has bits; the count of all inodes is right.
#[test]
fn inodes_of_a_group_are_a_share_of_all_without_a_backup() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("4M", 1024, &["-O", "metadata_csum"]);
    image.write("file", &[b'x'; 3000]);
    let before = image.files();
    set(&image, |sb| {
        let high = sb.inodes_per_group.get() | 0xab00;
        sb.inodes_per_group.set(high);
    });
    image.repair("a count of inodes");
    assert!(image.files() == before);
}

/// Linux makes the bitmap of such a group from the group's own structures.
#[test]
fn a_group_with_structures_of_another_has_a_bitmap() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("32M", 1024, &["-O", "flex_bg,metadata_csum"]);
    image.write("file", &[b'x'; 3000]);
    let before = image.files();
    let groups = image.ask("show_super_stats");
    let group = groups
        .split("Group ")
        .find(|group| group.contains("Block not init"));
    let group: u64 = group
        .unwrap()
        .trim_start()
        .split(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let inside = group * 8192 + 4000;
    image.change(&[
        &format!("set_bg 0 block_bitmap {inside}"),
        "set_bg 0 checksum calc",
    ]);
    image.mend("a bitmap in a group without one");
    assert!(image.files() == before);
}

/// e2fsck prints the damage, and exits with 0.
#[test]
fn counts_of_unused_inodes_need_a_feature() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("8M", 1024, &["-O", WITHOUT_CHECKSUMS]);
    image.write("file", &[b'x'; 3000]);
    let before = image.files();
    // `bg_itable_unused` of the first descriptor.
    image.edit(2 * 1024 + 28, 2, |unused| unused.copy_from_slice(&[0, 7]));
    let plan = image.repair("a count of unused inodes");
    assert_eq!(plan.mends.len(), 1, "{:#?}", plan.mends);
    assert!(image.files() == before);
}

/// e2fsck counts the inode as one in use, if it reads its record.
#[test]
fn a_project_quota_without_the_feature_is_not_named() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("8M", 1024, &["-O", WITHOUT_CHECKSUMS]);
    image.write("file", &[b'x'; 3000]);
    let before = image.files();
    image.change(&["ssv prj_quota_inum 255"]);
    image.mend("a number of an empty inode");
    assert!(image.files() == before);
}

/// mke2fs makes both unless `resize_inode` is switched off.
#[test]
fn reserved_descriptors_go_with_at_most_two_backups() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for backups in 0..=2 {
        for features in [
            "sparse_super2,resize_inode",
            "sparse_super2,resize_inode,bigalloc",
        ] {
            let backups = format!("num_backup_sb={backups}");
            let image = Image::new("64M", 1024, &["-O", features, "-E", &backups]);
            image.assert_clean(&format!("{features}, {backups}"));
            let plan = image.repair("a sound image");
            assert!(
                plan.mends.is_empty(),
                "{features}, {backups}: {:#?}",
                plan.mends
            );
            let before = image.record("<7>");
            image.edit(before + 40, 60, |map| map.fill(0));
            image.mend("the map of reserved descriptors");
        }
    }
}

/// `e2fsck -p` leaves it set after a crash, and `e2fsck -fn` takes it for a fault.
#[test]
fn an_empty_orphan_file_has_no_mark() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &["-O", "orphan_file"]);
    image.change(&["feature orphan_present"]);
    let plan = image.mend("a mark of orphans");
    assert_eq!(plan.mends.len(), 1, "{:#?}", plan.mends);
    assert!(plan.mends[0].is_safe());
}

/// Linux leaves bytes of an older block there.
#[test]
fn directories_without_types_have_no_types() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &["-O", "^filetype"]);
    image.change(&["mkdir dir"]);
    image.write("dir/file", b"content");
    image.assert_clean("no types");
    let before = image.files();
    let at = image.blocks("dir")[0] * 1024;
    for record in [0, 12, 24] {
        image.edit(at + record + 7, 1, |byte| byte[0] = 0x50);
        image.mend("a type");
        assert_eq!(image.files(), before);
    }
}

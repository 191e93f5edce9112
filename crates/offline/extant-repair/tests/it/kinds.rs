//! Kinds of damage on images with the features that mke2fs makes: each is seen, mended, and takes no file with it.

use crate::it::debugfs::{Image, NOW, WITHOUT_CHECKSUMS};
use crate::it::verdict;
use extant_check::{CheckOptions, Rule, check};
use extant_repair::{Error, Mend};
use std::path::Path;

const INLINE_WITHOUT_CHECKSUMS: &str = "inline_data,^metadata_csum,^metadata_csum_seed,^uninit_bg";

/// Returns an image with inline directories and files.
fn inline() -> Image {
    let image = Image::new("16M", 4096, &["-O", "inline_data"]);
    image.change(&["mkdir o", "mkdir o/s", "mkdir o/s/deep"]);
    for n in 0..3 {
        image.write(&format!("o/name-{n}"), format!("{n}").as_bytes());
        image.write(&format!("o/s/deep/{n}"), &[b'x'; 90]);
    }
    image.assert_clean("new");
    image
}

#[test]
fn names_inside_inodes_are_counted_when_something_else_is_mended() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = inline();
    let before = image.files();
    image.change(&["ssv free_blocks_count 7"]);
    let plan = image.repair("a count of free blocks");
    assert_eq!(plan.mends.len(), 1, "{:#?}", plan.mends);
    assert_eq!(image.files(), before);
}

#[test]
fn directories_inside_inodes_are_mended() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for (what, at, bytes) in [
        ("a parent that is none", 40, &[99u8, 0, 0, 0][..]),
        ("a name that leads nowhere", 44, &[250, 0, 0, 0]),
        ("a record that is too long", 48, &[0xff, 0x0f]),
        ("a wrong type", 51, &[7]),
    ] {
        let image = inline();
        let before = image.files();
        let record = image.record("o");
        image.edit(record + at, bytes.len(), |old| old.copy_from_slice(bytes));
        image.mend(what);
        let after = image.files();
        let kept = before
            .values()
            .filter(|content| after.values().any(|c| c == *content));
        assert_eq!(kept.count(), before.len(), "{what}: {:?}", after.keys());
    }
}

#[test]
fn a_directory_inside_its_inode_moves_to_a_block_for_lost_names() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = inline();
    let before = image.files();
    // The inodes of the directories below stay.
    image.change(&["clri o"]);
    image.mend("a directory that is lost");
    let after = image.files();
    for content in before.values() {
        assert!(after.values().any(|c| c == content), "{:?}", after.keys());
    }
}

/// Returns an image after a repair by mends that lose nothing, twice, and the mends that were declined the second time.
fn repaired_twice_without_loss(image: &Image) -> (Image, Vec<Mend>) {
    let image = Image::copy(image);
    let mut declined = Vec::new();
    for _ in 0..2 {
        let device = image.device();
        let plan = extant_repair::plan(&device, NOW, &mut |mend| mend.is_safe()).unwrap();
        plan.apply(&device).unwrap();
        std::fs::write(image.path(), device.to_bytes().unwrap()).unwrap();
        declined = plan.declined;
    }
    (image, declined)
}

#[test]
fn names_of_empty_inodes_are_a_loss_unless_the_bitmap_has_them_as_free() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in [WITHOUT_CHECKSUMS, "metadata_csum", "inline_data"] {
        let image = Image::new("16M", 1024, &["-O", features]);
        image.change(&["mkdir d"]);
        image.write("d/other", b"y");
        image.write("d/wiped", b"x");
        let number = image.ask("imap d/wiped");
        let number = number.split_whitespace().nth(1).unwrap();
        image.change(&["clri d/wiped"]);
        let (left, declined) = repaired_twice_without_loss(&image);
        let are_names = declined.iter().all(Mend::loses_only_names_of_empty_inodes);
        assert!(
            declined.len() == 1 && are_names,
            "{features}: {declined:#?}"
        );
        assert!(left.ask("ls d").contains("wiped"), "{features}");
        let in_use = left.ask(&format!("testi <{number}>"));
        assert!(in_use.contains("marked in use"), "{features}: {in_use}");
        left.mend("an empty inode");
        let free = left.ask(&format!("testi <{number}>"));
        assert!(free.contains("is not in use"), "{features}: {free}");
        image.change(&[&format!("freei <{number}>")]);
        let (mended, declined) = repaired_twice_without_loss(&image);
        assert!(declined.is_empty(), "{features}: {declined:#?}");
        mended.assert_clean(features);
        assert!(!mended.ask("ls d").contains("wiped"), "{features}");
    }
}

#[test]
fn names_of_deleted_inodes_are_removed_without_loss() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &[]);
    image.write("one", b"x");
    image.change(&["ln one two", "sif one links_count 1", "rm one"]);
    let (mended, declined) = repaired_twice_without_loss(&image);
    assert!(declined.is_empty(), "{declined:#?}");
    mended.assert_clean("a deleted inode");
    assert!(!mended.ask("ls").contains("two"));
}

#[test]
fn reserved_inodes_in_a_second_group_stay() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("32M", 1024, &["-g", "8192", "-N", "32", "-O", "^flex_bg"]);
    assert!(image.ask("stats").contains("Inodes per group:         8"));
    image.assert_clean("8 inodes in a group");
    image.change(&["ssv free_blocks_count 7"]);
    image.repair("a count of free blocks");
    image.assert_clean("8 inodes in a group, mended");
}

/// Linux and mke2fs make volumes with more inodes than there were seconds since 1970.
#[test]
fn a_time_of_deletion_may_be_as_small_as_the_number_of_an_inode() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 4096, &["-N", "1024"]);
    image.change(&["ssv mkfs_time @1000"]);
    image.write("removed", b"x");
    image.change(&["rm removed", "sif <12> dtime @900"]);
    image.assert_clean("a time below the number of inodes");
    let plan = image.repair("nothing");
    assert_eq!(plan.mends.len(), 0, "{:#?}", plan.mends);
    image.change(&["ssv mkfs_time now"]);
    image.mend("the number of an inode");
}

#[test]
fn copies_of_shared_blocks_lie_in_clusters_of_their_own() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let args = format!("bigalloc,^resize_inode,{WITHOUT_CHECKSUMS}");
    let image = Image::new("16M", 1024, &["-C", "16384", "-O", &args]);
    for n in 1..4u8 {
        image.write(&format!("f{n}"), &[n; 5000]);
    }
    image.assert_clean("new");
    let before = image.files();
    let bytes = std::fs::read(image.path()).unwrap();
    let from = image.record("f1") as usize + 40;
    let (map, to) = (bytes[from..from + 60].to_vec(), image.record("f2") + 40);
    image.edit(to, 60, |old| old.copy_from_slice(&map));
    image.mend("a mapping that is another's");
    let after = image.files();
    assert_eq!(after[Path::new("f1")], before[Path::new("f1")]);
    assert_eq!(after[Path::new("f2")], before[Path::new("f1")]);
    assert_eq!(after[Path::new("f3")], before[Path::new("f3")]);
    // An extent that begins in the middle of its cluster.
    let to = image.record("f3") + 40 + 12 + 8;
    image.edit(to, 4, |old| {
        let block = u32::from_le_bytes(old.try_into().unwrap()) + 3;
        old.copy_from_slice(&block.to_le_bytes());
    });
    image.mend("blocks in the wrong places of a cluster");
}

#[test]
fn a_record_over_the_checksum_is_shortened() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("8M", 1024, &[]);
    image.change(&["mkdir d"]);
    let block = image.blocks("d")[0];
    image.edit(block * 1024 + 16, 2, |len| {
        assert_eq!(len, 1000u16.to_le_bytes());
        len.copy_from_slice(&1012u16.to_le_bytes());
    });
    image.mend("a record over the checksum");
}

#[test]
fn directories_are_known_by_their_blocks() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for mode in ["0140755", "010644", "060644", "0110000"] {
        let image = Image::new("16M", 4096, &[]);
        image.change(&["mkdir d", "mkdir d/sub"]);
        image.write("d/one", b"one");
        let before = image.files();
        image.change(&[&format!("sif d mode {mode}")]);
        image.mend(mode);
        assert_eq!(image.files(), before, "{mode}");
    }
    let image = inline();
    let before = image.files();
    image.change(&["sif o mode 010755"]);
    image.mend("a directory inside its inode as a pipe");
    assert_eq!(image.files(), before);
}

#[test]
fn names_around_damage_stay() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("8M", 1024, &["-O", WITHOUT_CHECKSUMS]);
    image.change(&["mkdir d"]);
    for n in 0..9 {
        image.write(&format!("d/name-{n}"), &[n; 20]);
    }
    let before = image.files();
    let block = image.blocks("d")[0] * 1024;
    // A record of 16 bytes for each name, behind the dots.
    for len in [0u16, 7, 0x400, 0xfffc] {
        image.edit(block + 24 + 4 * 16 + 4, 2, |old| {
            old.copy_from_slice(&len.to_le_bytes());
        });
        image.mend("a length of a record");
        assert_eq!(image.files(), before, "{len}");
    }
    image.edit(block + 24 + 16 * 2, 8, |head| head.fill(0xff));
    image.mend("a head of a record");
    let after = image.files();
    let kept = before.keys().filter(|path| after.contains_key(*path));
    assert_eq!(kept.count(), before.len() - 1, "{:?}", after.keys());
}

#[test]
fn names_that_cannot_stay_get_others() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("8M", 1024, &["-O", WITHOUT_CHECKSUMS]);
    image.change(&["mkdir d"]);
    for name in ["one", "two", "tri"] {
        image.write(&format!("d/{name}"), name.as_bytes());
    }
    let block = image.blocks("d")[0] * 1024;
    image.edit(block + 24 + 12 + 8, 3, |name| name.copy_from_slice(b"one"));
    image.edit(block + 24 + 24 + 8, 3, |name| name.copy_from_slice(b"t/i"));
    image.mend("a name that is there twice, and one with a slash");
    let after = image.files();
    let names: Vec<_> = after.keys().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(names, ["d/one", "d/on~0", "d/t.i"]);
}

/// Without an index, a name can be in two blocks of a directory. e2fsck finds such names only when it gives the directory an index.
#[test]
fn names_in_two_blocks_of_a_directory_get_others() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in [WITHOUT_CHECKSUMS, "^dir_index,^metadata_csum"] {
        let image = Image::new("8M", 1024, &["-O", features]);
        image.change(&["mkdir d"]);
        for n in 10..90 {
            image.write(&format!("d/a-name-{n}"), &[n; 20]);
        }
        // A name as that of a renamed one, which stays.
        image.write("d/a-name-11~0", &[1; 20]);
        let blocks = image.blocks("d");
        assert!(blocks.len() > 1, "{blocks:?}");
        let rename = |block: u64, old: &[u8], new: &[u8]| {
            image.edit(block * 1024, 1024, |bytes| {
                let at = bytes.windows(old.len()).position(|w| w == old).unwrap();
                bytes[at..at + new.len()].copy_from_slice(new);
            });
        };
        rename(blocks[1], b"a-name-80", b"a-name-11");
        assert!(verdict::judge(&image.device()).0);
        let found = check(&image.device(), &CheckOptions::default()).unwrap();
        let rules: Vec<_> = found.findings.iter().map(|f| f.rule).collect();
        assert_eq!(rules, [extant_check::Rule::EntryTwice]);
        let plan = image.repair("a name in two blocks");
        assert!(plan.mends.iter().all(Mend::is_safe), "{plan:#?}");
        let after = image.files();
        assert_eq!(after[Path::new("d/a-name-11")], [11; 20]);
        assert_eq!(after[Path::new("d/a-name-11~0")], [1; 20]);
        assert_eq!(after[Path::new("d/a-name-11~1")], [80; 20]);
        assert_eq!(after.len(), 81);
    }
}

/// Returns the names of a directory that fit 16 bytes, as those of an encrypted one.
fn encrypted() -> Image {
    let args = format!("encrypt,{WITHOUT_CHECKSUMS}");
    let image = Image::new("16M", 4096, &["-O", &args]);
    image.change(&["mkdir d"]);
    image.write("d/aaaaaaaaaaaaaaaa", b"one");
    image.write("d/bbbbbbbbbbbbbbbb", b"two");
    image
}

#[test]
fn an_encrypted_directory_has_a_context() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = encrypted();
    let before = image.files();
    image.change(&["sif d flags 0x80800"]);
    let plan = image.mend("the flag without a context");
    assert!(plan.mends.iter().all(Mend::is_safe), "{:#?}", plan.mends);
    assert_eq!(image.files(), before);
}

#[test]
fn encrypted_names_of_any_byte_are_mended() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = encrypted();
    let context = [&[1u8, 1, 4, 0][..], &[7; 24]].concat();
    let from = image.beside("context", &context);
    let set = |path: &str| format!("ea_set -f {} {path} c", from.display());
    // debugfs has no prefix for the attribute of encryption.
    image.change(&[
        &set("d"),
        &set("d/aaaaaaaaaaaaaaaa"),
        &set("d/bbbbbbbbbbbbbbbb"),
    ]);
    let records = ["d", "d/aaaaaaaaaaaaaaaa", "d/bbbbbbbbbbbbbbbb"].map(|p| image.record(p));
    let flags = [
        "sif d flags 0x80800",
        "sif d/aaaaaaaaaaaaaaaa flags 0x80800",
    ];
    image.change(&flags);
    image.change(&["sif d/bbbbbbbbbbbbbbbb flags 0x80800"]);
    for record in records {
        image.edit(record + 128 + 32, 96, |area| {
            let at = area.windows(4).position(|w| w == [0, 0, 2, 0xea]).unwrap();
            (area[at + 4], area[at + 5]) = (1, 9);
            area[at + 16..at + 20].fill(0);
            area[at + 20] = b'c';
        });
    }
    image.assert_clean("encrypted");
    let block = image.blocks("d")[0] * 4096;
    image.edit(block, 4096, |bytes| {
        for old in [b'a', b'b'] {
            let at = bytes.windows(16).position(|w| w == [old; 16]).unwrap();
            bytes[at..at + 16].copy_from_slice(&b"\x01\0\x02/".repeat(4));
        }
    });
    image.mend("an encrypted name that is there twice");
    assert_eq!(image.files().len(), 2);
}

#[test]
fn the_block_of_mmp_is_made_anew_and_respected() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 4096, &["-O", "mmp"]);
    let said = image.ask("stats");
    let (_, block) = said.split_once("MMP block number:").unwrap();
    let block: u64 = block.split_whitespace().next().unwrap().parse().unwrap();
    image.edit(block * 4096, 4096, |bytes| bytes.fill(0));
    let device = image.device();
    let found = extant_check::check(&device, &extant_check::CheckOptions::default()).unwrap();
    assert_eq!(found.faults, 1, "{:#?}", found.findings);
    let plan = image.repair("a block of zeros");
    assert!(plan.mends.iter().all(Mend::is_safe));
    // A checker of another node has the volume.
    image.edit(block * 4096 + 4, 4, |number| {
        number.copy_from_slice(&0xe24d_4d50u32.to_le_bytes());
    });
    let device = image.device();
    let refused = extant_repair::plan(&device, NOW, &mut |_| true);
    assert!(matches!(refused, Err(Error::InUse(_))), "{refused:?}");
}

#[test]
fn numbers_of_quota_files_that_cannot_be_are_cleared() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 4096, &["-O", "quota"]);
    image.change(&["ssv usr_quota_inum 808464432"]);
    image.mend("a number of a quota file");
}

#[test]
fn a_table_that_is_lost_gets_a_new_place() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in ["^flex_bg", "^flex_bg,^metadata_csum,^metadata_csum_seed"] {
        let args = ["-g", "4096", "-O", features];
        let image = Image::new("12M", 1024, &args);
        for n in 0..20 {
            image.write(&format!("f{n}"), &[n; 3000]);
        }
        let before = image.files();
        let size = if image.ask("stats").contains("64bit") {
            64
        } else {
            32
        };
        // The change is in all copies, because only one group has a backup.
        for group in [0u64, 1] {
            let table = (1 + group * 4096 + 1) * 1024;
            image.edit(table + 2 * size + 8, 4, |table| table.fill(0));
        }
        image.repair("the place of a table");
        assert_eq!(image.files(), before, "{features}");
    }
}

#[test]
fn names_that_lead_into_a_lost_table_are_removed() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    // With checksums, the table is found by its inodes.
    let features = "^flex_bg,64bit,^metadata_csum,^metadata_csum_seed";
    let args = ["-g", "4096", "-N", "48", "-O", features];
    let image = Image::new("12M", 1024, &args);
    for n in 0..20 {
        image.write(&format!("f{n}"), &[n; 3000]);
    }
    image.run("e2fsck", &["-fy"]);
    let before = image.files();
    // The second group has the numbers 17 to 32.
    assert!(image.ask("stat f19").starts_with("Inode: 3"));
    for group in [0, 1] {
        let table = (1 + group * 4096 + 1) * 1024;
        image.edit(table + 64 + 8, 4, |table| table.fill(0));
    }
    image.repair("a table with inodes that have names");
    let after = image.files();
    assert!(after.contains_key(Path::new("f0")) && !after.contains_key(Path::new("f19")));
    assert!(after.iter().all(|(path, data)| before[path] == *data));
}

/// The root has no name that leads to it, by which other unread inodes are found.
#[test]
fn reserved_inodes_in_a_part_that_a_descriptor_calls_unused_stay() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in ["metadata_csum", "^metadata_csum,uninit_bg"] {
        let image = Image::new("16M", 2048, &["-O", features]);
        image.change(&["mkdir dir"]);
        for n in 0..20 {
            image.write(&format!("dir/{n}"), &[b'x'; 900]);
        }
        image.run("e2fsck", &["-fy"]);
        image.assert_clean(features);
        let before = image.files();
        for request in ["itable_unused 4095", "itable_unused 4088", "flags 1"] {
            let broken = Image::copy(&image);
            let requests = [&format!("set_bg 0 {request}"), "set_bg 0 checksum calc"];
            broken.change(&requests);
            broken.repair(request);
            assert!(broken.files() == before, "{features}: {request}");
        }
    }
}

#[test]
fn a_project_quota_without_its_inode_is_made_anew_or_not_named() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let kinds = "quotatype=usrquota:grpquota:prjquota";
    let image = Image::new("16M", 4096, &["-O", "quota,project", "-E", kinds]);
    image.write("file", &[b'x'; 900]);
    image.run("e2fsck", &["-fy"]);
    let before = image.files();
    let stats = image.ask("stats");
    let (_, number) = stats.split_once("Project quota inode:").unwrap();
    let number = number.split_whitespace().next().unwrap();
    let lost = Image::copy(&image);
    lost.change(&[&format!("clri <{number}>")]);
    lost.mend("an inode that is lost");
    assert!(lost.ask("stats").contains("Project quota inode:"));
    image.change(&["mkdir dir", "ssv prj_quota_inum 14"]);
    image.mend("the inode of a directory");
    // The file that was the quota has no name.
    let after = image.files();
    let kept = |(path, content): (&_, &_)| after.get(path) == Some(content);
    assert!(before.iter().all(kept) && image.ask("ls").contains("dir"));
}

#[test]
fn a_size_of_inline_data_that_no_file_has_is_set() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 4096, &["-O", "inline_data"]);
    image.write("three", b"abc");
    let before = image.files();
    let size = 0xd9_0000_0000_0003_u64;
    image.change(&[&format!("set_inode_field three size {size}")]);
    let plan = image.mend("a size");
    let text = "its size is set to 3";
    assert!(
        plan.mends.iter().any(|mend| mend.text == text),
        "{:#?}",
        plan.mends
    );
    assert_eq!(image.files(), before);
}

/// The attribute "data\0\0" cannot be written again. e2fsck takes it for "data", which Linux does not.
#[test]
fn a_file_inside_its_inode_outlives_the_attributes_beside_it() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in ["inline_data,metadata_csum", INLINE_WITHOUT_CHECKSUMS] {
        let image = Image::new("16M", 4096, &["-O", features, "-I", "256"]);
        image.write("three", b"abc");
        let before = image.files();
        let name_len = image.record("three") + 164;
        image.edit(name_len, 1, |len| {
            assert_eq!(len, [4]);
            len[0] = 6;
        });
        image.repair(features);
        assert_eq!(image.files(), before, "{features}");
    }
}

/// Only attributes that are in the way of the empty attribute for the data are lost.
#[test]
fn the_longest_attributes_make_room_for_data_inside_an_inode() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 4096, &["-O", INLINE_WITHOUT_CHECKSUMS, "-I", "256"]);
    image.write("three", b"abc");
    let before = image.files();
    image.change(&["ea_set three user.a short"]);
    // The attribute of the data becomes "user.data". Another one then fills the room behind it.
    let entry = image.record("three") + 164;
    image.edit(entry, 2, |entry| {
        assert_eq!(entry, [4, 7]);
        entry[1] = 1;
    });
    image.change(&["ea_set three user.long 0123456789abcdef"]);
    let plan = image.repair("an inode without room");
    assert!(
        plan.mends.iter().any(|m| m.loses.is_some()),
        "{:#?}",
        plan.mends
    );
    assert_eq!(image.files(), before);
    let kept = image.ask("ea_list three");
    assert!(kept.contains("user.a"), "{kept}");
    assert!(!kept.contains("user.long"), "{kept}");
}

#[test]
fn the_inode_of_reserved_descriptors_is_no_directory() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &["-O", "resize_inode"]);
    image.write("file", &[b'x'; 900]);
    let before = image.files();
    image.change(&["sif <7> flags 0x1000"]);
    image.mend("the flag of an index");
    assert_eq!(image.files(), before);
}

/// On volumes with clusters, too, the inode is rebuilt from the geometry.
#[test]
fn the_inode_of_reserved_descriptors_comes_back_on_volumes_with_clusters() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for (size, args) in [("16M", &["-C", "16384"][..]), ("300M", &["-C", "4096"])] {
        let image = Image::new(
            size,
            1024,
            &[&["-O", "bigalloc,resize_inode"], args].concat(),
        );
        image.write("file", &[b'x'; 900]);
        let before = image.files();
        for damage in ["clri <7>", "sif <7> mode 0700", "sif <7> block[DIND] 3"] {
            image.change(&[damage]);
            image.mend(damage);
            assert_eq!(image.files(), before);
        }
    }
}

/// e2fsck finds fault with a size that no mapping reaches, and with a block of attributes, of this inode as of a file.
#[test]
fn the_inode_of_reserved_descriptors_has_only_its_map() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &[]);
    for damage in ["size 257765421056", "file_acl 2"] {
        image.change(&[&format!("sif <7> {damage}")]);
        let found = check(&image.device(), &CheckOptions::default()).unwrap();
        let of_map = |finding: &extant_check::Finding| finding.rule == Rule::ResizeInode;
        assert!(found.findings.iter().any(of_map), "{damage}");
        image.mend(damage);
    }
}

/// Structures of `bigalloc` volumes share clusters, so an overlap shows in the blocks alone.
#[test]
fn a_bitmap_inside_the_inode_table_gets_a_place_apart() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in ["bigalloc,^resize_inode", "^resize_inode,^bigalloc"] {
        let image = Image::new("16M", 1024, &["-O", features]);
        for n in 0..60 {
            image.write(&format!("f{n}"), &[n; 3000]);
        }
        let before = image.files();
        let inside = image.record("f50") / 1024;
        for bitmap in ["block_bitmap", "inode_bitmap"] {
            for checksum in ["", "set_bg 0 checksum calc"] {
                let broken = Image::copy(&image);
                broken.change(&[&format!("set_bg 0 {bitmap} {inside}"), checksum]);
                broken.mend(&format!("{features}: {bitmap}"));
                assert!(broken.files() == before, "{features}: {bitmap}");
            }
        }
    }
}

#[test]
fn bitmaps_of_a_damaged_descriptor_are_where_the_backup_has_them() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &[]);
    image.write("file", &[b'x'; 3000]);
    let before = image.files();
    let in_file = image.blocks("file")[0];
    image.edit(2 * 1024 + 4, 4, |bitmap| {
        bitmap.copy_from_slice(&u32::try_from(in_file).unwrap().to_le_bytes());
    });
    image.mend("a bitmap in a file");
    assert_eq!(image.files(), before);
}

/// e2fsck believes the descriptor, and makes a new root.
#[test]
fn the_table_of_the_first_group_has_the_root() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("4M", 1024, &["-O", "metadata_csum"]);
    image.write("file", &[b'x'; 3000]);
    let before = image.files();
    let table = image.record("/") / 1024 - 5;
    let request = format!("set_bg 0 inode_table {table}");
    image.change(&[&request, "set_bg 0 checksum calc"]);
    image.repair("a table in front of the table");
    assert_eq!(image.files(), before);
}

#[test]
fn files_of_clusters_are_mapped_by_extents() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &["-O", "bigalloc,^resize_inode"]);
    image.write("file", &[b'x'; 900]);
    let block = image.blocks("file")[0];
    let before = image.files();
    let flags = ["sif file flags 0", "sif file block[0] 0"];
    image.change(&flags);
    let map = image.record("file") + 40;
    image.edit(map, 60, |map| {
        map.fill(0);
        map[..4].copy_from_slice(&u32::try_from(block).unwrap().to_le_bytes());
    });
    image.mend("a map of blocks");
    assert_eq!(image.files(), before);
}

/// The list of bad blocks is a block map, whose blocks are anywhere in their clusters.
#[test]
fn bad_blocks_of_a_volume_with_clusters_are_no_damage() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), "700\n701\n").unwrap();
    let bad = list.path().to_str().unwrap();
    let image = Image::new("16M", 1024, &["-O", "bigalloc,^resize_inode", "-l", bad]);
    image.assert_clean("bad blocks");
    let plan = image.repair("nothing");
    assert_eq!(plan.mends.len(), 0, "{:#?}", plan.mends);
}

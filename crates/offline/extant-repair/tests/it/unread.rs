//! Inodes in a part of a table that a descriptor calls unused.

use crate::it::debugfs::Image;
use extant_repair::Mend;

/// Sets how many inodes at the end of the first table are unused, by its descriptor.
fn unused(image: &Image, count: u64) {
    let requests = [
        &format!("set_bg 0 itable_unused {count}"),
        "set_bg 0 checksum calc",
    ];
    image.change(&requests);
}

/// Names lead to these inodes, which are found behind those that claim the same block.
#[test]
fn copies_do_not_take_blocks_of_unread_inodes() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &["-O", "^extent,^64bit", "-N", "512"]);
    image.write("one", &[b'1'; 900]);
    image.write("two", &[b'2'; 900]);
    // The volume is nearly full.
    image.write("unread", &vec![b'u'; 11 << 20]);
    image.assert_clean("new");
    let before = image.files();
    let shared = image.blocks("one")[0];
    image.change(&[&format!("sif two block[1] {shared}")]);
    let per_group: u64 = 512 / 2;
    unused(&image, per_group - 13);
    image.mend("an unread inode");
    let after = image.files();
    for name in ["one", "unread"] {
        let path = std::path::Path::new(name);
        assert!(after.get(path) == before.get(path), "{name}");
    }
}

/// e2fsck reads the whole table then, too.
#[test]
fn a_name_of_an_unread_empty_inode_has_the_others_read() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 2048, &["-O", "metadata_csum"]);
    for name in ["lost", "gone"] {
        image.write(name, name.as_bytes());
    }
    image.assert_clean("new");
    let before = image.files();
    image.change(&["unlink lost", "clri gone"]);
    unused(&image, 4096 - 11);
    image.mend("a name of an empty inode");
    let lost = &before[std::path::Path::new("lost")];
    assert!(image.files().values().any(|content| content == lost));
}

/// e2fsck does not see that such an inode is free: the next file would overwrite the value.
#[test]
fn a_value_in_a_part_that_a_descriptor_calls_unused_stays() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 2048, &["-O", "ea_inode"]);
    image.write("file", b"file");
    let value = image.beside("value", &[b'v'; 3000]);
    image.change(&[&format!("ea_set -f {} file user.note", value.display())]);
    image.run("e2fsck", &["-fy"]);
    image.assert_clean("a value in an inode");
    // The inodes 11 to 13 are lost+found, the file and the value.
    image.change(&["freei <13>"]);
    unused(&image, 4096 - 12);
    let plan = image.repair("a value in the unused part");
    assert!(plan.mends.iter().all(Mend::is_safe), "{:#?}", plan.mends);
    assert!(image.ask("testi <13>").contains("marked in use"));
}

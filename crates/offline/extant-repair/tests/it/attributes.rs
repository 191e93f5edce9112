//! Attributes in shared blocks, and values in inodes.

use crate::it::debugfs::Image;
use extant_check::{CheckOptions, check};
use extant_repair::Mend;
use std::path::Path;

#[test]
fn a_block_of_attributes_that_a_file_claims_is_copied() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in [
        "^extent,^64bit",
        "^extent,^64bit,^metadata_csum,^metadata_csum_seed",
    ] {
        let image = Image::new("16M", 1024, &["-I", "128", "-O", features]);
        for name in ["first", "second", "third"] {
            image.write(name, &[b'x'; 900]);
        }
        let value = image.beside("value", &[b'v'; 300]);
        image.change(&[&format!("ea_set -f {} second user.note", value.display())]);
        let said = image.ask("stat second");
        let (_, block) = said.split_once("File ACL: ").unwrap();
        let block = block.split_whitespace().next().unwrap();
        // A second inode shares the block.
        image.change(&[&format!("sif third file_acl {block}")]);
        image.run("e2fsck", &["-fy"]);
        image.assert_clean(features);
        image.change(&[&format!("sif first block[0] {block}")]);
        let plan = image.mend("a block of attributes in a file");
        assert!(
            image.ask("ea_get second user.note").contains("vvv"),
            "{plan:#?}"
        );
        assert!(
            image.ask("ea_get third user.note").contains("vvv"),
            "{plan:#?}"
        );
    }
}

#[test]
fn values_in_inodes_are_accounted_for_and_checked() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &["-O", "ea_inode"]);
    for name in ["one", "two"] {
        image.write(name, name.as_bytes());
        let value = image.beside("value", &vec![name.as_bytes()[0]; 3000]);
        image.change(&[&format!("ea_set -f {} {name} user.note", value.display())]);
    }
    // debugfs does not count these blocks.
    image.run("e2fsck", &["-fy"]);
    let before = image.files();
    image.assert_clean("values in inodes");
    image.change(&["sif one blocks 0"]);
    let plan = image.mend("a count of blocks");
    assert!(plan.mends.iter().all(Mend::is_safe), "{:#?}", plan.mends);
    // Of the value that an inode names: the number, the flag, the size, the count of references.
    let ino: u64 = (12..40)
        .find(|ino| {
            image
                .ask(&format!("stat <{ino}>"))
                .contains("Flags: 0x280000")
        })
        .unwrap();
    for request in ["flags 0x80000", "size 2000", "ctime 0x7", "links_count 0"] {
        image.change(&[&format!("sif <{ino}> {request}")]);
        // e2fsck does not compare the size, by which Linux refuses the attribute, and knows small counts alone.
        if request.starts_with("size") || request.starts_with("ctime") {
            image.repair(request)
        } else {
            image.mend(request)
        };
        let after = image.files();
        for (path, content) in &before {
            assert_eq!(after.get(path), Some(content), "{request}");
        }
    }
}

/// e2fsck sees these since version 1.47.1, and Linux refuses such inodes.
#[test]
fn only_regular_files_with_bytes_are_values_of_attributes() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let features = ["-O", "ea_inode,^metadata_csum", "-I", "256"];
    let image = Image::new("16M", 1024, &features);
    image.write("one", b"1");
    let value = image.beside("value", &[b'v'; 1024]);
    image.change(&[
        "mkdir dir",
        &format!("ea_set -f {} one user.note", value.display()),
    ]);
    image.run("e2fsck", &["-fy"]);
    let before = image.files();
    let mend = |what: &str| {
        let found = check(&image.device(), &CheckOptions::default()).unwrap();
        assert_ne!(found.faults, 0, "{what}");
        image.repair(what);
        assert_eq!(
            image.files().get(Path::new("one")),
            before.get(Path::new("one")),
            "{what}"
        );
    };
    for request in ["sif dir flags 0x280000", "sif <10> flags 0x200000"] {
        image.change(&[request]);
        mend(request);
    }
    let is_value = |ino: &u64| image.ask(&format!("stat <{ino}>")).contains("0x280000");
    let ino = (12..40).find(is_value).unwrap();
    image.change(&[&format!("sif <{ino}> size 0")]);
    // The size of the value in the first attribute inside the inode.
    image.edit(image.record("one") + 172, 4, |size| {
        assert_eq!(size, 1024u32.to_le_bytes());
        size.fill(0);
    });
    mend("a value of no bytes");
    assert!(!image.ask("ea_list one").contains("note"));
}

/// Values that Lustre made belong to the inode with the number and the generation in their records, and have times instead of a count.
#[test]
fn values_that_lustre_made_count_no_references() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let features = ["-O", "ea_inode,^metadata_csum", "-I", "256"];
    let image = Image::new("16M", 1024, &features);
    image.write("one", b"1");
    let value = image.beside("value", &[b'v'; 1024]);
    image.change(&[&format!("ea_set -f {} one user.note", value.display())]);
    let owner = image.ask("stat one");
    let owner = owner.split_whitespace().nth(1).unwrap();
    let is_value = |ino: &u64| image.ask(&format!("stat <{ino}>")).contains("0x280000");
    let ino = (12..40).find(is_value).unwrap();
    image.change(&["sif one generation 5"]);
    for field in [
        "generation 5",
        &format!("mtime @{owner}"),
        "atime @1000",
        "ctime @1000",
    ] {
        image.change(&[&format!("sif <{ino}> {field}")]);
    }
    // The owner does not account for the value.
    image.run("e2fsck", &["-fy"]);
    image.assert_clean("a value that Lustre made");
    assert!(image.ask("ea_list one").contains("note"));
    // The size of the value in the first attribute inside the inode.
    image.edit(image.record("one") + 172, 4, |size| size.fill(0));
    let found = check(&image.device(), &CheckOptions::default()).unwrap();
    assert_ne!(found.faults, 0);
    image.repair("a value of no bytes");
    assert!(!image.ask("ea_list one").contains("note"));
}

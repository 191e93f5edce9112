//! Extent trees whose headers cannot be: the repair keeps the files that e2fsck keeps.

use crate::it::debugfs::{Image, WITHOUT_CHECKSUMS};
use std::path::Path;

const MAGIC: u16 = 0xf30a;
const BLOCK: u64 = 1024;
/// The mapping, from the beginning of an inode's record.
const MAPPING: u64 = 40;

/// Returns an image without checksums, with one file of one extent and one whose extents fill a leaf.
fn image() -> Image {
    let image = Image::new("8M", BLOCK, &["-O", WITHOUT_CHECKSUMS]);
    image.write("flat", &[b'f'; 5000]);
    image.write("spread", &spread());
    image.assert_clean("new");
    image
}

/// Returns the content of a file whose extents fill a leaf.
fn spread() -> Vec<u8> {
    (0..12u8)
        .flat_map(|n| [b'a' + n, 0])
        .flat_map(|byte| [byte; BLOCK as usize])
        .collect()
}

/// Returns the number of 16 bits at a place.
fn half(image: &Image, at: u64) -> u16 {
    let mut found = [0; 2];
    image.edit(at, 2, |bytes| found.copy_from_slice(bytes));
    u16::from_le_bytes(found)
}

/// Returns the block that the first entry of an index node leads to.
fn child(image: &Image, node: u64) -> u64 {
    let [low, high] = [16, 18].map(|at| u64::from(half(image, node + at)));
    (low | high << 16) * BLOCK
}

/// Repairs a copy by e2fsck and the image by this crate, which must keep all files that e2fsck keeps.
fn keeps_what_e2fsck_keeps(image: &Image, what: &str) {
    let other = Image::copy(image);
    other.run("e2fsck", &["-fy"]);
    image.mend(what);
    let ours = image.files();
    for (path, content) in other.files() {
        assert!(
            ours.get(&path) == Some(&content),
            "{what}: {}",
            path.display()
        );
    }
}

/// With a wrong checksum, too, a leaf with one damaged entry is a leaf.
#[test]
fn the_other_entries_of_a_damaged_leaf_stay() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in WITH_AND_WITHOUT_CHECKSUMS {
        let image = Image::new("8M", BLOCK, &["-O", features]);
        let spread = spread();
        image.write("spread", &spread);
        let leaf = child(&image, image.record("spread") + MAPPING);
        // The logical block of the fifth entry.
        image.edit(leaf + 12 + 4 * 12, 4, |logical| {
            logical.copy_from_slice(&4u32.to_le_bytes());
        });
        keeps_what_e2fsck_keeps(&image, features);
        let kept = image.files().into_values().next().unwrap();
        let sound = (0..24).filter(|n| {
            let block = n * BLOCK as usize..(n + 1) * BLOCK as usize;
            kept[block.clone()] == spread[block]
        });
        assert_eq!(sound.count(), 23, "{features}");
    }
}

/// e2fsck makes the directory as long as the extent, of copies of the blocks of others.
#[test]
fn a_directory_does_not_get_the_blocks_behind_it() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in WITH_AND_WITHOUT_CHECKSUMS {
        let image = Image::new("8M", BLOCK, &["-O", features]);
        image.change(&["mkdir d", "mkdir e", "mkdir e/s"]);
        // The directory grows to blocks among those of files.
        for n in 0..60 {
            let name = format!("{n}-{}", "x".repeat(60));
            image.write(&format!("d/{name}"), &[n; 300]);
            image.write(&format!("e/s/{n}"), &[n; 2000]);
        }
        image.assert_clean(features);
        let before = image.files();
        let mapping = image.record("e") + MAPPING;
        assert_eq!(half(&image, mapping + 2), 1, "one extent");
        image.edit(mapping + 12 + 4, 2, |len| {
            len.copy_from_slice(&2049u16.to_le_bytes())
        });
        let plan = image.mend(features);
        assert!(image.files() == before, "{features}");
        let of_others = |mend: &&extant_repair::Mend| mend.text.contains("copies");
        assert_eq!(
            plan.mends.iter().filter(of_others).count(),
            0,
            "{:#?}",
            plan.mends
        );
    }
}

const WITH_AND_WITHOUT_CHECKSUMS: [&str; 2] = ["metadata_csum", WITHOUT_CHECKSUMS];

/// Returns an image with a directory of several blocks.
fn with_directory(features: &str) -> Image {
    let image = Image::new("8M", BLOCK, &["-O", features]);
    image.change(&["mkdir d"]);
    for n in 0..60 {
        image.write(&format!("d/{n}-{}", "x".repeat(60)), &[n; 300]);
    }
    image
}

/// A size that is too small does not shorten a directory.
#[test]
fn blocks_with_names_stay_behind_the_size_of_a_directory() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in WITH_AND_WITHOUT_CHECKSUMS {
        let image = with_directory(features);
        let before = image.files();
        image.change(&["sif d size 1024"]);
        image.mend(features);
        assert!(image.files() == before, "{features}");
    }
}

/// e2fsck drops the extent. The extents that it reaches over must stay, and the blocks of other files, too.
#[test]
fn an_extent_over_several_others_is_cut() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = image();
    let before = image.files();
    let leaf = child(&image, image.record("spread") + MAPPING);
    for len in [6, 128] {
        let nth = leaf + 12 * 3;
        assert_eq!(half(&image, nth + 4), 1);
        image.edit(nth + 4, 2, |bytes| {
            bytes.copy_from_slice(&u16::to_le_bytes(len));
        });
        image.mend("a length");
        assert!(image.files() == before, "{len}");
    }
}

#[test]
fn headers_with_a_wrong_maximum_are_mended() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for wrong in [0, 1, 5, 60_000] {
        let image = image();
        let root = image.record("flat") + MAPPING;
        assert_eq!((half(&image, root), half(&image, root + 4)), (MAGIC, 4));
        image.edit(root + 4, 2, |max| {
            max.copy_from_slice(&u16::to_le_bytes(wrong))
        });
        keeps_what_e2fsck_keeps(&image, &format!("a root for {wrong} entries"));
    }
    for wrong in [0, 3, 60_000] {
        let image = image();
        let leaf = child(&image, image.record("spread") + MAPPING);
        assert_eq!((half(&image, leaf), half(&image, leaf + 4)), (MAGIC, 84));
        image.edit(leaf + 4, 2, |max| {
            max.copy_from_slice(&u16::to_le_bytes(wrong))
        });
        keeps_what_e2fsck_keeps(&image, &format!("a leaf for {wrong} entries"));
    }
}

#[test]
fn headers_with_a_wrong_depth_are_mended() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for (path, wrong) in [
        ("flat", 1),
        ("flat", 6),
        ("spread", 0),
        ("spread", 2),
        ("spread", 9),
    ] {
        let image = image();
        let root = image.record(path) + MAPPING;
        image.edit(root + 6, 2, |depth| {
            depth.copy_from_slice(&u16::to_le_bytes(wrong))
        });
        keeps_what_e2fsck_keeps(&image, &format!("{path} of depth {wrong}"));
    }
}

/// A node below the root whose depth is wrong, with a right checksum. e2fsck reads it and says nothing; Linux does not read it.
#[test]
fn a_node_of_a_wrong_depth_keeps_its_extents() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for wrong in [1, 5, 9, 40_000] {
        let image = image();
        let leaf = child(&image, image.record("spread") + MAPPING);
        image.edit(leaf + 6, 2, |depth| {
            depth.copy_from_slice(&u16::to_le_bytes(wrong))
        });
        let before = image.files();
        image.repair(&format!("a leaf of depth {wrong}"));
        assert_eq!(
            half(&image, child(&image, image.record("spread") + MAPPING) + 6),
            0
        );
        assert_eq!(image.files(), before, "a leaf of depth {wrong}");
    }
}

/// Returns a node of a tree: a header, and one entry.
fn node(max: u16, depth: u16, entry: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [MAGIC, 1, max, depth, 0, 0]
        .iter()
        .flat_map(|half| half.to_le_bytes())
        .collect();
    bytes.extend_from_slice(entry);
    bytes
}

#[test]
fn trees_deeper_than_linux_reads_keep_their_data() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for depth in [2u16, 5, 6, 8] {
        let image = image();
        let root = image.record("flat") + MAPPING;
        let mut extent = vec![0; 12];
        image.edit(root + 12, 12, |bytes| extent.copy_from_slice(bytes));
        let said = image.ask(&format!("ffb {depth}"));
        let free = said.split_whitespace().filter_map(|word| word.parse().ok());
        let free: Vec<u32> = free.take(depth.into()).collect();
        assert_eq!(free.len(), usize::from(depth), "{said}");
        let index = |to: u32| {
            let mut entry = vec![0; 12];
            entry[4..8].copy_from_slice(&to.to_le_bytes());
            entry
        };
        let top = node(4, depth, &index(free[0]));
        image.edit(root, top.len(), |bytes| bytes.copy_from_slice(&top));
        for (level, &block) in (1..).zip(&free) {
            let below = free
                .get(usize::from(level))
                .map_or(extent.clone(), |&next| index(next));
            let bytes = node(84, depth - level, &below);
            image.edit(u64::from(block) * BLOCK, bytes.len(), |old| {
                old.copy_from_slice(&bytes)
            });
        }
        keeps_what_e2fsck_keeps(&image, &format!("a tree of {depth} levels"));
        let kept = image.files();
        assert_eq!(
            kept[Path::new("flat")],
            [b'f'; 5000],
            "a tree of {depth} levels"
        );
    }
}

/// Linux has no holes in directories, so that the blocks of an extent with a damaged start follow those before it.
#[test]
fn a_directory_keeps_the_names_of_an_extent_with_another_start() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in WITH_AND_WITHOUT_CHECKSUMS {
        let image = with_directory(features);
        image.assert_clean(features);
        let before = image.files();
        image.change(&["sif d block[3] 0x80000"]);
        image.mend(features);
        assert!(image.files() == before, "{features}");
    }
}

/// The write of a mapping that was cut was lost, or that of a size and a count of blocks. The bitmap tells which.
#[test]
fn blocks_behind_a_size_stay_unless_they_are_free() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for freed in [false, true] {
        let image = Image::new("16M", 1024, &[]);
        image.write("file", &[b'x'; 9 * 1024]);
        let behind = image.blocks("file").split_off(1);
        image.change(&["sif file size 1000", "sif file blocks 2"]);
        if freed {
            let requests: Vec<_> = behind.iter().map(|b| format!("freeb {b}")).collect();
            image.change(&requests.iter().map(String::as_str).collect::<Vec<_>>());
        }
        image.mend("a mapping behind the size");
        let len = if freed { 1000 } else { 9 * 1024 };
        assert_eq!(image.files()[Path::new("file")], vec![b'x'; len]);
    }
}

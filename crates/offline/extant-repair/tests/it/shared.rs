//! Blocks of metadata that a file claims as well: the check names the file, and a repair keeps the files that e2fsck keeps.

use crate::it::debugfs::Image;
use extant_check::{CheckOptions, FindingPlace, Rule, check};

/// Returns an image of two groups with metadata of each kind.
fn image(features: &str) -> Image {
    let image = Image::new("16M", 1024, &["-J", "size=1", "-O", features]);
    image.write("one", &[b'1'; 1000]);
    image.write("noted", &[b'2'; 1000]);
    let value = image.beside("value", &[b'v'; 800]);
    image.change(&[&format!("ea_set -f {} noted user.note", value.display())]);
    image.change(&["mkdir dir", "write /dev/null dir/below"]);
    // More extents than an inode holds.
    image.write("deep", &vec![b'3'; 40 << 10]);
    let holes: Vec<_> = (0..40)
        .step_by(2)
        .map(|n| format!("punch deep {n} {n}"))
        .collect();
    image.change(&holes.iter().map(String::as_str).collect::<Vec<_>>());
    image.run("e2fsck", &["-fy"]);
    image.assert_clean("new");
    image
}

/// Returns the first number behind a word.
fn number(text: &str, word: &str) -> Option<u64> {
    let (_, rest) = text.split_once(word)?;
    let rest = rest.trim_start();
    rest.split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

/// Returns a block of each kind of metadata that the image has.
fn metadata(image: &Image) -> Vec<(&'static str, u64)> {
    let stats = image.ask("stats");
    let at = |request: &str| number(&image.ask(request), "");
    let orphans = number(&stats, "Orphan file inode:").unwrap_or(0);
    let node = image.ask("ex -n deep").lines().nth(1).map(str::to_owned);
    let node = node.and_then(|line| line.split_whitespace().rev().nth(1)?.parse().ok());
    [
        ("the superblock", Some(1)),
        ("the descriptors", Some(2)),
        ("the reserved descriptors", Some(3)),
        ("the backup of the superblock", Some(8193)),
        ("the backup of the descriptors", Some(8194)),
        ("the block bitmap", number(&stats, "block bitmap at ")),
        ("the inode bitmap", number(&stats, "inode bitmap at ")),
        (
            "the inode table",
            number(&stats, "inode table at ").map(|first| first + 20),
        ),
        (
            "the map of reserved descriptors",
            at("bmap <7> 12").or_else(|| image.blocks("<7>").first().copied()),
        ),
        ("the journal's superblock", at("bmap <8> 0")),
        ("the log", at("bmap <8> 40")),
        ("the orphan file", at(&format!("bmap <{orphans}> 0"))),
        ("a quota file", at("bmap <3> 1")),
        ("attributes", number(&image.ask("stat noted"), "File ACL:")),
        ("a directory", at("bmap dir 0")),
        ("a node of a mapping", node),
        ("data of a file", at("bmap noted 0")),
    ]
    .into_iter()
    .filter_map(|(what, block)| Some((what, block.filter(|&block| block > 0)?)))
    .collect()
}

#[test]
fn a_file_that_claims_metadata_is_named_and_keeps_its_neighbours() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let mut seen = 0;
    for features in [
        "metadata_csum,quota,orphan_file",
        "^metadata_csum,^resize_inode,^extent,^64bit",
    ] {
        let sound = image(features);
        let ino = number(&sound.ask("stat one"), "Inode:").unwrap();
        for (what, block) in metadata(&sound) {
            let image = Image::copy(&sound);
            // The place of the first extent, or of the first block.
            let slot = if features.contains("^extent") { 0 } else { 5 };
            image.change(&[&format!("sif one block[{slot}] {block}")]);
            let theirs = Image::copy(&image);
            theirs.run("e2fsck", &["-fy"]);
            theirs.run("e2fsck", &["-fy"]);
            let found = check(&image.device(), &CheckOptions::default()).unwrap();
            let is_named = found.findings.iter().any(|finding| {
                let FindingPlace {
                    inode, block: at, ..
                } = finding.place;
                matches!(
                    finding.rule,
                    Rule::BlockTwice | Rule::MetadataOverlap | Rule::Extents
                ) && inode.is_some_and(|inode| u64::from(inode.0) >= ino)
                    && at.is_some_and(|at| at.0 == block)
            });
            assert!(is_named, "{features}: {what}: {:#?}", found.findings);
            let plan = image.repair(what);
            let (ours, theirs) = (image.files(), theirs.files());
            for (path, content) in theirs {
                let same = ours.get(&path) == Some(&content);
                assert!(same, "{features}: {what}: {path:?}: {:#?}", plan.mends);
            }
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen}");
}

/// The run begins in front of a group with backups and ends behind them: only the backups are shared.
#[test]
fn a_run_over_the_start_of_a_group_keeps_its_other_blocks() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let image = Image::new("16M", 1024, &["-O", "^resize_inode,^has_journal"]);
    let content: Vec<u8> = (0..30u8).flat_map(|n| [n + 1; 1024]).collect();
    image.write("long", &content);
    let first = 8193 - 10;
    let from = image.blocks("long")[0] * image.block;
    let mut bytes = std::fs::read(image.path()).unwrap();
    let (from, to) = (from as usize, first * 1024);
    // The blocks in front of the group and behind its two backups have the data.
    bytes.copy_within(from..from + 10 * 1024, to);
    bytes.copy_within(from + 12 * 1024..from + 30 * 1024, to + 12 * 1024);
    std::fs::write(image.path(), bytes).unwrap();
    image.change(&[&format!("sif long block[5] {first}")]);
    let theirs = Image::copy(&image);
    theirs.run("e2fsck", &["-fy"]);
    image.mend("a run over backups");
    let ours = &image.files()["long".as_ref() as &std::path::Path];
    assert!(ours[..10 * 1024] == content[..10 * 1024]);
    assert!(ours[12 * 1024..] == content[12 * 1024..]);
    assert!(*ours == theirs.files()["long".as_ref() as &std::path::Path]);
}

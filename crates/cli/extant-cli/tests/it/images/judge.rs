//! e2fsck's verdict on an image, in four steps, each worse than the one before.

use blockdev::MemDevice;
use extant_testing::verdict::run_limited;
use std::path::Path;
use std::process::{Command, Output};

/// The severity of damage, by the reaction of e2fsck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// e2fsck repaired nothing.
    Clean,
    /// e2fsck repaired everything without questions or loss: counts, bitmaps, orphans.
    Mended,
    /// e2fsck stopped at a question that a person must answer.
    Broken,
    /// e2fsck could not read the image.
    Unreadable,
}

/// Lets e2fsck repair orphans without a question. On a volume marked as having errors, e2fsck does not trust the
/// orphan list, and does not free orphans whose blocks a bitmap marks as free; later it finds them as unattached
/// inodes and asks. A volume that met damage has this mark, and its orphans are the unlinked files that were open when
/// it stopped. The reference counts of attribute blocks are then too high by the orphans' references.
const CONFIG: &str = "[problems]
    0x010036 = {
        preen_ok = true
    }
    0x010037 = {
        preen_ok = true
    }
    0x01003c = {
        preen_ok = true
    }
";

/// Returns the verdict of e2fsck on an image with its journal replayed; `None` if e2fsck does not end. `path` is a
/// file for the image.
pub fn verdict(device: &MemDevice, path: &Path) -> Option<(Verdict, String)> {
    crate::common::write_image(device, path);
    of_file(path)
}

/// Returns the worse of two verdicts: of the image as it is, and with its journal replayed first. e2fsck may stop at
/// an error before the replay, and find after the replay that it cannot read the image.
pub fn worst(device: &MemDevice, path: &Path) -> Option<(Verdict, String)> {
    let (at_once, text) = verdict(device, path)?;
    crate::common::write_image(device, path);
    // The replay also frees the orphans.
    let code = e2fsck(&["-y", "-E", "journal_only"], path).status.code();
    if code.is_some_and(|code| code & 8 != 0) {
        return Some((Verdict::Unreadable, text));
    }
    let (replayed, more) = of_file(path)?;
    Some((at_once.max(replayed), text + &more))
}

/// Returns whether e2fsck ends the log at a commit block that it does not trust.
pub fn ends_early(device: &MemDevice, path: &Path) -> bool {
    crate::common::write_image(device, path);
    let out = e2fsck(&["-y", "-E", "journal_only"], path);
    String::from_utf8_lossy(&out.stdout).contains("replay was aborted")
}

/// Returns whether e2fsck repaired only orphans, on a volume that met damage. The blocks of a file that was removed
/// while it was open are freed when the file is closed. If its mapping is unreadable by then, the file stays an
/// orphan, as in the kernel. e2fsck 1.47.0 does not check everything that makes a mapping unreadable: the depth of an
/// inner node, for example.
pub fn only_orphans(text: &str) -> bool {
    let orphan = |line: &str| line.contains("Deleted inode") && line.contains("zero dtime");
    let mut mended = text
        .lines()
        .filter(|line| line.contains("FIXED"))
        .peekable();
    mended.peek().is_some() && mended.all(orphan)
}

/// Returns whether e2fsck asked about an unlinked file whose link count it found too high `before`. Neither this
/// engine nor the kernel counts the names of a file: when the last name is removed, the file keeps links and stays.
pub fn outlives_its_names(text: &str, before: &str) -> bool {
    let inode = text.split("Unattached inode ").nth(1);
    inode.and_then(|rest| rest.lines().next()).is_some_and(|n| {
        let counted = format!("Inode {n} ref count is ");
        before.lines().any(|line| {
            let counts = line.split_once(&counted).map(|(_, counts)| counts);
            let numbers = counts.and_then(|c| c.split_once(", should be "));
            numbers.is_some_and(|(links, names)| {
                let names = names.split_once('.').map_or(names, |(names, _)| names);
                let pair = (links.parse::<u32>(), names.parse::<u32>());
                matches!(pair, (Ok(links), Ok(names)) if links > names)
            })
        })
    })
}

fn e2fsck(args: &[&str], path: &Path) -> Output {
    let config = path.with_extension("conf");
    std::fs::write(&config, CONFIG).expect("room for a file");
    let mut e2fsck = Command::new("e2fsck");
    e2fsck.args(args).arg(path).env("E2FSCK_CONFIG", config);
    run_limited(&mut e2fsck, 15)
}

fn of_file(path: &Path) -> Option<(Verdict, String)> {
    let out = e2fsck(&["-fp"], path);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let text = text + &String::from_utf8_lossy(&out.stderr);
    // e2fsck has no exit code if it was killed.
    let verdict = match out.status.code()? {
        // e2fsck repairs descriptors before its first pass (a wrong count of unused inodes, a last group without a
        // bitmap), but its exit code does not show that.
        0 if text.contains("FIXED") => Verdict::Mended,
        0 => Verdict::Clean,
        1..=3 => Verdict::Mended,
        4..=7 => Verdict::Broken,
        _ => Verdict::Unreadable,
    };
    Some((verdict, text))
}

#[test]
fn too_many_links_explain_a_file_without_a_name() {
    let before = "a.img: Inode 377 ref count is 2, should be 1.  FIXED.\n";
    assert!(outlives_its_names("a.img: Unattached inode 377\n", before));
    assert!(!outlives_its_names("a.img: Unattached inode 378\n", before));
    let few = "a.img: Inode 377 ref count is 1, should be 2.  FIXED.\n";
    assert!(!outlives_its_names("a.img: Unattached inode 377\n", few));
    assert!(!outlives_its_names("a.img: Entry of inode 377\n", before));
}

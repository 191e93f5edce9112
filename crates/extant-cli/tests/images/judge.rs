//! e2fsck's verdict on an image, in four steps, each worse than the one before.

use blockdev::MemDevice;
use std::path::Path;
use std::process::{Command, Output};

/// How bad it is, by what e2fsck would do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing to mend.
    Clean,
    /// It mends everything by itself, without loss: counts, bitmaps, orphans.
    Mended,
    /// It would not go on without somebody who decides.
    Broken,
    /// It cannot work with it.
    Unreadable,
}

/// Orphans are mended without a question. e2fsck does not trust the list of orphans of a volume that is marked as having
/// errors, nor frees those whose blocks a bitmap says are free; it meets them later and asks what they are. A volume that met
/// damage is so marked, and its orphans are the files without a name that were open when it stopped. The counts of references
/// to attribute blocks are too high then by what they refer to.
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

/// What e2fsck says of an image, its journal replayed; nothing if it does not get to an end. `path` is a file to work
/// with.
pub fn verdict(device: &MemDevice, path: &Path) -> Option<(Verdict, String)> {
    crate::common::write_image(device, path);
    of_file(path)
}

/// What it says at worst: at once, or when it has replayed the journal first. It may stop at something before the replay,
/// and find after it what it cannot work with.
pub fn worst(device: &MemDevice, path: &Path) -> Option<Verdict> {
    let (at_once, _) = verdict(device, path)?;
    crate::common::write_image(device, path);
    // The orphans are freed by it, too.
    let code = e2fsck(&["-y", "-E", "journal_only"], path).status.code();
    if code.is_some_and(|code| code & 8 != 0) {
        return Some(Verdict::Unreadable);
    }
    let (replayed, _) = of_file(path)?;
    Some(at_once.max(replayed))
}

/// Whether it ends the log at a commit block that it does not trust.
pub fn ends_early(device: &MemDevice, path: &Path) -> bool {
    crate::common::write_image(device, path);
    let out = e2fsck(&["-y", "-E", "journal_only"], path);
    String::from_utf8_lossy(&out.stdout).contains("replay was aborted")
}

/// All that it mended are orphans, on a volume that met damage. The blocks of a file that was removed while it was open are
/// freed when it is closed; if its mapping cannot be read by then, the file stays an orphan, as with the kernel. e2fsck
/// 1.47.0 does not look at everything that makes a mapping unreadable, such as the depth of a node in the midst of the tree.
pub fn only_orphans(text: &str) -> bool {
    let orphan = |line: &str| line.contains("Deleted inode") && line.contains("zero dtime");
    let mut mended = text
        .lines()
        .filter(|line| line.contains("FIXED"))
        .peekable();
    mended.peek().is_some() && mended.all(orphan)
}

fn e2fsck(args: &[&str], path: &Path) -> Output {
    let config = path.with_extension("conf");
    std::fs::write(&config, CONFIG).expect("room for a file");
    Command::new("timeout")
        .args(["-s", "KILL", "15", "e2fsck"])
        .args(args)
        .arg(path)
        .env("E2FSCK_CONFIG", config)
        .output()
        .expect("timeout runs")
}

fn of_file(path: &Path) -> Option<(Verdict, String)> {
    let out = e2fsck(&["-fp"], path);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let text = text + &String::from_utf8_lossy(&out.stderr);
    let verdict = match out.status.code()? {
        // What it mends in descriptors before its first pass (a wrong count of unused inodes, a last group without a
        // bitmap) it says, and does not count.
        0 if text.contains("FIXED") => Verdict::Mended,
        0 => Verdict::Clean,
        1..=3 => Verdict::Mended,
        4..=7 => Verdict::Broken,
        // It did not get to an end.
        137 => return None,
        _ => Verdict::Unreadable,
    };
    Some((verdict, text))
}

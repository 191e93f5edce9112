//! Volumes whose journal is on another device, by the names of e2fsprogs: exit codes and last lines are theirs.

use crate::cli::called::{ScriptDir, told};

/// Makes a journal and a volume that uses it.
const MADE: &str = "set -e; mke2fs -q -F -O journal_dev -b 4096 j.img 8M; l=$(losetup -f --show j.img); \
                    trap 'losetup -d $l' EXIT; mke2fs -q -F -t ext4 -b 4096 -J device=$l f.img 32M; \
                    mke2fs -q -F -t ext4 other.img 16M; debugfs -w -R 'ssv journal_dev 0' f.img";

#[test]
fn codes_and_last_lines_are_those_of_e2fsprogs() {
    needs::tools!("mke2fs", "e2fsck", "dumpe2fs", "debugfs", "losetup");
    if !rustix::process::geteuid().is_root() {
        return needs::ignored("only root attaches loop devices");
    }
    let Some(dir) = ScriptDir::new() else { return };
    let made = dir.theirs(MADE);
    assert!(made.status.success(), "{}", told(&made));
    for line in [
        "dumpe2fs j.img",
        "dumpe2fs -h j.img",
        "dumpe2fs -h f.img",
        "e2fsck -n f.img",
        "e2fsck -fn f.img",
        "e2fsck -p f.img",
        "e2fsck -fn -j j.img f.img",
        "e2fsck -fn -j other.img f.img",
        "e2fsck -fn -j nowhere.img f.img",
        "e2fsck -n j.img",
        "tune2fs -l f.img",
    ] {
        let (theirs, ours) = (dir.theirs(line), dir.ours(line));
        assert_eq!(
            ours.status.code(),
            theirs.status.code(),
            "{line}: {}",
            told(&ours)
        );
        let text = |stdout: &[u8]| String::from_utf8_lossy(stdout).trim().to_owned();
        let lists = line.starts_with("dumpe2fs") || line.starts_with("tune2fs");
        let is_missing = theirs.status.code() == Some(12) && !line.contains("nowhere");
        if is_missing || lists {
            // tune2fs begins with its version.
            let theirs = text(&theirs.stdout);
            let theirs = theirs.trim_start_matches(|c| c != '\n').trim();
            let ours = text(&ours.stdout);
            assert!(ours.ends_with(theirs), "{line}:\n{ours}\n{theirs}");
        }
    }
}

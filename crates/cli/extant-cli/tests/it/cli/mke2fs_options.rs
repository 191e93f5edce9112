//! Options of mke2fs in image builds: accepted, with equal results.

use crate::cli::called::{ScriptDir, clean, told};
use std::path::Path;
use std::process::Command;

/// Options, and the lines of dumpe2fs that show their result.
const OPTIONS: &[(&str, &str)] = &[
    ("-t ext4 -M /vendor", "Last mounted"),
    ("-t ext4 -E stride=16,stripe_width=64", "RAID"),
    ("-t ext4 -E stripe-width=32", "RAID"),
    (
        "-t ext4 -O orphan_file -E orphan_file_size=4M",
        "Filesystem features|Free blocks",
    ),
    ("-t ext4 -O quota", "uota inode|Filesystem features"),
    (
        "-t ext4 -O quota -E quotatype=usrquota:grpquota:prjquota",
        "uota inode|Filesystem features",
    ),
    (
        "-t ext4 -E num_backup_sb=1 -O sparse_super2,^resize_inode",
        "Backup block groups",
    ),
    (
        "-t ext4 -E num_backup_sb=0 -O sparse_super2,^resize_inode",
        "Backup block groups",
    ),
    ("-t ext4 -E test_fs", "Filesystem flags"),
    ("-t ext4 -J size=4,location=8192", "Filesystem features"),
    (
        "-t ext4 -O fast_commit -J size=8,fast_commit_size=1024",
        "Fast commit|Filesystem features",
    ),
    (
        "-r 0",
        "Filesystem features|revision|Free blocks|Block count",
    ),
    ("-E revision=0", "Filesystem features|revision"),
    ("-o GNU -t ext4", "OS type|Filesystem features|Inode size"),
    (
        "-o freebsd -t ext4",
        "OS type|Filesystem features|Inode size",
    ),
    ("-t ext4 -L a-label-of-more-than-16-bytes", "volume name"),
    (
        "-t ext4 -O mmp -E mmp_update_interval=7",
        "MMP update|Filesystem features",
    ),
    ("-t ext4 -b -2048", "Block size"),
    ("-t ext4 -O verity", "Filesystem features"),
    ("-t ext4 -O encrypt", "Filesystem features"),
    ("-t ext4 -O inline_data", "Filesystem features"),
    ("-t ext4 -O ea_inode", "Filesystem features"),
    ("-t ext4 -c", "Filesystem features"),
    ("-t ext4 -l /dev/null", "Filesystem features"),
    ("-t ext4 -R stride=8", "RAID"),
];

fn lines(image: &Path, wanted: &str) -> String {
    let out = Command::new("dumpe2fs").arg("-h").arg(image).output();
    let text = String::from_utf8_lossy(&out.unwrap().stdout).into_owned();
    let is = |line: &&str| wanted.split('|').any(|name| line.contains(name));
    text.lines().filter(is).collect::<Vec<_>>().join("\n")
}

#[test]
fn options_come_to_the_same() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let image = place.image("i.img");
    for (options, wanted) in OPTIONS {
        let script = format!("rm -f i.img; truncate -s 64M i.img; mke2fs -q {options} i.img");
        let theirs = place.theirs(&script);
        // mke2fs supports the extended option revision since 1.47.1.
        let is_newer = options.contains("revision");
        assert!(
            theirs.status.success() || is_newer,
            "{options}: {}",
            told(&theirs)
        );
        if !theirs.status.success() {
            place.theirs("rm -f i.img; truncate -s 64M i.img; mke2fs -q -r 0 i.img");
        }
        let right = lines(&image, wanted);
        let ours = place.ours(&script);
        assert!(ours.status.success(), "{options}: {}", told(&ours));
        assert_eq!(lines(&image, wanted), right, "{options}: ours left");
        clean(&image);
    }
    let refused = place.ours("truncate -s 64M i.img; mke2fs -q -t ext4 -O orphan_present i.img");
    assert!(
        told(&refused).contains("orphan_present"),
        "{}",
        told(&refused)
    );
}

#[test]
fn a_wrong_value_is_reported_in_one_line() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    for only_shown in ["", "-n"] {
        let refused = place.ours(&format!("mke2fs {only_shown} -N x i.img 8M"));
        let line = "mke2fs: -N x: not a number\n";
        assert_eq!(told(&refused), line, "{only_shown}");
    }
}

#[test]
fn an_offset_leaves_what_is_before_and_behind() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    for made in ["", "head -c 48M /dev/zero | tr '\\0' x >i.img;"] {
        let script = format!(
            "rm -f i.img; {made} mke2fs -q -t ext4 -d tree -E offset=1048576 i.img 32M; \
             dd if=i.img of=part.img bs=1M skip=1 count=32 2>/dev/null; e2fsck -fn part.img >/dev/null 2>&1; \
             debugfs -R 'cat /etc/motd' part.img; stat -c %s i.img; head -c 1048576 i.img | cksum; tail -c 15M i.img | cksum"
        );
        // A new file ends with the volume; an existing one keeps its length.
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        assert!(ours.status.success(), "{}", told(&ours));
        let text = String::from_utf8_lossy(&ours.stdout).into_owned();
        assert!(text.contains("welcome\n"), "{text}");
        if !made.is_empty() {
            assert_eq!(ours.stdout, theirs.stdout, "ours left");
        }
    }
}

#[test]
fn the_root_is_whose_it_is_said_to_be() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    for (options, what) in [
        ("-E root_owner", "User:"),
        ("-E root_owner=5:6", "User:"),
        (
            "-E root_selinux=system_u:object_r:root_t:s0",
            "security.selinux",
        ),
    ] {
        let script = format!(
            "rm -f i.img; mke2fs -q -t ext4 {options} i.img 32M || exit 77; /usr/sbin/debugfs -R 'stat /' i.img 2>/dev/null | grep '{what}' | cut -c1-40"
        );
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        assert!(ours.status.success(), "{options}: {}", told(&ours));
        assert!(told(&ours).contains(what), "{}", told(&ours));
        // mke2fs supports the label since 1.47.1.
        if theirs.status.code() != Some(77) {
            let line = |text: String| text.lines().find(|l| l.contains(what)).map(str::to_owned);
            assert_eq!(
                line(told(&ours)),
                line(told(&theirs)),
                "{options}: ours left"
            );
        }
        clean(&place.image("i.img"));
    }
}

//! The configuration of new volumes besides the command line: mke2fs.conf and the environment. Our volumes have the
//! same values as those of mke2fs.

use crate::cli::called::{ScriptDir, clean, told};
use std::path::Path;
use std::process::Command;

/// Fields that do not depend on the configuration: random values, times, free space.
const OTHER: [&str; 14] = [
    // Our journal has its features from the beginning, not from the first mount.
    "Journal features",
    "Journal checksum type",
    "Directory Hash Seed",
    "Filesystem UUID",
    "Filesystem created",
    "Last write time",
    "Last checked",
    "Free blocks",
    "Free inodes",
    "Checksum",
    "Checksum seed",
    "Lifetime writes",
    "Overhead clusters",
    "Journal checksum",
];

/// Configurations, from one with nothing to one with everything.
const CONFIGS: [&str; 8] = [
    "",
    "[defaults]\n blocksize = 2048\n inode_ratio = 32768\n inode_size = 128\n",
    "[defaults]\n base_features = sparse_super,large_file,filetype,dir_index,ext_attr\n default_mntopts = acl\n reserved_ratio = 1.5\n\
     [fs_types]\n ext4 = {\n features = has_journal,extent,flex_bg,metadata_csum\n inode_size = 256\n hash_alg = tea\n flex_bg_size = 4\n }\n",
    "[defaults]\n base_features = \"sparse_super filetype resize_inode\"\n inode_size = 256\n errors = remount-ro\n\
     [fs_types]\n ext4 = {\n features = extent,has_journal\n }\n small = {\n features = ^resize_inode\n blocksize = 1024\n inode_ratio = 2048\n }\n\
     floppy = {\n blocksize = 1024\n inode_size = 128\n errors = panic\n }\n big = {\n blocksize = 4096\n }\n",
    "[defaults]\n default_mntopts = user_xattr,journal_data_writeback,nodelalloc\n lazy_itable_init = yes\n\
     [fs_types]\n ext4 = {\n base_features = sparse_super,filetype,extent,metadata_csum,64bit\n default_features = huge_file,^64bit\n blocksize = -4096\n }\n",
    "[defaults]\n fs_type = ext3\n [fs_types]\n ext3 = {\n features = has_journal\n blocksize = 4096\n }\n special = {\n inode_ratio = 65536\n reserved_ratio = 0\n }\n",
    "[defaults]\n inode_size = 512\n inode_ratio = 512\n [fs_types]\n ext4 = {\n options = \"stride=8\"\n }\n",
    "[defaults]\n base_features = sparse_super,filetype,resize_inode,dir_index,ext_attr,large_file\n inode_size = 256\n enable_periodic_fsck = 0\n\
     [fs_types]\n ext4 = {\n features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize,orphan_file\n \
     auto_64-bit_support = 1\n default_features = metadata_csum_seed\n }\n default = {\n inode_ratio = 8192\n blocksize = 2048\n }\n",
];

/// Sizes of each class that fits into a test, and options that override a configuration.
const CALLS: [&str; 7] = [
    "-t ext4 out.img 2560k",
    "-t ext4 out.img 40m",
    "-t ext4 out.img 600m",
    "-t ext4 -T special,big out.img 48m",
    "out.img 48m",
    "-j out.img 48m",
    "-t ext4 -b 4096 -I 256 -i 16384 -m 3 -e continue out.img 64m",
];

/// Returns the fields of a volume.
fn fields(image: &Path) -> Vec<String> {
    let out = Command::new("dumpe2fs").arg("-h").arg(image).output();
    let text = String::from_utf8(out.unwrap().stdout).unwrap();
    let known = |line: &&str| {
        let name = line.split_once(':').map_or(*line, |(name, _)| name);
        !OTHER.contains(&name)
    };
    text.lines().filter(known).map(str::to_owned).collect()
}

#[test]
fn a_configuration_decides_as_with_mke2fs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let image = place.image("out.img");
    for (nr, config) in CONFIGS.iter().enumerate() {
        // Our mke2fs does not report a RAID.
        let config = config.replace(
            "options = \"stride=8\"",
            "options = \"hash_seed=11111111-2222-3333-4444-555555555555\"",
        );
        std::fs::write(place.image("mke2fs.conf"), &config).unwrap();
        for call in CALLS {
            let script = format!("rm -f out.img; MKE2FS_CONFIG=mke2fs.conf mke2fs -Fq {call}");
            let made = [place.theirs(&script), place.ours(&script)].map(|out| {
                let fields = out.status.success().then(|| fields(&image));
                (fields, out)
            });
            let [(theirs, _), (ours, out)] = made;
            // mke2fs without -b does not find the size of a volume if the configured block size is a minimum.
            if theirs.is_none() && config.contains("= -4096") {
                continue;
            }
            assert!(
                theirs.is_some() == ours.is_some(),
                "{nr}: {call}: {}",
                told(&out)
            );
            assert_eq!(
                theirs, ours,
                "configuration {nr}, {call}: mke2fs left, ours right"
            );
        }
    }
}

#[test]
fn a_size_class_of_terabytes_is_read() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    std::fs::write(
        place.image("mke2fs.conf"),
        "[defaults]\n inode_size = 256\n [fs_types]\n ext4 = {\n features = extent,flex_bg,64bit,metadata_csum\n }\n \
         big = {\n inode_ratio = 4194304\n }\n huge = {\n inode_ratio = 8388608\n }\n",
    )
    .unwrap();
    for size in ["5t", "17t"] {
        let script = format!(
            "MKE2FS_CONFIG=mke2fs.conf mke2fs -Fn -t ext4 out.img {size} 2>/dev/null | grep Creating"
        );
        let ours = place.ours(&format!("truncate -s {size} out.img; {script}"));
        let theirs = place.theirs(&format!("truncate -s {size} out.img; {script}"));
        assert_eq!(told(&ours), told(&theirs), "{size}");
    }
}

#[test]
fn what_would_be_made_is_shown_in_the_same_lines() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    for call in [
        "-t ext4 out.img 64m",
        "-t ext4 -q -b 1024 out.img 30g",
        "-t ext2 out.img 1m",
        "-t ext4 -O sparse_super2 out.img 600m",
        "-t ext4 -N 5000 -U 11111111-2222-3333-4444-555555555555 out.img 100000",
    ] {
        let uuid = "sed 's/^Filesystem UUID:.*/UUID/'";
        let script = format!(
            "truncate -s 100m out.img; cp out.img before.img; mke2fs -F -n {call} 2>/dev/null | {uuid}; cmp out.img before.img"
        );
        let (ours, theirs) = (place.ours(&script), place.theirs(&script));
        assert!(ours.status.success(), "{call}: {}", told(&ours));
        assert!(
            told(&ours).starts_with("Creating filesystem with "),
            "{}",
            told(&ours)
        );
        assert_eq!(told(&ours), told(&theirs), "{call}");
    }
}

#[test]
fn the_environment_says_sectors_and_the_time() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let script = "MKE2FS_DEVICE_SECTSIZE=4096 mke2fs -Fq -t ext4 out.img 64m; dumpe2fs -h out.img 2>/dev/null | grep 'Block size'";
    let (ours, theirs) = (place.ours(script), place.theirs(script));
    assert_eq!(told(&ours), told(&theirs));
    assert!(told(&ours).contains("4096"));
    let small = "MKE2FS_DEVICE_SECTSIZE=4096 mke2fs -Fq -b 1024 out.img 64m";
    let refused = [place.ours(small), place.theirs(small)].map(|out| out.status.code());
    assert_eq!(refused, [Some(1), Some(1)]);
    // Created, changed, checked, grown: all at the given time.
    let times = |image: &str| {
        format!(
            "TZ=UTC dumpe2fs -h {image} 2>/dev/null | grep -E '^(Filesystem created|Last write time|Last checked)'"
        )
    };
    let mkfs =
        "export E2FSPROGS_FAKE_TIME=1600000000; rm -f out.img; mke2fs -Fq -t ext4 out.img 64m";
    let made = place.ours(&format!("{mkfs}; {}", times("out.img")));
    assert_eq!(
        told(&made).matches("Sun Sep 13 12:26:40 2020").count(),
        3,
        "{}",
        told(&made)
    );
    for change in [
        "tune2fs -L label out.img >/dev/null",
        "resize2fs out.img 80m >/dev/null 2>&1",
    ] {
        let script = format!(
            "{mkfs}; export E2FSPROGS_FAKE_TIME=1650000000; {change}; {}",
            times("out.img")
        );
        let out = place.ours(&script);
        assert!(out.status.success(), "{change}: {}", told(&out));
        assert!(
            told(&out).contains("Last write time:          Fri Apr 15 05:20:00 2022"),
            "{change}: {}",
            told(&out)
        );
    }
    clean(&place.image("out.img"));
    let bad = place.ours("E2FSPROGS_FAKE_TIME=soon mke2fs -Fq out.img 64m");
    assert!(
        told(&bad).contains("E2FSPROGS_FAKE_TIME is not a number of seconds"),
        "{}",
        told(&bad)
    );
}

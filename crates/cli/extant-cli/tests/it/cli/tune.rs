//! `extant tune` against tune2fs: the same options on copies of one image, with dumpe2fs, e2fsck and the kernel as
//! judges.

use crate::cli::support::{Mounted, Scratch, printed};
use extant_testing::common::copy_image;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const UUID: &str = "11111111-2222-3333-4444-555555555555";

/// Returns an image with a large directory, links, and a file of some blocks.
fn made(args: &[&str]) -> Option<Scratch> {
    if !needs::have(&["mke2fs", "e2fsck", "tune2fs", "dumpe2fs", "debugfs"]) {
        return None;
    }
    let s = Scratch::empty();
    let tree = s.host("tree");
    std::fs::create_dir_all(tree.join("large")).unwrap();
    for i in 0..900 {
        std::fs::write(tree.join(format!("large/a name of some length {i}")), "").unwrap();
    }
    std::fs::write(tree.join("data"), vec![7; 300_000]).unwrap();
    std::os::unix::fs::symlink("x".repeat(90), tree.join("link")).unwrap();
    let mut mke2fs = Command::new("mke2fs");
    mke2fs
        .args(["-q", "-F", "-E", "nodiscard", "-d"])
        .arg(&tree);
    printed(
        mke2fs
            .args(["-b", "1024"])
            .args(args)
            .arg(&s.image)
            .arg("24M"),
    );
    // A tree copied by mke2fs has no indexes, and its directories have gaps.
    Command::new("e2fsck")
        .args(["-fyD"])
        .arg(&s.image)
        .output()
        .unwrap();
    Some(s)
}

/// Returns the output of dumpe2fs, without times, checksums, and the differences noted below.
fn dumped(image: &Path) -> Vec<String> {
    let text = printed(Command::new("dumpe2fs").arg("-h").arg(image));
    let text = String::from_utf8_lossy(&text).into_owned();
    let left_out = [
        "Last write time",
        "Lifetime writes",
        "Checksum:",
        // tune2fs leaves the state to e2fsck if something remains to be done.
        "Filesystem state",
        // tune2fs also leaves a copy of the map of a removed journal.
        "Journal backup",
        // Directories that ours rebuilds are smaller.
        "Free blocks",
    ];
    let lines = text
        .lines()
        .filter(|line| !left_out.iter().any(|out| line.starts_with(out)));
    lines.map(ToOwned::to_owned).collect()
}

/// Changes copies of the image with both programs, and compares them.
fn both(s: &Scratch, options: &str) {
    let (ours, theirs) = (s.host("ours.img"), s.host("theirs.img"));
    for copy in [&ours, &theirs] {
        copy_image(&s.image, copy);
    }
    let words: Vec<&str> = options.split(' ').collect();
    printed(Command::new("tune2fs").args(&words).arg(&theirs));
    let path = ours.display().to_string();
    let args: Vec<&str> = ["tune", path.as_str()].into_iter().chain(words).collect();
    let ran = crate::cli::support::run(&args);
    assert_eq!(ran.code, Some(0), "{options}: {}", ran.stderr);
    assert_eq!(dumped(&ours), dumped(&theirs), "{options}");
    let out = Command::new("e2fsck")
        .arg("-fn")
        .arg(&ours)
        .output()
        .unwrap();
    let force = options.contains("force_fsck");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() || force, "{options}: {said}");
    // Some features keep the engine from opening a volume, so debugfs reads the names, in any order.
    let names = |image: &Path| {
        let text = printed(
            Command::new("debugfs")
                .args(["-R", "ls -p /large"])
                .arg(image),
        );
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: std::collections::BTreeSet<String> =
            text.lines().map(ToOwned::to_owned).collect();
        assert!(lines.len() > 900, "{options}");
        lines
    };
    assert!(names(&ours) == names(&s.image), "{options}: other names");
}

#[test]
fn fields_are_those_of_tune2fs() {
    let Some(s) = made(&["-t", "ext4"]) else {
        return;
    };
    for options in [
        "-L hello -M /mnt/x -c 30 -C 5",
        "-c -1 -i 2w -e panic",
        "-i 10m -e remount-ro -T 2020010112",
        "-m 1.5 -u 5 -g 7",
        "-r 100 -o journal_data_writeback",
        "-o ^user_xattr,nobarrier",
        "-E stride=16,stripe_width=64,hash_alg=tea,test_fs",
        "-E mount_opts=data=journal,force_fsck",
    ] {
        both(&s, options);
    }
}

#[test]
fn features_and_what_follows_are_those_of_tune2fs() {
    let Some(s) = made(&["-t", "ext4"]) else {
        return;
    };
    for options in [
        "-U clear",
        "-O metadata_csum_seed",
        "-O ^metadata_csum",
        "-O ^has_journal",
        "-O ^dir_index",
        "-O ^filetype",
        "-O ^huge_file,^large_file,^dir_nlink,^extra_isize",
        "-O orphan_file,fast_commit,stable_inodes,large_dir,ea_inode,encrypt,verity,read-only",
        "-O casefold",
    ] {
        both(&s, options);
    }
    both(&s, &format!("-U {UUID}"));
    let Some(s) = made(&["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"]) else {
        return;
    };
    for options in [
        "-O ^metadata_csum_seed",
        "-O ^orphan_file",
        "-O ^metadata_csum",
        "-O ^has_journal,^orphan_file",
    ] {
        both(&s, options);
    }
    both(&s, &format!("-U {UUID}"));
}

#[test]
fn older_volumes_are_changed_as_by_tune2fs() {
    let none = "^has_journal,^metadata_csum,^64bit,^uninit_bg";
    let Some(s) = made(&["-t", "ext4", "-O", none]) else {
        return;
    };
    for options in [
        "-j",
        "-J size=8",
        "-O metadata_csum",
        "-O uninit_bg",
        "-O has_journal,orphan_file",
    ] {
        both(&s, options);
    }
    let Some(s) = made(&["-t", "ext4", "-O", "^metadata_csum,uninit_bg"]) else {
        return;
    };
    for options in ["-O ^uninit_bg", "-O metadata_csum", "-O ^has_journal"] {
        both(&s, options);
    }
    both(&s, &format!("-U {UUID}"));
    let old = "^sparse_super,^resize_inode,^dir_index,^large_file";
    let Some(s) = made(&["-t", "ext2", "-g", "2048", "-O", old]) else {
        return;
    };
    for options in [
        "-O dir_index",
        "-O extent,uninit_bg,dir_index",
        "-O flex_bg,large_file",
        "-j",
    ] {
        both(&s, options);
    }
}

#[test]
fn what_tune2fs_leaves_to_others_is_done() {
    let old = "^sparse_super,^resize_inode,^dir_index";
    let Some(s) = made(&["-t", "ext2", "-g", "2048", "-O", old]) else {
        return;
    };
    s.ok(&[
        "tune",
        "%",
        "-O",
        "sparse_super,has_journal,metadata_csum,dir_index,extent",
    ]);
    s.clean();
    assert!(
        dumped(&s.image)
            .iter()
            .any(|line| line.ends_with("Journal inode:            8"))
    );

    let Some(s) = made(&["-t", "ext4"]) else {
        return;
    };
    let free = |s: &Scratch| {
        let text = printed(Command::new("dumpe2fs").arg("-h").arg(&s.image));
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text
            .lines()
            .find(|line| line.starts_with("Free blocks"))
            .unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let before = free(&s);
    s.ok(&["tune", "%", "-O", "^resize_inode"]);
    s.clean();
    assert!(free(&s) > before + 200, "reserved descriptors are free");
    // A journal of another size, and a new hash for all directories.
    s.ok(&["tune", "%", "-J", "size=2"]);
    s.ok(&["tune", "%", "-E", &format!("hash_seed={UUID}")]);
    s.clean();
    assert!(
        dumped(&s.image)
            .iter()
            .any(|line| line.starts_with("Total journal size:       2"))
    );
    s.ok(&["cat", ":/large/a name of some length 77"]);
    if let Some(mounted) = Mounted::new(&s) {
        let name = mounted.path().join("large/a name of some length 899");
        assert!(name.exists(), "the kernel finds it by its hash");
    }
    s.clean();
}

#[test]
fn inodes_become_larger() {
    let Some(s) = made(&["-t", "ext4", "-I", "128"]) else {
        return;
    };
    let before = s.bytes();
    let undo = s.host("undo").display().to_string();
    let listed = s.ok(&["tune", "%", "-n", "-I", "256"]);
    assert!(listed.contains("1 change would be made"), "{listed}");
    assert!(s.bytes() == before, "nothing is written");
    let told = s.ok(&["tune", "%", "-I", "256", "--undo", &undo]);
    assert!(told.contains("inodes have 256 bytes"), "{told}");
    let size = "Inode size:\t          256".to_owned();
    assert!(dumped(&s.image).contains(&size));
    s.clean();
    assert!(
        s.ok(&["tune", "%", "-I", "256"])
            .contains("nothing to change")
    );
    s.ok(&["undo", &undo, "%"]);
    assert!(s.bytes() == before, "taken back");
}

#[test]
fn a_second_mount_is_kept_off() {
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^metadata_csum"]] {
        let Some(s) = made(args) else {
            return;
        };
        let theirs = s.host("theirs.img");
        copy_image(&s.image, &theirs);
        s.ok(&["tune", "%", "-O", "mmp", "-E", "mmp_update_interval=1"]);
        s.clean();
        let tune2fs =
            |image: &Path, args: &[&str]| printed(Command::new("tune2fs").args(args).arg(image));
        tune2fs(&theirs, &["-O", "mmp", "-E", "mmp_update_interval=1"]);
        let block = |lines: Vec<String>| -> Vec<String> {
            let kept = lines.into_iter();
            // Omit the number of the block, and the time and author of its last write.
            let other = ["MMP block number", "mmp_update", "mmp_node", "mmp_device"];
            kept.filter(|line| !other.iter().any(|name| line.trim().starts_with(name)))
                .collect()
        };
        assert_eq!(block(dumped(&s.image)), block(dumped(&theirs)));
        // tune2fs removes our block, and ours its own.
        tune2fs(&s.image, &["-O", "^mmp"]);
        s.clean();
        s.ok(&["tune", "%", "-O", "mmp"]);
        s.ok(&["tune", "%", "-U", UUID]);
        s.clean();
        s.ok(&["tune", "%", "-O", "^mmp"]);
        s.clean();
        assert!(!dumped(&s.image).iter().any(|line| line.contains("MMP")));
    }
}

#[test]
fn refusals_change_nothing() {
    let Some(s) = made(&["-t", "ext4"]) else {
        return;
    };
    let before = s.bytes();
    for (args, why) in [
        (&["-O", "^64bit"][..], "64bit is changed by extant resize"),
        (&["-O", "^extent"], "64bit needs extent"),
        (&["-E", "mmp_update_interval=7"], "needs mmp"),
        (
            &["-O", "mmp", "-E", "mmp_update_interval=301"],
            "more than 300 seconds",
        ),
        (&["-Q", "allquota"], "usrquota, grpquota or prjquota"),
        (&["-O", "^flex_bg"], "flex_bg is needed by group"),
        (&["-O", "no_such"], "is not a feature"),
        (
            &["-L", "a label that is too long"],
            "a label of more than 16 bytes",
        ),
        (&["-J", "size=100"], "not more than half of the volume"),
        (&["-e", "ignore"], "write continue, remount-ro or panic"),
        (&["-I", "128"], "a power of two from 256"),
        (&["-I", "512", "-L", "x"], "-I goes with no other change"),
        (&["-E", "encoding=latin1"], "not known"),
        (&[], "nothing to change"),
    ] {
        let all: Vec<&str> = ["tune", "%"].iter().chain(args).copied().collect();
        let said = s.fails(&all);
        assert!(said.contains(why), "{args:?}: {said}");
    }
    let listed = s.ok(&["tune", "%", "-n", "-O", "^has_journal", "-L", "new"]);
    assert!(listed.contains("3 changes would be made"), "{listed}");
    assert!(s.bytes() == before, "nothing is written");
    let Some(quota) = made(&["-t", "ext4", "-O", "quota"]) else {
        return;
    };
    quota.ok(&["tune", "%", "-O", "^metadata_csum"]);
    quota.clean();
    quota.ok(&["tune", "%", "-U", "random"]);
    quota.clean();
    // An image with an error must first be repaired.
    s.debugfs_write("set_inode_field /data links_count 7");
    let said = s.fails(&["tune", "%", "-O", "^dir_index"]);
    assert!(said.contains("the image is not clean"), "{said}");
}

fn beside(s: &Scratch) -> PathBuf {
    let image = s.image.canonicalize().unwrap();
    PathBuf::from(format!("{}.extant-undo", image.display()))
}

#[test]
fn a_change_is_taken_back_byte_for_byte() {
    let Some(s) = made(&["-t", "ext4"]) else {
        return;
    };
    let before = s.bytes();
    let told = s.run(&[
        "tune",
        "--json",
        "--undo",
        "@undo",
        "%",
        "-O",
        "^metadata_csum",
        "-U",
        UUID,
    ]);
    let told = told.json();
    assert_eq!(told["written"], true);
    assert!(!beside(&s).exists() && s.bytes() != before);
    s.ok(&["undo", "@undo", "%"]);
    assert!(s.bytes() == before, "byte for byte");
}

#[test]
fn a_kill_at_any_moment_leaves_the_old_or_the_new() {
    let Some(s) = made(&["-t", "ext4"]) else {
        return;
    };
    let before = s.bytes();
    let rounds = match std::env::var_os("EXTANT_TORTURE") {
        Some(_) => 200,
        None => 12,
    };
    let args = ["tune", "-U", UUID, "-O", "^dir_index"];
    let began = std::time::Instant::now();
    s.ok(&["tune", "-U", UUID, "-O", "^dir_index", "%"]);
    let whole = began.elapsed();
    for round in 0..rounds {
        std::fs::write(&s.image, &before).unwrap();
        let mut tune = Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(args)
            .arg(&s.image)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole * (round * 7 % rounds) / rounds + Duration::from_micros(50));
        tune.kill().unwrap();
        tune.wait().unwrap();
        let undo = beside(&s);
        if undo.exists() {
            let paths = [undo.display().to_string(), s.image.display().to_string()];
            assert_eq!(
                crate::cli::support::run(&["undo", &paths[0], &paths[1]]).code,
                Some(0)
            );
            assert!(s.bytes() == before, "round {round}: taken back");
            std::fs::remove_file(undo).unwrap();
        } else if s.bytes() != before {
            s.clean();
            assert!(
                dumped(&s.image).iter().any(|line| line.ends_with(UUID)),
                "round {round}"
            );
        }
    }
}

/// The area for fast commits gets the requested size, and the journal keeps its size.
#[test]
fn the_area_of_fast_commits_changes_its_size() {
    let Some(s) = made(&["-t", "ext4", "-O", "fast_commit"]) else {
        return;
    };
    let journal = || -> Vec<String> {
        let lines = dumped(&s.image).into_iter();
        let wanted = ["Total journal blocks", "Fast commit length"];
        lines
            .filter(|line| wanted.iter().any(|name| line.starts_with(name)))
            .map(|line| line.split_whitespace().last().unwrap().to_owned())
            .collect()
    };
    s.ok(&["tune", "%", "-J", "size=8"]);
    let [before, _] = &journal()[..] else {
        panic!("{:?}", journal());
    };
    s.ok(&["tune", "%", "-J", "fast_commit_size=1024"]);
    s.clean();
    let block = s.ok(&["info", "%", "--json"]);
    let block: serde_json::Value = serde_json::from_str(&block).unwrap();
    let block = block["block_size"].as_u64().unwrap();
    assert_eq!(
        journal(),
        [before.clone(), (1024 * 1024 / block).to_string()]
    );
    s.ok(&["tune", "%", "-J", "size=4,fast_commit_size=512"]);
    s.clean();
    let expected = [(4 << 20) / block, 512 * 1024 / block].map(|n| n.to_string());
    assert_eq!(journal(), expected);
    for wrong in [
        "fast_commit_size=16384",
        "fast_commit_size=0",
        "fast_commit_size=x",
        "place=1",
    ] {
        s.fails(&["tune", "%", "-J", wrong]);
    }
    s.ok(&["tune", "%", "-O", "^fast_commit"]);
    assert!(
        s.fails(&["tune", "%", "-J", "fast_commit_size=512"])
            .contains("fast_commit")
    );
}

//! The command on directories that fold case: names in any case, the flag, copies.

use crate::cli::support::{Scratch, printed};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// Returns an image with the directory `/d`, which folds case, and a file in it.
fn folded() -> Option<Scratch> {
    let s = Scratch::mke2fs("16M", &["-t", "ext4", "-O", "casefold"])?;
    s.ok(&["mkdir", ":/d"]);
    s.ok(&["chattr", "+F", ":/d"]);
    fs::write(s.host("file"), "text").unwrap();
    s.ok(&["cp", "@file", ":/d/Größe"]);
    Some(s)
}

#[test]
fn names_are_found_in_any_case() {
    let Some(s) = folded() else {
        return;
    };
    assert_eq!(s.ok(&["cat", ":/d/GRÖSSE"]), "text");
    assert_eq!(s.ok(&["ls", ":/d"]).trim(), "Größe");
    let listed = s.ok(&["lsattr", "-d", ":/d"]);
    assert!(listed.contains('F'), "{listed}");
    let refused = s.fails(&["mkdir", ":/d/grösse"]);
    assert_eq!(refused.lines().count(), 1, "{refused}");
    let refused = s.fails(&["chattr", "-F", ":/d"]);
    assert!(refused.contains("not empty"), "{refused}");
    s.clean();
    assert!(s.run(&["check", "%"]).code == Some(0));
    s.ok(&["rm", ":/d/GRÖSSE"]);
    s.ok(&["chattr", "-F", ":/d"]);
    s.clean();
}

/// A superblock as made by mke2fs and shown by dumpe2fs; and a strict one, whose rule e2fsck knows.
#[test]
fn new_volumes_can_fold_case() {
    if !needs::have(&["mke2fs", "e2fsck", "dumpe2fs", "debugfs"]) {
        return;
    }
    let s = Scratch::empty();
    let field = |name: &str| {
        let out = printed(Command::new("dumpe2fs").arg("-h").arg(&s.image));
        let text = String::from_utf8(out).unwrap();
        let line = text.lines().find(|line| line.starts_with(name));
        line.unwrap_or_else(|| panic!("{name} in {text}"))
            .to_owned()
    };
    for (options, strict) in [
        (&["-O", "casefold"][..], false),
        (&["-E", "encoding=utf8,encoding_flags=strict"], true),
    ] {
        s.ok(&[&["mkfs", "%", "--size", "16M", "--force"], options].concat());
        s.clean();
        assert!(field("Character encoding:").ends_with(" utf8-12.1"));
        assert!(field("Filesystem features:").contains(" casefold "));
        s.ok(&["mkdir", ":/d"]);
        s.ok(&["chattr", "+F", ":/d"]);
        s.ok(&["touch", ":/d/Makefile"]);
        s.ok(&["stat", ":/d/MAKEFILE"]);
        s.clean();
        let flags = s.debugfs("stats -h");
        assert!(flags.contains("utf8-12.1"), "{flags}");
        let bytes = s.bytes();
        assert_eq!(bytes[1024 + 0x27e] & 1, u8::from(strict));
    }
    for (option, lacks) in [
        ("encoding_flags=strict", "casefold"),
        ("encoding=latin1", "utf8"),
    ] {
        let refused = s.fails(&["mkfs", "@other.img", "--size", "16M", "-E", option]);
        assert!(refused.contains(lacks), "{refused}");
    }
}

/// A copy keeps the case of names; a new image without the feature does not fold case, and reports that.
#[test]
fn copies_have_the_names_as_they_are() {
    let Some(s) = folded() else {
        return;
    };
    let ran = s.run(&["mkfs", "@new.img", "-q", "--from", "%"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (
            Some(0),
            "warning: 1 directory folds case in the source, and not in the new volume, which has not the feature casefold\n"
        )
    );
    let mut new = Scratch::empty();
    new.image = s.host("new.img");
    new.clean();
    assert_eq!(new.ok(&["cat", ":/d/Größe"]), "text");
    new.fails(&["cat", ":/d/GRÖSSE"]);
    let listed = new.ok(&["lsattr", "-d", ":/d"]);
    assert!(!listed.contains('F'), "{listed}");
    s.ok(&["export", ":/d", "@out.tar"]);
    let archive = fs::read(s.host("out.tar")).unwrap();
    let name = "Größe".as_bytes();
    assert!(archive.windows(name.len()).any(|w| w == name));
}

/// New volumes with the feature keep directories that fold case: with and without indexes and checksums.
#[test]
fn new_images_keep_directories_that_fold_case() {
    let Some(s) = folded() else {
        return;
    };
    if !needs::have(&["debugfs"]) {
        return;
    }
    let tree = s.host("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..900 {
        fs::write(tree.join(format!("Ä Name of some LENGTH {n}")), "x").unwrap();
    }
    s.ok(&["cp", "-r", "@tree", ":/d/"]);
    s.ok(&["cp", "-r", "@tree", ":/plain"]);
    s.ok(&["mkdir", ":/d/empty"]);
    for options in [
        &["-O", "casefold"][..],
        &["-E", "encoding=utf8,encoding_flags=strict", "-b", "4096"],
        &["-O", "casefold,^metadata_csum", "-I", "128"],
        &["-O", "casefold,^dir_index"],
        &["-O", "casefold", "-t", "ext2"],
    ] {
        s.ok(&[
            &[
                "mkfs", "@new.img", "-q", "--force", "--size", "32M", "--from", "%",
            ],
            options,
        ]
        .concat());
        let mut new = Scratch::empty();
        new.image = s.host("new.img");
        new.clean();
        assert_eq!(new.run(&["check", "%"]).code, Some(0), "{options:?}");
        for (dir, folds) in [
            ("/d", true),
            ("/d/tree", true),
            ("/d/empty", true),
            ("/plain", false),
            ("/", false),
        ] {
            let stat = new.debugfs(&format!("stat {dir}"));
            let flags = stat.split("Flags: 0x").nth(1).unwrap();
            let flags = u32::from_str_radix(flags.split_whitespace().next().unwrap(), 16).unwrap();
            assert_eq!(flags & 0x4000_0000 != 0, folds, "{dir}: {stat}");
            let indexed = folds && dir == "/d/tree" && !options.contains(&"casefold,^dir_index");
            assert!(
                !indexed || flags & 0x1000 != 0,
                "{dir} has no index: {stat}"
            );
        }
        assert_eq!(new.ok(&["cat", ":/d/GRÖSSE"]), "text");
        for n in [0, 77, 899] {
            assert_eq!(
                new.ok(&["cat", &format!(":/d/TREE/ä nAME of some length {n}")]),
                "x"
            );
            new.fails(&["cat", &format!(":/plain/ä nAME of some length {n}")]);
        }
        new.ok(&["touch", ":/d/tree/ANOTHER"]);
        let refused = new.fails(&["mkdir", ":/d/tree/another"]);
        assert!(refused.contains("exists"), "{refused}");
        new.ok(&["rm", ":/d/Tree/ä name OF some length 5"]);
        new.ok(&["touch", ":/d/EMPTY/a"]);
        new.clean();
    }
}

/// A layer over an image has an existing name in another case; a strict volume has a source with an invalid name.
#[test]
fn names_that_do_not_fit_a_directory_that_folds_case_are_refused() {
    let Some(s) = folded() else {
        return;
    };
    fs::create_dir_all(s.host("over/d")).unwrap();
    fs::write(s.host("over/d/GRÖßE"), "other").unwrap();
    let mut tar = Command::new("tar");
    let tar = tar.current_dir(s.host("over"));
    printed(tar.args(["cf", "../over.tar", "d/GRÖßE"]));
    let made = ["mkfs", "@new.img", "-q", "--size", "32M", "--from", "%"];
    let over = ["--from", "@over.tar", "-O", "casefold"];
    let refused = s.fails(&[&made[..], &over].concat());
    let what = "d/Größe: the directory folds case, and has GRÖßE already";
    assert!(refused.contains(what), "{refused}");
    fs::create_dir(s.host("bad")).unwrap();
    fs::write(s.host("bad").join(OsStr::from_bytes(b"\xff")), "").unwrap();
    s.ok(&["cp", "-r", "@bad", ":/d/bad"]);
    s.ok(&[&made[..], &["-O", "casefold", "--force"]].concat());
    let strict = ["-E", "encoding=utf8,encoding_flags=strict", "--force"];
    let refused = s.fails(&[&made[..], &strict].concat());
    let what = "d/bad/\\xff: the name is not UTF-8, and its directory is strict";
    assert!(refused.contains(what), "{refused}");
}

/// If a root folds case and has `lost+found` in capitals, no second one is made.
#[test]
fn roots_that_fold_case_are_kept() {
    let Some(s) = folded() else {
        return;
    };
    s.ok(&["rm", "-r", ":/lost+found", ":/d"]);
    s.ok(&["chattr", "+F", ":/"]);
    s.ok(&["cp", "@file", ":/File"]);
    for name in ["lost+found\n", "LOST+found\n"] {
        if name.starts_with('L') {
            s.ok(&["mkdir", ":/LOST+found"]);
        }
        let made = ["mkfs", "@new.img", "-q", "--size", "32M", "--force"];
        s.ok(&[&made[..], &["--from", "%", "-O", "casefold"]].concat());
        let mut new = Scratch::empty();
        new.image = s.host("new.img");
        assert_eq!(new.ok(&["cat", ":/FILE"]), "text");
        assert_eq!(new.run(&["check", "%"]).code, Some(0));
        let listed = new.ok(&["ls", ":/"]);
        assert!(
            listed.contains(name) && listed.lines().count() == 2,
            "{listed}"
        );
        if name.starts_with('l') {
            new.clean();
        }
    }
}

/// Compacts directories like `e2fsck -D`.
#[test]
fn directories_are_made_anew() {
    let Some(s) = folded() else {
        return;
    };
    let tree = s.host("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..400 {
        fs::write(tree.join(format!("Ä name of some length {n}")), "x").unwrap();
    }
    s.ok(&["cp", "-r", "@tree", ":/d"]);
    for n in (0..400).step_by(2) {
        s.ok(&["rm", &format!(":/d/TREE/ä NAME of some length {n}")]);
    }
    s.ok(&["defrag", "--dirs", "%"]);
    s.clean();
    assert_eq!(s.ok(&["cat", ":/d/Tree/ä NAME of some length 77"]), "x");
    assert_eq!(s.ok(&["ls", ":/d/tree"]).lines().count(), 200);
}

//! Directories that fold case, by the command: names in any case, the flag, copies.

use crate::support::{Scratch, printed};
use std::fs;
use std::process::Command;

/// An image with the directory `/d`, which folds case, and a file in it.
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

/// A superblock as mke2fs makes it, named as dumpe2fs names it; and a strict one, of which e2fsck knows the rule.
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

/// What is copied has the names as they are; a new image folds none.
#[test]
fn copies_have_the_names_as_they_are() {
    let Some(s) = folded() else {
        return;
    };
    s.ok(&["mkfs", "@new.img", "-q", "--from", "%"]);
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

/// As `e2fsck -D` does it.
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

//! Damaged images at the command line: loops end, damage is reported and shown, `--noload` reads past a broken
//! journal.

use super::support::{Scratch, printed};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::process::Command;

fn without_checksums() -> Option<Scratch> {
    let features = "^metadata_csum,^uninit_bg";
    Scratch::mke2fs("16M", &["-t", "ext4", "-b", "1024", "-O", features])
}

/// Returns an image without checksums in which `/a/b/loop` is `/a` again, and `/twice` is `/a/b`.
pub fn with_loops() -> Option<Scratch> {
    let s = without_checksums()?;
    s.ok(&["mkdir", "-p", ":/a/b", ":/other"]);
    let ino = |path: &str| s.debugfs(&format!("stat {path}"));
    let number = |text: String| {
        let from = text.find("Inode: ").expect("an inode") + 7;
        let digits = text[from..].split_whitespace().next().unwrap();
        digits.parse::<u32>().unwrap()
    };
    let (a, b) = (number(ino("/a")), number(ino("/a/b")));
    for request in [
        format!("link <{a}> /a/b/loop"),
        format!("link <{b}> /twice"),
    ] {
        printed(
            Command::new("debugfs")
                .args(["-w", "-R", &request])
                .arg(&s.image),
        );
    }
    Some(s)
}

#[test]
fn directory_loops_end_with_an_error_that_names_the_directory() {
    let Some(s) = with_loops() else { return };
    let host = s.host("out");
    let host = host.to_str().unwrap();
    for (args, directory) in [
        (&["tree", ":/a"][..], "/a/b/loop"),
        (&["ls", "-R", ":/a"], "/a/b/loop"),
        (&["ls", "-R", "--json", ":/"], "/a/b/loop"),
        (&["tree", "--json", ":/"], "/a/b/loop"),
        (&["export", ":/a", "@out.tar"], "loop"),
        (&["export", ":/", "@all.tar"], "loop"),
        (&["cp", "-r", ":/a", host], "loop"),
        (&["cp", "-r", ":/a", ":/other/copy"], "loop"),
        (&["chmod", "-R", "700", ":/a"], "/a/b/loop"),
        (&["chown", "-R", "1:1", ":/a"], "/a/b/loop"),
        (&["rm", "-r", ":/a"], "/a/b/loop"),
    ] {
        let ran = s.run(args);
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.stderr);
        let told = ran.stderr.lines().any(|line| {
            line.contains(directory) && (line.contains("loop: ") || line.contains("corrupt"))
        });
        assert!(told, "{args:?}: {}", ran.stderr);
    }
    // Two names, but no loop.
    let ran = s.run(&["tree", ":/"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
}

/// In a damaged image two directories can name each other as parent: a walk upwards must end.
#[test]
fn parents_that_go_in_a_circle_have_an_end() {
    let without = "^metadata_csum,^uninit_bg";
    let Some(s) = Scratch::mke2fs("16M", &["-t", "ext4", "-b", "1024", "-O", without]) else {
        return;
    };
    s.ok(&["mkdir", "-p", ":/a/b", ":/other"]);
    let ino = |path: &str| {
        s.run(&["stat", "--json", path]).json()[0]["ino"]
            .as_u64()
            .unwrap()
    };
    let block: u64 = s.debugfs("blocks /a").trim().parse().unwrap();
    // The second entry of a directory is "..", twelve bytes behind the first.
    let image = std::fs::OpenOptions::new()
        .write(true)
        .open(&s.image)
        .unwrap();
    let parent = u32::try_from(ino(":/a/b")).unwrap().to_le_bytes();
    std::os::unix::fs::FileExt::write_all_at(&image, &parent, block * 1024 + 12).unwrap();
    let out = std::process::Command::new("timeout")
        .args(["-s", "KILL", "60"])
        .args([env!("CARGO_BIN_EXE_extant"), "cp", "-r"])
        .args(["/other", "/a/b/copy"].map(|path| format!("{}:{path}", s.image.display())))
        .output()
        .unwrap();
    // The command either copies the file or stops at the damage, but always ends.
    assert!(matches!(out.status.code(), Some(0 | 1)), "{out:?}");
}

#[test]
fn damage_is_said_and_shown() {
    let Some(s) = without_checksums() else {
        return;
    };
    s.ok(&["mkdir", ":/d"]);
    s.ok(&["touch", ":/d/broken"]);
    printed(
        Command::new("debugfs")
            .args(["-w", "-R", "set_inode_field /d/broken mode 0"])
            .arg(&s.image),
    );
    let said = |args: &[&str]| {
        let ran = s.run(args);
        assert_eq!(ran.code, Some(1), "{args:?}");
        let damaged = ran
            .stderr
            .lines()
            .filter(|l| l.contains("damaged: corrupt:"));
        assert_eq!(damaged.count(), 1, "{args:?}: {}", ran.stderr);
    };
    said(&["ls", "-l", ":/d"]);
    // The mount is read-only, so the error is reported but not recorded.
    assert!(!s.ok(&["info", "%"]).contains("Errors:"));
    said(&["chmod", "600", ":/d/broken"]);
    let info = s.ok(&["info", "%"]);
    assert!(
        info.contains("Errors:              1 (errors=continue)"),
        "{info}"
    );
    assert!(
        info.contains(" in lookup:") && info.contains(", inode "),
        "{info}"
    );
    let json = s.run(&["info", "--json", "%"]).json();
    assert_eq!(json["errors"]["count"], 1);
    assert_eq!(json["errors"]["first"]["function"], "lookup");
    assert!(
        s.fails(&["mkdir", ":/new"])
            .contains("marked as having errors")
    );
    let dump = printed(Command::new("dumpe2fs").arg("-h").arg(&s.image));
    let dump = String::from_utf8_lossy(&dump).into_owned();
    assert!(dump.contains("FS Error count:           1"), "{dump}");
}

#[test]
fn a_broken_journal_can_be_left_alone() {
    let Some(s) = Scratch::mke2fs("16M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    std::fs::write(s.host("hello"), "hello").unwrap();
    s.ok(&["cp", "@hello", ":/hello"]);
    // The journal's superblock loses its magic.
    let magic = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4];
    let bytes = s.bytes();
    let at = bytes.windows(8).position(|w| w == magic).unwrap();
    let file = OpenOptions::new().write(true).open(&s.image).unwrap();
    file.write_all_at(&[0; 4], at as u64).unwrap();
    // The journal has nothing to replay, so the image can be read without it.
    let ran = s.run(&["cat", ":/hello"]);
    assert_eq!((ran.code, ran.text().as_str()), (Some(0), "hello"));
    assert!(
        ran.stderr.contains("damaged: corrupt: journal superblock"),
        "{}",
        ran.stderr
    );
    assert!(s.fails(&["mkdir", ":/new"]).contains("journal superblock"));
    assert_eq!(s.ok(&["--noload", "cat", ":/hello"]), "hello");
    assert_eq!(s.ok(&["cat", "--noload", ":/hello"]), "hello");
    let refused = s.fails(&["--noload", "mkdir", ":/new"]);
    assert!(
        refused.contains("--noload is for reading only"),
        "{refused}"
    );
}

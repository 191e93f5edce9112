//! `extant check`: its output and its exit codes, which are those of fsck.

use crate::cli::support::Scratch;
use std::os::unix::fs::FileExt;

#[test]
fn sound_images_are_clean_and_damage_is_named_by_path() {
    let Some(s) = Scratch::filled() else { return };
    let ran = s.run(&["check", "%"]);
    assert_eq!(ran.code, Some(0), "{}", ran.text());
    assert!(ran.text().contains(": clean: "), "{}", ran.text());
    assert_eq!(s.run(&["check", "--quiet", "%"]).text(), "");

    s.debugfs_write("set_inode_field /etc/motd links_count 7");
    let ran = s.run(&["check", "%"]);
    assert_eq!(ran.code, Some(4));
    let line = "/etc/motd: inode ";
    let said = "the count of an inode's links is wrong: stored 7, counted ";
    let text = ran.text();
    assert!(text.contains(line) && text.contains(said), "{text}");
    let json = s.run(&["check", "--json", "--threads", "1", "%"]).json();
    assert_eq!(json["clean"], false);
    let found = json["findings"].as_array().unwrap();
    let of_rule = found.iter().find(|f| f["rule"] == "link-count").unwrap();
    assert_eq!(of_rule["path"], "/etc/motd");
    assert_eq!(of_rule["severity"], "fault");
}

#[test]
fn exit_codes_are_those_of_fsck() {
    let Some(s) = Scratch::filled() else { return };
    assert_eq!(s.run(&["check", "--no-such-option", "%"]).code, Some(16));
    assert_eq!(s.run(&["check", "@missing.img"]).code, Some(8));
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&s.image)
        .unwrap();
    file.set_len(2048).unwrap();
    file.write_all_at(&[0; 1024], 1024).unwrap();
    let ran = s.run(&["check", "%"]);
    assert_eq!(ran.code, Some(8));
    assert!(
        ran.stderr.contains("no usable superblock"),
        "{}",
        ran.stderr
    );
}

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

/// Fast commits are replayed in scratch space, so the report is about the volume as the next mount sees it.
#[test]
fn pending_fast_commits_are_seen_and_nothing_is_written() {
    let s = Scratch::empty();
    s.ok(&["mkfs", "%", "--size", "32M", "-O", "fast_commit", "-q"]);
    let names = |s: &Scratch| {
        let ran = s.run(&["check", "--json", "%"]);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        ran.json()["names"].as_u64().unwrap()
    };
    let before = names(&s);
    let volume = extant::Volume::open(&s.image).unwrap();
    for file in ["/one", "/two", "/three"] {
        let file = volume.create_new_file(file).unwrap();
        file.write_all_at(b"synced", 0).unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!(volume.statistics().fast_commits, 3);
    let cut = std::fs::read(&s.image).unwrap();
    volume.close().unwrap();
    std::fs::write(&s.image, &cut).unwrap();
    assert_eq!(names(&s), before + 3);
    let text = s.ok(&["check", "%"]);
    assert!(text.contains("the journal was not replayed"), "{text}");
    assert!(std::fs::read(&s.image).unwrap() == cut);
}

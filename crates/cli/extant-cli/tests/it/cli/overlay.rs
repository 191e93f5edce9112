//! `--overlay FILE`: every command changes and reads an image that stays as it is.

use crate::cli::remote::serve;
use crate::cli::remote_objects;
use crate::cli::support::Scratch;
use extant_testing::common::copy_image;
use std::fs;
use std::os::unix::fs::symlink;

/// Runs a command with the overlay `changes`.
#[track_caller]
fn ok(s: &Scratch, args: &[&str]) -> String {
    s.ok(&[args, &["--overlay", "@changes"]].concat())
}

#[test]
fn commands_change_an_overlay() {
    let Some(s) = Scratch::filled() else { return };
    s.ok(&["check", "%"]);
    let before = s.bytes();
    fs::create_dir(s.host("tree")).unwrap();
    fs::write(s.host("tree/leaf"), "green\n").unwrap();
    ok(&s, &["mkdir", ":/new"]);
    ok(&s, &["import", "%", "@tree", "--to", "/new"]);
    ok(&s, &["cp", "@motd", ":/new/copy"]);
    ok(&s, &["rm", ":/etc/link"]);
    ok(&s, &["mv", ":/etc/motd", ":/etc/moved"]);
    ok(&s, &["ln", ":/etc/moved", ":/hard"]);
    ok(&s, &["touch", ":/touched"]);
    ok(&s, &["chmod", "600", ":/hard"]);
    ok(&s, &["setfattr", "-n", "user.a", "-v", "b", ":/hard"]);
    ok(&s, &["tune", "%", "-L", "other"]);
    ok(&s, &["resize", "%", "24M"]);
    ok(&s, &["repair", "-p", "%"]);
    ok(&s, &["trim", "%"]);
    ok(&s, &["defrag", "%"]);
    ok(&s, &["check", "%"]);
    assert_eq!(ok(&s, &["cat", ":/new/leaf", ":/hard"]), "green\nwelcome\n");
    assert_eq!(
        ok(&s, &["ls", ":/"]),
        "etc\nhard\nlost+found\nnew\ntouched\n"
    );
    assert!(ok(&s, &["info", "%"]).contains("other"));
    assert!(ok(&s, &["stat", ":/hard"]).contains("0600"));
    assert!(ok(&s, &["tree", ":/new"]).contains("leaf"));
    ok(&s, &["export", ":/new", "@out"]);
    assert_eq!(fs::read(s.host("out/copy")).unwrap(), b"welcome\n");
    ok(&s, &["df", "%"]);
    s.ok(&["inspect", "--overlay", "@changes", "%", "stat", "<2>"]);
    assert!(s.bytes() == before, "the image has changed");
    assert_eq!(s.ok(&["ls", ":/"]), "etc\nlost+found\n");
    s.ok(&["apply", "@changes", "%"]);
    assert_eq!(s.ok(&["cat", ":/new/leaf"]), "green\n");
    s.clean();
}

#[test]
fn changes_in_place_of_an_overlay_are_taken_back() {
    let Some(s) = Scratch::filled() else { return };
    let before = s.bytes();
    ok(&s, &["tune", "%", "-L", "first"]);
    ok(&s, &["tune", "%", "-L", "second", "--undo", "@undo"]);
    ok(&s, &["undo", "@undo", "%"]);
    assert!(ok(&s, &["info", "%"]).contains("first"));
    let said = s.fails(&["resize", "%", "64M", "--overlay", "@changes"]);
    assert!(said.contains("cannot become longer"), "{said}");
    assert!(s.bytes() == before, "the image has changed");
}

#[test]
fn a_file_of_a_web_server_is_changed_over_an_overlay() {
    let s = Scratch::empty();
    fs::create_dir(s.host("tree")).unwrap();
    for name in ["a", "b"] {
        fs::write(s.host(&format!("tree/{name}")), name).unwrap();
    }
    s.ok(&["mkfs", "@disk", "--from", "@tree", "-q"]);
    let url = format!("{}/disk", remote_objects::web(&s));
    let changes = s.host("changes").to_str().unwrap().to_owned();
    let run =
        |args: &[&str]| remote_objects::ok(&[args, &["--overlay", changes.as_str()]].concat());
    run(&["rm", &format!("{url}:/a")]);
    run(&["repair", "-p", &url]);
    run(&["check", &url]);
    assert_eq!(run(&["ls", &format!("{url}:/")]), "b\nlost+found\n");
    s.ok(&["apply", "@changes", "@disk"]);
    assert_eq!(
        s.ok(&["ls", &format!("{}:/", s.host("disk").display())]),
        "b\nlost+found\n"
    );
    let said = [url.as_str(), "--overlay", "none"];
    remote_objects::fails(&[&["ls"], &said[..]].concat(), "makes the overlay");
}

#[test]
fn an_export_is_changed_over_an_overlay() {
    needs::tools!("qemu-nbd");
    let s = Scratch::empty();
    fs::File::create(s.host("disk"))
        .unwrap()
        .set_len(32 << 20)
        .unwrap();
    let (server, url) = serve(&s, "disk", &[]);
    s.ok(&["mkfs", &url, "-q"]);
    drop(server);
    let before = fs::read(s.host("disk")).unwrap();
    let (_server, url) = serve(&s, "disk", &["--read-only"]);
    ok(&s, &["mkdir", &format!("{url}:/new")]);
    ok(&s, &["tune", &url, "-L", "far"]);
    assert_eq!(ok(&s, &["ls", &format!("{url}:/")]), "lost+found\nnew\n");
    ok(&s, &["check", &url]);
    assert!(fs::read(s.host("disk")).unwrap() == before);
}

/// A wrong file is named in one line, and neither it nor the image changes.
#[test]
fn wrong_overlays_are_refused() {
    let Some(s) = Scratch::filled() else { return };
    let before = s.bytes();
    ok(&s, &["rm", ":/etc/link"]);
    copy_image(&s.image, s.host("other.img"));
    s.ok(&[
        "rm",
        &format!("{}:/etc/link", s.host("other.img").display()),
    ]);
    fs::write(s.host("text"), "text\n").unwrap();
    let mut late = vec![0; 70_000];
    late[69_000] = 1;
    fs::write(s.host("late"), &late).unwrap();
    fs::create_dir(s.host("dir")).unwrap();
    symlink("/proc/self/status", s.host("proc")).unwrap();
    let other = format!("{}:/etc", s.host("other.img").display());
    let address = format!("{}:/etc", s.image.display());
    for (overlay, image, why) in [
        ("text", &address, "text: not an overlay: name a new file"),
        ("late", &address, "late: not an overlay: name a new file"),
        (
            "other.img",
            &address,
            "other.img: not an overlay: name a new file",
        ),
        ("disk.img", &address, "disk.img: it is the image itself"),
        (
            "dir",
            &address,
            "dir: neither a regular file nor a block device",
        ),
        (
            "no/changes",
            &address,
            "no/changes: No such file or directory",
        ),
        ("changes", &other, "changes: the overlay is of another base"),
    ] {
        let file = s.host(overlay);
        let content = fs::read(&file).ok();
        let file = file.to_str().unwrap();
        let added = format!("{image}/x");
        let said = s.fails(&["mkdir", &added, "--overlay", file]);
        assert!(said.contains(why), "{said}");
        let said = s.fails(&["ls", image, "--overlay", file]);
        assert!(said.contains(why), "{said}");
        assert_eq!(fs::read(file).ok(), content, "{overlay} has changed");
    }
    let said = s.fails(&["mkdir", ":/x", "--overlay", "/proc/changes"]);
    assert!(
        said.contains("/proc/changes: No such file or directory"),
        "{said}"
    );
    assert!(s.bytes() == before, "the image has changed");
    // Work that fails before its first change leaves no new file behind.
    let said = s.fails(&["mkdir", "@text:/x", "--overlay", "@new"]);
    assert!(said.contains("text"), "{said}");
    let said = s.fails(&["rm", "@text:/x", "--overlay", "@new"]);
    assert!(said.contains("text"), "{said}");
    assert!(!s.host("new").exists());
    s.run(&["mkdir", ":/etc", "--overlay", "@new"]);
}

/// An overlay that may not be written is read.
#[test]
fn an_overlay_is_read_by_many() {
    let Some(s) = Scratch::filled() else { return };
    ok(&s, &["rm", ":/etc/link"]);
    let reader = fs::File::open(s.host("changes")).unwrap();
    reader.lock_shared().unwrap();
    assert_eq!(ok(&s, &["ls", ":/etc"]), "motd\nskel\n");
    let said = s.fails(&["rm", ":/etc/motd", "--overlay", "@changes"]);
    assert!(
        said.contains("changes: already in use by another"),
        "{said}"
    );
}

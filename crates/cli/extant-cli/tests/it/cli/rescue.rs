//! `extant rescue`: listed and copied files, exit codes, and no writes outside of the directory.

use crate::cli::support::{Scratch, printed};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

/// Wipes the first 4 KiB: the superblock and the descriptors.
fn wipe(s: &Scratch) {
    let file = std::fs::OpenOptions::new().write(true).open(&s.image);
    file.unwrap().write_all_at(&[0; 4096], 0).unwrap();
}

#[test]
fn a_sound_image_is_copied_whole() {
    let Some(s) = Scratch::filled() else { return };
    let before = s.bytes();
    let ran = s.run(&["rescue", "%"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    assert!(ran.text().contains(" etc/motd\n"), "{}", ran.text());
    let ran = s.run(&["rescue", "--to", "@out", "--json", "%"]);
    let told = ran.json();
    let motd = s.host("out").join("etc/motd");
    let expected = s.run(&["cat", ":/etc/motd"]).text().to_owned();
    assert_eq!(std::fs::read_to_string(&motd).unwrap(), expected);
    assert!(told["copied"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(motd.metadata().unwrap().permissions().mode() & 0o6000, 0);
    assert!(s.bytes() == before, "the image is only read");
    // A directory with contents is left alone.
    assert_eq!(s.run(&["rescue", "--to", "@out", "%"]).code, Some(8));
}

#[test]
fn an_image_without_its_beginning_is_copied() {
    let Some(s) = Scratch::filled() else { return };
    let expected = s.run(&["cat", ":/etc/motd"]).text().to_owned();
    wipe(&s);
    let ran = s.run(&["rescue", "--to", "@out", "%"]);
    assert_eq!(ran.code, Some(4), "{}{}", ran.text(), ran.stderr);
    let copy = std::fs::read_to_string(s.host("out").join("etc/motd"));
    assert_eq!(copy.unwrap(), expected);
}

/// Files and directories inside inodes, from an image without its beginning.
#[test]
fn what_is_inside_inodes_is_copied() {
    if !needs::have(&["mke2fs"]) {
        return;
    }
    let s = crate::cli::support::Scratch::empty();
    let tree = s.host("tree");
    std::fs::create_dir_all(tree.join("dir/sub")).unwrap();
    for n in 0..6 {
        std::fs::write(
            tree.join(format!("dir/name{n}")),
            vec![b'a' + n; 20 * usize::from(n)],
        )
        .unwrap();
    }
    std::fs::write(tree.join("dir/sub/deep"), "deep").unwrap();
    let tree = tree.to_str().unwrap();
    let Some(s) = Scratch::mke2fs("16M", &["-t", "ext4", "-O", "inline_data", "-d", tree]) else {
        return;
    };
    wipe(&s);
    let ran = s.run(&["rescue", "--to", "@out", "%"]);
    assert_eq!(ran.code, Some(4), "{}{}", ran.text(), ran.stderr);
    for n in 0..6 {
        let copy = std::fs::read(s.host("out").join(format!("dir/name{n}")));
        assert_eq!(copy.unwrap(), vec![b'a' + n; 20 * usize::from(n)]);
    }
    let deep = std::fs::read_to_string(s.host("out").join("dir/sub/deep"));
    assert_eq!(deep.unwrap(), "deep");
}

#[test]
fn a_link_leads_nothing_outside() {
    let Some(s) = Scratch::filled() else { return };
    let outside = s.host("outside");
    std::fs::create_dir(&outside).unwrap();
    s.debugfs_write(&format!("symlink /away {}", outside.display()));
    s.ok(&["mkdir", ":/awaz"]);
    s.ok(&["cp", "@motd", ":/awaz/"]);
    // The directory gets the name of the link.
    let mut bytes = s.bytes();
    let places: Vec<usize> = (0..bytes.len() - 4)
        .filter(|&at| &bytes[at..at + 4] == b"awaz")
        .collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 3] = b'y';
    }
    std::fs::write(&s.image, bytes).unwrap();
    s.run(&["rescue", "--to", "@out", "%"]);
    assert!(s.host("out").join("etc/motd").exists());
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

/// If a later block of a directory is lost, the names of an older copy in the journal belong to no directory.
#[test]
fn names_without_a_directory_are_copied() {
    let Some(s) = Scratch::ext4() else { return };
    let many = s.host("many");
    std::fs::create_dir(&many).unwrap();
    for n in 0..40 {
        let name = format!("a name of some length, number {n:02}");
        std::fs::write(many.join(name), format!("file {n}")).unwrap();
    }
    s.ok(&["cp", "-r", "@many", ":/"]);
    s.debugfs_write("zap_block -f /many 1");
    let ran = s.run(&["rescue", "--to", "@out", "%"]);
    assert_eq!(ran.code, Some(4), "{}{}", ran.text(), ran.stderr);
    let files = printed(Command::new("find").arg(s.host("out")).args(["-type", "f"]));
    let files = String::from_utf8(files).unwrap();
    assert!(files.contains("/#names/"), "{files}");
    assert_eq!(files.lines().count(), 40, "{}", ran.text());
}

/// Targets of encrypted links hold any byte. The link is left out, and the archive is made.
#[test]
fn an_archive_leaves_out_a_target_with_a_nul_byte() {
    let Some(s) = Scratch::filled() else { return };
    let target = "target-".repeat(12);
    s.debugfs_write(&format!("symlink /etc/odd {target}"));
    let mut bytes = s.bytes();
    let target = target.as_bytes();
    let at = bytes.windows(target.len()).position(|w| w == target);
    bytes[at.unwrap() + 20] = 0;
    std::fs::write(&s.image, bytes).unwrap();
    let ran = s.run(&["rescue", "--tar", "@out.tar", "%"]);
    assert_eq!(ran.code, Some(4), "{}{}", ran.text(), ran.stderr);
    assert!(
        ran.text().contains("etc/odd: its target has a NUL byte"),
        "{}",
        ran.text()
    );
    let list = printed(Command::new("tar").arg("tf").arg(s.host("out.tar")));
    let list = String::from_utf8(list).unwrap();
    assert!(
        list.contains("etc/motd") && !list.contains("etc/odd"),
        "{list}"
    );
}

#[test]
fn what_is_no_image_is_refused() {
    let Some(s) = Scratch::filled() else { return };
    std::fs::write(s.host("zeros"), vec![0; 1 << 20]).unwrap();
    let ran = s.run(&["rescue", "@zeros"]);
    assert_eq!(ran.code, Some(8));
    assert!(ran.stderr.contains("no superblock"), "{}", ran.stderr);
}

#[test]
fn a_deleted_file_is_copied_from_the_journal() {
    let Some(s) = Scratch::ext4() else { return };
    std::fs::write(s.host("letter"), "dear all\n".repeat(900)).unwrap();
    // debugfs changes the image without a transaction, so that the journal keeps what the copy logged.
    s.ok(&["mkdir", ":/letters"]);
    s.ok(&["cp", "@letter", ":/letters/"]);
    s.debugfs_write("clri /letters/letter");
    s.debugfs_write("unlink /letters/letter");
    let json = s.run(&["rescue", "--deleted", "--json", "%"]).json();
    let found = json["found"].as_array().unwrap();
    let is_letter = |item: &&serde_json::Value| item["path"] == "#deleted/letters/letter";
    let letter = found.iter().find(is_letter).expect("it is in the list");
    for time in ["atime", "mtime", "ctime", "crtime"] {
        let text = letter["attributes"][time].as_str().unwrap();
        assert!(
            text.starts_with("20") && text.ends_with('Z'),
            "{time}: {text}"
        );
    }
    assert_eq!(letter["attributes"]["links"], 1);
    let ran = s.run(&["rescue", "--deleted", "--to", "@out", "--list", "%"]);
    assert!(
        ran.text().contains("#deleted/letters/letter"),
        "{}",
        ran.text()
    );
    let copy = std::fs::read(s.host("out").join("#deleted/letters/letter")).unwrap();
    assert!(copy == std::fs::read(s.host("letter")).unwrap());
}

/// A deleted file and the file that has its inode number now are two files.
#[test]
fn a_number_that_is_used_again_has_two_files() {
    let Some(s) = Scratch::ext4() else { return };
    let number = |path: &str| s.run(&["stat", "--json", path]).json()[0]["ino"].clone();
    std::fs::write(s.host("old"), "old\n".repeat(900)).unwrap();
    // Without blocks, so that no block is in use again.
    std::fs::write(s.host("new"), "").unwrap();
    s.ok(&["mkdir", ":/letters"]);
    s.ok(&["cp", "@old", ":/letters/old"]);
    let old = number(":/letters/old");
    s.ok(&["rm", ":/letters/old"]);
    s.ok(&["cp", "@new", ":/letters/new"]);
    assert_eq!(number(":/letters/new"), old, "the number is used again");
    for (option, out) in [("--to", "@out"), ("--tar", "@out.tar")] {
        let ran = s.run(&["rescue", "--deleted", option, out, "%"]);
        assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    }
    std::fs::create_dir(s.host("unpacked")).unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.arg("-xf")
        .arg(s.host("out.tar"))
        .arg("-C")
        .arg(s.host("unpacked"));
    assert!(tar.status().unwrap().success());
    for out in ["out", "unpacked"] {
        let read = |name: &str| std::fs::read_to_string(s.host(out).join(name)).unwrap();
        assert_eq!(read("letters/new"), "", "{out}");
        assert_eq!(read("#deleted/letters/old"), "old\n".repeat(900), "{out}");
    }
}

#[test]
fn an_archive_has_what_a_directory_has() {
    let Some(s) = Scratch::filled() else { return };
    let ran = s.run(&["rescue", "--tar", "@out.tar", "%"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    std::fs::create_dir(s.host("out")).unwrap();
    let status = std::process::Command::new("tar")
        .arg("-xf")
        .arg(s.host("out.tar"))
        .arg("-C")
        .arg(s.host("out"))
        .status();
    assert!(status.unwrap().success());
    let motd = std::fs::read_to_string(s.host("out").join("etc/motd"));
    assert_eq!(motd.unwrap(), "welcome\n");
    let link = std::fs::read_link(s.host("out").join("etc/link")).unwrap();
    assert_eq!(link.to_str(), Some("motd"));
    assert_eq!(s.run(&["rescue", "--tar", "@out.tar", "%"]).code, Some(8));
}

/// The lines of a body file are those of the Sleuth Kit, which mactime reads.
#[test]
fn times_are_listed_for_a_time_line() {
    let Some(s) = Scratch::filled() else { return };
    s.ok(&["touch", "-d", "1000000000", ":/etc/motd"]);
    s.ok(&["mkdir", ":/a|b"]);
    // A file without data leaves nothing but its record.
    s.ok(&["touch", "-d", "900000000", ":/gone"]);
    s.debugfs_write("rm /gone");
    let live = s.run(&["rescue", "--body", "%"]).text().to_owned();
    let motd = live.lines().find(|line| line.contains("|/etc/motd|"));
    let fields: Vec<&str> = motd.unwrap().split('|').collect();
    let size = s.run(&["cat", ":/etc/motd"]).text().len().to_string();
    assert_eq!(
        (fields.len(), fields[3], fields[6]),
        (11, "r/rrw-r--r--", &*size)
    );
    assert_eq!((fields[7], fields[8]), ("1000000000", "1000000000"));
    let time = |n: usize| fields[n].parse::<i64>().unwrap();
    assert!(
        time(9) > 1_000_000_000 && time(10) > 1_000_000_000,
        "{fields:?}"
    );
    assert!(
        live.contains("|/a\\x7cb|") && !live.contains("-dead-"),
        "{live}"
    );
    assert!(
        live.lines().all(|line| line.split('|').count() == 11),
        "{live}"
    );
    let all = s
        .run(&["rescue", "--deleted", "--body", "%"])
        .text()
        .to_owned();
    let dead = all.lines().find(|line| line.contains("-dead-")).unwrap();
    // A file that the journal still has is listed by its name only.
    s.ok(&["cp", ":/etc/motd", ":/second"]);
    s.debugfs_write("rm /second");
    let both = s.run(&["rescue", "--deleted", "--body", "%"]);
    let both = both.text();
    let mut named = both.lines().filter(|line| line.contains("second"));
    let number = named.next().unwrap().split('|').nth(2).unwrap();
    assert!(named.next().is_none(), "{both}");
    assert!(!both.contains(&format!("-dead-{number}>")), "{both}");
    assert!(
        dead.contains("|-/rrw-r--r--|0|0|0|900000000|900000000|"),
        "{dead}"
    );
    let refused = s.run(&["rescue", "--body", "--json", "%"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}

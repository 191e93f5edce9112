//! cpio archives as sources and targets; GNU cpio and busybox read them.

use crate::cli::support::{Scratch, root};
use crate::cli::trees::{make_tree, same, snapshot};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Removes from a snapshot the attributes that cpio lacks: fractions of seconds, times beyond 32 bits, holes, xattrs.
fn held(tree: BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, String> {
    let without = |line: String| {
        let words = line.split(' ').filter(|w| {
            let attribute = ["user.", "system.", "security."];
            !w.starts_with("sparse=") && !attribute.iter().any(|a| w.starts_with(a))
        });
        let line: Vec<_> = words.take_while(|w| !w.ends_with("=[")).collect();
        // Lists of attributes' values contain blanks.
        let line = line.iter().take_while(|w| !w.ends_with(',')).copied();
        let mut line: Vec<String> = line.map(str::to_string).collect();
        if let Some((secs, _)) = line[4].split_once('.') {
            line[4] = secs
                .parse::<i64>()
                .unwrap()
                .clamp(0, u32::MAX.into())
                .to_string();
        }
        line.join(" ").trim_end().to_string()
    };
    // ACLs' masks are in the modes; the tree's one is gone.
    tree.into_iter()
        .map(|(path, line)| (path, without(line)))
        .collect()
}

#[test]
fn archives_go_in_and_out() {
    let Some(s) = Scratch::mke2fs("128M", &["-t", "ext4"]) else {
        return;
    };
    let tree = s.host("tree");
    make_tree(&tree);
    s.ok(&["import", "%", "@tree", "--to", "/t"]);
    for name in ["t.cpio", "t.cpio.gz", "t.cpio.zst"] {
        let mut bytes = Vec::new();
        for threads in ["1", "2", "7"] {
            let at = format!("@{name}");
            let ran = s.run(&["export", "--json", ":/t", &at, "--threads", threads]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            assert_eq!(ran.json()["hard_links"], 1);
            let attributes = ran.stderr.contains("cannot hold extended attributes");
            assert!(attributes || ran.stderr.is_empty(), "{}", ran.stderr);
            bytes.push(fs::read(s.host(name)).unwrap());
        }
        assert!(bytes[0] == bytes[1] && bytes[1] == bytes[2], "{name}");
        s.ok(&[
            "import",
            "%",
            &format!("@{name}"),
            "--to",
            &format!("/{name}"),
        ]);
        s.ok(&["export", &format!(":/{name}"), "@back"]);
        if root() {
            same(&held(snapshot(&s.host("back"))), &held(snapshot(&tree)));
        }
        fs::remove_dir_all(s.host("back")).unwrap();
    }
    s.clean();
    let stream = s.run(&["export", ":/t", "-", "--format", "cpio"]);
    assert!(stream.stdout == fs::read(s.host("t.cpio")).unwrap());
    // From an archive of an image to an image, without the host's file system.
    s.ok(&["mkfs", "@new.img", "--from", "@t.cpio.zst"]);
    s.ok(&["export", "@new.img", "@again.cpio"]);
    let again = fs::read(s.host("again.cpio")).unwrap();
    assert!(again.windows(10).any(|w| w == b"lost+found"));
}

#[test]
fn other_programs_read_them() {
    let Some(s) = Scratch::mke2fs("128M", &["-t", "ext4"]) else {
        return;
    };
    needs::tools!("cpio", "busybox");
    needs::that!(root(), "devices take root");
    let tree = s.host("tree");
    make_tree(&tree);
    s.ok(&["import", "%", "@tree"]);
    s.ok(&["rm", "-r", ":/lost+found"]);
    s.run(&["export", "%", "@t.cpio"]);
    let mut want = held(snapshot(&tree));
    // busybox does not support sockets.
    for (to, program, sockets) in [
        ("gnu", &["cpio", "-idm", "--quiet"][..], true),
        ("busybox", &["busybox", "cpio", "-idm"], false),
    ] {
        fs::create_dir(s.host(to)).unwrap();
        let archive = fs::File::open(s.host("t.cpio")).unwrap();
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .current_dir(s.host(to))
            .stdin(archive);
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() || !sockets, "{to}: {said}");
        if !sockets {
            want.remove(Path::new("socket"));
        }
        let mut found = held(snapshot(&s.host(to)));
        found.remove(Path::new(if sockets { "" } else { "socket" }));
        // Both programs set few times of files that are not regular.
        for (path, line) in &mut found {
            let meta = s.host(to).join(path).symlink_metadata().unwrap();
            if !meta.is_file() {
                line.clone_from(&want[path]);
            }
        }
        same(&found, &want);
    }
    // The data come with the last name, as the kernel and GNU cpio expect.
    let list = Command::new("sh")
        .arg("-c")
        .arg("cpio -tv --quiet <t.cpio")
        .current_dir(s.dir.path())
        .output()
        .unwrap();
    let list = String::from_utf8_lossy(&list.stdout);
    let sizes: Vec<_> = list
        .lines()
        .filter(|l| l.starts_with('-') && (l.ends_with(" file") || l.ends_with(" dir/hard")))
        .map(|l| l.split_whitespace().nth(4).unwrap())
        .collect();
    assert_eq!(sizes, ["0", "8"], "{list}");
}

/// A part of a tree whose files have other names outside of it, and files that are too large.
#[test]
fn names_outside_and_files_too_large() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", ":/in"]);
    for (name, text) in [("one", "1"), ("two", "22")] {
        fs::write(s.host(name), text).unwrap();
        s.ok(&["cp", &format!("@{name}"), ":/in/"]);
        s.ok(&["ln", &format!(":/in/{name}"), &format!(":/{name}")]);
    }
    s.ok(&["ln", ":/one", ":/in/again"]);
    s.ok(&["export", ":/in", "@in.cpio"]);
    s.ok(&["mkfs", "@in.img", "--from", "@in.cpio"]);
    let text = |name: &str| s.ok(&["cat", &format!("{}:/{name}", s.host("in.img").display())]);
    assert_eq!((text("again"), text("two")), ("1".into(), "22".into()));
    let stat = |name: &str| {
        s.run(&[
            "stat",
            "--json",
            &format!("{}:/{name}", s.host("in.img").display()),
        ])
    };
    assert_eq!(stat("one").json()[0]["links"], 2, "{}", stat("one").text());
    fs::File::create(s.host("large"))
        .unwrap()
        .set_len(5 << 30)
        .unwrap();
    s.ok(&["cp", "@large", ":/in/"]);
    let line = s.fails(&["export", ":/in", "@large.cpio"]);
    assert!(line.contains("in/large: larger than 4 GiB"), "{line}");
    assert!(!s.host("large.cpio").exists());
    let other = s.run(&["export", ":/in", "@x", "--format", "zip"]);
    assert_eq!(other.code, Some(2));
    assert!(other.stderr.contains("use tar, tar.gz"), "{}", other.stderr);
}

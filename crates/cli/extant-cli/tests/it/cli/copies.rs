//! `cp -a`: the attributes that copies keep from the host to an image, between images, and from an image to the host,
//! as root and as other users.

use crate::cli::support::{Mounted, Scratch, root};
use crate::cli::trees::{make_tree, same, snapshot};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns an image of another block size and without a journal.
fn other() -> Option<Scratch> {
    Scratch::mke2fs("64M", &["-t", "ext2", "-I", "256", "-b", "1024"])
}

#[test]
fn everything_is_kept_in_all_directions() {
    let (Some(a), Some(b)) = (Scratch::mke2fs("64M", &["-t", "ext4"]), other()) else {
        return;
    };
    make_tree(&a.host("tree"));
    let want = snapshot(a.dir.path());
    let want: BTreeMap<_, _> = (want.into_iter().filter(|(p, _)| p.starts_with("tree"))).collect();
    a.ok(&["cp", "-a", "@tree", ":/"]);
    a.clean();
    let from = format!("{}:/tree", a.image.display());
    b.ok(&["cp", "-a", &from, ":/"]);
    b.clean();
    for s in [&a, &b] {
        if let Some(mounted) = Mounted::new(s) {
            let mut found = snapshot(mounted.path());
            found.remove(Path::new("lost+found"));
            same(&found, &want);
        }
    }
    fs::create_dir(b.host("out")).unwrap();
    b.ok(&["cp", "-a", ":/tree", "@out"]);
    if root() {
        same(&snapshot(&b.host("out")), &want);
    }
    // Copy over existing files, and within an image.
    a.ok(&["cp", "-a", "@tree", ":/"]);
    a.ok(&["cp", "-a", ":/tree", ":/again"]);
    a.clean();
    let facts = |path: &str| {
        let mut facts = a.run(&["ls", "-R", "--json", path]).json();
        for entry in facts.as_array_mut().unwrap() {
            // A copy has separate inodes and change times; other file systems may keep holes as they were written.
            for own in [
                "path",
                "path_bytes",
                "ino",
                "ctime",
                "crtime",
                "atime",
                "allocated",
            ] {
                entry.as_object_mut().unwrap().remove(own);
            }
        }
        facts
    };
    assert_eq!(facts(":/tree"), facts(":/again"));
}

/// Runs the command as an ordinary user, which owns only the files that the command makes.
fn as_nobody(s: &Scratch, args: &[&str]) -> std::process::Output {
    // The user `nobody` may not read the build directory.
    let program = s.host("extant");
    if !program.exists() {
        fs::copy(env!("CARGO_BIN_EXE_extant"), &program).unwrap();
    }
    Command::new(program)
        .args(args)
        .current_dir(s.dir.path())
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap()
}

const NOBODY: u32 = 65_534;

/// Returns the line of a snapshot for a file that an ordinary user copied out: this user owns the file, which has no
/// set-id bits.
fn own(line: &str) -> String {
    let mut words = line.splitn(3, ' ');
    let (mode, rest) = (words.next().unwrap(), words.nth(1).unwrap());
    let mode = u32::from_str_radix(mode, 8).unwrap();
    let directory = mode & 0o170_000 == 0o040_000;
    let kept = if directory { 0o177_777 } else { 0o171_777 };
    format!("{:o} {NOBODY}:{NOBODY} {rest}", mode & kept)
}

#[test]
fn others_than_root_get_all_but_owners_and_devices() {
    if !root() {
        return;
    }
    let Some(s) = Scratch::mke2fs("64M", &["-t", "ext4"]) else {
        return;
    };
    make_tree(&s.host("tree"));
    s.ok(&["cp", "-a", "@tree", ":/"]);
    fs::set_permissions(s.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(s.host("home")).unwrap();
    for mine in ["home", "disk.img"] {
        chown(s.host(mine), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let out = as_nobody(&s, &["cp", "-a", "disk.img:/tree", "home/"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    for device in ["char", "block"] {
        let line = format!("home/tree/{device}: a device that only root can make is left out");
        assert!(said.contains(&line), "{said}");
    }
    let want: BTreeMap<PathBuf, String> = snapshot(&s.host("tree"))
        .into_iter()
        .filter(|(path, _)| !["char", "block"].map(Path::new).contains(&path.as_path()))
        .map(|(path, line)| (path, own(&line)))
        .collect();
    same(&snapshot(&s.host("home/tree")), &want);
    // Copies into an image and from image to image keep everything, owners and devices too, for every caller.
    let out = as_nobody(&s, &["cp", "-a", "home/tree", "disk.img:/mine"]);
    assert!(out.status.success() && out.stderr.is_empty());
    let out = as_nobody(&s, &["cp", "-a", "disk.img:/tree", "disk.img:/copy"]);
    assert!(out.status.success() && out.stderr.is_empty());
    s.clean();
    if let Some(mounted) = Mounted::new(&s) {
        same(&snapshot(&mounted.path().join("mine")), &want);
        let whole = snapshot(&s.host("tree"));
        same(&snapshot(&mounted.path().join("copy")), &whole);
    }
}

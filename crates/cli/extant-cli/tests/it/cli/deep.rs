//! Trees with paths far longer than a system call takes: 60 levels of names of 255 bytes.

use crate::cli::support::{Scratch, printed};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, XattrFlags};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

const LEVELS: usize = 60;

fn name(level: usize) -> String {
    format!("{level:04}").repeat(64)[..255].to_string()
}

fn open(dir: impl AsFd, name: &str) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    rustix::fs::openat(dir, name, flags, Mode::empty()).unwrap()
}

fn top(path: &Path) -> OwnedFd {
    open(CWD, path.to_str().unwrap())
}

/// Returns a chain of directories; in the innermost two names of a file, a link, a pipe, and an empty directory.
fn make(path: &Path) -> bool {
    std::fs::create_dir(path).unwrap();
    let mut dir = top(path);
    for level in 0..LEVELS {
        rustix::fs::mkdirat(&dir, name(level), Mode::from_raw_mode(0o755)).unwrap();
        dir = open(&dir, &name(level));
    }
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = rustix::fs::openat(&dir, "file", flags, Mode::from_raw_mode(0o640)).unwrap();
    rustix::io::write(&file, b"at the bottom").unwrap();
    rustix::fs::linkat(&dir, "file", &dir, "again", AtFlags::empty()).unwrap();
    rustix::fs::symlinkat("file", &dir, "link").unwrap();
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(&dir, "pipe", FileType::Fifo, mode, 0).unwrap();
    rustix::fs::mkdirat(&dir, "empty", Mode::from_raw_mode(0o711)).unwrap();
    // Some file systems of the host do not support this attribute.
    let here = format!("/proc/self/fd/{}/empty", dir.as_raw_fd());
    rustix::fs::setxattr(here, "user.deep", b"value", XattrFlags::empty()).is_ok()
}

#[track_caller]
fn check(path: &Path, xattrs: bool) {
    let mut dir = top(path);
    for level in 0..LEVELS {
        dir = open(&dir, &name(level));
    }
    let look = |name: &str| rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    assert_eq!(look("file").st_ino, look("again").st_ino);
    assert_eq!(look("file").st_mode & 0o7777, 0o640);
    assert_eq!(look("empty").st_mode & 0o7777, 0o711);
    assert_eq!(look("pipe").st_mode & 0o170_000, 0o010_000);
    let target = rustix::fs::readlinkat(&dir, "link", Vec::new()).unwrap();
    assert_eq!(target.as_bytes(), b"file");
    let file = rustix::fs::openat(&dir, "file", OFlags::RDONLY, Mode::empty()).unwrap();
    let mut content = [0; 100];
    let n = rustix::io::read(&file, &mut content).unwrap();
    assert_eq!(&content[..n], b"at the bottom");
    if xattrs {
        let mut value = [0; 10];
        let n = rustix::fs::fgetxattr(open(&dir, "empty"), "user.deep", &mut value[..]);
        assert_eq!(&value[..n.unwrap()], b"value");
    }
}

#[test]
fn paths_longer_than_the_systems_go_in_and_out() {
    let Some(s) = Scratch::ext4() else { return };
    let xattrs = make(&s.host("tree"));
    s.ok(&["import", "%", "@tree", "--to", "/t"]);
    s.clean();
    s.ok(&["export", ":/t", "@out"]);
    check(&s.host("out"), xattrs);
    // Import over existing files.
    s.ok(&["import", "%", "@tree", "--to", "/t"]);
    s.ok(&["export", ":/t", "@out"]);
    check(&s.host("out"), xattrs);
    // Export to an archive, and import from it.
    s.ok(&["export", ":/t", "@t.tar"]);
    s.ok(&["import", "%", "@t.tar", "--to", "/from-tar"]);
    s.clean();
    s.ok(&["export", ":/from-tar", "@out-of-tar"]);
    check(&s.host("out-of-tar"), xattrs);
    // Within the image, and out of it, as cp does.
    s.ok(&["cp", "-a", ":/t", ":/copy"]);
    s.ok(&["cp", "-a", ":/copy", "@copied"]);
    check(&s.host("copied"), xattrs);
    s.ok(&["rm", "-r", ":/t"]);
    assert_eq!(s.ok(&["ls", ":"]), "copy\nfrom-tar\nlost+found\n");
    s.clean();
    // Make an image from the tree, and another from the archive.
    for from in ["@tree", "@t.tar"] {
        s.ok(&["mkfs", "%", "--force", "--from", from]);
        s.clean();
        let out = format!("@made-from-{}", &from[1..5]);
        s.ok(&["export", "%", &out]);
        check(&s.host(out.trim_start_matches('@')), xattrs);
    }
    if needs::have(&["tar"]) {
        let listed = std::process::Command::new("tar")
            .args(["tf", "t.tar"])
            .current_dir(s.dir.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let longest = text.lines().map(str::len).max();
        assert!(longest > Some(LEVELS * 256), "{longest:?}");
    }
}

#[test]
fn more_levels_than_open_files() {
    let Some(s) = Scratch::ext4() else { return };
    std::fs::create_dir(s.host("tree")).unwrap();
    let mut dir = top(&s.host("tree"));
    for level in 0..300 {
        // A file at each level, so that every directory is opened.
        let flags = OFlags::CREATE | OFlags::WRONLY;
        drop(rustix::fs::openat(&dir, "f", flags, Mode::from_raw_mode(0o644)).unwrap());
        let name = format!("d{level}");
        rustix::fs::mkdirat(&dir, &name, Mode::from_raw_mode(0o755)).unwrap();
        dir = open(&dir, &name);
    }
    drop(dir);
    let limited = |args: &[&str]| {
        let command = format!("ulimit -n 64; exec {} \"$@\"", env!("CARGO_BIN_EXE_extant"));
        let mut sh = std::process::Command::new("sh");
        printed(
            sh.args(["-c", &command, "sh"])
                .args(args)
                .current_dir(s.dir.path()),
        )
    };
    limited(&["import", "disk.img", "tree", "--threads", "8"]);
    s.clean();
    limited(&["export", "disk.img", "out", "--threads", "8"]);
    let archive = limited(&["export", "disk.img", "-"]);
    let files = tar::Archive::new(&archive[..]).entries().unwrap().count();
    // Each directory has a file; also the top and lost+found.
    assert_eq!(files, 2 * 300 + 2);
    let again = s.run_with(&["import", "%", "-", "--to", "/again"], &archive);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    s.clean();
    let twice = s.run(&["export", "--json", "%", "@twice"]).json();
    assert_eq!(twice["files"], 2 * 300);
}

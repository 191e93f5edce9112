//! The most common errors of users: each is one line that names the error, the place and the remedy. The command lines of the tables
//! are typed in a directory with the files that [`fixture`] makes.

mod command_lines;
mod failures;

use crate::cli::support::{Scratch, root};
use extant_testing::common::copy_image;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A command line, its exit code, and the line on standard error after "error: ".
type Row = (&'static str, i32, &'static str);

/// Command lines of an ordinary user that owns none of the files.
const OF_NOBODY: &[Row] = &[
    (
        "mkdir disk.img:/x",
        1,
        "disk.img: Permission denied: it is of user 0 with mode 0644, and you are 65534",
    ),
    (
        "ls closed.img",
        1,
        "closed.img: Permission denied: it is of user 0 with mode 0000, and you are 65534",
    ),
    (
        "mkfs new.img --size 8M",
        1,
        "new.img: Permission denied: name a file in a directory that is yours, not in .",
    ),
    ("cp disk.img:/d/f out", 1, "out: Permission denied"),
];

/// Makes images and files of the kinds that users name by mistake.
fn fixture() -> Option<Scratch> {
    let s = Scratch::ext4()?;
    let made = |name: &str, size: &str, args: &[&str]| {
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-E", "nodiscard"]).args(args);
        let out = mke2fs.arg(s.host(name)).arg(size).output().unwrap();
        assert!(out.status.success(), "{out:?}");
    };
    made("other.img", "32M", &["-t", "ext4"]);
    made("quota.img", "16M", &["-t", "ext4", "-O", "quota"]);
    made("inline.img", "16M", &["-t", "ext4", "-O", "inline_data"]);
    made("bigalloc.img", "16M", &["-t", "ext4", "-O", "bigalloc"]);
    made("ea.img", "16M", &["-t", "ext4", "-O", "ea_inode"]);
    made("fold.img", "16M", &["-t", "ext4", "-O", "casefold,encrypt"]);
    made("small.img", "2M", &["-t", "ext4", "-b", "1024"]);
    made("journal.img", "16M", &["-O", "journal_dev"]);
    made("apart.img", "16M", &["-t", "ext4", "-O", "^metadata_csum"]);
    let mut bytes = fs::read(s.host("apart.img")).unwrap();
    bytes[1024 + 0xd0..][..16].fill(7); // UUID of the journal
    bytes[1024 + 0xe0..][..4].fill(0); // inode of the journal
    fs::write(s.host("apart.img"), bytes).unwrap();
    let write = |name: &str, content: &[u8]| fs::write(s.host(name), content).unwrap();
    let marked = |at: usize, mark: &[u8]| {
        let mut content = vec![0; 70_000];
        content[at..at + mark.len()].copy_from_slice(mark);
        content
    };
    fs::create_dir(s.host("dir")).unwrap();
    fs::create_dir(s.host("mnt")).unwrap();
    write("file", b"text\n");
    write("table", b"/dev/x q 600 root 0\n");
    write("dir/f", b"x");
    write("empty", b"");
    write("junk", &[b'Z'; 100_000]);
    write("zero", &[0; 70_000]);
    write("big", &vec![b'b'; 4 << 20]);
    write("disk.qcow2", &marked(0, b"QFI\xfb"));
    write("pc.img", &marked(510, &[0x55, 0xaa]));
    write("a.tar", &marked(257, b"ustar"));
    s.ok(&["mkdir", ":/d"]);
    s.ok(&["cp", "@file", ":/d/f"]);
    s.ok(&["ln", "-s", "/nowhere", ":/dangling"]);
    s.ok(&["ln", "-s", "loop", ":/loop"]);
    s.ok(&["ln", "-s", "d", ":/dirlink"]);
    Some(s)
}

/// Runs a command line in a directory; returns its exit code and its message.
fn said(
    program: &Path,
    dir: &Path,
    line: &str,
    prepare: impl FnOnce(&mut Command),
) -> (i32, String) {
    let mut command = Command::new(program);
    command
        .args(line.split(' '))
        .current_dir(dir)
        .stdin(Stdio::null());
    prepare(&mut command);
    let out = command.output().unwrap();
    assert!(out.stdout.is_empty(), "{line}");
    (
        out.status.code().unwrap(),
        String::from_utf8(out.stderr).unwrap(),
    )
}

#[test]
fn every_message_says_what_and_where_and_what_next() {
    let Some(s) = fixture() else { return };
    let program = Path::new(env!("CARGO_BIN_EXE_extant"));
    let mut wrong = Vec::new();
    for (line, code, want) in command_lines::TABLE.iter().chain(failures::TABLE) {
        let found = said(program, s.dir.path(), line, |_| {});
        if found != (*code, format!("error: {want}\n")) {
            wrong.push(format!("{line}\n  {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The image that another process has locked.
    let lock = fs::File::open(&s.image).unwrap();
    lock.lock().unwrap();
    let (_, found) = said(program, s.dir.path(), "mkdir disk.img:/x", |_| {});
    assert_eq!(
        found,
        "error: disk.img: already in use by another process or mount (locked): extant umount its directory, or see \
         fuser -v disk.img\n"
    );
    // The lock may be released soon, like that of a mount's server when umount(8) returns.
    for line in [
        "mkdir disk.img:/x",
        "mkdir disk.img@offset=0:/y",
        "mkfs --quiet --force --size 16M disk.img",
    ] {
        lock.lock().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(300));
                lock.unlock().unwrap();
            });
            let (code, found) = said(program, s.dir.path(), line, |_| {});
            assert_eq!((code, &*found), (0, ""), "{line}");
        });
    }
    s.clean();
}

#[test]
fn what_others_may_not_do_is_told_with_who_may() {
    if !root() {
        return;
    }
    let Some(s) = fixture() else { return };
    let program = s.host("extant");
    fs::copy(env!("CARGO_BIN_EXE_extant"), &program).unwrap();
    copy_image(&s.image, s.host("closed.img"));
    let allow = |name: &str, mode| {
        fs::set_permissions(s.host(name), fs::Permissions::from_mode(mode)).unwrap();
        chown(s.host(name), Some(0), Some(0)).unwrap();
    };
    allow(".", 0o755);
    allow("disk.img", 0o644);
    allow("closed.img", 0);
    for (line, code, want) in OF_NOBODY {
        let found = said(&program, s.dir.path(), line, |command| {
            command.uid(65_534).gid(65_534);
        });
        assert_eq!(found, (*code, format!("error: {want}\n")), "{line}");
    }
}

//! import and export: a tree with every kind of file is imported and exported again.

use crate::cli::support::{Mounted, Scratch, printed, root};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes one file of each kind that a file system has.
pub fn make_tree(top: &Path) {
    use rustix::fs::{
        AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, makedev, mknodat,
    };
    fs::create_dir_all(top.join("dir/inner")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    fs::write(top.join("file"), "content\n").unwrap();
    fs::hard_link(top.join("file"), top.join("dir/hard")).unwrap();
    fs::write(
        top.join("large"),
        (0..3_000_000u32)
            .flat_map(u32::to_le_bytes)
            .collect::<Vec<_>>(),
    )
    .unwrap();
    let sparse = File::create(top.join("sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    sparse.write_all_at(b"island", 4 << 20).unwrap();
    File::create(top.join("hole"))
        .unwrap()
        .set_len(5 << 20)
        .unwrap();
    symlink("file", top.join("fast")).unwrap();
    symlink("x".repeat(300), top.join("slow")).unwrap();
    for n in 0..200 {
        fs::write(top.join(format!("dir/inner/n{n}")), n.to_string()).unwrap();
    }
    let odd = PathBuf::from(std::ffi::OsString::from_vec(b"odd \n\xff name".to_vec()));
    fs::write(top.join(odd), "odd").unwrap();
    mknodat(
        CWD,
        top.join("fifo"),
        FileType::Fifo,
        Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    mknodat(
        CWD,
        top.join("socket"),
        FileType::Socket,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    if root() {
        let device = |name, kind, dev| {
            mknodat(CWD, top.join(name), kind, Mode::from_raw_mode(0o600), dev).unwrap()
        };
        device("char", FileType::CharacterDevice, makedev(1, 3));
        device("block", FileType::BlockDevice, makedev(259, 70_000));
        std::os::unix::fs::chown(top.join("file"), Some(1000), Some(2000)).unwrap();
    }
    fs::set_permissions(top.join("file"), fs::Permissions::from_mode(0o4751)).unwrap();
    let set = |name: &str, attribute: &str, value: &[u8]| {
        // Some file systems of the host do not support these attributes.
        rustix::fs::lsetxattr(top.join(name), attribute, value, XattrFlags::empty()).is_ok()
    };
    if set("file", "user.text", b"value") {
        set("file", "user.binary", b"\0\xff=\n");
        set("dir", "user.dir", b"");
        let acl: Vec<u8> = [
            &[2u8, 0, 0, 0][..],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 6, 0, 7, 0, 0, 0],
            &[4, 0, 4, 0, 255, 255, 255, 255],
            &[16, 0, 6, 0, 255, 255, 255, 255],
            &[32, 0, 4, 0, 255, 255, 255, 255],
        ]
        .concat();
        set("large", "system.posix_acl_access", &acl);
    }
    let touch = |name: &str, secs, nanos| {
        let time = Timespec {
            tv_sec: secs,
            tv_nsec: nanos,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, top.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    touch("fast", 1_000_000_000, 5);
    touch("hole", -300_000_000, 123_456_789);
    touch("empty", 4_000_000_000, 999_999_999);
    fs::set_permissions(top.join("dir"), fs::Permissions::from_mode(0o2550)).unwrap();
    touch("dir/inner", 1_200_000_000, 1);
    touch("dir", 1_300_000_000, 2);
}

/// Returns the visible state of a tree, by path.
pub fn snapshot(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut first_names: BTreeMap<(u64, u64), PathBuf> = BTreeMap::new();
    let mut todo = vec![top.to_path_buf()];
    while let Some(dir) = todo.pop() {
        let mut entries: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        entries.sort();
        for path in entries {
            let m = path.symlink_metadata().unwrap();
            let relative = path.strip_prefix(top).unwrap().to_path_buf();
            let size = if m.is_dir() { 0 } else { m.size() };
            let mut line = format!(
                "{:o} {}:{} {size} {:x} ",
                m.mode(),
                m.uid(),
                m.gid(),
                m.rdev()
            );
            line += &format!("{}.{:09} ", m.mtime(), m.mtime_nsec());
            if m.is_dir() {
                todo.push(path.clone());
            } else {
                let first = first_names
                    .entry((m.dev(), m.ino()))
                    .or_insert_with(|| relative.clone());
                line += &format!("{} {first:?} ", m.nlink());
            }
            if m.is_symlink() {
                line += &format!("{:?} ", fs::read_link(&path).unwrap());
            }
            if m.is_file() {
                let sum = ext4_format::checksum::crc32c(!0, &fs::read(&path).unwrap());
                line += &format!("{sum:x} sparse={} ", m.blocks() * 512 < m.size());
            }
            let mut names = vec![0; 4096];
            let n = rustix::fs::llistxattr(&path, &mut names[..]).unwrap_or(0);
            let mut names: Vec<&[u8]> = names[..n]
                .split(|b| *b == 0)
                .filter(|n| !n.is_empty())
                .collect();
            names.sort_unstable();
            for name in names {
                let mut value = vec![0; 4096];
                let n = rustix::fs::lgetxattr(&path, name, &mut value[..]).unwrap();
                line += &format!("{}={:?} ", String::from_utf8_lossy(name), &value[..n]);
            }
            found.insert(relative, line);
        }
    }
    found
}

#[track_caller]
pub fn same(found: &BTreeMap<PathBuf, String>, want: &BTreeMap<PathBuf, String>) {
    for (path, line) in want {
        assert_eq!(found.get(path), Some(line), "{path:?}");
    }
    let more: Vec<_> = found.keys().filter(|p| !want.contains_key(*p)).collect();
    assert!(more.is_empty(), "{more:?}");
}

#[test]
fn a_tree_goes_in_and_out_and_stays_itself() {
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext3", "-I", "256", "-b", "2048"],
    ] {
        let Some(s) = Scratch::mke2fs("64M", args) else {
            return;
        };
        let tree = s.host("tree");
        make_tree(&tree);
        let mut want = snapshot(&tree);
        if args.contains(&"ext3") {
            // Inodes of 256 bytes have room for all seconds beyond 2038, even in ext3.
            assert!(want.contains_key(Path::new("empty")));
        }
        if !root() {
            want.retain(|_, l| !l.contains(" 1000:2000 "));
        }
        s.ok(&["import", "%", "@tree", "--to", "/t"]);
        s.clean();
        if let Some(mounted) = Mounted::new(&s) {
            same(&snapshot(&mounted.path().join("t")), &want);
        }
        s.ok(&["export", ":/t", "@out"]);
        if root() {
            same(&snapshot(&s.host("out")), &want);
        }
        // Importing again over existing files changes nothing.
        s.ok(&["import", "%", "@tree", "--to", "/t"]);
        s.clean();
        s.ok(&["export", ":/t", "@again"]);
        if root() {
            same(&snapshot(&s.host("again")), &want);
        }
    }
}

#[test]
fn a_copied_program_keeps_its_capabilities_and_owner() {
    let Some(s) = Scratch::ext4() else {
        return;
    };
    let mut packed = tar::Builder::new(File::create(s.host("packed.tar")).unwrap());
    let capability = [&[1, 0, 0, 2, 0, 32][..], &[0; 14]].concat();
    let attribute = ("SCHILY.xattr.security.capability", &capability[..]);
    packed.append_pax_extensions([attribute]).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(3);
    header.set_mode(0o755);
    header.set_uid(5);
    header.set_gid(6);
    packed
        .append_data(&mut header, "prog", &b"abc"[..])
        .unwrap();
    packed.into_inner().unwrap();
    s.ok(&["import", "%", "@packed.tar"]);
    let found = s.ok(&["getfattr", "-m", "-", ":/prog"]);
    assert!(found.contains("security.capability"), "{found}");
    s.ok(&["cp", "-a", ":/prog", ":/copy"]);
    let found = s.ok(&["getfattr", "-m", "-", ":/copy"]);
    assert!(found.contains("security.capability"), "{found}");
}

#[test]
fn archives_go_in_and_out() {
    let Some(s) = Scratch::mke2fs("128M", &["-t", "ext4"]) else {
        return;
    };
    let tree = s.host("tree");
    make_tree(&tree);
    let mut want = snapshot(&tree);
    want.remove(Path::new("socket"));
    s.ok(&["import", "%", "@tree", "--to", "/t"]);
    for name in ["t.tar", "t.tar.gz", "t.tar.zst"] {
        let ran = s.run(&["export", "--json", ":/t", &format!("@{name}")]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(
            ran.stderr
                .ends_with("socket: a tar archive cannot hold a socket\n"),
            "{}",
            ran.stderr
        );
        assert_eq!(ran.json()["hard_links"], 1);
        s.ok(&[
            "import",
            "%",
            &format!("@{name}"),
            "--to",
            &format!("/{name}"),
        ]);
        if let Some(mounted) = Mounted::new(&s) {
            same(&snapshot(&mounted.path().join(name)), &want);
        }
    }
    s.clean();
    let plain = s.run(&["export", ":/t", "-"]);
    assert!(plain.stdout == fs::read(s.host("t.tar")).unwrap());
    // The bytes do not depend on the number of threads, with or without compression.
    for name in ["t.tar", "t.tar.gz", "t.tar.zst"] {
        let want = fs::read(s.host(name)).unwrap();
        for threads in ["1", "2", "7"] {
            let again = format!("@{threads}.{name}");
            let ran = s.run(&["export", ":/t", &again, "--threads", threads]);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let found = fs::read(s.host(&again[1..])).unwrap();
            assert!(found == want, "{name} by {threads} threads");
        }
    }
    // A single file, through a symbolic link.
    s.ok(&["ln", "-s", "large", ":/t/to-large"]);
    s.ok(&["export", ":/t/to-large", "@one.tar"]);
    s.ok(&["rm", ":/t/to-large"]);
    let mut one = tar::Archive::new(File::open(s.host("one.tar")).unwrap());
    let mut members = one.entries().unwrap();
    let mut member = members.next().unwrap().unwrap();
    assert_eq!(&*member.path_bytes(), b"to-large");
    let mut content = Vec::new();
    std::io::Read::read_to_end(&mut member, &mut content).unwrap();
    assert!(content == fs::read(tree.join("large")).unwrap());
    assert!(members.next().is_none());
    if needs::have(&["tar"]) && root() {
        let gnu = |args: &[&str]| {
            let mut tar = Command::new("tar");
            printed(tar.args(args).current_dir(s.dir.path()))
        };
        // GNU tar reads our archives, and we read those of GNU tar, from a pipe.
        fs::create_dir(s.host("gnu")).unwrap();
        gnu(&[
            "xpf",
            "t.tar",
            "--xattrs",
            "--xattrs-include=*",
            "-C",
            "gnu",
        ]);
        same(&snapshot(&s.host("gnu")), &want);
        // ACLs are also in the records that GNU tar reads when asked for ACLs.
        for acls in [
            &["--acls"][..],
            &["--acls", "--xattrs", "--xattrs-include=*"],
        ] {
            let to = format!("gnu{}", acls.len());
            fs::create_dir(s.host(&to)).unwrap();
            gnu(&[&["xpf", "t.tar", "-C", &to], acls].concat());
            let acl = |top: &str| {
                let path = s.host(top).join("large");
                let mut value = [0; 100];
                let n = rustix::fs::lgetxattr(path, "system.posix_acl_access", &mut value[..]);
                n.map(|n| value[..n].to_vec())
            };
            assert_eq!(acl(&to), acl("tree"), "{acls:?}");
        }
        let archive = gnu(&[
            "cS",
            "--format=pax",
            "--xattrs",
            "--xattrs-include=*",
            "-C",
            "tree",
            ".",
        ]);
        let ran = s.run_with(&["import", "%", "-", "--to", "/gnu"], &archive);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        s.ok(&["export", ":/gnu", "@back"]);
        same(&snapshot(&s.host("back")), &want);
    }
    s.clean();
}

#[test]
fn archives_go_into_the_root() {
    let Some(s) = Scratch::ext4() else { return };
    fs::create_dir_all(s.host("tree/etc")).unwrap();
    fs::write(s.host("tree/etc/motd"), "hello").unwrap();
    s.ok(&["import", "%", "@tree", "--to", "/from"]);
    s.ok(&["export", ":/from", "@from.tar"]);
    s.ok(&["import", "%", "@from.tar"]);
    assert_eq!(s.ok(&["cat", ":/etc/motd"]), "hello");
    for root in ["/", "//", "/from//deeper/"] {
        s.ok(&["import", "%", "@from.tar", "--to", root]);
    }
    assert_eq!(s.ok(&["cat", ":/from/deeper/etc/motd"]), "hello");
    s.ok(&["mkdir", "-p", ":/", ":/from/deeper/"]);
    s.clean();
}

#[test]
fn what_is_mounted_in_a_tree_stays_behind_if_asked() {
    let Some(s) = Scratch::ext4() else { return };
    if !root() {
        return;
    }
    fs::create_dir_all(s.host("tree/mounted")).unwrap();
    fs::write(s.host("tree/file"), "").unwrap();
    let mount = |args: &[&str]| {
        let done = Command::new(args[0])
            .args(&args[1..])
            .arg(s.host("tree/mounted"))
            .status();
        done.is_ok_and(|status| status.success())
    };
    if !mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "none"]) {
        needs::ignored("no tmpfs can be mounted");
        return;
    }
    fs::write(s.host("tree/mounted/inner"), "").unwrap();
    let whole = s.run(&["import", "%", "@tree", "--to", "/whole"]);
    let part = s.run(&["import", "-x", "%", "@tree", "--to", "/part"]);
    assert!(mount(&["umount"]));
    assert_eq!((whole.code, part.code), (Some(0), Some(0)));
    assert_eq!(s.ok(&["ls", ":/whole/mounted"]), "inner\n");
    assert_eq!(s.ok(&["ls", ":/part"]), "file\nmounted\n");
    assert_eq!(s.ok(&["ls", ":/part/mounted"]), "");
    s.clean();
}

#[test]
fn later_members_win_over_files_still_being_written() {
    let Some(s) = Scratch::ext4() else { return };
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |kind, path: String| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        let content = vec![
            7;
            if kind == tar::EntryType::Regular {
                20_000
            } else {
                0
            }
        ];
        header.set_size(content.len() as u64);
        if kind == tar::EntryType::Symlink {
            builder.append_link(&mut header, path, "target").unwrap();
        } else {
            builder
                .append_data(&mut header, path, &content[..])
                .unwrap();
        }
    };
    use tar::EntryType::{Directory, Fifo, Regular, Symlink};
    for n in 0..100 {
        for (last, kind) in [("dir", Directory), ("link", Symlink), ("fifo", Fifo)] {
            add(Regular, format!("{n}.{last}"));
            add(kind, format!("{n}.{last}"));
        }
    }
    let archive = builder.into_inner().unwrap();
    let ran = s.run_with(&["import", "%", "-", "--threads", "4"], &archive);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let found = s.run(&["ls", "--json", "%"]).json();
    for f in found.as_array().unwrap() {
        let path = f["path"].as_str().unwrap();
        let want = match path.rsplit_once('.').map(|(_, last)| last) {
            Some("link") => "symbolic link",
            Some("fifo") => "fifo",
            _ => "directory",
        };
        assert_eq!(f["type"], want, "{path}");
    }
    s.clean();
}

#[test]
fn owners_and_permissions_are_translated() {
    let Some(s) = Scratch::ext4() else { return };
    fs::create_dir_all(s.host("tree/d")).unwrap();
    fs::write(s.host("tree/d/f"), "").unwrap();
    s.ok(&[
        "import",
        "%",
        "@tree",
        "--owner",
        "5:6",
        "--mode-map",
        "D0711,F0640",
    ]);
    let stat = s.run(&["stat", "--json", ":/d", ":/d/f"]).json();
    assert_eq!((&stat[0]["uid"], &stat[1]["gid"]), (&5.into(), &6.into()));
    assert_eq!(
        (&stat[0]["mode"], &stat[1]["mode"]),
        (&"0711".into(), &"0640".into())
    );
    s.ok(&["export", "--uid-map", "5:9", ":/d", "@d.tar"]);
    let mut archive = tar::Archive::new(File::open(s.host("d.tar")).unwrap());
    let uids = archive
        .entries()
        .unwrap()
        .map(|e| e.unwrap().header().uid().unwrap());
    assert_eq!(uids.collect::<Vec<_>>(), [9, 9]);
    let line = s.fails(&["import", "%", "@tree", "--owner", "root"]);
    assert!(
        line.contains("the image's /etc/passwd: no such file or directory"),
        "{line}"
    );
    let line = s.fails(&["mkfs", "@x.img", "--from", "@tree", "--owner", "bin"]);
    assert!(
        line.contains("the source's /etc/passwd: not found"),
        "{line}"
    );
    assert!(!s.host("x.img").exists());
}

#[test]
fn names_of_owners_are_the_images() {
    let Some(s) = Scratch::ext4() else { return };
    fs::create_dir_all(s.host("tree/etc")).unwrap();
    let passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1234:4321:,,,:/home/alice:/bin/sh\n77:x:78:79::/:\n";
    fs::write(s.host("tree/etc/passwd"), passwd).unwrap();
    fs::write(s.host("tree/etc/group"), "wheel:x:10:alice\nbad:x::\n").unwrap();
    s.ok(&["import", "%", "@tree"]);
    s.ok(&["touch", ":/f"]);
    for (owner, uid, gid) in [
        ("alice", 1234, 0),
        (":wheel", 1234, 10),
        ("root:0", 0, 0),
        ("alice:", 1234, 4321),
        ("1234:", 1234, 4321),
        ("5:wheel", 5, 10),
        // A name of digits is a name, unless a sign makes it a number.
        ("77", 78, 10),
        ("+77", 77, 10),
        ("78:", 78, 79),
    ] {
        s.ok(&["chown", owner, ":/f"]);
        let stat = s.run(&["stat", "--json", ":/f"]).json();
        let found = (stat[0]["uid"].as_u64(), stat[0]["gid"].as_u64());
        assert_eq!(found, (Some(uid), Some(gid)), "{owner}");
    }
    let before = s.bytes();
    for (owner, why) in [
        ("bob", "bob is not in the image's /etc/passwd"),
        ("alice:bob", "bob is not in the image's /etc/group"),
        (":bad", "the entry of bad has no number"),
        ("999:", "no entry says the group of user 999"),
    ] {
        let line = s.fails(&["chown", owner, ":/f"]);
        assert!(line.contains(why), "{line}");
    }
    assert!(s.bytes() == before);
    s.ok(&[
        "import",
        "%",
        "@tree",
        "--to",
        "/t",
        "--owner",
        "alice:wheel",
    ]);
    let stat = s.run(&["stat", "--json", ":/t/etc/group"]).json();
    assert_eq!(
        (&stat[0]["uid"], &stat[0]["gid"]),
        (&1234.into(), &10.into())
    );
    s.clean();
}

#[test]
fn archives_cannot_leave_their_directory() {
    let Some(s) = Scratch::ext4() else { return };
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.as_ustar_mut().unwrap().name[..9].copy_from_slice(b"../escape");
    header.set_size(0);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    builder.append(&header, &[][..]).unwrap();
    let ran = s.run_with(
        &["import", "%", "-", "--to", "/in"],
        &builder.into_inner().unwrap(),
    );
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("leads out of its directory"),
        "{}",
        ran.stderr
    );
    assert_eq!(s.ok(&["ls", ":"]), "in\nlost+found\n");
    s.clean();
}

#[test]
fn names_are_bytes() {
    let Some(s) = Scratch::ext4() else { return };
    let name = b"caf\xe9 \x1b[31m";
    let path = s.dir.path().join(std::ffi::OsStr::from_bytes(name));
    fs::write(&path, "x").unwrap();
    let ran = crate::cli::support::run(&[
        "cp".as_ref(),
        path.as_os_str(),
        std::ffi::OsString::from(format!("{}:/", s.image.display())).as_os_str(),
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // Names are shown escaped, so they cannot control the terminal.
    assert_eq!(s.ok(&["ls", ":"]), "$'caf\\xe9 \\x1b[31m'\nlost+found\n");
    s.ok(&["export", ":", "@out"]);
    assert!(
        s.host("out")
            .join(std::ffi::OsStr::from_bytes(name))
            .exists()
    );
}

/// No text of an image reaches the terminal as it is: neither control characters, nor those that change the direction
/// of text, so that a name looks like another.
#[test]
fn nothing_in_an_image_controls_the_terminal() {
    let s = Scratch::empty();
    let hostile = |name: &str| format!("{name}\u{202e}\x1b[7m\u{2066}x");
    let tree = s.host("tree");
    fs::create_dir_all(tree.join(hostile("d"))).unwrap();
    fs::write(tree.join(hostile("d")).join(hostile("f")), "x").unwrap();
    std::os::unix::fs::symlink(hostile("to"), tree.join(hostile("l"))).unwrap();
    let label = hostile("l");
    s.ok(&[
        "mkfs", "%", "--from", "@tree", "--size", "8M", "-q", "-L", &label,
    ]);
    let (dir, link) = (format!(":/{}", hostile("d")), format!(":/{}", hostile("l")));
    let attribute = format!("user.{}", hostile("a"));
    s.ok(&["setfattr", "-n", &attribute, "-v", &hostile("v"), &dir]);
    s.ok(&["mkfs", "@other.img", "--size", "8M", "-q"]);
    let none = format!("{dir}/none");
    let inner = format!("{dir}/{}", hostile("f"));
    for args in [
        &["ls", "-lR", ":/"][..],
        &["ls", &inner],
        &["tree", ":/"],
        &["stat", &dir, &link],
        &["lsattr", "-R", ":/"],
        &["getfattr", "-d", "-m", "-", &dir],
        &["info", "%"],
        &["map", "%"],
        &["diff", "%", "@other.img"],
        &["rescue", "%"],
        &["inspect", "%", "dirents", "/"],
        &["inspect", "%", "stat", &link[1..]],
        &["inspect", "%", "xattrs", &dir[1..]],
        &["inspect", "%", "superblock"],
        &["tune", "%", "-L", &hostile("m")],
        &["cat", &none],
        &["cat", &inner, &dir],
        &["mv", &inner, &dir],
        &["rm", &dir],
        &["mkdir", &dir],
        &["ln", &inner, &dir],
        &["chmod", "600", &none],
    ] {
        let ran = s.run(args);
        let text = ran.text() + &ran.stderr;
        assert!(!text.is_empty(), "{args:?}");
        let raw = ['\x1b', '\u{202e}', '\u{2066}'];
        assert!(!text.contains(raw), "{args:?}: {}", text.escape_debug());
    }
}

#[test]
fn an_archive_keeps_inode_flags() {
    let s = Scratch::empty();
    fs::create_dir_all(s.host("tree/dir")).unwrap();
    for name in ["tree/plain", "tree/fixed", "tree/dir/log"] {
        fs::write(s.host(name), name).unwrap();
    }
    fs::hard_link(s.host("tree/fixed"), s.host("tree/again")).unwrap();
    s.ok(&["mkfs", "%", "--from", "@tree", "--size", "8M", "-q"]);
    s.ok(&["chattr", "+id", ":/fixed"]);
    s.ok(&["chattr", "+a", ":/dir/log"]);
    s.ok(&["chattr", "+i", ":/dir"]);
    let listed = s.ok(&["lsattr", "-R", ":/"]);
    let of = |image: &str| listed.replace(s.image.to_str().unwrap(), image);
    for archive in ["@all.tar", "@all.tar.zst"] {
        s.ok(&["export", "%", archive]);
        let name = s.host("other.img");
        let name = name.to_str().unwrap();
        s.ok(&["mkfs", name, "--size", "8M", "-q", "--force"]);
        s.ok(&["import", name, archive]);
        assert_eq!(s.ok(&["lsattr", "-R", &format!("{name}:/")]), of(name));
        let from = ["--from", archive, "--size", "8M", "-q", "--force"];
        s.ok(&[&["mkfs", name], &from[..]].concat());
        assert_eq!(s.ok(&["lsattr", "-R", &format!("{name}:/")]), of(name));
    }
}

//! Linux's own ext4 as the judge, both ways: trees made here are read by the kernel, trees made by the
//! kernel are read and changed here and read by it again; journals left dirty by one are recovered by
//! the other. And ext4-view as one more reader. Needs root and loop devices.

mod common;

use common::*;
use extant::{
    Dir, Fallocate, FileType, OpenFlags, OpenOptions, SetAttributes, SetXattr, Timestamp, Volume,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Root, and the tools: an error in CI, a message elsewhere.
fn able() -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(root || std::env::var_os("CI").is_none(), "needs root");
    if !root {
        eprintln!("not root: nothing tested");
    }
    root && have("mke2fs") && have("e2fsck") && have("mount")
}

/// An image mounted by the kernel; unmounted when it goes, also by a panic.
struct Mounted {
    dir: tempfile::TempDir,
    mounted: bool,
}

impl Mounted {
    fn new(image: &Path, options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut mounted = Self {
            dir,
            mounted: false,
        };
        let options = format!(
            "loop,noatime{}{options}",
            if options.is_empty() { "" } else { "," }
        );
        let out = Command::new("mount")
            .args(["-o", &options])
            .arg(image)
            .arg(mounted.dir.path())
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "mount -o {options}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        mounted.mounted = true;
        mounted
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn unmount(mut self) {
        self.mounted = false;
        let out = Command::new("umount")
            .arg(self.dir.path())
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "umount: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount")
                .arg("-l")
                .arg(self.dir.path())
                .output();
        }
    }
}

/// All that both sides show of one name.
#[derive(Debug, PartialEq)]
struct Entry {
    ino: u64,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    sectors: u64,
    rdev: u32,
    atime: (i64, u32),
    mtime: (i64, u32),
    ctime: (i64, u32),
    content: Vec<u8>,
    /// Data in a file, by seeking.
    data: Vec<(u64, u64)>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

type Tree = BTreeMap<PathBuf, Entry>;

fn kernel_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0u8; 65_536];
    let n = rustix::fs::llistxattr(path, &mut names).unwrap();
    names[..n]
        .split(|&b| b == 0)
        .filter(|n| !n.is_empty())
        .map(|name| {
            let mut value = vec![0u8; 65_536];
            let n = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value).unwrap();
            (name.to_vec(), value[..n].to_vec())
        })
        .collect()
}

fn kernel_data(file: &std::fs::File, size: u64) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let Ok(from) = seek(file, SeekFrom::Data(at)) else {
            break;
        };
        at = seek(file, SeekFrom::Hole(from)).unwrap();
        parts.push((from, at));
    }
    parts
}

fn kernel_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let name = path.strip_prefix(root).unwrap().to_path_buf();
        if name == Path::new("lost+found") {
            continue;
        }
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let mut data = Vec::new();
        let content = if meta.is_file() {
            data = kernel_data(&std::fs::File::open(&path).unwrap(), meta.len());
            std::fs::read(&path).unwrap()
        } else if meta.is_symlink() {
            std::fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else {
            Vec::new()
        };
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        let (major, minor) = (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        );
        let entry = Entry {
            ino: meta.ino(),
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            links: meta.nlink(),
            size: meta.size(),
            sectors: meta.blocks(),
            rdev: ext4_format::inode::makedev(major, minor),
            atime: (meta.atime(), meta.atime_nsec() as u32),
            mtime: (meta.mtime(), meta.mtime_nsec() as u32),
            ctime: (meta.ctime(), meta.ctime_nsec() as u32),
            content,
            data,
            xattrs: kernel_xattrs(&path),
        };
        tree.insert(name, entry);
    }
    tree
}

fn our_data(volume: &Dir, path: &Path, size: u64) -> Vec<(u64, u64)> {
    let file = volume.open(bytes_of(path), OpenFlags::READ, 0).unwrap();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let Ok(from) = file.seek(at, extant::Seek::Data) else {
            break;
        };
        at = file.seek(from, extant::Seek::Hole).unwrap();
        parts.push((from, at));
    }
    parts
}

fn bytes_of(path: &Path) -> Vec<u8> {
    [b"/", path.as_os_str().as_bytes()].concat()
}

fn our_tree(volume: &Dir) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        if path == Path::new("lost+found") {
            continue;
        }
        let at = bytes_of(&path);
        let meta = volume.lstat(&at).unwrap();
        let (mut content, mut data) = (Vec::new(), Vec::new());
        match meta.file_type {
            FileType::Regular => {
                content = volume.read_file(&at).unwrap();
                data = our_data(volume, &path, meta.size);
            }
            FileType::Symlink => content = volume.read_link(&at).unwrap(),
            FileType::Directory => {
                todo.extend(
                    volume
                        .read_dir(&at)
                        .unwrap()
                        .iter()
                        .map(|e| path.join(OsStr::from_bytes(&e.name))),
                );
            }
            _ => {}
        }
        let time = |t: Timestamp| (t.secs, t.nanos);
        let entry = Entry {
            ino: meta.ino.into(),
            mode: meta.mode,
            owner: (meta.uid, meta.gid),
            links: meta.links.into(),
            size: meta.size,
            sectors: meta.sectors,
            rdev: meta.rdev,
            atime: time(meta.atime),
            mtime: time(meta.mtime),
            ctime: time(meta.ctime),
            content,
            data,
            xattrs: volume
                .list_xattrs(&at)
                .unwrap()
                .into_iter()
                .map(|n| (n.clone(), volume.get_xattr(&at, &n).unwrap()))
                .collect(),
        };
        tree.insert(path, entry);
    }
    tree
}

#[track_caller]
fn same(ours: &Tree, theirs: &Tree, what: &str) {
    let names = |t: &Tree| t.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(ours), names(theirs), "{what}: names");
    for (path, a) in ours {
        let b = &theirs[path];
        assert!(
            a.content == b.content,
            "{what}: {path:?}: contents of {} and {} bytes differ",
            a.content.len(),
            b.content.len()
        );
        assert_eq!(a, b, "{what}: {path:?}");
    }
}

const KINDS: &[(&str, &[&str])] = &[
    ("ext4", &["-t", "ext4"]),
    (
        "ext4, newest features",
        &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"],
    ),
    ("ext4, 1 KiB", &["-t", "ext4", "-b", "1024"]),
    (
        "ext4, no checksums",
        &["-t", "ext4", "-O", "^metadata_csum,^64bit"],
    ),
    (
        "ext4, uninit_bg",
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    ),
    (
        "ext4, meta_bg",
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
    ),
    ("ext4, small inodes", &["-t", "ext4", "-I", "128"]),
    ("ext4, no journal", &["-t", "ext4", "-O", "^has_journal"]),
    ("ext3", &["-t", "ext3"]),
    ("ext2, 1 KiB", &["-t", "ext2", "-b", "1024"]),
];

fn image(dir: &tempfile::TempDir, args: &[&str]) -> PathBuf {
    let path = dir.path().join("image");
    mke2fs(&path, "160M", &[args, &["-N", "40000"]].concat());
    path
}

fn open_file(path: &Path) -> Volume {
    OpenOptions::new().background(false).open(path).unwrap()
}

fn pattern(n: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(n + 1);
    (0..len).map(|_| rng.next() as u8).collect()
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// A tree with one of everything.
fn make(v: &Dir, many: usize) {
    let extents = v
        .create("/probe", 0o600)
        .unwrap()
        .fallocate(Fallocate::default(), 0, 1)
        .is_ok();
    v.unlink("/probe").unwrap();
    let big = v.create_dir("/big", 0o750).unwrap();
    (0..many).for_each(|n| drop(big.create(format!("name number {n}"), 0o640).unwrap()));
    // Some go again, so that leaves have gaps.
    (0..many)
        .step_by(7)
        .for_each(|n| big.unlink(format!("name number {n}")).unwrap());
    let mut deep = String::new();
    for n in 0..150 {
        deep += &format!("/level{n}");
        v.create_dir(&deep, 0o755).unwrap();
    }
    v.write_file(format!("{deep}/bottom"), b"down here")
        .unwrap();
    v.create_dir("/kinds", 0o1777).unwrap();
    for (n, (file_type, rdev)) in [
        (FileType::CharDevice, ext4_format::inode::makedev(1, 3)),
        (
            FileType::BlockDevice,
            ext4_format::inode::makedev(259, 70_000),
        ),
        (FileType::Fifo, 0),
        (FileType::Socket, 0),
    ]
    .into_iter()
    .enumerate()
    {
        v.mknod(
            format!("/kinds/special{n}"),
            file_type,
            0o600 + n as u16,
            rdev,
        )
        .unwrap();
    }
    v.symlink("short", "/kinds/fast").unwrap();
    v.symlink("x".repeat(59), "/kinds/fast59").unwrap();
    v.symlink("x".repeat(60), "/kinds/slow60").unwrap();
    v.symlink("dir/".repeat(225), "/kinds/slow").unwrap();
    for (n, len) in [0usize, 1, 4095, 4096, 4097, 100_000, 3_000_000]
        .into_iter()
        .enumerate()
    {
        v.write_file(format!("/kinds/file{n}"), &pattern(n as u64, len))
            .unwrap();
        v.link(format!("/kinds/file{n}"), format!("/big/link{n}"))
            .unwrap();
    }
    let sparse = v.create("/kinds/sparse", 0o644).unwrap();
    for at in [0u64, 40_960, 5_000_000, 70_000_000] {
        sparse.write_at(at, &pattern(at, 10_000)).unwrap();
    }
    if extents {
        sparse
            .fallocate(Fallocate::PunchHole, 5_000_000, 4_096)
            .unwrap();
        sparse
            .fallocate(Fallocate::Allocate { keep_size: true }, 20_000_000, 100_000)
            .unwrap();
    }
    sparse.truncate(80_000_001).unwrap();
    let shredded = v.create("/kinds/shredded", 0o644).unwrap();
    for n in 0..1500u64 {
        shredded.write_at(n * 8192, &pattern(n, 100)).unwrap();
    }
    v.create_dir("/attributes", 0o755).unwrap();
    for (n, len) in [0usize, 10, 90, 400, 800].into_iter().enumerate() {
        let path = format!("/attributes/x{n}");
        v.write_file(&path, b"with attributes").unwrap();
        v.set_xattr(&path, "user.some", &pattern(n as u64, len), SetXattr::Any)
            .unwrap();
        v.set_xattr(&path, "trusted.other", b"value", SetXattr::Any)
            .unwrap();
        v.set_xattr(&path, "security.third", &[n as u8; 20], SetXattr::Any)
            .unwrap();
    }
    let none = u32::MAX;
    let access = acl(&[
        (1, 6, none),
        (2, 4, 1000),
        (4, 4, none),
        (8, 6, 100),
        (16, 6, none),
        (32, 0, none),
    ]);
    v.set_xattr(
        "/attributes/x1",
        "system.posix_acl_access",
        &access,
        SetXattr::Any,
    )
    .unwrap();
    let default = acl(&[
        (1, 7, none),
        (2, 5, 1000),
        (4, 5, none),
        (16, 5, none),
        (32, 1, none),
    ]);
    v.set_xattr(
        "/attributes",
        "system.posix_acl_default",
        &default,
        SetXattr::Any,
    )
    .unwrap();
    v.create_dir("/attributes/inherits", 0o777).unwrap();
    v.write_file("/attributes/inherits/file", b"mine").unwrap();
    for (path, mode, uid, gid, secs, nanos) in [
        (
            "/kinds/file1",
            0o4755,
            1000,
            100,
            1_600_000_000i64,
            123_456_789u32,
        ),
        ("/kinds/file2", 0o2750, 70_000, 80_000, -1, 1),
        ("/kinds/file3", 0o000, 1, 2, 0, 999_999_999),
        ("/kinds", 0o1777, 5, 6, 2_147_483_647, 5),
    ] {
        let time = Some(Timestamp { secs, nanos });
        v.set_attributes(
            path,
            &SetAttributes {
                uid: Some(uid),
                gid: Some(gid),
                atime: time,
                mtime: time,
                ..Default::default()
            },
        )
        .unwrap();
        v.set_attributes(
            path,
            &SetAttributes {
                mode: Some(mode),
                atime: time,
                mtime: time,
                ..Default::default()
            },
        )
        .unwrap();
    }
    v.set_attributes(
        "/kinds/file4",
        &SetAttributes {
            mtime: Some(Timestamp {
                secs: 4_000_000_000,
                nanos: 7,
            }),
            ..Default::default()
        },
    )
    .unwrap();
}

/// The same by system calls.
fn make_by_kernel(root: &Path, many: usize) {
    let at = |p: &str| root.join(p);
    std::fs::create_dir(at("big")).unwrap();
    for n in 0..many {
        std::fs::write(
            at(&format!("big/kernel's name {n}")),
            if n % 10 == 0 { "x" } else { "" },
        )
        .unwrap();
    }
    for n in (0..many).step_by(5) {
        std::fs::remove_file(at(&format!("big/kernel's name {n}"))).unwrap();
    }
    std::fs::create_dir_all(at(&(0..100)
        .map(|n| format!("deep{n}"))
        .collect::<Vec<_>>()
        .join("/")))
    .unwrap();
    std::fs::create_dir(at("kinds")).unwrap();
    use rustix::fs::{CWD, FileType as Type, Mode, makedev, mknodat};
    let mode = Mode::from_raw_mode(0o640);
    mknodat(
        CWD,
        at("kinds/null"),
        Type::CharacterDevice,
        mode,
        makedev(1, 3),
    )
    .unwrap();
    mknodat(
        CWD,
        at("kinds/disk"),
        Type::BlockDevice,
        mode,
        makedev(259, 70_000),
    )
    .unwrap();
    mknodat(CWD, at("kinds/fifo"), Type::Fifo, mode, 0).unwrap();
    mknodat(CWD, at("kinds/socket"), Type::Socket, mode, 0).unwrap();
    for len in [5, 59, 60, 900] {
        std::os::unix::fs::symlink("y".repeat(len), at(&format!("kinds/link{len}"))).unwrap();
    }
    for (n, len) in [0usize, 1, 4096, 100_000, 3_000_000]
        .into_iter()
        .enumerate()
    {
        std::fs::write(at(&format!("kinds/file{n}")), pattern(n as u64, len)).unwrap();
        std::fs::hard_link(at(&format!("kinds/file{n}")), at(&format!("big/hard{n}"))).unwrap();
        let xattr = |name: &str, value: &[u8]| {
            rustix::fs::setxattr(
                at(&format!("kinds/file{n}")),
                name,
                value,
                rustix::fs::XattrFlags::empty(),
            )
            .unwrap();
        };
        xattr("user.some", &pattern(n as u64, n * 150));
        xattr("trusted.other", b"value");
    }
    use std::os::unix::fs::FileExt;
    let sparse = std::fs::File::create(at("kinds/sparse")).unwrap();
    for n in 0..800u64 {
        sparse.write_at(&pattern(n, 50), n * 9_000).unwrap();
    }
    sparse.write_at(&pattern(1, 10_000), 90_000_000).unwrap();
    sparse.set_len(100_000_000).unwrap();
    // Preallocation where there are extents.
    let _ = rustix::fs::fallocate(
        &sparse,
        rustix::fs::FallocateFlags::KEEP_SIZE,
        50_000_000,
        200_000,
    );
    let none = u32::MAX;
    let flags = rustix::fs::XattrFlags::empty();
    let default = acl(&[
        (1, 7, none),
        (2, 5, 1000),
        (4, 5, none),
        (16, 5, none),
        (32, 1, none),
    ]);
    rustix::fs::setxattr(at("kinds"), "system.posix_acl_default", &default, flags).unwrap();
    std::fs::write(at("kinds/inherits"), b"an ACL").unwrap();
    std::fs::create_dir(at("kinds/inherits too")).unwrap();
    std::os::unix::fs::chown(at("kinds/file1"), Some(1000), Some(70_000)).unwrap();
    std::fs::set_permissions(
        at("kinds/file1"),
        std::os::unix::fs::PermissionsExt::from_mode(0o4711),
    )
    .unwrap();
}

#[test]
fn made_here_read_by_the_kernel() {
    if !able() {
        return;
    }
    for (what, args) in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, args);
        let v = open_file(&path);
        let short = v.geometry().inode_size == 128;
        make(&v, if args.len() == 2 { 20_000 } else { 3_000 });
        v.close().unwrap();
        assert_clean_file(&path, what);
        let v = open_file(&path);
        let ours = our_tree(&v);
        v.close().unwrap();
        let mounted = Mounted::new(&path, "");
        let theirs = kernel_tree(mounted.path());
        // The kernel changes it and everything is still well.
        std::fs::write(mounted.path().join("big/from the kernel"), b"hello").unwrap();
        std::fs::remove_dir_all(mounted.path().join("attributes")).unwrap();
        mounted.unmount();
        same(&ours, &theirs, what);
        assert!(
            short || ours[Path::new("kinds/file1")].mtime == (1_600_000_000, 123_456_789),
            "{what}"
        );
        assert_clean_file(&path, what);
        let v = open_file(&path);
        assert_eq!(v.read_file("/big/from the kernel").unwrap(), b"hello");
        v.close().unwrap();
    }
}

#[test]
fn made_by_the_kernel_changed_here() {
    if !able() {
        return;
    }
    for (what, args) in KINDS {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, args);
        let mounted = Mounted::new(&path, "");
        make_by_kernel(mounted.path(), 6_000);
        mounted.unmount();
        let mounted = Mounted::new(&path, "ro");
        let theirs = kernel_tree(mounted.path());
        mounted.unmount();
        let v = open_file(&path);
        same(&our_tree(&v), &theirs, what);
        // Changed here.
        let rng = &mut Rng::new(7);
        for n in 0..2000 {
            if n % 5 != 0 {
                let name = format!("/big/kernel's name {n}");
                match rng.below(3) {
                    0 => v.unlink(&name).unwrap(),
                    1 => v
                        .rename(&name, format!("/big/ours {n}"), extant::RenameMode::Replace)
                        .unwrap(),
                    _ => v.write_file(&name, &pattern(n, 3000)).unwrap(),
                }
            }
        }
        v.truncate("/kinds/file4", 1_234_567).unwrap();
        let sparse = v.open("/kinds/sparse", OpenFlags::WRITE, 0).unwrap();
        for n in 0..400 {
            sparse
                .write_at(n * 18_000 + 4_500, &pattern(n, 300))
                .unwrap();
        }
        sparse
            .fallocate(Fallocate::PunchHole, 1_000_000, 1_000_000)
            .unwrap();
        drop(sparse);
        v.set_xattr("/kinds/file3", "user.some", b"new", SetXattr::Replace)
            .unwrap();
        v.remove_xattr("/kinds/file4", "trusted.other").unwrap();
        v.rename("/deep0/deep1", "/kinds/moved", extant::RenameMode::Replace)
            .unwrap();
        v.write_file("/kinds/by us", b"inherits the ACL").unwrap();
        v.unlink("/kinds/link900").unwrap();
        v.unlink("/kinds/null").unwrap();
        v.close().unwrap();
        assert_clean_file(&path, what);
        let v = open_file(&path);
        let ours = our_tree(&v);
        v.close().unwrap();
        let mounted = Mounted::new(&path, "ro");
        let theirs = kernel_tree(mounted.path());
        mounted.unmount();
        same(&ours, &theirs, &format!("{what}, changed here"));
        let mounted = Mounted::new(&path, "");
        std::fs::remove_dir_all(mounted.path().join("big")).unwrap();
        std::fs::remove_dir_all(mounted.path().join("kinds")).unwrap();
        mounted.unmount();
        assert_clean_file(&path, &format!("{what}, emptied by the kernel"));
    }
}

/// The kernel's power is cut: its journal is recovered here.
#[test]
fn dirty_journals_of_the_kernel() {
    if !able() {
        return;
    }
    for (what, args, options) in [
        ("ext4", &["-t", "ext4"][..], ""),
        ("ext4, data in the journal", &["-t", "ext4"], "data=journal"),
        (
            "ext4, newest features",
            &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"],
            "",
        ),
        (
            "ext4, asynchronous commit",
            &["-t", "ext4", "-O", "^metadata_csum"],
            "data=writeback,journal_async_commit",
        ),
        ("ext4, 1 KiB", &["-t", "ext4", "-b", "1024"], ""),
        (
            "ext4, no checksums, 32 bits",
            &["-t", "ext4", "-O", "^metadata_csum,^64bit"],
            "",
        ),
        ("ext3", &["-t", "ext3"], ""),
        (
            "ext3, data in the journal",
            &["-t", "ext3", "-b", "1024"],
            "data=journal",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, args);
        let mounted = Mounted::new(&path, options);
        let at = |p: &str| mounted.path().join(p);
        make_by_kernel(mounted.path(), 1_500);
        rustix::fs::syncfs(std::fs::File::open(mounted.path()).unwrap()).unwrap();
        // Removed directories and files give revokes; blocks that begin like the journal's are escaped.
        std::fs::remove_dir_all(at("big")).unwrap();
        let magic = [&[0xC0, 0x3B, 0x39, 0x98][..], &[7; 4092]]
            .concat()
            .repeat(4);
        std::fs::write(at("looks like a journal"), &magic).unwrap();
        std::fs::create_dir(at("late")).unwrap();
        (0..300).for_each(|n| std::fs::write(at(&format!("late/f{n}")), pattern(n, 500)).unwrap());
        // Open without a name: an orphan.
        let orphan = std::fs::File::create(at("orphan")).unwrap();
        std::os::unix::fs::FileExt::write_at(&orphan, &pattern(1, 50_000), 0).unwrap();
        std::fs::remove_file(at("orphan")).unwrap();
        rustix::fs::syncfs(std::fs::File::open(mounted.path()).unwrap()).unwrap();
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        let theirs = kernel_tree(mounted.path());
        drop(orphan);
        mounted.unmount();
        // Read-only: in memory, nothing is written.
        let before = std::fs::read(&copy).unwrap();
        let v = OpenOptions::new().read_only(true).open(&copy).unwrap();
        assert!(
            v.recovery().transactions > 0,
            "{what}: nothing to recover: the test is void"
        );
        same(&our_tree(&v), &theirs, &format!("{what}, read-only"));
        drop(v);
        assert!(
            std::fs::read(&copy).unwrap() == before,
            "{what}: written though read-only"
        );
        let v = open_file(&copy);
        assert!(v.recovery().transactions > 0);
        same(&our_tree(&v), &theirs, what);
        assert_eq!(v.read_file("/looks like a journal").unwrap(), magic);
        v.write_file("/after", b"recovery").unwrap();
        v.close().unwrap();
        assert_clean_file(&copy, what);
    }
}

/// A fast commit is not read here: with one to replay the image is refused by name.
#[test]
fn dirty_fast_commits_are_refused() {
    if !able() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = image(&dir, &["-t", "ext4", "-O", "fast_commit"]);
    let mounted = Mounted::new(&path, "");
    for n in 0..10 {
        let file = std::fs::File::create(mounted.path().join(format!("f{n}"))).unwrap();
        file.sync_all().unwrap();
    }
    let copy = dir.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    mounted.unmount();
    for read_only in [false, true] {
        let opened = OpenOptions::new()
            .background(false)
            .read_only(read_only)
            .open(&copy);
        let error = opened
            .err()
            .expect("files synced by a fast commit must not vanish silently")
            .to_string();
        assert!(
            error.contains("fast_commit") || error.contains("fast commit"),
            "{error}"
        );
    }
    // Clean, it opens.
    let v = open_file(&path);
    assert_eq!(v.read_dir("/").unwrap().len(), 11);
    v.close().unwrap();
    assert_clean_file(&path, "fast_commit, clean");
}

/// Our power is cut: the kernel, and e2fsck, recover our journal.
#[test]
fn our_dirty_journals() {
    if !able() {
        return;
    }
    for (what, args) in KINDS
        .iter()
        .filter(|(_, a)| !a.contains(&"^has_journal") && !a.contains(&"ext2"))
    {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, args);
        let v = open_file(&path);
        make(&v, 3_000);
        v.sync().unwrap();
        // Revokes, escapes, an orphan, and names taken again.
        v.write_file(
            "/looks like a journal",
            &[0xC0, 0x3B, 0x39, 0x98].repeat(4096),
        )
        .unwrap();
        for n in 0..3_000 {
            let _ = v.unlink(format!("/big/name number {n}"));
        }
        let orphan = v.open("/kinds/file5", OpenFlags::READ, 0).unwrap();
        v.unlink("/kinds/file5").unwrap();
        v.unlink("/big/link5").unwrap();
        v.unlink("/kinds/shredded").unwrap();
        v.write_file("/kinds/reuses", &pattern(3, 2_000_000))
            .unwrap();
        v.sync().unwrap();
        let ours = our_tree(&v);
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        // Not synced: must not be seen.
        v.write_file("/too late", b"x").unwrap();
        let checked = dir.path().join("checked");
        std::fs::copy(&copy, &checked).unwrap();
        drop(orphan);
        v.close().unwrap();
        let mounted = Mounted::new(&copy, "");
        let theirs = kernel_tree(mounted.path());
        mounted.unmount();
        same(&ours, &theirs, &format!("{what}, recovered by the kernel"));
        assert_clean_file(&copy, &format!("{what}, recovered by the kernel"));
        let out = Command::new("e2fsck")
            .arg("-p")
            .arg(&checked)
            .output()
            .unwrap();
        assert!(
            out.status.code().is_some_and(|c| c <= 1),
            "{what}: e2fsck -p: {}",
            String::from_utf8_lossy(&out.stdout)
        );
        assert_clean_file(&checked, &format!("{what}, recovered by e2fsck"));
        let mounted = Mounted::new(&checked, "ro");
        same(
            &ours,
            &kernel_tree(mounted.path()),
            &format!("{what}, recovered by e2fsck"),
        );
        mounted.unmount();
        let dropped = open_file(&path);
        assert!(dropped.stat("/too late").is_ok());
    }
}

/// Many links: a directory with more subdirectories than its link count can hold.
/// Orphans of a new volume as it is made here go through its orphan file, whoever leaves them and whoever
/// finds them.
#[test]
fn orphans_in_the_orphan_file_of_a_new_volume() {
    if !able() {
        return;
    }
    // More than one block of the file holds.
    const ORPHANS: u64 = 600;
    for block_size in [1024, 4096] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let options = extant::mkfs::MkfsOptions {
            size: Some(128 << 20),
            block_size: Some(block_size),
            ..Default::default()
        };
        let prepared = extant::mkfs::prepare(&options).unwrap();
        let device = blockdev::FileDevice::create(&path, prepared.size()).unwrap();
        prepared.write(&device).unwrap();
        drop(device);
        assert_clean_file(&path, "new");
        let free = |path: &Path| {
            let s = open_file(path).statfs().unwrap();
            (s.free_blocks, s.free_inodes)
        };
        let fresh = free(&path);
        let in_file = |path: &Path| {
            let out = Command::new("dumpe2fs")
                .arg("-h")
                .arg(path)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(text.contains("orphan_present"), "{text}");
            assert!(!text.contains("First orphan inode"), "{text}");
        };
        // Left by the kernel, found here and by e2fsck.
        let mounted = Mounted::new(&path, "");
        let held: Vec<_> = (0..ORPHANS)
            .map(|n| {
                let at = mounted.path().join(format!("o{n}"));
                std::fs::write(&at, pattern(n, 5_000)).unwrap();
                let file = std::fs::File::open(&at).unwrap();
                std::fs::remove_file(&at).unwrap();
                file
            })
            .collect();
        rustix::fs::syncfs(std::fs::File::open(mounted.path()).unwrap()).unwrap();
        let (copy, again) = (dir.path().join("copy"), dir.path().join("again"));
        std::fs::copy(&path, &copy).unwrap();
        std::fs::copy(&path, &again).unwrap();
        drop(held);
        mounted.unmount();
        in_file(&copy);
        let out = Command::new("e2fsck")
            .arg("-fp")
            .arg(&again)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.code() <= Some(1) && text.contains("orphan"),
            "{text}"
        );
        assert_eq!(free(&again), fresh);
        let v = open_file(&copy);
        let s = v.statfs().unwrap();
        assert_eq!((s.free_blocks, s.free_inodes), fresh);
        v.close().unwrap();
        assert_clean_file(&copy, "orphans of the kernel");
        // Left here, found by the kernel.
        let v = open_file(&path);
        let held: Vec<_> = (0..ORPHANS)
            .map(|n| {
                let name = format!("/o{n}");
                v.write_file(&name, &pattern(n, 5_000)).unwrap();
                let file = v.open(&name, OpenFlags::READ, 0).unwrap();
                v.unlink(&name).unwrap();
                file
            })
            .collect();
        v.sync().unwrap();
        std::fs::copy(&path, &copy).unwrap();
        drop(held);
        v.close().unwrap();
        assert_clean_file(&path, "orphans of ours, closed");
        in_file(&copy);
        let mounted = Mounted::new(&copy, "");
        let s = rustix::fs::statvfs(mounted.path()).unwrap();
        assert_eq!((s.f_bfree, s.f_ffree), fresh);
        mounted.unmount();
        assert_clean_file(&copy, "orphans of ours, found by the kernel");
    }
}

/// What statfs says of space, by both, of one image.
#[test]
fn statfs_as_the_kernel_counts() {
    if !able() {
        return;
    }
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-b", "1024", "-m", "12"],
        &["-t", "ext4", "-O", "^has_journal", "-m", "0"],
        &[
            "-t",
            "ext4",
            "-J",
            "size=8",
            "-O",
            "metadata_csum_seed,orphan_file",
        ],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let image = image(&dir, args);
        let v = open_file(&image);
        make(&v, 50);
        v.sync().unwrap();
        let ours = v.statfs().unwrap();
        v.close().unwrap();
        let mounted = Mounted::new(&image, "");
        let theirs = rustix::fs::statvfs(mounted.path()).unwrap();
        mounted.unmount();
        let what = format!("{args:?}: blocks, free, available, inodes, free");
        assert_eq!(
            (ours.blocks, ours.free_blocks, ours.available_blocks),
            (theirs.f_blocks, theirs.f_bfree, theirs.f_bavail),
            "{what}"
        );
        assert_eq!(
            (ours.inodes, ours.free_inodes, u64::from(ours.block_size)),
            (theirs.f_files, theirs.f_ffree, theirs.f_bsize),
            "{what}"
        );
    }
}

#[test]
fn more_subdirectories_than_links() {
    if !able() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    mke2fs(&path, "600M", &["-t", "ext4", "-b", "1024", "-N", "70000"]);
    let v = open_file(&path);
    (0..65_100).for_each(|n| drop(v.create_dir(format!("/{n}"), 0o755).unwrap()));
    assert_eq!(v.stat("/").unwrap().links, 1, "not counted any more");
    v.close().unwrap();
    assert_clean_file(&path, "65,100 subdirectories");
    let mounted = Mounted::new(&path, "");
    let meta = std::fs::metadata(mounted.path()).unwrap();
    assert_eq!(meta.nlink(), 1);
    assert_eq!(std::fs::read_dir(mounted.path()).unwrap().count(), 65_101);
    std::fs::remove_dir(mounted.path().join("17")).unwrap();
    mounted.unmount();
    assert_clean_file(&path, "65,100 subdirectories, one removed by the kernel");
}

/// ext4-view, written independently, sees the same.
#[test]
fn read_by_ext4_view() {
    if !have("mke2fs") {
        return;
    }
    for (what, args) in KINDS
        .iter()
        // What it does not know.
        .filter(|(_, a)| {
            !["ext2", "meta_bg,^resize_inode", "128"]
                .iter()
                .any(|f| a.contains(f))
        })
    {
        let dir = tempfile::tempdir().unwrap();
        let path = image(&dir, args);
        let v = open_file(&path);
        make(&v, 3_000);
        v.close().unwrap();
        let v = open_file(&path);
        let ours = our_tree(&v);
        v.close().unwrap();
        let view = ext4_view::Ext4::load(Box::new(std::fs::read(&path).unwrap()))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut seen = 0;
        let mut todo = vec![PathBuf::new()];
        while let Some(dir) = todo.pop() {
            for entry in view
                .read_dir(&bytes_of(&dir)[..])
                .unwrap_or_else(|e| panic!("{what}: {dir:?}: {e}"))
            {
                let entry = entry.unwrap_or_else(|e| panic!("{what}: {dir:?}: {e}"));
                let name = entry.file_name();
                let name = OsStr::from_bytes(name.as_ref());
                if name == "." || name == ".." || name == "lost+found" {
                    continue;
                }
                let path = dir.join(name);
                let expected = ours
                    .get(&path)
                    .unwrap_or_else(|| panic!("{what}: {path:?} is not ours"));
                let at = bytes_of(&path);
                let meta = view.symlink_metadata(&at[..]).unwrap();
                assert_eq!(
                    u32::from(meta.mode()),
                    expected.mode & 0o7777,
                    "{what}: {path:?}: mode"
                );
                assert_eq!(
                    (meta.uid(), meta.gid()),
                    expected.owner,
                    "{what}: {path:?}: owner"
                );
                assert_eq!(meta.len(), expected.size, "{what}: {path:?}: size");
                if meta.is_dir() {
                    todo.push(path.clone());
                } else if meta.is_symlink() {
                    let target = view.read_link(&at[..]).unwrap();
                    assert_eq!(
                        AsRef::<[u8]>::as_ref(&target),
                        &expected.content[..],
                        "{what}: {path:?}: target"
                    );
                } else if meta.file_type().is_regular_file() && expected.size < 20_000_000 {
                    assert!(
                        view.read(&at[..]).unwrap() == expected.content,
                        "{what}: {path:?}: content"
                    );
                }
                seen += 1;
            }
        }
        assert_eq!(seen, ours.len() - 1, "{what}: names");
    }
}

//! File systems made from directory trees.

use crate::it::mkfs::compare::{assert_equal, snapshot};
use crate::it::mkfs::support::{EPOCH, Image, options, scratch};
use blockdev::{Access, BlockDevice, FileDevice};
use ext4_format::features::FsType;
use extant_mkfs::{self as mkfs, MkfsError, MkfsOptions, Source, TreeSource};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

pub fn from_tree(path: &Path, options: &MkfsOptions) -> Image {
    let source = Source::Tree(TreeSource::new(path));
    Image::write(&mkfs::prepare_from(options, source).unwrap())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).is_ok()
}

/// Owner rwx, user 1000 r-x, group r-x, mask r-x, others nothing.
const ACL: [u8; 44] = {
    let mut acl = [0; 44];
    let entries = [
        (1, 7, u32::MAX),
        (2, 5, 1000),
        (4, 5, u32::MAX),
        (0x10, 5, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    acl[0] = 2;
    let mut i = 0;
    while i < 5 {
        let (tag, perm, id): (u8, u8, u32) = entries[i];
        let id = id.to_le_bytes();
        let at = 4 + i * 8;
        (acl[at], acl[at + 2]) = (tag, perm);
        (acl[at + 4], acl[at + 5], acl[at + 6], acl[at + 7]) = (id[0], id[1], id[2], id[3]);
        i += 1;
    }
    acl
};

/// Creates a tree with a file of each kind.
pub fn make_tree(root: &Path) {
    let at = |p: &str| root.join(p);
    fs::create_dir_all(at("usr/share/doc/deeper")).unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("usr/small"), b"hello\n").unwrap();
    fs::write(at("usr/nothing"), b"").unwrap();
    let block: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
    fs::write(at("usr/two blocks"), &block).unwrap();
    fs::write(at("usr/large"), block.repeat(700)).unwrap();
    for i in 0..300 {
        fs::write(
            at("usr/share").join(format!("a longer name for file {i:04}")),
            &block[..i * 7],
        )
        .unwrap();
    }
    let sparse = fs::File::create(at("usr/sparse")).unwrap();
    for offset in [0u64, 40_960, 9 << 20, 70 << 20] {
        sparse.write_all_at(&block, offset).unwrap();
    }
    sparse.set_len(80 << 20).unwrap();
    fs::File::create(at("usr/all hole"))
        .unwrap()
        .set_len(5_000_000)
        .unwrap();
    symlink("small", at("usr/fast link")).unwrap();
    symlink("x".repeat(59), at("usr/just fast")).unwrap();
    symlink("y".repeat(60), at("usr/just slow")).unwrap();
    symlink("z/".repeat(400), at("usr/slow link")).unwrap();
    fs::hard_link(at("usr/small"), at("empty/hard")).unwrap();
    fs::hard_link(at("usr/small"), at("usr/share/hard")).unwrap();
    let fifo = |p: &str, t, dev| {
        rustix::fs::mknodat(CWD, at(p), t, Mode::from_raw_mode(0o640), dev).unwrap();
    };
    fifo("usr/fifo", FileType::Fifo, 0);
    fifo("usr/socket", FileType::Socket, 0);
    if is_root() {
        fifo(
            "usr/tty",
            FileType::CharacterDevice,
            rustix::fs::makedev(5, 1),
        );
        fifo(
            "usr/disk",
            FileType::BlockDevice,
            rustix::fs::makedev(259, 70_000),
        );
        std::os::unix::fs::chown(at("usr/small"), Some(70_000), Some(1_000_000)).unwrap();
        std::os::unix::fs::lchown(at("usr/fast link"), Some(7), Some(8)).unwrap();
        set_xattr(
            &at("usr/large"),
            "security.capability",
            &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        set_xattr(&at("usr/share"), "trusted.opaque", b"y");
    }
    for i in 0..20 {
        let path = at("usr/share").join(format!("a longer name for file {i:04}"));
        set_xattr(&path, "user.big", &[b'v'; 900]); // needs a block, and can share it
    }
    set_xattr(&at("usr/two blocks"), "user.empty", b"");
    set_xattr(&at("usr/two blocks"), "system.posix_acl_access", &ACL);
    set_xattr(&at("usr/share"), "system.posix_acl_default", &ACL);
    fs::set_permissions(at("usr/nothing"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(at("empty"), fs::Permissions::from_mode(0o1777)).unwrap();
    for (path, secs, nanos) in [
        ("usr/small", 1, 999_999_999),
        ("usr/fast link", 1 << 33, 5),
        ("usr/nothing", -7, 3),
    ] {
        let time = Timespec {
            tv_sec: secs,
            tv_nsec: nanos,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, at(path), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

#[test]
fn everything_a_tree_holds_is_kept() {
    let dir = scratch();
    make_tree(dir.path());
    let before = snapshot(dir.path());
    let kept = before.values().map(|e| e.xattrs.len()).sum::<usize>();
    assert!(
        !is_root() || kept >= 24,
        "the fixture has only {kept} attributes"
    );
    for (features, fs_type, block_size) in [
        ("", FsType::Ext4, 4096),
        ("^orphan_file,^metadata_csum_seed", FsType::Ext4, 1024),
        ("^dir_index,^filetype,^metadata_csum", FsType::Ext4, 2048),
        ("", FsType::Ext3, 1024),
        ("^resize_inode,^large_file", FsType::Ext2, 4096),
    ] {
        let image = from_tree(
            dir.path(),
            &MkfsOptions {
                features: features.into(),
                fs_type,
                block_size: Some(block_size),
                ..options()
            },
        );
        image.check(features);
        assert!(
            image.report.warnings.is_empty(),
            "{:?}",
            image.report.warnings
        );
        let Some(mount) = image.mount() else {
            return;
        };
        // Reading the fixture may have changed access times; the image has those of the scan.
        let after = snapshot(dir.path());
        let mut expected = before.clone();
        for (path, e) in &mut expected {
            e.times[0] = after[path].times[0];
        }
        let exact = block_size == 4096;
        assert_equal(expected, snapshot(&mount.at), |e| {
            e.times[0] = (0, 0);
            if let Some((_, holes)) = &mut e.data
                && !exact
            {
                holes.clear(); // the unit is another
            }
        });
    }
}

#[test]
fn a_volume_with_short_inodes_keeps_what_it_can() {
    let dir = scratch();
    make_tree(dir.path());
    let image = from_tree(
        dir.path(),
        &MkfsOptions {
            inode_size: 128,
            ..options()
        },
    );
    image.check("128");
    let Some(mount) = image.mount() else { return };
    assert_equal(snapshot(dir.path()), snapshot(&mount.at), |e| {
        for t in &mut e.times {
            *t = (t.0.clamp(i32::MIN.into(), i32::MAX.into()), 0);
        }
        e.times[0] = (0, 0);
    });
}

/// The bytes do not depend on the number of threads, and are the same in each run.
#[test]
fn reproducible_with_any_threads() {
    let dir = scratch();
    make_tree(dir.path());
    let make = |threads, size| {
        let options = MkfsOptions {
            threads,
            size,
            source_date_epoch: Some(EPOCH),
            ..options()
        };
        let image = from_tree(dir.path(), &options);
        image.check("reproducible");
        fs::read(&image.path).unwrap()
    };
    let one = make(1, None);
    assert!(one == make(4, None) && one == make(3, None), "bytes differ");
    assert!(
        make(1, Some(300 << 20)) == make(4, Some(300 << 20)),
        "bytes differ"
    );
}

#[test]
fn owners_modes_and_times_are_translated() {
    let dir = scratch();
    make_tree(dir.path());
    let image = from_tree(
        dir.path(),
        &MkfsOptions {
            uid: Some(0),
            gid_map: "1000000:42,0:7:1".parse().unwrap(),
            mode_map: "Fgo=,D0711".parse().unwrap(),
            source_date_epoch: Some(EPOCH),
            root_owner: Some((11, 12)),
            xattrs: false,
            ..options()
        },
    );
    image.check("translated");
    let Some(mount) = image.mount() else { return };
    for (path, e) in snapshot(&mount.at) {
        let gid = if path.as_os_str().is_empty() {
            12
        } else {
            e.owner.1
        };
        assert!(e.times.iter().all(|t| t.0 <= EPOCH), "{}", path.display());
        assert!(e.xattrs.is_empty(), "{}", path.display());
        if path == Path::new("usr/small") {
            assert_eq!((e.owner, gid, e.mode & 0o7777), ((0, 42), 42, 0o600));
        }
        if path == Path::new("usr") {
            assert_eq!((e.owner, e.mode & 0o7777), ((0, 7), 0o711));
        }
    }
}

#[test]
fn too_small_a_size_says_what_is_needed() {
    let dir = scratch();
    make_tree(dir.path());
    for block_size in [1024, 4096] {
        let at_size = |size| {
            let options = MkfsOptions {
                size: Some(size),
                block_size: Some(block_size),
                ..options()
            };
            mkfs::prepare_from(&options, Source::Tree(TreeSource::new(dir.path())))
        };
        let Err(MkfsError::TooSmall { given, needed }) = at_size(3 << 20) else {
            panic!("3 MiB are enough?");
        };
        assert!(
            given == 3 << 20 && needed > 6 << 20 && needed < 30 << 20,
            "{needed}"
        );
        let image = Image::write(&at_size(needed).unwrap());
        image.check("exactly as said");
    }
}

#[test]
fn a_hundred_thousand_names_in_one_directory() {
    let dir = scratch();
    let many = dir.path().join("many");
    fs::create_dir(&many).unwrap();
    let target = dir.path().join("target");
    fs::write(&target, b"x").unwrap();
    for i in 0..100_000 {
        if i % 60_000 == 0 {
            fs::write(many.join(format!("file{i:06}")), b"data").unwrap();
        }
        let from = many.join(format!("file{:06}", i / 60_000 * 60_000));
        if i % 60_000 != 0 {
            fs::hard_link(&from, many.join(format!("file{i:06}"))).unwrap();
        }
    }
    for (features, block_size) in [
        ("", 4096),
        ("large_dir,^metadata_csum", 1024),
        ("^dir_index", 4096),
    ] {
        let options = MkfsOptions {
            features: features.into(),
            block_size: Some(block_size),
            ..options()
        };
        let image = from_tree(dir.path(), &options);
        image.check(features);
        let Some(mount) = image.mount() else { continue };
        assert_eq!(
            fs::read_dir(mount.at.join("many")).unwrap().count(),
            100_000
        );
        for i in [0, 1, 54_321, 99_999] {
            assert!(mount.at.join(format!("many/file{i:06}")).exists(), "{i}");
        }
    }
}

/// Address blocks of all three levels, extent trees of two.
#[test]
fn maps_of_large_and_sparse_files() {
    let dir = scratch();
    let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
    for i in 0..3000u64 {
        sparse.write_all_at(&i.to_le_bytes(), i * 100_000).unwrap();
    }
    let dense: Vec<u8> = (0..2_000_000u32)
        .flat_map(u32::to_le_bytes)
        .take(7_000_001)
        .collect();
    fs::write(dir.path().join("dense"), dense).unwrap();
    for (fs_type, block_size, end) in [
        (FsType::Ext2, 1024, 1 << 29),
        (FsType::Ext4, 1024, 1 << 29),
        (FsType::Ext2, 4096, 1 << 29),
        (FsType::Ext4, 4096, 1 << 32),
    ] {
        sparse.write_all_at(b"end", end - 4096).unwrap();
        let image = from_tree(
            dir.path(),
            &MkfsOptions {
                fs_type,
                block_size: Some(block_size),
                ..options()
            },
        );
        image.check("maps");
        let Some(mount) = image.mount() else { return };
        for name in ["sparse", "dense"] {
            same_file(&dir.path().join(name), &mount.at.join(name));
        }
    }
}

/// Compares the lengths of two files, and the bytes of every range that one of them stores.
fn same_file(a: &Path, b: &Path) {
    let [a, b] = [a, b].map(|path| FileDevice::open(path, Access::ReadOnly).unwrap());
    assert_eq!(a.len(), b.len());
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for (one, other) in [(&a, &b), (&b, &a)] {
        let mut at = 0;
        while let Some(range) = one.next_data(at).unwrap() {
            at = range.end;
            let len = usize::try_from(range.end - range.start).unwrap();
            found.resize(len, 0);
            expected.resize(len, 0);
            one.read_at(range.start, &mut found).unwrap();
            other.read_at(range.start, &mut expected).unwrap();
            assert!(found == expected, "{range:?}");
        }
    }
}

/// The largest file the format can map, nearly all of it a hole.
#[test]
fn a_file_of_sixteen_tib() {
    let dir = scratch();
    let size = ((1u64 << 32) - 1) * 4096;
    let file = fs::File::create(dir.path().join("huge")).unwrap();
    if file.write_all_at(b"the end", size - 7).is_err() {
        needs::told("no room for a file of 16 TiB in the source's file system");
        return;
    }
    let image = from_tree(dir.path(), &options());
    image.check("16 TiB");
    let Some(mount) = image.mount() else { return };
    let mut end = [0; 9];
    let copy = fs::File::open(mount.at.join("huge")).unwrap();
    assert_eq!(copy.metadata().unwrap().len(), size);
    copy.read_exact_at(&mut end, size - 9).unwrap();
    assert_eq!(&end, b"\0\0the end");
}

#[test]
fn what_cannot_be_kept_is_named() {
    let dir = scratch();
    let big = dir.path().join("some/file");
    fs::create_dir(dir.path().join("some")).unwrap();
    fs::write(&big, b"x").unwrap();
    let fail = |change: fn(&mut MkfsOptions)| {
        let mut o = options();
        change(&mut o);
        let source = Source::Tree(TreeSource::new(dir.path()));
        mkfs::prepare_from(&o, source)
            .err()
            .expect("refused")
            .to_string()
    };
    fs::File::options()
        .write(true)
        .open(&big)
        .unwrap()
        .set_len(3 << 30)
        .unwrap();
    let text =
        fail(|o| (o.features, o.block_size) = ("^large_file,^resize_inode".into(), Some(1024)));
    assert!(
        text.contains("some/file") && text.contains("large_file"),
        "{text}"
    );
    for i in 0..100 {
        fs::write(dir.path().join(format!("{i}")), b"").unwrap();
    }
    let text = fail(|o| o.inodes = Some(ext4_format::layout::Inodes::Count(11)));
    assert!(text.contains("inodes"), "{text}");
    fs::File::options()
        .write(true)
        .open(&big)
        .unwrap()
        .set_len(1)
        .unwrap();
    if set_xattr(&big, "user.large", &[1; 3000]) {
        let text = fail(|o| o.block_size = Some(1024));
        assert!(text.contains("user.large"), "{text}");
    }
    let missing = Source::Tree(TreeSource::new("/nowhere/at/all"));
    let text = mkfs::prepare_from(&options(), missing)
        .err()
        .unwrap()
        .to_string();
    assert!(text.contains("/nowhere/at/all"), "{text}");
}

/// A file that changes between scan and copy has the size of the scan, and is named.
#[test]
fn files_that_change_are_reported() {
    let dir = scratch();
    for name in ["grows", "shrinks", "stays"] {
        fs::write(dir.path().join(name), [7; 5000]).unwrap();
    }
    let source = Source::Tree(TreeSource::new(dir.path()));
    let prepared = mkfs::prepare_from(&options(), source).unwrap();
    fs::write(dir.path().join("grows"), [8; 6000]).unwrap();
    fs::write(dir.path().join("shrinks"), [9; 100]).unwrap();
    let image = Image::write(&prepared);
    image.check("changed");
    let expected = [
        "grows: grew while it was read",
        "shrinks: shrank while it was read",
    ];
    assert_eq!(image.report.warnings, expected);
    let Some(mount) = image.mount() else { return };
    let shrunk = fs::read(mount.at.join("shrinks")).unwrap();
    assert_eq!((shrunk.len(), shrunk[99], shrunk[100]), (5000, 9, 0));
    assert_eq!(fs::read(mount.at.join("grows")).unwrap(), [8; 5000]);
}

/// The size found for a content is within a twentieth of the least that holds it, and with `free_percent` that part of it
/// is free.
#[test]
fn the_size_found_is_near_the_least() {
    let dir = scratch();
    // Many small files, few large ones, and both with and without a journal.
    let (small, large) = (dir.path().join("small"), dir.path().join("large"));
    for d in 0..40 {
        let sub = small.join(format!("{d}"));
        fs::create_dir_all(&sub).unwrap();
        for f in 0..50 {
            fs::write(
                sub.join(format!("a file of some name {f}")),
                vec![1; f * 30],
            )
            .unwrap();
        }
    }
    fs::create_dir(&large).unwrap();
    for n in 0..3u64 {
        let file = fs::File::create(large.join(format!("{n}"))).unwrap();
        for at in 0..200 {
            file.write_all_at(&[7; 100_000], at * 100_000).unwrap();
        }
    }
    for (tree, features) in [
        (&small, ""),
        (&small, "^has_journal"),
        (&large, ""),
        (&large, "^has_journal,^resize_inode"),
    ] {
        let options = MkfsOptions {
            features: features.into(),
            // With a size given, small volumes would have smaller blocks.
            block_size: Some(4096),
            ..options()
        };
        let prepare = |options: &MkfsOptions| {
            mkfs::prepare_from(options, Source::Tree(TreeSource::new(tree)))
        };
        let image = from_tree(tree, &options);
        image.check(features);
        let found = image.report.size;
        // The journal's size depends on the volume's; the least size is found with the same journal.
        let journal = u64::from(image.report.journal_blocks) * u64::from(image.report.block_size);
        let least = MkfsOptions {
            size: Some(found / 20 * 19),
            journal_size: Some(journal).filter(|n| *n > 0),
            ..options.clone()
        };
        assert!(
            matches!(prepare(&least), Err(MkfsError::TooSmall { .. })),
            "{found} bytes for {}, and 5 % less will do",
            tree.display()
        );
        let roomy = from_tree(
            tree,
            &MkfsOptions {
                free_percent: 25.0,
                ..options
            },
        );
        let (free, all) = (roomy.report.free_blocks, roomy.report.blocks);
        assert!((22..32).contains(&(free * 100 / all)), "{free} of {all}");
    }
}

/// A tight volume has its content, the smallest journal, and less than a twentieth more.
#[test]
fn a_tight_volume_is_hardly_larger_than_its_content() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    let mut blocks = 0;
    for d in 0..30 {
        let sub = tree.join(format!("{d}"));
        fs::create_dir_all(&sub).unwrap();
        blocks += 1;
        for f in 0..40_usize {
            let len = 1 + f * 3000 % 70_000;
            fs::write(sub.join(format!("{f}")), vec![1; len]).unwrap();
            blocks += len.div_ceil(4096) as u64;
        }
    }
    for features in ["", "^has_journal", "^extent,^64bit"] {
        let options = MkfsOptions {
            tight: true,
            features: features.into(),
            ..options()
        };
        let image = from_tree(&tree, &options);
        image.check(features);
        let journal = u64::from(features != "^has_journal") * 1024;
        let content = (blocks + journal) * 4096 + 30 * 41 * 256;
        let made = image.report.size;
        assert!(
            made * 100 < content * 105,
            "{features}: {made} bytes for {content}"
        );
        let roomy = from_tree(
            &tree,
            &MkfsOptions {
                tight: false,
                ..options
            },
        );
        assert!(roomy.report.size > made && roomy.report.inodes > image.report.inodes);
    }
}

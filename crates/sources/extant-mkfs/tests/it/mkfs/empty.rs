//! File systems without files: every feature, with and without.

use crate::it::mkfs::support::{EPOCH, Image, options, run, scratch};
use ext4_format::features::FsType;
use ext4_format::hash::HashVersion;
use ext4_format::layout::Inodes;
use extant_mkfs::{self as mkfs, MkfsError, MkfsOptions};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const MIB: u64 = 1 << 20;

fn empty(options: &MkfsOptions) -> Image {
    Image::write(&mkfs::prepare(options).unwrap())
}

fn check(size: u64, change: impl FnOnce(&mut MkfsOptions), what: &str) -> Image {
    let mut options = MkfsOptions {
        size: Some(size),
        ..options()
    };
    change(&mut options);
    let image = empty(&options);
    image.check(what);
    image
}

/// Features whose structures are not made would give volumes that cannot be opened.
#[test]
fn features_without_their_structures_are_refused() {
    for name in [
        "compression",
        "dirdata",
        "lazy_bg",
        "snapshot",
        "imagic_inodes",
        "quota",
    ] {
        let options = MkfsOptions {
            size: Some(16 * MIB),
            features: name.into(),
            ..options()
        };
        let refused = mkfs::prepare(&options).map(drop);
        assert!(matches!(refused, Err(MkfsError::Options(_))), "{name}");
    }
}

/// Features by default and without each, in all block and inode sizes.
#[test]
fn feature_matrix() {
    for features in [
        "",
        "^orphan_file,^metadata_csum_seed",
        "^orphan_file",
        "^metadata_csum_seed",
        "^has_journal",
        "^has_journal,orphan_file",
        "^ext_attr",
        "^resize_inode",
        "^dir_index",
        "^filetype",
        "^extent",
        "^extent,^64bit",
        "^64bit",
        "^flex_bg",
        "^flex_bg,^resize_inode",
        "^metadata_csum",
        "^metadata_csum,uninit_bg",
        "^metadata_csum,uninit_bg,^64bit",
        "^sparse_super,^resize_inode",
        "^large_file",
        "^huge_file",
        "^dir_nlink",
        "^extra_isize",
        "meta_bg,^resize_inode",
        "meta_bg,^resize_inode,^flex_bg",
        "meta_bg,^resize_inode,^64bit,^metadata_csum",
        "sparse_super2",
        "sparse_super2,^sparse_super,^resize_inode",
        "large_dir",
        "mmp",
        "mmp,^metadata_csum,^resize_inode",
    ] {
        for (mib, block_size) in [
            (40, 1024),
            (300, 1024),
            (300, 2048),
            (600, 4096),
            (1500, 1024),
        ] {
            let change = |o: &mut MkfsOptions| {
                o.features = features.into();
                o.block_size = Some(block_size);
            };
            check(
                mib * MIB,
                change,
                &format!("{features:?} {mib} MiB, {block_size}"),
            );
        }
    }
}

#[test]
fn types_and_sizes() {
    for fs_type in [FsType::Ext2, FsType::Ext3, FsType::Ext4] {
        for block_size in [1024, 2048, 4096] {
            for inode_size in [128, 256, 1024] {
                let change = |o: &mut MkfsOptions| {
                    o.fs_type = fs_type;
                    o.block_size = Some(block_size);
                    o.inode_size = inode_size;
                };
                let what = format!("{fs_type:?} {block_size} {inode_size}");
                check(200 * MIB, change, &what);
            }
        }
    }
    for kib in [256, 1024, 2048, 5000, 8193, 70_000] {
        check(kib * 1024, |_| (), &format!("{kib} KiB"));
    }
    check(3 << 40, |_| (), "3 TiB");
}

#[test]
fn other_choices() {
    for version in [
        HashVersion::Legacy,
        HashVersion::TeaUnsigned,
        HashVersion::HalfMd4Unsigned,
    ] {
        check(64 * MIB, |o| o.hash_version = version, "hash");
    }
    let image = check(
        1000 * MIB,
        |o| {
            o.label = "a label".into();
            o.journal_size = Some(64 * MIB);
            o.inodes = Some(Inodes::BytesPerInode(65_536));
            o.reserved_percent = 1.0;
            o.root_owner = Some((5, 70_000));
            o.root_mode = Some(0o1777);
            o.source_date_epoch = Some(EPOCH);
            o.lazy_itable_init = true;
            o.flex_bg_size = 4;
        },
        "many",
    );
    assert_eq!(
        (image.report.journal_blocks, image.report.inodes),
        (16_384, 16_000)
    );
    if let Some(text) = image.debugfs("stat <2>") {
        for part in ["Mode:  01777", "User:     5   Group: 70000", "0x6553f100"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    if let Some(text) = image.debugfs("stats -h") {
        assert!(text.contains("a label"), "{text}");
    }
}

/// mke2fs with the features that upstream gives by default; distributions leave some out.
const UPSTREAM: &[&str] = &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"];

/// A volume made here has the same features, free counts and orphan file as one that mke2fs makes.
#[test]
fn as_large_as_mke2fs() {
    for (mib, args, change) in [
        (4, UPSTREAM, (|_| ()) as fn(&mut MkfsOptions)),
        (300, UPSTREAM, |_| ()),
        (600, UPSTREAM, |_| ()),
        (5000, UPSTREAM, |_| ()),
        (
            1500,
            &["-t", "ext4", "-O", "^metadata_csum_seed,^orphan_file"],
            |o| o.features = "^metadata_csum_seed,^orphan_file".into(),
        ),
        (300, &["-t", "ext2"], |o| o.fs_type = FsType::Ext2),
        (300, &["-t", "ext3"], |o| o.fs_type = FsType::Ext3),
    ] {
        let dir = scratch();
        let theirs = dir.path().join("theirs");
        std::fs::File::create(&theirs)
            .unwrap()
            .set_len(mib * MIB)
            .unwrap();
        let path = theirs.to_str().unwrap();
        let Some(made) = run("mke2fs", &[&["-qF"], args, &[path]].concat()) else {
            return;
        };
        assert!(made.status.success());
        let count = |path: &str| {
            let text = crate::it::mkfs::support::output("dumpe2fs", &["-h", path]).unwrap();
            let wanted = [
                "Filesystem features",
                "Orphan file inode",
                "Inode count",
                "Block count",
                "Free blocks",
                "Free inodes",
                "Overhead",
            ];
            let lines = text
                .lines()
                .filter(|l| wanted.iter().any(|w| l.starts_with(w)));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let ours = check(mib * MIB, change, "ours");
        assert_eq!(count(ours.str()), count(path), "{args:?}");
        if args == UPSTREAM {
            // The orphan file: its inode except the times, and its content.
            let stat = |path: &str| {
                let text = crate::it::mkfs::support::output("debugfs", &["-R", "stat <12>", path])
                    .unwrap();
                let no_time = |l: &&str| !l.contains("time:") && !l.contains("Inode checksum");
                let mut lines: Vec<String> = text.lines().filter(no_time).map(Into::into).collect();
                let extents = lines.pop().unwrap();
                let blocks = extents.split(':').next().unwrap().to_owned();
                (lines, blocks)
            };
            assert_eq!(stat(ours.str()), stat(path), "{mib} MiB");
        }
    }
}

#[test]
fn the_kernel_mounts_and_uses_them() {
    for (features, fs_type, block_size) in [
        ("", FsType::Ext4, 4096),
        ("", FsType::Ext4, 1024),
        ("^orphan_file,^metadata_csum_seed", FsType::Ext4, 1024),
        ("^flex_bg,^resize_inode,meta_bg", FsType::Ext4, 1024),
        ("", FsType::Ext3, 1024),
        ("", FsType::Ext2, 4096),
    ] {
        let change = |o: &mut MkfsOptions| {
            o.features = features.into();
            o.fs_type = fs_type;
            o.block_size = Some(block_size);
        };
        let image = check(300 * MIB, change, features);
        let Some(mount) = image.mount_with("rw") else {
            return;
        };
        for i in 0..200 {
            let dir = mount.at.join(format!("d{i}"));
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("f"), vec![i as u8; 10_000]).unwrap();
        }
        drop(mount);
        image.check(features);
    }
}

/// A target with old content is overwritten completely.
#[test]
fn over_old_bytes() {
    let dir = scratch();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![0xa5; 48 << 20]).unwrap();
    let device = crate::it::mkfs::support::open(&path);
    let report = mkfs::format(&device, &options()).unwrap();
    drop(device);
    Image { dir, path, report }.check("over old bytes");
}

#[test]
fn a_cancelled_target_is_invalid() {
    let first = empty(&MkfsOptions {
        size: Some(32 * MIB),
        ..options()
    });
    let cancel = Arc::new(AtomicBool::new(false));
    let again = MkfsOptions {
        size: Some(32 * MIB),
        cancel: Some(Arc::clone(&cancel)),
        ..options()
    };
    let prepared = mkfs::prepare(&again).unwrap();
    cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    let device = crate::it::mkfs::support::open(&first.path);
    assert!(matches!(
        prepared.write(&device),
        Err(MkfsError::Interrupted)
    ));
    let mut sb = [0; 1024];
    blockdev::BlockDevice::read_at(&device, 1024, &mut sb).unwrap();
    assert!(ext4_format::superblock::RawSuperblock::parse(&sb).is_err());
}

#[test]
fn impossible_options_are_refused() {
    let refuse = |change: fn(&mut MkfsOptions)| {
        let mut o = MkfsOptions {
            size: Some(64 * MIB),
            ..options()
        };
        change(&mut o);
        mkfs::prepare(&o).err().expect("refused").to_string()
    };
    assert!(refuse(|o| o.features = "quota".into()).contains("quota"));
    assert!(refuse(|o| o.features = "nonsense".into()).contains("nonsense"));
    refuse(|o| o.block_size = Some(3000));
    refuse(|o| o.label = "much longer than sixteen".into());
    refuse(|o| o.inode_size = 200);
    // No size is enough for a journal without blocks.
    refuse(|o| o.journal_size = Some(0));
    let text = refuse(|o| o.size = Some(10 << 10));
    assert!(text.contains("too small"), "{text}");
}

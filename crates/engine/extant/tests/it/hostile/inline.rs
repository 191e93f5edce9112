//! Hostile data inside inodes (`inline_data`).

use crate::common::*;
use crate::hostile::records::{damage_seeds, usable_after_damage};
use crate::image::open_as;
use crate::operations::walk;
use crate::walk as structures;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::inode::{self, flags};
use ext4_format::xattr::{self, XattrSet};
use ext4_format::{FileType, InodeNr, dir_entry};
use extant::Error;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Makes a volume of a tree with data in inodes. Returns it with the inodes of the tree by path.
fn image(dir: &Path, features: &str) -> structures::Volume {
    let tree = dir.join("tree");
    if !tree.exists() {
        std::fs::create_dir(&tree).unwrap();
        for len in [0, 1, 59, 60, 61, 100, 125, 140] {
            std::fs::write(tree.join(format!("file{len}")), vec![b'd'; len]).unwrap();
            let target = "t".repeat(len.max(1));
            std::os::unix::fs::symlink(target, tree.join(format!("link{len}"))).unwrap();
        }
        for names in [0, 2, 3, 4, 6, 20] {
            let at = tree.join(format!("dir{names}"));
            std::fs::create_dir(&at).unwrap();
            (0..names).for_each(|n| std::fs::write(at.join(format!("name{n}")), "x").unwrap());
        }
    }
    let path = dir.join("image");
    let features = format!("inline_data,{features}");
    let tree = tree.to_str().unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "256"];
    let more = ["-I", "256", "-O", &features, "-d", tree];
    mke2fs(&path, "8M", &[&args[..], &more].concat());
    let volume = structures::Volume::open(&path);
    spill(&volume, number(dir, "dir3"), number(dir, "file1"));
    volume
}

/// Adds names to a directory in its inode, in the second part: mke2fs makes blocks of such a directory.
fn spill(volume: &structures::Volume, ino: InodeNr, to: InodeNr) {
    let mut names = [0; 64];
    dir_entry::init_block(&mut names, false);
    for name in [&b"spilled0"[..], b"spilled1"] {
        let file_type = Some(FileType::Regular);
        assert!(dir_entry::insert(&mut names, false, name, to, file_type).unwrap());
    }
    let mut set = XattrSet::default();
    set.set(inode::inline::ATTRIBUTE_NAME, &names).unwrap();
    let mut dir = volume.inode(ino);
    assert!(dir.core.flags & flags::INLINE_DATA != 0);
    let area = inode::xattr_area(&dir.raw, &volume.geo).unwrap();
    let (inside, _) = xattr::place(&set, area.len(), 1024).unwrap();
    dir.raw[area].copy_from_slice(&inside.unwrap());
    dir.raw[4..8].copy_from_slice(&124u32.to_le_bytes());
    volume.write_inode(&mut dir);
}

/// Returns the inode of a name in the root, as debugfs reports it.
fn number(dir: &Path, name: &str) -> InodeNr {
    let mut command = std::process::Command::new("debugfs");
    command
        .args(["-R", &format!("stat /{name}")])
        .arg(dir.join("image"));
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let number = text
        .strip_prefix("Inode: ")
        .and_then(|t| t.split(' ').next());
    InodeNr(
        number
            .and_then(|n| n.parse().ok())
            .unwrap_or_else(|| panic!("{text}")),
    )
}

fn open(dir: &Path) -> extant::Volume {
    let bytes = std::fs::read(dir.join("image")).unwrap();
    open_as(&Arc::new(MemDevice::from_bytes(&bytes)), true).unwrap()
}

/// Begin and length of the value of `system.data` in a record.
fn value(raw: &[u8], geo: &ext4_format::geometry::Geometry) -> Range<usize> {
    let inline = inode::inline::Inline::parse(raw, geo).unwrap();
    let begin = inline.rest().as_ptr() as usize - raw.as_ptr() as usize;
    begin..begin + inline.rest().len()
}

type Damage = fn(&mut structures::Inode, &ext4_format::geometry::Geometry);

/// The error names the rule and the inode.
#[test]
fn broken_inline_data_are_named() {
    needs::tools!("mke2fs", "debugfs");
    let cases: &[(&str, &str, Damage)] = &[
        ("file100", "value out of bounds", |inode, geo| {
            let area = inode::xattr_area(&inode.raw, geo).unwrap();
            inode.raw[area.start + 12..][..4].copy_from_slice(&250u32.to_le_bytes());
        }),
        ("file60", "inline data without system.data", |inode, geo| {
            let area = inode::xattr_area(&inode.raw, geo).unwrap();
            inode.raw[area].fill(0);
        }),
        ("file60", "inline data and extents", |inode, _| {
            let both = flags::EXTENTS | flags::INLINE_DATA;
            inode.raw[32..36].copy_from_slice(&both.to_le_bytes());
        }),
        ("link100", "size beyond the inline data", |inode, _| {
            inode.raw[4..8].copy_from_slice(&1000u32.to_le_bytes());
        }),
        ("dir2", "record beyond its block", |inode, _| {
            inode.raw[48..50].copy_from_slice(&200u16.to_le_bytes());
        }),
        ("dir3", "shorter than its name", |inode, geo| {
            let value = value(&inode.raw, geo);
            inode.raw[value.start + 6] = 250;
        }),
        ("dir3", "inode number of a name", |inode, geo| {
            let value = value(&inode.raw, geo);
            inode.raw[value.start..][..4].copy_from_slice(&100_000u32.to_le_bytes());
        }),
        ("dir2", "outside of the first block", |inode, _| {
            inode.raw[50] = 2;
            inode.raw[52..54].copy_from_slice(b"..");
        }),
        (
            "dir3",
            "size of a directory with inline data",
            |inode, _| {
                inode.raw[4..8].copy_from_slice(&60u32.to_le_bytes());
            },
        ),
        ("dir2", "without \"..\"", |inode, _| {
            inode.raw[40..44].copy_from_slice(&100_000u32.to_le_bytes());
        }),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (name, rule, damage) in cases {
        let volume = image(dir.path(), "metadata_csum");
        let ino = number(dir.path(), name);
        let mut inode = volume.inode(ino);
        damage(&mut inode, &volume.geo);
        volume.write_inode(&mut inode);
        let v = open(dir.path());
        let at = format!("/{name}");
        let error = match *name {
            "dir2" if rule.contains("..") => v.metadata(format!("{at}/..")).map(drop),
            name if name.starts_with("dir") => list(&v, &at).map(drop),
            name if name.starts_with("link") => v.read_link(&at).map(drop),
            _ => v.read(&at).map(drop),
        };
        let error = error.expect_err(rule).to_string();
        let told = error.contains(rule) && error.contains(&format!("inode {}", ino.0));
        assert!(told, "{name}, {rule}: {error}");
        // Other directories can be read.
        if *name != "dir3" {
            assert_eq!(v.read("/dir3/spilled1").unwrap(), b"d");
        }
        assert_eq!(v.read("/file61").unwrap(), [b'd'; 61]);
        v.close().unwrap();
    }
}

/// The flag without the feature.
#[test]
fn inline_data_without_the_feature() {
    needs::tools!("mke2fs", "debugfs");
    let dir = tempfile::tempdir().unwrap();
    drop(image(dir.path(), "metadata_csum"));
    let device = load_image(dir.path().join("image"));
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let mut sb = ext4_format::superblock::RawSuperblock::parse(&bytes).unwrap();
    sb.feature_incompat = (sb.feature_incompat.get() & !0x8000).into();
    sb.set_checksum();
    device.write_at(1024, sb.bytes()).unwrap();
    let v = open_as(&Arc::new(device), false).unwrap();
    assert!(v.read_only().is_none());
    let error = v.read("/file60").unwrap_err();
    assert!(matches!(error, Error::Format(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("inline data without the feature"), "{text}");
    assert!(v.remove_file("/file60").is_err());
    v.close().unwrap();
}

/// Thousands of broken inode tables are read without a panic, and without a hang.
#[test]
fn broken_records_with_inline_data() {
    needs::tools!("mke2fs", "debugfs");
    let dir = tempfile::tempdir().unwrap();
    let volume = image(dir.path(), "^metadata_csum,^uninit_bg");
    let size = u64::from(volume.geo.inode_size);
    let first = volume.inode_block(InodeNr(1)).offset(volume.geo.block_size);
    let in_use = volume.geo.inodes_count - volume.raw_sb.free_inodes_count.get();
    let records: Vec<u64> = (0..u64::from(in_use))
        .filter(|index| *index == 1 || *index >= 10)
        .map(|index| first + index * size)
        .collect();
    let base = load_image(dir.path().join("image"));
    // Mode, size, flags; the first part of the data; the attributes.
    let parts = [(0, 40), (40, 60), (128, 128), (160, 32)];
    let complete = usable_after_damage(&base, &records, parts, |device| {
        open_as(device, true).is_ok_and(|v| {
            let found = walk(&v).len();
            let _ = v.close();
            found > 50
        })
    });
    // Most damage leaves most of the tree usable.
    let seeds = damage_seeds();
    assert!(
        complete * 2 > seeds.end - seeds.start || std::env::var_os("EXTANT_SEED").is_some(),
        "{complete}"
    );
}

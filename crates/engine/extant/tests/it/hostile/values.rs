//! Hostile values of attributes in inodes (`ea_inode`).

use crate::common::*;
use crate::hostile::records::{damage_seeds, usable_after_damage};
use crate::image::open_as;
use crate::operations::walk;
use crate::walk as structures;
use blockdev::MemDevice;
use ext4_format::inode::{self, flags, value};
use ext4_format::xattr::ValueInode;
use ext4_format::{FormatError, InodeNr, Where};
use extant::Error;
use std::path::Path;
use std::sync::Arc;

/// The attribute whose value is in an inode.
const NAME: &str = "user.note";

fn debugfs(image: &Path, request: &str) {
    let mut command = std::process::Command::new("debugfs");
    let out = command.args(["-w", "-R", request]).arg(image).output();
    let said = String::from_utf8_lossy(&out.unwrap().stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{request}: {said}");
}

/// Makes a volume with two files whose values are in inodes. Each file has a short attribute, too.
fn image(dir: &Path, features: &str) -> structures::Volume {
    let path = dir.join("image");
    let features = format!("ea_inode,{features}");
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "256"];
    mke2fs(
        &path,
        "8M",
        &[&args[..], &["-I", "256", "-O", &features]].concat(),
    );
    for (name, byte) in [("one", b'o'), ("two", b't')] {
        let beside = dir.join("value");
        std::fs::write(&beside, [byte; 1000]).unwrap();
        let value = beside.display();
        debugfs(&path, &format!("write {value} {name}"));
        debugfs(&path, &format!("ea_set -f {value} {name} {NAME}"));
        debugfs(&path, &format!("ea_set {name} user.short x"));
    }
    structures::Volume::open(&path)
}

/// The parts of the volume that the damage is done to.
struct Parts {
    volume: structures::Volume,
    owner: structures::Inode,
    value: structures::Inode,
}

impl Parts {
    /// Finds the first file and its value.
    fn of(volume: structures::Volume) -> Self {
        let names = volume.names(&volume.inode(InodeNr::ROOT));
        let owner = volume.inode(names[&b"one"[..]].0);
        let value = volume.inode(reference(&volume, &owner).ino);
        Self {
            volume,
            owner,
            value,
        }
    }

    /// Changes bytes of the entry of the attribute, which is in the record of the file.
    fn set_entry(&mut self, at: usize, bytes: &[u8]) {
        let area = inode::xattr_area(&self.owner.raw, &self.volume.geo).unwrap();
        let name = self.owner.raw[area.clone()]
            .windows(4)
            .position(|w| w == b"note");
        let entry = area.start + name.unwrap() - 16;
        self.owner.raw[entry + at..][..bytes.len()].copy_from_slice(bytes);
    }
}

fn reference(volume: &structures::Volume, owner: &structures::Inode) -> ValueInode {
    let reference = volume.xattrs(owner).value_inode(NAME.as_bytes());
    reference.expect("the value is in an inode")
}

fn put(raw: &mut [u8], at: usize, word: u32) {
    raw[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

type Damage = fn(&mut Parts);

/// Each damage, with the rule that it breaks.
const CASES: &[(&str, Damage)] = &[
    ("size of an attribute's value", |p| {
        put(&mut p.value.raw, 4, 999)
    }),
    ("size of an attribute's value", |p| {
        put(&mut p.value.raw, 108, 1)
    }),
    ("size of an attribute's value", |p| {
        p.set_entry(8, &[0, 0, 0, 0])
    }),
    ("size of an attribute's value", |p| {
        p.set_entry(8, &[0xff; 4])
    }),
    ("size of an attribute's value", |p| {
        put(&mut p.value.raw, 4, 1 << 25);
        p.set_entry(8, &(1u32 << 25).to_le_bytes());
    }),
    ("checksum of value of an extended attribute", |p| {
        put(&mut p.value.raw, 8, 7)
    }),
    ("checksum of value of an extended attribute", |p| {
        let block = p.volume.map(&p.value).1[0].physical;
        p.volume.write(block, &[b'x'; 1024]);
    }),
    ("checksum of extended attribute", |p| {
        p.set_entry(12, &[9; 4])
    }),
    ("checksum of extended attribute", |p| p.set_entry(16, b"N")),
    ("value in an inode of another kind", |p| {
        put(&mut p.value.raw, 32, flags::EXTENTS)
    }),
    ("value in an inode of another kind", |p| {
        put(&mut p.value.raw, 32, flags::EA_INODE | flags::INLINE_DATA);
    }),
    ("value in an inode of another kind", |p| {
        p.value.raw[26..28].fill(0)
    }),
    ("value in an inode of another kind", |p| {
        p.value.raw[1] = 0x41
    }),
    ("value in an inode of another kind", |p| {
        p.value.raw[0..128].fill(0)
    }),
    ("attributes of an attribute's value", |p| {
        put(&mut p.value.raw, 104, 500)
    }),
    ("inode number of an attribute's value", |p| {
        p.set_entry(4, &[0xff; 4])
    }),
    ("inode number of an attribute's value", |p| {
        p.set_entry(4, &257u32.to_le_bytes())
    }),
    ("inode number of an attribute's value", |p| {
        p.set_entry(4, &[7, 0, 0, 0])
    }),
    ("inode number of an attribute's value", |p| {
        let own = p.owner.nr.0.to_le_bytes();
        p.set_entry(4, &own);
    }),
    ("outside the data area", |p| {
        put(&mut p.value.raw, 40 + 12 + 8, 1)
    }),
    ("extent header magic", |p| put(&mut p.value.raw, 40, 0)),
];

/// The error names the rule and the inode with the value, and is that of damage. All else can be read.
#[test]
fn broken_values_are_named() {
    needs::tools!("mke2fs", "debugfs");
    let dir = tempfile::tempdir().unwrap();
    for (n, (rule, damage)) in CASES.iter().enumerate() {
        let what = format!("case {n}, {rule}");
        let mut parts = Parts::of(image(dir.path(), "metadata_csum"));
        // The name is changed in one case.
        damage(&mut parts);
        let Parts {
            volume,
            mut owner,
            mut value,
        } = parts;
        volume.write_inode(&mut value);
        volume.write_inode(&mut owner);
        let names: Vec<_> = volume.xattrs(&owner).names().concat();
        let v = open(dir.path());
        let listed = v.list_xattrs("/one").unwrap();
        assert_eq!(listed.len(), 2, "{what}");
        let ours = listed.iter().map(|n| n.as_encoded_bytes());
        assert_eq!(ours.collect::<Vec<_>>().concat(), names, "{what}");
        let error = v.get_xattr("/one", &listed[0]).expect_err(&what);
        assert_eq!(error.errno(), rustix::io::Errno::UCLEAN.raw_os_error());
        let found = volume
            .xattrs(&owner)
            .value_inode(listed[0].as_encoded_bytes());
        let place = Where::Inode(found.unwrap().ino);
        let at = match &error {
            Error::Format(FormatError::Corrupt { at, .. }) => at,
            Error::Format(FormatError::Checksum { at, .. }) => at,
            other => panic!("{what}: {other:?}"),
        };
        assert_eq!(*at, place, "{what}: {error}");
        assert!(error.to_string().contains(rule), "{what}: {error}");
        assert_eq!(v.get_xattr("/one", "user.short").unwrap(), b"x");
        assert_eq!(v.read("/one").unwrap(), [b'o'; 1000], "{what}");
        assert_eq!(v.get_xattr("/two", NAME).unwrap(), [b't'; 1000]);
        v.close().unwrap();
    }
}

fn open(dir: &Path) -> extant::Volume {
    let bytes = std::fs::read(dir.join("image")).unwrap();
    open_as(&Arc::new(MemDevice::from_bytes(&bytes)), true).unwrap()
}

/// A value without hashes belongs to the file whose number and generation it has, as Lustre made them.
#[test]
fn values_of_lustre() {
    needs::tools!("mke2fs", "debugfs");
    let dir = tempfile::tempdir().unwrap();
    for (number, generation, reads) in [(0, 0, true), (1, 0, false), (0, 1, false)] {
        let mut parts = Parts::of(image(dir.path(), "metadata_csum"));
        parts.set_entry(12, &[0; 4]);
        let Parts {
            volume,
            mut owner,
            mut value,
        } = parts;
        put(&mut value.raw, 8, 0);
        value::set_references(&mut value.raw, 0);
        put(&mut value.raw, 16, owner.nr.0 + number);
        put(&mut value.raw, 100, owner.core.generation + generation);
        volume.write_inode(&mut value);
        volume.write_inode(&mut owner);
        let v = open(dir.path());
        let found = v.get_xattr("/one", NAME);
        assert_eq!(found.is_ok(), reads, "{number}, {generation}: {found:?}");
        v.close().unwrap();
    }
}

/// No name and no number leads to the inode of a value.
#[test]
fn values_are_no_files() {
    needs::tools!("mke2fs", "debugfs");
    let dir = tempfile::tempdir().unwrap();
    let parts = Parts::of(image(dir.path(), "metadata_csum"));
    let ino = parts.value.nr.0;
    debugfs(&dir.path().join("image"), &format!("ln <{ino}> named"));
    let v = open(dir.path());
    for error in [
        v.metadata("/named").unwrap_err(),
        v.read("/named").unwrap_err(),
        v.open_dir_ino(ino).map(drop).unwrap_err(),
    ] {
        let said = format!("corrupt: attribute's value in place of a file at inode {ino}");
        assert_eq!(error.to_string(), said);
    }
    assert_eq!(v.get_xattr("/one", NAME).unwrap(), [b'o'; 1000]);
    v.close().unwrap();
}

/// Thousands of broken records are read without a panic, and without a hang.
#[test]
fn broken_records_of_values() {
    needs::tools!("mke2fs", "debugfs");
    let dir = tempfile::tempdir().unwrap();
    let parts = Parts::of(image(dir.path(), "^metadata_csum,^uninit_bg"));
    let geo = &parts.volume.geo;
    let first = parts.volume.inode_block(InodeNr(1)).offset(geo.block_size);
    let records: Vec<u64> = (parts.owner.nr.0..parts.owner.nr.0 + 4)
        .map(|ino| first + u64::from(ino - 1) * u64::from(geo.inode_size))
        .collect();
    let base = load_image(dir.path().join("image"));
    // Mode, size, times, flags; the mapping; the attributes.
    let parts = [(0, 40), (40, 60), (100, 28), (160, 64)];
    let complete = usable_after_damage(&base, &records, parts, |device| {
        open_as(device, true).is_ok_and(|v| {
            walk(&v);
            let whole = ["/one", "/two"].map(|path| v.get_xattr(path, NAME).is_ok());
            let _ = v.close();
            whole == [true, true]
        })
    });
    // Some damage leaves both values.
    let seeds = damage_seeds();
    let all = seeds.end - seeds.start;
    let some = (all / 50..all * 9 / 10).contains(&complete);
    assert!(
        some || std::env::var_os("EXTANT_SEED").is_some(),
        "{complete} of {all}"
    );
}

//! Small images without checksums, and access to their descriptors.

use crate::common::*;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{GroupNr, InodeNr};
use extant::{Damage, Volume, VolumeOptions};
use std::sync::{Arc, Mutex};

/// Features without checksums, so that nothing reveals a wrong bitmap.
pub const PLAIN: &str = "^metadata_csum,^uninit_bg";

/// An image with a few files in it, all in the first group, closed.
pub fn base(size: &str, args: &[&str]) -> Arc<MemDevice> {
    let device = mem_image(size, args);
    let volume = open(&device);
    // Directories take turns over the groups. The first group depends on the thread.
    let in_first = |n: &u32| {
        let dir = volume.create_dir(format!("/dir{n}")).unwrap();
        dir.ino() <= volume.geometry().inodes_per_group
    };
    let n = (0..100).find(in_first).expect("its turn comes");
    volume.rename(format!("/dir{n}"), "/dir").unwrap();
    volume.write("/dir/keep", [0x5a; 20_000]).unwrap();
    volume.symlink("s".repeat(200), "/link").unwrap();
    // Remove these last, because the next files would get their numbers.
    (0..n).for_each(|n| volume.remove_dir(format!("/dir{n}")).unwrap());
    volume.close().unwrap();
    device
}

pub fn superblock(device: &dyn BlockDevice) -> RawSuperblock {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
    RawSuperblock::parse(&bytes).unwrap()
}

pub fn change_superblock(device: &dyn BlockDevice, change: impl FnOnce(&mut RawSuperblock)) {
    let mut sb = superblock(device);
    change(&mut sb);
    sb.set_checksum();
    device.write_at(SUPERBLOCK_OFFSET, sb.bytes()).unwrap();
}

pub fn geometry(device: &dyn BlockDevice) -> Geometry {
    Geometry::new(&superblock(device)).unwrap()
}

/// Returns the position of a group's descriptor.
fn place(geo: &Geometry, group: u32) -> u64 {
    let (block, offset) = geo.desc_location(GroupNr(group));
    block.offset(geo.block_size) + u64::from(offset)
}

pub fn desc(device: &dyn BlockDevice, group: u32) -> GroupDesc {
    let geo = geometry(device);
    let mut bytes = vec![0; geo.desc_size.into()];
    device.read_at(place(&geo, group), &mut bytes).unwrap();
    GroupDesc::decode(&bytes, &geo, GroupNr(group)).unwrap()
}

pub fn change_desc(device: &dyn BlockDevice, group: u32, change: impl FnOnce(&mut GroupDesc)) {
    let geo = geometry(device);
    let mut desc = desc(device, group);
    let mut bytes = vec![0; geo.desc_size.into()];
    device.read_at(place(&geo, group), &mut bytes).unwrap();
    change(&mut desc);
    desc.encode(&mut bytes, &geo, GroupNr(group)).unwrap();
    device.write_at(place(&geo, group), &bytes).unwrap();
}

/// Returns the position of an inode's record.
pub fn inode_place(device: &dyn BlockDevice, ino: u32) -> u64 {
    let geo = geometry(device);
    let (group, index) = geo.group_of_inode(InodeNr(ino)).unwrap();
    let table = desc(device, group.0).inode_table.offset(geo.block_size);
    table + u64::from(index) * u64::from(geo.inode_size)
}

/// The reported damage, in order.
pub type Found = Arc<Mutex<Vec<Damage>>>;

pub fn noting() -> (VolumeOptions, Found) {
    let found = Found::default();
    let noted = Arc::clone(&found);
    let options = VolumeOptions::new()
        .background(false)
        .cache_bytes(8 << 20)
        .on_damage(move |damage| noted.lock().unwrap().push(damage.clone()));
    (options, found)
}

pub fn open_noting(device: &Arc<MemDevice>) -> (Volume, Found) {
    let (options, found) = noting();
    let volume = options.open_device(Arc::clone(device) as _).unwrap();
    (volume, found)
}

/// Checks that the kept file is unchanged after a repair by e2fsck.
#[track_caller]
pub fn is_kept(device: &MemDevice, what: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    write_image(device, &path);
    let out = std::process::Command::new("e2fsck")
        .arg("-fy")
        .arg(&path)
        .output()
        .unwrap();
    let code = out.status.code().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(code <= 1, "{what}: e2fsck says {code}\n{text}");
    let device = Arc::new(load_image(&path));
    let volume = open(&device);
    assert!(
        volume.read("/dir/keep").unwrap() == [0x5a; 20_000],
        "{what}: a file that nobody touched"
    );
    volume.close().unwrap();
}

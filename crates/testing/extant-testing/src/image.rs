//! The image that is broken: it holds everything, and is small enough to be copied for every seed.

use crate::common::*;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::features::{Features, Incompat};
use ext4_format::superblock::RawSuperblock;
use extant::{FileType, SetXattr, Volume, VolumeOptions};
use std::fs::FileType as FileKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub fn open_as(device: &Arc<MemDevice>, read_only: bool) -> extant::Result<Volume> {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    VolumeOptions::new()
        .background(false)
        .read_only(read_only)
        .cache_bytes(8 << 20)
        .open_device(device)
}

/// Byte that marks file data, so that metadata can be recognized.
const DATA: u8 = 0xDA;

/// An image of 16 MiB, as [`populate_sized`] makes it.
pub fn populate(args: &[&str], dirty: bool) -> Arc<MemDevice> {
    populate_sized("16M", args, dirty, 900)
}

/// Makes an image with large directories, deep mappings, attributes in blocks, and links. If `dirty` is set, the image
/// is as a kill leaves it, with an unlinked file still open.
pub fn populate_sized(size: &str, args: &[&str], dirty: bool, names: u32) -> Arc<MemDevice> {
    let device = mem_image(size, args);
    let v = open(&device);
    let big = v.create_dir("/big").unwrap();
    // The names fill two levels of index if blocks have 1 KiB.
    for n in 0..names {
        big.create_new_file(format!("{n:0>180}, a name of some length"))
            .unwrap();
    }
    v.sync().unwrap();
    for d in 0..6 {
        let dir = v.create_dir(format!("/d{d}")).unwrap();
        for n in 0..6usize {
            dir.write(format!("f{n}"), vec![DATA; n * 1500]).unwrap();
        }
        dir.symlink("x".repeat(100), "slow").unwrap();
        dir.symlink("short", "fast").unwrap();
        dir.mknod("dev", FileType::CharDevice, 0o600, 0x103)
            .unwrap();
        dir.set_xattr("f1", "user.large", &[DATA; 500], SetXattr::Any)
            .unwrap();
        dir.set_xattr("f2", "user.small", b"v", SetXattr::Any)
            .unwrap();
        dir.hard_link("f3", "hard").unwrap();
    }
    let deep = v.create_new_file("/deep").unwrap();
    for n in 0..700u64 {
        deep.write_at(&[DATA; 512], n * 8192).unwrap();
    }
    let far = v.create_new_file("/far").unwrap();
    far.write_at(&[DATA; 1024], far_offset(&device)).unwrap();
    v.sync().unwrap();
    if dirty {
        let unlinked = v.open_file("/d2/f5").unwrap();
        // Committed, not written home.
        for n in 0..40 {
            v.create_new_file(format!("/d0/late{n}")).unwrap();
        }
        v.set_len("/deep", 100_000).unwrap();
        v.remove_file("/d1/f5").unwrap();
        v.remove_file("/d2/f5").unwrap();
        v.sync().unwrap();
        let device = Arc::new(device.snapshot());
        drop(unlinked);
        v.close().unwrap();
        return device;
    }
    drop((deep, far));
    v.close().unwrap();
    device
}

/// Offset of the last block of a file with one large hole. debugfs writes the hole's zeros, so it is short where extents map it; a
/// block map has three levels only beyond it.
fn far_offset(device: &MemDevice) -> u64 {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    let superblock = RawSuperblock::parse(&bytes).unwrap();
    if Features::of(&superblock)
        .incompat
        .contains(Incompat::EXTENT)
    {
        1 << 20
    } else {
        70 << 20
    }
}

/// Returns the path and the bytes of each regular file of an image, as debugfs reads them.
pub fn files(device: &MemDevice) -> Vec<(String, Vec<u8>)> {
    read_by_debugfs(device, |kind| kind.is_file())
}

/// Returns what [`files`] does, and every directory, without content, and every symbolic link with its target.
pub fn tree(device: &MemDevice) -> Vec<(String, Vec<u8>)> {
    read_by_debugfs(device, |_| true)
}

fn read_by_debugfs(device: &MemDevice, wanted: fn(&FileKind) -> bool) -> Vec<(String, Vec<u8>)> {
    let dir = needs::memory_dir();
    let (path, out) = (dir.path().join("image"), dir.path().join("out"));
    write_image(device, &path);
    std::fs::create_dir(&out).unwrap();
    let request = format!("rdump / {}", out.display());
    let run = Command::new("debugfs")
        .args(["-R", &request])
        .arg(&path)
        .output();
    assert!(run.unwrap().status.success());
    let found = contents(&out, wanted).into_iter();
    let mut found: Vec<_> = found
        .map(|(path, content)| (path.display().to_string(), content))
        .collect();
    found.sort();
    found
}

/// Returns the path below `root` and the content of everything in a directory of the host that is of a wanted kind.
pub fn contents(root: &Path, wanted: fn(&FileKind) -> bool) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let kind = path.symlink_metadata().unwrap().file_type();
            let name = path.strip_prefix(root).unwrap().to_path_buf();
            if kind.is_dir() {
                folders.push(path.clone());
            }
            if !wanted(&kind) {
                continue;
            }
            let content = if kind.is_dir() {
                Vec::new()
            } else if kind.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                target.into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(path).unwrap()
            };
            found.push((name, content));
        }
    }
    found
}

/// Blocks of an image that hold metadata: those in use that are not file data.
pub fn metadata(device: &MemDevice, block: usize) -> Vec<u64> {
    let bytes = device.to_bytes().unwrap();
    bytes
        .chunks_exact(block)
        .enumerate()
        .filter(|(_, b)| b.iter().any(|&x| x != 0) && b.iter().any(|&x| x != 0 && x != DATA))
        .map(|(n, _)| n as u64)
        .collect()
}

/// Returns an image of mke2fs and debugfs, without the engine: small files, a large directory, and two fragmented files.
pub fn fragmented(size: &str, args: &[&str]) -> Option<Vec<u8>> {
    if !needs::have(&["mke2fs", "debugfs"]) {
        return None;
    }
    let dir = needs::memory_dir();
    let (path, tree) = (dir.path().join("disk.img"), dir.path().join("tree"));
    std::fs::create_dir_all(tree.join("large")).unwrap();
    for i in 0..300 {
        std::fs::write(tree.join(format!("large/a name of some length {i}")), "x").unwrap();
    }
    for i in 0..20u8 {
        std::fs::write(tree.join(format!("small{i:02}")), vec![i; 20_000]).unwrap();
    }
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-b", "1024", "-d"]).arg(&tree);
    assert!(
        mke2fs
            .args(args)
            .arg(&path)
            .arg(size)
            .status()
            .unwrap()
            .success()
    );
    // Two fragmented files, in the blocks of every other removed small file.
    let data: Vec<u8> = (0..150_000u32).map(|i| (i % 251) as u8).collect();
    std::fs::write(dir.path().join("data"), data).unwrap();
    let mut requests = String::new();
    for i in (0..20).step_by(2) {
        requests += &format!("rm small{i:02}\n");
    }
    let data = dir.path().join("data").display().to_string();
    requests += &format!("write {data} first\nrm small01\nwrite {data} second\n");
    // Blocks that are set aside, behind a hole. Without extents they would count as written behind the end of the file.
    let made = std::fs::read(&path).unwrap();
    if made[0x460] & 0x40 != 0 {
        requests += "fallocate second 160 175\n";
    }
    let file = dir.path().join("requests");
    std::fs::write(&file, requests).unwrap();
    let out = Command::new("debugfs")
        .arg("-w")
        .arg("-f")
        .arg(&file)
        .arg(&path)
        .output();
    assert!(out.unwrap().status.success());
    Some(std::fs::read(path).unwrap())
}

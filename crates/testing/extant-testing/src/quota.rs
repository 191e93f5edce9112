//! Images with quota files.

use crate::common::{Rng, load_image, write_image};
use crate::folded::debugfs;
use blockdev::{BlockDevice, MemDevice};
use std::process::Command;

/// Options of mke2fs.
pub const KINDS: [&[&str]; 6] = [
    &["-O", "quota", "-b", "1024"],
    &[
        "-O",
        "quota,project",
        "-E",
        "quotatype=usrquota:grpquota:prjquota",
    ],
    &["-O", "quota,^extent,^64bit,^metadata_csum", "-b", "1024"],
    &["-O", "quota,orphan_file", "-E", "quotatype=grpquota"],
    &["-O", "quota,bigalloc", "-C", "16384"],
    &["-O", "quota,bigalloc", "-b", "4096", "-C", "16384"],
];

/// Makes an image of 60 files, whose users and groups a function returns. mke2fs does not count the files that it copies; with
/// `count`, e2fsck counts them.
pub fn image(args: &[&str], owner: impl Fn(u32) -> (u32, u32), count: bool) -> MemDevice {
    let dir = needs::memory_dir();
    let (tree, path) = (dir.path().join("tree"), dir.path().join("image"));
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    let mut requests = String::new();
    for i in 0..60 {
        std::fs::write(tree.join(format!("sub/file{i}")), vec![7; i as usize * 300]).unwrap();
        let (user, group) = owner(i);
        requests += &format!("sif /sub/file{i} uid {user}\nsif /sub/file{i} gid {group}\n");
    }
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&tree);
    let made = mke2fs.args(args).arg(&path).arg("16M").output().unwrap();
    assert!(made.status.success(), "{made:?}");
    debugfs(&path, requests.as_bytes());
    if count {
        let counted = Command::new("e2fsck").arg("-fy").arg(&path).output();
        assert_eq!(counted.unwrap().status.code(), Some(1));
    }
    load_image(&path)
}

/// Returns the image after a request of debugfs.
pub fn changed(device: &MemDevice, request: &str) -> MemDevice {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    write_image(device, &path);
    debugfs(&path, format!("{request}\n").as_bytes());
    load_image(&path)
}

/// Returns the offset of the first block of the quota file of users.
pub fn first_block(device: &MemDevice) -> u64 {
    let bytes = device.to_bytes().unwrap();
    let magic = [0x11, 0x1f, 0xc0, 0xd9];
    let first = bytes.chunks(1024).position(|b| b[..4] == magic);
    first.unwrap() as u64 * 1024
}

/// Returns the image with random numbers in the first blocks of the tree of users, which are one after the other.
pub fn damaged(device: &MemDevice, first: u64, seed: u64) -> MemDevice {
    let mut rng = Rng::new(seed);
    let device = device.snapshot();
    for _ in 0..1 + rng.below(3) {
        let at = first + rng.below(8 * 256) * 4;
        let value = [rng.below(12) as u32, rng.next() as u32][rng.below(2) as usize];
        device.write_at(at, &value.to_le_bytes()).unwrap();
    }
    device
}

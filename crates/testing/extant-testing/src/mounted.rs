//! Images, and the kernel's view of them.

use crate::common::*;
use extant::{Volume, VolumeOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns true for root with the tools. If they are missing, that is an error in CI, and a message elsewhere.
pub fn able() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        needs::ignored("mounting takes root");
    }
    root && needs::have(&["mke2fs", "e2fsck", "mount"])
}

/// An image mounted by the kernel. It is unmounted when this is dropped, also by a panic.
pub struct Mounted {
    dir: tempfile::TempDir,
    mounted: bool,
}

impl Mounted {
    pub fn new(image: &Path, options: &str) -> Self {
        Self::try_new(image, options).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Mounts an image, or returns the reason why Linux does not.
    pub fn try_new(image: &Path, options: &str) -> Result<Self, String> {
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
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            return Err(format!("mount -o {options}: {said}"));
        }
        mounted.mounted = true;
        Ok(mounted)
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn unmount(mut self) {
        self.mounted = false;
        let unmount = || Command::new("umount").arg(self.dir.path()).output();
        let mut out = unmount().unwrap();
        // A child that another test is starting may hold a file of the mount for a moment.
        for _ in 0..100 {
            if out.status.success() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            out = unmount().unwrap();
        }
        panic!("umount: {}", String::from_utf8_lossy(&out.stderr));
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

pub const KINDS: &[(&str, &[&str])] = &[
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

pub fn image(dir: &tempfile::TempDir, args: &[&str]) -> PathBuf {
    let path = dir.path().join("image");
    mke2fs(&path, "160M", &[args, &["-N", "40000"]].concat());
    path
}

pub fn open_file(path: &Path) -> Volume {
    VolumeOptions::new().background(false).open(path).unwrap()
}

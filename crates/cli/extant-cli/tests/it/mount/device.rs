//! Mounts of block devices, which the kernel holds for the server.

use super::support::{EXTANT, InBackground, assert_clean, image, isolated, place, run, script};
use extant_testing::common::copy_image;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The ioctl that returns the position of a file's block on the device, counted from 0.
const FIBMAP: u32 = 1;

/// A loop device; dropping it removes the device.
pub(super) struct Loop(pub(super) PathBuf);

impl Loop {
    /// Makes a loop device, with the options of losetup.
    pub(super) fn new(image: &Path, options: &[&str]) -> Self {
        let mut command = Command::new("losetup");
        let name = run(command.args(options).args(["-f", "--show"]).arg(image));
        Self(name.trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

fn mount(device: &Path, dir: &Path, transport: &str) {
    run(Command::new(EXTANT)
        .args(["mount", "-o", "commit=300", "--transport", transport])
        .arg(device)
        .arg(dir));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().rfind(|l| l.contains(dir.to_str().unwrap()));
    assert!(line.unwrap().contains(" fuseblk.extant "), "{line:?}");
}

#[test]
fn sync_and_block_numbers_reach_the_server() {
    isolated(|| {
        for transport in super::support::transports() {
            let place = place();
            let image = image(place.path(), "64M", &["-b", "4096"]);
            let device = Loop::new(&image, &[]);
            let dir = place.path().join("mnt");
            std::fs::create_dir(&dir).unwrap();
            let _unmounted = InBackground(&dir);
            mount(&device.0, &dir, transport.name());
            // No other mount may use the device.
            let other = place.path().join("other");
            std::fs::create_dir(&other).unwrap();
            let refused = Command::new("mount")
                .args(["-t", "ext4"])
                .arg(&device.0)
                .arg(&other)
                .output();
            assert!(
                !refused.unwrap().status.success(),
                "it can be mounted twice"
            );

            for (name, sync) in [("one", "sync -f ."), ("two", "sync")] {
                script(&dir, &format!("echo text >{name}; mkdir {name}.d; {sync}"));
                let copy = place.path().join("copy.img");
                copy_image(&image, &copy);
                let found = run(Command::new(EXTANT)
                    .arg("ls")
                    .arg(format!("{}:/", copy.display())));
                assert!(found.contains(name), "{sync}: {found}");
            }

            // The position of a file: the device has its bytes there.
            let text = "head -c 20000 /dev/urandom >placed; fallocate -l 40960 unwritten
                 filefrag placed unwritten";
            let found = script(&dir, text);
            assert_eq!(found, "placed: 1 extent found\nunwritten: 1 extent found\n");
            let file = File::open(dir.join("placed")).unwrap();
            let mut block = [0; 4];
            super::posix::sys::ioctl(file.as_fd(), FIBMAP, &mut block).unwrap();
            let at = u64::from(u32::from_ne_bytes(block)) * 4096;
            let mut bytes = vec![0; 20_000];
            File::open(&image)
                .unwrap()
                .read_exact_at(&mut bytes, at)
                .unwrap();
            assert!(
                bytes == std::fs::read(dir.join("placed")).unwrap(),
                "not at {at}"
            );
            drop(file);

            // A swap file of preallocated blocks.
            let swap = "fallocate -l 8M swap; chmod 600 swap; mkswap swap >/dev/null
                 swapon swap; grep -c swap /proc/swaps; swapoff swap";
            if Path::new("/proc/swaps").exists() {
                let shown = script(&dir, swap);
                assert!(shown.trim().parse::<u32>().unwrap() >= 1, "{shown}");
            }
            // umount(8) returns when the last byte is on the device.
            script(&dir, "echo last >last");
            run(Command::new("umount").arg(&dir));
            assert_clean(&image);
            let cat = format!("{}:/last", image.display());
            assert_eq!(run(Command::new(EXTANT).args(["cat", &cat])), "last\n");
            drop(device);
        }
    });
}

/// Freed blocks with contents that the device has not written yet are trimmed, or left for the next time.
#[test]
fn trimming_while_the_device_has_dirty_pages() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "64M", &["-b", "4096"]);
        let device = Loop::new(&image, &[]);
        let dir = place.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        let _unmounted = InBackground(&dir);
        mount(&device.0, &dir, "classic");
        for _ in 0..20 {
            script(
                &dir,
                "for i in 1 2 3 4; do head -c 3000000 /dev/urandom >f$i; done; sync; rm f?; sync; fstrim .",
            );
        }
        run(Command::new("umount").arg(&dir));
        assert_clean(&image);
    });
}

//! Calls for devices and image files that only Linux has. Other systems work without them.

#[cfg(target_os = "linux")]
pub(crate) use ioctls::{
    extents, generation, grow, move_extents, project, set_generation, set_label, set_project,
    set_uuid,
};
#[cfg(target_os = "linux")]
pub(crate) use linux::{
    cached, discard, is_written_by_qemu, protects, punch_hole, uncached, unnamed,
};
#[cfg(target_os = "linux")]
pub(crate) use loops::{lock_backing, refuse_loop};
#[cfg(not(target_os = "linux"))]
pub(crate) use others::{
    cached, discard, extents, generation, grow, is_written_by_qemu, lock_backing, move_extents,
    project, protects, punch_hole, refuse_loop, set_generation, set_label, set_project, set_uuid,
    uncached, unnamed,
};

#[cfg(target_os = "linux")]
#[path = "kernel/ioctls.rs"]
mod ioctls;

#[cfg(target_os = "linux")]
#[path = "kernel/linux.rs"]
mod linux;
#[cfg(target_os = "linux")]
#[path = "kernel/loops.rs"]
mod loops;

#[cfg(not(target_os = "linux"))]
#[path = "kernel/others.rs"]
mod others;

/// Part of a range that the system has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cached {
    pub(crate) bytes: u64,
    /// Number of these bytes that are not written yet.
    pub(crate) dirty: u64,
}

#[cfg(test)]
mod tests {
    use crate::{Access, BlockDevice, FileDevice};
    use rustix::fs::OFlags;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::process::Command;

    /// A loop device that lives as long as a test.
    struct Loop(String);

    impl Loop {
        /// Returns `None` where loop devices cannot be made.
        fn of(path: &Path) -> Option<Self> {
            Self::with(path, &[])
        }

        fn with(path: &Path, place: &[&str]) -> Option<Self> {
            let made = Command::new("losetup")
                .args(["--find", "--show"])
                .args(place)
                .arg(path)
                .output()
                .ok()?;
            let name = String::from_utf8(made.stdout).ok()?;
            made.status.success().then(|| Self(name.trim().into()))
        }
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = Command::new("losetup").args(["-d", &self.0]).status();
        }
    }

    #[test]
    fn an_image_shown_by_a_loop_device_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        FileDevice::create(&path, 1 << 20).unwrap();
        let Some(shown) = Loop::of(&path) else {
            needs::told("there is no loop device");
            return;
        };
        // Another name of the same file.
        let other = dir.path().join("other");
        std::fs::hard_link(&path, &other).unwrap();
        for path in [&path, &other] {
            let err = FileDevice::open(path, Access::ReadWrite).unwrap_err();
            assert_eq!(err.kind(), std::io::ErrorKind::ResourceBusy);
            assert!(err.to_string().contains(&shown.0), "{err}");
            FileDevice::open(path, Access::ReadOnly).unwrap();
        }
        // A single opener may write the device itself.
        let device = FileDevice::open(&shown.0, Access::ReadWrite).unwrap();
        assert_eq!(device.len(), 1 << 20);
        let err = FileDevice::open(&shown.0, Access::ReadWrite).unwrap_err();
        assert_eq!(err.kind(), std::io::ErrorKind::ResourceBusy, "{err}");
        device.write_at(0, &[7; 1 << 20]).unwrap();
        device.flush().unwrap();
        device.trim(64 << 10, 512 << 10).unwrap();
        drop(device);
        drop(shown);
        let image = FileDevice::open(&path, Access::ReadWrite).unwrap();
        let mut bytes = vec![0; 64 << 10];
        image.read_at(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&b| b == 7));
    }

    /// A file that is open for writing cannot be opened through the loop devices over it, and the other way round.
    #[test]
    fn a_loop_device_and_its_file_exclude_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        let busy = |path: &str, access| {
            let err = FileDevice::open(path, access).unwrap_err();
            assert_eq!(err.kind(), std::io::ErrorKind::ResourceBusy, "{err}");
        };
        let file = FileDevice::create(&path, 4 << 20).unwrap();
        let Some(shown) = Loop::of(&path) else {
            needs::told("there is no loop device");
            return;
        };
        busy(&shown.0, Access::ReadWrite);
        busy(&shown.0, Access::ReadOnly);
        drop(file);
        // A second loop device over the same bytes: neither device may be written while the other exists.
        let second = Loop::of(&path).unwrap();
        busy(&shown.0, Access::ReadWrite);
        busy(&second.0, Access::ReadWrite);
        FileDevice::open(&second.0, Access::ReadOnly).unwrap();
        drop(second);
        // A loop device over other bytes, such as those of another partition, does not count as another user.
        let halves = [["0", "2097152"], ["2097152", "2097152"]].map(|[offset, limit]| {
            let place = ["--offset", offset, "--sizelimit", limit];
            Loop::with(&path, &place).unwrap()
        });
        drop(shown);
        let first = FileDevice::open(&halves[0].0, Access::ReadWrite).unwrap();
        let second = FileDevice::open(&halves[1].0, Access::ReadWrite).unwrap();
        drop((first, second));
    }

    /// The file below a loop device may be a block device, such as a second loop device.
    #[test]
    fn a_loop_device_and_the_device_below_exclude_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        FileDevice::create(&path, 4 << 20).unwrap();
        let Some(below) = Loop::of(&path) else {
            needs::told("there is no loop device");
            return;
        };
        let below_path = Path::new(&below.0);
        let busy = |path: &Path| {
            let err = FileDevice::open(path, Access::ReadWrite).unwrap_err();
            assert_eq!(err.kind(), std::io::ErrorKind::ResourceBusy, "{err}");
        };
        let half = ["--offset", "2097152"];
        let above = Loop::with(below_path, &half).unwrap();
        busy(&path);
        busy(below_path);
        // A mount of the device below holds it in this way.
        let mut held = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut held, OFlags::EXCL.bits() as i32);
        let held = held.read(true).open(&below.0).unwrap();
        busy(Path::new(&above.0));
        drop(held);
        // Another half of the device below has no byte in common.
        let other = ["--sizelimit", "2097152"];
        let other = Loop::with(below_path, &other).unwrap();
        let first = FileDevice::open(&above.0, Access::ReadWrite).unwrap();
        let second = FileDevice::open(&other.0, Access::ReadWrite).unwrap();
        drop((first, second));
    }

    /// `qemu-nbd` locks an image as a virtual machine does.
    #[test]
    fn an_image_that_qemu_writes_is_in_use() {
        needs::tools!("qemu-nbd");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        FileDevice::create(&path, 4 << 20).unwrap();
        for (access, flags) in [("reads", &["-r"][..]), ("writes", &[])] {
            let socket = dir.path().join(access);
            let mut qemu = Command::new("qemu-nbd");
            let mut qemu = qemu
                .args(["-f", "raw", "-k"])
                .arg(&socket)
                .args(flags)
                .arg(&path)
                .spawn()
                .unwrap();
            // The socket is there before the image is open. The greeting of the server comes afterwards.
            let mut connection = loop {
                match UnixStream::connect(&socket) {
                    Ok(connection) => break connection,
                    Err(_) => std::thread::sleep(std::time::Duration::from_millis(5)),
                }
                assert_eq!(qemu.try_wait().unwrap(), None, "qemu-nbd ended");
            };
            connection.read_exact(&mut [0; 8]).unwrap();
            let opened = FileDevice::open(&path, Access::ReadWrite).map(drop);
            FileDevice::open(&path, Access::ReadOnly).unwrap();
            qemu.kill().unwrap();
            qemu.wait().unwrap();
            match access {
                "reads" => opened.unwrap(),
                _ => assert_eq!(opened.unwrap_err().kind(), std::io::ErrorKind::ResourceBusy),
            }
        }
        FileDevice::open(&path, Access::ReadWrite).unwrap();
    }

    #[test]
    fn trimming_a_file_gives_its_space_back() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let dev = FileDevice::create(dir.path().join("img"), 4 << 20).unwrap();
        dev.write_at(0, &[7; 4 << 20]).unwrap();
        dev.flush().unwrap();
        let blocks = || std::fs::metadata(dev.path()).unwrap().blocks();
        let before = blocks();
        match dev.trim(1 << 20, 2 << 20) {
            Err(e) if e.kind() == std::io::ErrorKind::Unsupported => return,
            done => done.unwrap(),
        }
        assert!(blocks() + 4000 <= before, "{before}, then {}", blocks());
        assert_eq!(dev.len(), 4 << 20);
        assert!(dev.trim(4 << 20, 1).is_err());
        let path = dev.path().to_owned();
        drop(dev);
        let dev = FileDevice::open(path, Access::ReadOnly).unwrap();
        assert!(dev.trim(0, 4096).is_err());
    }
}

//! A mounted directory as a target of random programs.

use crate::it::judge::target::Target;
use crate::it::programs::mount::Mounted;
use extant::Fallocate;
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

/// System calls on a mount.
pub struct ByCalls<'a>(pub &'a Mounted);

impl ByCalls<'_> {
    fn path(&self, path: &str) -> PathBuf {
        self.0.dir().join(path.trim_start_matches('/'))
    }
}

impl Target for ByCalls<'_> {
    type Handle = File;

    fn create(&self, path: &str, mode: u16) -> File {
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode.into());
        options.open(self.path(path)).unwrap()
    }

    fn open(&self, path: &str) -> File {
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .write(true)
            .open(self.path(path))
            .unwrap()
    }

    fn write(&self, file: &File, offset: u64, data: &[u8]) {
        file.write_all_at(data, offset).unwrap();
    }

    fn read(&self, file: &File, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    fn size(&self, file: &File) -> u64 {
        file.metadata().unwrap().len()
    }

    fn truncate(&self, file: &File, size: u64) {
        file.set_len(size).unwrap();
    }

    fn fallocate(&self, file: &File, how: Fallocate, offset: u64, len: u64) {
        let keep = |keep| {
            if keep {
                FallocateFlags::KEEP_SIZE
            } else {
                FallocateFlags::empty()
            }
        };
        let flags = match how {
            Fallocate::Allocate { keep_size } => keep(keep_size),
            Fallocate::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
            Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            other => panic!("{other:?} is in no program"),
        };
        rustix::fs::fallocate(file, flags, offset, len).unwrap();
    }

    fn copy(&self, (from, at): (&File, u64), (to, place): (&File, u64), len: u64) {
        let (mut at, mut place, end) = (at, place, at + len);
        while at < end {
            let left = (end - at) as usize;
            let n = rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut place), left);
            assert!(n.unwrap() > 0);
        }
    }

    fn fsync(&self, file: &File, datasync: bool) {
        if datasync {
            file.sync_data()
        } else {
            file.sync_all()
        }
        .unwrap();
    }

    /// Makes the server's data durable. Data still in the kernel are not covered, because Linux does not wait in
    /// syncfs for its write-back to a FUSE server.
    fn sync(&self) {
        self.0.volume().sync().unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    fn link(&self, old: &str, new: &str) {
        fs::hard_link(self.path(old), self.path(new)).unwrap();
    }

    fn unlink(&self, path: &str) {
        fs::remove_file(self.path(path)).unwrap();
    }

    fn make_dir(&self, path: &str) {
        match fs::create_dir(self.path(path)) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => panic!("{path}: {e}"),
            _ => {}
        }
    }
}

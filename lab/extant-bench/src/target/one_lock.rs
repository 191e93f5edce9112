//! A volume behind one lock: every operation takes the lock, and nothing else differs.

use super::{Lister, Name, Open, Target, TaskDir, TaskFile};
use anyhow::Result;
use lockmeter::{Mutex, lock_class};
use std::sync::Arc;

lock_class!(
    /// The lock of the whole volume.
    One = "before: volume"
);

type Lock = Arc<Mutex<(), One>>;

/// A target behind one lock.
pub struct OneLock<T> {
    inner: T,
    lock: Lock,
}

struct Dir(Box<dyn TaskDir>, Lock);
struct File(Box<dyn TaskFile>, Lock);
struct List(Box<dyn Lister>, Lock);

impl<T: Target> OneLock<T> {
    /// Puts a target behind one lock.
    pub fn new(inner: T) -> Self {
        let lock = Lock::default();
        Self { inner, lock }
    }

    fn dir(&self, dir: Box<dyn TaskDir>) -> Box<dyn TaskDir> {
        Box::new(Dir(dir, Arc::clone(&self.lock)))
    }
}

impl<T: Target> Target for OneLock<T> {
    fn name(&self) -> String {
        "before: one lock".into()
    }

    fn make_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        let _held = self.lock.lock();
        Ok(self.dir(self.inner.make_dir(path)?))
    }

    fn open_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        let _held = self.lock.lock();
        Ok(self.dir(self.inner.open_dir(path)?))
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        let _held = self.lock.lock();
        self.inner.remove_dir(path)
    }

    fn sync(&self) -> Result<()> {
        let _held = self.lock.lock();
        self.inner.sync()
    }

    fn drop_caches(&self) -> Result<()> {
        let _held = self.lock.lock();
        self.inner.drop_caches()
    }

    fn counts(&self) -> crate::runner::Counts {
        self.inner.counts()
    }
}

impl Dir {
    fn sub(&self, dir: Box<dyn TaskDir>) -> Box<dyn TaskDir> {
        Box::new(Self(dir, Arc::clone(&self.1)))
    }
}

impl TaskDir for Dir {
    fn create(&self, name: &str) -> Result<()> {
        let _held = self.1.lock();
        self.0.create(name)
    }

    fn open_close(&self, name: &str) -> Result<()> {
        let _held = self.1.lock();
        self.0.open_close(name)
    }

    fn open(&self, name: &str, how: Open) -> Result<Box<dyn TaskFile>> {
        let _held = self.1.lock();
        Ok(Box::new(File(self.0.open(name, how)?, Arc::clone(&self.1))))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        let _held = self.1.lock();
        self.0.unlink(name)
    }

    fn rename(&self, old: &str, new: &str) -> Result<()> {
        let _held = self.1.lock();
        self.0.rename(old, new)
    }

    fn stat(&self, name: &str) -> Result<u64> {
        let _held = self.1.lock();
        self.0.stat(name)
    }

    fn set_mode(&self, name: &str, mode: u16) -> Result<()> {
        let _held = self.1.lock();
        self.0.set_mode(name, mode)
    }

    fn free_blocks(&self) -> Result<u64> {
        let _held = self.1.lock();
        self.0.free_blocks()
    }

    fn make_dir(&self, name: &str) -> Result<Box<dyn TaskDir>> {
        let _held = self.1.lock();
        Ok(self.sub(self.0.make_dir(name)?))
    }

    fn open_dir(&self, name: &str) -> Result<Box<dyn TaskDir>> {
        let _held = self.1.lock();
        Ok(self.sub(self.0.open_dir(name)?))
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        let _held = self.1.lock();
        self.0.remove_dir(name)
    }

    fn lister(&self) -> Result<Box<dyn Lister>> {
        let _held = self.1.lock();
        Ok(Box::new(List(self.0.lister()?, Arc::clone(&self.1))))
    }

    fn again(&self) -> Result<Box<dyn TaskDir>> {
        Ok(self.sub(self.0.again()?))
    }
}

impl Lister for List {
    fn advance(&mut self) -> Result<bool> {
        let _held = self.1.lock();
        self.0.advance()
    }

    fn rewind(&mut self) -> Result<()> {
        let _held = self.1.lock();
        self.0.rewind()
    }

    fn rest(&mut self) -> Result<Vec<Name>> {
        let _held = self.1.lock();
        self.0.rest()
    }
}

impl TaskFile for File {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let _held = self.1.lock();
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let _held = self.1.lock();
        self.0.write_at(offset, data)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        let _held = self.1.lock();
        self.0.truncate(size)
    }

    fn fallocate(&self, offset: u64, len: u64) -> Result<()> {
        let _held = self.1.lock();
        self.0.fallocate(offset, len)
    }

    fn fsync(&self) -> Result<()> {
        let _held = self.1.lock();
        self.0.fsync()
    }

    fn size(&self) -> Result<u64> {
        let _held = self.1.lock();
        self.0.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::LibTarget;
    use extant::mkfs::MkfsOptions;
    use extant::{Volume, VolumeOptions};
    use std::sync::Arc as StdArc;

    fn volume() -> Volume {
        let size = 64 << 20;
        let device = StdArc::new(extant::blockdev::MemDevice::new(size));
        let options = MkfsOptions {
            size: Some(size),
            zeroed_device: true,
            ..MkfsOptions::default()
        };
        extant::mkfs::format(&*device, &options).unwrap();
        VolumeOptions::new().open_device(device).unwrap()
    }

    /// Runs two tasks in separate directories; returns names, sizes and modes, and the free inodes and blocks.
    fn left_by(target: &dyn Target, volume: &Volume) -> (Vec<(String, u64, u32)>, u64, u64) {
        std::thread::scope(|s| {
            for task in 0..2 {
                let dir = target.make_dir(&format!("task{task}")).unwrap();
                s.spawn(move || {
                    for n in 0..300 {
                        dir.create(&format!("f{n}")).unwrap();
                        let file = dir.open(&format!("f{n}"), Open::Existing).unwrap();
                        file.write_at(0, &vec![1; 50 * n]).unwrap();
                        if n % 3 == 0 {
                            dir.unlink(&format!("f{n}")).unwrap();
                        } else if n % 3 == 1 {
                            dir.rename(&format!("f{n}"), &format!("g{n}")).unwrap();
                        }
                    }
                });
            }
        });
        target.sync().unwrap();
        let mut found = Vec::new();
        for task in 0..2 {
            for n in 0..300 {
                for letter in ["f", "g"] {
                    let path = format!("/task{task}/{letter}{n}");
                    if let Ok(stat) = volume.metadata(&path) {
                        found.push((path, stat.len(), stat.mode()));
                    }
                }
            }
        }
        let space = volume.statfs().unwrap();
        (found, space.free_blocks, space.free_inodes)
    }

    /// A single lock changes the order of operations, but not their results: the same names and attributes, and the
    /// same number of free inodes. Free blocks may differ by those of the two directories, whose leaves depend on the
    /// order of the pushes.
    #[test]
    fn a_volume_under_one_lock_leaves_the_same() {
        let (plain, locked) = (volume(), volume());
        let a = left_by(&LibTarget::new(plain.clone()), &plain);
        let b = left_by(&OneLock::new(LibTarget::new(locked.clone())), &locked);
        assert_eq!(a.0.len(), 400);
        assert_eq!((&a.0, a.2), (&b.0, b.2));
        assert!(a.1.abs_diff(b.1) <= 8, "{} and {} blocks", a.1, b.1);
    }
}

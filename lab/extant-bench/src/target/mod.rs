//! The targets of a workload: a volume in process, or a directory of a mounted file system.

mod apart;
mod lib_target;
mod one_lock;
mod path_target;

pub use apart::Apart;
pub use lib_target::LibTarget;
pub use one_lock::OneLock;
pub use path_target::{PathTarget, cpu_of};

use crate::runner::Counts;
use anyhow::Result;
use rustix::io::Errno;

/// A file system under test.
pub trait Target: Sync {
    /// Returns the name in the report.
    fn name(&self) -> String;
    /// Makes a directory (below the target's own root) and returns a handle to work in it.
    fn make_dir(&self, path: &str) -> Result<Box<dyn TaskDir>>;
    /// Returns a handle to work in a directory that is there.
    fn open_dir(&self, path: &str) -> Result<Box<dyn TaskDir>>;
    /// Removes a directory that is empty.
    fn remove_dir(&self, path: &str) -> Result<()>;
    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
    /// Drops clean inodes and pages from memory.
    fn drop_caches(&self) -> Result<()>;
    /// Returns the CPU seconds that other processes have spent for it until now, such as a server.
    fn other_cpu(&self) -> f64 {
        0.0
    }
    /// Returns the number of extents of each of these files, whose contents are durable.
    fn extents(&self, _paths: &[String]) -> Result<Vec<u64>> {
        anyhow::bail!("{}: extents cannot be counted", self.name())
    }
    /// Returns the present counts of its log, if it has any.
    fn counts(&self) -> Counts {
        Counts::new()
    }
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// The file must exist.
    Existing,
    /// The file is made if it does not exist.
    Create,
    /// The file is created or truncated.
    Truncate,
}

/// A directory that a task works in. Names may be paths below it.
pub trait TaskDir: Send + Sync {
    /// Opens with O_CREAT and closes.
    fn create(&self, name: &str) -> Result<()>;
    /// Opens and closes an existing file.
    fn open_close(&self, name: &str) -> Result<()>;
    /// Returns a file open for reading and writing.
    fn open(&self, name: &str, how: Open) -> Result<Box<dyn TaskFile>>;
    /// Calls unlink.
    fn unlink(&self, name: &str) -> Result<()>;
    /// Calls rename.
    fn rename(&self, old: &str, new: &str) -> Result<()>;
    /// Calls stat; returns the size.
    fn stat(&self, name: &str) -> Result<u64>;
    /// Calls chmod.
    fn set_mode(&self, name: &str, mode: u16) -> Result<()>;
    /// Calls statfs; returns the free blocks.
    fn free_blocks(&self) -> Result<u64>;
    /// Calls mkdir, and opens the directory.
    fn make_dir(&self, name: &str) -> Result<Box<dyn TaskDir>>;
    /// Opens an existing directory.
    fn open_dir(&self, name: &str) -> Result<Box<dyn TaskDir>>;
    /// Calls rmdir.
    fn remove_dir(&self, name: &str) -> Result<()>;
    /// Starts a walk through the names of this directory.
    fn lister(&self) -> Result<Box<dyn Lister>>;
    /// Returns the same directory for another task.
    fn again(&self) -> Result<Box<dyn TaskDir>>;
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// A walk through a directory, as readdir and rewinddir make it.
pub trait Lister: Send {
    /// Advances by one name; false at the end. "." and ".." may be among the names.
    fn advance(&mut self) -> Result<bool>;
    /// Returns to the start.
    fn rewind(&mut self) -> Result<()>;
    /// Returns all further names except "." and "..".
    fn rest(&mut self) -> Result<Vec<Name>>;
}

/// An open file.
pub trait TaskFile: Send + Sync {
    /// Calls pread.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Calls pwrite until all data are written.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// Calls ftruncate.
    fn truncate(&self, size: u64) -> Result<()>;
    /// Calls fallocate with mode 0.
    fn fallocate(&self, offset: u64, len: u64) -> Result<()>;
    /// Calls fsync.
    fn fsync(&self) -> Result<()>;
    /// Calls fstat; returns the size.
    fn size(&self) -> Result<u64>;
}

/// Returns whether an operation failed because the name does not exist.
pub fn is_missing(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<extant::Error>(),
        Some(extant::Error::NotFound)
    ) || error.downcast_ref::<Errno>() == Some(&Errno::NOENT)
}

/// Returns whether an operation failed because the name is taken.
pub fn is_taken(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<extant::Error>(),
        Some(extant::Error::Exists)
    ) || error.downcast_ref::<Errno>() == Some(&Errno::EXIST)
}

/// Removes everything below a directory, however deep.
pub fn empty(dir: &dyn TaskDir) -> Result<()> {
    for Name { name, is_dir } in dir.lister()?.rest()? {
        if !is_dir {
            match dir.unlink(&name) {
                // Some file systems, such as fuse2fs, do not report the type in a listing.
                Err(e) if e.downcast_ref() == Some(&Errno::ISDIR) => {}
                removed => {
                    removed?;
                    continue;
                }
            }
        }
        empty(&*dir.open_dir(&name)?)?;
        dir.remove_dir(&name)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::MemDevice;
    use std::sync::Arc;

    /// Runs calls that must have the same effect on a volume and on a path.
    fn exercise(target: &dyn Target) {
        let root = target.make_dir("t").unwrap();
        let sub = root.make_dir("sub").unwrap();
        sub.create("a").unwrap();
        sub.open_close("a").unwrap();
        assert!(is_missing(&sub.open_close("none").unwrap_err()));
        assert!(is_taken(&root.make_dir("sub").err().unwrap()));
        let file = root.open("sub/a", Open::Existing).unwrap();
        file.write_at(4096, &[7; 4096]).unwrap();
        file.fallocate(8192, 8192).unwrap();
        assert_eq!(
            (file.size().unwrap(), sub.stat("a").unwrap()),
            (16384, 16384)
        );
        let mut page = [0; 4096];
        assert_eq!(file.read_at(4096, &mut page).unwrap(), 4096);
        assert_eq!(page[4095], 7);
        file.truncate(100).unwrap();
        file.fsync().unwrap();
        assert_eq!(
            root.open("sub/a", Open::Create).unwrap().size().unwrap(),
            100
        );
        root.rename("sub/a", "b").unwrap();
        root.set_mode("b", 0o600).unwrap();
        assert!(is_missing(&root.stat("sub/a").unwrap_err()));
        assert!(root.free_blocks().unwrap() > 0);
        let mut lister = root.again().unwrap().lister().unwrap();
        let mut seen = 0;
        while lister.advance().unwrap() {
            seen += 1;
        }
        assert!(seen == 2 || seen == 4, "{seen} names, with or without dots");
        lister.rewind().unwrap();
        let mut names = lister.rest().unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let found: Vec<_> = names.iter().map(|n| (n.name.as_str(), n.is_dir)).collect();
        assert_eq!(found, [("b", false), ("sub", true)]);
        assert_eq!(root.open("b", Open::Truncate).unwrap().size().unwrap(), 0);
        root.open_dir("sub").unwrap().create("deep").unwrap();
        drop(sub);
        empty(&*root).unwrap();
        assert!(root.lister().unwrap().rest().unwrap().is_empty());
        drop(root);
        target.sync().unwrap();
        target.remove_dir("t").unwrap();
    }

    #[test]
    fn a_volume_and_a_path_do_the_same() {
        let dir = tempfile::tempdir().unwrap();
        exercise(&PathTarget::new(dir.path()));
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
        exercise(&LibTarget::new(volume()));
        exercise(&OneLock::new(LibTarget::new(volume())));
        exercise(&Apart::new(vec![volume(), volume()]).unwrap());
    }

    fn volume() -> extant::Volume {
        let device = Arc::new(MemDevice::new(16 << 20));
        let options = extant::mkfs::MkfsOptions {
            size: Some(16 << 20),
            ..Default::default()
        };
        extant::mkfs::format(&*device, &options).unwrap();
        extant::VolumeOptions::new().open_device(device).unwrap()
    }
}

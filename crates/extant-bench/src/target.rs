//! What a workload runs against: a volume in process, or a directory of a mounted file system.

use anyhow::{Context, Result};
use extant::{Dir, OpenFlags, Volume};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A file system under test.
pub trait Target: Sync {
    /// Name in the report.
    fn name(&self) -> String;
    /// Makes a directory (below the target's own root) and returns a handle to work in it.
    fn make_dir(&self, path: &str) -> Result<Box<dyn TaskDir>>;
    /// Removes a directory that is empty.
    fn remove_dir(&self, path: &str) -> Result<()>;
    /// Makes everything durable.
    fn sync(&self) -> Result<()>;
}

/// A directory that a task works in.
pub trait TaskDir: Send + Sync {
    /// open(O_CREAT) + close.
    fn create(&self, name: &str) -> Result<()>;
    /// unlink.
    fn unlink(&self, name: &str) -> Result<()>;
    /// The same directory for another task.
    fn again(&self) -> Result<Box<dyn TaskDir>>;
}

/// An Extant volume in this process.
pub struct LibTarget(pub Volume);

struct LibDir(Dir);

impl Target for LibTarget {
    fn name(&self) -> String {
        "extant (in process)".into()
    }

    fn make_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        Ok(Box::new(LibDir(
            self.0
                .create_dir(path, 0o755)
                .with_context(|| format!("mkdir {path}"))?,
        )))
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        self.0
            .remove_dir(path)
            .with_context(|| format!("rmdir {path}"))
    }

    fn sync(&self) -> Result<()> {
        self.0.sync().context("sync")
    }
}

impl TaskDir for LibDir {
    fn create(&self, name: &str) -> Result<()> {
        self.0
            .open(name, OpenFlags::WRITE | OpenFlags::CREATE, 0o644)?;
        Ok(())
    }

    fn unlink(&self, name: &str) -> Result<()> {
        self.0.unlink(name)?;
        Ok(())
    }

    fn again(&self) -> Result<Box<dyn TaskDir>> {
        Ok(Box::new(Self(self.0.clone())))
    }
}

/// A directory of a mounted file system.
pub struct PathTarget {
    /// The directory.
    pub root: PathBuf,
}

struct PathDir(OwnedFd);

impl Target for PathTarget {
    fn name(&self) -> String {
        format!("path {}", self.root.display())
    }

    fn make_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        let full = self.root.join(path);
        std::fs::create_dir(&full).with_context(|| format!("mkdir {}", full.display()))?;
        let fd = rustix::fs::open(
            &full,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Box::new(PathDir(fd)))
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        let full = self.root.join(path);
        std::fs::remove_dir(&full).with_context(|| format!("rmdir {}", full.display()))
    }

    fn sync(&self) -> Result<()> {
        let fd = rustix::fs::open(
            &self.root,
            OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        rustix::fs::syncfs(&fd).context("syncfs")
    }
}

impl TaskDir for PathDir {
    fn create(&self, name: &str) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o644))?;
        Ok(())
    }

    fn unlink(&self, name: &str) -> Result<()> {
        rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?;
        Ok(())
    }

    fn again(&self) -> Result<Box<dyn TaskDir>> {
        Ok(Box::new(Self(self.0.try_clone()?)))
    }
}

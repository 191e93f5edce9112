//! Rows on names.

use super::Row;
use crate::names::Names;
use crate::runner::Task;
use crate::target::{PathTarget, Target, TaskDir};
use crate::tree::Noise;
use anyhow::{Context, Result};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};
use std::os::fd::OwnedFd;
use std::path::Path;

type Op = fn(&dyn TaskDir, &str) -> Result<()>;

/// Creates or removes files in order.
struct InTurn {
    dir: Box<dyn TaskDir>,
    names: Names,
    left: u64,
    op: Op,
}

impl Task for InTurn {
    fn op(&mut self) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(false);
        };
        self.left = left;
        (self.op)(&*self.dir, self.names.next())?;
        Ok(true)
    }
}

/// Works on files in random order: endlessly, or on each once.
struct AtRandom {
    dir: Box<dyn TaskDir>,
    names: Vec<String>,
    noise: Noise,
    once: bool,
    op: Op,
}

impl Task for AtRandom {
    fn op(&mut self) -> Result<bool> {
        if self.names.is_empty() {
            return Ok(false);
        }
        let at = self.noise.below(self.names.len());
        if self.once {
            let name = self.names.swap_remove(at);
            (self.op)(&*self.dir, &name)?;
        } else {
            (self.op)(&*self.dir, &self.names[at])?;
        }
        Ok(true)
    }
}

/// Reads attributes again.
struct Anew {
    dir: OwnedFd,
    names: Vec<String>,
    noise: Noise,
}

impl Task for Anew {
    fn op(&mut self) -> Result<bool> {
        let name = &self.names[self.noise.below(self.names.len())];
        let (how, what) = (AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
        statx(&self.dir, name.as_str(), how, what).with_context(|| name.clone())?;
        Ok(true)
    }
}

fn getattr(dir: &Path, files: u64) -> Result<Box<dyn Task>> {
    let opened = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(Box::new(Anew {
        dir: rustix::fs::open(dir, opened, Mode::empty())
            .with_context(|| dir.display().to_string())?,
        names: all_names(files),
        noise: Noise::new(0),
    }))
}

/// Lists a directory and stats its files.
struct Listed(Box<dyn TaskDir>);

impl Task for Listed {
    fn op(&mut self) -> Result<bool> {
        for found in self.0.lister()?.rest()? {
            self.0.stat(&found.name)?;
        }
        Ok(true)
    }
}

/// Opens the directory as tasks use it.
pub(super) fn open(dir: &Path) -> Result<Box<dyn TaskDir>> {
    PathTarget::new(dir).open_dir("")
}

fn names() -> Names {
    Names::new("file", 0)
}

fn all_names(files: u64) -> Vec<String> {
    let mut names = names();
    (0..files).map(|_| names.next().to_string()).collect()
}

/// Makes this many empty files.
pub(super) fn fill(dir: &Path, files: u64) -> Result<()> {
    let (dir, mut names) = (open(dir)?, names());
    (0..files).try_for_each(|_| dir.create(names.next()))
}

pub(super) fn task(row: Row, dir: &Path, files: u64) -> Result<Box<dyn Task>> {
    let (op, once): (Op, bool) = match row {
        Row::Readdir => return Ok(Box::new(Listed(open(dir)?))),
        Row::Create | Row::Unlink => {
            let op: Op = match row {
                Row::Create => |dir, name| dir.create(name),
                _ => |dir, name| dir.unlink(name),
            };
            return Ok(Box::new(InTurn {
                dir: open(dir)?,
                names: names(),
                left: files,
                op,
            }));
        }
        Row::Open => (|dir, name| dir.open_close(name), false),
        Row::Getattr => return getattr(dir, files),
        Row::Stat => (|dir, name| dir.stat(name).map(drop), false),
        _ => (|dir, name| dir.stat(name).map(drop), true),
    };
    Ok(Box::new(AtRandom {
        dir: open(dir)?,
        names: all_names(files),
        noise: Noise::new(0),
        once,
        op,
    }))
}

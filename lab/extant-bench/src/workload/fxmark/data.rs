//! The rows on data: DW and DR.

use crate::runner::{Shape, Task, Tasks};
use crate::target::{Open, TaskDir, TaskFile};
use crate::workload::tasks;
use anyhow::Result;

/// A row on data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataRow {
    Append,
    Overwrite { shared: bool },
    OverwriteSync,
    Truncate,
    Read(Block),
}

/// The block that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    Private,
    Own,
    Same,
}

const BLOCK: u64 = 4096;
/// Size at which an appended file is truncated.
const MOST: u64 = 32 << 20;
/// Largest number of blocks of all tasks' truncated files.
const MOST_CUT: u64 = 100_000;

fn block() -> Box<[u8; BLOCK as usize]> {
    Box::new([b'x'; BLOCK as usize])
}

/// Returns a task's own file, or a new handle of the shared file.
fn file_of(base: &dyn TaskDir, task: usize, shared: bool) -> Result<Box<dyn TaskFile>> {
    let name = if shared {
        "shared".to_string()
    } else {
        format!("file.{task}")
    };
    base.open(&name, Open::Create)
}

impl DataRow {
    pub fn prepare(self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        // Offset of the block of a task that has its own block in a shared file.
        let at = |task: usize, own: bool| if own { task as u64 * BLOCK } else { 0 };
        match self {
            Self::Append => tasks(shape, |task| {
                let (file, at) = (file_of(base, task, false)?, 0);
                Ok(Append {
                    file,
                    at,
                    block: block(),
                })
            }),
            Self::Overwrite { shared } => tasks(shape, |task| {
                written(base, task, shared, at(task, shared))
                    .map(|rw| Overwrite { rw, sync: false })
            }),
            Self::OverwriteSync => tasks(shape, |task| {
                written(base, task, false, 0).map(|rw| Overwrite { rw, sync: true })
            }),
            Self::Truncate => {
                let blocks = shape.files.min(MOST_CUT / shape.tasks as u64).max(1);
                tasks(shape, |task| {
                    let file = file_of(base, task, false)?;
                    file.fallocate(0, blocks * BLOCK)?;
                    Ok(Truncate { file, blocks })
                })
            }
            Self::Read(block) => {
                let shared = block != Block::Private;
                tasks(shape, |task| {
                    written(base, task, shared, at(task, block == Block::Own)).map(Read)
                })
            }
        }
    }
}

/// A block of a file, and the memory it is read into or written from.
struct ReadWrite {
    file: Box<dyn TaskFile>,
    at: u64,
    block: Box<[u8; BLOCK as usize]>,
}

/// Returns a file with one block written.
fn written(base: &dyn TaskDir, task: usize, shared: bool, at: u64) -> Result<ReadWrite> {
    let (file, block) = (file_of(base, task, shared)?, block());
    file.write_at(at, &block[..])?;
    Ok(ReadWrite { file, at, block })
}

struct Append {
    file: Box<dyn TaskFile>,
    at: u64,
    block: Box<[u8; BLOCK as usize]>,
}

impl Task for Append {
    fn op(&mut self) -> Result<bool> {
        if self.at == MOST {
            self.file.truncate(0)?;
            self.at = 0;
        }
        self.file.write_at(self.at, &self.block[..])?;
        self.at += BLOCK;
        Ok(true)
    }
}

struct Overwrite {
    rw: ReadWrite,
    sync: bool,
}

impl Task for Overwrite {
    fn op(&mut self) -> Result<bool> {
        self.rw.file.write_at(self.rw.at, &self.rw.block[..])?;
        if self.sync {
            self.rw.file.fsync()?;
        }
        Ok(true)
    }
}

struct Truncate {
    file: Box<dyn TaskFile>,
    blocks: u64,
}

impl Task for Truncate {
    fn op(&mut self) -> Result<bool> {
        let Some(blocks) = self.blocks.checked_sub(1) else {
            return Ok(false);
        };
        self.blocks = blocks;
        self.file.truncate(blocks * BLOCK)?;
        Ok(true)
    }
}

struct Read(ReadWrite);

impl Task for Read {
    fn op(&mut self) -> Result<bool> {
        self.0.file.read_at(self.0.at, &mut self.0.block[..])?;
        Ok(true)
    }
}

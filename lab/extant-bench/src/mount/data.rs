//! Rows on data: each client has one file.

use super::Row;
use super::names::open;
use crate::runner::Task;
use crate::target::{Open, TaskFile};
use crate::tree::Noise;
use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const FILE: &str = "data";
const PAGE: usize = 4096;
const CHUNK: usize = 1 << 20;

/// Positions of pages: endless random ones, or each once.
struct Places {
    noise: Noise,
    pages: usize,
    left: Option<Vec<u32>>,
}

impl Places {
    fn of(size: u64, seed: usize, once: bool) -> Result<Self> {
        let pages = usize::try_from(size / PAGE as u64).context("the file's size")?;
        let all = u32::try_from(pages).context("the file's size")?;
        ensure!(pages > 0, "the file has no page");
        Ok(Self {
            noise: Noise::new(seed as u64),
            pages,
            left: once.then(|| (0..all).collect()),
        })
    }

    fn next(&mut self) -> Option<u64> {
        let page = match &mut self.left {
            None => self.noise.below(self.pages) as u64,
            Some(left) if left.is_empty() => return None,
            Some(left) => left.swap_remove(self.noise.below(left.len())).into(),
        };
        Some(page * PAGE as u64)
    }
}

struct Read {
    file: Box<dyn TaskFile>,
    places: Places,
    page: Box<[u8; PAGE]>,
}

impl Task for Read {
    fn op(&mut self) -> Result<bool> {
        let Some(at) = self.places.next() else {
            return Ok(false);
        };
        let read = self.file.read_at(at, &mut self.page[..])?;
        ensure!(read == PAGE, "{read} bytes read of a page");
        Ok(true)
    }
}

struct Write {
    file: Box<dyn TaskFile>,
    places: Places,
    page: Box<[u8; PAGE]>,
}

impl Task for Write {
    fn op(&mut self) -> Result<bool> {
        let at = self.places.next().unwrap_or(0);
        self.file.write_at(at, &self.page[..])?;
        Ok(true)
    }
}

/// Direct I/O, which needs page-aligned memory.
struct Direct {
    file: File,
    writes: bool,
    places: Places,
    room: Vec<u8>,
}

impl Task for Direct {
    fn op(&mut self) -> Result<bool> {
        let at = self.places.next().unwrap_or(0);
        let start = self.room.as_ptr().align_offset(PAGE);
        let page = self.room.get_mut(start..start + PAGE).context("a page")?;
        if self.writes {
            self.file.write_all_at(page, at)?;
        } else {
            self.file.read_exact_at(page, at)?;
        }
        Ok(true)
    }
}

/// Reads or writes a whole file once.
struct Stream {
    file: Box<dyn TaskFile>,
    size: u64,
    writes: bool,
    chunk: Vec<u8>,
    done: bool,
}

impl Task for Stream {
    fn op(&mut self) -> Result<bool> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(false);
        }
        let mut at = 0;
        while at < self.size {
            let len = (self.size - at).min(CHUNK as u64) as usize;
            if self.writes {
                self.file.write_at(at, &self.chunk[..len])?;
                at += len as u64;
            } else {
                let read = self.file.read_at(at, &mut self.chunk[..len])?;
                ensure!(read > 0, "the file ends at {at}");
                at += read as u64;
            }
        }
        if self.writes {
            self.file.fsync()?;
        }
        Ok(true)
    }
}

/// Appends a page and makes it durable.
struct Append {
    file: Box<dyn TaskFile>,
    end: u64,
    page: Box<[u8; PAGE]>,
}

impl Task for Append {
    fn op(&mut self) -> Result<bool> {
        self.file.write_at(self.end, &self.page[..])?;
        self.file.fsync()?;
        self.end += PAGE as u64;
        Ok(true)
    }
}

/// Makes a file of this size, which is cached afterwards.
pub(super) fn fill(dir: &Path, size: u64) -> Result<()> {
    let file = open(dir)?.open(FILE, Open::Create)?;
    let mut noise = Noise::new(1);
    let mut chunk = vec![0; CHUNK];
    noise.fill(&mut chunk);
    let mut at = 0;
    while at < size {
        let len = (size - at).min(CHUNK as u64) as usize;
        file.write_at(at, &chunk[..len])?;
        at += len as u64;
    }
    Ok(())
}

pub(super) fn task(row: Row, dir: &Path, size: u64, number: usize) -> Result<Box<dyn Task>> {
    let page = || Box::new([b'x'; PAGE]);
    let places = |once| Places::of(size, number, once);
    let dir_opened = open(dir)?;
    let file = |how| dir_opened.open(FILE, how);
    Ok(match row {
        Row::Read | Row::ReadCold => Box::new(Read {
            file: file(Open::Existing)?,
            places: places(row == Row::ReadCold)?,
            page: page(),
        }),
        Row::ReadDirect | Row::WriteDirect => Box::new(Direct {
            file: std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(OFlags::DIRECT.bits().cast_signed())
                .open(dir.join(FILE))
                .context("open it past the kernel's memory")?,
            writes: row == Row::WriteDirect,
            places: places(false)?,
            room: vec![b'x'; 2 * PAGE],
        }),
        Row::StreamRead | Row::StreamWrite => Box::new(Stream {
            file: file(match row {
                Row::StreamRead => Open::Existing,
                _ => Open::Create,
            })?,
            size,
            writes: row == Row::StreamWrite,
            chunk: vec![b'x'; CHUNK],
            done: false,
        }),
        Row::Fsync => Box::new(Append {
            file: file(Open::Create)?,
            end: 0,
            page: page(),
        }),
        _ => Box::new(Write {
            file: file(Open::Existing)?,
            places: places(false)?,
            page: page(),
        }),
    })
}

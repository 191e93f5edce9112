//! Defragmentation of files on mounts of Linux' own ext4, by the kernel.

use crate::format::show::ShowPath;
use crate::mounts::online_files::{Met, below};
use anyhow::{Context, Result, bail, ensure};
use blockdev::host::{self, Move};
use blockdev::unnamed_file;
use extant_fuse::control::Fragments;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The magic number of ext2, ext3 and ext4 in `statfs`.
const EXT_MAGIC: u64 = 0xef53;
/// Blocks that one extent maps at most.
const LONGEST: u64 = 32_768;

/// Returns the mount point of a block device that Linux' ext4 has mounted.
pub fn mount_of_device(device: &Path) -> Option<PathBuf> {
    let meta = device.metadata().ok()?;
    if !meta.file_type().is_block_device() {
        return None;
    }
    let number = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    let mounts = fuse_server::mounts().ok()?;
    let is = |entry: &&fuse_server::Mounted| {
        entry.device == number && matches!(&*entry.kind, "ext2" | "ext3" | "ext4")
    };
    mounts
        .iter()
        .rev()
        .find(is)
        .map(|entry| entry.target.clone())
}

/// A file or directory on such a volume.
pub struct HostPath {
    /// Path of the file or directory.
    pub path: PathBuf,
    block_size: u64,
}

impl HostPath {
    /// Finds a path, or the mount of a block device. Returns `None` for other file systems.
    pub fn find(path: &Path) -> Result<Option<Self>> {
        let path = mount_of_device(path).unwrap_or_else(|| path.to_owned());
        let name = || path.shown();
        let found = rustix::fs::statfs(&path).with_context(name)?;
        if u64::try_from(found.f_type).ok() != Some(EXT_MAGIC) {
            return Ok(None);
        }
        let block_size = u64::try_from(found.f_bsize).unwrap_or(4096).max(1);
        let path = path.canonicalize().with_context(name)?;
        Ok(Some(Self { path, block_size }))
    }

    /// Lists the path and everything below it, in order, without other file systems.
    pub fn all(&self) -> Result<Vec<Met>> {
        below(&self.path)
    }

    /// Counts the extents of a regular file.
    pub fn fragments(&self, file: &Met) -> Result<Fragments> {
        let name = || file.path.shown();
        let opened = File::open(&file.path).with_context(name)?;
        let found = host::extents(&opened).with_context(name)?;
        let blocks = found.bytes.div_ceil(self.block_size);
        Ok(Fragments {
            extents: found.count,
            least: blocks.div_ceil(LONGEST).min(found.count),
            blocks,
            generation: 0,
        })
    }

    /// Moves a regular file into fewer extents, if free space allows.
    pub fn defragment(&self, file: &Met, found: &Fragments) -> Result<()> {
        if found.extents <= found.least {
            return Ok(());
        }
        self.moved(file, found).with_context(|| file.path.shown())
    }

    fn moved(&self, file: &Met, found: &Fragments) -> Result<()> {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).open(&file.path)?;
        let now = opened.metadata()?;
        ensure!(
            (now.dev(), now.ino()) == (file.meta.dev(), file.meta.ino()),
            "another file has this name now"
        );
        opened.sync_all()?;
        let dir = file.path.parent().unwrap_or(Path::new("/"));
        let donor = unnamed_file(dir)?;
        let ranges = self.data(&opened, now.len())?;
        for range in &ranges {
            let (at, len) = (
                range.first * self.block_size,
                range.blocks * self.block_size,
            );
            fallocate(&donor, FallocateFlags::empty(), at, len)?;
        }
        if host::extents(&donor)?.count >= found.extents {
            // The free blocks are not less fragmented.
            return Ok(());
        }
        for mut range in ranges {
            while range.blocks > 0 {
                let moved = host::move_extents(&opened, &donor, range)?;
                if moved == 0 {
                    bail!("the kernel moved nothing of it");
                }
                let moved = moved.min(range.blocks);
                range = Move {
                    first: range.first + moved,
                    blocks: range.blocks - moved,
                };
            }
        }
        Ok(opened.sync_all()?)
    }

    /// Returns the ranges of a file that hold data.
    fn data(&self, file: &File, len: u64) -> Result<Vec<Move>> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < len {
            let start = match seek(file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(e) => return Err(e.into()),
            };
            let end = seek(file, SeekFrom::Hole(start))?;
            let first = start / self.block_size;
            ranges.push(Move {
                first,
                blocks: end.div_ceil(self.block_size).saturating_sub(first),
            });
            at = end.max(start + 1);
        }
        Ok(ranges)
    }
}

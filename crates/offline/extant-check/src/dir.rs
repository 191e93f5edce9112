//! A directory, and the runs of its blocks.

use crate::mapping::Run;
use crate::report::FindingPlace;
use crate::state::Check;
use ext4_format::inode::flags;
use ext4_format::{BlockNr, InodeNr};
use std::sync::atomic::AtomicU32;

/// A directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) ino: InodeNr,
    pub(crate) generation: u32,
    pub(crate) flags: u32,
    /// Blocks that are mapped.
    pub(crate) blocks: u32,
    /// The directory with its name; 0 if no name was found.
    pub(crate) parent: AtomicU32,
    /// Inode number in its ".."; 0 if ".." is missing.
    pub(crate) dotdot: AtomicU32,
}

impl Directory {
    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Its blocks begin with an index.
    pub(crate) const fn is_indexed(&self) -> bool {
        self.has(flags::INDEX) && !self.has(flags::INLINE_DATA)
    }

    /// Several of its blocks may hold the same name.
    pub(crate) const fn has_names_in_blocks(&self) -> bool {
        self.blocks > 1 && !self.has(flags::INDEX) && !self.has(flags::INLINE_DATA)
    }

    /// Returns the seed of its blocks' checksums, if blocks have checksums.
    pub(crate) fn seed(&self, check: &Check<'_>) -> Option<u32> {
        check.volume.seed(self.ino, self.generation)
    }
}

/// A run of a directory's blocks, no longer than one read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryRun {
    /// The directory's inode.
    pub(crate) directory: u32,
    pub(crate) run: Run,
    /// Its names were checked before all inodes were known.
    pub(crate) early: bool,
}

impl DirectoryRun {
    pub(crate) const fn piece(&self) -> crate::volume::Piece {
        crate::volume::Piece {
            first: self.run.physical,
            blocks: self.run.len,
        }
    }

    /// Reads the run into `buf` and calls `work` with each of its blocks that can be read.
    pub(crate) fn read(
        &self,
        check: &Check<'_>,
        buf: &mut Vec<u8>,
        mut work: impl FnMut(u32, BlockNr, &[u8]),
    ) {
        let (volume, run) = (&check.volume, &self.run);
        buf.resize(run.len as usize * volume.block_size(), 0);
        let whole = volume.read_into(run.physical, buf).is_ok();
        let blocks = buf.chunks_exact_mut(volume.block_size());
        for (n, bytes) in (0u32..).zip(blocks) {
            let at = BlockNr(run.physical.0 + u64::from(n));
            let place = FindingPlace::inode(InodeNr(self.directory));
            if whole || volume.read_or_tell(at, bytes, place, &check.findings) {
                work(run.logical.saturating_add(n), at, bytes);
            }
        }
    }
}

//! The journal: jbd2 on disk. Images and revokes of one context become one transaction. Recovery and the checkpoint are
//! here too. Without a journal the images are written home at once.
//!
//! The writes of a commit, in order, and the reason why a cut anywhere is harmless:
//! 1. Data of the context's files has been written by write-back before the context was closed.
//! 2. Revoke blocks, descriptor blocks, images; the journal's superblock if the log was empty. A cut
//!    here leaves a log that ends before this transaction: no valid commit block carries its number.
//! 3. Flush: data and images are on the medium.
//! 4. The commit block. Its checksum (or, without checksums, its single sector) shows if it is torn.
//! 5. Flush: the transaction is durable; only now are waiting callers answered.
//!
//! Steps 3 to 5 are a separate stage ([`commit_stage`]), so that the next transaction is logged meanwhile.
//!
//! The checkpoint ([`home`]) writes only images of durable transactions, flushes, and only then moves the log's tail.

mod body;
pub mod commit_stage;
pub mod home;
pub mod recovery;

use crate::base::error::{Error, Result};
use crate::base::invariants::insist;
use crate::base::planted::{self, Fault};
use crate::commit::Committer;
use blockdev::BlockDevice;
use body::Body;
use commit_stage::{CommitBlock, Logged};
use ext4_format::features::Features;
use ext4_format::jbd2::{Commit, FastPiece, FastWriter, Format, Superblock, Tid};
use ext4_format::{BlockNr, FormatError, Where};
use extant_formatter::Output;
use extant_formatter::extent_map::{ExtentMap, Found, Run};
use extant_formatter::image::Image;
use std::sync::Arc;

/// The destination of metadata images.
pub enum Writer {
    /// Into the journal first.
    Journal(Box<Journal>),
    /// Straight home.
    Direct,
}

impl Writer {
    /// Logs a formatted batch up to the point where only a flush, or a flush and a commit block, is missing.
    /// `completes` is the context whose last part the batch is.
    pub(in crate::commit) fn log(
        &mut self,
        engine: &Committer,
        output: &Output,
        completes: Option<u64>,
    ) -> Result<()> {
        let _span = lockmeter::span!("write to the journal");
        insist!(!engine.store.gate.is_shut(), FrozenIsStill, "a push");
        let (device, size) = (&*engine.store.device, engine.store.geometry.block_size);
        for &run in &output.zeroed {
            home::zero(device, size, run)?;
        }
        let commit = match self {
            Self::Journal(journal) => journal.log(engine, &output.blocks, &output.revoked)?,
            Self::Direct => {
                home::write_home(engine, &output.blocks)?;
                None
            }
        };
        // A flush beyond this mark covers all writes until now.
        let written = engine.store.flushes.mark();
        engine.commit_stage.add(Logged {
            commit,
            completes,
            written,
        });
        Ok(())
    }

    /// Writes every dirty image home and empties the log. The caller holds the formatter's lock too, so
    /// every published image is durable.
    pub(crate) fn checkpoint(&mut self, engine: &Committer) -> Result<()> {
        let _span = lockmeter::span!("checkpoint");
        engine.commit_stage.finish(engine)?;
        match self {
            Self::Journal(journal) => journal.empty_log(engine, true),
            Self::Direct => Ok(()),
        }
    }

    /// Marks the empty log of a volume that is closed or frozen.
    pub(in crate::commit) fn close(&mut self, engine: &Committer) -> Result<()> {
        match self {
            Self::Journal(journal) => journal.close(engine),
            Self::Direct => Ok(()),
        }
    }

    /// Returns the journal, if fast commits may continue its log.
    pub(in crate::commit) fn fast(&mut self) -> Option<&mut Journal> {
        match self {
            Self::Journal(journal) => Some(journal)
                .filter(|journal| journal.fast)
                .map(|j| &mut **j),
            Self::Direct => None,
        }
    }

    /// Returns true when the log is half full. Then the next push writes home first, while it knows that all published
    /// images are durable.
    pub(in crate::commit) fn wants_checkpoint(&self) -> bool {
        match self {
            Self::Journal(journal) => {
                journal.used as usize > journal.superblock.log_range().len() / 2
            }
            Self::Direct => false,
        }
    }
}

/// The journal's own blocks on the device.
pub struct LogArea {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    map: ExtentMap,
}

impl LogArea {
    /// Makes the area that an inode's mapping describes.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: u32, map: ExtentMap) -> Self {
        Self {
            device,
            block_size,
            map,
        }
    }

    /// Returns the physical place of a log block, and the number of blocks that follow it without a gap.
    fn locate(&self, block: u32) -> Result<(BlockNr, u32)> {
        match self.map.at(block) {
            Found::Mapped(run) => Ok((run.physical, run.len)),
            Found::Hole(_) => {
                Err(FormatError::corrupt("hole in the journal", Where::Journal(block)).into())
            }
        }
    }

    /// Fails unless the area has all blocks that the journal's superblock counts, inside the inode's size.
    pub fn check(&self, max_len: u32, size: u64) -> Result<()> {
        if u64::from(max_len) > size / u64::from(self.block_size.max(1)) {
            let at = Where::Journal(0);
            return Err(FormatError::corrupt("journal longer than its inode", at).into());
        }
        let mut at = 0;
        while at < max_len {
            at = at.saturating_add(self.locate(at)?.1.max(1));
        }
        Ok(())
    }

    /// Returns the area's blocks as ranges: start, and one past the end.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let range = |run: &Run| (run.physical.0, run.physical.0 + u64::from(run.len));
        self.map.iter().map(range).collect()
    }

    /// Reads one log block.
    pub fn read(&self, block: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_size as usize];
        let (physical, _) = self.locate(block)?;
        self.device
            .read_at(physical.offset(self.block_size), &mut bytes)
            .map_err(|source| Error::Io {
                context: format!("read journal block {block}"),
                source,
            })?;
        Ok(bytes)
    }

    /// Writes the journal's superblock.
    fn write_superblock(&self, superblock: &Superblock) -> Result<()> {
        let mut block = self.read(0)?;
        superblock.write(&mut block)?;
        self.write(0, &[&block])
    }

    /// Writes a part of one log block.
    pub(in crate::commit) fn write_piece(&self, piece: &FastPiece) -> Result<()> {
        let (physical, _) = self.locate(piece.block)?;
        let at = physical.offset(self.block_size) + piece.offset as u64;
        let written = self.device.write_at(at, &piece.bytes);
        written.map_err(|source| write_failed(piece.block, source))
    }

    /// Writes neighbouring log blocks.
    pub(in crate::commit) fn write(&self, mut block: u32, mut images: &[&[u8]]) -> Result<()> {
        while !images.is_empty() {
            let (physical, run) = self.locate(block)?;
            let n = images.len().min(run as usize);
            self.device
                .write_vectored_at(physical.offset(self.block_size), &images[..n])
                .map_err(|source| write_failed(block, source))?;
            images = &images[n..];
            block += n as u32;
        }
        Ok(())
    }
}

fn write_failed(block: u32, source: std::io::Error) -> Error {
    Error::Io {
        context: format!("write journal block {block}"),
        source,
    }
}

/// Returns the commit block of a transaction, with the present time.
fn commit_block(format: &Format, tid: Tid) -> Result<Vec<u8>> {
    let now = crate::base::now();
    let mut block = vec![0; format.block_size as usize];
    let commit = Commit {
        tid,
        secs: u64::try_from(now.secs()).unwrap_or(0),
        nanos: now.nanos(),
        transaction_crc: None,
    };
    commit.write(format, &mut block)?;
    Ok(block)
}

/// Number of the log's first blocks that are used one after the other before an empty log restarts at its first block.
const FIRST_PART: u32 = 1024;

/// Returns the first block for an empty log: the one after the last transaction, so that a search for deleted files
/// finds older records. Beyond the first part of the log it is the log's first block, so that small transactions do not
/// allocate all of the journal of a sparse image.
fn next_start(superblock: &Superblock, head: u32) -> u32 {
    let log = superblock.log_range();
    let part = (log.len() as u32 / 4).min(FIRST_PART);
    if (log.start..log.start.saturating_add(part)).contains(&head) {
        head
    } else {
        log.start
    }
}

/// An open journal.
pub struct Journal {
    area: Arc<LogArea>,
    superblock: Superblock,
    format: Format,
    /// Next log block to write.
    head: u32,
    /// Log blocks in use.
    used: u32,
    next: Tid,
    /// Fast commits may continue the log.
    fast: bool,
}

impl Journal {
    /// Starts a journal that has been recovered (or was clean) and whose log is empty.
    pub fn start(
        area: Arc<LogArea>,
        mut superblock: Superblock,
        features: &Features,
    ) -> Result<Self> {
        let metadata_csum = features.has_metadata_csum();
        let wanted = Superblock::default_features(features.has_64bit(), metadata_csum);
        superblock.v2 = true;
        superblock.features.incompat |= wanted.incompat;
        if metadata_csum {
            // A journal has one kind of checksum only: the volume's metadata decides.
            superblock.features = wanted;
        }
        superblock.start = 0;
        let fast = features.has_fast_commit() && superblock.set_fast_commits(true);
        if !fast {
            superblock.set_fast_commits(false);
        }
        let head = next_start(&superblock, superblock.head);
        let format = superblock.format();
        let next = superblock.sequence;
        Ok(Self {
            area,
            superblock,
            format,
            head,
            used: 0,
            next,
            fast,
        })
    }

    /// Returns the journal's blocks, and the first block of its area for fast commits, if these may continue its log.
    pub(in crate::commit) fn fast_area(&self) -> Option<(Arc<LogArea>, u32)> {
        let first = self.superblock.fast_commit_area().start;
        self.fast.then(|| (Arc::clone(&self.area), first))
    }

    /// Makes recovery look for fast commits, which it does only in a log that has a start. The start of an empty log is
    /// the place of its next transaction: no block there has that transaction's number.
    pub(in crate::commit) fn start_log(&mut self) -> Result<()> {
        if self.superblock.start != 0 {
            return Ok(());
        }
        self.superblock.start = self.head;
        self.superblock.sequence = self.next;
        self.write_superblock()
    }

    /// Returns the writer of the fast commits that continue the log. It replaces a writer for an earlier transaction.
    pub(in crate::commit) fn fast_writer<'w>(
        &self,
        known: &'w mut Option<FastWriter>,
    ) -> &'w mut FastWriter {
        let new = || {
            let unit = usize::try_from(self.area.device.write_unit()).unwrap_or(0);
            FastWriter::new(&self.superblock, self.next).with_unit(unit)
        };
        let writer = known.get_or_insert_with(new);
        if writer.tid() != self.next {
            *writer = new();
        }
        writer
    }

    /// Marks an empty log as one without fast commits, which older programs read.
    fn close(&mut self, engine: &Committer) -> Result<()> {
        if !self.fast || self.superblock.start == 0 {
            return Ok(());
        }
        insist!(
            self.used == 0,
            AllHomeBeforeEmpty,
            "{} blocks in the log",
            self.used
        );
        self.superblock.start = 0;
        let open = self.superblock.clone();
        self.superblock.set_fast_commits(false);
        let closed = self.write_superblock();
        self.superblock = open;
        closed?;
        engine.store.flush()
    }

    /// Returns the number of image blocks that one transaction can hold.
    pub fn capacity(&self) -> u64 {
        let log = self.superblock.log_range().len() as u64;
        let per_descriptor = self.format.tags_per_block().max(1) as u64;
        // Descriptors, one of them perhaps not full, and the commit block; revokes are not needed when the transaction
        // takes the whole log.
        (log.saturating_sub(2)) * per_descriptor / (per_descriptor + 1)
    }

    /// Returns the number of log blocks of a transaction with these numbers of images and revokes.
    fn need(&self, images: usize, revokes: usize) -> u32 {
        let revokes = revokes.div_ceil(self.format.revokes_per_block().max(1));
        let descriptors = images.div_ceil(self.format.tags_per_block().max(1));
        u32::try_from(revokes + descriptors + images + 1).unwrap_or(u32::MAX)
    }

    fn write_superblock(&self) -> Result<()> {
        self.area.write_superblock(&self.superblock)
    }

    /// Writes a transaction into the log. Returns its commit block, which is not written yet, and the place of that
    /// block.
    fn log(
        &mut self,
        engine: &Committer,
        blocks: &[(BlockNr, Arc<Image>)],
        revoked: &[BlockNr],
    ) -> Result<Option<CommitBlock>> {
        if blocks.is_empty() && revoked.is_empty() {
            return Ok(None);
        }
        let (need, revoked) = self.make_room(engine, blocks.len(), revoked)?;
        let tid = self.next;
        let start = self.head;
        let body = Body {
            area: &self.area,
            format: &self.format,
            log: self.superblock.log_range(),
            start,
            tid,
        };
        let commit_at = body.write(revoked, blocks)?;
        let starts = (self.superblock.start, self.superblock.sequence) == (start, tid);
        if self.used == 0 && !starts {
            self.superblock.start = start;
            self.superblock.sequence = tid;
            self.write_superblock()?;
        }
        let bytes = commit_block(&self.format, tid)?;
        let (first, len) = (
            self.superblock.log_range().start,
            self.superblock.log_range().len(),
        );
        let behind = (start - first) as usize + need as usize - 1;
        let place = first as usize + behind % len.max(1);
        insist!(
            commit_at as usize == place,
            CommitBehindItsBlocks,
            "{commit_at}, not {place}"
        );
        self.head = self.superblock.next_block(commit_at);
        insist!(
            self.superblock.log_range().contains(&self.head),
            LogHeadInside,
            "block {}",
            self.head
        );
        self.used += need;
        insist!(
            self.used as usize <= len,
            LogHasRoom,
            "{} blocks of {len}",
            self.used
        );
        engine.totals.logged(need, self.used);
        self.next = tid.next();
        Ok(Some(CommitBlock {
            tid,
            at: commit_at,
            bytes,
        }))
    }

    /// Makes room in the log for a transaction of this number of images. Returns the number of blocks that the
    /// transaction takes there, and the blocks that it has to revoke.
    fn make_room<'r>(
        &mut self,
        engine: &Committer,
        images: usize,
        revoked: &'r [BlockNr],
    ) -> Result<(u32, &'r [BlockNr])> {
        let len = self.superblock.log_range().len() as u32;
        let mut need = self.need(images, revoked.len());
        if need > len - self.used {
            engine.commit_stage.finish(engine)?;
            // The images here and those of the context that is being formatted are not durable yet.
            self.empty_log(engine, false)?;
        }
        // An empty log has nothing to revoke.
        let revoked = if self.used == 0 || planted::is(Fault::NoRevoke) {
            &[]
        } else {
            revoked
        };
        if self.used == 0 {
            need = self.need(images, 0);
        }
        if need > len - self.used {
            return Err(Error::Stopped(format!(
                "a checkpoint of {} blocks does not fit the journal of {} blocks",
                images, len
            )));
        }
        Ok((need, revoked))
    }

    fn empty_log(&mut self, engine: &Committer, all_durable: bool) -> Result<()> {
        if self.used == 0 {
            return Ok(());
        }
        home::write_durable(engine, &self.area, engine.log.durable(), all_durable)?;
        let dirty = engine.store.buffers.dirty_count();
        insist!(
            !all_durable || dirty == 0,
            AllHomeBeforeEmpty,
            "{dirty} images are not"
        );
        let written = engine.store.flushes.mark();
        engine.store.flush()?;
        insist!(
            engine.store.flushes.is_covered(written),
            FlushBeforeEmpty,
            "mark {written}"
        );
        self.head = next_start(&self.superblock, self.head);
        // Fast commits that are durable and not formatted continue the empty log.
        self.superblock.start = if self.fast && !planted::is(Fault::FastCommitsForgotten) {
            self.head
        } else {
            0
        };
        self.superblock.head = self.head;
        self.superblock.sequence = self.next;
        self.write_superblock()?;
        engine.store.flush()?;
        self.used = 0;
        engine.totals.emptied();
        Ok(())
    }
}

//! The images that a journal must write home after a crash.
//!
//! One walk from the log's start collects, transaction by transaction, the images and revokes up to the last
//! transaction with a commit block. Then revokes cancel images of the same or an older transaction, and the remaining
//! images, in order, are the [`Plan`]. Nothing is written here and nothing is kept between calls: the same log gives
//! the same plan.
//!
//! These rules separate the end of the log from damage:
//! - A block that is not of the expected transaction ends the log, as does a commit block with a wrong checksum that
//!   no good one follows. A crash leaves such blocks.
//! - A commit block with a wrong checksum in front of a good one of a later transaction is damage. A missing commit
//!   block is not damage, because commit blocks that are written together may reach the medium in any order.
//! - A wrong checksum or an impossible value in front of a *good* commit block is damage, as a commit block is
//!   written only when everything before it is on the disk. It is an error, unless the journal commits
//!   asynchronously, or the commit is older than the one before it (a leftover of an earlier use of the journal).

use super::commit::crc32_be;
use super::descriptor::TagFlags;
use super::features::Incompat;
use super::{BlockType, Checksums, Commit, Format, Superblock, Tid, fast_commit, header};
use crate::error::{FormatError, Result, Where};
use crate::types::BlockNr;
use std::collections::HashMap;

/// An image to write home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Its place in the volume.
    pub home: BlockNr,
    /// Its place in the log: a block of the journal, counted from its start.
    pub log_block: u32,
    /// Its first four bytes must be restored ([`unescape`](super::unescape)).
    pub escaped: bool,
    /// The transaction it is from.
    pub tid: Tid,
}

/// Why the walk stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// The log is empty according to the superblock.
    Clean,
    /// This block is not of the transaction expected there.
    Other(u32),
    /// The commit block here has a wrong checksum.
    BadCommit(u32),
    /// The transaction whose commit block is here is not whole (asynchronous commit, v1 checksums).
    Torn(u32),
    /// The commit block here is older than the one before it.
    Stale(u32),
    /// A block of the transaction whose commit block is here is damaged, or the commit block itself.
    Damaged(u32),
    /// Every block of the log was walked.
    Full,
}

/// The images to replay, and the state in which to continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Images to write home in this order; a later one of the same block wins.
    pub replay: Vec<Replay>,
    /// Transactions found committed.
    pub transactions: u32,
    /// Images struck out by revokes.
    pub revoked: u32,
    /// The last transaction committed.
    pub last: Option<Tid>,
    /// The number for the first new transaction. It is higher than that of any transaction behind the log's end, so
    /// that none of those can ever seem to continue a new one.
    pub next: Tid,
    /// Block of the log behind the last transaction.
    pub head: u32,
    /// Why the walk stopped.
    pub end: LogEnd,
    /// Transaction of the fast commits, if any: their [changes](super::fast_changes) must be applied after the
    /// replay, before all other changes.
    pub fast_commits: Option<Tid>,
}

/// Reads a log and returns the plan of its replay. `blocks_count` is the volume's; `read` gives a
/// block of the journal.
///
/// # Errors
/// Errors of `read`; `Corrupt` or `Checksum` for damage before a good commit block.
///
/// ```
/// use ext4_format::{FormatError, jbd2::{Features, Superblock, plan}};
/// let sb = Superblock::new(4096, 1024, Features::default(), [0; 16]);
/// let plan = plan(&sb, 1 << 20, |_| Ok::<_, FormatError>(vec![0; 4096]))?;
/// assert!(plan.replay.is_empty());
/// # Ok::<(), FormatError>(())
/// ```
pub fn plan<E, F>(sb: &Superblock, blocks_count: u64, read: F) -> Result<Plan, E>
where
    E: From<FormatError>,
    F: FnMut(u32) -> Result<Vec<u8>, E>,
{
    let mut walk = Walk::new(sb, blocks_count, read);
    let end = walk.run()?;
    walk.finish(end)
}

/// Sound part of a damaged log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvage {
    /// The images that are sound.
    pub plan: Plan,
    /// Damage found. An image with a wrong checksum is left out; other damage ends the log before its transaction.
    pub damage: Vec<FormatError>,
}

/// Reads a log as [`plan`] does, for a repair: damage leaves out as little as possible.
///
/// # Errors
/// Errors of `read`.
///
/// ```
/// use ext4_format::{FormatError, jbd2::{Features, Superblock, salvage}};
/// let sb = Superblock::new(4096, 1024, Features::default(), [0; 16]);
/// let found = salvage(&sb, 1 << 20, |_| Ok::<_, FormatError>(vec![0; 4096]))?;
/// assert!(found.damage.is_empty());
/// # Ok::<(), FormatError>(())
/// ```
pub fn salvage<E, F>(sb: &Superblock, blocks_count: u64, read: F) -> Result<Salvage, E>
where
    E: From<FormatError>,
    F: FnMut(u32) -> Result<Vec<u8>, E>,
{
    let mut walk = Walk::new(sb, blocks_count, read);
    walk.damage = Some(Vec::new());
    let end = walk.run()?;
    let damage = walk.damage.take().unwrap_or_default();
    Ok(Salvage {
        plan: walk.finish(end)?,
        damage,
    })
}

/// The collected records of one transaction.
#[derive(Default)]
struct Transaction {
    images: Vec<Replay>,
    revokes: Vec<BlockNr>,
    /// The first thing wrong with it; counts only if it is committed.
    fault: Option<FormatError>,
    /// Images that are left out, and why.
    left_out: Vec<FormatError>,
    /// v1 checksum.
    crc: u32,
}

impl Transaction {
    fn new() -> Self {
        Self {
            crc: !0,
            ..Self::default()
        }
    }

    fn blame(&mut self, fault: FormatError) {
        self.fault.get_or_insert(fault);
    }
}

struct Walk<'a, F> {
    sb: &'a Superblock,
    format: Format,
    blocks_count: u64,
    read: F,
    /// The block to read next and how many were taken.
    at: u32,
    walked: u32,
    tid: Tid,
    open: Transaction,
    /// Images of committed transactions.
    images: Vec<Replay>,
    revokes: HashMap<BlockNr, Tid>,
    transactions: u32,
    head: u32,
    commit_time: (u64, u32),
    /// Damage that was left out; `None` where it is an error.
    damage: Option<Vec<FormatError>>,
}

impl<'a, E, F> Walk<'a, F>
where
    E: From<FormatError>,
    F: FnMut(u32) -> Result<Vec<u8>, E>,
{
    fn new(sb: &'a Superblock, blocks_count: u64, read: F) -> Self {
        Self {
            sb,
            format: sb.format(),
            blocks_count,
            read,
            at: sb.start,
            walked: 0,
            tid: sb.sequence,
            open: Transaction::new(),
            images: Vec::new(),
            revokes: HashMap::new(),
            transactions: 0,
            head: if sb.is_clean() { sb.first } else { sb.start },
            commit_time: (0, 0),
            damage: None,
        }
    }

    fn run(&mut self) -> Result<LogEnd, E> {
        if self.sb.is_clean() {
            return Ok(LogEnd::Clean);
        }
        while let Some(at) = self.take() {
            let block = self.block(at)?;
            match header(&block) {
                Some((BlockType::Descriptor, tid)) if tid == self.tid => {
                    self.descriptor(at, &block)?
                }
                Some((BlockType::Revoke, tid)) if tid == self.tid => self.revoke(at, &block),
                Some((BlockType::Commit, tid)) if tid == self.tid => {
                    if let Some(end) = self.commit(at, &block)? {
                        return Ok(end);
                    }
                }
                _ => return Ok(LogEnd::Other(at)),
            }
        }
        Ok(LogEnd::Full)
    }

    /// Returns the next block of the ring, unless all were taken.
    fn take(&mut self) -> Option<u32> {
        if self.walked as usize >= self.sb.log_range().len() {
            return None;
        }
        self.walked += 1;
        let at = self.at;
        self.at = self.sb.next_block(at);
        Some(at)
    }

    fn block(&mut self, at: u32) -> Result<Vec<u8>, E> {
        let block = (self.read)(at)?;
        if block.len() == self.format.block_size as usize {
            Ok(block)
        } else {
            Err(FormatError::corrupt("journal block length", Where::Journal(at)).into())
        }
    }

    fn descriptor(&mut self, at: u32, block: &[u8]) -> Result<(), E> {
        let place = Where::Journal(at);
        if let Err(e) = self.format.verify_tail(block) {
            self.open.blame(e.at(place));
        }
        if self.format.checksums == Checksums::V1 {
            self.open.crc = crc32_be(self.open.crc, block);
        }
        let tags = match self.format.tags(block) {
            Ok(tags) => tags,
            Err(e) => {
                self.open.blame(e.at(place));
                return Ok(());
            }
        };
        for tag in tags {
            let Some(log_block) = self.take() else { break };
            let mut wrong = None;
            if tag.home.0 >= self.blocks_count {
                wrong = Some(FormatError::corrupt("journal tag beyond the volume", place));
            }
            if self.format.checksums != Checksums::None {
                let image = self.block(log_block)?;
                if self.format.checksums == Checksums::V1 {
                    self.open.crc = crc32_be(self.open.crc, &image);
                } else {
                    let (stored, computed) =
                        (tag.checksum, self.format.image_checksum(self.tid, &image));
                    if stored != computed {
                        let at = Where::Journal(log_block);
                        let what = "journal image";
                        wrong = Some(FormatError::Checksum {
                            what,
                            at,
                            stored,
                            computed,
                        });
                    }
                }
            }
            if let Some(wrong) = wrong {
                match self.damage {
                    Some(_) => self.open.left_out.push(wrong),
                    None => self.open.blame(wrong),
                }
                continue;
            }
            let escaped = tag.flags.contains(TagFlags::ESCAPE);
            self.open.images.push(Replay {
                home: tag.home,
                log_block,
                escaped,
                tid: self.tid,
            });
        }
        Ok(())
    }

    fn revoke(&mut self, at: u32, block: &[u8]) {
        let list = self
            .format
            .verify_tail(block)
            .and_then(|()| self.format.revokes(block));
        match list {
            Ok(blocks) => self.open.revokes.extend(blocks),
            Err(e) => self.open.blame(e.at(Where::Journal(at))),
        }
    }

    /// Closes the open transaction, or says why the log ends before it.
    fn commit(&mut self, at: u32, block: &[u8]) -> Result<Option<LogEnd>, E> {
        if let Err(wrong) = Commit::verify(&self.format, block) {
            return if self.is_continued()? {
                self.damaged(at, wrong.at(Where::Journal(at)))
            } else {
                Ok(Some(LogEnd::BadCommit(at)))
            };
        }
        let commit = Commit::parse(&self.format, block).map_err(|e| e.at(Where::Journal(at)))?;
        let open = core::mem::replace(&mut self.open, Transaction::new());
        let time = (commit.secs, commit.nanos);
        if open.fault.is_some() || !open.left_out.is_empty() {
            if time < self.commit_time {
                return Ok(Some(LogEnd::Stale(at)));
            } else if self.sb.features.incompat.contains(Incompat::ASYNC_COMMIT) {
                return Ok(Some(LogEnd::Torn(at)));
            }
        }
        if let Some(fault) = open.fault {
            return self.damaged(at, fault);
        }
        if let Some(damage) = &mut self.damage {
            damage.extend(open.left_out);
        }
        if commit.transaction_crc.is_some_and(|crc| crc != open.crc) {
            return Ok(Some(LogEnd::Torn(at)));
        }
        self.images.extend(open.images);
        for block in open.revokes {
            let tid = self.tid;
            // Later transactions come later: the last one stays.
            self.revokes.insert(block, tid);
        }
        self.transactions += 1;
        self.commit_time = time;
        self.tid = self.tid.next();
        self.head = self.at;
        Ok(None)
    }

    /// Ends the log before a damaged transaction, or fails if damage is an error.
    fn damaged(&mut self, at: u32, fault: FormatError) -> Result<Option<LogEnd>, E> {
        match &mut self.damage {
            Some(damage) => {
                damage.push(fault);
                Ok(Some(LogEnd::Damaged(at)))
            }
            None => Err(fault.into()),
        }
    }

    /// Returns whether a committed transaction follows the one whose commit block was just read. The content of a
    /// commit block is one sector, which a power cut leaves old or new. So a wrong block of this transaction,
    /// followed by good ones, was written whole and then damaged.
    fn is_continued(&mut self) -> Result<bool, E> {
        let (mut at, mut walked, mut tid) = (self.at, self.walked as usize, self.tid.next());
        let log = self.sb.log_range().len();
        while walked < log {
            let block = self.block(at)?;
            let mut skip = 1;
            match header(&block) {
                Some((BlockType::Descriptor, found)) if found == tid => {
                    let Ok(tags) = self.format.tags(&block) else {
                        return Ok(false);
                    };
                    skip += tags.len();
                }
                Some((BlockType::Revoke, found)) if found == tid => {}
                Some((BlockType::Commit, found)) if found == tid => {
                    if Commit::verify(&self.format, &block).is_ok() {
                        return Ok(true);
                    }
                    tid = tid.next();
                }
                _ => return Ok(false),
            }
            for _ in 0..skip.min(log) {
                at = self.sb.next_block(at);
            }
            walked += skip;
        }
        Ok(false)
    }

    /// Returns whether fast commits continue the last transaction of a log that is not empty.
    fn has_fast_commits(&mut self, end: LogEnd) -> Result<bool, E> {
        let area = self.sb.fast_commit_area();
        if end == LogEnd::Clean || area.is_empty() {
            return Ok(false);
        }
        let block = self.block(area.start)?;
        Ok(fast_commit::begins(&block, self.tid))
    }

    fn finish(mut self, end: LogEnd) -> Result<Plan, E> {
        let fast_commits = self.has_fast_commits(end)?.then_some(self.tid);
        let Self {
            mut images,
            revokes,
            transactions,
            ..
        } = self;
        let found = images.len();
        images.retain(|r| revokes.get(&r.home).is_none_or(|by| by.is_before(r.tid)));
        Ok(Plan {
            revoked: (found - images.len()) as u32,
            replay: images,
            transactions,
            last: (transactions > 0).then(|| Tid(self.tid.0.wrapping_sub(1))),
            // Each transaction takes two blocks of the log or more.
            next: Tid(self.tid.0.wrapping_add(self.sb.max_len.max(1))),
            head: self.head,
            end,
            fast_commits,
        })
    }
}

#[cfg(test)]
mod tests;

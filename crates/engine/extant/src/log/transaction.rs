//! The transaction of one operation: opened with a reservation before any lock, committed under the locks.

use crate::base::invariants::Rule;
use crate::base::planted::{self, Fault};
use crate::log::Log;
use crate::types::dentry::Dentry;
use ext4_format::timestamp::Timestamp;
use ext4_format::{BlockNr, InodeNr};
use extant_formatter::extent_map::Run;
use extant_formatter::item::*;

/// Commits of one slot in one context after which a push is requested, so that item lists stay bounded however large
/// the journal is.
const PUSH_AFTER: u64 = 1 << 19;

/// The most that an operation may need, known before it starts.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Blocks that the formatter may have to allocate for it (leaf and index blocks, extent blocks, attribute block).
    pub meta_blocks: u32,
}

impl Cost {
    /// A name is added: a leaf may split, and the index above it.
    pub const NAME: Self = Self { meta_blocks: 2 };
    /// A directory is made: its first block, and its name.
    pub const DIRECTORY: Self = Self { meta_blocks: 3 };
    /// Attributes are set: their block.
    pub const XATTR: Self = Self { meta_blocks: 1 };
    /// Part of a mapping changes: an extent is split in two, or an indirect path appears.
    pub const MAP: Self = Self { meta_blocks: 4 };

    /// Adds both costs.
    pub const fn and(self, other: Self) -> Self {
        Self {
            meta_blocks: self.meta_blocks + other.meta_blocks,
        }
    }

    /// Multiplies this cost by `n`.
    pub const fn times(self, n: u32) -> Self {
        Self {
            meta_blocks: self.meta_blocks * n,
        }
    }
}

/// An open transaction. Dropped without a commit, it returns its reservation.
pub struct Transaction<'a> {
    pub(crate) log: &'a Log,
    pub(crate) reserved: u32,
}

/// A commit in progress, into which an operation logs its items.
pub struct Commit<'a> {
    /// The context of the items.
    pub context: u64,
    /// The order of this commit among all that share a locked object with it.
    pub stamp: Stamp,
    /// The slot whose list takes them.
    pub(super) slot: percpu::SlotId,
    /// The stamp of that slot's previous commit.
    pub(super) before: Stamp,
    pub(super) log: &'a Log,
    pub(super) list: &'a mut ItemList,
    /// Items logged.
    items: u64,
    /// Items of the previous commit were changed, and none added.
    pub(super) in_place: bool,
    /// Blocks reserved for the formatter.
    pub(crate) reserved: u32,
}

impl Transaction<'_> {
    /// Commits. `seen` is the greatest stamp among the locked objects; `say` logs the items and puts
    /// [`Commit::stamp`] into those objects, whose locks the caller holds.
    #[inline(always)]
    pub fn commit<R>(mut self, seen: Stamp, say: impl FnOnce(&mut Commit<'_>) -> R) -> R {
        crate::base::jitter::point();
        let log = self.log;
        let reserved = std::mem::take(&mut self.reserved);
        let slot = percpu::slot::current();
        log.lists.commit_on(
            slot,
            #[inline(always)]
            |context, clock, list| {
                let before = *clock;
                let stamp = percpu::stamp(clock, seen);
                let mut commit = Commit {
                    log,
                    context,
                    stamp,
                    slot,
                    before,
                    list,
                    items: 0,
                    in_place: false,
                    reserved,
                };
                let answer = say(&mut commit);
                let (need, reserved, in_place) = (commit.items, commit.reserved, commit.in_place);
                list.commits += 1;
                if in_place {
                    // The previous commit has reserved the same space.
                    if reserved > 0 {
                        log.space.counts.give(u64::from(reserved));
                    }
                } else {
                    list.reserved_blocks += u64::from(reserved);
                    list.added += 1;
                    if list.added % PUSH_AFTER == 0 {
                        log.wakeup.wake();
                    }
                }
                if list.credits < need {
                    log.draw_credits(context, list, need);
                }
                list.credits = list.credits.saturating_sub(need);
                answer
            },
        )
    }
}

impl Log {
    /// Draws credits for a commit that needs more than its list has.
    #[cold]
    #[inline(never)]
    fn draw_credits(&self, context: u64, list: &mut ItemList, need: u64) {
        let used = list.len() as u64;
        list.credits += self.budget.draw(context, need - list.credits, used);
        // A slot's first commit of a context draws.
        self.store.unsynced.logged.note();
        self.store
            .insist(list.credits >= need, Rule::CreditsCover, || {
                format!("{need} of {}", list.credits)
            });
    }
}

impl Drop for Transaction<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.reserved > 0 {
            self.log.space.counts.give(u64::from(self.reserved));
        }
    }
}

impl Commit<'_> {
    /// Reserves further blocks that the transaction did not foresee. They cannot be refused at this point.
    pub fn reserve_late(&mut self, cost: Cost) {
        self.reserved += cost.meta_blocks;
        self.log
            .space
            .counts
            .account(0, u64::from(cost.meta_blocks));
    }

    /// Logs the core of an inode.
    #[inline(always)]
    pub fn inode(&mut self, ino: InodeNr, event: InodeEvent, core: ext4_format::inode::InodeCore) {
        self.items += 1;
        if event != InodeEvent::Update {
            // The geometry from before a growth of the volume answers for most blocks.
            let geometry = self.log.store.geometry.first();
            if !(geometry.first_ino..=geometry.inodes_count).contains(&ino.0) {
                self.check_number(ino);
            }
        }
        let item = InodeItem {
            ino,
            event,
            stamp: self.stamp,
            core,
        };
        self.list.inodes.push_in(item, &self.log.spare.inodes);
    }

    /// Checks that a number that is not of the first geometry is of the newest.
    #[cold]
    #[inline(never)]
    fn check_number(&self, ino: InodeNr) {
        let geometry = self.log.store.geometry.newest();
        let inside = (geometry.first_ino..=geometry.inodes_count).contains(&ino.0);
        self.log
            .store
            .insist(inside, Rule::NumberInRange, || format!("inode {ino}"));
    }

    /// Logs an event of a name, which changes its directory's number of subdirectories by `links`. `bucket` is the
    /// stamp of the name's bucket.
    #[inline(always)]
    pub fn log_name(
        &mut self,
        dir: InodeNr,
        bucket: &mut Stamp,
        entry: Dentry,
        what: (NameEvent, i8),
        time: Timestamp,
    ) {
        self.log_name_over(dir, bucket, (entry, InodeNr(0)), what, time);
    }

    /// Logs a name event that may take the name from another inode.
    #[inline(always)]
    pub fn log_name_over(
        &mut self,
        dir: InodeNr,
        bucket: &mut Stamp,
        (entry, replaced): (Dentry, InodeNr),
        (event, links): (NameEvent, i8),
        time: Timestamp,
    ) {
        self.items += 1;
        *bucket = self.stamp;
        let item = NameItem {
            dir,
            ino: entry.ino,
            replaced,
            event,
            hash: entry.hash.major,
            minor: entry.hash.minor,
            stamp: self.stamp,
            time,
            ftype: entry.ftype,
            links,
            name: entry.name,
        };
        self.list.names.push_in(item, &self.log.spare.names);
    }

    /// Logs that a run of a file is mapped; with `allocated`, also that its blocks were taken for it.
    pub fn map_run(&mut self, ino: InodeNr, run: Run, allocated: bool) {
        let end = run.physical.0.checked_add(run.len.into());
        // Block 0 stands for a hole, of any length.
        let inside = run.physical.0 == 0
            || end.is_some_and(|end| end <= self.log.store.geometry.blocks_count);
        self.log.store.insist(inside, Rule::RunInVolume, || {
            format!("{run:?} of inode {ino}")
        });
        if allocated {
            self.log
                .store
                .insist(run.physical.0 > 0 && run.len > 0, Rule::RunIsMapped, || {
                    format!("{run:?} of inode {ino}")
                });
            self.bits(run.physical, run.len, true);
        }
        self.map(MapItem {
            ino,
            stamp: self.stamp,
            logical: run.logical,
            len: run.len,
            physical: run.physical,
            unwritten: run.unwritten,
        });
    }

    /// Logs a mapping.
    pub fn map(&mut self, item: MapItem) {
        self.items += 1;
        let item = MapItem {
            stamp: self.stamp,
            ..item
        };
        self.list.maps.push_in(item, &self.log.spare.maps);
    }

    /// Logs data blocks allocated or freed.
    pub fn bits(&mut self, start: BlockNr, len: u32, alloc: bool) {
        self.items += 1;
        let item = BitsItem {
            stamp: self.stamp,
            start,
            len,
            alloc,
        };
        self.list.bits.push_in(item, &self.log.spare.bits);
        if !alloc && planted::is(Fault::ReuseBeforeCommit) {
            let _ = self.log.space.blocks.mark_free(start, len);
            self.log.space.counts.give(u64::from(len));
        }
    }

    /// Logs a rare event.
    pub fn misc(&mut self, ino: InodeNr, event: MiscEvent) {
        self.items += 1;
        let item = MiscItem {
            ino,
            stamp: self.stamp,
            event,
        };
        self.list.misc.push_in(item, &self.log.spare.misc);
    }
}

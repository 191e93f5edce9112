//! A directory in memory (mechanism L7): its [names](NameTable), and its counts.
//!
//! Times and the counts of names and of subdirectories are kept per slot, so that two creates, or two mkdirs, write no
//! common word. Stat adds them up. On disk the link count is the formatter's sum over the names it formats, in any
//! order. Only near the limit of links, operations that add a subdirectory run one at a time, under the lock of the
//! directory's core.
//!
//! Lock order: buckets of the lower inode number first, and within a directory in the order of the [table](NameTable).
//! Inode states after buckets.

use crate::base::address::within;
use crate::base::locks::{self, Mutex};
use crate::incore::index_room::IndexRoom;
use crate::incore::name_table::{BucketGuard, LARGE, NameTable};
use crate::incore::noted_time::NotedTime;
use crate::types::dentry::Dentry;
use crossbeam_utils::CachePadded;
use ext4_format::InodeNr;
use ext4_format::fold::Comparison;
use ext4_format::inode::LINK_MAX;
use ext4_format::timestamp::Timestamp;
use extant_formatter::item::Stamp;
use percpu::PerSlot;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

#[derive(Default)]
struct SlotCounts {
    names: AtomicI64,
    /// Number of subdirectories that this slot added less those it removed, and number of such changes. Both are
    /// [`pack`]ed into one word, so that a reader of all slots' words can see whether they are of one moment.
    links: AtomicU64,
    time: NotedTime,
    stamp: AtomicU64,
}

/// Packs a number of changes and a sum into one word.
fn pack(changes: u32, sum: i32) -> u64 {
    u64::from(changes) << 32 | u64::from(sum as u32)
}

fn sum_of(links: u64) -> i64 {
    i64::from(links as u32 as i32)
}

/// The changes of a directory by a commit, besides its time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Names more.
    pub names: i64,
    /// Subdirectories more.
    pub links: i8,
}

impl Change {
    /// Adds both changes.
    pub fn and(self, other: Self) -> Self {
        Self {
            names: self.names + other.names,
            links: self.links + other.links,
        }
    }
}

/// Number of times that directories were moved out of one directory. The count has its own cache line, because every
/// walk reads it. It is shared with the caches of walks through the directory.
#[derive(Clone, Debug, Default)]
pub struct Moves(Arc<CachePadded<AtomicU64>>);

impl Moves {
    /// Returns the number of moves until now.
    #[inline]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// All names of one directory, and the state that a create in it needs.
pub struct Directory {
    /// Names of the directory.
    pub table: NameTable,
    shares: OnceLock<PerSlot<SlotCounts>>,
    /// All names are in memory.
    complete: AtomicBool,
    loading: Mutex<(), locks::NamesLoading>,
    /// Number of lookups on disk while the names were not in memory.
    pub cold_lookups: AtomicU32,
    /// Removed: nothing may be created in it. Written with all buckets locked.
    dead: AtomicBool,
    /// Stamp of the directory's own last [`InodeItem`](extant_formatter::item::InodeItem). Apart from what look-ups
    /// read.
    pub core_stamp: CachePadded<AtomicU64>,
    /// Links that the directory had when it was loaded, or 1 if they are not counted (any more).
    links: AtomicU32,
    /// Size in bytes on disk, as the formatter published it.
    pub size: AtomicU64,
    /// Parent directory.
    pub parent: AtomicU32,
    /// Generation of the parent when the directory was removed: the parent's number may be used again since.
    parent_generation: AtomicU32,
    /// Number of times that a directory's name was moved away from here.
    moves: Moves,
    /// Bytes of the widest record of a name that was added.
    widest: AtomicU64,
    /// Room in the index. Set once the directory is large enough that the room must be known.
    pub room: OnceLock<Box<IndexRoom>>,
}

impl Directory {
    /// Makes an empty directory, or one with this many links whose names are not in memory. `compared` is the
    /// comparison of its names.
    pub fn new(parent: InodeNr, links: Option<u32>, compared: Comparison) -> Self {
        Self {
            table: NameTable::new(compared),
            shares: OnceLock::new(),
            complete: AtomicBool::new(links.is_none()),
            loading: Mutex::new(()),
            cold_lookups: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            core_stamp: CachePadded::new(AtomicU64::new(0)),
            links: AtomicU32::new(links.unwrap_or(2)),
            size: AtomicU64::new(0),
            parent: AtomicU32::new(parent.0),
            parent_generation: AtomicU32::new(0),
            moves: Moves::default(),
            widest: AtomicU64::new(0),
            room: OnceLock::new(),
        }
    }

    /// Changes when a name of a directory is moved away from here, or replaced. When a name is removed, its directory
    /// is dead, which a caller of this must check, too.
    pub fn moves(&self) -> &Moves {
        &self.moves
    }

    /// Notes that a name of a directory is moved or replaced. Called with its bucket locked.
    pub fn note_move(&self) {
        self.moves.0.fetch_add(1, Ordering::AcqRel);
    }

    fn shares(&self) -> &PerSlot<SlotCounts> {
        self.shares.get_or_init(PerSlot::default)
    }

    /// Notes a change of the names: count, time and stamp, in the caller's own slot. Only in a commit: its
    /// lock of the slot is what lets this do without atomic additions.
    #[inline(always)]
    pub fn note(&self, change: Change, time: Timestamp, stamp: Stamp) {
        let share = self.shares().local();
        if change.names != 0 {
            let sum = share.names.load(Ordering::Relaxed) + change.names;
            share.names.store(sum, Ordering::Relaxed);
        }
        if change.links != 0 {
            let before = share.links.load(Ordering::Relaxed);
            let changes = ((before >> 32) as u32).wrapping_add(1);
            let sum = (before as u32 as i32).wrapping_add(change.links.into());
            share.links.store(pack(changes, sum), Ordering::Release);
        }
        share.time.note(time);
        if share.stamp.load(Ordering::Relaxed) < stamp {
            share.stamp.store(stamp, Ordering::Relaxed);
        }
    }

    /// Returns the number of names, which is exact while no operation changes the directory.
    pub fn names(&self) -> i64 {
        self.shares.get().map_or(0, |s| {
            s.iter().map(|x| x.names.load(Ordering::Relaxed)).sum()
        })
    }

    /// Returns the links of a directory whose core holds `core`: 0 if it was removed, 1 if its subdirectories are not
    /// counted, else their number at a moment during this call. Returns `None` if other operations keep changing it,
    /// which they do with a bucket locked.
    pub fn links(&self, core: u32) -> Option<u32> {
        let total = match self.shares.get() {
            Some(shares) if core > 1 => i64::from(core) + Self::subdirectories(shares)?,
            _ => return Some(core),
        };
        Some(if total > i64::from(LINK_MAX) {
            1
        } else {
            total.max(2) as u32
        })
    }

    /// Returns the change in the number of subdirectories since the directory was loaded.
    fn subdirectories(shares: &PerSlot<SlotCounts>) -> Option<i64> {
        let read = || {
            let words = shares.iter().map(|s| s.links.load(Ordering::Acquire));
            words.fold((0u64, 0i64), |(changes, sum), word| {
                (changes.wrapping_add(word >> 32), sum + sum_of(word))
            })
        };
        // If the number of changes is the same twice, the words are of one moment between the two reads.
        (0..16).find_map(|_| {
            let (before, sum) = read();
            (read().0 == before).then_some(sum)
        })
    }

    /// Returns true if one more subdirectory is far from the limit, or if subdirectories are not counted. Called with
    /// one of the buckets locked. The answer holds until that bucket is released. The counts of other slots are not
    /// read, because a table of a given size holds a bounded number of names. No table smaller than [`LARGE`] is
    /// doubled while one of its buckets is locked.
    pub fn has_room_for_directories(&self) -> bool {
        const { assert!(NameTable::most(LARGE) > LINK_MAX as u64) };
        let names = self.table.names_at_most();
        let links = self.links.load(Ordering::Relaxed);
        links == 1 || u64::from(links) + names <= u64::from(LINK_MAX)
    }

    /// Returns true if the link count is at its limit. Called with the directory's core locked. Every operation that
    /// adds a subdirectory when there is [no room to spare](Self::has_room_for_directories) holds that lock, so that
    /// other threads can only remove subdirectories meanwhile.
    pub fn is_full_of_directories(&self, core: u32) -> bool {
        let words = self.shares.get().map(|shares| {
            let sums = shares
                .iter()
                .map(|s| sum_of(s.links.load(Ordering::Acquire)));
            sums.sum::<i64>()
        });
        core > 1 && i64::from(core) + words.unwrap_or(0) >= i64::from(LINK_MAX)
    }

    /// Subdirectories are not counted from now on.
    pub fn stop_counting(&self) {
        self.links.store(1, Ordering::Relaxed);
    }

    /// Notes the length that the record of a new name counts for.
    #[inline]
    pub fn note_width(&self, bytes: u64) {
        if self.widest.load(Ordering::Relaxed) < bytes {
            self.widest.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Returns an upper bound of the bytes of all records: a table of this size would have grown before. Words that
    /// other slots write are not read.
    #[inline]
    pub fn bytes_at_most(&self) -> u64 {
        let names = self.table.names_at_most();
        names.saturating_mul(self.widest.load(Ordering::Relaxed))
    }

    /// Returns the time of the last change of a name noted since [`Directory::reset_time`].
    pub fn last_change(&self) -> Option<Timestamp> {
        let shares = self.shares.get()?.iter();
        shares.filter_map(|share| share.time.get()).max()
    }

    /// Returns the largest stamp of a name item. A later item of the directory's core must exceed it.
    pub fn last_stamp(&self) -> Stamp {
        self.shares.get().map_or(0, |s| {
            s.iter()
                .map(|x| x.stamp.load(Ordering::Relaxed))
                .max()
                .unwrap_or(0)
        })
    }

    /// Clears the noted times after they were copied into the core. All buckets are locked.
    pub fn reset_time(&self) {
        if let Some(shares) = self.shares.get() {
            for share in shares.iter() {
                share.time.take();
            }
        }
    }

    /// Doubles the table of names, of which a bucket is long, if it is full. Call it with no bucket locked.
    pub fn grow(&self) {
        self.table.grow(self.names());
    }

    /// Names the field at an address, for [`Engine::what_is_at`](crate::volume::Engine::what_is_at).
    pub(crate) fn what_is_at(&self, address: usize) -> Option<String> {
        if within(self, address).is_some() {
            return Some("directory: its header".into());
        }
        if within(&*self.moves.0, address).is_some() {
            return Some("directory: its count of moves".into());
        }
        if let Some(bucket) = self.table.what_is_at(address) {
            return Some(bucket);
        }
        let shares = self.shares.get()?;
        let inside = shares.iter().any(|s| within(s, address).is_some());
        inside.then(|| "directory: share of a slot".into())
    }

    /// Returns true if all names are in memory, so that a name not found does not exist.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Loads all names, once. `read` returns them in any order.
    pub fn complete_with<E>(
        &self,
        read: impl FnOnce() -> Result<(Vec<Dentry>, Comparison), E>,
    ) -> Result<(), E> {
        let _loading = self.loading.lock();
        if self.is_complete() {
            return Ok(());
        }
        let (names, compared) = read()?;
        let share = self.shares().local();
        share.names.store(names.len() as i64, Ordering::Relaxed);
        self.table.fill(names, compared);
        self.complete.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns true if the directory was removed, which only [`Directory::kill_if_empty`] does.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Returns the generation of the parent that a removed directory had.
    pub fn parent_generation(&self) -> u32 {
        self.parent_generation.load(Ordering::Relaxed)
    }

    /// Notes the parent of a directory that is about to be removed. Call it before [`Directory::kill_if_empty`].
    pub fn note_last_parent(&self, parent: InodeNr, generation: u32) {
        self.parent_generation.store(generation, Ordering::Relaxed);
        self.parent.store(parent.0, Ordering::Release);
    }

    /// Marks an empty directory as removed; false if it holds names. `buckets` proves that all are locked.
    pub fn kill_if_empty(&self, buckets: &[BucketGuard<'_>]) -> bool {
        let empty = buckets.iter().all(|b| b.entries.is_empty());
        if empty {
            self.dead.store(true, Ordering::Relaxed);
        }
        empty
    }

    /// Returns true if all names are in memory and the directory is empty. `buckets` are all buckets, locked.
    pub fn is_known_empty(&self, buckets: &[BucketGuard<'_>]) -> bool {
        self.is_complete() && buckets.iter().all(|b| b.entries.is_empty())
    }

    /// Compares names of an empty directory in this way from now on. `buckets` are all buckets, locked.
    pub fn compare_by(compared: Comparison, buckets: &mut [BucketGuard<'_>]) {
        for bucket in buckets {
            bucket.compared = compared;
        }
    }

    /// Undoes [`Directory::kill_if_empty`] when the removal failed later.
    pub fn revive(&self) {
        self.dead.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::name_table::tests::entry;
    use super::*;

    fn add(dir: &Directory, n: u32) {
        let e = entry(n);
        let mut bucket = dir.table.lock(e.hash);
        bucket.add(e);
        let long = dir.table.is_long(&bucket);
        drop(bucket);
        // Stands for the commit's lock of the slot.
        static SLOT: Mutex<(), locks::NamesLoading> = Mutex::new(());
        {
            let _slot = SLOT.lock();
            let one = Change { names: 1, links: 0 };
            dir.note(one, Timestamp::EPOCH, 1);
        }
        if long {
            dir.grow();
        }
    }

    #[test]
    fn links_are_the_sum_of_slots() {
        let dir = Directory::new(InodeNr::ROOT, None, Comparison::Exact);
        let note = |links| dir.note(Change { names: 0, links }, Timestamp::EPOCH, 1);
        assert_eq!(dir.links(2), Some(2));
        std::thread::scope(|s| {
            s.spawn(|| (0..7).for_each(|_| note(1))).join().unwrap();
            // In another slot, which subtracts names that the first slot added.
            s.spawn(|| (0..5).for_each(|_| note(-1))).join().unwrap();
        });
        assert_eq!(
            (dir.links(2), dir.links(1), dir.links(0)),
            (Some(4), Some(1), Some(0))
        );
        assert_eq!(dir.links(LINK_MAX - 2), Some(LINK_MAX));
        assert_eq!(dir.links(LINK_MAX - 1), Some(1), "more than there can be");
        assert!(dir.is_full_of_directories(LINK_MAX - 2));
        assert!(!dir.is_full_of_directories(LINK_MAX - 3));
        assert!(!dir.is_full_of_directories(1), "not counted");
    }

    #[test]
    fn room_for_directories_is_known_without_counting() {
        let dir = Directory::new(InodeNr::ROOT, Some(LINK_MAX - 20), Comparison::Exact);
        assert!(!dir.has_room_for_directories());
        dir.stop_counting();
        assert!(dir.has_room_for_directories());
        let dir = Directory::new(InodeNr::ROOT, None, Comparison::Exact);
        (0..3_000).for_each(|n| add(&dir, n));
        assert!(dir.has_room_for_directories());
        (3_000..65_000).for_each(|n| add(&dir, n));
        assert!(!dir.has_room_for_directories());
    }

    #[test]
    fn a_directory_with_names_is_not_killed() {
        let dir = Directory::new(InodeNr::ROOT, None, Comparison::Exact);
        add(&dir, 1);
        assert!(!dir.kill_if_empty(&dir.table.lock_all()));
        let e = entry(1);
        dir.table.lock(e.hash).remove(e.hash, e.name.as_bytes());
        assert!(dir.kill_if_empty(&dir.table.lock_all()));
        assert!(dir.is_dead());
    }
}

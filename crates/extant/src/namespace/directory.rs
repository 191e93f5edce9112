//! A directory in memory (mechanism L7): its names in hash order, in buckets with a lock each.
//!
//! A bucket owns an interval of the volume's own directory hash, so the order of the buckets, the order
//! of the htree on disk and the order of readdir cookies are one order, and creates of different names
//! seldom meet. The table doubles when a bucket grows long; the table of every level stays where it
//! is until the directory leaves memory (their sum is at most one more table), so nobody has to ask
//! whether a table may be freed: a look-up that finds the level changed after it took a bucket's
//! lock starts again. A large table is doubled without a wait: who comes first to one of the new buckets fetches the
//! names of both halves from the bucket below.
//!
//! Times and the counts of names and of subdirectories are kept per slot, so that two creates, or two mkdirs, write no
//! common word; stat folds them. On disk the link count is the formatter's sum over the names it formats, whatever
//! their order. Only near the limit of links do those who add a subdirectory go one at a time, under the lock of the
//! directory's core.
//!
//! Lock order: buckets of the lower inode number first, within a directory the lower bucket first, and a bucket
//! before its halves; inode states after buckets.

use super::bucket::{Bucket, Dentry, LONG_BUCKET, NameHash};
use super::index_room::IndexRoom;
use super::noted_time::NotedTime;
use crate::locks::{self, Mutex, ReadMostly};
use crate::log::item::Stamp;
use crate::whereabouts::within;
use crossbeam_utils::CachePadded;
use ext4_format::InodeNr;
use ext4_format::inode::LINK_MAX;
use ext4_format::timestamp::Timestamp;
use percpu::PerSlot;
use std::cmp::Ordering as Cmp;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Buckets double up to 2^24: 16 million buckets, half a billion names.
const MAX_LEVEL: usize = 24;
/// A table is doubled only when it holds so many names for each bucket. Many, so that the buckets of a
/// large directory stay in a near cache though its names do not.
const FULL: i64 = 14;
/// Tables from here up to the next are doubled earlier: there are many names, and slots that work on some of them
/// should seldom meet in a bucket; and the buckets still fit into a near cache.
const SPREAD: std::ops::Range<u32> = 5..10;
/// What is a long bucket, and a full table, among those.
const SPREAD_LONG: usize = 8;
const SPREAD_FULL: i64 = 4;

/// Tables from here on are doubled bucket by bucket, as somebody comes to each. Smaller ones at once: it takes no
/// longer than a millisecond, and [`Directory::has_room_for_directories`] rests on it.
const LARGE: u32 = 11;

/// A bucket, its lock, and no other bucket beside them on the line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(ReadMostly<Bucket, locks::Names>);

/// A locked bucket.
pub type BucketGuard<'a> = locks::WriteGuard<'a, Bucket, locks::Names>;

/// A bucket of which only the names are looked at.
pub type BucketReader<'a> = percpu::ReadGuard<'a, Bucket, locks::Names>;

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    fn of(bucket: Bucket) -> Self {
        Self(ReadMostly::new(bucket))
    }
}

#[derive(Default)]
struct SlotShare {
    names: AtomicI64,
    /// Subdirectories that this slot added less those it took away, and how often that changed: [`pack`]ed into one
    /// word, so that who reads all slots' words can tell whether he has seen them as they were at one moment.
    links: AtomicU64,
    time: NotedTime,
    stamp: AtomicU64,
}

/// Number of changes, and sum.
fn pack(changes: u32, sum: i32) -> u64 {
    u64::from(changes) << 32 | u64::from(sum as u32)
}

fn sum_of(links: u64) -> i64 {
    i64::from(links as u32 as i32)
}

/// What a commit changes of a directory, besides its time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Names more.
    pub names: i64,
    /// Subdirectories more.
    pub links: i8,
}

impl Change {
    /// Both.
    pub fn and(self, other: Self) -> Self {
        Self {
            names: self.names + other.names,
            links: self.links + other.links,
        }
    }
}

type Table = Box<[Line]>;

/// All names of one directory, and what a create in it needs to know.
pub struct Directory {
    levels: [OnceLock<Table>; MAX_LEVEL + 1],
    level: AtomicU32,
    shares: OnceLock<PerSlot<SlotShare>>,
    /// All names are in memory.
    complete: AtomicBool,
    loading: Mutex<(), locks::NamesLoading>,
    /// How often a name was looked up on disk while they were not.
    pub cold_lookups: AtomicU32,
    /// Removed: nothing may be created in it. Written with all buckets locked.
    dead: AtomicBool,
    /// Stamp of the directory's own last [`InodeItem`](crate::log::item::InodeItem). Apart from what look-ups read.
    pub core_stamp: CachePadded<AtomicU64>,
    /// Links that it had when it came into memory; 1 if they are not counted (any more).
    links: AtomicU32,
    /// Size in bytes on disk, as the formatter published it.
    pub size: AtomicU64,
    /// Parent directory.
    pub parent: AtomicU32,
    /// How often a name of a directory was moved away from here. On a line of its own: it is read by every walk.
    moves: CachePadded<AtomicU64>,
    /// Bytes of the widest record of a name that was added.
    widest: AtomicU64,
    /// Room in the index, once the directory is so large that it must be known.
    pub room: OnceLock<Box<IndexRoom>>,
}

impl Directory {
    /// An empty directory, or one of so many links whose names are not in memory.
    pub fn new(parent: InodeNr, links: Option<u32>) -> Self {
        let dir = Self {
            levels: [const { OnceLock::new() }; MAX_LEVEL + 1],
            level: AtomicU32::new(0),
            shares: OnceLock::new(),
            complete: AtomicBool::new(links.is_none()),
            loading: Mutex::new(()),
            cold_lookups: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            core_stamp: CachePadded::new(AtomicU64::new(0)),
            links: AtomicU32::new(links.unwrap_or(2)),
            size: AtomicU64::new(0),
            parent: AtomicU32::new(parent.0),
            moves: CachePadded::new(AtomicU64::new(0)),
            widest: AtomicU64::new(0),
            room: OnceLock::new(),
        };
        dir.table(0);
        dir
    }

    /// Changes when a name of a directory is moved away from here, or replaced. Where one is removed, the directory that
    /// it led to is dead, which who asks for this has to look at, too.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// A name of a directory is moved or replaced. Call it with its bucket locked.
    pub fn note_move(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    fn table(&self, level: u32) -> &[Line] {
        self.levels[level as usize]
            .get_or_init(|| (0..1usize << level).map(|_| Line::default()).collect())
    }

    fn index(level: u32, major: u32) -> usize {
        (u64::from(major) >> (32 - level)) as usize
    }

    /// Locks the bucket that a hash falls into.
    pub fn lock(&self, hash: NameHash) -> BucketGuard<'_> {
        crate::stir::point();
        loop {
            let level = self.level.load(Ordering::Acquire);
            let index = Self::index(level, hash.major);
            let guard = self.table(level)[index].0.lock();
            if !self.is_current(level) {
                continue;
            }
            if !guard.is_to_come() {
                crate::stir::point();
                return guard;
            }
            drop(guard);
            self.fetch(level, index);
        }
    }

    /// The same to look names up.
    pub fn read(&self, hash: NameHash) -> BucketReader<'_> {
        crate::stir::point();
        loop {
            let level = self.level.load(Ordering::Acquire);
            let index = Self::index(level, hash.major);
            let guard = self.table(level)[index].0.read();
            if !self.is_current(level) {
                continue;
            }
            if !guard.is_to_come() {
                crate::stir::point();
                return guard;
            }
            drop(guard);
            self.fetch(level, index);
        }
    }

    /// The table of this level is in use; who asks with one of its buckets locked may use that.
    fn is_current(&self, level: u32) -> bool {
        self.level.load(Ordering::Acquire) == level
    }

    /// Fetches the names of a bucket from the one below. Call it when they were seen to be to come, and with neither
    /// locked.
    fn fetch(&self, level: u32, index: usize) {
        // Seen to come: the table was made to double the one below.
        let (below, pair) = (level - 1, index >> 1);
        loop {
            let mut old = self.table(below)[pair].0.lock();
            if old.is_gone() {
                return;
            }
            if !old.is_to_come() {
                let halves = old.part(|hash| Self::is_high(level, hash));
                for (half, line) in halves.into_iter().zip(&self.table(level)[2 * pair..]) {
                    *line.0.lock() = half;
                }
                return;
            }
            drop(old);
            self.fetch(below, pair);
        }
    }

    /// A hash falls into the upper half of its bucket of the level below.
    fn is_high(level: u32, hash: NameHash) -> bool {
        Self::index(level, hash.major) & 1 == 1
    }

    /// Locks the buckets of two hashes, lower bucket first; one guard if both fall into one.
    pub fn lock_both(
        &self,
        a: NameHash,
        b: NameHash,
    ) -> (BucketGuard<'_>, Option<BucketGuard<'_>>) {
        loop {
            let level = self.level.load(Ordering::Acquire);
            let table = self.table(level);
            let (ia, ib) = (Self::index(level, a.major), Self::index(level, b.major));
            let guards = match ia.cmp(&ib) {
                Cmp::Equal => (table[ia].0.lock(), None),
                Cmp::Less => {
                    let first = table[ia].0.lock();
                    (first, Some(table[ib].0.lock()))
                }
                Cmp::Greater => {
                    let second = table[ib].0.lock();
                    (table[ia].0.lock(), Some(second))
                }
            };
            if !self.is_current(level) {
                continue;
            }
            let second = guards.1.as_deref();
            let to_come = if guards.0.is_to_come() {
                ia
            } else if second.is_some_and(Bucket::is_to_come) {
                ib
            } else {
                crate::stir::point();
                return guards;
            };
            drop(guards);
            self.fetch(level, to_come);
        }
    }

    /// Locks every bucket, in order.
    pub fn lock_all(&self) -> Vec<BucketGuard<'_>> {
        'again: loop {
            let level = self.level.load(Ordering::Acquire);
            let table = self.table(level);
            let mut guards = Vec::with_capacity(table.len());
            while let Some(line) = table.get(guards.len()) {
                let guard = line.0.lock();
                if !self.is_current(level) {
                    continue 'again;
                }
                if guard.is_to_come() {
                    drop(guard);
                    self.fetch(level, guards.len());
                } else {
                    guards.push(guard);
                }
            }
            crate::stir::point();
            return guards;
        }
    }

    fn shares(&self) -> &PerSlot<SlotShare> {
        self.shares.get_or_init(PerSlot::default)
    }

    /// Notes a change of the names: count, time and stamp, in the caller's own slot. Only in a commit: its
    /// lock of the slot is what lets this do without atomic additions.
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

    /// Number of names, exact when nobody changes the directory.
    pub fn names(&self) -> i64 {
        self.shares.get().map_or(0, |s| {
            s.iter().map(|x| x.names.load(Ordering::Relaxed)).sum()
        })
    }

    /// Links of a directory whose core says `core`: 0 if it was removed, 1 if its subdirectories are not counted, else
    /// the number of a moment in this call. None if others change it all the time; they do so with a bucket locked.
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

    /// Subdirectories more than there were when it came into memory.
    fn subdirectories(shares: &PerSlot<SlotShare>) -> Option<i64> {
        let read = || {
            let words = shares.iter().map(|s| s.links.load(Ordering::Acquire));
            words.fold((0u64, 0i64), |(changes, sum), word| {
                (changes.wrapping_add(word >> 32), sum + sum_of(word))
            })
        };
        // Seen twice with as many changes, all of them were so at the moment in between.
        (0..16).find_map(|_| {
            let (before, sum) = read();
            (read().0 == before).then_some(sum)
        })
    }

    /// One more subdirectory is far from the limit, or not counted; asked with one of the buckets locked, and true
    /// until that is let go. What other slots count is not looked at: while no table of more than so many buckets is
    /// used, there are no more names in it, and no table of less than [`LARGE`] is doubled while one of its buckets is
    /// locked.
    pub fn has_room_for_directories(&self) -> bool {
        // A table is doubled at the latest when a bucket has grown long by four names and there are `FULL` names for each.
        // So at most that many and four each are in buckets that are long, the others hold `LONG_BUCKET` each; the rest is
        // for those who add names at this moment.
        const NAMES: u64 = LONG_BUCKET as u64 + FULL as u64 + 8;
        const { assert!(NAMES << LARGE > LINK_MAX as u64) };
        let names = NAMES << self.level.load(Ordering::Relaxed);
        let links = self.links.load(Ordering::Relaxed);
        links == 1 || u64::from(links) + names <= u64::from(LINK_MAX)
    }

    /// As many subdirectories as a link count can hold; asked with the directory's core locked. Everybody who adds one
    /// when there is [no room to spare](Self::has_room_for_directories) holds that lock, so others can only take some away
    /// meanwhile.
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

    /// Notes what the record of a new name is charged for.
    pub fn note_width(&self, bytes: u64) {
        if self.widest.load(Ordering::Relaxed) < bytes {
            self.widest.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// More bytes than there can be in the records of a table of this size, which would have grown; without
    /// looking at what other slots write.
    pub fn bytes_at_most(&self) -> u64 {
        let names = (LONG_BUCKET as u64 + 8) << self.level.load(Ordering::Relaxed);
        names.saturating_mul(self.widest.load(Ordering::Relaxed))
    }

    /// Time of the last change of a name noted since [`Directory::reset_time`].
    pub fn last_change(&self) -> Option<Timestamp> {
        let shares = self.shares.get()?.iter();
        shares.filter_map(|share| share.time.get()).max()
    }

    /// Largest stamp of a name item, for whoever logs the directory's core after it.
    pub fn last_stamp(&self) -> Stamp {
        self.shares.get().map_or(0, |s| {
            s.iter()
                .map(|x| x.stamp.load(Ordering::Relaxed))
                .max()
                .unwrap_or(0)
        })
    }

    /// The noted times have gone into the core, or the caller set the times.
    pub fn reset_time(&self) {
        if let Some(shares) = self.shares.get() {
            for share in shares.iter() {
                share.time.take();
            }
        }
    }

    /// Doubles the table if the bucket of `hash` is long and most buckets are used. Call it with no
    /// bucket locked.
    pub fn grow(&self) {
        let level = self.level.load(Ordering::Acquire);
        if level as usize >= MAX_LEVEL || self.names() < (Self::full(level) << level) {
            // Long only because many names share a hash: a larger table would not part them.
            return;
        }
        let above = &self.levels[level as usize + 1];
        if level >= LARGE {
            above.get_or_init(|| {
                let to_come = || Line::of(Bucket::to_come());
                (0..2usize << level).map(|_| to_come()).collect()
            });
            // Who has locked a bucket of this level uses it; who comes for its halves waits for him.
            let (grown, order) = (level + 1, Ordering::AcqRel);
            let _ = self
                .level
                .compare_exchange(level, grown, order, Ordering::Relaxed);
            return;
        }
        let mut old: Vec<_> = self.table(level).iter().map(|line| line.0.lock()).collect();
        if self.level.load(Ordering::Acquire) != level {
            return;
        }
        let is_high = |hash: NameHash| Self::is_high(level + 1, hash);
        let halves = old.iter_mut().flat_map(|b| b.part(is_high).map(Line::of));
        // Nobody else is here while all old buckets are locked.
        above.get_or_init(|| halves.collect());
        // Every old bucket is still locked: who waits for one finds the level changed.
        self.level.store(level + 1, Ordering::Release);
    }

    /// Names for each bucket with which a table of this level is doubled.
    fn full(level: u32) -> i64 {
        if SPREAD.contains(&level) {
            SPREAD_FULL
        } else {
            FULL
        }
    }

    /// True if a bucket to which a name was added wants [`Directory::grow`]. Every fourth name asks: that looks at
    /// what all slots count.
    pub fn is_long(&self, bucket: &Bucket) -> bool {
        let long = if SPREAD.contains(&self.level.load(Ordering::Relaxed)) {
            SPREAD_LONG
        } else {
            LONG_BUCKET
        };
        let beyond = bucket.entries.len().checked_sub(long + 1);
        beyond.is_some_and(|n| n.is_multiple_of(4))
    }

    /// For [`Engine::what_is_at`](crate::engine::Engine::what_is_at).
    pub(crate) fn what_is_at(&self, address: usize) -> Option<String> {
        if within(self, address).is_some() {
            return Some("directory: its header".into());
        }
        let level = self.level.load(Ordering::Relaxed);
        if within(self.table(level), address).is_some() {
            return Some(format!("directory: one of {} buckets", 1u64 << level));
        }
        let shares = self.shares.get()?;
        let inside = shares.iter().any(|s| within(s, address).is_some());
        inside.then(|| "directory: share of a slot".into())
    }

    /// All names are in memory: a miss is an answer.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Brings all names in, once: `read` returns them in any order. The directory has `leaves` blocks: with
    /// a bucket for each, the log's charge by bucket tells how many of them change, however few names they
    /// hold.
    pub fn complete_with<E>(
        &self,
        leaves: usize,
        read: impl FnOnce() -> Result<Vec<Dentry>, E>,
    ) -> Result<(), E> {
        let _loading = self.loading.lock();
        if self.is_complete() {
            return Ok(());
        }
        let entries = read()?;
        let level_of = |buckets: usize| buckets.next_power_of_two().trailing_zeros();
        let spread = level_of(entries.len() / SPREAD_FULL as usize).min(SPREAD.end);
        let level = level_of((entries.len() / FULL as usize).max(leaves))
            .max(if spread > SPREAD.start { spread } else { 0 })
            .min(MAX_LEVEL as u32);
        self.shares()
            .local()
            .names
            .store(entries.len() as i64, Ordering::Relaxed);
        let table = self.table(level);
        for entry in entries {
            table[Self::index(level, entry.hash.major)]
                .0
                .lock()
                .add(entry);
        }
        self.level.store(level, Ordering::Release);
        self.complete.store(true, Ordering::Release);
        Ok(())
    }

    /// The directory was removed. Only [`Directory::kill_if_empty`] sets it.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Marks an empty directory as removed; false if it holds names. `buckets` proves that all are locked.
    pub fn kill_if_empty(&self, buckets: &[BucketGuard<'_>]) -> bool {
        let empty = buckets.iter().all(|b| b.entries.is_empty());
        if empty {
            self.dead.store(true, Ordering::Relaxed);
        }
        empty
    }

    /// Undoes [`Directory::kill_if_empty`] when the removal failed later.
    pub fn revive(&self) {
        self.dead.store(false, Ordering::Relaxed);
    }

    /// Names after `cookie`, in order, at least `at_least` if there are so many; names with equal
    /// cookies come together.
    pub fn list(&self, cookie: u64, at_least: usize) -> Vec<Dentry> {
        let mut found: Vec<Dentry> = Vec::new();
        let mut from = ((cookie >> 32) as u32) << 1;
        loop {
            let next = {
                let level = self.level.load(Ordering::Acquire);
                let table = self.table(level);
                let index = Self::index(level, from);
                let bucket = table[index].0.read();
                if !self.is_current(level) {
                    continue;
                }
                if bucket.is_to_come() {
                    drop(bucket);
                    self.fetch(level, index);
                    continue;
                }
                let begin = found.len();
                found.extend(
                    bucket
                        .entries
                        .iter()
                        .filter(|e| e.hash.cookie() > cookie)
                        .cloned(),
                );
                found[begin..].sort_unstable_by(|a, b| (a.hash, &a.name).cmp(&(b.hash, &b.name)));
                // First hash of the next bucket.
                u32::try_from((index as u64 + 1) << (32 - level)).ok()
            };
            match next {
                Some(hash) if found.len() < at_least => from = hash,
                _ => return found,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::Name;
    use super::*;
    use ext4_format::FileType;

    fn entry(n: u32) -> Dentry {
        let major = n.wrapping_mul(0x9E37_79B9) & !1;
        Dentry {
            hash: NameHash { major, minor: n },
            ino: InodeNr(n + 11),
            ftype: FileType::Regular,
            name: Name::new(format!("n{n}").as_bytes()).unwrap(),
        }
    }

    fn add(dir: &Directory, n: u32) {
        let e = entry(n);
        let mut bucket = dir.lock(e.hash);
        bucket.add(e);
        let long = dir.is_long(&bucket);
        drop(bucket);
        // In place of the commit's lock of the slot.
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
    fn finds_all_names_after_growing() {
        let dir = Directory::new(InodeNr::ROOT, None);
        for n in 0..20_000 {
            add(&dir, n);
        }
        assert!(dir.level.load(Ordering::Relaxed) > 8);
        for n in 0..20_000 {
            let e = entry(n);
            assert_eq!(
                dir.lock(e.hash)
                    .find(e.hash, e.name.as_bytes())
                    .unwrap()
                    .ino,
                e.ino
            );
        }
        assert_eq!(dir.names(), 20_000);
    }

    #[test]
    fn threads_create_in_one_growing_directory() {
        let dir = Directory::new(InodeNr::ROOT, None);
        std::thread::scope(|s| {
            for t in 0..4 {
                let dir = &dir;
                s.spawn(move || (0..5_000).for_each(|n| add(dir, t * 5_000 + n)));
            }
        });
        let all = dir.list(0, usize::MAX);
        assert_eq!(all.len(), 20_000);
        assert!(all.windows(2).all(|w| w[0].hash <= w[1].hash));
    }

    /// While others look names up, list them, and lock two buckets and all.
    #[test]
    fn a_large_table_is_doubled_as_it_is_used() {
        const EACH: u32 = 30_000;
        let dir = Directory::new(InodeNr::ROOT, None);
        let left = AtomicU32::new(3);
        std::thread::scope(|s| {
            for t in 0..3 {
                let (dir, left) = (&dir, &left);
                s.spawn(move || {
                    (0..EACH).for_each(|n| add(dir, t * EACH + n));
                    left.fetch_sub(1, Ordering::Relaxed);
                });
            }
            s.spawn(|| {
                let (mut seen, mut turn) = (0, 0u32);
                while left.load(Ordering::Relaxed) > 0 {
                    let (a, b) = (entry(turn), entry(turn + EACH));
                    drop(dir.lock_both(a.hash, b.hash));
                    let there = dir.read(a.hash).find(a.hash, a.name.as_bytes()).is_some();
                    assert!(there || turn as usize >= seen);
                    if turn.is_multiple_of(64) {
                        let all: usize = dir.lock_all().iter().map(|b| b.entries.len()).sum();
                        assert!(all >= seen, "{all} names after {seen}");
                        let listed = dir.list(0, usize::MAX).len();
                        assert!(listed >= all, "{listed} of {all} names listed");
                        // Those of the first thread come first, all others later.
                        seen = all.saturating_sub(2 * EACH as usize);
                    }
                    turn = (turn + 1) % EACH;
                }
            });
        });
        assert!(dir.level.load(Ordering::Relaxed) > LARGE + 1);
        for n in 0..3 * EACH {
            let e = entry(n);
            let bucket = dir.lock(e.hash);
            assert_eq!(bucket.find(e.hash, e.name.as_bytes()).unwrap().ino, e.ino);
        }
        let all = dir.list(0, usize::MAX);
        assert_eq!(all.len(), 3 * EACH as usize);
        assert!(all.windows(2).all(|w| w[0].hash <= w[1].hash));
        assert_eq!(
            dir.lock_all()
                .iter()
                .map(|b| b.entries.len())
                .sum::<usize>(),
            3 * EACH as usize
        );
    }

    #[test]
    fn listing_in_steps_is_the_whole_order() {
        let dir = Directory::new(InodeNr::ROOT, None);
        (0..3_000).for_each(|n| add(&dir, n));
        let (mut cookie, mut seen) = (0, Vec::new());
        loop {
            let part = dir.list(cookie, 7);
            let Some(last) = part.last() else { break };
            cookie = last.hash.cookie();
            seen.extend(part.into_iter().map(|e| e.ino));
        }
        assert_eq!(
            seen,
            dir.list(0, usize::MAX)
                .iter()
                .map(|e| e.ino)
                .collect::<Vec<_>>()
        );
        assert_eq!(seen.len(), 3_000);
    }

    #[test]
    fn links_are_the_sum_of_slots() {
        let dir = Directory::new(InodeNr::ROOT, None);
        let note = |links| dir.note(Change { names: 0, links }, Timestamp::EPOCH, 1);
        assert_eq!(dir.links(2), Some(2));
        std::thread::scope(|s| {
            s.spawn(|| (0..7).for_each(|_| note(1))).join().unwrap();
            // In a slot of its own: it has the others' to take away.
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
        let dir = Directory::new(InodeNr::ROOT, Some(LINK_MAX - 20));
        assert!(!dir.has_room_for_directories());
        dir.stop_counting();
        assert!(dir.has_room_for_directories());
        let dir = Directory::new(InodeNr::ROOT, None);
        (0..3_000).for_each(|n| add(&dir, n));
        assert!(dir.has_room_for_directories());
        (3_000..65_000).for_each(|n| add(&dir, n));
        assert!(!dir.has_room_for_directories());
    }

    #[test]
    fn a_directory_with_names_is_not_killed() {
        let dir = Directory::new(InodeNr::ROOT, None);
        add(&dir, 1);
        assert!(!dir.kill_if_empty(&dir.lock_all()));
        let e = entry(1);
        dir.lock(e.hash).remove(e.hash, e.name.as_bytes());
        assert!(dir.kill_if_empty(&dir.lock_all()));
        assert!(dir.is_dead());
    }
}

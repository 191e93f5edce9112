//! The names of a directory in memory, in hash order, in buckets with a lock each.
//!
//! A bucket owns an interval of the volume's own directory hash. So the order of the buckets, the order of the htree on
//! disk and the order of readdir cookies are one order, and creates of different names rarely share a bucket. The table
//! doubles when a bucket grows long. The tables of all levels stay until the directory leaves memory; together they are
//! as large as at most one more table. So no table is freed under a reader: a lookup that finds the level changed after
//! it locked a bucket starts again. A large table is doubled without a wait: a bucket of the table below serves both of
//! its halves until it is long, and the operation that finds it long splits it.
//!
//! # States of a bucket
//!
//! ```text
//! made at once       made for a large table
//! (below LARGE)      (from LARGE on): pending
//!      |                    |
//!      |                    | split_below: the bucket below is split; its lock, then this one's
//!      v                    v
//!      +----> active <------+
//!               |
//!               | split_below of a half, or grow; this bucket's lock, then the halves'
//!               v
//!             split
//! ```
//!
//! | state | names of its interval | an operation that comes here |
//! |---|---|---|
//! | pending | in the bucket below, or further below | uses the bucket below while it is short, else splits it |
//! | active | here | uses this bucket |
//! | split | in its two halves | finds the level changed, and starts again |
//!
//! A bucket is read and changes its state only under its lock. A table also has a bit for each pair of halves, which is set once
//! the bucket below is split: without a lock, the bit says where to look first.
//!
//! Lock order: the lower bucket first, and a bucket before its halves.

use crate::base::address::within;
use crate::base::locks::{self, ReadMostly};
use crate::incore::bucket::{Bucket, LONG_BUCKET};
use crate::types::dentry::{Dentry, NameHash};
use ext4_format::fold::Comparison;
use std::cmp::Ordering as Cmp;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Buckets double up to 2^24: 16 million buckets, half a billion names.
const MAX_LEVEL: usize = 24;
/// A table is doubled only when it holds this number of names for each bucket. The number is high so that the buckets
/// of a large directory stay in a near cache even if the names do not.
const FULL: i64 = 14;
/// Levels of tables that are doubled earlier. There are many names, and slots that work on some of them should seldom
/// share a bucket. The buckets still fit into a near cache.
const SPREAD: std::ops::Range<u32> = 5..10;
/// The length of a long bucket, and the fill of a full table, in that range.
const SPREAD_LONG: usize = 8;
const SPREAD_FULL: i64 = 4;

/// Tables from this level on are doubled bucket by bucket, when each is long. Smaller ones are doubled at
/// once: that takes no longer than a millisecond, and [`NameTable::names_at_most`] relies on it.
pub const LARGE: u32 = 11;

/// A bucket and its lock, alone on a cache line.
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

/// A table of one size.
struct Table {
    lines: Box<[Line]>,
    /// A bit for each two buckets that one bucket of the table below was split into; none if all were at once.
    split: Box<[AtomicU64]>,
}

impl Table {
    fn of(lines: Box<[Line]>) -> Self {
        let split = Box::default();
        Self { lines, split }
    }

    /// Makes the table above a table of `below` buckets, none of which is split yet.
    fn pending(below: usize) -> Self {
        let pending = || Line::of(Bucket::pending());
        Self {
            lines: (0..2 * below).map(|_| pending()).collect(),
            split: (0..below.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Returns true if the bucket below had the names of this bucket a moment ago.
    #[inline(always)]
    fn is_below(&self, index: usize) -> bool {
        let word = self.split.get(index >> 7);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (index >> 1 & 63) & 1 == 0)
    }

    fn note_split(&self, pair: usize) {
        if let Some(word) = self.split.get(pair >> 6) {
            // A thread that sees the bit also sees the moved names.
            word.fetch_or(1 << (pair & 63), Ordering::Release);
        }
    }
}

/// Bucket that a hash fell into when it was prefetched, without its lock.
pub struct BucketRef<'a> {
    level: u32,
    hash: NameHash,
    line: Option<&'a Line>,
}

impl BucketRef<'_> {
    /// Returns the hash of the position.
    #[inline]
    pub fn hash(&self) -> NameHash {
        self.hash
    }
}

/// A table of every size there has been; the last one is in use.
pub struct NameTable {
    levels: [OnceLock<Table>; MAX_LEVEL + 1],
    level: AtomicU32,
}

impl NameTable {
    /// Makes a table without names, of one bucket, for a directory with this comparison of names.
    pub fn new(compared: Comparison) -> Self {
        let names = Self {
            levels: [const { OnceLock::new() }; MAX_LEVEL + 1],
            level: AtomicU32::new(0),
        };
        names.table_comparing(0, compared);
        names
    }

    /// Returns the table of a level after setting how its buckets, all exact until now, compare names.
    fn table_comparing(&self, level: u32, compared: Comparison) -> &Table {
        let table = self.table(level);
        if compared.folds() {
            for line in &table.lines {
                line.0.lock().compared = compared;
            }
        }
        table
    }

    #[inline]
    fn table(&self, level: u32) -> &Table {
        match self.levels[level as usize].get() {
            Some(table) => table,
            None => self.make(level),
        }
    }

    #[cold]
    #[inline(never)]
    fn make(&self, level: u32) -> &Table {
        let lines = || (0..1usize << level).map(|_| Line::default()).collect();
        self.levels[level as usize].get_or_init(|| Table::of(lines()))
    }

    #[inline]
    fn index(level: u32, major: u32) -> usize {
        (u64::from(major) >> (32 - level)) as usize
    }

    /// Returns the bucket that a hash falls into, as seen without its lock, and prefetches it.
    #[inline(always)]
    pub fn prefetch(&self, hash: NameHash) -> BucketRef<'_> {
        let level = self.level.load(Ordering::Acquire);
        let index = Self::index(level, hash.major);
        let table = self.table(level);
        let line = table.lines.get(index);
        // The names may still be in the bucket below, where few are.
        let line = line.filter(|_| level <= LARGE || !table.is_below(index));
        line.inspect(|line| percpu::prefetch(*line));
        BucketRef { level, hash, line }
    }

    /// Locks a [prefetched](Self::prefetch) bucket, or the one that its hash falls into by now.
    #[inline(always)]
    pub fn lock_prefetched<'a>(&'a self, near: &BucketRef<'a>) -> BucketGuard<'a> {
        crate::base::jitter::point();
        if let Some(line) = near.line {
            let guard = lockmeter::wanting(
                near.hash.major.into(),
                #[inline(always)]
                || line.0.lock(),
            );
            if self.is_current(near.level) {
                crate::base::jitter::point();
                return guard;
            }
        }
        self.lock_again(near.hash)
    }

    #[cold]
    #[inline(never)]
    fn lock_again(&self, hash: NameHash) -> BucketGuard<'_> {
        self.lock(hash)
    }

    /// Locks the bucket that a hash falls into.
    #[inline(always)]
    pub fn lock(&self, hash: NameHash) -> BucketGuard<'_> {
        lockmeter::wanting(
            hash.major.into(),
            #[inline(always)]
            || self.bucket(hash.major, |line| line.0.lock()),
        )
        .1
    }

    /// Locks the bucket of a hash shared, to look names up.
    #[inline]
    pub fn read(&self, hash: NameHash) -> BucketReader<'_> {
        lockmeter::wanting(
            hash.major.into(),
            #[inline(always)]
            || self.bucket(hash.major, |line| line.0.read()),
        )
        .1
    }

    /// Locks the bucket that a hash falls into, and returns it with its level. That is the level of the table in use,
    /// or the one below while the bucket there is not long.
    #[inline(always)]
    fn bucket<'a, G: Deref<Target = Bucket>>(
        &'a self,
        major: u32,
        lock: impl Fn(&'a Line) -> G,
    ) -> (u32, G) {
        crate::base::jitter::point();
        loop {
            let level = self.level.load(Ordering::Acquire);
            let index = Self::index(level, major);
            let table = self.table(level);
            if level > LARGE && table.is_below(index) {
                if let Some(below) = self.bucket_below(level, index, &lock) {
                    return below;
                }
                continue;
            }
            let guard = lock(&table.lines[index]);
            if !self.is_current(level) {
                continue;
            }
            crate::base::jitter::point();
            return (level, guard);
        }
    }

    /// Locks the bucket below one whose names had not arrived a moment ago, while it is not long.
    #[inline(never)]
    fn bucket_below<'a, G: Deref<Target = Bucket>>(
        &'a self,
        level: u32,
        index: usize,
        lock: &impl Fn(&'a Line) -> G,
    ) -> Option<(u32, G)> {
        let below = level - 1;
        let guard = lock(&self.table(below).lines[index >> 1]);
        if self.is_current(level) && guard.is_active() && guard.entries.len() < LONG_BUCKET {
            crate::base::jitter::point();
            return Some((below, guard));
        }
        drop(guard);
        self.split_below(level, index);
        None
    }

    /// Returns true if the table of this level is in use. The answer holds until the caller releases a locked bucket of
    /// the table.
    #[inline]
    fn is_current(&self, level: u32) -> bool {
        self.level.load(Ordering::Acquire) == level
    }

    /// Splits the bucket below into this bucket and its neighbour, if the names are still there. Called when the table
    /// was seen to be a doubling of the one below, with no bucket locked.
    #[cold]
    #[inline(never)]
    fn split_below(&self, level: u32, index: usize) {
        let (below, pair) = (level - 1, index >> 1);
        let table = self.table(level);
        loop {
            let mut old = self.table(below).lines[pair].0.lock();
            if old.is_split() {
                return;
            }
            if !old.is_pending() {
                let halves = old.split(|hash| Self::is_high(level, hash));
                for (half, line) in halves.into_iter().zip(&table.lines[2 * pair..]) {
                    *line.0.lock() = half;
                }
                table.note_split(pair);
                return;
            }
            drop(old);
            self.split_below(below, pair);
        }
    }

    /// Returns true if a hash falls into the upper half of its bucket of the level below.
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
            let table = &self.table(level).lines;
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
            let pending = if guards.0.is_pending() {
                ia
            } else if second.is_some_and(Bucket::is_pending) {
                ib
            } else {
                crate::base::jitter::point();
                return guards;
            };
            drop(guards);
            self.split_below(level, pending);
        }
    }

    /// Locks every bucket, in order.
    pub fn lock_all(&self) -> Vec<BucketGuard<'_>> {
        'again: loop {
            let level = self.level.load(Ordering::Acquire);
            let table = &self.table(level).lines;
            let mut guards = Vec::with_capacity(table.len());
            while let Some(line) = table.get(guards.len()) {
                let guard = line.0.lock();
                if !self.is_current(level) {
                    continue 'again;
                }
                if guard.is_pending() {
                    drop(guard);
                    self.split_below(level, guards.len());
                } else {
                    guards.push(guard);
                }
            }
            crate::base::jitter::point();
            return guards;
        }
    }

    /// Doubles the table if it is full with this number of names. Called when a bucket is long, with no bucket locked.
    pub fn grow(&self, names: i64) {
        let level = self.level.load(Ordering::Acquire);
        if level as usize >= MAX_LEVEL || names < (Self::full(level) << level) {
            // The bucket is long only because many names share a hash: a larger table would not split them.
            return;
        }
        let above = &self.levels[level as usize + 1];
        if level >= LARGE {
            above.get_or_init(|| Table::pending(1 << level));
            // A holder of a bucket of this level may use it; operations on its halves wait for the holder.
            let (grown, order) = (level + 1, Ordering::AcqRel);
            let _ = self
                .level
                .compare_exchange(level, grown, order, Ordering::Relaxed);
            return;
        }
        let lines = self.table(level).lines.iter();
        let mut old: Vec<_> = lines.map(|line| line.0.lock()).collect();
        if self.level.load(Ordering::Acquire) != level {
            return;
        }
        let is_high = |hash: NameHash| Self::is_high(level + 1, hash);
        let halves = old.iter_mut().flat_map(|b| b.split(is_high).map(Line::of));
        // No other thread is here while all old buckets are locked.
        above.get_or_init(|| Table::of(halves.collect()));
        // Every old bucket is still locked: a thread that waits for one finds the level changed.
        self.level.store(level + 1, Ordering::Release);
    }

    /// Returns the number of names for each bucket at which a table of this level is doubled.
    fn full(level: u32) -> i64 {
        if SPREAD.contains(&level) {
            SPREAD_FULL
        } else {
            FULL
        }
    }

    /// Returns true if a bucket to which a name was added needs [`NameTable::grow`]. Only every fourth name asks,
    /// because `grow` reads the counts of all slots.
    pub fn is_long(&self, bucket: &Bucket) -> bool {
        let long = if SPREAD.contains(&self.level.load(Ordering::Relaxed)) {
            SPREAD_LONG
        } else {
            LONG_BUCKET
        };
        let beyond = bucket.entries.len().checked_sub(long + 1);
        beyond.is_some_and(|n| n.is_multiple_of(4))
    }

    /// Returns the most names that a table of this size holds. Called with one of the buckets locked. If the table is
    /// smaller than [`LARGE`], the answer holds until that bucket is released.
    pub fn names_at_most(&self) -> u64 {
        // A table is doubled at the latest when a bucket has grown long by four names and there are `FULL` names for
        // each. So a long bucket holds at most `FULL` names and four more, every other bucket `LONG_BUCKET`; the rest
        // is for operations that add names at this moment.
        Self::most(self.level.load(Ordering::Relaxed))
    }

    /// Returns an upper bound of the number of names in a table of this level.
    pub const fn most(level: u32) -> u64 {
        const NAMES: u64 = LONG_BUCKET as u64 + FULL as u64 + 8;
        NAMES << level
    }

    /// Loads the names of a directory with this many leaf blocks. With a bucket for each block, log space reserved by
    /// bucket matches the blocks that change, however few names they hold. No other thread uses the table yet.
    pub fn fill(&self, names: Vec<Dentry>, compared: Comparison) {
        let level_of = |buckets: usize| buckets.next_power_of_two().trailing_zeros();
        let spread = level_of(names.len() / SPREAD_FULL as usize).min(SPREAD.end);
        let level = level_of(names.len() / FULL as usize)
            .max(if spread > SPREAD.start { spread } else { 0 })
            .min(MAX_LEVEL as u32);
        let table = self.table_comparing(level, compared);
        for name in names {
            let index = Self::index(level, name.hash.major);
            table.lines[index].0.lock().add(name);
        }
        self.level.store(level, Ordering::Release);
    }

    /// Returns names after `cookie`, in order: at least `at_least` of them, if that many exist. Names with equal
    /// cookies are returned together.
    pub fn list(&self, cookie: u64, at_least: usize) -> Vec<Dentry> {
        let mut found: Vec<Dentry> = Vec::new();
        let mut from = ((cookie >> 32) as u32) << 1;
        loop {
            let next = {
                let (level, bucket) = self.bucket(from, |line| line.0.read());
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
                u32::try_from((Self::index(level, from) as u64 + 1) << (32 - level)).ok()
            };
            match next {
                Some(hash) if found.len() < at_least => from = hash,
                _ => return found,
            }
        }
    }

    /// Names the field at an address, for [`Engine::what_is_at`](crate::volume::Engine::what_is_at).
    pub fn what_is_at(&self, address: usize) -> Option<String> {
        let level = self.level.load(Ordering::Relaxed);
        within(&self.table(level).lines, address)
            .map(|_| format!("directory: one of {} buckets", 1u64 << level))
    }
}

#[cfg(test)]
#[path = "name_table_tests.rs"]
pub(super) mod tests;

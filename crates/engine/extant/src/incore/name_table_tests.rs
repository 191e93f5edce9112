//! Growth, splits and order of the table of names, alone and under threads.

use super::*;
use ext4_format::{FileType, InodeNr};
use extant_formatter::name::Name;
use std::sync::atomic::AtomicI64;

/// A table, and how many names it holds.
struct Names {
    table: NameTable,
    count: AtomicI64,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            table: NameTable::new(Comparison::Exact),
            count: AtomicI64::new(0),
        }
    }
}

impl Names {
    fn add(&self, n: u32) {
        self.add_entry(entry(n));
    }

    fn add_entry(&self, entry: Dentry) {
        let mut bucket = self.table.lock(entry.hash);
        bucket.add(entry);
        let long = self.table.is_long(&bucket);
        drop(bucket);
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if long {
            self.table.grow(count);
        }
    }
}

pub fn entry(n: u32) -> Dentry {
    let major = n.wrapping_mul(0x9E37_79B9) & !1;
    Dentry {
        hash: NameHash { major, minor: n },
        ino: InodeNr(n + 11),
        ftype: FileType::Regular,
        name: Name::new(format!("n{n}").as_bytes()).unwrap(),
    }
}

/// All kinds of tables before they grow: small ones, one that is about to be doubled bucket by bucket, and one of
/// which some buckets still have their names in the table below.
#[test]
fn a_bucket_is_found_from_where_it_was_near_before() {
    let names = Names::default();
    let mut near = Vec::new();
    for n in 0..60_000 {
        if n % 97 == 0 {
            near.push((n, names.table.prefetch(entry(n).hash)));
        }
        names.add(n);
    }
    assert!(names.table.level.load(Ordering::Relaxed) > LARGE);
    for (n, near) in near {
        let (e, now) = (entry(n), names.table.prefetch(entry(n).hash));
        for near in [near, now] {
            let bucket = names.table.lock_prefetched(&near);
            assert!(bucket.find(e.hash, e.name.as_bytes()).is_some(), "{n}");
            assert!(!bucket.is_free(e.hash));
        }
    }
}

#[test]
fn finds_all_names_after_growing() {
    let names = Names::default();
    for n in 0..20_000 {
        names.add(n);
    }
    assert!(names.table.level.load(Ordering::Relaxed) > 8);
    for n in 0..20_000 {
        let e = entry(n);
        assert_eq!(
            names
                .table
                .lock(e.hash)
                .find(e.hash, e.name.as_bytes())
                .unwrap()
                .ino,
            e.ino
        );
    }
}

#[test]
fn threads_create_in_one_growing_directory() {
    let names = Names::default();
    std::thread::scope(|s| {
        for t in 0..4 {
            let names = &names;
            s.spawn(move || (0..5_000).for_each(|n| names.add(t * 5_000 + n)));
        }
    });
    let all = names.table.list(0, usize::MAX);
    assert_eq!(all.len(), 20_000);
    assert!(all.windows(2).all(|w| w[0].hash <= w[1].hash));
}

/// While others look names up, list them, and lock two buckets and all.
#[test]
fn a_large_table_is_doubled_as_it_is_used() {
    const EACH: u32 = 30_000;
    let names = Names::default();
    let left = AtomicU32::new(3);
    std::thread::scope(|s| {
        for t in 0..3 {
            let (names, left) = (&names, &left);
            s.spawn(move || {
                (0..EACH).for_each(|n| names.add(t * EACH + n));
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        s.spawn(|| {
            let (mut seen, mut turn) = (0, 0u32);
            while left.load(Ordering::Relaxed) > 0 {
                let (a, b) = (entry(turn), entry(turn + EACH));
                drop(names.table.lock_both(a.hash, b.hash));
                let there = names
                    .table
                    .read(a.hash)
                    .find(a.hash, a.name.as_bytes())
                    .is_some();
                assert!(there || turn as usize >= seen);
                if turn.is_multiple_of(64) {
                    let all: usize = names.table.lock_all().iter().map(|b| b.entries.len()).sum();
                    assert!(all >= seen, "{all} names after {seen}");
                    let listed = names.table.list(0, usize::MAX).len();
                    assert!(listed >= all, "{listed} of {all} names listed");
                    // Names of the first thread come first, all others later.
                    seen = all.saturating_sub(2 * EACH as usize);
                }
                turn = (turn + 1) % EACH;
            }
        });
    });
    assert!(names.table.level.load(Ordering::Relaxed) > LARGE + 1);
    for n in 0..3 * EACH {
        let e = entry(n);
        let bucket = names.table.lock(e.hash);
        assert_eq!(bucket.find(e.hash, e.name.as_bytes()).unwrap().ino, e.ino);
    }
    let all = names.table.list(0, usize::MAX);
    assert_eq!(all.len(), 3 * EACH as usize);
    assert!(all.windows(2).all(|w| w[0].hash <= w[1].hash));
    assert_eq!(
        names
            .table
            .lock_all()
            .iter()
            .map(|b| b.entries.len())
            .sum::<usize>(),
        3 * EACH as usize
    );
}

/// Otherwise names added after a doubling would pay for the others.
#[test]
fn the_buckets_of_a_large_table_are_split_as_they_grow_long() {
    let names = Names::default();
    let split = |level: u32| {
        let table = names.table.table(level).lines.iter();
        table.filter(|line| line.0.lock().is_split()).count()
    };
    let doubled = (FULL as u32) << LARGE;
    // Buckets of different lengths, as with real names.
    let scattered = |n: u32| entry(n.wrapping_mul(n | 1) ^ n << 16);
    let add = |n| names.add_entry(scattered(n));
    (0..doubled + 512).for_each(add);
    assert_eq!(names.table.level.load(Ordering::Relaxed), LARGE + 1);
    (0..doubled + 512).for_each(|n| {
        let e = scattered(n);
        let bucket = names.table.read(e.hash);
        assert!(bucket.find(e.hash, e.name.as_bytes()).is_some());
    });
    let early = split(LARGE);
    assert!(early < 1 << (LARGE - 3), "{early} buckets");
    (doubled + 512..2 * doubled).for_each(add);
    assert!(split(LARGE) > 1 << (LARGE - 1));
}

#[test]
fn listing_in_steps_is_the_whole_order() {
    let names = Names::default();
    (0..3_000).for_each(|n| names.add(n));
    let (mut cookie, mut seen) = (0, Vec::new());
    loop {
        let part = names.table.list(cookie, 7);
        let Some(last) = part.last() else { break };
        cookie = last.hash.cookie();
        seen.extend(part.into_iter().map(|e| e.ino));
    }
    assert_eq!(
        seen,
        names
            .table
            .list(0, usize::MAX)
            .iter()
            .map(|e| e.ino)
            .collect::<Vec<_>>()
    );
    assert_eq!(seen.len(), 3_000);
}

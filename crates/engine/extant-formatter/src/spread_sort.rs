//! The names of a batch sorted by directory and hash.
//!
//! The hashes of a directory's names are spread evenly, unless an attacker has chosen the names. So a directory with
//! *n* names gets about *n* buckets, by the high bits of the hash, and each name is put into its bucket directly. The
//! few names of one bucket are sorted by comparison. That takes a fifth of the instructions that a sort by comparison
//! takes, and with chosen names it is a sort by comparison.

use std::cmp::Ordering;

/// Fewer keys are sorted by comparison.
const MANY: usize = 64;

/// The buckets of one directory's names.
struct Buckets {
    dir: u32,
    names: usize,
    /// Bits of the hash that choose the bucket.
    bits: u32,
    /// The first of them among those of all directories.
    first: usize,
}

impl Buckets {
    #[inline]
    fn of(&self, key: u128) -> usize {
        let hash = (key >> 64) as u32;
        self.first + (u64::from(hash) << self.bits >> 32) as usize
    }
}

fn dir_of(key: u128) -> u32 {
    (key >> 96) as u32
}

/// Keys in the order of `by`. A key has a directory's number in its highest 32 bits, and a hash in the next; these come
/// first in that order.
pub(super) fn sorted(mut keys: Vec<u128>, by: impl Fn(u128, u128) -> Ordering) -> Vec<u128> {
    let by = |a: &u128, b: &u128| by(*a, *b);
    if keys.len() < MANY {
        keys.sort_unstable_by(by);
        return keys;
    }
    let runs: Vec<Run> = keys
        .chunk_by(|a, b| dir_of(*a) == dir_of(*b))
        .map(|run| (run.first().map_or(0, |&key| dir_of(key)), run.len()))
        .collect();
    let dirs = buckets(&runs);
    let last = dirs.last().map_or(0, |d| d.first + (1 << d.bits));
    // First the number of keys in each bucket, then the place where it begins, then the place where it ends.
    let mut ends = vec![0u32; last];
    for (run, d) in each_run(&keys, &runs, &dirs) {
        run.iter().for_each(|&key| ends[d.of(key)] += 1);
    }
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    let mut sorted = vec![0; keys.len()];
    for (run, d) in each_run(&keys, &runs, &dirs) {
        for &key in run {
            let end = &mut ends[d.of(key)];
            sorted[*end as usize] = key;
            *end += 1;
        }
    }
    let mut begin = 0;
    for end in ends {
        let end = end as usize;
        match &mut sorted[begin..end] {
            [] | [_] => {}
            [a, b] if by(a, b) != Ordering::Greater => {}
            [a, b] => std::mem::swap(a, b),
            more => more.sort_unstable_by(by),
        }
        begin = end;
    }
    sorted
}

/// Keys that follow each other and have one directory: that, and their number.
type Run = (u32, usize);

/// Returns the directories of these runs, in order, with their buckets.
fn buckets(runs: &[Run]) -> Vec<Buckets> {
    let one = |&(dir, names): &Run| Buckets {
        dir,
        names,
        bits: 0,
        first: 0,
    };
    let mut dirs: Vec<Buckets> = runs.iter().map(one).collect();
    dirs.sort_unstable_by_key(|d| d.dir);
    dirs.dedup_by(|more, d| {
        let same = more.dir == d.dir;
        d.names += if same { more.names } else { 0 };
        same
    });
    let mut first = 0;
    for d in &mut dirs {
        (d.bits, d.first) = (d.names.max(1).ilog2(), first);
        first += 1 << d.bits;
    }
    dirs
}

/// Returns the keys of each run with the buckets of its directory.
fn each_run<'k>(
    mut keys: &'k [u128],
    runs: &'k [Run],
    dirs: &'k [Buckets],
) -> impl Iterator<Item = (&'k [u128], &'k Buckets)> {
    runs.iter().filter_map(move |&(dir, len)| {
        let (run, rest) = keys.split_at_checked(len)?;
        keys = rest;
        let at = dirs.partition_point(|d| d.dir < dir);
        Some((run, dirs.get(at)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few directories or many, hashes spread or in one place, equal keys.
        #[test]
        fn as_by_comparison(
            seeds in prop::collection::vec(any::<u64>(), 0..400),
            dirs in 1u64..200,
            narrow in 0u32..33,
        ) {
            let key = |(i, seed): (usize, &u64)| {
                let mixed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let dir = u128::from(mixed % dirs) << 96;
                let hash = u128::from((mixed >> 32) as u32 as u64 >> narrow);
                dir | hash << 64 | u128::from(*seed as u8) << 32 | (i % 3) as u128
            };
            let keys: Vec<u128> = seeds.iter().enumerate().map(key).collect();
            let mut expected = keys.clone();
            expected.sort_unstable();
            prop_assert_eq!(sorted(keys, |a, b| a.cmp(&b)), expected);
        }
    }
}

//! Numbers in use, by group: bitmaps that threads set without locks, made when their group has the first one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits for the numbers of each group.
#[derive(Debug)]
pub(crate) struct GroupBits {
    per_group: u32,
    groups: Vec<OnceLock<Box<[AtomicU64]>>>,
}

impl GroupBits {
    /// Creates bits that are all clear.
    pub(crate) fn new(groups: u32, per_group: u32) -> Self {
        Self {
            per_group,
            groups: (0..groups).map(|_| OnceLock::new()).collect(),
        }
    }

    fn words(&self, group: u32) -> &[AtomicU64] {
        let Some(words) = self.groups.get(group as usize) else {
            return &[];
        };
        words.get_or_init(|| {
            (0..self.per_group.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect()
        })
    }

    /// Sets `len` bits from `start` of a group; returns the first bit that was already set, and the number of such
    /// bits.
    pub(crate) fn set(&self, group: u32, start: u32, len: u32) -> (Option<u32>, u32) {
        let words = self.words(group);
        let end = u64::from(start) + u64::from(len);
        let (mut at, mut first, mut twice) = (u64::from(start), None, 0);
        while at < end {
            let bit = at % 64;
            let n = (64 - bit).min(end - at); // 1..=64
            let mask = (u64::MAX >> (64 - n)) << bit;
            let Some(word) = words.get((at / 64) as usize) else {
                break;
            };
            let before = word.fetch_or(mask, Ordering::Relaxed) & mask;
            if before != 0 {
                let here = at - bit + u64::from(before.trailing_zeros());
                first.get_or_insert(here as u32);
                twice += before.count_ones();
            }
            at += n;
        }
        (first, twice)
    }

    /// Writes the bits of a group into a bitmap in stored form, whose other bits are clear.
    pub(crate) fn write(&self, group: u32, map: &mut [u8]) {
        map.fill(0);
        let words = self.groups.get(group as usize).and_then(OnceLock::get);
        // A bitmap of blocks of 1 KiB and more holds whole words.
        for (bytes, word) in map
            .as_chunks_mut::<8>()
            .0
            .iter_mut()
            .zip(words.into_iter().flatten())
        {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_set_twice_are_told() {
        let bits = GroupBits::new(2, 200);
        assert_eq!(bits.set(1, 60, 10), (None, 0));
        assert_eq!(bits.set(1, 0, 200), (Some(60), 10));
        assert_eq!(bits.set(7, 0, 5), (None, 0), "no such group");
        let mut map = [0; 32];
        bits.write(1, &mut map);
        assert_eq!((map[24], map[25]), (0xff, 0));
    }
}

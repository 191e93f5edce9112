//! The free blocks of one group in core (mechanism B4): the bitmap, and above it, for every order, the aligned runs of
//! that many blocks that are free.
//!
//! Level 0 holds a bit for each block, set if it is free. Level *o* holds a bit for each aligned run of 2^o blocks, set
//! if all of them are. In Knowlton's buddy system (1965), as kernels keep it, a free run is only in the level of its
//! size. Here a run that is part of a larger free one is in the levels below, too. So a level follows from the one
//! under it alone, by a few operations on whole words, and no order of taking and freeing can make it wrong. All levels
//! together are as large as two bitmaps.

/// Longest request in blocks that takes the first run found.
const FEW: u32 = 16;
/// Runs that are compared for longer requests.
const FITS: u32 = 32;

/// The most levels: a group has at most 2^19 blocks.
pub const ORDERS: usize = 20;

/// Free blocks of a group.
pub struct Buddy {
    /// All levels, one behind the other.
    words: Box<[u64]>,
    levels: Vec<Level>,
    blocks: u32,
    free: u32,
    /// Runs of free blocks, however long.
    runs: u32,
    /// No block below is free.
    first: u32,
}

#[derive(Clone, Copy)]
struct Level {
    /// First word.
    at: usize,
    /// Number of words.
    len: usize,
    /// Bits set.
    set: u32,
}

/// Moves every second bit, from bit 0 on, into the low half.
const fn compress(mut x: u64) -> u64 {
    x &= 0x5555_5555_5555_5555;
    x = (x | x >> 1) & 0x3333_3333_3333_3333;
    x = (x | x >> 2) & 0x0F0F_0F0F_0F0F_0F0F;
    x = (x | x >> 4) & 0x00FF_00FF_00FF_00FF;
    x = (x | x >> 8) & 0x0000_FFFF_0000_FFFF;
    (x | x >> 16) & 0xFFFF_FFFF
}

/// Doubles each bit of the low half: the reverse of [`compress`] of a word whose pairs are alike.
const fn spread(mut x: u64) -> u64 {
    x &= 0xFFFF_FFFF;
    x = (x | x << 16) & 0x0000_FFFF_0000_FFFF;
    x = (x | x << 8) & 0x00FF_00FF_00FF_00FF;
    x = (x | x << 4) & 0x0F0F_0F0F_0F0F_0F0F;
    x = (x | x << 2) & 0x3333_3333_3333_3333;
    x = (x | x << 1) & 0x5555_5555_5555_5555;
    x | x << 1
}

/// Returns the order of a run of `n` blocks, at least one: the largest power of two in it.
pub const fn order(n: u32) -> u32 {
    31 - (n | 1).leading_zeros()
}

impl Buddy {
    /// Makes the levels of a bitmap as on disk, in which a set bit is a block in use. Bits past `blocks` do not count.
    pub fn new(used: &[u64], blocks: u32) -> Self {
        let top = order(blocks.max(1)) as usize;
        let mut levels = Vec::with_capacity(top + 1);
        let mut at = 0;
        for o in 0..=top.min(ORDERS - 1) {
            let len = ((blocks >> o) as usize).div_ceil(64).max(1);
            levels.push(Level { at, len, set: 0 });
            at += len;
        }
        let mut buddy = Self {
            words: vec![0; at].into(),
            levels,
            blocks,
            free: 0,
            runs: 0,
            first: 0,
        };
        let bits = buddy.levels[0].len;
        let mut before = 0;
        for (i, word) in buddy.words[..bits].iter_mut().enumerate() {
            // Blocks beyond the bitmap are in use.
            let mut free = !used.get(i).copied().unwrap_or(u64::MAX);
            let left = blocks as usize - (i * 64).min(blocks as usize);
            if left < 64 {
                free &= (1 << left) - 1;
            }
            *word = free;
            buddy.free += free.count_ones();
            // A run begins where the bit before is clear.
            buddy.runs += (free & !(free << 1 | before)).count_ones();
            before = free >> 63;
        }
        buddy.levels[0].set = buddy.free;
        buddy.rise(0, blocks.max(1));
        buddy
    }

    /// Copies the state into a longer group, whose new blocks are free.
    pub fn longer(&self, blocks: u32) -> Self {
        let mut longer = Self::new(&vec![u64::MAX; (blocks as usize).div_ceil(64)], blocks);
        let mut at = 0;
        while let Some((start, len)) = self.free_in(at, self.blocks, 1) {
            longer.give(start, len);
            at = start + len;
        }
        longer.give(self.blocks, blocks.saturating_sub(self.blocks));
        longer
    }

    /// Returns whether a bitmap as on disk has the same blocks in use.
    pub fn agrees(&self, used: &[u64]) -> bool {
        self.level(0).iter().enumerate().all(|(i, &free)| {
            let left = (self.blocks as usize).saturating_sub(i * 64);
            let here = match left {
                0 => 0,
                1..64 => (1 << left) - 1,
                _ => u64::MAX,
            };
            free == !used.get(i).copied().unwrap_or(u64::MAX) & here
        })
    }

    /// Returns the number of free blocks.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Returns the number of runs of free blocks, however long.
    #[cfg(test)]
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// Returns the mean length of the runs of free blocks, or 0 if nothing is free.
    pub fn average(&self) -> u32 {
        self.free.checked_div(self.runs).unwrap_or(0)
    }

    /// Returns the order of the largest aligned free run.
    pub fn largest_order(&self) -> Option<u32> {
        let top = self.levels.iter().rposition(|l| l.set > 0)?;
        Some(top as u32)
    }

    fn level(&self, o: usize) -> &[u64] {
        let Level { at, len, .. } = self.levels[o];
        &self.words[at..at + len]
    }

    fn is_free(&self, block: u32) -> bool {
        let word = self.words.get((block / 64) as usize);
        block < self.blocks && word.is_some_and(|w| w >> (block % 64) & 1 != 0)
    }

    /// Recomputes the levels above blocks `[from, to)` from level 0.
    fn rise(&mut self, from: u32, to: u32) {
        for o in 1..self.levels.len() {
            let (below, Level { at, len, set }) = (self.levels[o - 1], self.levels[o]);
            let words = (from >> o) as usize / 64..=((to - 1) >> o) as usize / 64;
            let mut now = set;
            let mut changed = false;
            for i in words {
                if i >= len {
                    break;
                }
                let child = |n: usize| {
                    if n < below.len {
                        self.words[below.at + n]
                    } else {
                        0
                    }
                };
                let half = |w: u64| compress(w & w >> 1);
                let word = half(child(2 * i)) | half(child(2 * i + 1)) << 32;
                let old = std::mem::replace(&mut self.words[at + i], word);
                now = now + word.count_ones() - old.count_ones();
                changed |= word != old;
            }
            self.levels[o].set = now;
            if !changed {
                break;
            }
        }
    }

    /// Takes blocks that are free.
    pub fn take(&mut self, start: u32, len: u32) {
        if len == 0 {
            return;
        }
        debug_assert_eq!(self.run_at(start, len), len, "taken blocks are free");
        let end = start + len;
        let left = start.checked_sub(1).is_some_and(|b| self.is_free(b));
        let right = self.is_free(end);
        fill(&mut self.words, start, end, false);
        self.runs = self.runs + u32::from(left) + u32::from(right) - 1;
        self.free -= len;
        self.levels[0].set = self.free;
        if start <= self.first {
            self.first = end;
        }
        self.rise(start, end);
    }

    /// Frees blocks; returns how many of them were in use.
    pub fn give(&mut self, start: u32, len: u32) -> u32 {
        let end = start.saturating_add(len).min(self.blocks);
        let mut given = 0;
        let mut at = start;
        while let Some(from) = next(self.level(0), at, end, false) {
            let to = next(self.level(0), from, end, true).unwrap_or(end);
            let left = from.checked_sub(1).is_some_and(|b| self.is_free(b));
            let right = self.is_free(to);
            fill(&mut self.words, from, to, true);
            self.runs = self.runs + 1 - u32::from(left) - u32::from(right);
            given += to - from;
            at = to;
        }
        if given > 0 {
            self.free += given;
            self.levels[0].set = self.free;
            self.first = self.first.min(start);
            self.rise(start, end);
        }
        given
    }

    /// Returns the number of free blocks from `block` on, at most `most`.
    pub fn run_at(&self, block: u32, most: u32) -> u32 {
        let end = block.saturating_add(most).min(self.blocks);
        if block >= end {
            return 0;
        }
        next(self.level(0), block, end, false).unwrap_or(end) - block
    }

    /// Finds the first run of free blocks in `[from, to)`, of at least `least` blocks inside that range.
    pub fn free_in(&self, from: u32, to: u32, least: u32) -> Option<(u32, u32)> {
        let to = to.min(self.blocks);
        let mut at = from.max(self.first);
        while let Some(start) = next(self.level(0), at, to, true) {
            let end = next(self.level(0), start, to, false).unwrap_or(to);
            if end - start >= least {
                return Some((start, end - start));
            }
            at = end;
        }
        None
    }

    /// Finds an aligned free run of that order: of the smallest runs that hold one, the first from block `from` on,
    /// else the first before it.
    pub fn aligned(&self, order: u32, from: u32) -> Option<u32> {
        let orders = || order as usize..self.levels.len();
        let found = |o: usize, a: u32, b: u32| self.lone(o, a, b).map(|i| i << o);
        // From the goal on across all orders, then before it.
        orders()
            .find_map(|o| found(o, from.div_ceil(1 << o), self.blocks >> o))
            .or_else(|| {
                orders().find_map(|o| found(o, 0, from.div_ceil(1 << o).min(self.blocks >> o)))
            })
    }

    /// Finds the first bit of `[from, to)` of a level that is not part of a larger free run.
    fn lone(&self, o: usize, from: u32, to: u32) -> Option<u32> {
        if self.levels[o].set == 0 || from >= to {
            return None;
        }
        let level = self.level(o);
        let above = self.levels.get(o + 1).map(|_| self.level(o + 1));
        let mut at = from;
        while at < to {
            let i = (at / 64) as usize;
            let parents = above.and_then(|a| a.get(i / 2)).copied().unwrap_or(0);
            let covered = spread(parents >> (32 * (i % 2)));
            let lone = level.get(i)? & !covered & (u64::MAX << (at % 64));
            if lone != 0 {
                let found = at / 64 * 64 + lone.trailing_zeros();
                return (found < to).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Finds a run of `want` free blocks: the first from block `from` on, else the first before it. In a rather full
    /// group, a long request gets the beginning of the shortest of [`FITS`] runs that hold it, so that long runs stay
    /// for longer requests.
    pub fn run(&self, want: u32, from: u32) -> Option<u32> {
        if want == 0 || want > self.free {
            return None;
        }
        if self.fits_tightly(want) {
            return self.tightest(want, from);
        }
        self.run_in(want, from, self.blocks)
            .or_else(|| self.run_in(want, 0, from.saturating_add(want - 1).min(self.blocks)))
    }

    fn fits_tightly(&self, want: u32) -> bool {
        want > FEW && self.free < self.blocks / 4
    }

    /// Finds the shortest of some runs that hold `want` blocks: the first from block `from` on, then from the first
    /// block on.
    fn tightest(&self, want: u32, from: u32) -> Option<u32> {
        // As in `run_in`, the order is limited to the levels.
        let o = (order(want.div_ceil(2)) as usize).min(self.levels.len() - 1);
        let level = self.level(o);
        let bits = level.len() as u32 * 64;
        let mut best: Option<(u32, u32)> = None;
        let mut seen = 0;
        for (begin, stop) in [(from.max(self.first), self.blocks), (0, from)] {
            let mut at = begin >> o;
            while let Some(chunk) = next(level, at, bits, true) {
                let inside = chunk << o;
                if inside >= stop {
                    break;
                }
                let start = self.run_start(inside);
                let end = next(self.level(0), inside, self.blocks, false).unwrap_or(self.blocks);
                let len = end - start;
                if len == want {
                    return Some(start);
                }
                if len > want {
                    if best.is_none_or(|(_, shortest)| len < shortest) {
                        best = Some((start, len));
                    }
                    seen += 1;
                    if seen == FITS {
                        return best.map(|(start, _)| start);
                    }
                }
                at = (end >> o).max(chunk + 1);
            }
        }
        best.map(|(start, _)| start)
    }

    fn run_in(&self, want: u32, from: u32, to: u32) -> Option<u32> {
        // A run of n blocks, wherever it begins, holds an aligned one of half of n + 1.
        let o = (order(want.div_ceil(2)) as usize).min(self.levels.len() - 1);
        let level = self.level(o);
        let bits = level.len() as u32 * 64;
        let mut at = from.max(self.first) >> o;
        while let Some(chunk) = next(level, at, bits, true) {
            let inside = chunk << o;
            if inside >= to {
                return None;
            }
            let start = self.run_start(inside).max(from);
            let end = next(self.level(0), inside, to, false).unwrap_or(to);
            if end.saturating_sub(start) >= want {
                return Some(start);
            }
            at = (end >> o).max(chunk + 1);
        }
        None
    }

    /// Returns the first block of the free run that contains `block`.
    fn run_start(&self, block: u32) -> u32 {
        let level = self.level(0);
        let mut i = (block / 64) as usize;
        // Bits in use below the block.
        let mut used = !level[i] & ((1u64 << (block % 64)) - 1);
        while used == 0 {
            match i.checked_sub(1) {
                Some(before) => i = before,
                None => return 0,
            }
            used = !level[i];
        }
        i as u32 * 64 + 64 - used.leading_zeros()
    }

    /// Finds the longest run of free blocks, or the first from `from` on of `want`, with its length up to `want`.
    pub fn longest(&self, want: u32, from: u32) -> Option<(u32, u32)> {
        let largest = self.largest_order()?;
        // A run of `4 << largest` blocks would hold an aligned one of a larger order.
        if want < 4 << largest
            && let Some(start) = self.run(want, from)
        {
            return Some((start, want));
        }
        // The longest run holds an aligned one of the largest order, or, if it lies across borders, of the next.
        let o = (largest as usize).saturating_sub(1);
        let level = self.level(o);
        let bits = level.len() as u32 * 64;
        let (mut best, mut at) = (None, 0);
        while let Some(chunk) = next(level, at, bits, true) {
            let start = self.run_start(chunk << o);
            let end = next(self.level(0), chunk << o, self.blocks, false).unwrap_or(self.blocks);
            if best.is_none_or(|(_, len)| end - start > len) {
                best = Some((start, end - start));
            }
            at = (end >> o).max(chunk + 1);
        }
        best.map(|(start, len)| (start, len.min(want)))
    }
}

/// Sets or clears `[from, to)` of level 0.
fn fill(words: &mut [u64], from: u32, to: u32, free: bool) {
    let mut at = from;
    while at < to {
        let end = ((at / 64 + 1) * 64).min(to);
        let mask = (u64::MAX >> (64 - (end - at))) << (at % 64);
        let word = &mut words[(at / 64) as usize];
        *word = if free { *word | mask } else { *word & !mask };
        at = end;
    }
}

/// Finds the first bit of that value in `[from, to)`. A `to` past the end means the end.
fn next(words: &[u64], from: u32, to: u32, value: bool) -> Option<u32> {
    let mut at = from;
    while at < to {
        let word = *words.get((at / 64) as usize)?;
        let looked = (if value { word } else { !word }) & (u64::MAX << (at % 64));
        if looked != 0 {
            let found = at / 64 * 64 + looked.trailing_zeros();
            return (found < to).then_some(found);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the runs of free blocks of a plain bitmap.
    fn runs(model: &[bool]) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (at, &free) in (0..).zip(model) {
            match runs.last_mut() {
                Some((start, len)) if free && *start + *len == at => *len += 1,
                _ if free => runs.push((at, 1)),
                _ => {}
            }
        }
        runs
    }

    fn check(buddy: &Buddy, model: &[bool]) -> Result<(), TestCaseError> {
        let runs = runs(model);
        prop_assert_eq!(buddy.free() as usize, model.iter().filter(|f| **f).count());
        prop_assert_eq!(buddy.runs() as usize, runs.len());
        let mut largest = None;
        for o in 0..buddy.levels.len() {
            let len = 1usize << o;
            let mut set = 0;
            for (i, chunk) in model.chunks_exact(len).enumerate() {
                let free = chunk.iter().all(|f| *f);
                prop_assert_eq!(
                    next(buddy.level(o), i as u32, i as u32 + 1, true).is_some(),
                    free
                );
                set += u32::from(free);
                largest = if free { Some(o as u32) } else { largest };
            }
            prop_assert_eq!(buddy.levels[o].set, set);
        }
        prop_assert_eq!(buddy.largest_order(), largest);
        Ok(())
    }

    fn queries(buddy: &Buddy, model: &[bool], want: u32, from: u32) -> Result<(), TestCaseError> {
        let runs = runs(model);
        let free_from = |start: u32, len: u32| {
            (start..start + len).all(|b| model.get(b as usize) == Some(&true))
        };
        // The first place of `want` blocks at or after `from`, else the first of all.
        let places: Vec<u32> = (0..model.len() as u32)
            .filter(|&s| free_from(s, want))
            .collect();
        let expected = places.iter().find(|&&s| s >= from).or(places.first());
        if !buddy.fits_tightly(want) {
            prop_assert_eq!(buddy.run(want, from), expected.copied());
        } else {
            // The run found is as long as the shortest run that holds the request, because there are fewer runs than
            // are compared.
            let shortest = runs.iter().map(|r| r.1).filter(|&len| len >= want).min();
            let found = buddy.run(want, from);
            let of = |start| runs.iter().find(|r| r.0 == start).map(|r| r.1);
            prop_assert_eq!(found.and_then(of), shortest);
            prop_assert_eq!(found.is_some(), shortest.is_some());
        }
        let longest = runs.iter().map(|r| r.1).max().unwrap_or(0);
        match buddy.longest(want, from) {
            Some((start, len)) => {
                prop_assert_eq!(len, longest.min(want));
                prop_assert!(free_from(start, len));
            }
            None => prop_assert_eq!(longest, 0),
        }
        let o = order(want);
        let possible = model.chunks_exact(1 << o).any(|c| c.iter().all(|f| *f));
        match buddy.aligned(o, from) {
            Some(start) => prop_assert!(start.is_multiple_of(1 << o) && free_from(start, 1 << o)),
            None => prop_assert!(!possible),
        }
        let here = (0..want)
            .take_while(|i| model.get((from + i) as usize) == Some(&true))
            .count();
        prop_assert_eq!(buddy.run_at(from, want) as usize, here);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Any order of taking and freeing, against a plain bitmap.
        #[test]
        fn agrees_with_a_plain_bitmap(
            blocks in 1u32..700,
            seed in prop::collection::vec(any::<u64>(), 11),
            sparse in any::<bool>(),
            ops in prop::collection::vec((0u8..4, 0u32..700, 1u32..200), 1..40),
        ) {
            let used: Vec<u64> = seed.iter().map(|w| if sparse { w & w.rotate_left(7) & w.rotate_left(19) } else { *w }).collect();
            let mut model: Vec<bool> = (0..blocks as usize).map(|b| used[b / 64] >> (b % 64) & 1 == 0).collect();
            let mut buddy = Buddy::new(&used, blocks);
            check(&buddy, &model)?;
            prop_assert!(buddy.agrees(&used));
            for (op, at, len) in ops {
                let at = at % blocks;
                match op {
                    0 => {
                        let n = buddy.run_at(at, len);
                        buddy.take(at, n);
                        model[at as usize..(at + n) as usize].fill(false);
                    }
                    1 => if let Some((start, n)) = buddy.longest(len, at) {
                        buddy.take(start, n);
                        model[start as usize..(start + n) as usize].fill(false);
                    }
                    2 => {
                        let end = (at + len).min(blocks) as usize;
                        let were = model[at as usize..end].iter().filter(|f| !**f).count();
                        prop_assert_eq!(buddy.give(at, len) as usize, were);
                        model[at as usize..end].fill(true);
                    }
                    _ => queries(&buddy, &model, len, at)?,
                }
                check(&buddy, &model)?;
            }
            let said = |w: u64, i: usize| w >> (i % 64) & 1 == 0;
            let same = model.iter().enumerate().all(|(i, &free)| said(used[i / 64], i) == free);
            prop_assert_eq!(buddy.agrees(&used), same);
        }
    }

    #[test]
    fn the_smallest_run_that_fits_is_split() {
        // Free: 8..16 and 32..64.
        let used = !(0xFFu64 << 8 | 0xFFFF_FFFFu64 << 32);
        let buddy = Buddy::new(&[used], 64);
        assert_eq!(buddy.aligned(2, 0), Some(8));
        assert_eq!(buddy.aligned(3, 0), Some(8));
        assert_eq!(buddy.aligned(4, 0), Some(32));
        assert_eq!(buddy.aligned(5, 0), Some(32));
        assert_eq!(buddy.aligned(6, 0), None);
        assert_eq!(buddy.aligned(2, 20), Some(32), "from the goal on first");
        assert_eq!(buddy.aligned(3, 60), Some(8));
        assert_eq!((buddy.average(), buddy.largest_order()), (20, Some(5)));
    }

    #[test]
    fn a_group_of_one_block() {
        let mut buddy = Buddy::new(&[0], 1);
        assert_eq!(buddy.longest(5, 0), Some((0, 1)));
        buddy.take(0, 1);
        assert_eq!(
            (buddy.longest(1, 0), buddy.largest_order(), buddy.average()),
            (None, None, 0)
        );
        assert_eq!(buddy.give(0, 9), 1);
    }
}

//! The free blocks of a new volume. First a few structures request a place (the journal in the middle); everything
//! else takes the next free blocks from the front.

use ext4_format::BlockNr;
use ext4_format::layout::Layout;
use ext4_format::mapping::Run;

/// Free blocks: half-open, sorted, disjoint ranges.
pub(super) struct Space {
    free: Vec<(u64, u64)>,
    /// Ranges before this one are used up.
    at: usize,
    left: u64,
}

impl Space {
    /// Creates the space of all blocks that are not fixed metadata.
    pub fn new(layout: &Layout) -> Self {
        let geo = &layout.geometry;
        let mut free = Vec::new();
        let mut at = geo.first_data_block;
        for &(BlockNr(start), len) in &layout.metadata {
            if at < start {
                free.push((at, start));
            }
            at = start + len;
        }
        if at < geo.blocks_count {
            free.push((at, geo.blocks_count));
        }
        let left = free.iter().map(|(start, end)| end - start).sum();
        Self { free, at: 0, left }
    }

    /// Returns the block that [`take`](Self::take) gives next.
    pub fn cursor(&self) -> Option<u64> {
        self.free.get(self.at).map(|r| r.0)
    }

    /// Returns the free ranges.
    pub fn ranges(&self) -> &[(u64, u64)] {
        self.free.get(self.at..).unwrap_or(&[])
    }

    /// Takes `len` blocks at or after `goal`, in one piece if there is one, before anything was taken from the front.
    /// `None`, and nothing taken, if fewer blocks are free.
    pub fn carve(&mut self, goal: u64, len: u64) -> Option<Vec<(u64, u64)>> {
        if len == 0 || len > self.left {
            return (len == 0).then(Vec::new);
        }
        let clip = |r: &(u64, u64)| (r.0.max(goal), r.1);
        let whole = |r: &(u64, u64)| r.1.saturating_sub(r.0) >= len;
        let after = self.free.iter().map(clip).find(whole);
        let one = after.or_else(|| self.free.iter().copied().find(whole));
        let mut pieces = Vec::new();
        if let Some((start, _)) = one {
            pieces.push((start, len));
        } else {
            let wrapped = self.free.iter().map(|r| (r.0, r.1.min(goal)));
            let mut rest = len;
            for (start, end) in self.free.iter().map(clip).chain(wrapped) {
                let n = end.saturating_sub(start).min(rest);
                if n > 0 {
                    pieces.push((start, n));
                    rest -= n;
                }
            }
        }
        for &(start, n) in &pieces {
            self.remove(start, n);
        }
        Some(pieces)
    }

    /// Takes a range that lies inside one free range.
    fn remove(&mut self, start: u64, len: u64) {
        let i = self.free.partition_point(|r| r.1 <= start);
        let Some(&(from, to)) = self.free.get(i) else {
            return;
        };
        let parts = [(from, start), (start + len, to)];
        self.free
            .splice(i..=i, parts.into_iter().filter(|(s, e)| s < e));
        self.left -= len;
    }

    /// Takes the next `len` blocks for `logical` and the following. `false` if fewer blocks are left; then some may
    /// be taken.
    #[must_use]
    pub fn take(&mut self, mut logical: u32, len: u32, runs: &mut Vec<Run>) -> bool {
        let mut rest = len;
        while rest > 0 {
            let Some(range) = self.free.get_mut(self.at) else {
                return false;
            };
            let n = (range.1 - range.0).min(rest.into()) as u32; // at most rest
            match runs.last_mut() {
                Some(last)
                    if last.physical + u64::from(last.len) == range.0
                        && last.logical.checked_add(last.len) == Some(logical)
                        && last.len.checked_add(n).is_some() =>
                {
                    last.len += n;
                }
                _ => runs.push(Run {
                    logical,
                    len: n,
                    physical: range.0,
                }),
            }
            range.0 += u64::from(n);
            if range.0 == range.1 {
                self.at += 1;
            }
            self.left -= u64::from(n);
            logical = logical.wrapping_add(n);
            rest -= n;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(free: &[(u64, u64)]) -> Space {
        let left = free.iter().map(|r| r.1 - r.0).sum();
        Space {
            free: free.to_vec(),
            at: 0,
            left,
        }
    }

    #[test]
    fn carve_prefers_one_piece_after_the_goal() {
        let mut s = space(&[(0, 10), (20, 25), (30, 60)]);
        assert_eq!(s.carve(22, 8), Some(vec![(30, 8)]));
        assert_eq!(s.carve(22, 30), Some(vec![(22, 3), (38, 22), (0, 5)]));
        assert_eq!(s.ranges(), [(5, 10), (20, 22)]);
        assert_eq!((s.carve(0, 8), s.left), (None, 7));
    }

    #[test]
    fn take_is_sequential_and_merges() {
        let mut s = space(&[(4, 6), (10, 20)]);
        let mut runs = Vec::new();
        assert!(s.take(0, 1, &mut runs) && s.take(1, 3, &mut runs));
        let run = |logical, len, physical| Run {
            logical,
            len,
            physical,
        };
        assert_eq!(runs, [run(0, 2, 4), run(2, 2, 10)]);
        assert_eq!((s.cursor(), s.left), (Some(12), 8));
        assert!(!s.take(4, 9, &mut runs));
    }
}

//! Block allocation: a lock per group (mechanism L2), goal and contiguity, every group searched before
//! the volume is called full (L4).
//!
//! A freed block stays set in the in-core bitmap until the checkpoint that frees it is on disk
//! (`release`), so its old contents are never overwritten while a crash could bring its owner back.

use crate::error::{Error, Result};
use crate::locks::{self, Mutex};
use ext4_format::geometry::Geometry;
use ext4_format::{BlockNr, FormatError, GroupNr, Where};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

struct Bits {
    /// One bit per block; those past the group's end are set. `None` until first used.
    words: Option<Box<[u64]>>,
    /// Where the last search for single blocks ended: everything below is used or was too short.
    hint: u32,
}

struct BlockGroup {
    bits: Mutex<Bits, locks::BlockGroup>,
    /// Free blocks; written with the lock held, read without.
    free: AtomicU32,
    /// The bitmap breaks a rule; the group is not used.
    skip: std::sync::atomic::AtomicBool,
    /// Context in which the log was last charged for the group's bitmap and descriptor.
    charged: AtomicU64,
}

/// Blocks of one volume.
pub struct BlockAlloc {
    groups: Box<[BlockGroup]>,
    geometry: Geometry,
}

/// Reads a group's bitmap, padded as [`Bits::words`] says.
pub type LoadBitmap<'a> = &'a dyn Fn(GroupNr) -> Result<Vec<u64>>;

impl BlockAlloc {
    /// From the free counts of the group descriptors.
    pub fn new(geometry: &Geometry, free: impl Iterator<Item = u32>) -> Self {
        Self {
            groups: free
                .map(|free| BlockGroup {
                    bits: Mutex::new(Bits {
                        words: None,
                        hint: 0,
                    }),
                    free: AtomicU32::new(free),
                    skip: Default::default(),
                    charged: AtomicU64::new(0),
                })
                .collect(),
            geometry: geometry.clone(),
        }
    }

    /// Allocates up to `want` contiguous blocks, as near after `goal` as there are; at least one.
    pub fn allocate(
        &self,
        goal: BlockNr,
        want: u32,
        load: LoadBitmap<'_>,
    ) -> Result<(BlockNr, u32)> {
        let count = self.groups.len() as u32;
        let (home, bit) = self
            .geometry
            .group_of_block(goal)
            .map_or((0, 0), |(g, bit)| (g.0, bit));
        // Passes: enough room for the whole run and not busy; half of it; anything at all, waiting.
        for pass in 0..3u32 {
            let least = match pass {
                0 => want.min(self.geometry.blocks_per_group / 2),
                1 => want.min(self.geometry.blocks_per_group / 2).div_ceil(8),
                _ => 1,
            };
            for step in 0..count {
                let index = (home + step) % count;
                let group = &self.groups[index as usize];
                if group.skip.load(Ordering::Relaxed) || group.free.load(Ordering::Relaxed) < least
                {
                    continue;
                }
                let mut bits = if pass < 2 && step > 0 {
                    match group.bits.try_lock() {
                        Some(bits) => bits,
                        None => continue,
                    }
                } else {
                    group.bits.lock()
                };
                if bits.words.is_none() {
                    match load(GroupNr(index)) {
                        Ok(words) => bits.words = Some(words.into_boxed_slice()),
                        Err(Error::Format(e)) => {
                            tracing::error!(group = index, error = %e, "block bitmap refused");
                            group.skip.store(true, Ordering::Relaxed);
                            continue;
                        }
                        Err(e) => return Err(e),
                    }
                }
                let blocks = self.geometry.blocks_in_group(GroupNr(index));
                let from = if step == 0 { bit.min(blocks) } else { 0 };
                if let Some((start, len)) = bits.take(from, blocks, want, least) {
                    group.free.fetch_sub(len, Ordering::Relaxed);
                    let first = self.geometry.group_first_block(GroupNr(index));
                    return Ok((BlockNr(first.0 + u64::from(start)), len));
                }
            }
        }
        Err(Error::NoSpace("no free block"))
    }

    /// Brings the bitmaps of these blocks in core: whoever frees blocks calls it before logging the
    /// free, so that the image read is never one that holds half of what is logged.
    pub fn ensure_loaded(&self, start: BlockNr, len: u32, load: LoadBitmap<'_>) -> Result<()> {
        self.each_group(start, len, |index, _, _| {
            let mut bits = self.groups[index as usize].bits.lock();
            if bits.words.is_none() {
                bits.words = Some(load(GroupNr(index))?.into_boxed_slice());
            }
            Ok(())
        })
    }

    /// The checkpoint that frees these blocks is on disk: they may be used again.
    pub fn release(&self, start: BlockNr, len: u32) -> Result<()> {
        self.each_group(start, len, |index, from, to| {
            let group = &self.groups[index as usize];
            let mut bits = group.bits.lock();
            if let Some(words) = &mut bits.words {
                let mut freed = 0;
                for at in from..to {
                    let mask = 1u64 << (at % 64);
                    let word = &mut words[(at / 64) as usize];
                    freed += u32::from(*word & mask != 0);
                    *word &= !mask;
                }
                bits.hint = bits.hint.min(from);
                group.free.fetch_add(freed, Ordering::Relaxed);
            } else {
                group.free.fetch_add(to - from, Ordering::Relaxed);
            }
            Ok(())
        })
    }

    fn each_group(
        &self,
        start: BlockNr,
        len: u32,
        mut f: impl FnMut(u32, u32, u32) -> Result<()>,
    ) -> Result<()> {
        let (mut at, mut left) = (start, len);
        while left > 0 {
            let (group, bit) = self.geometry.group_of_block(at).ok_or_else(|| {
                FormatError::corrupt("block outside the volume", Where::Block(at, 0))
            })?;
            let here = left.min(self.geometry.blocks_in_group(group).saturating_sub(bit));
            if here == 0 {
                return Err(
                    FormatError::corrupt("block outside its group", Where::Block(at, 0)).into(),
                );
            }
            f(group.0, bit, bit + here)?;
            at = BlockNr(at.0 + u64::from(here));
            left -= here;
        }
        Ok(())
    }

    /// Number of groups among these blocks that are touched the first time in a context: the log
    /// charges for each one's bitmap and descriptor.
    pub fn charge(&self, start: BlockNr, len: u32, context: u64) -> u32 {
        let mut first_touched = 0;
        let _ = self.each_group(start, len, |index, _, _| {
            let cell = &self.groups[index as usize].charged;
            if cell.load(Ordering::Relaxed) != context
                && cell.swap(context, Ordering::Relaxed) != context
            {
                first_touched += 1;
            }
            Ok(())
        });
        first_touched
    }

    /// A place to begin for a file without blocks: the inode's group, spread over it by number.
    pub fn goal_for(&self, group: GroupNr, spread: u32) -> BlockNr {
        let blocks = self.geometry.blocks_in_group(group);
        let first = self.geometry.group_first_block(group);
        BlockNr(first.0 + u64::from(blocks / 4 * (spread % 4)))
    }
}

impl Bits {
    /// Takes a run of at most `want` and at least `least` blocks: at `from` if it is free there, else the
    /// first of `want` after it, else before it, else the longest seen.
    fn take(&mut self, from: u32, blocks: u32, want: u32, least: u32) -> Option<(u32, u32)> {
        let words = self.words.as_deref_mut()?;
        let start_hint = if want == 1 && from < self.hint {
            self.hint
        } else {
            from
        };
        let mut best: Option<(u32, u32)> = None;
        'search: for (a, b) in [(start_hint, blocks), (0, start_hint)] {
            let mut at = a;
            while let Some(start) = next_bit(words, at, b, false) {
                let limit = b.min(start.saturating_add(want));
                let end = next_bit(words, start, limit, true).unwrap_or(limit);
                if best.is_none_or(|(_, len)| end - start > len) {
                    best = Some((start, end - start));
                    if end - start >= want || (start == from && end - start >= least) {
                        break 'search;
                    }
                }
                at = end;
            }
        }
        let (start, len) = best.filter(|&(_, len)| len >= least)?;
        for at in start..start + len {
            words[(at / 64) as usize] |= 1 << (at % 64);
        }
        if want == 1 {
            self.hint = start + 1;
        }
        Some((start, len))
    }
}

/// First bit of that value in `[from, to)`.
fn next_bit(words: &[u64], from: u32, to: u32, value: bool) -> Option<u32> {
    let mut at = from;
    while at < to {
        let word = words[(at / 64) as usize];
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

    fn bits(words: &[u64]) -> Bits {
        Bits {
            words: Some(words.into()),
            hint: 0,
        }
    }

    #[test]
    fn a_run_at_the_goal_is_preferred_then_a_long_one() {
        let mut b = bits(&[0b1111, 0]);
        assert_eq!(b.take(10, 128, 8, 8), Some((10, 8)));
        assert_eq!(
            b.take(4, 128, 8, 8),
            Some((18, 8)),
            "4..10 is too short for 8"
        );
        assert_eq!(b.take(4, 128, 6, 1), Some((4, 6)));
    }

    #[test]
    fn single_blocks_come_one_after_another_and_the_last_is_found() {
        let mut b = bits(&[!0b1000_0001, u64::MAX]);
        assert_eq!(b.take(0, 128, 1, 1), Some((0, 1)));
        assert_eq!(b.take(0, 128, 1, 1), Some((7, 1)));
        assert_eq!(b.take(0, 128, 1, 1), None);
    }

    #[test]
    fn the_longest_is_taken_when_none_is_long_enough() {
        let mut b = bits(&[!0b0111_0110]);
        assert_eq!(b.take(0, 64, 10, 1), Some((4, 3)));
    }
}

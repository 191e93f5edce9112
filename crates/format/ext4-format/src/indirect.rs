//! Block maps of ext2 and ext3: twelve direct blocks in the inode, then trees of one, two and three
//! levels of address blocks. An address block is an array of little-endian 32-bit block numbers; 0
//! is a hole. It has no header and no checksum.

use crate::error::{FormatError, Result, Where};
use crate::types::BlockNr;

/// Direct blocks in an inode.
pub const DIRECT: u32 = 12;
/// Slots of `i_block`: the direct blocks, then one root of each depth.
pub const SLOTS: usize = 15;

/// Returns the number of block numbers in an address block.
pub const fn per_block(block_size: u32) -> u32 {
    block_size / 4
}

/// The way from the inode to a logical block: a slot of `i_block`, then an index in each address
/// block.
///
/// ```
/// use ext4_format::indirect::path;
/// assert_eq!(path(11, 1024).unwrap().steps(), [11]);
/// assert_eq!(path(12, 1024).unwrap().steps(), [12, 0]);
/// assert_eq!(path(12 + 256 + 257, 1024).unwrap().steps(), [13, 1, 1]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Address blocks on the way: 0 to 3.
    pub depth: u8,
    offsets: [u32; 4],
}

impl Path {
    /// Returns the slot of `i_block`, then the index in each address block.
    pub fn steps(&self) -> &[u32] {
        self.offsets.get(..=usize::from(self.depth)).unwrap_or(&[])
    }

    /// Returns the number of logical blocks, from the one looked up on, whose path differs in the last step only.
    pub fn run(&self, block_size: u32) -> u32 {
        let last = self.steps().last().copied().unwrap_or(0);
        let end = if self.depth == 0 {
            DIRECT
        } else {
            per_block(block_size)
        };
        end.saturating_sub(last)
    }
}

/// Returns the path of a logical block; `None` if it is beyond the reach of three levels.
pub fn path(logical: u64, block_size: u32) -> Option<Path> {
    let per = u64::from(per_block(block_size));
    // Every offset is below 12 or below `per`, both 32 bits.
    let at = |v: u64| v as u32;
    if let Some(direct) = u32::try_from(logical).ok().filter(|l| *l < DIRECT) {
        return Some(Path {
            depth: 0,
            offsets: [direct, 0, 0, 0],
        });
    }
    let mut rest = logical - u64::from(DIRECT);
    if per == 0 {
        return None;
    }
    if rest < per {
        return Some(Path {
            depth: 1,
            offsets: [DIRECT, at(rest), 0, 0],
        });
    }
    rest -= per;
    if rest < per * per {
        return Some(Path {
            depth: 2,
            offsets: [DIRECT + 1, at(rest / per), at(rest % per), 0],
        });
    }
    rest -= per * per;
    (rest < per * per * per).then(|| Path {
        depth: 3,
        offsets: [
            DIRECT + 2,
            at(rest / (per * per)),
            at(rest / per % per),
            at(rest % per),
        ],
    })
}

/// Returns the end of the logical blocks that a block map reaches.
pub fn logical_end(block_size: u32) -> u64 {
    let per = u64::from(per_block(block_size));
    u64::from(DIRECT) + per + per * per + per * per * per
}

/// Returns the maximum of address blocks that a mapping of `blocks` logical blocks from 0 on can need.
pub fn address_blocks(blocks: u64, block_size: u32) -> u64 {
    let per = u64::from(per_block(block_size)).max(1);
    let mut rest = blocks.saturating_sub(DIRECT.into());
    let mut total = 0;
    for depth in 1..=3 {
        let covered = rest.min(per.pow(depth));
        // Each level has a block per `per` blocks of the level below, up to the root.
        let mut level = covered;
        for _ in 0..depth {
            level = level.div_ceil(per);
            total += level;
        }
        rest -= covered;
    }
    total
}

/// Returns the `i`th number of an address block (or of `i_block`): `None` is a hole.
///
/// # Errors
/// `Corrupt` for an index outside the block or a number outside the volume.
pub fn get(block: &[u8], i: u32, blocks_count: u64) -> Result<Option<BlockNr>> {
    let offset = i as usize * 4;
    let place = Where::Buffer(offset as u32);
    let Some(bytes) = block.get(offset..).and_then(<[u8]>::first_chunk) else {
        return Err(FormatError::corrupt(
            "index outside an address block",
            place,
        ));
    };
    match u64::from(u32::from_le_bytes(*bytes)) {
        0 => Ok(None),
        nr if nr < blocks_count => Ok(Some(BlockNr(nr))),
        _ => Err(FormatError::corrupt(
            "mapped block beyond the volume",
            place,
        )),
    }
}

/// Returns the error for an `i`th number that stands for a block beyond the largest file.
pub(crate) fn beyond(i: u32) -> FormatError {
    let place = Where::Buffer(i.saturating_mul(4));
    FormatError::corrupt("mapped block beyond the largest file", place)
}

/// Sets the `i`th number of an address block (or of `i_block`); `None` makes a hole.
///
/// # Errors
/// `Unrepresentable` for a block above 32 bits or an index outside the block.
pub fn set(block: &mut [u8], i: u32, nr: Option<BlockNr>) -> Result<()> {
    let value = u32::try_from(nr.map_or(0, |n| n.0))
        .map_err(|_| FormatError::Unrepresentable("block above 32 bits in a block map"))?;
    match block
        .get_mut(i as usize * 4..)
        .and_then(<[u8]>::first_chunk_mut)
    {
        Some(slot) => {
            *slot = value.to_le_bytes();
            Ok(())
        }
        None => Err(FormatError::Unrepresentable(
            "index outside an address block",
        )),
    }
}

/// Returns all numbers of an address block, checked, with their indices; holes are left out.
pub fn mapped(
    block: &[u8],
    blocks_count: u64,
) -> impl Iterator<Item = Result<(u32, BlockNr)>> + '_ {
    (0..(block.len() / 4) as u32).filter_map(move |i| {
        get(block, i, blocks_count)
            .map(|nr| nr.map(|nr| (i, nr)))
            .transpose()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn boundaries() {
        let steps = |l| path(l, 4096).map(|p| p.steps().to_vec());
        let per = 1024;
        assert_eq!(steps(12 + per).unwrap(), [13, 0, 0]);
        assert_eq!(steps(12 + per + per * per).unwrap(), [14, 0, 0, 0]);
        assert_eq!(
            steps(logical_end(4096) - 1).unwrap(),
            [14, 1023, 1023, 1023]
        );
        assert_eq!(steps(logical_end(4096)), None);
        assert_eq!(steps(u64::MAX), None);
        assert_eq!(
            [0, 12, 13, 12 + per, 13 + per].map(|n| address_blocks(n, 4096)),
            [0, 0, 1, 1, 3]
        );
    }

    #[test]
    fn numbers_are_checked() {
        let mut block = [0; 1024];
        set(&mut block, 3, Some(BlockNr(99))).unwrap();
        assert_eq!(get(&block, 3, 100).unwrap(), Some(BlockNr(99)));
        assert!(get(&block, 3, 99).is_err() && get(&block, 256, 99).is_err());
        assert!(
            set(&mut block, 256, None).is_err()
                && set(&mut block, 0, Some(BlockNr(1 << 32))).is_err()
        );
        assert_eq!(
            mapped(&block, 100).collect::<Result<Vec<_>>>().unwrap(),
            [(3, BlockNr(99))]
        );
    }

    proptest! {
        #[test]
        fn the_path_counts_up(logical in 0..17_000_000_u64, log in 10..17_u32) {
            let size = 1 << log;
            let (Some(p), per) = (path(logical, size), u64::from(per_block(size))) else { return Ok(()) };
            let base = [0, 12, 12 + per, 12 + per + per * per][usize::from(p.depth)];
            let steps = p.steps();
            let within = steps[1..].iter().fold(0, |n, s| n * per + u64::from(*s));
            let first = if p.depth == 0 { u64::from(steps[0]) } else { 0 };
            prop_assert_eq!(base + within + first, logical);
            let last = path(logical + u64::from(p.run(size)) - 1, size).unwrap();
            prop_assert_eq!(&last.steps()[..p.depth.into()], &steps[..p.depth.into()]);
        }
    }
}

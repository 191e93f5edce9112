//! Making of a tree.

use crate::layout::{BLOCK, HASH, Layout, RootHash};
use crate::parallel::for_each;
use blockdev::BlockDevice;
use std::io;

/// Identity and salt of a tree.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    /// Identity of the tree.
    pub uuid: [u8; 16],
    /// Salt of the hashes, at most 256 bytes.
    pub salt: Vec<u8>,
}

/// Returns the length of the tree for an image of `len` bytes, with its superblock, in bytes.
pub fn tree_len(len: u64) -> u64 {
    layout(len, &Parameters::default()).len()
}

fn layout(len: u64, parameters: &Parameters) -> Layout {
    Layout {
        uuid: parameters.uuid,
        salt: parameters.salt.clone(),
        data_block: BLOCK,
        hash_block: BLOCK,
        data_blocks: len / BLOCK,
    }
}

/// Writes the tree for the first `len` bytes of a device at an offset of another one, or of the same one behind them. Returns the root hash.
/// SHA-256, blocks of 4 KiB.
///
/// # Errors
/// `InvalidInput` if `len` is not a multiple of 4096, or the salt is too long. Other errors are those of the devices.
pub fn make(
    data: &dyn BlockDevice,
    len: u64,
    tree: &dyn BlockDevice,
    offset: u64,
    parameters: &Parameters,
    threads: usize,
) -> io::Result<RootHash> {
    if len == 0 || !len.is_multiple_of(BLOCK) || parameters.salt.len() > 256 {
        let why = "a hash tree is of whole blocks of 4096 bytes, with a salt of at most 256 bytes";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let layout = layout(len, parameters);
    let (levels, starts) = (layout.levels(), layout.starts());
    let mut below = (data, 0, layout.data_blocks);
    for (&blocks, start) in levels.iter().zip(starts) {
        let level = Level {
            layout: &layout,
            below,
            tree,
            start: offset + start,
        };
        for_each(threads, blocks, |block| level.write(block))?;
        below = (tree, offset + start, blocks);
    }
    let mut top = vec![0; BLOCK as usize];
    below.0.read_at(below.1, &mut top)?;
    tree.write_at(offset, &layout.encode())?;
    Ok(RootHash(layout.hash(&top)))
}

/// A level to write, from the blocks below it.
struct Level<'d> {
    layout: &'d Layout,
    /// The device, the offset and the number of the blocks that are hashed.
    below: (&'d dyn BlockDevice, u64, u64),
    tree: &'d dyn BlockDevice,
    start: u64,
}

impl Level<'_> {
    /// Writes a block of the level.
    fn write(&self, block: u64) -> io::Result<()> {
        let (device, start, blocks) = self.below;
        let first = block * self.layout.fan();
        let count = self.layout.fan().min(blocks - first);
        let mut bytes = vec![0; (count * BLOCK) as usize];
        device.read_at(start + first * BLOCK, &mut bytes)?;
        let mut hashes = Vec::with_capacity(BLOCK as usize);
        for bytes in bytes.chunks_exact(BLOCK as usize) {
            hashes.extend(self.layout.hash(bytes));
        }
        debug_assert_eq!(hashes.len() as u64, count * HASH);
        hashes.resize(BLOCK as usize, 0);
        self.tree.write_at(self.start + block * BLOCK, &hashes)
    }
}

//! Extended attributes: the space in the inode, and blocks that inodes with equal attributes share.

use super::ledger::Ledger;
use super::record::add_sectors;
use super::unit::{BlockChange, Part, Published};
use super::workspace::Workspace;
use crate::error::{Error, Result};
use crate::groups::DescTable;
use crate::image::NumberMap;
use ext4_format::xattr::{self, XattrSet};
use ext4_format::{BlockNr, InodeNr, Where, inode};
use smallvec::SmallVec;
use std::ops::Range;

/// Most blocks kept in the index. Beyond this number the index is emptied, because sharing is optional.
const INDEX_MAX: usize = 1 << 16;

/// Attribute blocks seen since the volume was opened, by the hash of their contents.
#[derive(Default)]
pub(super) struct XattrBlocks {
    by_hash: NumberMap<u32, SmallVec<[BlockNr; 1]>>,
    blocks: usize,
}

/// Attribute blocks in one batch. They have a separate workspace, because inodes of any group point at them.
pub(super) struct XattrBatch<'x, 'a> {
    pub blocks: &'x mut XattrBlocks,
    pub ws: Workspace<'a>,
    pub ledger: Ledger<'a>,
}

impl<'a> XattrBatch<'_, 'a> {
    /// Makes the changes, after all inodes are formatted, so that the choice of inodes that share a block, and the place of the block, do not
    /// depend on the threads that formatted them.
    pub fn run(mut self, descs: &DescTable, whole: &mut Part<'a>) -> Result<()> {
        for change in std::mem::take(&mut whole.done.attributes) {
            match change {
                BlockChange::Release(block) => {
                    self.blocks.release(&mut self.ws, &mut self.ledger, block)?;
                }
                BlockChange::Set { ino, set, goal } => self.set(descs, whole, ino, &set, goal)?,
            }
        }
        whole.ws.join(self.ws)?;
        whole.ledger.join(self.ledger);
        Ok(())
    }

    fn set(
        &mut self,
        descs: &DescTable,
        whole: &mut Part<'a>,
        ino: InodeNr,
        set: &XattrSet,
        goal: BlockNr,
    ) -> Result<()> {
        let geometry = self.ws.geometry;
        let (block, offset) = descs.inode_location(geometry, self.ws.images(), ino)?;
        let (mut table, sound) = whole.ws.take_table(block)?;
        let raw = table.get_mut(offset..offset + usize::from(geometry.inode_size));
        let raw = raw.ok_or_else(|| Error::corrupt_inode("inode position", ino))?;
        let count = |raw: &[u8]| i64::from(inode::file_acl(raw, geometry).0 != 0);
        let before = count(raw);
        self.blocks
            .set(&mut self.ws, &mut self.ledger, raw, set, goal)?;
        let more = count(raw) - before;
        add_sectors(raw, geometry, ino, more)?;
        inode::set_checksum(raw, geometry, ino);
        whole.ws.put_sound(block, table, sound);
        if more != 0 {
            whole.done.published.push(Published {
                ino,
                size: None,
                sectors_delta: more * i64::from(geometry.sectors_per_block()),
                tree_delta: 0,
            });
        }
        Ok(())
    }
}

/// Writes the attributes that an inode holds into its room for them.
pub(super) fn put_area(raw: &mut [u8], room: Range<usize>, area: Option<Vec<u8>>) {
    if let Some(place) = raw.get_mut(room) {
        match area {
            Some(area) => place.copy_from_slice(&area), // exactly as long, says place()
            None => place.fill(0),
        }
    }
}

/// Returns all bytes of a block but its reference count and checksum.
fn content(block: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    Some((block.get(..4)?, block.get(8..16)?, block.get(20..)?))
}

impl XattrBlocks {
    fn note(&mut self, block: BlockNr, hash: u32) {
        if hash == 0 {
            return; // marked as not to be shared
        }
        if self.blocks >= INDEX_MAX {
            *self = Self::default();
        }
        let list = self.by_hash.entry(hash).or_default();
        if !list.contains(&block) {
            list.push(block);
            self.blocks += 1;
        }
    }

    fn forget(&mut self, block: BlockNr, hash: u32) {
        if let Some(list) = self.by_hash.get_mut(&hash)
            && let Some(i) = list.iter().position(|b| *b == block)
        {
            list.swap_remove(i);
            self.blocks -= 1;
            if list.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    /// Checks a block an inode points at; returns its reference count and hash.
    fn check(&self, ws: &Workspace<'_>, ledger: &Ledger<'_>, block: BlockNr) -> Result<(u32, u32)> {
        ledger.zone.check(ws.images(), block, 1)?;
        let place = |e: ext4_format::FormatError| e.at(Where::Block(block, 0));
        if ws.geometry.features.has_metadata_csum()
            && let Some(image) = ws.unverified(block)?
        {
            xattr::verify_checksum(&image, ws.geometry.csum_seed, block).map_err(place)?;
            image.set_verified();
        }
        let bytes = ws.get(block)?;
        let count = xattr::refcount(&bytes).map_err(place)?;
        Ok((count, xattr::stored_block_hash(&bytes).unwrap_or(0)))
    }

    fn set_count(&self, ws: &mut Workspace<'_>, block: BlockNr, count: u32) -> Result<()> {
        let seed = seed(ws);
        let bytes = ws.get_mut(block)?;
        xattr::set_refcount(bytes, count)?;
        if let Some(seed) = seed {
            xattr::set_checksum(bytes, seed, block);
        }
        Ok(())
    }

    fn release(
        &mut self,
        ws: &mut Workspace<'_>,
        ledger: &mut Ledger<'_>,
        block: BlockNr,
    ) -> Result<()> {
        let (count, hash) = self.check(ws, ledger, block)?;
        if count > 1 {
            self.note(block, hash);
            return self.set_count(ws, block, count - 1);
        }
        self.forget(block, hash);
        ledger.free(ws, block, 1)
    }

    /// Finds a block with these contents to which one more inode may point.
    fn shareable(
        &self,
        ws: &Workspace<'_>,
        ledger: &Ledger<'_>,
        bytes: &[u8],
    ) -> Result<Option<(BlockNr, u32)>> {
        let hash = xattr::stored_block_hash(bytes).filter(|h| *h != 0);
        let Some(list) = hash.and_then(|h| self.by_hash.get(&h)) else {
            return Ok(None);
        };
        for &block in list {
            let (count, _) = self.check(ws, ledger, block)?;
            if count < xattr::MAX_REFCOUNT && content(&ws.get(block)?) == content(bytes) {
                return Ok(Some((block, count)));
            }
        }
        Ok(None)
    }

    fn set(
        &mut self,
        ws: &mut Workspace<'_>,
        ledger: &mut Ledger<'_>,
        raw: &mut [u8],
        set: &XattrSet,
        goal: BlockNr,
    ) -> Result<()> {
        let geometry = ws.geometry;
        let range = inode::xattr_area(raw, geometry).unwrap_or(0..0);
        let (area, block) = xattr::place(set, range.len(), geometry.block_size as usize)?;
        put_area(raw, range, area);
        let old = Some(inode::file_acl(raw, geometry)).filter(|b| b.0 != 0);
        let new = match block {
            Some(bytes) => Some(self.put(ws, ledger, old, bytes, goal)?),
            None => {
                if let Some(old) = old {
                    self.release(ws, ledger, old)?;
                }
                None
            }
        };
        inode::set_file_acl(raw, new.unwrap_or_default());
        Ok(())
    }

    /// Returns the block of these contents, for an inode that pointed at `old` until now.
    fn put(
        &mut self,
        ws: &mut Workspace<'_>,
        ledger: &mut Ledger<'_>,
        old: Option<BlockNr>,
        mut bytes: Vec<u8>,
        goal: BlockNr,
    ) -> Result<BlockNr> {
        let mut alone = None;
        if let Some(old) = old {
            let (count, hash) = self.check(ws, ledger, old)?;
            if content(&ws.get(old)?) == content(&bytes) {
                return Ok(old);
            }
            alone = (count == 1).then_some((old, hash));
        }
        if let Some((block, count)) = self.shareable(ws, ledger, &bytes)? {
            if let Some(old) = old {
                self.release(ws, ledger, old)?;
            }
            self.set_count(ws, block, count + 1)?;
            return Ok(block);
        }
        let block = match (alone, old) {
            // No other inode points at it: it is overwritten in place.
            (Some((old, hash)), _) => {
                self.forget(old, hash);
                old
            }
            (None, Some(shared)) => {
                self.release(ws, ledger, shared)?;
                ledger.alloc(goal)?
            }
            (None, None) => ledger.alloc(goal)?,
        };
        self.note(block, xattr::stored_block_hash(&bytes).unwrap_or(0));
        if let Some(seed) = seed(ws) {
            xattr::set_checksum(&mut bytes, seed, block);
        }
        ws.put(block, bytes);
        Ok(block)
    }
}

fn seed(ws: &Workspace<'_>) -> Option<u32> {
    ws.geometry
        .features
        .has_metadata_csum()
        .then_some(ws.geometry.csum_seed)
}

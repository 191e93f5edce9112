//! The blocks that the formatter takes and frees: every block goes through one place, so that bitmap images, sector
//! counts and the reservation agree.

use super::workspace::Workspace;
use crate::error::{Result, SpaceError};
use crate::item::BitsItem;
use crate::system_zone::SystemZone;
use ext4_format::BlockNr;

/// The source of blocks for directories, index and extent blocks and attributes.
pub trait MetaSpace: Sync {
    /// Takes one block near `goal` and marks it as used in the in-core bitmap. The formatter sets its bit in the
    /// bitmap image.
    fn alloc_meta(&self, goal: BlockNr) -> Result<BlockNr, SpaceError>;
    /// Frees blocks no longer used. Others may use them when this batch is on disk. The formatter clears their bits in
    /// the bitmap image.
    fn free_meta(&self, start: BlockNr, len: u32) -> Result<(), SpaceError>;
}

/// Metadata blocks taken and freed by a batch.
pub(super) struct Ledger<'a> {
    space: &'a dyn MetaSpace,
    /// The blocks that must not be touched.
    pub zone: &'a SystemZone,
    /// Items for the bitmaps.
    pub bits: Vec<BitsItem>,
    /// Blocks taken.
    pub taken: u64,
    /// Blocks taken less blocks freed.
    pub balance: i64,
}

impl<'a> Ledger<'a> {
    pub fn new(space: &'a dyn MetaSpace, zone: &'a SystemZone) -> Self {
        Self {
            space,
            zone,
            bits: Vec::new(),
            taken: 0,
            balance: 0,
        }
    }

    /// Takes over what another ledger of the same batch has noted.
    pub fn join(&mut self, other: Self) {
        self.bits.extend(other.bits);
        self.taken += other.taken;
        self.balance += other.balance;
    }

    /// Takes one block near `goal`.
    pub fn alloc(&mut self, goal: BlockNr) -> Result<BlockNr> {
        let block = self.space.alloc_meta(goal)?;
        self.taken += 1;
        self.balance += 1;
        self.bits.push(BitsItem {
            stamp: 0,
            start: block,
            len: 1,
            alloc: true,
        });
        Ok(block)
    }

    /// Frees blocks that no longer hold metadata.
    pub fn free(&mut self, ws: &mut Workspace<'_>, start: BlockNr, len: u32) -> Result<()> {
        self.zone.check(ws.images(), start, len.into())?;
        for i in 0..u64::from(len) {
            ws.discard(BlockNr(start.0 + i))?;
        }
        self.space.free_meta(start, len)?;
        self.balance -= i64::from(len);
        self.bits.push(BitsItem {
            stamp: 0,
            start,
            len,
            alloc: false,
        });
        Ok(())
    }
}

//! Changes of a block map of ext2 and ext3: a walk down visits each address block that a change touches once. Address
//! blocks that map nothing are freed.

use super::ledger::Ledger;
use super::map_changes::{Change, clip};
use super::owner::Owner;
use super::workspace::Workspace;
use crate::error::Result;
use ext4_format::inode::I_BLOCK_SIZE;
use ext4_format::{BlockNr, FormatError, Where, indirect};

/// Changes of one inode's block map.
pub(super) struct IndirectMap<'t, 'a, 'l> {
    pub ws: &'t mut Workspace<'a>,
    pub ledger: &'t mut Ledger<'l>,
    pub owner: &'t Owner,
    delta: i64,
}

impl<'t, 'a, 'l> IndirectMap<'t, 'a, 'l> {
    pub fn new(ws: &'t mut Workspace<'a>, ledger: &'t mut Ledger<'l>, owner: &'t Owner) -> Self {
        Self {
            ws,
            ledger,
            owner,
            delta: 0,
        }
    }

    fn per(&self) -> u64 {
        u64::from(indirect::per_block(self.ws.geometry.block_size))
    }

    /// Returns slot, depth, first logical block and span of each of the 15 slots.
    fn slots(&self) -> impl Iterator<Item = (u32, u32, u64, u64)> + use<> {
        let per = self.per();
        let mut first = 0;
        (0..indirect::SLOTS as u32).map(move |slot| {
            let depth = slot.saturating_sub(indirect::DIRECT - 1);
            let at = first;
            first += per.pow(depth); // at most (2^14)^3
            (slot, depth, at, per.pow(depth))
        })
    }

    fn entry(&self, bytes: &[u8], i: u32, place: Where) -> Result<Option<BlockNr>> {
        Ok(indirect::get(bytes, i, self.ws.geometry.blocks_count).map_err(|e| e.at(place))?)
    }

    /// Applies sorted, disjoint changes; returns by how many data blocks the map maps more.
    pub fn apply(mut self, root: &mut [u8; I_BLOCK_SIZE], changes: &[Change]) -> Result<i64> {
        let reach = indirect::logical_end(self.ws.geometry.block_size);
        if changes
            .iter()
            .any(|c| c.target.is_some_and(|t| t.unwritten || c.end > reach))
        {
            return Err(FormatError::Unrepresentable(
                "unwritten or too distant block in a block map",
            )
            .into());
        }
        for (slot, depth, first, span) in self.slots() {
            let inside = clip(changes, first, first + span);
            if !inside.is_empty() {
                let old = self.entry(root, slot, Where::Inode(self.owner.ino))?;
                let new = self.edit(old, depth, first, &inside)?;
                if new != old {
                    indirect::set(root, slot, new)?;
                }
            }
        }
        Ok(self.delta)
    }

    /// Returns the new target of the slot that led to `old`, after the changes in its span.
    fn edit(
        &mut self,
        old: Option<BlockNr>,
        depth: u32,
        first: u64,
        changes: &[Change],
    ) -> Result<Option<BlockNr>> {
        if depth == 0 {
            let new = changes
                .first()
                .and_then(|c| c.target_at(first))
                .map(|t| t.physical);
            self.delta += i64::from(new.is_some()) - i64::from(old.is_some());
            return Ok(new);
        }
        if old.is_none() && changes.iter().all(|c| c.target.is_none()) {
            return Ok(None);
        }
        let before = match old {
            Some(block) => {
                self.ledger
                    .zone
                    .check(self.ws.images(), block, 1)
                    .map_err(|e| e.at(Where::Inode(self.owner.ino)))?;
                self.ws.get(block)?.to_vec()
            }
            None => vec![0; self.ws.geometry.block_size as usize],
        };
        let place = Where::Block(old.unwrap_or_default(), 0);
        let mut after = before.clone();
        let span = self.per().pow(depth - 1);
        for c in changes {
            // Several changes may share a child of more than one block. The first one applies all of them.
            let mut i = (c.start - first) / span;
            while first + i * span < c.end {
                let child_first = first + i * span;
                i += 1;
                let inside = clip(changes, child_first, child_first + span);
                if inside.first().is_some_and(|f| f.start < c.start) {
                    continue;
                }
                let slot = (i - 1) as u32; // below `per`
                let old = self.entry(&after, slot, place)?;
                let new = self.edit(old, depth - 1, child_first, &inside)?;
                if new != old {
                    indirect::set(&mut after, slot, new)?;
                }
            }
        }
        if after == before {
            return Ok(old);
        }
        if after.iter().all(|&b| b == 0) {
            if let Some(block) = old {
                self.ledger.free(self.ws, block, 1)?;
            }
            return Ok(None);
        }
        let block = match old {
            Some(block) => block,
            None => self.ledger.alloc(self.owner.goal)?,
        };
        self.ws.put(block, after);
        Ok(Some(block))
    }

    /// Returns the physical block of a logical one.
    pub fn find(&self, root: &[u8; I_BLOCK_SIZE], logical: u32) -> Result<Option<BlockNr>> {
        let Some(path) = indirect::path(logical.into(), self.ws.geometry.block_size) else {
            return Ok(None);
        };
        let mut steps = path.steps().iter();
        let mut at = match steps.next() {
            Some(&slot) => self.entry(root, slot, Where::Inode(self.owner.ino))?,
            None => None,
        };
        for &step in steps {
            let Some(block) = at else { return Ok(None) };
            self.ledger
                .zone
                .check(self.ws.images(), block, 1)
                .map_err(|e| e.at(Where::Inode(self.owner.ino)))?;
            at = self.entry(&self.ws.get(block)?, step, Where::Block(block, 0))?;
        }
        Ok(at)
    }

    /// Frees the address blocks, and the mapped blocks too if they are metadata.
    pub fn free(&mut self, root: &[u8; I_BLOCK_SIZE], data: bool) -> Result<()> {
        for (slot, depth, _, _) in self.slots() {
            if let Some(block) = self.entry(root, slot, Where::Inode(self.owner.ino))? {
                self.free_below(block, depth, data)?;
            }
        }
        Ok(())
    }

    fn free_below(&mut self, block: BlockNr, depth: u32, data: bool) -> Result<()> {
        if depth > 1 || (depth == 1 && data) {
            self.ledger
                .zone
                .check(self.ws.images(), block, 1)
                .map_err(|e| e.at(Where::Inode(self.owner.ino)))?;
            let bytes = self.ws.get(block)?.to_vec();
            for below in indirect::mapped(&bytes, self.ws.geometry.blocks_count) {
                let (_, below) = below.map_err(|e| e.at(Where::Block(block, 0)))?;
                self.free_below(below, depth - 1, data)?;
            }
        }
        if depth > 0 || data {
            self.ledger.free(self.ws, block, 1)
        } else {
            Ok(())
        }
    }
}

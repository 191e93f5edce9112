//! The mapping of one inode, in either form on disk, and a directory's blocks in it.

use super::directory::DirBlocks;
use super::extent_tree::ExtentTree;
use super::indirect_map::IndirectMap;
use super::ledger::Ledger;
use super::map_changes::{Change, Target};
use super::owner::{Owner, Root};
use super::workspace::Workspace;
use crate::error::{Error, Result};
use ext4_format::extent::Extent;
use ext4_format::{BlockNr, FormatError, Where};

/// Applies sorted, disjoint changes; returns by how many data blocks more are mapped.
pub(super) fn apply(
    ws: &mut Workspace<'_>,
    ledger: &mut Ledger<'_>,
    owner: &Owner,
    root: &mut Root,
    changes: &[Change],
) -> Result<i64> {
    if owner.extents {
        ExtentTree::new(ws, ledger, owner).apply(root, changes)
    } else {
        IndirectMap::new(ws, ledger, owner).apply(root, changes)
    }
}

/// Frees the blocks of the mapping itself, and the mapped blocks too if they are metadata.
pub(super) fn free(
    ws: &mut Workspace<'_>,
    ledger: &mut Ledger<'_>,
    owner: &Owner,
    root: &Root,
    data: bool,
) -> Result<()> {
    if owner.extents {
        ExtentTree::new(ws, ledger, owner).free(root, data)
    } else {
        IndirectMap::new(ws, ledger, owner).free(root, data)
    }
}

/// Finds the run that holds a logical block, if it is mapped and written.
pub(super) fn find(
    ws: &mut Workspace<'_>,
    ledger: &mut Ledger<'_>,
    owner: &Owner,
    root: &Root,
    logical: u32,
) -> Result<Option<Extent>> {
    if owner.extents {
        let found = ExtentTree::new(ws, ledger, owner).find(root, logical)?;
        Ok(found.filter(|e| !e.unwritten))
    } else {
        let found = IndirectMap::new(ws, ledger, owner).find(root, logical)?;
        Ok(found.map(|physical| Extent {
            logical,
            len: 1,
            physical,
            unwritten: false,
        }))
    }
}

/// The blocks of a directory.
pub(super) struct DirFile<'d, 'l> {
    pub ledger: &'d mut Ledger<'l>,
    pub owner: &'d Owner,
    pub root: Root,
    pub blocks: u32,
    /// The run found last: the next block looked for is mostly in it.
    run: Option<Extent>,
}

impl<'d, 'l> DirFile<'d, 'l> {
    pub fn new(ledger: &'d mut Ledger<'l>, owner: &'d Owner, root: Root, blocks: u32) -> Self {
        Self {
            ledger,
            owner,
            root,
            blocks,
            run: None,
        }
    }

    fn corrupt(&self, what: &'static str, logical: u32) -> Error {
        FormatError::corrupt(what, Where::InodeBlock(self.owner.ino, logical.into())).into()
    }
}

impl DirBlocks for DirFile<'_, '_> {
    fn blocks(&self) -> u32 {
        self.blocks
    }

    fn get(&mut self, ws: &mut Workspace<'_>, logical: u32) -> Result<BlockNr> {
        if logical >= self.blocks {
            return Err(self.corrupt("directory block beyond the directory's end", logical));
        }
        if let Some(block) = self.run.and_then(|run| run.map(logical)) {
            return Ok(block);
        }
        let run = find(ws, self.ledger, self.owner, &self.root, logical)?;
        let Some((run, block)) = run.and_then(|run| Some((run, run.map(logical)?))) else {
            return Err(self.corrupt("hole in a directory", logical));
        };
        self.ledger
            .zone
            .check(ws.images(), run.physical, run.len.into())?;
        self.run = Some(run);
        Ok(block)
    }

    fn append(&mut self, ws: &mut Workspace<'_>) -> Result<(u32, BlockNr)> {
        let logical = self.blocks;
        let goal = match logical.checked_sub(1) {
            Some(last) => BlockNr(self.get(ws, last)?.0.saturating_add(1)),
            None => self.owner.goal,
        };
        let block = self.ledger.alloc(goal)?;
        let target = Some(Target {
            physical: block,
            unwritten: false,
        });
        let change = Change {
            start: logical.into(),
            end: u64::from(logical) + 1,
            target,
        };
        apply(ws, self.ledger, self.owner, &mut self.root, &[change])?;
        self.blocks = logical
            .checked_add(1)
            .ok_or_else(|| self.corrupt("directory size", logical))?;
        self.run = None;
        Ok((logical, block))
    }
}

//! Many changes of an extent tree at a time. A walk down from the root visits each changed node once, rewrites it, and
//! passes entries that no longer fit to its parent.

use super::ledger::Ledger;
use super::map_changes::{Change, clip};
use super::owner::Owner;
use super::workspace::Workspace;
use crate::error::Result;
use ext4_format::extent::{self, Extent, ExtentIndex, LOGICAL_END, Node, NodeRules};
use ext4_format::{BlockNr, FormatError, Where};

/// The entries of a node, as many as there are, whether a block can hold them or not.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entries {
    Leaf(Vec<Extent>),
    Index(u16, Vec<ExtentIndex>),
}

impl Entries {
    fn of(node: &Node<'_>) -> Self {
        match node {
            Node::Leaf(leaf) => Self::Leaf(leaf.iter().collect()),
            Node::Index(index) => Self::Index(index.depth(), index.iter().collect()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(list) => list.len(),
            Self::Index(_, list) => list.len(),
        }
    }

    fn first_key(&self) -> u32 {
        match self {
            Self::Leaf(list) => list.first().map_or(0, |e| e.logical),
            Self::Index(_, list) => list.first().map_or(0, |e| e.logical),
        }
    }

    /// Splits off the first `n` entries.
    fn split_front(&mut self, n: usize) -> Self {
        match self {
            Self::Leaf(list) => {
                let rest = list.split_off(n.min(list.len()));
                Self::Leaf(std::mem::replace(list, rest))
            }
            Self::Index(depth, list) => {
                let rest = list.split_off(n.min(list.len()));
                Self::Index(*depth, std::mem::replace(list, rest))
            }
        }
    }

    /// Takes over what follows in the next node of the same level.
    fn append(&mut self, next: Self) {
        match (self, next) {
            (Self::Leaf(list), Self::Leaf(next)) => next.into_iter().for_each(|e| push(list, e)),
            (Self::Index(_, list), Self::Index(_, mut next)) => list.append(&mut next),
            // Nodes of one level are of one kind: the depth of each was checked.
            _ => {}
        }
    }

    fn write(&self, bytes: &mut [u8]) -> Result<(), FormatError> {
        match self {
            Self::Leaf(list) => extent::write_leaf(bytes, 0, list.iter().copied()),
            Self::Index(depth, list) => extent::write_index(bytes, *depth, 0, list.iter().copied()),
        }
        .map(drop)
    }
}

/// Adds an extent behind all others, merged with the last one where the format allows.
fn push(list: &mut Vec<Extent>, new: Extent) {
    match list.last_mut() {
        Some(last) => match last.merge(&new) {
            Some(both) => *last = both,
            None => list.push(new),
        },
        None => list.push(new),
    }
}

/// Returns the part `[lo, hi)` of an extent.
fn part(e: &Extent, lo: u64, hi: u64) -> Extent {
    // lo and hi are inside the extent, whose own bounds fit 32 bits.
    let skip = lo - u64::from(e.logical);
    Extent {
        logical: lo as u32,
        len: (hi - lo) as u32,
        physical: BlockNr(e.physical.0 + skip),
        ..*e
    }
}

/// Adds the extents of a change behind all others; returns the blocks mapped.
fn push_target(list: &mut Vec<Extent>, change: &Change) -> i64 {
    let Some(target) = change.target else {
        return 0;
    };
    let mut rest = *change;
    while let Some(t) = rest.target_at(rest.start).filter(|_| rest.start < rest.end) {
        let longest = if t.unwritten {
            extent::MAX_UNWRITTEN_LEN
        } else {
            extent::MAX_INIT_LEN
        };
        let len = (rest.end - rest.start).min(longest.into());
        // A change ends at LOGICAL_END at most: both fit 32 bits.
        let (logical, len) = (rest.start as u32, len as u32);
        push(
            list,
            Extent {
                logical,
                len,
                physical: t.physical,
                unwritten: target.unwritten,
            },
        );
        rest = Change {
            start: rest.start + u64::from(len),
            target: rest.target_at(rest.start + u64::from(len)),
            ..rest
        };
    }
    (change.end - change.start) as i64
}

/// Returns the extents of a leaf after sorted, disjoint changes, and the number of blocks added to the mapping.
fn merge(old: &[Extent], changes: &[Change]) -> (Vec<Extent>, i64) {
    let mut new = Vec::with_capacity(old.len() + changes.len() + 1);
    let mut delta = 0;
    let mut changes = changes.iter().peekable();
    for e in old {
        let mut at = u64::from(e.logical);
        while let Some(c) = changes.peek().filter(|c| c.start < e.end()) {
            if c.start > at {
                push(&mut new, part(e, at, c.start));
                at = c.start;
            }
            let covered = c.end.min(e.end());
            if covered > at {
                delta -= (covered - at) as i64;
                at = covered;
            }
            if c.end > e.end() {
                break; // reaches into the next extents
            }
            delta += push_target(&mut new, c);
            changes.next();
        }
        if at < e.end() {
            push(&mut new, part(e, at, e.end()));
        }
    }
    for c in changes {
        delta += push_target(&mut new, c);
    }
    (new, delta)
}

/// Changes of one inode's tree.
pub(super) struct ExtentTree<'t, 'a, 'l> {
    pub ws: &'t mut Workspace<'a>,
    pub ledger: &'t mut Ledger<'l>,
    pub owner: &'t Owner,
    /// Number of data blocks added to the mapping.
    delta: i64,
}

/// Rewritten children on their way into their parent.
struct Siblings {
    entries: Vec<ExtentIndex>,
    /// The last node, not written yet, because the next may join it; with the end of its range.
    pending: Option<(BlockNr, Entries, u64)>,
}

impl<'t, 'a, 'l> ExtentTree<'t, 'a, 'l> {
    pub fn new(ws: &'t mut Workspace<'a>, ledger: &'t mut Ledger<'l>, owner: &'t Owner) -> Self {
        Self {
            ws,
            ledger,
            owner,
            delta: 0,
        }
    }

    fn rules(&self) -> NodeRules {
        NodeRules::root(self.ws.geometry.blocks_count)
    }

    fn root(&self, root: &[u8]) -> Result<Entries> {
        let node =
            Node::parse(root, &self.rules()).map_err(|e| e.at(Where::Inode(self.owner.ino)))?;
        Ok(Entries::of(&node))
    }

    fn read(&self, block: BlockNr, rules: &NodeRules) -> Result<Entries> {
        self.ledger
            .zone
            .check(self.ws.images(), block, 1)
            .map_err(|e| e.at(Where::Inode(self.owner.ino)))?;
        if self.ws.geometry.features.has_metadata_csum()
            && let Some(image) = self.ws.unverified(block)?
        {
            extent::verify_tail(&image, self.owner.seed())
                .map_err(|e| e.at(Where::Block(block, 0)))?;
            image.set_verified();
        }
        let bytes = self.ws.get(block)?;
        let node = Node::parse(&bytes, rules).map_err(|e| e.at(Where::Block(block, 0)))?;
        Ok(Entries::of(&node))
    }

    fn write(&mut self, block: BlockNr, entries: &Entries) -> Result<()> {
        let bytes = self.ws.fresh(block);
        entries.write(bytes)?;
        if self.ws.geometry.features.has_metadata_csum() {
            extent::set_tail(self.ws.get_mut(block)?, self.owner.seed())?;
        }
        Ok(())
    }

    /// Applies sorted, disjoint changes; returns by how many data blocks the tree maps more.
    pub fn apply(mut self, root: &mut [u8], changes: &[Change]) -> Result<i64> {
        let rules = self.rules();
        let old = self.root(root)?;
        let mut new = self.edit(&old, &rules, changes)?;
        let room = extent::capacity(root.len());
        while new.len() > room {
            // The root's entries move into blocks below it.
            let depth = if let Entries::Index(depth, _) = new {
                depth + 1
            } else {
                1
            };
            let mut below = Vec::new();
            let goal = self.owner.goal;
            self.place(None, goal, new, LOGICAL_END, &mut below)?;
            new = Entries::Index(depth, below);
        }
        // A single child whose entries fit the root moves up.
        while let Entries::Index(depth, list) = &new {
            let [only] = list[..] else { break };
            let child = self.read(only.child, &rules.child(depth - 1, only.logical, None))?;
            if child.len() > room {
                break;
            }
            self.ledger.free(self.ws, only.child, 1)?;
            new = child;
        }
        if new.len() == 0 {
            new = Entries::Leaf(Vec::new());
        }
        if new != old {
            new.write(root)?;
        }
        Ok(self.delta)
    }

    /// Returns the entries of a node after the changes, all of which lie in its range.
    fn edit(&mut self, old: &Entries, rules: &NodeRules, changes: &[Change]) -> Result<Entries> {
        let (depth, children) = match old {
            Entries::Leaf(list) => {
                let (new, delta) = merge(list, changes);
                self.delta += delta;
                return Ok(Entries::Leaf(new));
            }
            Entries::Index(depth, children) => (*depth, children),
        };
        let mut out = Siblings {
            entries: Vec::with_capacity(children.len() + 1),
            pending: None,
        };
        for (i, child) in children.iter().enumerate() {
            let next = children.get(i + 1).map(|c| c.logical);
            // The first child also takes changes before its key.
            let lo = if i == 0 { 0 } else { u64::from(child.logical) };
            let hi = next.map_or(rules.end, u64::from);
            let inside = clip(changes, lo, hi);
            if inside.is_empty() {
                self.flush(&mut out)?;
                out.entries.push(*child);
                continue;
            }
            let child_rules = rules.child(depth.saturating_sub(1), child.logical, next);
            let before = self.read(child.child, &child_rules)?;
            let after = self.edit(&before, &child_rules, &inside)?;
            if after == before {
                self.flush(&mut out)?;
                out.entries.push(*child);
            } else if after.len() == 0 {
                self.ledger.free(self.ws, child.child, 1)?;
            } else {
                self.join(&mut out, child.child, after, hi)?;
            }
        }
        self.flush(&mut out)?;
        Ok(Entries::Index(depth, out.entries))
    }

    /// Joins a rewritten node to the one before it if both fit one block.
    fn join(
        &mut self,
        out: &mut Siblings,
        block: BlockNr,
        entries: Entries,
        end: u64,
    ) -> Result<()> {
        let room = extent::capacity(self.ws.geometry.block_size as usize);
        match &mut out.pending {
            Some((_, before, before_end)) if before.len() + entries.len() <= room => {
                before.append(entries);
                *before_end = end;
                self.ledger.free(self.ws, block, 1)
            }
            _ => {
                self.flush(out)?;
                out.pending = Some((block, entries, end));
                Ok(())
            }
        }
    }

    fn flush(&mut self, out: &mut Siblings) -> Result<()> {
        match out.pending.take() {
            Some((block, entries, end)) => {
                self.place(Some(block), block, entries, end, &mut out.entries)
            }
            None => Ok(()),
        }
    }

    /// Writes entries into `block` and into new blocks where they do not fit, and adds these blocks to `list`.
    fn place(
        &mut self,
        mut block: Option<BlockNr>,
        goal: BlockNr,
        mut entries: Entries,
        end: u64,
        list: &mut Vec<ExtentIndex>,
    ) -> Result<()> {
        let room = extent::capacity(self.ws.geometry.block_size as usize);
        // Files grow at their end, so nodes are left full there. Elsewhere all parts get some room.
        let share = if end == LOGICAL_END {
            room
        } else {
            entries.len().div_ceil(entries.len().div_ceil(room).max(1))
        };
        let mut goal = goal;
        while entries.len() > 0 {
            let piece = entries.split_front(share);
            let child = match block.take() {
                Some(block) => block,
                None => self.ledger.alloc(goal)?,
            };
            goal = BlockNr(child.0.saturating_add(1));
            self.write(child, &piece)?;
            list.push(ExtentIndex {
                logical: piece.first_key(),
                child,
            });
        }
        Ok(())
    }

    /// Returns the extent that holds a logical block.
    pub fn find(&self, root: &[u8], logical: u32) -> Result<Option<Extent>> {
        let mut rules = self.rules();
        let mut entries = self.root(root)?;
        loop {
            match entries {
                Entries::Leaf(list) => {
                    let before = list.partition_point(|e| e.logical <= logical);
                    let e = before.checked_sub(1).and_then(|i| list.get(i));
                    return Ok(e.filter(|e| u64::from(logical) < e.end()).copied());
                }
                Entries::Index(depth, list) => {
                    let i = list
                        .partition_point(|e| e.logical <= logical)
                        .saturating_sub(1);
                    let Some(child) = list.get(i) else {
                        return Ok(None);
                    };
                    let next = list.get(i + 1).map(|e| e.logical);
                    rules = rules.child(depth.saturating_sub(1), child.logical, next);
                    entries = self.read(child.child, &rules)?;
                }
            }
        }
    }

    /// Frees the tree's nodes, and the mapped blocks too if they are metadata.
    pub fn free(&mut self, root: &[u8], data: bool) -> Result<()> {
        let (entries, rules) = (self.root(root)?, self.rules());
        self.free_below(&entries, &rules, data)
    }

    fn free_below(&mut self, entries: &Entries, rules: &NodeRules, data: bool) -> Result<()> {
        match entries {
            Entries::Leaf(list) if data => list
                .iter()
                .try_for_each(|e| self.ledger.free(self.ws, e.physical, e.len)),
            Entries::Leaf(_) => Ok(()),
            Entries::Index(depth, list) => {
                for (i, child) in list.iter().enumerate() {
                    let next = list.get(i + 1).map(|e| e.logical);
                    let rules = rules.child(depth.saturating_sub(1), child.logical, next);
                    // The last level need not be read when its data is not ours.
                    if *depth > 1 || data {
                        let below = self.read(child.child, &rules)?;
                        self.free_below(&below, &rules, data)?;
                    }
                    self.ledger.free(self.ws, child.child, 1)?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;

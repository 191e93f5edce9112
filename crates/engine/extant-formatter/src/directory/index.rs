//! Indexed directories: sorted changes are applied to the htree in one sweep from left to right.
//!
//! Index blocks are taken into memory as entry lists, changed there and written once. Blocks that the sweep has not
//! passed yet are on disk as they were, so the leaves that continue a hash can be found through the old index at any
//! time.

use super::leaf::{Item, Leaf, Merged, Pending, Rewritten};
use super::lookup::{Descent, Visit};
use super::pages::Dir;
use super::shape::{Role, at};
use super::update::NetName;
use super::wanted::WantedNames;
use crate::error::{Error, Result};
use ext4_format::BlockNr;
use ext4_format::hash::{DirHasher, HashVersion};
use ext4_format::htree::{self, DxEntry, IndexBlockKind, RootInit};

/// Most fill of index blocks, in percent, when more than one is made.
const NODE_FILL: usize = 75;

impl<'a> Dir<'a, '_> {
    /// Applies the batch to an htree.
    pub fn apply_to_index(&mut self) -> Result<()> {
        let update = self.update;
        let (block, page) = self.read(0, Role::Root)?;
        let root = htree::parse_root(&page, self.shape.csum, self.shape.large_dir, self.blocks())
            .map_err(at(block))?;
        let init = RootInit {
            own: root.own,
            parent: update.new_parent.unwrap_or(root.parent),
            filetype: self.shape.filetype,
            hash_version: root.hash_version,
            levels: root.levels,
        };
        let hasher = root_hasher(self, root.hash_version)?;
        let rehashed;
        let names = if hasher == *update.hasher {
            update.names
        } else {
            // The volume's default has changed since this directory was indexed.
            rehashed = rehash(update.names, &hasher);
            &rehashed[..]
        };
        let mut entries: Vec<DxEntry> = root.index.iter().collect();
        if self.update_below(&mut entries, init.levels, names, None, &hasher)? {
            return self.store_root(block, init, entries);
        }
        match update.new_parent {
            Some(parent) if parent != root.parent => self.set_root_parent(block, parent),
            _ => Ok(()),
        }
    }

    /// Applies changes, all of a hash below `end`, to the blocks below `entries`, and adds the entries of new blocks.
    /// Returns whether it did. The first entry has the hash that the parent states.
    fn update_below(
        &mut self,
        entries: &mut Vec<DxEntry>,
        levels: u8,
        mut changes: &[NetName<'_>],
        end: Option<u32>,
        hasher: &DirHasher,
    ) -> Result<bool> {
        let mut parts: Vec<(usize, Leaf<'_>)> = Vec::new();
        let mut position = 0;
        while let Some(change) = changes.first() {
            // The last entry not above the hash, as in Index::search.
            let right = entries.get(position + 1..).unwrap_or(&[]);
            position += right.partition_point(|e| e.hash <= change.hash);
            let Some(&entry) = entries.get(position) else {
                return Err(self.corrupt("htree block without entries"));
            };
            let next = entries.get(position + 1).map(|e| e.hash).or(end);
            let count = changes.partition_point(|c| next.is_none_or(|next| c.hash < next));
            // The first change is below `next`, by choice of the position: count is not 0.
            let (mine, rest) = changes.split_at(count.max(1));
            changes = rest;
            let part = Leaf {
                entry,
                next,
                changes: mine,
            };
            parts.push((position, part));
        }
        let mut ahead = if levels == 0 {
            self.ahead(&parts, hasher)?
        } else {
            Vec::new()
        }
        .into_iter();
        let mut inserts: Vec<(usize, Vec<DxEntry>)> = Vec::new();
        for (position, part) in parts {
            let new = if levels == 0 {
                self.update_leaf(&part, ahead.next().flatten(), hasher)?
            } else {
                self.update_node(part.entry, levels - 1, part.next, part.changes, hasher)?
            };
            if !new.is_empty() {
                inserts.push((position, new));
            }
        }
        if inserts.is_empty() {
            return Ok(false);
        }
        let more: usize = inserts.iter().map(|(_, new)| new.len()).sum();
        let mut merged = Vec::with_capacity(entries.len() + more);
        let mut taken = 0;
        for (position, new) in inserts {
            // Positions grow and are positions of entries.
            merged.extend_from_slice(&entries[taken..=position]);
            merged.extend(new);
            taken = position + 1;
        }
        merged.extend_from_slice(&entries[taken..]);
        *entries = merged;
        Ok(true)
    }

    /// Applies changes below one index node; returns the entries of its new right neighbours.
    fn update_node(
        &mut self,
        node: DxEntry,
        levels: u8,
        end: Option<u32>,
        changes: &[NetName<'_>],
        hasher: &DirHasher,
    ) -> Result<Vec<DxEntry>> {
        let (block, page) = self.read(node.block, Role::Node)?;
        let index = htree::parse_node(&page, self.shape.csum, self.blocks()).map_err(at(block))?;
        let mut entries: Vec<DxEntry> = index.iter().collect();
        if let Some(first) = entries.first_mut() {
            first.hash = node.hash;
        }
        let low = entries.get(1).is_none_or(|e| e.hash >= node.hash);
        let high = entries
            .last()
            .is_none_or(|e| end.is_none_or(|end| e.hash <= end));
        if !(low && high) {
            return Err(self.corrupt("htree node with hashes outside its parent's entry"));
        }
        if !self.update_below(&mut entries, levels, changes, end, hasher)? {
            return Ok(Vec::new());
        }
        if entries.len() <= self.shape.capacity(IndexBlockKind::Node) {
            self.write_node(block, &entries)?;
            return Ok(Vec::new());
        }
        self.write_nodes(Some(block), &entries)
    }

    /// Writes entries over several nodes, the first one at `reuse` if given. Returns the entries of
    /// the nodes appended.
    fn write_nodes(
        &mut self,
        mut reuse: Option<BlockNr>,
        entries: &[DxEntry],
    ) -> Result<Vec<DxEntry>> {
        let fill = (self.shape.capacity(IndexBlockKind::Node) * NODE_FILL / 100).max(1);
        let nodes = entries.len().div_ceil(fill).max(2);
        let mut new = Vec::with_capacity(nodes);
        let mut start = 0;
        for i in 1..=nodes {
            let end = entries.len() * i / nodes;
            // `start <= end <= entries.len()`; more entries than nodes, as both are above 1.
            let part = &entries[start..end];
            start = end;
            let Some(first) = part.first() else { continue };
            match reuse.take() {
                Some(block) => self.write_node(block, part)?,
                None => {
                    let (logical, block) = self.append()?;
                    self.write_node(block, part)?;
                    new.push(DxEntry {
                        hash: first.hash,
                        block: logical,
                    });
                }
            }
        }
        Ok(new)
    }

    /// Writes the root; puts levels below it while it has too many entries.
    pub fn store_root(
        &mut self,
        block: BlockNr,
        mut init: RootInit,
        mut entries: Vec<DxEntry>,
    ) -> Result<()> {
        while entries.len() > self.shape.capacity(IndexBlockKind::Root) {
            if init.levels >= htree::max_levels(self.shape.large_dir) {
                return Err(Error::NoSpace(
                    "the directory's index has no level left to grow",
                ));
            }
            entries = self.write_nodes(None, &entries)?;
            init.levels += 1;
        }
        self.write_root(block, &init, &entries)
    }

    /// Applies changes to one leaf, using the leaf computed ahead if there is one. Returns the entries of the leaves
    /// that it was split into.
    fn update_leaf(
        &mut self,
        leaf: &Leaf<'_>,
        ahead: Option<(BlockNr, Rewritten)>,
        hasher: &DirHasher,
    ) -> Result<Vec<DxEntry>> {
        let (block, rewritten) = match ahead.filter(|(block, _)| !self.has_changed(*block)) {
            Some(ahead) => ahead,
            None => {
                let mut pending = Pending::new(leaf.changes, &self.shape);
                if let Some(next) = leaf.next.filter(|next| next & 1 == 1) {
                    self.update_continuation(next & !1, &mut pending)?;
                }
                let (block, page) = self.read(leaf.entry.block, Role::Leaf)?;
                let rewritten = leaf.rewritten(&page, page.known(), pending, &self.shape, hasher);
                (block, rewritten.map_err(at(block))?)
            }
        };
        let mut new = Vec::new();
        for (i, leaf) in rewritten.into_iter().enumerate() {
            if i == 0 {
                self.put_leaf(block, leaf.bytes, leaf.end);
            } else {
                let (logical, block) = self.append()?;
                self.put_leaf(block, leaf.bytes, leaf.end);
                new.push(DxEntry {
                    hash: leaf.hash,
                    block: logical,
                });
            }
        }
        Ok(new)
    }

    /// Writes names to a new leaf at the end of the directory.
    pub fn append_leaf(&mut self, hash: u32, names: &[Item<'_>]) -> Result<DxEntry> {
        let (logical, block) = self.append()?;
        self.write_leaf(block, names)?;
        Ok(DxEntry {
            hash,
            block: logical,
        })
    }

    /// Applies removals and replacements of names of `hash` in the leaves to the right of this one, where the hash
    /// continues. Changes of this hash that stay pending are new names.
    fn update_continuation(&mut self, hash: u32, pending: &mut Pending<'_>) -> Result<()> {
        let first = pending.changes.partition_point(|c| c.hash < hash);
        let changes = pending.changes;
        // `first` is a partition point; nothing in the slice is above `hash`, which is below `next`.
        let mut tail = Pending::new(&changes[first..], &self.shape);
        if tail.changes.is_empty() {
            return Ok(());
        }
        let wanted = WantedNames::new(tail.changes);
        let mut leaves = Vec::new();
        let blocks = self.blocks();
        let shape = self.shape;
        Descent::new(&shape, blocks, hash).run(
            &mut |logical, role| self.read(logical, role),
            &mut |leaf| {
                leaves.push(leaf);
                Ok(Visit::Continue)
            },
        )?;
        for &leaf in leaves.get(1..).unwrap_or(&[]) {
            let (block, page) = self.read(leaf, Role::Leaf)?;
            let merged =
                Merged::new(&page, page.is_checked(), &wanted, &mut tail).map_err(at(block))?;
            if merged.changed {
                self.rewrite_leaf(block, &page, &merged)?;
            }
        }
        pending.done[first..].copy_from_slice(&tail.done);
        Ok(())
    }
}

/// Returns the hasher of an existing index.
fn root_hasher(dir: &Dir<'_, '_>, stored: u8) -> Result<DirHasher> {
    let geometry = dir.geometry();
    let version = HashVersion::from_raw(stored, geometry.unsigned_hash)
        .ok_or_else(|| dir.corrupt("htree hash version"))?;
    Ok(dir.update.hasher.at_version(version))
}

/// Returns the same changes with another hash.
fn rehash<'n>(names: &[NetName<'n>], hasher: &DirHasher) -> Vec<NetName<'n>> {
    let with = |change: &NetName<'n>| {
        let (hash, minor) = hasher.hash(change.name);
        NetName {
            hash,
            minor,
            ..*change
        }
    };
    let mut names: Vec<_> = names.iter().map(with).collect();
    names.sort_unstable_by(|a, b| (a.hash, a.minor, a.name).cmp(&(b.hash, b.minor, b.name)));
    names
}

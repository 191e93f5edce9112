//! Directories without an index: names are placed where there is room.

use super::leaf::{self, Item, Merged, Pending};
use super::pages::{Dir, Page};
use super::shape::{Role, at};
use super::wanted::WantedNames;
use crate::error::Result;
use ext4_format::htree::RootInit;
use ext4_format::{FileType, InodeNr, dir_entry};

impl<'a> Dir<'a, '_> {
    /// Applies the batch to a new or linear directory; returns whether it has become indexed.
    pub fn apply_to_linear(&mut self) -> Result<bool> {
        match (self.update.init, self.blocks()) {
            (None, 0) => Err(self.corrupt("directory without blocks")),
            (None, 1) => self.apply_to_one_block(None),
            (None, _) => self.first_fit().map(|()| false),
            (Some(parent), _) => {
                let (logical, block) = self.append()?;
                if logical != 0 {
                    return Err(self.corrupt("new directory with blocks"));
                }
                let parent = self.update.new_parent.unwrap_or(parent);
                if self.update.names.is_empty() {
                    return self.write_leaf(block, &self.dots(parent)).map(|()| false);
                }
                self.apply_to_one_block(Some(parent))
            }
        }
    }

    fn dots(&self, parent: InodeNr) -> [Item<'static>; 2] {
        let ftype = self.shape.filetype.then_some(FileType::Directory);
        [(self.update.ino, &b"."[..]), (parent, &b".."[..])].map(|(ino, name)| Item {
            hash: 0,
            ino,
            ftype,
            name,
        })
    }

    /// Changes a directory of one block, or a new one (`parent`) whose only block has no image yet.
    fn apply_to_one_block(&mut self, parent: Option<InodeNr>) -> Result<bool> {
        let update = self.update;
        let mut pending = Pending::new(update.names, &self.shape);
        let (block, page, mut merged);
        match parent {
            Some(parent) => {
                block = self.locate(0)?;
                let mut fresh = vec![0; self.shape.block_size];
                let filetype = self.shape.filetype;
                dir_entry::init_dir(&mut fresh, self.shape.csum, update.ino, parent, filetype);
                page = Page::Changed(fresh);
                merged = Merged::new(
                    &page,
                    page.is_checked(),
                    &WantedNames::new(&[]),
                    &mut pending,
                )
                .map_err(at(block))?;
                merged.changed = true;
            }
            None => {
                (block, page) = self.read(0, Role::Leaf)?;
                merged = Merged::new(
                    &page,
                    page.is_checked(),
                    &WantedNames::new(update.names),
                    &mut pending,
                )
                .map_err(at(block))?;
            }
        }
        self.fix_dots(&mut merged)?;
        merged.items.reserve(update.names.len());
        merged.extend(pending.adds());
        if merged.bytes <= self.shape.usable() {
            if merged.changed {
                self.rewrite_leaf(block, &page, &merged)?;
            }
            return Ok(false);
        }
        if !self.geometry().features.has_dir_index() {
            if parent.is_some() {
                self.write_leaf(block, &merged.items[..2])?;
            }
            return self.first_fit().map(|()| false);
        }
        // ".." as fixed: fix_dots has checked that it is there.
        let parent = merged.items[1].ino;
        merged.hash_existing(update.hasher, 2);
        let (names, bytes) = (&mut merged.items[2..], merged.bytes - 24);
        // Runs that are sorted already, as a bulk of new names is, cost one pass.
        names.sort_by_key(|item| item.hash);
        let mut entries = Vec::new();
        for (hash, names) in leaf::cut(names, bytes, self.shape.usable()) {
            entries.push(self.append_leaf(hash, names)?);
        }
        let init = RootInit {
            own: update.ino,
            parent,
            filetype: self.shape.filetype,
            hash_version: update.hasher.version().stored(),
            levels: 0,
        };
        self.store_root(block, init, entries)?;
        Ok(true)
    }

    /// Checks that a first block starts with "." and ".."; points ".." to the new parent.
    fn fix_dots(&self, merged: &mut Merged<'_>) -> Result<()> {
        let [dot, dotdot, ..] = &merged.items[..] else {
            return Err(self.corrupt("directory without \".\" and \"..\""));
        };
        if dot.name != b"." || dotdot.name != b".." {
            return Err(self.corrupt("directory without \".\" and \"..\""));
        }
        if let Some(parent) = self.update.new_parent {
            merged.lead(1, parent);
        }
        Ok(())
    }

    /// Changes a directory of several blocks: one pass finds the names that exist and how much room each block has, a
    /// second one fills the room with new names.
    fn first_fit(&mut self) -> Result<()> {
        let update = self.update;
        let mut pending = Pending::new(update.names, &self.shape);
        let wanted = WantedNames::new(update.names);
        let count = self.blocks();
        let usable = self.shape.usable();
        let only_parent = update.names.is_empty();
        let mut used = Vec::new();
        for logical in 0..if only_parent { 1 } else { count } {
            let (block, page) = self.read(logical, Role::Leaf)?;
            let mut merged =
                Merged::new(&page, page.is_checked(), &wanted, &mut pending).map_err(at(block))?;
            if logical == 0 {
                self.fix_dots(&mut merged)?;
            }
            if merged.changed {
                self.rewrite_leaf(block, &page, &merged)?;
            }
            used.push(merged.bytes);
        }
        let mut adds = pending.adds().peekable();
        for (logical, used) in (0..count).zip(used) {
            let Some(next) = adds.peek() else { break };
            if used + dir_entry::rec_len_for(next.name.len()) > usable {
                continue;
            }
            let (block, page) = self.read(logical, Role::Leaf)?;
            let mut nothing = Pending::new(&[], &self.shape);
            let mut merged = Merged::new(
                &page,
                page.is_checked(),
                &WantedNames::new(&[]),
                &mut nothing,
            )
            .map_err(at(block))?;
            merged.fill(&mut adds, usable);
            self.rewrite_leaf(block, &page, &merged)?;
        }
        while adds.peek().is_some() {
            let mut merged = Merged::empty();
            merged.fill(&mut adds, usable);
            let (_, block) = self.append()?;
            self.write_leaf(block, &merged.items)?;
        }
        Ok(())
    }
}

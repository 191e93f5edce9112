//! Blocks of one directory: verified when read, written with their checksums.

use super::leaf::{self, Item, LeafFacts, Merged};
use super::shape::{Role, Shape, at};
use super::update::{DirBlocks, DirUpdate};
use crate::block_memory;
use crate::error::{Error, Result};
use crate::image::{BlockImages, Image, RecordsEnd, checked_names};
use crate::workspace::{Bytes, Workspace};
use ext4_format::geometry::Geometry;
use ext4_format::htree::{self, DxEntry, IndexBlockKind, RootInit};
use ext4_format::{BlockNr, InodeNr};
use std::ops::Deref;
use std::sync::Arc;

/// A block's bytes, kept alive apart from the workspace so that it may change meanwhile.
pub(super) enum Page {
    /// The block's image before this batch.
    Old(Arc<Image>),
    /// The bytes as this batch has left them until now.
    Changed(Vec<u8>),
}

impl Deref for Page {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Old(image) => image,
            Self::Changed(bytes) => bytes,
        }
    }
}

impl Page {
    /// Returns the known facts about a leaf.
    pub fn known(&self) -> LeafFacts {
        match self {
            Self::Old(image) => LeafFacts::of(image),
            Self::Changed(_) => LeafFacts::default(),
        }
    }

    /// Returns true if the names of a leaf need no check.
    pub fn is_checked(&self) -> bool {
        self.known().checked
    }
}

/// A directory in one batch.
pub(super) struct Dir<'a, 'w> {
    ws: &'a mut Workspace<'w>,
    map: &'a mut dyn DirBlocks,
    pub update: &'a DirUpdate<'a>,
    pub shape: Shape,
}

impl<'a, 'w> Dir<'a, 'w> {
    pub fn new(
        ws: &'a mut Workspace<'w>,
        map: &'a mut dyn DirBlocks,
        update: &'a DirUpdate<'a>,
    ) -> Self {
        let mut shape = Shape::new(ws.geometry, update.seed);
        // Far from the end of its index, a directory has room for every leaf that is split early.
        shape.keeps_room = update.keeps_room && u64::from(map.blocks()) < shape.most_leaves() / 8;
        Self {
            ws,
            map,
            update,
            shape,
        }
    }

    pub fn geometry(&self) -> &'a Geometry
    where
        'w: 'a,
    {
        self.ws.geometry
    }

    /// Returns the size in blocks.
    pub fn blocks(&self) -> u32 {
        self.map.blocks()
    }

    pub fn corrupt(&self, what: &'static str) -> Error {
        Error::corrupt_inode(what, self.update.ino)
    }

    pub fn locate(&mut self, logical: u32) -> Result<BlockNr> {
        self.map.get(self.ws, logical)
    }

    pub fn append(&mut self) -> Result<(u32, BlockNr)> {
        self.map.append(self.ws)
    }

    pub fn read(&mut self, logical: u32, role: Role) -> Result<(BlockNr, Page)> {
        let block = self.locate(logical)?;
        let image = match self.ws.get(block)? {
            Bytes::Image(image) => image,
            // The block was checked before it was changed, or never was on disk.
            Bytes::Changed(bytes) => return Ok((block, Page::Changed(bytes.to_vec()))),
        };
        self.shape.verify(&image, role, block)?;
        Ok((block, Page::Old(image)))
    }

    /// Returns true if this batch has changed a block.
    pub fn has_changed(&self, block: BlockNr) -> bool {
        self.ws.has_changed(block)
    }

    /// Returns the old images, as they are before this batch.
    pub fn images(&self) -> &'w dyn BlockImages {
        self.ws.images()
    }

    /// Sets the bytes of a leaf whose names were checked, and where they end.
    pub fn put_leaf(&mut self, block: BlockNr, bytes: Vec<u8>, end: Option<RecordsEnd>) {
        self.ws.put_sound(block, bytes, checked_names(end));
    }

    /// Writes names one after the other; the caller has checked that they fit.
    pub fn write_leaf(&mut self, block: BlockNr, items: &[Item<'_>]) -> Result<()> {
        let mut bytes = block_memory::unset(self.shape.block_size);
        let end = leaf::write(&mut bytes, items, &self.shape).map_err(at(block))?;
        self.put_leaf(block, bytes, end);
        Ok(())
    }

    /// Writes a merged leaf to its block, which it fits.
    pub fn rewrite_leaf(&mut self, block: BlockNr, old: &[u8], merged: &Merged<'_>) -> Result<()> {
        let mut bytes = block_memory::unset(self.shape.block_size);
        let written = merged.write(old, &mut bytes, &self.shape);
        let end = written.map_err(at(block))?;
        self.put_leaf(block, bytes, end);
        Ok(())
    }

    pub fn write_node(&mut self, block: BlockNr, entries: &[DxEntry]) -> Result<()> {
        let shape = self.shape;
        let bytes = self.ws.fresh(block);
        htree::write_node(bytes, shape.csum, entries.iter().copied()).map_err(at(block))?;
        if shape.csum {
            htree::set_checksum(bytes, IndexBlockKind::Node, shape.seed).map_err(at(block))?;
        }
        Ok(())
    }

    pub fn write_root(
        &mut self,
        block: BlockNr,
        init: &RootInit,
        entries: &[DxEntry],
    ) -> Result<()> {
        let shape = self.shape;
        let bytes = self.ws.fresh(block);
        htree::write_root(bytes, init, shape.csum, entries.iter().copied()).map_err(at(block))?;
        if shape.csum {
            htree::set_checksum(bytes, IndexBlockKind::Root, shape.seed).map_err(at(block))?;
        }
        Ok(())
    }

    /// Points an htree root's ".." elsewhere.
    pub fn set_root_parent(&mut self, block: BlockNr, parent: InodeNr) -> Result<()> {
        let shape = self.shape;
        let bytes = self.ws.get_mut(block)?;
        htree::set_parent(bytes, parent);
        if shape.csum {
            htree::set_checksum(bytes, IndexBlockKind::Root, shape.seed).map_err(at(block))?;
        }
        Ok(())
    }
}

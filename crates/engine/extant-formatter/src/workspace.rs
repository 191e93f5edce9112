//! The block images that a batch works on. Old images are borrowed from [`BlockImages`], and changed ones are owned
//! copies until the batch is done.

use crate::block_memory;
use crate::error::Result;
use crate::image::BlockImages;
use crate::image::{Image, NumberMap};
use ext4_format::geometry::Geometry;
use ext4_format::{BlockNr, FormatError, Where};
use std::ops::Deref;
use std::sync::Arc;

/// The newest bytes of a block.
pub enum Bytes<'w> {
    /// Changed by this batch.
    Changed(&'w [u8]),
    /// The image from before the batch.
    Image(Arc<Image>),
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Changed(bytes) => bytes,
            Self::Image(image) => image,
        }
    }
}

/// The images a batch works on: old ones come from [`BlockImages`], changed ones are owned copies.
pub struct Workspace<'a> {
    /// The volume.
    pub geometry: &'a Geometry,
    images: &'a dyn BlockImages,
    changed: NumberMap<u64, Vec<u8>>,
    /// The parts known to be right of changed blocks of inode tables and of names ([`Image::sound`]). Any other change
    /// of the block removes its entry.
    sound: NumberMap<u64, u64>,
    revoked: NumberMap<u64, ()>,
}

impl<'a> Workspace<'a> {
    /// Makes a workspace in which nothing has changed yet.
    pub fn new(geometry: &'a Geometry, images: &'a dyn BlockImages) -> Self {
        Self {
            geometry,
            images,
            changed: NumberMap::default(),
            sound: NumberMap::default(),
            revoked: NumberMap::default(),
        }
    }

    /// Returns the source of old images.
    pub fn images(&self) -> &'a dyn BlockImages {
        self.images
    }

    /// Returns the newest bytes of a block. Bytes from the device may be anything: a caller that relies on a checksum
    /// calls [`Workspace::unverified`] first.
    pub fn get(&self, block: BlockNr) -> Result<Bytes<'_>> {
        match self.changed.get(&block.0) {
            Some(bytes) => Ok(Bytes::Changed(bytes)),
            None => self.images.image(block).map(Bytes::Image),
        }
    }

    /// Returns the old image of a block if this batch has not changed it and its checksum was not verified since it was
    /// read from the device. A caller that checks it calls [`Image::set_verified`].
    pub fn unverified(&self, block: BlockNr) -> Result<Option<Arc<Image>>> {
        if self.has_changed(block) {
            return Ok(None);
        }
        let image = self.images.image(block)?;
        Ok((!image.is_verified()).then_some(image))
    }

    /// Returns the bytes of a block to change, copied on the first change.
    pub fn get_mut(&mut self, block: BlockNr) -> Result<&mut [u8]> {
        use std::collections::hash_map::Entry;
        self.sound.remove(&block.0);
        match self.changed.entry(block.0) {
            Entry::Occupied(bytes) => Ok(bytes.into_mut()),
            Entry::Vacant(place) => {
                Ok(place.insert(block_memory::copied(&self.images.image(block)?)))
            }
        }
    }

    /// Returns a new image of zeros, without reading the block.
    pub fn fresh(&mut self, block: BlockNr) -> &mut [u8] {
        let bytes = self.unset(block);
        bytes.fill(0);
        bytes
    }

    /// Returns a new image with arbitrary contents. The caller writes every byte.
    pub fn unset(&mut self, block: BlockNr) -> &mut [u8] {
        // The block is written again after it was freed, and the revoke would hide this image from recovery.
        self.revoked.remove(&block.0);
        self.sound.remove(&block.0);
        let size = self.geometry.block_size as usize;
        let new = || block_memory::unset(size);
        self.changed.entry(block.0).or_insert_with(new)
    }

    /// Returns true if this batch has changed a block.
    pub fn has_changed(&self, block: BlockNr) -> bool {
        self.changed.contains_key(&block.0)
    }

    /// Discards a block that no longer holds metadata: it is not written, and revoked in the journal.
    ///
    /// # Errors
    /// `Corrupt` if this batch has freed it before: two owners claim it.
    pub fn discard(&mut self, block: BlockNr) -> Result<()> {
        self.changed.remove(&block.0);
        self.sound.remove(&block.0);
        match self.revoked.insert(block.0, ()) {
            None => Ok(()),
            Some(()) => Err(FormatError::corrupt(
                "metadata block with two owners",
                Where::Block(block, 0),
            )
            .into()),
        }
    }

    /// Takes the bytes of a block out to change them. [`Workspace::put`] stores them again.
    pub(super) fn take(&mut self, block: BlockNr) -> Result<Vec<u8>> {
        self.take_table(block).map(|(bytes, _)| bytes)
    }

    /// Takes a table block with the records whose checksums are right.
    pub(super) fn take_table(&mut self, block: BlockNr) -> Result<(Vec<u8>, u64)> {
        let sound = self.sound.remove(&block.0).unwrap_or(0);
        match self.changed.remove(&block.0) {
            Some(bytes) => Ok((bytes, sound)),
            None => {
                let image = self.images.image(block)?;
                Ok((block_memory::copied(&image), image.sound()))
            }
        }
    }

    /// Sets the bytes of a block.
    pub(super) fn put(&mut self, block: BlockNr, bytes: Vec<u8>) {
        self.put_sound(block, bytes, 0);
    }

    /// Stores the block of an inode table or of names, with the parts that are known to be right ([`Image::sound`]).
    pub(super) fn put_sound(&mut self, block: BlockNr, bytes: Vec<u8>, sound: u64) {
        self.revoked.remove(&block.0);
        self.changed.insert(block.0, bytes);
        match sound {
            0 => self.sound.remove(&block.0),
            _ => self.sound.insert(block.0, sound),
        };
    }

    /// Takes over what another workspace of the same batch has changed.
    ///
    /// # Errors
    /// `Corrupt` if both have changed or freed a block: two owners claim it.
    pub(super) fn join(&mut self, other: Self) -> Result<()> {
        let two_owners = |block: u64| {
            FormatError::corrupt(
                "metadata block with two owners",
                Where::Block(BlockNr(block), 0),
            )
        };
        for (block, bytes) in other.changed {
            if self.revoked.contains_key(&block) || self.changed.insert(block, bytes).is_some() {
                return Err(two_owners(block).into());
            }
        }
        self.sound.extend(other.sound);
        for (block, ()) in other.revoked {
            if self.changed.contains_key(&block) || self.revoked.insert(block, ()).is_some() {
                return Err(two_owners(block).into());
            }
        }
        Ok(())
    }

    /// Returns the changed blocks with their images, and revoked blocks, each by block number.
    pub fn finish(self) -> (Vec<(BlockNr, Arc<Image>)>, Vec<BlockNr>) {
        let mut blocks: Vec<_> = self
            .changed
            .into_iter()
            .map(|(b, bytes)| {
                let sound = self.sound.get(&b).copied().unwrap_or(0);
                (BlockNr(b), Image::made_of_sound(bytes, sound))
            })
            .collect();
        blocks.sort_unstable_by_key(|(b, _)| *b);
        let mut revoked: Vec<_> = self.revoked.into_keys().map(BlockNr).collect();
        revoked.sort_unstable();
        (blocks, revoked)
    }
}

//! Block images: the bytes of one metadata block, never changed once they are made.

use crate::block_memory;
use crate::error::Result;
use ext4_format::BlockNr;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Multiplies by the golden ratio: enough for block numbers, far cheaper than SipHash.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    #[inline]
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    #[inline]
    fn write_u64(&mut self, n: u64) {
        let mixed = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A map keyed by numbers.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// The high half of [`Image::sound`] of a block of names that were all checked. The low half says where its records
/// end. No inode table is taken for one: the zone of the volume's own blocks keeps directories out of them.
const CHECKED_NAMES: u64 = 0xd1ec_7ed0;

/// End of the packed records of a block of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordsEnd {
    /// Start of the last of them, whose length covers the free space.
    pub last: u16,
    /// Their bytes; not 0.
    pub bytes: u16,
}

/// Returns [`Image::sound`] for a block of names that were all checked, with the end of its records if that is known.
pub(crate) fn checked_names(end: Option<RecordsEnd>) -> u64 {
    let end = end.map_or(0, |end| u64::from(end.last) << 16 | u64::from(end.bytes));
    CHECKED_NAMES << 32 | end
}

/// An immutable block image, and whether its checksum has been verified since it was read.
#[derive(Debug)]
pub struct Image {
    bytes: Vec<u8>,
    verified: AtomicBool,
    /// Of an inode table, the records whose checksums were verified or made here, a bit for each of the first 64. Of a
    /// block of names, [`checked_names`] or 0.
    sound: u64,
}

impl Image {
    /// Makes an image in memory, whose checksum needs no check.
    #[inline]
    pub fn made(bytes: Vec<u8>) -> Arc<Self> {
        Self::made_of_sound(bytes, 0)
    }

    /// Makes an image of an inode table or of names. The parts in `sound` are known to be right, and nothing is known
    /// of the others.
    pub(crate) fn made_of_sound(bytes: Vec<u8>, sound: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            verified: AtomicBool::new(true),
            sound,
        })
    }

    /// Returns true if each name of a block of names is known to be valid.
    pub(crate) fn has_checked_names(&self) -> bool {
        self.sound >> 32 == CHECKED_NAMES
    }

    /// Returns the end of the records of a block of names, if it is known.
    pub(crate) fn records_end(&self) -> Option<RecordsEnd> {
        let end = RecordsEnd {
            last: (self.sound >> 16) as u16,
            bytes: self.sound as u16,
        };
        (self.has_checked_names() && end.bytes > 0).then_some(end)
    }

    /// Returns the records of an inode table whose checksums are right.
    pub(crate) fn sound(&self) -> u64 {
        self.sound
    }

    /// Makes an image of bytes that were read, whose checksum is not checked yet.
    #[inline]
    pub fn read(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            verified: AtomicBool::new(false),
            sound: 0,
        })
    }

    /// Returns true once [`Image::set_verified`] was called or the image was made here.
    #[inline]
    pub fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Relaxed)
    }

    /// Notes that the checksum of the whole block is right.
    #[inline]
    pub fn set_verified(&self) {
        self.verified.store(true, Ordering::Relaxed);
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        block_memory::give(std::mem::take(&mut self.bytes));
    }
}

impl Deref for Image {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A source of the newest images.
pub trait BlockImages: Sync {
    /// Returns the newest image of a metadata block.
    fn image(&self, block: BlockNr) -> Result<Arc<Image>>;
}

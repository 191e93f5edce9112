//! Metadata blocks: inodes, directories and tables are in blocks of 8 KiB, each compressed separately, and a
//! structure may begin in one block and end in the next.

use super::Image;
use crate::error::{Result, SourceError};
use std::sync::Arc;

/// Bytes of a metadata block after decompression; the last of a table may have fewer.
pub(super) const BLOCK: usize = 8192;
/// Marks the length of a block that is not compressed.
const PLAIN: u16 = 1 << 15;

/// A metadata block.
pub(super) struct Block {
    pub data: Vec<u8>,
    /// Place of the next block.
    next: u64,
}

impl Image {
    /// Returns the metadata block that begins at a place.
    pub(super) fn metadata(&self, at: u64) -> Result<Arc<Block>> {
        self.metadata.get(at, || self.read_metadata(at))
    }

    fn read_metadata(&self, at: u64) -> Result<Block> {
        let mut header = [0; 2];
        self.read(at, &mut header)?;
        let header = u16::from_le_bytes(header);
        let stored = usize::from(header & !PLAIN);
        if stored == 0 || stored > BLOCK {
            let what =
                format!("a metadata block of {stored} bytes, where 1 to {BLOCK} are possible");
            return Err(self.error(at, what));
        }
        let mut data = vec![0; stored];
        self.read(at + 2, &mut data)?; // far from the end of 64 bits: the header was read
        if header & PLAIN == 0 {
            let mut plain = vec![0; BLOCK];
            let len = self.codec.decode(&data, &mut plain);
            plain.truncate(len.map_err(|what| self.error(at, what))?);
            data = plain;
        }
        if data.is_empty() {
            return Err(self.error(at, "an empty metadata block"));
        }
        Ok(Block {
            data,
            next: at + 2 + stored as u64,
        })
    }

    /// Returns an entry of a table by its index: blocks of metadata full of entries, and a list of their places.
    pub(super) fn entry<const N: usize>(&self, list: u64, index: u32) -> Result<[u8; N]> {
        let byte = u64::from(index) * N as u64;
        let pointer = list.saturating_add(byte / BLOCK as u64 * 8);
        let mut place = [0; 8];
        self.read(pointer, &mut place)?;
        let block = u64::from_le_bytes(place);
        Cursor::new(self, block, byte as usize % BLOCK)?.array()
    }
}

/// A place in a sequence of metadata blocks.
pub(super) struct Cursor<'a> {
    image: &'a Image,
    /// Place of the block.
    at: u64,
    block: Arc<Block>,
    offset: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor in the block at a place, at an offset in it.
    pub fn new(image: &'a Image, at: u64, offset: usize) -> Result<Self> {
        let block = image.metadata(at)?;
        let cursor = Self {
            image,
            at,
            block,
            offset,
        };
        if offset > cursor.block.data.len() {
            Err(cursor.error("something beyond the end of a metadata block"))
        } else {
            Ok(cursor)
        }
    }

    /// Creates a cursor from a reference into a table: the offset of the block in the table, and 16 bits of the
    /// offset in the block.
    pub fn of(image: &'a Image, table: u64, reference: u64) -> Result<Self> {
        let at = table.saturating_add(reference >> 16);
        Self::new(image, at, usize::from(reference as u16))
    }

    /// Reads the next bytes.
    pub fn read(&mut self, mut to: &mut [u8]) -> Result<()> {
        while !to.is_empty() {
            let rest = &self.block.data[self.offset..]; // never behind its end
            if rest.is_empty() {
                self.at = self.block.next;
                self.block = self.image.metadata(self.at)?;
                self.offset = 0;
                continue;
            }
            let n = rest.len().min(to.len());
            let (now, later) = to.split_at_mut(n);
            now.copy_from_slice(&rest[..n]);
            self.offset += n;
            to = later;
        }
        Ok(())
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    pub fn bytes(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(&mut bytes)?;
        Ok(bytes)
    }

    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns the place as an increasing number: the place of the block, and the offset in it.
    pub fn place(&self) -> (u64, usize) {
        (self.at, self.offset)
    }

    /// Creates an error at this place.
    pub fn error(&self, what: impl std::fmt::Display) -> SourceError {
        let what = format!("{what} ({} bytes into this metadata block)", self.offset);
        self.image.error(self.at, what)
    }
}

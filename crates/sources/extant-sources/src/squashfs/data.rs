//! The data of files: whole blocks in their order, and ends of several files together in fragments.

use super::Image;
use super::inode::FileBody;
use super::metadata::Cursor;
use crate::error::Result;
use std::sync::Arc;

/// Marks a block that is not compressed, in the sizes of blocks.
const PLAIN: u32 = 1 << 24;
/// Flag of an uncompressed block in places of blocks.
const PLAIN_AT: u64 = 1 << 63;
/// Maximum of blocks of all files together, holes included: 4 TiB in blocks of 128 KiB. They are kept in memory, with
/// 8 bytes for each.
pub(super) const MOST_BLOCKS: u64 = 1 << 25;

/// A stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stored {
    at: u64,
    len: u32,
    plain: bool,
}

/// A file's data.
pub(super) struct FileData {
    size: u64,
    /// Where each block begins, and where the last one ends. A block of no length is a hole.
    blocks: Box<[u64]>,
    /// The end of the file: the fragment that it is in, and the offset there.
    tail: Option<(Stored, u32)>,
}

impl Image {
    /// Reads the places of a file's data. The cursor is at the list of its blocks; `room` is the maximum of blocks.
    pub(super) fn file_data(
        &self,
        body: FileBody,
        number: u32,
        at: &mut Cursor<'_>,
        room: u64,
    ) -> Result<FileData> {
        let block_size = u64::from(self.sb.block_size);
        let count = match body.fragment {
            Some(_) => body.size / block_size,
            None => body.size.div_ceil(block_size),
        };
        if count > room {
            let what =
                format!("inode {number}: with it the files have more than {MOST_BLOCKS} blocks");
            return Err(at.error(what));
        }
        let bad = |at: &Cursor<'_>, what: &str| Err(at.error(format!("inode {number}: {what}")));
        if count > 0 && body.start > self.sb.len {
            return bad(at, "data outside of the image");
        }
        let mut next = body.start;
        let mut blocks = Vec::new();
        for i in 0..count {
            let word = at.u32()?;
            let len = word & (PLAIN - 1);
            let wanted = (body.size - i * block_size).min(block_size);
            let plain = word & PLAIN != 0;
            if word > PLAIN | (PLAIN - 1) || len > self.sb.block_size {
                return bad(at, "a block of an impossible size");
            }
            if plain && len != 0 && u64::from(len) != wanted {
                return bad(
                    at,
                    "a block that is not compressed, and not as long as it should be",
                );
            }
            blocks.push(next | if plain { PLAIN_AT } else { 0 });
            next += u64::from(len); // at most the image's bytes, and a block
            if next > self.sb.len {
                return bad(at, "data outside of the image");
            }
        }
        if count > 0 {
            blocks.push(next);
        }
        let tail = match body.fragment {
            None => None,
            Some((index, offset)) => {
                let rest = body.size % block_size;
                if u64::from(offset) + rest > block_size {
                    return bad(at, "an end of the file beyond the fragment that it is in");
                }
                Some((self.fragment(index, number, at)?, offset))
            }
        };
        Ok(FileData {
            size: body.size,
            blocks: blocks.into(),
            tail,
        })
    }

    /// Returns a fragment of the table.
    fn fragment(&self, index: u32, number: u32, at: &Cursor<'_>) -> Result<Stored> {
        let table = self.sb.fragment_table.filter(|_| index < self.sb.fragments);
        let Some(table) = table else {
            return Err(at.error(format!(
                "inode {number}: fragment {index}, which does not exist"
            )));
        };
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = self.entry::<16>(table, index)?;
        let start = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let word = u32::from_le_bytes([i, j, k, l]);
        let len = word & (PLAIN - 1);
        let end = start.checked_add(len.into());
        let inside = end.is_some_and(|end| end <= self.sb.len);
        if word > PLAIN | (PLAIN - 1) || len == 0 || len > self.sb.block_size || !inside {
            return Err(at.error(format!("inode {number}: fragment {index} is impossible")));
        }
        Ok(Stored {
            at: start,
            len,
            plain: word & PLAIN != 0,
        })
    }

    /// Reads a stored block; returns its length.
    fn unpack(&self, block: Stored, to: &mut [u8]) -> Result<usize> {
        let len = block.len as usize; // at most a block
        if !block.plain {
            let mut stored = vec![0; len];
            self.read(block.at, &mut stored)?;
            let unpacked = self.codec.decode(&stored, to);
            return unpacked.map_err(|what| self.error(block.at, what));
        }
        match to.get_mut(..len) {
            Some(to) => self.read(block.at, to)?,
            None => return Err(self.error(block.at, "a block longer than its file")),
        }
        Ok(len)
    }

    /// Returns a stored block through the cache, because further parts of it may be needed.
    fn kept(&self, block: Stored) -> Result<Arc<Vec<u8>>> {
        self.blocks.get(block, || {
            let mut data = vec![0; self.sb.block_size as usize];
            let len = self.unpack(block, &mut data)?;
            data.truncate(len);
            Ok(data)
        })
    }

    /// Reads a part of a stored block.
    fn read_part(&self, block: Stored, offset: usize, to: &mut [u8]) -> Result<()> {
        let data = self.kept(block)?;
        let part = data.get(offset..).and_then(|rest| rest.get(..to.len()));
        let Some(part) = part else {
            return Err(self.error(block.at, "a block shorter than what files have in it"));
        };
        to.copy_from_slice(part);
        Ok(())
    }

    /// Reads data of a file.
    pub(super) fn read_file(&self, file: &FileData, offset: u64, buf: &mut [u8]) -> Result<()> {
        let block_size = u64::from(self.sb.block_size);
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > file.size) {
            return Err(self.error(0, "a read beyond the end of a file"));
        }
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (index, within) = (at / block_size, (at % block_size) as usize); // below 1 MiB
            let len = (file.size - index * block_size).min(block_size) as usize; // likewise
            let n = rest.len().min(len - within);
            let (part, later) = rest.split_at_mut(n);
            match (file.block(index), file.tail) {
                (Some(block), _) if block.len == 0 => part.fill(0),
                // A whole block needs no separate buffer.
                (Some(block), _) if n == len => {
                    if self.unpack(block, part)? != len {
                        return Err(self.error(block.at, "a block shorter than it should be"));
                    }
                }
                (Some(block), _) => self.read_part(block, within, part)?,
                (None, Some((block, offset))) => {
                    self.read_part(block, offset as usize + within, part)?;
                }
                (None, None) => return Err(self.error(0, "a file without its last block")),
            }
            (at, rest) = (at + n as u64, later);
        }
        Ok(())
    }
}

impl FileData {
    /// Returns the number of entries of its list of blocks.
    pub fn count(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn block(&self, index: u64) -> Option<Stored> {
        let index = usize::try_from(index).ok()?;
        let (this, next) = (self.blocks.get(index)?, self.blocks.get(index + 1)?);
        let at = this & !PLAIN_AT;
        Some(Stored {
            at,
            len: ((next & !PLAIN_AT) - at) as u32, // at most a block, as read
            plain: this & PLAIN_AT != 0,
        })
    }

    /// Returns the start and length of each range of data, without holes.
    pub fn stretches(&self, block_size: u32) -> Vec<(u64, u64)> {
        let block_size = u64::from(block_size);
        let mut found: Vec<(u64, u64)> = Vec::new();
        let full = self.count().saturating_sub(1);
        let mut data = |start: u64| {
            let len = self.size.saturating_sub(start).min(block_size);
            match found.last_mut() {
                Some((at, before)) if *at + *before == start => *before += len,
                _ if len > 0 => found.push((start, len)),
                _ => {}
            }
        };
        for i in 0..full {
            if self.block(i).is_some_and(|b| b.len > 0) {
                data(i * block_size);
            }
        }
        if self.tail.is_some() {
            data(full * block_size);
        }
        found
    }
}

//! Android's sparse images: a header, and chunks that are raw, filled with four bytes, or skipped. All numbers are
//! little endian.
//!
//! | header | bytes | chunk | bytes |
//! |---|---|---|---|
//! | magic number | 4 | type | 2 |
//! | versions, 1 and 0 | 2, 2 | reserved | 2 |
//! | bytes of this header and of a chunk's | 2, 2 | blocks of the disk | 4 |
//! | bytes of a block | 4 | bytes of the file, with this header | 4 |
//! | blocks of the disk, chunks, checksum | 4, 4, 4 | | |

use crate::mapped::{Map, Stretch, damaged};
use crate::packing::Packing;
use crate::scratch::{PIECE, Scratch};
use blockdev::{BlockDevice, FileDevice};
use std::io::{self, Write};

/// Magic number.
pub const MAGIC: [u8; 4] = 0xed26_ff3a_u32.to_le_bytes();
const HEADER: u16 = 28;
const CHUNK_HEADER: u16 = 12;
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const NO_MATTER: u16 = 0xcac3;
/// Chunk type of a checksum, which is ignored, because it may be 0 for none.
const CHECKSUM: u16 = 0xcac4;
/// Largest number of chunks, which take 96 MiB of memory.
const MOST_CHUNKS: u32 = 4 << 20;
/// Largest number of raw bytes in a written chunk, because readers may hold a whole chunk in memory.
const LONGEST: u64 = 64 << 20;

/// Content of a chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    Raw(u64),
    Fill([u8; 4]),
}

/// Table of the chunks.
pub struct Chunks {
    /// Position of each chunk on the disk, and its content.
    chunks: Vec<(u64, Content)>,
    len: u64,
}

fn broken(what: impl std::fmt::Display) -> io::Error {
    damaged("Android sparse image", what)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    let two = bytes.get(at..).and_then(|rest| rest.first_chunk());
    two.map_or(0, |two| u16::from_le_bytes(*two))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

impl Chunks {
    /// Reads the headers of a file.
    pub fn read(file: &dyn BlockDevice) -> io::Result<Self> {
        let mut header = [0; HEADER as usize];
        if file.len() < header.len() as u64 {
            return Err(broken("its header is cut off"));
        }
        file.read_at(0, &mut header)?;
        let version = (half(&header, 4), half(&header, 6));
        if version.0 != 1 {
            let text = format!(
                "Android sparse images of version {}.{}",
                version.0, version.1
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let (skip, chunk_header) = (half(&header, 8), half(&header, 10));
        if skip < HEADER || chunk_header < CHUNK_HEADER {
            return Err(broken(format_args!(
                "headers of {skip} and {chunk_header} bytes"
            )));
        }
        let (block, blocks, count) = (word(&header, 12), word(&header, 16), word(&header, 20));
        if block == 0 || !block.is_multiple_of(4) {
            return Err(broken(format_args!("blocks of {block} bytes")));
        }
        if count > MOST_CHUNKS {
            let what = format!("{count} chunks, and at most {MOST_CHUNKS} are read");
            return Err(broken(what));
        }
        let mut chunks = Self {
            chunks: Vec::new(),
            len: 0,
        };
        let mut at = u64::from(skip);
        for number in 0..count {
            at = chunks.chunk(file, at, chunk_header.into(), block.into(), number)?;
        }
        let len = u64::from(block) * u64::from(blocks);
        if chunks.len != len {
            let what = format!(
                "its chunks have {} bytes, and its header says {len}",
                chunks.len
            );
            return Err(broken(what));
        }
        Ok(chunks)
    }

    /// Reads a chunk's header. Returns the position of the next chunk.
    fn chunk(
        &mut self,
        file: &dyn BlockDevice,
        at: u64,
        header: u64,
        block: u64,
        number: u32,
    ) -> io::Result<u64> {
        let wrong = |what: &str| broken(format_args!("chunk {number} at {at} {what}"));
        let fits = |end: u64| {
            if end <= file.len() {
                Ok(end)
            } else {
                Err(wrong("is cut off"))
            }
        };
        let mut bytes = [0; CHUNK_HEADER as usize];
        let data = fits(at + header)?; // at is in the file
        file.read_at(at, &mut bytes)?;
        let (kind, blocks, total) = (half(&bytes, 0), word(&bytes, 4), word(&bytes, 8));
        let len = u64::from(blocks) * block;
        let (stored, content) = match kind {
            RAW => (len, Some(Content::Raw(data))),
            FILL => {
                let mut four = [0; 4];
                fits(data + 4)?;
                file.read_at(data, &mut four)?;
                (4, Some(Content::Fill(four)))
            }
            NO_MATTER => (0, Some(Content::Fill([0; 4]))),
            CHECKSUM => (4, None),
            _ => return Err(wrong("is of no known type")),
        };
        if u64::from(total) != header + stored {
            return Err(wrong("has another length than its type"));
        }
        if let Some(content) = content.filter(|_| len > 0) {
            self.chunks.push((self.len, content));
            // The sum of at most 2^22 products of two 32-bit numbers, which must equal one such product.
            let sum = self.len.checked_add(len);
            self.len = sum.ok_or_else(|| wrong("is beyond all disks"))?;
        }
        fits(data + stored)
    }
}

impl Map for Chunks {
    fn len(&self) -> u64 {
        self.len
    }

    fn at(&self, _: &FileDevice, offset: u64) -> io::Result<(Stretch, u64)> {
        let after = self.chunks.partition_point(|(start, _)| *start <= offset);
        let found = after
            .checked_sub(1)
            .and_then(|index| self.chunks.get(index));
        let (start, content) = found.ok_or(io::ErrorKind::UnexpectedEof)?;
        let end = self.chunks.get(after).map_or(self.len, |(next, _)| *next);
        let stretch = match content {
            Content::Raw(at) => Stretch::File(at + (offset - start)),
            Content::Fill([0, 0, 0, 0]) => Stretch::Zeros,
            Content::Fill(four) => Stretch::Fill(*four),
        };
        Ok((stretch, end - offset))
    }
}

/// Writes a device as a sparse image. Zeros become fill chunks and are not skipped, because old data of the target
/// device must not appear where a file system relies on zeros.
pub fn pack(scratch: &Scratch, out: &mut impl Write, packing: &Packing<'_>) -> io::Result<()> {
    let len = scratch.len();
    let block = [4096, 1024, 512]
        .into_iter()
        .find(|block| len.is_multiple_of(*block));
    let blocks = block.and_then(|block| u32::try_from(len / block).ok());
    let (Some(block), Some(blocks)) = (block, blocks) else {
        let text = "an Android sparse image has at most 2^32 blocks of 512 to 4096 bytes";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    };
    let runs = runs(scratch, block)?;
    let count = u32::try_from(runs.len()).unwrap_or(u32::MAX);
    if count > MOST_CHUNKS {
        return Err(io::Error::other("the image would have too many chunks"));
    }
    out.write_all(&MAGIC)?;
    for half in [1, 0, HEADER, CHUNK_HEADER] {
        out.write_all(&half.to_le_bytes())?;
    }
    for word in [block as u32, blocks, count, 0] {
        out.write_all(&word.to_le_bytes())?;
    }
    let mut at = 0;
    for (len, content) in runs {
        let (kind, stored) = match content {
            Content::Raw(_) => (RAW, len),
            Content::Fill(_) => (FILL, 4),
        };
        out.write_all(&kind.to_le_bytes())?;
        out.write_all(&[0; 2])?;
        out.write_all(&((len / block) as u32).to_le_bytes())?; // part of `blocks`
        let total = u64::from(CHUNK_HEADER) + stored; // LONGEST bounds it
        out.write_all(&(total as u32).to_le_bytes())?;
        match content {
            Content::Fill(four) => out.write_all(&four)?,
            Content::Raw(_) => copy(scratch, at, len, out, packing)?,
        }
        if matches!(content, Content::Fill(_)) {
            (packing.step)(len)?;
        }
        at += len;
    }
    Ok(())
}

fn copy(
    scratch: &Scratch,
    start: u64,
    len: u64,
    out: &mut impl Write,
    packing: &Packing<'_>,
) -> io::Result<()> {
    let mut buf = vec![0; PIECE.min(len) as usize];
    let mut done = 0;
    while done < len {
        let buf = &mut buf[..PIECE.min(len - done) as usize];
        scratch.read_at(start + done, buf)?;
        out.write_all(buf)?;
        done += buf.len() as u64;
        (packing.step)(buf.len() as u64)?;
    }
    Ok(())
}

/// Returns the runs of blocks that become chunks: their length in bytes, and their content.
fn runs(scratch: &Scratch, block: u64) -> io::Result<Vec<(u64, Content)>> {
    let mut runs: Vec<(u64, Content)> = Vec::new();
    let mut add = |len: u64, content: Content| match runs.last_mut() {
        Some((before, same))
            if *same == content
                && (matches!(content, Content::Fill(_)) || *before + len <= LONGEST) =>
        {
            *before += len;
        }
        _ => runs.push((len, content)),
    };
    let mut buf = vec![0; PIECE as usize];
    for piece in 0..scratch.len().div_ceil(PIECE) {
        let start = piece * PIECE;
        let buf = &mut buf[..PIECE.min(scratch.len() - start) as usize];
        if !scratch.is_touched(piece) {
            add(buf.len() as u64, Content::Fill([0; 4]));
            continue;
        }
        scratch.read_at(start, buf)?;
        for bytes in buf.chunks(block as usize) {
            let content = filled(bytes).map_or(Content::Raw(0), Content::Fill);
            add(bytes.len() as u64, content);
        }
    }
    Ok(runs)
}

/// Returns the four bytes that a block is filled with.
fn filled(block: &[u8]) -> Option<[u8; 4]> {
    let first = *block.first_chunk()?;
    let same = match first {
        [0, 0, 0, 0] => blockdev::is_zero(block),
        first => block.chunks_exact(4).all(|four| four == first),
    };
    same.then_some(first)
}

//! The bytes of a segment.
//!
//! All numbers are little endian. The head is `magic, length of the head (u32), kind (u32), number (u64), writer (16 bytes), size of
//! the image (u64), count of runs (u32), length of the holder's text (u32)`, the runs (`block (u64), blocks (u32), data (u32)`), the
//! holder's text, and the CRC-32C of all of these. Behind it come the blocks of the runs with data, each with its CRC-32C.

use super::BLOCK;
use std::io;

const MAGIC: [u8; 8] = *b"EXTSEG1\n";
/// Bytes of the head before the runs.
const FIXED: usize = 56;
const RUN: usize = 16;
/// Bytes of a block with its checksum.
pub const RECORD: u64 = BLOCK + 4;
/// Longest head.
const MOST_HEAD: u32 = 64 << 20;

/// Purpose of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Blocks.
    Data,
    /// The writer has the image from here on.
    Claim,
    /// Blocks, and the writer has the image no longer.
    Release,
}

/// Blocks in sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub block: u64,
    pub blocks: u32,
    /// Whether the segment has their data; otherwise they are zeros.
    pub has_data: bool,
}

/// Head of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: SegmentKind,
    pub number: u64,
    pub writer: [u8; 16],
    /// Bytes of the image.
    pub size: u64,
    pub runs: Vec<Run>,
    pub holder: String,
    /// Length of the head in bytes.
    pub len: u64,
}

fn damaged(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("not a valid segment: {what}"),
    )
}

/// Reads numbers one after the other; the end of the bytes is an error.
pub struct Fields<'b>(pub &'b [u8]);

impl<'b> Fields<'b> {
    pub fn take(&mut self, len: usize) -> io::Result<&'b [u8]> {
        let (now, later) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| damaged("it is too short"))?;
        self.0 = later;
        Ok(now)
    }

    pub fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.take(N)?
            .try_into()
            .map_err(|_| damaged("it is too short"))
    }

    pub fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

impl Head {
    /// Encodes the head.
    pub fn encode(&self) -> Vec<u8> {
        let len = FIXED + self.runs.len() * RUN + self.holder.len() + 4;
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(MAGIC);
        bytes.extend((len as u32).to_le_bytes()); // runs of at most a batch
        let kind: u32 = match self.kind {
            SegmentKind::Data => 0,
            SegmentKind::Claim => 1,
            SegmentKind::Release => 2,
        };
        bytes.extend(kind.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.writer);
        bytes.extend(self.size.to_le_bytes());
        bytes.extend((self.runs.len() as u32).to_le_bytes());
        bytes.extend((self.holder.len() as u32).to_le_bytes());
        for run in &self.runs {
            bytes.extend(run.block.to_le_bytes());
            bytes.extend(run.blocks.to_le_bytes());
            bytes.extend(u32::from(run.has_data).to_le_bytes());
        }
        bytes.extend(self.holder.as_bytes());
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Returns the length of the head, from the first bytes of a segment.
    pub fn len_of(bytes: &[u8]) -> io::Result<u64> {
        let mut fields = Fields(bytes);
        if fields.array()? != MAGIC {
            return Err(damaged("it does not begin like one"));
        }
        let len = fields.u32()?;
        if len > MOST_HEAD {
            return Err(damaged(format_args!("a head of {len} bytes")));
        }
        Ok(len.into())
    }

    /// Decodes the head of a segment; `bytes` has all of it.
    pub fn decode(bytes: &[u8]) -> io::Result<Self> {
        let len = Self::len_of(bytes)?;
        let head = Fields(bytes).take(len as usize)?;
        let (head, sum) = head
            .split_last_chunk()
            .ok_or_else(|| damaged("it is too short"))?;
        if crc32c::crc32c(head) != u32::from_le_bytes(*sum) {
            return Err(damaged("its checksum is wrong"));
        }
        let mut fields = Fields(head.get(12..).unwrap_or_default());
        let kind = match fields.u32()? {
            0 => SegmentKind::Data,
            1 => SegmentKind::Claim,
            2 => SegmentKind::Release,
            kind => return Err(damaged(format_args!("kind {kind}"))),
        };
        let (number, writer, size) = (fields.u64()?, fields.array()?, fields.u64()?);
        let (count, holder) = (fields.u32()? as usize, fields.u32()? as usize);
        let mut rest = Fields(
            fields.take(
                count
                    .checked_mul(RUN)
                    .ok_or_else(|| damaged("too many runs"))?,
            )?,
        );
        let holder = String::from_utf8_lossy(fields.take(holder)?).into_owned();
        let mut runs = Vec::with_capacity(count); // as many as there are bytes for
        for _ in 0..count {
            let (block, blocks, data) = (rest.u64()?, rest.u32()?, rest.u32()?);
            let end = block.checked_add(blocks.into());
            if end.is_none_or(|end| end > size.div_ceil(BLOCK)) || data > 1 {
                return Err(damaged(format_args!("a run of {blocks} blocks at {block}")));
            }
            runs.push(Run {
                block,
                blocks,
                has_data: data == 1,
            });
        }
        Ok(Self {
            kind,
            number,
            writer,
            size,
            runs,
            holder,
            len,
        })
    }

    /// Returns the length of the whole segment.
    pub fn segment_len(&self) -> u64 {
        let with_data = self.runs.iter().filter(|run| run.has_data);
        let blocks: u64 = with_data.map(|run| u64::from(run.blocks)).sum();
        // A segment has at most 2^22 runs of 2^32 blocks.
        self.len.saturating_add(blocks.saturating_mul(RECORD))
    }
}

/// Appends a block and its checksum.
pub fn push_record(bytes: &mut Vec<u8>, block: &[u8]) {
    bytes.extend(block);
    bytes.extend(crc32c::crc32c(block).to_le_bytes());
}

/// Returns the block of a record, if its checksum is right.
pub fn block_of(record: &[u8]) -> io::Result<&[u8]> {
    match record.split_last_chunk() {
        Some((block, sum)) if crc32c::crc32c(block) == u32::from_le_bytes(*sum) => Ok(block),
        _ => Err(damaged("the checksum of a block is wrong")),
    }
}

#[test]
fn heads_are_read_as_they_are_written_and_garbage_is_refused() {
    let run = |block, blocks, has_data| Run {
        block,
        blocks,
        has_data,
    };
    let mut head = Head {
        kind: SegmentKind::Release,
        number: 7,
        writer: [3; 16],
        size: 1 << 20,
        runs: vec![run(0, 2, true), run(9, 100, false), run(255, 1, true)],
        holder: "box".into(),
        len: 0,
    };
    let bytes = head.encode();
    head.len = bytes.len() as u64;
    assert_eq!(Head::decode(&bytes).unwrap(), head);
    assert_eq!(head.segment_len(), head.len + 3 * RECORD);
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x40;
        assert!(Head::decode(&bad).is_err(), "byte {at}");
        assert!(Head::decode(&bytes[..at]).is_err(), "{at} bytes");
    }
    head.runs.push(run(250, 7, true));
    assert!(Head::decode(&head.encode()).is_err());
}

//! The bytes of a segment.
//!
//! All numbers are little endian. The head is `magic, length of the head (u32), kind (u32), flags (u32), number (u64), writer (16
//! bytes), writer before a claim (16 bytes), size of the image (u64), segments before this one that may be missing (u32), count of
//! runs (u32), length of the holder's text (u32)`, the runs (`block (u64), blocks (u32), data (u32)`), the lengths of the records
//! (u32 each, only if the flag [`COMPRESSED`] is set), the holder's text, and the CRC-32C of all of these. With the flag
//! [`ENCRYPTED`], the tag of the head follows.
//!
//! Behind the head come the records of the runs with data. A record is one block, or up to [`FRAME`] blocks of a run that are
//! compressed by LZ4 if that makes them shorter, and its checksum or tag ([`ObjectCipher`]). The offset of a record is its number.

use super::cipher::{ImageKey, ObjectCipher, TAG, verify_sum};
use std::borrow::Cow;
use std::io;

const MAGIC: [u8; 8] = *b"EXTSEG3\n";
/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Bytes of the head before the runs.
const FIXED: usize = 80;
const RUN: usize = 16;
/// Flag of segments and maps: the records are compressed.
pub const COMPRESSED: u32 = 1;
/// Flag of segments and maps: the records are encrypted.
pub const ENCRYPTED: u32 = 2;
/// Most blocks of a record.
pub const FRAME: u32 = 16;
/// Longest record: blocks that are not compressed, and a tag.
pub const MOST_RECORD: u32 = most_record(FRAME);
/// Numbers that a claim takes, unless it is the first segment: its own, and those of segments that the former writer may still have been
/// sending. A writer sends fewer segments at once.
pub const CLAIMED: u64 = 16;
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

impl Run {
    /// Returns the numbers of blocks of its compressed records.
    fn frames(&self) -> impl Iterator<Item = u32> {
        let blocks = self.blocks;
        let at = move |frame| blocks.saturating_sub(frame * FRAME).min(FRAME);
        (0..blocks.div_ceil(FRAME)).map(at)
    }
}

/// Returns the length of the longest record of a number of blocks.
pub const fn most_record(blocks: u32) -> u32 {
    blocks * BLOCK as u32 + TAG as u32 // at most 16 blocks
}

/// Head of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub kind: SegmentKind,
    pub number: u64,
    pub writer: [u8; 16],
    /// The writer before this claim, or zeros.
    pub previous: [u8; 16],
    /// Bytes of the image.
    pub size: u64,
    /// Number of segments directly before this one that were being sent when it was encoded. All earlier segments exist.
    pub unconfirmed: u32,
    pub runs: Vec<Run>,
    /// Lengths of the records if the records are compressed.
    pub records: Option<Vec<u32>>,
    pub encrypted: bool,
    pub holder: String,
    /// Length of the head in bytes.
    pub len: u64,
}

/// Returns the error for a segment with a content that no writer makes.
pub fn damaged(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("not a valid segment: {what}"),
    )
}

/// Returns the error for a segment whose writing was interrupted.
pub fn torn(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        format!("not a whole segment: {what}"),
    )
}

/// Reads numbers one after the other; the end of the bytes is an error.
pub struct Fields<'b>(pub &'b [u8]);

impl<'b> Fields<'b> {
    pub fn take(&mut self, len: usize) -> io::Result<&'b [u8]> {
        let (now, later) = self
            .0
            .split_at_checked(len)
            .ok_or_else(|| torn("it is too short"))?;
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

/// Returns the cipher of a segment. A writer makes a segment once, and no other writer has its identity.
pub fn cipher(key: Option<&ImageKey>, writer: &[u8; 16], number: u64) -> io::Result<ObjectCipher> {
    ObjectCipher::new(key, &[b"segment", writer, &number.to_le_bytes()])
}

impl Head {
    /// Returns the last number that the segment takes.
    pub const fn last_number(&self) -> u64 {
        match self.kind {
            SegmentKind::Claim if self.number > 1 => self.number.saturating_add(CLAIMED - 1),
            _ => self.number,
        }
    }

    /// Returns the length of the encoded head.
    fn encoded_len(&self) -> usize {
        let records = self.records.as_ref().map_or(0, Vec::len);
        let tag = if self.encrypted { TAG } else { 0 };
        FIXED + self.runs.len() * RUN + records * 4 + self.holder.len() + 4 + tag
    }

    /// Encodes the head.
    pub fn encode(&self, cipher: &ObjectCipher) -> io::Result<Vec<u8>> {
        let len = self.encoded_len();
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(MAGIC);
        bytes.extend((len as u32).to_le_bytes()); // runs of at most a batch
        let kind: u32 = match self.kind {
            SegmentKind::Data => 0,
            SegmentKind::Claim => 1,
            SegmentKind::Release => 2,
        };
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags(self.records.is_some(), self.encrypted).to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.writer);
        bytes.extend(self.previous);
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(self.unconfirmed.to_le_bytes());
        bytes.extend((self.runs.len() as u32).to_le_bytes());
        bytes.extend((self.holder.len() as u32).to_le_bytes());
        for run in &self.runs {
            bytes.extend(run.block.to_le_bytes());
            bytes.extend(run.blocks.to_le_bytes());
            bytes.extend(u32::from(run.has_data).to_le_bytes());
        }
        for record in self.records.iter().flatten() {
            bytes.extend(record.to_le_bytes());
        }
        bytes.extend(self.holder.as_bytes());
        cipher.sign(&mut bytes)?;
        Ok(bytes)
    }

    /// Encodes the segment with the data of its runs, and sets the lengths of the head and of the records.
    pub fn encode_with<'d>(
        &mut self,
        key: Option<&ImageKey>,
        mut blocks: impl Iterator<Item = &'d [u8]>,
    ) -> io::Result<Vec<u8>> {
        let cipher = cipher(key, &self.writer, self.number)?;
        if let Some(records) = &mut self.records {
            let with_data = self.runs.iter().filter(|run| run.has_data);
            let count: u32 = with_data.map(|run| run.blocks.div_ceil(FRAME)).sum();
            *records = vec![0; count as usize];
        }
        let len = self.encoded_len();
        let mut bytes = vec![0; len];
        let mut lens = Vec::new();
        for run in self.runs.iter().filter(|run| run.has_data) {
            let mut left = run.blocks;
            while left > 0 {
                let count = left.min(if self.records.is_some() { FRAME } else { 1 });
                left -= count;
                let mut data = Vec::with_capacity(count as usize * BLOCK as usize);
                blocks
                    .by_ref()
                    .take(count as usize)
                    .for_each(|block| data.extend(block));
                let start = bytes.len();
                match &self.records {
                    Some(_) => bytes.extend(compressed(&data).as_ref()),
                    None => bytes.extend(&data),
                }
                cipher.seal(start as u64, &mut bytes, start)?;
                lens.push((bytes.len() - start) as u32); // at most MOST_RECORD
            }
        }
        if let Some(records) = &mut self.records {
            *records = lens;
        }
        self.len = len as u64;
        let head = self.encode(&cipher)?;
        for (to, from) in bytes.iter_mut().zip(head) {
            *to = from;
        }
        Ok(bytes)
    }

    /// Returns the length of the head, from the first bytes of a segment.
    pub fn len_of(bytes: &[u8]) -> io::Result<u64> {
        let mut fields = Fields(bytes);
        match fields.array()? {
            MAGIC => {}
            [0, 0, 0, 0, 0, 0, 0, 0] => return Err(torn("it begins with zeros")),
            _ => return Err(damaged("it does not begin like one of this version")),
        }
        let len = fields.u32()?;
        if len > MOST_HEAD {
            return Err(damaged(format_args!("a head of {len} bytes")));
        }
        Ok(len.into())
    }

    /// Decodes the head of a segment; `bytes` has all of it.
    pub fn decode(bytes: &[u8], key: Option<&ImageKey>) -> io::Result<Self> {
        let len = Self::len_of(bytes)?;
        let all = Fields(bytes).take(len as usize)?;
        let flags = Fields(all.get(16..).unwrap_or_default()).u32()?;
        let encrypted = flags & ENCRYPTED != 0;
        let tag = if encrypted { TAG } else { 0 };
        let (signed, tag) = all
            .split_at_checked(all.len().saturating_sub(tag))
            .unwrap_or_default();
        let head = verify_sum(signed).map_err(torn)?;
        if flags & !(COMPRESSED | ENCRYPTED) != 0 {
            return Err(damaged(format_args!("flags {flags:#x}")));
        }
        let mut fields = Fields(head.get(12..).unwrap_or_default());
        let kind = match fields.u32()? {
            0 => SegmentKind::Data,
            1 => SegmentKind::Claim,
            2 => SegmentKind::Release,
            kind => return Err(damaged(format_args!("kind {kind}"))),
        };
        fields.u32()?;
        let (number, writer) = (fields.u64()?, fields.array()?);
        let (previous, size, unconfirmed) = (fields.array()?, fields.u64()?, fields.u32()?);
        check_key(encrypted, key)?;
        cipher(key, &writer, number)?.verify(signed, tag)?;
        let (count, holder) = (fields.u32()? as usize, fields.u32()? as usize);
        let mut rest = Fields(
            fields.take(
                count
                    .checked_mul(RUN)
                    .ok_or_else(|| damaged("too many runs"))?,
            )?,
        );
        let mut runs = Vec::with_capacity(count); // as many as there are bytes for
        let mut frames = 0_u64;
        for _ in 0..count {
            let (block, blocks, data) = (rest.u64()?, rest.u32()?, rest.u32()?);
            let end = block.checked_add(blocks.into());
            if end.is_none_or(|end| end > size.div_ceil(BLOCK)) || data > 1 {
                return Err(damaged(format_args!("a run of {blocks} blocks at {block}")));
            }
            frames += u64::from(blocks.div_ceil(FRAME) * data); // each is less than 2^28
            runs.push(Run {
                block,
                blocks,
                has_data: data == 1,
            });
        }
        let records = if flags & COMPRESSED != 0 {
            let len = usize::try_from(frames).ok().and_then(|n| n.checked_mul(4));
            let lens = fields.take(len.ok_or_else(|| damaged("too many records"))?)?;
            let (lens, _) = lens.as_chunks();
            let lens: Vec<u32> = lens.iter().map(|len| u32::from_le_bytes(*len)).collect();
            let with_data = runs.iter().filter(|run| run.has_data);
            let mut blocks = with_data.flat_map(Run::frames);
            if !lens.iter().all(|len| {
                let most = blocks.next().map_or(0, most_record);
                (1..=most).contains(len)
            }) {
                return Err(damaged("the length of a record is impossible"));
            }
            Some(lens)
        } else {
            None
        };
        let holder = String::from_utf8_lossy(fields.take(holder)?).into_owned();
        Ok(Self {
            kind,
            number,
            writer,
            previous,
            size,
            unconfirmed,
            runs,
            records,
            encrypted,
            holder,
            len,
        })
    }

    /// Returns the length of the whole segment.
    pub fn segment_len(&self) -> u64 {
        let records = match &self.records {
            Some(lens) => lens.iter().map(|len| u64::from(*len)).sum(),
            None => {
                let with_data = self.runs.iter().filter(|run| run.has_data);
                let blocks: u64 = with_data.map(|run| u64::from(run.blocks)).sum();
                // A segment has at most 2^22 runs of 2^32 blocks.
                blocks.saturating_mul(self.record_len().into())
            }
        };
        self.len.saturating_add(records)
    }

    /// Returns the lengths of its records.
    pub fn record_lens(&self) -> Box<dyn Iterator<Item = u32> + '_> {
        if let Some(lens) = &self.records {
            return Box::new(lens.iter().copied());
        }
        let with_data = self.runs.iter().filter(|run| run.has_data);
        let blocks = with_data.map(|run| u64::from(run.blocks)).sum();
        Box::new((0_u64..blocks).map(|_| self.record_len()))
    }

    /// Returns the length of a record of one block that is not compressed.
    pub const fn record_len(&self) -> u32 {
        let growth = if self.encrypted { TAG } else { 4 };
        BLOCK as u32 + growth as u32
    }
}

/// Returns the flags of a segment or a map.
pub const fn flags(compressed: bool, encrypted: bool) -> u32 {
    let compressed = if compressed { COMPRESSED } else { 0 };
    let encrypted = if encrypted { ENCRYPTED } else { 0 };
    compressed | encrypted
}

/// Checks that a key is given for an encrypted image, and only for one.
pub fn check_key(encrypted: bool, key: Option<&ImageKey>) -> io::Result<()> {
    let text = match (encrypted, key) {
        (true, None) => "the image is encrypted: add '?key-file=FILE' to the address",
        (false, Some(_)) => "the image is not encrypted: remove key-file from the address",
        _ => return Ok(()),
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Returns the data compressed, or as they are if they would not be shorter.
fn compressed(data: &[u8]) -> Cow<'_, [u8]> {
    let shorter = lz4_flex::block::compress(data);
    if shorter.len() < data.len() {
        Cow::Owned(shorter)
    } else {
        Cow::Borrowed(data)
    }
}

/// Returns the blocks of a record that was opened.
pub fn blocks_of(record: &[u8], blocks: u32) -> io::Result<Cow<'_, [u8]>> {
    let len = blocks as usize * BLOCK as usize;
    if record.len() == len {
        return Ok(Cow::Borrowed(record));
    }
    let mut data = vec![0; len];
    match lz4_flex::block::decompress_into(record, &mut data) {
        Ok(n) if n == len => Ok(Cow::Owned(data)),
        _ => Err(damaged("its data cannot be decompressed")),
    }
}

#[test]
fn heads_are_read_as_they_are_written_and_garbage_is_refused() {
    let run = |block, blocks, has_data| Run {
        block,
        blocks,
        has_data,
    };
    let image_key = ImageKey::new(&[1; 32]);
    let blocks: Vec<[u8; BLOCK as usize]> = (0..40).map(|n| [n; BLOCK as usize]).collect();
    for (key, compressed) in [
        (None, false),
        (None, true),
        (Some(&image_key), false),
        (Some(&image_key), true),
    ] {
        let mut head = Head {
            kind: SegmentKind::Release,
            number: 7,
            writer: [3; 16],
            previous: [4; 16],
            size: 1 << 20,
            unconfirmed: 3,
            runs: vec![run(0, 39, true), run(90, 100, false), run(255, 1, true)],
            records: compressed.then(Vec::new),
            encrypted: key.is_some(),
            holder: "box".into(),
            len: 0,
        };
        let data = blocks.iter().map(|block| &block[..]);
        let bytes = head.encode_with(key, data).unwrap();
        assert_eq!(Head::decode(&bytes, key).unwrap(), head);
        assert_eq!(head.segment_len(), bytes.len() as u64);
        assert_eq!(bytes.len() < 40 * BLOCK as usize, compressed);
        let other = ImageKey::new(&[2; 32]);
        let other = if key.is_some() { None } else { Some(&other) };
        for at in 0..head.len as usize {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert!(Head::decode(&bad, key).is_err(), "byte {at}");
            assert!(Head::decode(&bytes[..at], key).is_err(), "{at} bytes");
        }
        // A wrong key is not damage, for which a segment may be removed.
        let error = Head::decode(&bytes, other).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        head.runs.push(run(250, 7, true));
        let cipher = cipher(key, &head.writer, head.number).unwrap();
        assert!(Head::decode(&head.encode(&cipher).unwrap(), key).is_err());
    }
}

//! The bytes of an overlay file; docs/overlay-format.md describes them.

use std::io;

use crate::device::BlockDevice;

/// Bytes of a block of the overlay and of its base.
pub const BLOCK: u64 = 4096;
/// Slots of a segment: what the entries of an index block name.
pub const SLOTS: u64 = (BLOCK - INDEX_HEAD as u64) / 8;
/// Blocks of a segment: two copies of its index, and its slots.
pub const SEGMENT: u64 = 2 + SLOTS;
/// Blocks before the first segment: two copies of the header.
pub const HEADERS: u64 = 2;

const MAGIC: &[u8; 8] = b"EXTOVLAY";
const INDEX_MAGIC: &[u8; 4] = b"OVIX";
const VERSION: u32 = 1;
const INDEX_HEAD: usize = 32;
/// Bytes at the start of the base that identify it.
const IDENTITY: u64 = 64 << 10;

/// The uses that an overlay is fit for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayState {
    /// The overlay may be used.
    Open,
    /// The overlay is being merged into its base. The base is not a valid image until that is finished.
    Applying,
    /// The overlay was merged and is no longer needed.
    Applied,
}

/// The header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// Grows with each writing; its parity chooses the copy.
    pub sequence: u64,
    /// Distinguishes this overlay's index blocks from older bytes in the file.
    pub id: u64,
    /// Bytes of the base.
    pub base_len: u64,
    /// Checksum of the first bytes of the base.
    pub identity: u32,
    /// The uses it is fit for.
    pub state: OverlayState,
    /// Segments that may be in use.
    pub segments: u64,
}

/// Makes an error about the overlay's bytes.
pub fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    u32::from_le_bytes(word.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    u64::from_le_bytes(word.unwrap_or_default())
}

/// Writes the checksum over the first 64 bytes, or over an index, into the last four bytes of its head.
fn seal(block: &mut [u8], at: usize) {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&block[..at]), &block[at + 4..]);
    block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

fn is_sealed(block: &[u8], at: usize) -> bool {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&block[..at]), &block[at + 4..]);
    sum == u32_at(block, at)
}

const HEADER_SUM: usize = 60;
const INDEX_SUM: usize = 28;

/// Reads a block.
pub fn read_block(store: &dyn BlockDevice, block: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; BLOCK as usize];
    store.read_at(block * BLOCK, &mut bytes)?;
    Ok(bytes)
}

impl Header {
    /// Returns the block of the copy that this sequence number is written to.
    pub fn place(&self) -> u64 {
        self.sequence % HEADERS
    }

    /// Encodes the header.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut block = vec![0; BLOCK as usize];
        let state: u32 = match self.state {
            OverlayState::Open => 0,
            OverlayState::Applying => 1,
            OverlayState::Applied => 2,
        };
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&(BLOCK as u32).to_le_bytes());
        block[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        block[24..32].copy_from_slice(&self.id.to_le_bytes());
        block[32..40].copy_from_slice(&self.base_len.to_le_bytes());
        block[40..44].copy_from_slice(&self.identity.to_le_bytes());
        block[44..48].copy_from_slice(&state.to_le_bytes());
        block[48..56].copy_from_slice(&self.segments.to_le_bytes());
        seal(&mut block, HEADER_SUM);
        block
    }

    /// Parses a copy of a header; `None` if the block is not one, or was not written whole.
    fn parse(block: &[u8]) -> io::Result<Option<Self>> {
        if !block.starts_with(MAGIC) || !is_sealed(block, HEADER_SUM) {
            return Ok(None);
        }
        let version = u32_at(block, 8);
        if version != VERSION {
            return Err(bad(format!("overlay of version {version}; known is 1")));
        }
        if u64::from(u32_at(block, 12)) != BLOCK {
            return Err(bad("overlay with blocks of a size other than 4096"));
        }
        let state = match u32_at(block, 44) {
            0 => OverlayState::Open,
            1 => OverlayState::Applying,
            2 => OverlayState::Applied,
            other => return Err(bad(format!("overlay in the unknown state {other}"))),
        };
        Ok(Some(Self {
            sequence: u64_at(block, 16),
            id: u64_at(block, 24),
            base_len: u64_at(block, 32),
            identity: u32_at(block, 40),
            state,
            segments: u64_at(block, 48),
        }))
    }

    /// Finds the newest header of an overlay, or `None` if none was ever written.
    pub fn find(store: &dyn BlockDevice) -> io::Result<Option<Self>> {
        if store.len() < HEADERS * BLOCK {
            return match store.len() {
                0 => Ok(None),
                _ => Err(bad("too short for an overlay")),
            };
        }
        let (mut newest, mut blank) = (None::<Self>, true);
        for copy in 0..HEADERS {
            let block = read_block(store, copy)?;
            blank &= crate::device::is_zero(&block);
            if let Some(header) = Self::parse(&block)?
                && newest.is_none_or(|n| n.sequence < header.sequence)
            {
                newest = Some(header);
            }
        }
        match newest {
            None if !blank => Err(bad("not an overlay")),
            other => Ok(other),
        }
    }
}

/// The entries of one segment: for each slot, the block of the base it stands for.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Grows with each writing; its parity chooses the copy. 0: never written.
    pub sequence: u64,
    /// Blocks of the base, by slot.
    pub entries: Vec<u64>,
}

/// Returns the first block of a segment.
pub fn segment_start(segment: u64) -> u64 {
    HEADERS + segment * SEGMENT
}

/// Returns the byte where a slot's data begin. Slots are numbered through all segments.
pub fn slot_offset(slot: u64) -> u64 {
    (segment_start(slot / SLOTS) + 2 + slot % SLOTS) * BLOCK
}

impl Index {
    /// Returns the block of the copy that this sequence number is written to.
    pub fn place(&self, segment: u64) -> u64 {
        segment_start(segment) + self.sequence % 2
    }

    /// Encodes the index.
    pub fn to_bytes(&self, id: u64, segment: u64) -> Vec<u8> {
        let mut block = vec![0; BLOCK as usize];
        block[..4].copy_from_slice(INDEX_MAGIC);
        block[4..8].copy_from_slice(&(self.entries.len() as u32).to_le_bytes());
        block[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        block[16..24].copy_from_slice(&(id ^ segment).to_le_bytes());
        let places = block[INDEX_HEAD..].chunks_exact_mut(8);
        for (place, entry) in places.zip(&self.entries) {
            place.copy_from_slice(&entry.to_le_bytes());
        }
        seal(&mut block, INDEX_SUM);
        block
    }

    fn parse(block: &[u8], id: u64, segment: u64) -> Option<Self> {
        let count = u64::from(u32_at(block, 4));
        let good = block.starts_with(INDEX_MAGIC)
            && is_sealed(block, INDEX_SUM)
            && u64_at(block, 16) == id ^ segment
            && count <= SLOTS;
        good.then(|| Self {
            sequence: u64_at(block, 8),
            entries: block[INDEX_HEAD..]
                .chunks_exact(8)
                .take(count as usize)
                .map(|e| u64_at(e, 0))
                .collect(),
        })
    }

    /// Finds the newest index of a segment, or an empty one if none was written whole.
    pub fn find(store: &dyn BlockDevice, id: u64, segment: u64) -> io::Result<Self> {
        let mut newest = Self::default();
        for copy in 0..2 {
            let block = read_block(store, segment_start(segment) + copy)?;
            if let Some(index) = Self::parse(&block, id, segment)
                && index.sequence > newest.sequence
            {
                newest = index;
            }
        }
        Ok(newest)
    }
}

/// Returns the checksum of the start of a base. An ext4 volume's superblock is in it and changes whenever the volume is
/// used.
pub fn identity(base: &dyn BlockDevice) -> io::Result<u32> {
    let mut bytes = vec![0; base.len().min(IDENTITY) as usize];
    base.read_at(0, &mut bytes)?;
    Ok(crc32c::crc32c(&bytes))
}

/// Segments that an overlay of a base can need.
pub fn segments_of(base_len: u64) -> u64 {
    base_len.div_ceil(BLOCK).div_ceil(SLOTS)
}

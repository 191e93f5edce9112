//! The map from blocks of an image to places in segments.

use super::segment::{Fields, Head, RECORD, SegmentKind};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

const MAGIC: [u8; 8] = *b"EXTMAP1\n";

/// Blocks in sequence, in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    pub blocks: u64,
    pub segment: u64,
    /// Offset of the first record in the segment.
    pub offset: u64,
}

/// ImageState of an image as of one segment. Blocks without a place are zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Number of the last segment.
    pub number: u64,
    /// Bytes of the image.
    pub size: u64,
    /// The present writer, unless it has released the image.
    pub holder: Option<String>,
    places: BTreeMap<u64, BlockPlace>,
}

impl Map {
    /// Returns the place of a block and of those after it; `None` is the number of blocks before the next place.
    pub fn find(&self, block: u64) -> (Option<BlockPlace>, u64) {
        let before = self.places.range(..=block).next_back();
        if let Some((start, place)) = before
            && block - start < place.blocks
        {
            let skip = block - start;
            let rest = BlockPlace {
                blocks: place.blocks - skip,
                segment: place.segment,
                offset: place.offset + skip * RECORD,
            };
            return (Some(rest), rest.blocks);
        }
        let next = self.places.range(block..).next();
        (None, next.map_or(u64::MAX, |(start, _)| start - block))
    }

    /// Removes the places of a range.
    fn remove(&mut self, start: u64, blocks: u64) {
        let end = start + blocks;
        let before = self.places.range(..start).next_back();
        if let Some((&at, &place)) = before
            && at + place.blocks > start
        {
            let kept = BlockPlace {
                blocks: start - at,
                ..place
            };
            self.places.insert(at, kept);
            self.insert_tail(at, place, end);
        }
        let inside: Vec<_> = self
            .places
            .range(start..end)
            .map(|(&at, &p)| (at, p))
            .collect();
        for (at, place) in inside {
            self.places.remove(&at);
            self.insert_tail(at, place, end);
        }
    }

    /// Inserts the part of a place that is behind `end`.
    fn insert_tail(&mut self, at: u64, place: BlockPlace, end: u64) {
        if at + place.blocks > end {
            let skip = end - at;
            let tail = BlockPlace {
                blocks: place.blocks - skip,
                segment: place.segment,
                offset: place.offset + skip * RECORD,
            };
            self.places.insert(end, tail);
        }
    }

    /// Applies the next segment.
    pub fn apply(&mut self, head: &Head) {
        let mut offset = head.len;
        for run in &head.runs {
            let blocks = u64::from(run.blocks);
            self.remove(run.block, blocks);
            if run.has_data && blocks > 0 {
                let place = BlockPlace {
                    blocks,
                    segment: head.number,
                    offset,
                };
                self.places.insert(run.block, place);
                offset += blocks * RECORD;
            }
        }
        self.number = head.number;
        self.size = head.size;
        match head.kind {
            SegmentKind::Data => {}
            SegmentKind::Claim => self.holder = Some(head.holder.clone()),
            SegmentKind::Release => self.holder = None,
        }
    }

    /// Returns the number of blocks that each segment has here.
    pub fn live(&self) -> BTreeMap<u64, u64> {
        let mut live = BTreeMap::new();
        for place in self.places.values() {
            *live.entry(place.segment).or_insert(0) += place.blocks;
        }
        live
    }

    /// Returns the segments with blocks of this map.
    pub fn segments(&self) -> BTreeSet<u64> {
        self.places.values().map(|place| place.segment).collect()
    }

    /// Returns the places in these segments, with their first blocks.
    pub fn places_in(&self, segments: &BTreeSet<u64>) -> Vec<(u64, BlockPlace)> {
        let all = self.places.iter();
        let inside = all.filter(|(_, place)| segments.contains(&place.segment));
        inside.map(|(at, place)| (*at, *place)).collect()
    }

    /// Encodes the map: `magic, number, size, length of the holder's text + 1 or 0 (u64 each), text, count (u64)`, the places
    /// (`block, blocks, segment, offset`), and the CRC-32C.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let holder = self.holder.as_deref();
        let text = holder.map_or(0, |h| h.len() as u64 + 1);
        for number in [self.number, self.size, text] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(holder.unwrap_or_default().as_bytes());
        bytes.extend((self.places.len() as u64).to_le_bytes());
        for (block, place) in &self.places {
            for number in [*block, place.blocks, place.segment, place.offset] {
                bytes.extend(number.to_le_bytes());
            }
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a map.
    pub fn decode(bytes: &[u8]) -> io::Result<Self> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "not a valid map of blocks");
        let (bytes, sum) = bytes.split_last_chunk().ok_or_else(damaged)?;
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*sum) {
            return Err(damaged());
        }
        let mut fields = Fields(bytes);
        if fields.array()? != MAGIC {
            return Err(damaged());
        }
        let (number, size, text) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let holder = match text.checked_sub(1) {
            Some(len) => {
                let len = usize::try_from(len).map_err(|_| damaged())?;
                Some(String::from_utf8_lossy(fields.take(len)?).into_owned())
            }
            None => None,
        };
        let mut places = BTreeMap::new();
        let mut end = 0;
        for _ in 0..fields.u64()? {
            let block = fields.u64()?;
            let place = BlockPlace {
                blocks: fields.u64()?,
                segment: fields.u64()?,
                offset: fields.u64()?,
            };
            let length = place.blocks.checked_mul(RECORD);
            let fits = length
                .and_then(|len| place.offset.checked_add(len))
                .is_some();
            if block < end || !fits {
                return Err(damaged());
            }
            end = block.checked_add(place.blocks).ok_or_else(damaged)?;
            places.insert(block, place);
        }
        Ok(Self {
            number,
            size,
            holder,
            places,
        })
    }
}

#[test]
fn a_map_is_what_a_list_of_blocks_would_be() {
    use super::segment::Run;
    const BLOCKS: u64 = 64;
    let mut seed = 1_u64;
    let mut chance = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    };
    let (mut map, mut list) = (Map::default(), vec![None; BLOCKS as usize]);
    for number in 1..2000 {
        let block = chance(BLOCKS);
        let blocks = 1 + chance((BLOCKS - block).min(9));
        let has_data = chance(3) > 0;
        let head = Head {
            kind: SegmentKind::Data,
            number,
            writer: [0; 16],
            size: BLOCKS * super::BLOCK,
            runs: vec![Run {
                block,
                blocks: blocks as u32,
                has_data,
            }],
            holder: String::new(),
            len: 100,
        };
        map.apply(&head);
        for n in 0..blocks {
            let place = has_data.then_some((number, 100 + n * RECORD));
            list[(block + n) as usize] = place;
        }
        for at in 0..BLOCKS {
            let (place, blocks) = map.find(at);
            assert!(blocks > 0);
            let place = place.map(|p| (p.segment, p.offset));
            assert_eq!(place, list[at as usize], "block {at} after {number}");
        }
        assert_eq!(Map::decode(&map.encode()).unwrap(), map);
    }
    let bytes = map.encode();
    for at in 0..bytes.len() {
        assert!(Map::decode(&bytes[..at]).is_err());
    }
}

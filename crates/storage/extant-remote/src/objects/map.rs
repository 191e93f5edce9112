//! The map from blocks of an image to places in segments.

use super::cipher::{ImageKey, ObjectCipher, TAG, verify_sum};
use super::segment::{
    self, BLOCK, CLAIMED, COMPRESSED, ENCRYPTED, FRAME, Fields, Head, MOST_RECORD, SegmentKind,
    check_key, most_record,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

const MAGIC: [u8; 8] = *b"EXTMAP2\n";

/// Blocks in sequence, in one segment. They are in records of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    pub blocks: u64,
    pub segment: u64,
    /// Offset of the first record in the segment.
    pub offset: u64,
    /// Length of a record in bytes.
    pub record: u32,
    /// Number of blocks in a record.
    pub per: u32,
    /// Number of blocks in the first record before the first block. It is less than `per`.
    pub skip: u32,
}

impl BlockPlace {
    /// Returns the place of the blocks after the first `count` ones.
    pub fn after(self, count: u64) -> Self {
        let at = u64::from(self.skip) + count;
        let per = u64::from(self.per);
        Self {
            blocks: self.blocks - count,
            offset: self.offset + at / per * u64::from(self.record),
            skip: (at % per) as u32, // less than `per`
            ..self
        }
    }

    /// Returns the length of its records in bytes.
    pub fn stored(&self) -> u64 {
        let records = (u64::from(self.skip) + self.blocks).div_ceil(self.per.into());
        records * u64::from(self.record)
    }
}

/// State of an image as of one segment. Blocks without a place are zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Last number that is taken by a segment.
    pub number: u64,
    /// Bytes of the image.
    pub size: u64,
    /// The present writer, unless it has released the image.
    pub holder: Option<String>,
    /// Whether new segments are compressed.
    pub compressed: bool,
    pub encrypted: bool,
    /// Writers by the numbers of their claims.
    writers: BTreeMap<u64, [u8; 16]>,
    places: BTreeMap<u64, BlockPlace>,
}

impl Map {
    /// Returns the place of a block and of those after it, and their number; without a place, the number of blocks before the next
    /// place.
    pub fn find(&self, block: u64) -> (Option<BlockPlace>, u64) {
        let before = self.places.range(..=block).next_back();
        if let Some((start, place)) = before
            && block - start < place.blocks
        {
            let rest = place.after(block - start);
            return (Some(rest), rest.blocks);
        }
        let next = self.places.range(block..).next();
        (None, next.map_or(u64::MAX, |(start, _)| start - block))
    }

    /// Returns the writer of a segment.
    pub fn writer_of(&self, segment: u64) -> [u8; 16] {
        let claim = self.writers.range(..=segment).next_back();
        claim.map(|(_, writer)| *writer).unwrap_or_default()
    }

    /// Returns the number of segments after the one of this number, without the numbers that claims only take.
    pub fn segments_after(&self, number: u64) -> u64 {
        let taken = self.number.saturating_sub(number);
        let claims = self.writers.keys().filter(|claim| **claim > number.max(1));
        taken.saturating_sub(claims.count() as u64 * (CLAIMED - 1))
    }

    /// Returns whether a segment is a claim.
    pub fn is_claim(&self, segment: u64) -> bool {
        self.writers.contains_key(&segment)
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
            self.places.insert(end, place.after(end - at));
        }
    }

    /// Returns why a segment cannot be the next one. A segment is that of the last claim's writer, and a claim names the writer
    /// before it, so that segments of two histories do not mix.
    pub fn refusal(&self, head: &Head) -> Option<&'static str> {
        let before = self.writer_of(head.number.saturating_sub(1));
        match head.kind {
            SegmentKind::Claim if head.previous != before => {
                Some("it is a claim of another history of the image")
            }
            SegmentKind::Data | SegmentKind::Release if head.writer != before => {
                Some("it is of a writer that does not have the image")
            }
            _ => None,
        }
    }

    /// Applies the next segment.
    pub fn apply(&mut self, head: &Head) {
        let mut place = BlockPlace {
            blocks: 0,
            segment: head.number,
            offset: head.len,
            record: head.record_len(),
            per: 1,
            skip: 0,
        };
        let mut lens = head.records.iter().flatten();
        for run in &head.runs {
            let (mut block, mut left) = (run.block, u64::from(run.blocks));
            self.remove(block, left);
            while run.has_data && left > 0 {
                place.blocks = left;
                if head.records.is_some() {
                    place.blocks = left.min(FRAME.into());
                    place.per = place.blocks as u32; // at most FRAME
                    place.record = lens.next().copied().unwrap_or(1);
                }
                self.places.insert(block, place);
                block += place.blocks;
                left -= place.blocks;
                place.offset += place.stored();
            }
        }
        self.number = head.last_number();
        self.size = head.size;
        self.encrypted = head.encrypted;
        match head.kind {
            SegmentKind::Data => {}
            SegmentKind::Claim => {
                self.holder = Some(head.holder.clone());
                self.compressed = head.records.is_some();
                self.writers.insert(head.number, head.writer);
            }
            SegmentKind::Release => self.holder = None,
        }
    }

    /// Returns the number of blocks that each segment has here, and their share of its records in bytes.
    pub fn live(&self) -> BTreeMap<u64, (u64, u64)> {
        let mut live = BTreeMap::new();
        for place in self.places.values() {
            let (blocks, bytes) = live.entry(place.segment).or_insert((0, 0));
            *blocks += place.blocks;
            *bytes += place.blocks * u64::from(place.record) / u64::from(place.per);
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

    /// Encodes the map: `magic, flags (u64), label (16 bytes), number, size, length of the holder's text + 1 or 0 (u64 each), text,
    /// count of writers (u64)`, the writers (`claim (u64), writer (16 bytes)`), `count of places (u64)`, the places (`block,
    /// blocks, segment, offset (u64 each), length of a record, its blocks, skipped blocks (u32 each)`), and the CRC-32C. The tag
    /// of an encrypted map follows.
    pub fn encode(&self, key: Option<&ImageKey>) -> io::Result<Vec<u8>> {
        let mut bytes = MAGIC.to_vec();
        let flags = segment::flags(self.compressed, self.encrypted);
        bytes.extend(u64::from(flags).to_le_bytes());
        let label = *uuid::Uuid::new_v4().as_bytes();
        bytes.extend(label);
        let holder = self.holder.as_deref();
        let text = holder.map_or(0, |h| h.len() as u64 + 1);
        for number in [self.number, self.size, text] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(holder.unwrap_or_default().as_bytes());
        bytes.extend((self.writers.len() as u64).to_le_bytes());
        for (claim, writer) in &self.writers {
            bytes.extend(claim.to_le_bytes());
            bytes.extend(writer);
        }
        bytes.extend((self.places.len() as u64).to_le_bytes());
        for (block, place) in &self.places {
            for number in [*block, place.blocks, place.segment, place.offset] {
                bytes.extend(number.to_le_bytes());
            }
            for number in [place.record, place.per, place.skip] {
                bytes.extend(number.to_le_bytes());
            }
        }
        cipher(key, &label)?.sign(&mut bytes)?;
        Ok(bytes)
    }

    /// Decodes a map.
    pub fn decode(bytes: &[u8], key: Option<&ImageKey>) -> io::Result<Self> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "not a valid map of blocks");
        let mut fields = Fields(bytes);
        if fields.array()? != MAGIC {
            return Err(damaged());
        }
        let (flags, label) = (fields.u64()?, fields.array()?);
        let encrypted = flags & u64::from(ENCRYPTED) != 0;
        let tag = if encrypted { TAG } else { 0 };
        let (signed, tag) = bytes
            .split_at_checked(bytes.len().saturating_sub(tag))
            .unwrap_or_default();
        let mut fields = Fields(verify_sum(signed)?);
        check_key(encrypted, key)?;
        cipher(key, &label)?.verify(signed, tag)?;
        fields.take(32)?;
        let (number, size, text) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let holder = match text.checked_sub(1) {
            Some(len) => {
                let len = usize::try_from(len).map_err(|_| damaged())?;
                Some(String::from_utf8_lossy(fields.take(len)?).into_owned())
            }
            None => None,
        };
        let mut writers = BTreeMap::new();
        for _ in 0..fields.u64()? {
            writers.insert(fields.u64()?, fields.array()?);
        }
        let mut places = BTreeMap::new();
        let mut end = 0;
        for _ in 0..fields.u64()? {
            let block = fields.u64()?;
            let place = BlockPlace {
                blocks: fields.u64()?,
                segment: fields.u64()?,
                offset: fields.u64()?,
                record: fields.u32()?,
                per: fields.u32()?,
                skip: fields.u32()?,
            };
            // The numbers of blocks are bounded first, so that the lengths do not overflow.
            if !(1..=FRAME).contains(&place.per)
                || place.skip >= place.per
                || !(1..=most_record(place.per)).contains(&place.record)
                || block < end
                || place.blocks == 0
                || place.blocks > u64::MAX / BLOCK / u64::from(MOST_RECORD)
                || place.offset.checked_add(place.stored()).is_none()
            {
                return Err(damaged());
            }
            end = block.checked_add(place.blocks).ok_or_else(damaged)?;
            places.insert(block, place);
        }
        Ok(Self {
            number,
            size,
            holder,
            compressed: flags & u64::from(COMPRESSED) != 0,
            encrypted,
            writers,
            places,
        })
    }
}

/// Returns the cipher of a map, whose label is random.
fn cipher(key: Option<&ImageKey>, label: &[u8; 16]) -> io::Result<ObjectCipher> {
    ObjectCipher::new(key, &[b"map", label])
}

#[test]
fn a_map_is_what_a_list_of_blocks_would_be() {
    use super::segment::Run;
    const BLOCKS: u64 = 64;
    let key = ImageKey::new(&[4; 32]);
    for (key, compressed) in [(None, false), (Some(&key), false), (Some(&key), true)] {
        let mut seed = 1_u64;
        let mut chance = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let (mut map, mut list) = (Map::default(), vec![None; BLOCKS as usize]);
        for number in 1..2000 {
            let block = chance(BLOCKS);
            let blocks = 1 + chance((BLOCKS - block).min(40));
            let has_data = chance(3) > 0;
            let frames = blocks.div_ceil(u64::from(FRAME));
            let lens = (0..frames).map(|n| 50 + n as u32);
            let head = Head {
                kind: SegmentKind::Data,
                number,
                writer: [0; 16],
                previous: [0; 16],
                size: BLOCKS * BLOCK,
                unconfirmed: 0,
                runs: vec![Run {
                    block,
                    blocks: blocks as u32,
                    has_data,
                }],
                records: compressed.then(|| lens.collect()),
                encrypted: key.is_some(),
                holder: String::new(),
                len: 100,
            };
            map.apply(&head);
            for n in 0..blocks {
                let offset = if compressed {
                    let frame = n / u64::from(FRAME);
                    100 + (0..frame).map(|n| 50 + n).sum::<u64>()
                } else {
                    100 + n * u64::from(head.record_len())
                };
                let skip = if compressed { n % u64::from(FRAME) } else { 0 };
                let place = has_data.then_some((number, offset, skip as u32));
                list[(block + n) as usize] = place;
            }
            for at in 0..BLOCKS {
                let (place, blocks) = map.find(at);
                assert!(blocks > 0);
                let place = place.map(|p| (p.segment, p.offset, p.skip));
                assert_eq!(place, list[at as usize], "block {at} after {number}");
            }
            if number % 16 == 0 {
                let bytes = map.encode(key).unwrap();
                assert_eq!(Map::decode(&bytes, key).unwrap(), map);
            }
        }
        let bytes = map.encode(key).unwrap();
        for at in 0..bytes.len() {
            assert!(Map::decode(&bytes[..at], key).is_err());
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(Map::decode(&bad, key).is_err());
        }
    }
}

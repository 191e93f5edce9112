//! [`Overlay`]: a device over another one that is only read. Writes go to a separate store, by blocks, and can be
//! merged into the base later, or thrown away.
//!
//! The bytes of the store, and the reason why a kill at any write is harmless, are in docs/overlay-format.md. In short:
//! the first write to a block gives it a slot, filled with the rest of the base's block. A flush makes the slots
//! durable and then the index entries that name them. Blocks that have their slot are overwritten in place, as on any
//! disk.

mod format;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::ops::Range;

use parking_lot::{Mutex, RwLock};

use crate::device::{BlockDevice, check_range};
use format::{BLOCK, Header, Index, OverlayState, SLOTS, bad, slot_offset};

/// A base that is only read, and a store that takes all writes.
///
/// ```
/// use extant_blockdev::{BlockDevice, MemDevice, Overlay};
/// let base = MemDevice::from_bytes(&[1; 10_000]);
/// let store = MemDevice::new(Overlay::<MemDevice, MemDevice>::store_len(base.len()));
/// let dev = Overlay::create(&base, &store).unwrap();
/// dev.write_at(5000, &[2; 100]).unwrap();
/// dev.flush().unwrap();
/// let mut byte = [0];
/// base.read_at(5000, &mut byte).unwrap();
/// assert_eq!(byte, [1], "the base is left alone");
/// drop(dev);
/// let dev = Overlay::open(&base, &store).unwrap();
/// dev.read_at(5000, &mut byte).unwrap();
/// assert_eq!(byte, [2]);
/// drop(dev);
/// extant_blockdev::apply_overlay(&store, &base).unwrap();
/// base.read_at(5000, &mut byte).unwrap();
/// assert_eq!(byte, [2]);
/// ```
pub struct Overlay<B, S> {
    base: B,
    store: S,
    len: u64,
    id: u64,
    map: RwLock<Map>,
    /// The header as it is in the store; its lock is held for a whole flush.
    header: Mutex<Header>,
}

/// Map from blocks to slots.
#[derive(Default)]
struct Map {
    slots: HashMap<u64, u64>,
    segments: Vec<Segment>,
    /// Segments before this one are full.
    open: usize,
}

#[derive(Default)]
struct Segment {
    index: Index,
    /// Entries that the store does not hold yet.
    dirty: bool,
}

impl Map {
    fn load(store: &dyn BlockDevice, header: &Header) -> io::Result<Self> {
        let mut map = Self::default();
        let blocks = header.base_len.div_ceil(BLOCK);
        let most = format::segments_of(header.base_len);
        for segment in 0..header.segments.min(most) {
            let index = Index::find(store, header.id, segment)?;
            for (i, &block) in index.entries.iter().enumerate() {
                let slot = segment * SLOTS + i as u64;
                if block >= blocks || map.slots.insert(block, slot).is_some() {
                    return Err(bad(format!("overlay: block {block} in slot {slot}")));
                }
            }
            map.segments.push(Segment {
                index,
                dirty: false,
            });
        }
        Ok(map)
    }

    /// Frees the slots that were allotted last, all of one segment.
    fn take_back(&mut self, slots: u64) {
        for _ in 0..slots {
            let last = self.segments.get_mut(self.open);
            if let Some(block) = last.and_then(|s| s.index.entries.pop()) {
                self.slots.remove(&block);
            }
        }
    }

    /// Allots a slot to a block without one.
    fn allot(&mut self, block: u64) -> u64 {
        while let Some(segment) = self.segments.get(self.open)
            && segment.index.entries.len() as u64 == SLOTS
        {
            self.open += 1;
        }
        if self.open == self.segments.len() {
            self.segments.push(Segment::default());
        }
        let segment = &mut self.segments[self.open];
        let slot = self.open as u64 * SLOTS + segment.index.entries.len() as u64;
        segment.index.entries.push(block);
        segment.dirty = true;
        self.slots.insert(block, slot);
        slot
    }
}

/// A piece of a range whose blocks lie together: in neighbouring slots, or in the base.
struct Piece {
    /// Position of the piece in the device.
    at: u64,
    /// Part of the buffer.
    range: Range<usize>,
    /// Slot of its first block, if it has one.
    slot: Option<u64>,
}

impl Map {
    /// Cuts a range where its blocks do not lie together.
    fn pieces(&self, offset: u64, len: usize) -> impl Iterator<Item = Piece> {
        let slot_of = |block: u64| self.slots.get(&block).copied();
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == len {
                return None;
            }
            let at = offset + done as u64;
            let (mut block, start) = (at / BLOCK, done);
            let slot = slot_of(block);
            let mut expected = slot;
            loop {
                let left = (block + 1) * BLOCK - (offset + done as u64);
                done += left.min((len - done) as u64) as usize;
                block += 1;
                expected = expected.map(|s| s + 1);
                // A segment's last slot is followed by an index.
                let ends = expected.is_some_and(|s| s % SLOTS == 0);
                if done == len || ends || slot_of(block) != expected {
                    break;
                }
            }
            Some(Piece {
                at,
                range: start..done,
                slot,
            })
        })
    }
}

impl<B: BlockDevice, S: BlockDevice> Overlay<B, S> {
    /// Returns the bytes that the store of an overlay over `base_len` bytes must have. It is used from the front, so a
    /// sparse file takes no more space than was written.
    pub fn store_len(base_len: u64) -> u64 {
        let segments = format::segments_of(base_len);
        (format::HEADERS + segments.saturating_mul(format::SEGMENT)).saturating_mul(BLOCK)
    }

    /// Makes an empty overlay. The store's former contents are lost.
    pub fn create(base: B, store: S) -> io::Result<Self> {
        if store.len() < Self::store_len(base.len()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the store of the overlay is too short",
            ));
        }
        // The system seeds each state differently.
        let id = std::hash::RandomState::new().build_hasher().finish();
        let header = Header {
            sequence: HEADERS_BLANK,
            id,
            base_len: base.len(),
            identity: format::identity(&base)?,
            state: OverlayState::Open,
            segments: 0,
        };
        // Clear the other copy first, because it may hold the header of an older overlay.
        store.write_at((1 - header.place()) * BLOCK, &[0; BLOCK as usize])?;
        store.flush()?;
        store.write_at(header.place() * BLOCK, &header.to_bytes())?;
        store.flush()?;
        Ok(Self::with(base, store, header, Map::default()))
    }

    /// Opens the overlay as its last flush left it, with later overwrites of blocks that had their slot.
    ///
    /// # Errors
    /// `InvalidData` if the store holds no overlay, or not one of this base as it is now.
    pub fn open(base: B, store: S) -> io::Result<Self> {
        match Self::find(&base, &store)? {
            Some((header, map)) => Ok(Self::with(base, store, header, map)),
            None => Err(bad("not an overlay")),
        }
    }

    /// Opens the overlay that a store holds, or makes one if the store is blank, as after a kill while the
    /// overlay was made.
    pub fn open_or_create(base: B, store: S) -> io::Result<Self> {
        match Self::find(&base, &store)? {
            Some((header, map)) => Ok(Self::with(base, store, header, map)),
            // Only the headers of an overlay may be written that was never finished. Other files may begin with zeros, too.
            None if store.next_data(format::HEADERS * BLOCK)?.is_some() => {
                Err(bad("not an overlay"))
            }
            None => Self::create(base, store),
        }
    }

    fn find(base: &B, store: &S) -> io::Result<Option<(Header, Map)>> {
        let Some(header) = Header::find(store)? else {
            return Ok(None);
        };
        match header.state {
            OverlayState::Open => check_base(&header, base)?,
            OverlayState::Applying => {
                return Err(bad(
                    "merging the overlay into its base was interrupted: merge it again",
                ));
            }
            OverlayState::Applied => {
                return Err(bad("the overlay has been merged into its base already"));
            }
        }
        if store.len() < Self::store_len(header.base_len) {
            return Err(bad("the overlay was cut short"));
        }
        let map = Map::load(store, &header)?;
        Ok(Some((header, map)))
    }

    fn with(base: B, store: S, header: Header, map: Map) -> Self {
        Self {
            len: header.base_len,
            id: header.id,
            base,
            store,
            map: RwLock::new(map),
            header: Mutex::new(header),
        }
    }

    /// Returns the bytes of blocks that differ from the base, or may differ.
    pub fn changed(&self) -> u64 {
        self.map.read().slots.len() as u64 * BLOCK
    }

    /// Writes to blocks that have no slot, or had no slot a moment ago.
    fn write_first(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut map = self.map.write();
        let pieces: Vec<Piece> = map.pieces(offset, bytes.len()).collect();
        for Piece { at, range, slot } in pieces {
            let bytes = &bytes[range];
            match slot {
                Some(slot) => self.store.write_at(slot_offset(slot) + at % BLOCK, bytes)?,
                None => self.fill(&mut map, at, bytes)?,
            }
        }
        Ok(())
    }

    /// Allots slots to blocks and fills them from the base, with `bytes` in place from `at` on.
    fn fill(&self, map: &mut Map, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (first, end) = (at / BLOCK, at + bytes.len() as u64);
        let (start, last) = (first * BLOCK, (end - 1) / BLOCK);
        let whole_end = ((last + 1) * BLOCK).min(self.len);
        let mut whole = vec![0; ((last + 1) * BLOCK - start) as usize];
        if start < at {
            let edge = (start + BLOCK).min(self.len);
            self.base
                .read_at(start, &mut whole[..(edge - start) as usize])?;
        }
        if end < whole_end {
            let from = (last * BLOCK - start) as usize;
            let to = (whole_end - start) as usize;
            self.base.read_at(last * BLOCK, &mut whole[from..to])?;
        }
        let within = (at - start) as usize;
        whole[within..within + bytes.len()].copy_from_slice(bytes);
        let (mut block, mut rest) = (first, &whole[..]);
        while block <= last {
            let slot = map.allot(block);
            let mut n = 1;
            while block + n <= last && !(slot + n).is_multiple_of(SLOTS) {
                map.allot(block + n);
                n += 1;
            }
            let (now, later) = rest.split_at((n * BLOCK) as usize);
            if let Err(e) = self.store.write_at(slot_offset(slot), now) {
                // Slots count only when their data are in them.
                map.take_back(n);
                return Err(e);
            }
            rest = later;
            block += n;
        }
        Ok(())
    }
}

/// Sequence number of the first header.
const HEADERS_BLANK: u64 = 0;

fn check_base(header: &Header, base: &dyn BlockDevice) -> io::Result<()> {
    if header.base_len != base.len() {
        return Err(bad(format!(
            "the overlay is of a base of {} bytes, this has {}",
            header.base_len,
            base.len()
        )));
    }
    if header.identity != format::identity(base)? {
        return Err(bad(
            "the overlay is of another base, or its base was changed since",
        ));
    }
    Ok(())
}

impl<B: BlockDevice, S: BlockDevice> BlockDevice for Overlay<B, S> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len, offset, buf.len() as u64, "read")?;
        let map = self.map.read();
        for Piece { at, range, slot } in map.pieces(offset, buf.len()) {
            let buf = &mut buf[range];
            match slot {
                Some(slot) => self.store.read_at(slot_offset(slot) + at % BLOCK, buf)?,
                None => self.base.read_at(at, buf)?,
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_range(self.len, offset, buf.len() as u64, "write")?;
        {
            let map = self.map.read();
            let mut pieces = map.pieces(offset, buf.len());
            let all_have = || map.pieces(offset, buf.len()).all(|p| p.slot.is_some());
            if all_have() {
                return pieces.try_for_each(|Piece { at, range, slot }| {
                    let place = slot_offset(slot.unwrap_or(0)) + at % BLOCK;
                    self.store.write_at(place, &buf[range])
                });
            }
        }
        self.write_first(offset, buf)
    }

    /// Writes all buffers as one write, so that a cut does not tear it where the buffers meet.
    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        match bufs {
            [buf] => self.write_at(offset, buf),
            _ => self.write_at(offset, &bufs.concat()),
        }
    }

    fn flush(&self) -> io::Result<()> {
        let mut header = self.header.lock();
        let (segments, dirty) = {
            let mut map = self.map.write();
            let dirty: Vec<(u64, Index)> = (0u64..)
                .zip(&mut map.segments)
                .filter(|(_, s)| s.dirty)
                .map(|(n, s)| {
                    s.dirty = false;
                    s.index.sequence += 1;
                    (n, s.index.clone())
                })
                .collect();
            (map.segments.len() as u64, dirty)
        };
        let done = self.write_down(&mut header, segments, &dirty);
        if done.is_err() {
            let mut map = self.map.write();
            for (n, _) in &dirty {
                let segment = &mut map.segments[*n as usize];
                segment.dirty = true;
                // The next try writes to the same place, because the other copy may be the only durable one.
                segment.index.sequence -= 1;
            }
        }
        done
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len, offset, len, "trim")?;
        let map = self.map.read();
        let whole = offset.div_ceil(BLOCK)..(offset + len) / BLOCK;
        // Walks the shorter of the two.
        let mut slots: Vec<u64> = match whole.end.saturating_sub(whole.start) {
            n if n > map.slots.len() as u64 => {
                let inside = map.slots.iter().filter(|(b, _)| whole.contains(b));
                inside.map(|(_, &slot)| slot).collect()
            }
            _ => whole.filter_map(|b| map.slots.get(&b).copied()).collect(),
        };
        slots.sort_unstable();
        for run in slots.chunk_by(|a, b| a + 1 == *b && b % SLOTS != 0) {
            self.store
                .trim(slot_offset(run[0]), run.len() as u64 * BLOCK)?;
        }
        Ok(())
    }

    /// An overlay whose store is only read cannot be written.
    fn read_only(&self) -> bool {
        self.store.read_only()
    }
}

impl<B: BlockDevice, S: BlockDevice> Overlay<B, S> {
    /// Makes the slots durable, then the index entries that name them.
    fn write_down(
        &self,
        header: &mut Header,
        segments: u64,
        dirty: &[(u64, Index)],
    ) -> io::Result<()> {
        if segments > header.segments {
            // The header must count a segment before its index can be found; it counts some ahead, so this is
            // rare.
            let most = format::segments_of(self.len);
            let next = Header {
                sequence: header.sequence + 1,
                segments: segments.saturating_mul(2).max(16).min(most),
                ..*header
            };
            self.store
                .write_at(next.place() * BLOCK, &next.to_bytes())?;
            self.store.flush()?;
            *header = next;
        } else {
            self.store.flush()?;
        }
        if dirty.is_empty() {
            return Ok(());
        }
        for (n, index) in dirty {
            let bytes = index.to_bytes(self.id, *n);
            self.store.write_at(index.place(*n) * BLOCK, &bytes)?;
        }
        self.store.flush()
    }
}

/// Merges an overlay into its base; returns the number of bytes merged. A merge that was cut off can be
/// repeated: until one has finished the overlay cannot be used for anything else, and a repetition after that
/// changes nothing.
pub fn apply_overlay(store: &dyn BlockDevice, base: &dyn BlockDevice) -> io::Result<u64> {
    /// Blocks copied at once.
    const RUN: usize = 256;
    let Some(mut header) = Header::find(store)? else {
        return Err(bad("not an overlay"));
    };
    let set_state = |header: &mut Header, state| {
        header.sequence += 1;
        header.state = state;
        store.write_at(header.place() * BLOCK, &header.to_bytes())?;
        store.flush()
    };
    let map = Map::load(store, &header)?;
    match header.state {
        OverlayState::Applied => return Ok(0),
        OverlayState::Open => {
            check_base(&header, base)?;
            set_state(&mut header, OverlayState::Applying)?;
        }
        // The start of the base may be changed already.
        OverlayState::Applying if header.base_len != base.len() => {
            return Err(bad("the overlay is of another base"));
        }
        OverlayState::Applying => {}
    }
    let mut all: Vec<(u64, u64)> = map.slots.into_iter().collect();
    all.sort_unstable();
    let mut bytes = Vec::new();
    for neighbours in all.chunk_by(|a, b| a.0 + 1 == b.0) {
        for run in neighbours.chunks(RUN) {
            bytes.resize(run.len() * BLOCK as usize, 0);
            for ((_, slot), place) in run.iter().zip(bytes.chunks_exact_mut(BLOCK as usize)) {
                store.read_at(slot_offset(*slot), place)?;
            }
            let start = run[0].0 * BLOCK;
            let len = (bytes.len() as u64).min(header.base_len - start);
            base.write_at(start, &bytes[..len as usize])?;
        }
    }
    base.flush()?;
    set_state(&mut header, OverlayState::Applied)?;
    Ok(all.len() as u64 * BLOCK)
}

#[cfg(test)]
mod tests;

//! The state of an image, its blocks in memory, and the segments that are sent.

use super::log::{Append, Loaded, Log};
use super::map::{BlockPlace, Map};
use super::segment::{self, BLOCK, CLAIMED, Head, Run, SegmentKind};
use crate::address::NO_IMAGE;
use crate::cache::Cache;
use crate::holder::{self, Life};
use crate::requests::check_range;
use blockdev::BlockDevice;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Blocks of a segment that is written before a flush asks for it: 16 MiB.
const BATCH: usize = 4096;
/// Segments that are sent at once. Each needs twice the memory of its blocks.
const IN_FLIGHT: usize = 4;
const _: () = assert!((IN_FLIGHT as u64) < CLAIMED);
/// Segments after which the map is written.
const SEGMENTS_OF_MAP: u64 = 64;
/// Segments after which a release writes the map.
const SEGMENTS_AT_END: u64 = 16;
/// Time to wait for another process of this machine to release the image, or the lock of a directory.
const WAIT: Duration = Duration::from_secs(10);
/// Longest image: 16 TiB.
const MOST: u64 = 16 << 40;

/// Written blocks; `None` is zeros.
type Batch = BTreeMap<u64, Option<Box<[u8]>>>;

/// Segment that is being sent.
struct Flight {
    batch: Arc<Batch>,
    /// Head of the segment, once the store has the segment.
    sent: Option<Head>,
}

/// Blocks to send as a segment.
#[derive(Clone)]
pub struct Upload {
    kind: SegmentKind,
    number: u64,
    unconfirmed: u32,
    compressed: bool,
    batch: Arc<Batch>,
}

#[derive(Default)]
struct ImageState {
    map: Map,
    /// Blocks that are in no segment.
    dirty: Batch,
    /// Segments being sent, and sent segments that wait for an earlier one, by number.
    flights: BTreeMap<u64, Flight>,
    /// Last number that was given to a segment.
    last: u64,
    /// Whether the image is released.
    released: bool,
    /// Why nothing is written any more.
    failed: Option<String>,
}

impl ImageState {
    /// Returns the blocks in memory, the newest first.
    fn batches(&self) -> impl Iterator<Item = &Batch> {
        let flights = self.flights.values().rev().map(|flight| &*flight.batch);
        std::iter::once(&self.dirty).chain(flights)
    }

    /// Returns a block that is in memory; the inner `None` is zeros.
    fn in_memory(&self, block: u64) -> Option<Option<&[u8]>> {
        let found = self.batches().find_map(|batch| batch.get(&block));
        found.map(|data| data.as_deref())
    }

    /// Returns the number of blocks from `block` on, at most `most`, before the next one in memory.
    fn blocks_before_memory(&self, block: u64, most: u64) -> u64 {
        let next = |batch: &Batch| batch.range(block..).next().map(|(&at, _)| at - block);
        let next = self.batches().filter_map(next).min();
        next.map_or(most, |next| next.min(most))
    }

    /// Applies the segments that the store has, up to the first one that it does not have yet.
    fn apply_sent(&mut self) {
        while let Some(first) = self.flights.first_entry()
            && let Some(head) = &first.get().sent
        {
            self.map.apply(head);
            first.remove();
        }
    }

    /// Fails if nothing is written any more.
    fn check_failed(&self) -> io::Result<()> {
        match &self.failed {
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }

    /// Returns whether a block holds data, and the number of blocks from it on of which the same is known.
    fn has_data(&self, block: u64) -> (bool, u64) {
        if let Some(data) = self.in_memory(block) {
            return (data.is_some(), 1);
        }
        let (place, blocks) = self.map.find(block);
        (place.is_some(), self.blocks_before_memory(block, blocks))
    }
}

/// An image of objects.
pub struct Objects {
    log: Log,
    cache: Cache,
    size: u64,
    writer: [u8; 16],
    read_only: bool,
    state: Mutex<ImageState>,
    /// Notified when a segment was sent, or could not be.
    sent: Condvar,
    /// Number of dirty blocks at which a segment is sent.
    pub(super) batch: usize,
    /// Most segments that are sent at once.
    in_flight: usize,
    /// Held while a map is written, with the number of the last one.
    last_map: Mutex<u64>,
    /// Held while a part of a block is changed.
    partial: Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Claims the image for this process. If the address has a size, an image that does not exist is made, and a smaller one made larger.
fn claim(log: &Log, writer: [u8; 16]) -> io::Result<Map> {
    let began = Instant::now();
    loop {
        let lock = log.lock(WAIT)?;
        let Loaded { mut map, torn } = log.load()?;
        let size = match (map.number, log.address.size) {
            (0, None) => {
                return Err(log.wrong(NO_IMAGE));
            }
            (_, Some(size)) if size == 0 || size > MOST || !size.is_multiple_of(BLOCK) => {
                return Err(log.wrong("the size must be a multiple of 4096, at most 16T"));
            }
            (number, Some(size)) => {
                if size < map.size {
                    return Err(log.wrong(format_args!(
                        "the image has {} bytes, and cannot be made smaller",
                        map.size
                    )));
                }
                if number == 0 {
                    log.check_conditions()?;
                }
                size
            }
            _ => map.size,
        };
        if let Some(text) = map.holder.as_deref().filter(|_| !log.address.takeover) {
            let wait = match holder::life(text) {
                Life::Ended => None,
                Life::Runs => Some(WAIT),
                Life::Elsewhere => Some(Duration::ZERO),
            };
            if let Some(wait) = wait {
                if began.elapsed() < wait {
                    drop(lock);
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
                return Err(log.wrong(format_args!(
                    "in use by {}: if it has ended, add '?takeover' to the address",
                    holder::shown(text)
                )));
            }
        }
        if let Some(torn) = torn {
            // Where the lock keeps no other process away, one may have replaced the segment by its claim.
            if log.load()?.torn.as_ref() != Some(&torn) {
                continue;
            }
            log.delete(&torn)?;
        }
        log.address.before_claim.call();
        let (head, bytes) = log.claim(&map, writer, size)?;
        // A former writer may have deleted the segment of this number. Then a newer map exists, and no reader would see the claim.
        if log.append(head.number, &bytes)? == Append::Done
            && log
                .numbers("map")?
                .last()
                .is_none_or(|map| *map < head.number)
        {
            map.apply(&head);
            return Ok(map);
        }
    }
}

/// Notes that a segment is missing if the thread that sends it panics: others would wait for the segment.
struct Unsent<'i>(&'i Objects);

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        lock(&self.0.state)
            .failed
            .get_or_insert_with(|| "a segment could not be sent".into());
        self.0.sent.notify_all();
    }
}

impl Objects {
    /// Opens an image. Unless `read_only`, the image is claimed, or made if the address has a size.
    pub(super) fn open_log(log: Log, read_only: bool) -> io::Result<Self> {
        if log.address.snapshot.is_some() && log.address.size.is_some() {
            return Err(log.wrong("a snapshot has the size that it was made with"));
        }
        let read_only = read_only || log.address.snapshot.is_some();
        let writer = *uuid::Uuid::new_v4().as_bytes();
        let map = match &log.address.snapshot {
            Some(name) => log.snapshot(name)?,
            None if read_only => log.load()?.map,
            None => claim(&log, writer)?,
        };
        if map.number == 0 {
            return Err(log.wrong(NO_IMAGE));
        }
        let last_map = log.numbers("map")?.last().copied().unwrap_or(0);
        Ok(Self {
            cache: Cache::new(log.address.cache, log.disk_cache()?),
            batch: BATCH,
            // Of the files in a directory, only the last one may be torn by a crash.
            in_flight: if log.address.directory.is_some() {
                1
            } else {
                IN_FLIGHT
            },
            log,
            size: map.size,
            writer,
            read_only,
            state: Mutex::new(ImageState {
                last: map.number,
                map,
                ..ImageState::default()
            }),
            sent: Condvar::new(),
            last_map: Mutex::new(last_map),
            partial: Mutex::default(),
        })
    }

    /// Returns the last number that was given to a segment.
    #[cfg(test)]
    pub(super) fn last_number(&self) -> u64 {
        lock(&self.state).last
    }

    /// Writes the blocks in memory and releases the image.
    pub fn release(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        lock(&self.state).check_failed()?;
        self.send_all(SegmentKind::Release)
    }

    fn check(&self, offset: u64, len: u64, what: &str) -> io::Result<()> {
        check_range(self.size, offset, len, what)
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.read_only {
            return Err(blockdev::refuse_read_only("write"));
        }
        lock(&self.state).check_failed()
    }

    /// Fills `buf` with whole blocks. Fails with `NotFound` if a segment was deleted meanwhile, because its blocks moved.
    fn read_blocks(&self, first: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut places: Vec<(usize, BlockPlace)> = Vec::new();
        {
            let state = lock(&self.state);
            let count = buf.len() as u64 / BLOCK;
            let mut at = 0;
            while at < count {
                let from = (at * BLOCK) as usize;
                if let Some(data) = state.in_memory(first + at) {
                    let target = &mut buf[from..from + BLOCK as usize];
                    match data {
                        Some(data) => target.copy_from_slice(data),
                        None => target.fill(0),
                    }
                    at += 1;
                    continue;
                }
                let (place, blocks) = state.map.find(first + at);
                let blocks = state.blocks_before_memory(first + at, blocks.min(count - at));
                match place {
                    Some(place) => places.push((from, BlockPlace { blocks, ..place })),
                    None => buf[from..from + (blocks * BLOCK) as usize].fill(0),
                }
                at += blocks;
            }
        }
        for (from, place) in places {
            let target = &mut buf[from..from + (place.blocks * BLOCK) as usize];
            self.fetch(place, target)?;
        }
        Ok(())
    }

    fn fetch(&self, place: BlockPlace, target: &mut [u8]) -> io::Result<()> {
        let mut records = vec![0; place.stored() as usize];
        let path = self.log.segment(place.segment);
        let get = |range| self.log.get_range(&path, range);
        // The length of the segment is not known.
        self.cache
            .read(place.segment, u64::MAX, place.offset, &mut records, get)?;
        let writer = lock(&self.state).map.writer_of(place.segment);
        let cipher = segment::cipher(self.log.address.key.as_ref(), &writer, place.segment)?;
        let named = |e: io::Error| self.log.wrong(format_args!("{path}: a block: {e}"));
        let (mut offset, mut rest) = (place.offset, target);
        let mut skip = (u64::from(place.skip) * BLOCK) as usize;
        for record in records.chunks_exact_mut(place.record as usize) {
            let data = cipher.open(offset, record).map_err(named)?;
            let data = segment::blocks_of(data, place.per).map_err(named)?;
            let data = data.get(skip..).unwrap_or_default();
            let n = data.len().min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&data[..n]);
            (rest, skip) = (later, 0);
            offset += u64::from(place.record);
        }
        Ok(())
    }

    /// Changes one block, or a part of it.
    fn write_block(&self, block: u64, skip: usize, data: &[u8]) -> io::Result<()> {
        if data.len() as u64 == BLOCK {
            lock(&self.state).dirty.insert(block, Some(data.into()));
            return Ok(());
        }
        let _held = lock(&self.partial);
        let mut whole = vec![0; BLOCK as usize].into_boxed_slice();
        self.read_again(block, &mut whole)?;
        whole[skip..skip + data.len()].copy_from_slice(data);
        lock(&self.state).dirty.insert(block, Some(whole));
        Ok(())
    }

    /// Like [`read_blocks`](Self::read_blocks), again if blocks moved.
    fn read_again(&self, first: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut attempts = 0;
        loop {
            match self.read_blocks(first, buf) {
                Err(e) if e.kind() == io::ErrorKind::NotFound && attempts < 3 => attempts += 1,
                done => return done,
            }
        }
    }

    /// Returns the blocks in memory to send if there are enough for a segment.
    pub fn begin_if_full(&self) -> io::Result<Option<Upload>> {
        if lock(&self.state).dirty.len() < self.batch {
            return Ok(None);
        }
        Ok(self.begin(SegmentKind::Data, self.batch)?.1)
    }

    /// Waits for a change of the segments that are being sent, until the condition holds.
    fn wait_until(
        &self,
        condition: impl Fn(&ImageState) -> bool,
    ) -> io::Result<MutexGuard<'_, ImageState>> {
        let waits = |state: &mut ImageState| state.failed.is_none() && !condition(state);
        let state = self.sent.wait_while(lock(&self.state), waits);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        state.check_failed()?;
        Ok(state)
    }

    /// Sends the blocks in memory, and waits until the store has all segments up to them.
    fn send_all(&self, kind: SegmentKind) -> io::Result<()> {
        let (last, upload) = self.begin(kind, 1)?;
        if let Some(upload) = upload {
            self.finish(upload)?;
        }
        drop(self.wait_until(|state| state.map.number >= last)?);
        self.write_map_if_due(kind);
        Ok(())
    }

    /// Takes the blocks in memory for the next segment, unless there are fewer than `least`. Returns the last number that was given to a
    /// segment, too.
    ///
    /// Several segments are sent at once, and the store may get them in any order. A segment counts when all before it exist, so that the
    /// image is always all writes up to some moment.
    fn begin(&self, kind: SegmentKind, least: usize) -> io::Result<(u64, Option<Upload>)> {
        let mut state = self.wait_until(|state| state.flights.len() < self.in_flight)?;
        state.released |= kind == SegmentKind::Release;
        if kind == SegmentKind::Data && state.dirty.len() < least {
            return Ok((state.last, None));
        }
        let number = state.last.saturating_add(1);
        let upload = Upload {
            kind,
            number,
            unconfirmed: state.flights.len() as u32, // at most IN_FLIGHT
            compressed: state.map.compressed,
            batch: Arc::new(std::mem::take(&mut state.dirty)),
        };
        let flight = Flight {
            batch: Arc::clone(&upload.batch),
            sent: None,
        };
        state.flights.insert(number, flight);
        state.last = number;
        Ok((number, Some(upload)))
    }

    /// Sends a segment. If that fails, nothing is written any more.
    pub fn finish(&self, upload: Upload) -> io::Result<()> {
        let unsent = Unsent(self);
        let head = self.append(&upload);
        std::mem::forget(unsent);
        let mut state = lock(&self.state);
        let sent = head.map(|head| {
            if let Some(flight) = state.flights.get_mut(&upload.number) {
                flight.sent = Some(head);
            }
            state.apply_sent();
        });
        if let Err(error) = &sent {
            // The blocks stay readable.
            state.failed.get_or_insert_with(|| error.to_string());
        }
        drop(state);
        self.sent.notify_all();
        sent
    }

    /// Writes the map if there are enough segments since the last one.
    pub fn write_map_if_due(&self, kind: SegmentKind) {
        let (most, last_map) = match kind {
            SegmentKind::Release => (SEGMENTS_AT_END, Some(lock(&self.last_map))),
            // If another thread writes the map, this thread does not wait.
            _ => (SEGMENTS_OF_MAP, self.last_map.try_lock().ok()),
        };
        let Some(mut last_map) = last_map else { return };
        let is_due = {
            let state = lock(&self.state);
            // Another writer may have the image after a release.
            let may = !state.released || kind == SegmentKind::Release;
            may && state.map.segments_after(*last_map) >= most
        };
        // The map only saves time, so a failure waits for the next attempt.
        if is_due && let Ok(number) = self.write_map(kind) {
            *last_map = number;
        }
    }

    /// Writes a batch as the segment of this number, and returns its head.
    fn append(&self, upload: &Upload) -> io::Result<Head> {
        let Upload { number, batch, .. } = upload;
        let mut runs: Vec<Run> = Vec::new();
        for (&block, data) in &**batch {
            let has_data = data.is_some();
            match runs.last_mut() {
                Some(run)
                    if run.has_data == has_data && run.block + u64::from(run.blocks) == block =>
                {
                    run.blocks += 1;
                }
                _ => runs.push(Run {
                    block,
                    blocks: 1,
                    has_data,
                }),
            }
        }
        let key = self.log.address.key.as_ref();
        let mut head = Head {
            kind: upload.kind,
            number: *number,
            writer: self.writer,
            previous: [0; 16],
            size: self.size,
            unconfirmed: upload.unconfirmed,
            runs,
            records: upload.compressed.then(Vec::new),
            encrypted: key.is_some(),
            holder: String::new(),
            len: 0,
        };
        let blocks = batch.values().flatten().map(|block| &**block);
        let bytes = head.encode_with(key, blocks)?;
        match self.log.append(*number, &bytes.into())? {
            Append::Done => Ok(head),
            Append::Taken => Err(self.log.wrong(
                "another writer took the image over: writes since the last flush are not in it",
            )),
        }
    }

    /// Writes the map, deletes segments without blocks, and moves the blocks of segments that have few. Returns the number of the map.
    fn write_map(&self, kind: SegmentKind) -> io::Result<u64> {
        let map = lock(&self.state).map.clone();
        let path = |number| self.log.path("map", format_args!("{number:020}"));
        let bytes = map.encode(self.log.address.key.as_ref())?;
        self.log.put(&path(map.number), bytes)?;
        for number in self.log.numbers("map")? {
            if number < map.number {
                self.log.delete(&path(number))?;
            }
        }
        let pinned = self.log.pinned()?;
        let live = map.live();
        let mut sparse = BTreeSet::new();
        let mut moved = 0;
        for (number, len) in self.log.segments()? {
            // The number of the last segment stays taken for writers that have not seen it.
            if number >= map.number || map.is_claim(number) || pinned.contains(&number) {
                continue;
            }
            let (blocks, bytes) = live.get(&number).copied().unwrap_or((0, 0));
            if blocks == 0 {
                self.log.delete(&self.log.segment(number))?;
            } else if bytes < len / 4 && moved + blocks < BATCH as u64 {
                moved += blocks;
                sparse.insert(number);
            }
        }
        if kind == SegmentKind::Release {
            return Ok(map.number);
        }
        for (block, place) in map.places_in(&sparse) {
            self.dirty_again(block, place)?;
        }
        Ok(map.number)
    }

    /// Reads blocks and marks them dirty, so that the next segment has them. Leaves out blocks that changed meanwhile.
    fn dirty_again(&self, first: u64, place: BlockPlace) -> io::Result<()> {
        let mut data = vec![0; (place.blocks * BLOCK) as usize];
        self.fetch(place, &mut data)?;
        let mut state = lock(&self.state);
        for (n, data) in (0..).zip(data.chunks_exact(BLOCK as usize)) {
            let at = first + n;
            let there = place.after(n);
            let same = state.map.find(at).0;
            let same = same.is_some_and(|p| {
                (p.segment, p.offset, p.skip) == (there.segment, there.offset, there.skip)
            });
            if same && state.in_memory(at).is_none() {
                state.dirty.insert(at, Some(data.into()));
            }
        }
        Ok(())
    }
}

/// Writes only change the blocks in memory. The caller sends a segment once there are enough blocks.
impl BlockDevice for Objects {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, "read")?;
        if buf.is_empty() {
            return Ok(());
        }
        let (skip, len) = ((offset % BLOCK) as usize, buf.len());
        if skip == 0 && (len as u64).is_multiple_of(BLOCK) {
            return self.read_again(offset / BLOCK, buf);
        }
        let mut blocks = vec![0; (skip + len).next_multiple_of(BLOCK as usize)];
        self.read_again(offset / BLOCK, &mut blocks)?;
        buf.copy_from_slice(&blocks[skip..skip + len]);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, "write")?;
        self.check_writable()?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let skip = (at % BLOCK) as usize;
            let n = rest.len().min(BLOCK as usize - skip);
            let (now, later) = rest.split_at(n);
            self.write_block(at / BLOCK, skip, now)?;
            at += n as u64;
            rest = later;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check_writable()?;
        self.send_all(SegmentKind::Data)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len, "discard")?;
        self.check_writable()?;
        let end = offset + len;
        let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
        if first >= last {
            let zeros = vec![0; len as usize]; // less than two blocks
            return self.write_at(offset, &zeros);
        }
        let zeros = vec![0; BLOCK as usize];
        self.write_at(offset, &zeros[..(first * BLOCK - offset) as usize])?;
        self.write_at(last * BLOCK, &zeros[..(end - last * BLOCK) as usize])?;
        {
            let mut state = lock(&self.state);
            let known = state.batches().flat_map(|batch| batch.range(first..last));
            let mut blocks: BTreeSet<u64> = known.map(|(&at, _)| at).collect();
            let mut at = first;
            while at < last {
                let (place, count) = state.map.find(at);
                let next = at.saturating_add(count).min(last);
                if place.is_some() {
                    blocks.extend(at..next);
                }
                at = next;
            }
            for block in blocks {
                state.dirty.insert(block, None);
            }
        }
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.discard(offset, len)
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let state = lock(&self.state);
        let mut found: Option<Range<u64>> = None;
        let (mut at, end) = (offset / BLOCK, self.size / BLOCK);
        while at < end {
            let (has_data, blocks) = state.has_data(at);
            let next = at.saturating_add(blocks).min(end);
            match &mut found {
                Some(data) if has_data => data.end = next * BLOCK,
                Some(_) => break,
                None if has_data => found = Some(offset.max(at * BLOCK)..next * BLOCK),
                None => {}
            }
            at = next;
        }
        Ok(found)
    }

    fn read_only(&self) -> bool {
        self.read_only
    }
}

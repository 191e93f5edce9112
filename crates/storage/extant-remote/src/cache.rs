//! A bounded cache of pieces of objects in memory, with read-ahead, before a cache on disk if there is one.

use crate::disk_cache::{DiskCache, PIECE};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most pieces that one request fetches: 4 MiB.
const MOST_AHEAD: u64 = 32;

/// The number of an object, and of a piece of it.
type Key = (u64, u64);

#[derive(Default)]
struct Pieces {
    /// Pieces, with the time of their last use.
    pieces: HashMap<Key, (Bytes, u64)>,
    /// Pieces by the time of their last use.
    uses: BTreeMap<u64, Key>,
    bytes: u64,
    time: u64,
    /// End of the last fetch, and the number of pieces that it had.
    last: (Key, u64),
}

impl Pieces {
    fn touch(&mut self, key: Key) -> Option<Bytes> {
        self.time += 1;
        let now = self.time;
        let (bytes, used) = self.pieces.get_mut(&key)?;
        let bytes = bytes.clone();
        self.uses.remove(&std::mem::replace(used, now));
        self.uses.insert(now, key);
        Some(bytes)
    }

    fn insert(&mut self, key: Key, bytes: Bytes, most: u64) {
        self.time += 1;
        self.bytes += bytes.len() as u64;
        if let Some((old, used)) = self.pieces.insert(key, (bytes, self.time)) {
            self.bytes -= old.len() as u64;
            self.uses.remove(&used);
        }
        self.uses.insert(self.time, key);
        while self.bytes > most
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            if let Some((old, _)) = self.pieces.remove(&oldest) {
                self.bytes -= old.len() as u64;
            }
        }
    }

    /// Returns the number of pieces to fetch for a miss. Misses in sequence double it.
    fn ahead(&mut self, key: Key, wanted: u64) -> u64 {
        let (end, before) = self.last;
        let count = if end == key {
            (before * 2).clamp(wanted, MOST_AHEAD.max(wanted))
        } else {
            wanted
        };
        self.last = ((key.0, key.1 + count), count);
        count
    }
}

/// The cache.
pub struct Cache {
    most: u64,
    kept: Mutex<Pieces>,
    disk: Option<DiskCache>,
}

impl Cache {
    /// Makes a cache of at most `most` bytes of memory.
    pub fn new(most: u64, disk: Option<DiskCache>) -> Self {
        Self {
            // A fetch must fit.
            most: most.max(2 * MOST_AHEAD * PIECE),
            kept: Mutex::default(),
            disk,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Pieces> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `buf` from the object of this number and length. `fetch` returns the bytes of a range, fewer only if the length is not
    /// known (`u64::MAX`) and the object ends.
    pub fn read(
        &self,
        object: u64,
        len: u64,
        offset: u64,
        buf: &mut [u8],
        fetch: impl Fn(Range<u64>) -> io::Result<Bytes>,
    ) -> io::Result<()> {
        let end = offset
            .checked_add(buf.len() as u64)
            .filter(|end| *end <= len);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let number = at / PIECE;
            let start = number * PIECE;
            let known = self.kept().touch((object, number));
            let piece = match known {
                Some(piece) => piece,
                None => self.miss(object, len, number..end.div_ceil(PIECE), &fetch)?,
            };
            let skip = (at - start) as usize;
            let from = piece.get(skip..).filter(|from| !from.is_empty());
            let from = from.ok_or(io::ErrorKind::UnexpectedEof)?;
            let n = from.len().min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&from[..n]);
            at += n as u64;
            rest = later;
        }
        Ok(())
    }

    /// Gets the first of these pieces from disk, or fetches it and those after it that are not kept.
    fn miss(
        &self,
        object: u64,
        len: u64,
        pieces: Range<u64>,
        fetch: &impl Fn(Range<u64>) -> io::Result<Bytes>,
    ) -> io::Result<Bytes> {
        let on_disk = |disk: &DiskCache| disk.get(object, pieces.start);
        if let Some(piece) = self.disk.as_ref().and_then(on_disk) {
            let key = (object, pieces.start);
            self.kept().insert(key, piece.clone(), self.most);
            return Ok(piece);
        }
        let count = {
            let mut kept = self.kept();
            let wanted = (pieces.end - pieces.start).min(MOST_AHEAD);
            let most = kept.ahead((object, pieces.start), wanted);
            let most = most.min(len.div_ceil(PIECE) - pieces.start);
            let is_new = |n: &u64| !kept.pieces.contains_key(&(object, pieces.start + n));
            (1..most).take_while(is_new).count() as u64 + 1
        };
        // A piece is asked for on disk after the lock is released, because the disk may be slow.
        let is_new = |n: &u64| {
            let disk = self.disk.as_ref();
            disk.is_none_or(|disk| !disk.has(object, pieces.start + n))
        };
        let count = (1..count).take_while(is_new).count() as u64 + 1;
        let start = pieces.start * PIECE;
        let end = start.saturating_add(count * PIECE).min(len);
        let bytes = fetch(start..end)?;
        if bytes.len() as u64 > end - start || len != u64::MAX && (bytes.len() as u64) < end - start
        {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} bytes instead of {} were sent", bytes.len(), end - start),
            ));
        }
        let piece = |n: u64| {
            let from = bytes.len().min((n * PIECE) as usize);
            bytes.slice(from..bytes.len().min(from + PIECE as usize))
        };
        for (disk, n) in self
            .disk
            .iter()
            .flat_map(|disk| (0..count).map(move |n| (disk, n)))
        {
            disk.put(object, pieces.start + n, &piece(n));
        }
        let mut kept = self.kept();
        // Copies, so that a piece does not keep the memory of the whole fetch.
        for n in 0..count {
            let copy = Bytes::copy_from_slice(&piece(n));
            if !copy.is_empty() {
                kept.insert((object, pieces.start + n), copy, self.most);
            }
        }
        Ok(piece(0))
    }
}

#[test]
fn pieces_are_fetched_once_and_ahead() {
    use std::cell::RefCell;
    let len = 100 * PIECE + 7;
    let asked = RefCell::new(Vec::new());
    let fetch = |range: Range<u64>| {
        asked.borrow_mut().push(range.clone());
        Ok(range
            .map(|at| (at / 1000) as u8)
            .collect::<Vec<u8>>()
            .into())
    };
    let cache = Cache::new(64 << 20, None);
    let read = |offset: u64, n: usize| {
        let mut buf = vec![0; n];
        cache.read(1, len, offset, &mut buf, fetch).unwrap();
        let expected = (offset..).map(|at| (at / 1000) as u8);
        assert!(buf.iter().copied().eq(expected.take(n)));
    };
    read(3, 10);
    read(50, 10);
    assert_eq!(asked.borrow().len(), 1);
    for n in 0..100 {
        read(n * PIECE, PIECE as usize);
    }
    assert!(asked.borrow().len() < 12, "{:?}", asked.borrow());
    read(len - 7, 7);
    let past = cache.read(1, len, len - 7, &mut [0; 8], fetch);
    assert_eq!(past.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

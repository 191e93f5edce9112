//! The page cache of one file (mechanism L5). A page holds one file-system block, and a chunk holds sixteen pages. Each
//! page and the index of chunks have a lock. Two files share no lock and no list. Tasks that read a file, or overwrite
//! pages that are dirty already, write no common cache line: their locks are biased when several slots take them, and
//! pages and their locks have separate lines.
//!
//! Lock order: a chunk's pages being loaded, index, page. A thread that holds a chunk without the index keeps the chunk
//! from being dropped.

use crate::base::address::within;
use crate::base::locks::{self, Mutex, ReadGuard, ReadMostly};
use blockdev::copy_bytes;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Pages per chunk.
pub const CHUNK_PAGES: u32 = 16;

/// Bytes of a cache line.
const LINE: usize = 64;

/// The bytes of a cache line, where one begins.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

/// The bytes of a page, which begin with a cache line: no two pages have a line in common. Nothing is requested besides them, since
/// mimalloc has a size for every power of two.
pub struct Page(Box<[Line]>);

impl Page {
    /// Makes a page of zeros.
    pub fn zeroed(bytes: usize) -> Self {
        assert!(bytes.is_multiple_of(LINE), "a block is a number of lines");
        Self(vec![Line([0; LINE]); bytes / LINE].into())
    }

    /// Makes a page with a copy of these bytes, which are whole lines.
    pub fn of(bytes: &[u8]) -> Self {
        let (lines, rest) = bytes.as_chunks();
        assert!(rest.is_empty(), "a block is a number of lines");
        Self(lines.iter().map(|line| Line(*line)).collect())
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for Page {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// A page, if it is in memory, and its lock.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct PageSlot(ReadMostly<Option<Page>, locks::Page>);

impl PageSlot {
    /// Locks the page shared, so that no thread changes it.
    pub fn read(&self) -> ReadGuard<'_, Option<Page>, locks::Page> {
        self.0.read()
    }

    /// Changes the page's bytes; false if it is not in memory.
    pub fn overwrite(&self, within: usize, bytes: &[u8]) -> bool {
        match &mut *self.0.lock() {
            Some(page) => {
                copy_bytes(&mut page[within..within + bytes.len()], bytes);
                true
            }
            None => false,
        }
    }

    /// Fills the slot if it is empty. Returns false if it holds a page.
    pub fn fill(&self, page: impl FnOnce() -> Page) -> bool {
        let mut slot = self.0.lock();
        let is_empty = slot.is_none();
        if is_empty {
            *slot = Some(page());
        }
        is_empty
    }

    fn take(&self) -> Option<Page> {
        self.0.lock().take()
    }

    fn get_mut(&mut self) -> &mut Option<Page> {
        self.0.get_mut()
    }
}

/// A bit for each page of a chunk.
#[derive(Debug, Default)]
pub struct PageBits(AtomicU16);

impl PageBits {
    /// Returns all bits.
    pub fn all(&self) -> u16 {
        self.0.load(Relaxed)
    }

    /// Returns whether this page's bit is set.
    pub fn has(&self, page: usize) -> bool {
        self.all() >> page & 1 != 0
    }

    /// Sets a page's bit; true if it was not set.
    pub fn set(&self, page: usize) -> bool {
        self.0.fetch_or(1 << page, Relaxed) >> page & 1 == 0
    }

    /// Clears these bits; returns how many of them were set.
    pub fn clear(&self, pages: u16) -> u32 {
        (self.0.fetch_and(!pages, Relaxed) & pages).count_ones()
    }
}

/// Sixteen neighbouring pages. The bits are set by threads that hold the file's map, shared or not, and cleared by
/// threads that hold it exclusively, so that the map's lock orders them.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The pages in memory.
    pub pages: [PageSlot; CHUNK_PAGES as usize],
    /// Pages that must be written back.
    pub dirty: PageBits,
    /// Dirty pages without a block. One block of space is reserved for each.
    pub promised: PageBits,
    /// Used since the last sweep.
    used: AtomicBool,
    /// Held by a thread that reads pages from the device, so that each page is read once.
    pub coming_in: Mutex<(), locks::PagesComingIn>,
}

impl Chunk {
    /// Returns true if no page is in memory.
    fn is_empty(&self) -> bool {
        self.pages.iter().all(|page| page.read().is_none())
    }

    /// Marks the chunk as used, so that the next sweep spares it. Written only if needed, because all readers come
    /// here.
    pub fn note_used(&self) {
        if !self.used.load(Relaxed) {
            self.used.store(true, Relaxed);
        }
    }
}

/// A chunk that is not dropped while it is held.
pub type SharedChunk = Arc<Chunk>;

/// The pages that a drop frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Pages.
    pub pages: u32,
    /// Dirty ones among them.
    pub dirty: u32,
    /// Reserved ones among them.
    pub promised: u32,
}

/// All pages of a file, by chunk. It has separate cache lines, because a single reader of a file takes the index's lock
/// while other threads ask for the file's size.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Pages {
    chunks: ReadMostly<BTreeMap<u32, SharedChunk>, locks::PageIndex>,
    changed: Changed,
}

/// Range of chunks that can have dirty pages: no chunk outside `[from, to)` has one. So an fsync of a large file in
/// memory does not visit all of its chunks. Writers widen the range with the file's map held, shared or not. Write-back
/// empties it with the map held exclusively.
#[derive(Debug)]
struct Changed {
    from: AtomicU32,
    to: AtomicU32,
}

impl Default for Changed {
    fn default() -> Self {
        Self {
            from: AtomicU32::new(u32::MAX),
            to: AtomicU32::new(0),
        }
    }
}

/// Returns the chunk of a logical block, and the block's place in it.
pub fn place(block: u32) -> (u32, usize) {
    (block / CHUNK_PAGES, (block % CHUNK_PAGES) as usize)
}

impl Pages {
    /// Names the field at an address, for [`Engine::what_is_at`](crate::volume::Engine::what_is_at).
    pub(crate) fn what_is_at(&self, address: usize) -> Option<String> {
        self.chunks.read().values().find_map(|chunk| {
            if within(&**chunk, address).is_some() {
                return Some("pages of a file: a chunk".to_string());
            }
            // The counts of the shared handle precede the chunk.
            within(&**chunk, address + 2 * size_of::<usize>())
                .map(|_| "pages of a file: reference counts of a chunk".to_string())
        })
    }

    /// Looks at the chunk that holds a logical block, if any of its pages is in memory. Counts no use of it: it stays
    /// because the index is held, shared.
    pub fn at<R>(&self, block: u32, f: impl FnOnce(&Chunk) -> R) -> Option<R> {
        let chunks = self.chunks.read();
        chunks.get(&(block / CHUNK_PAGES)).map(|chunk| f(chunk))
    }

    /// Returns how many blocks from `block` on, without pages in memory, may be read from the device at once: up to the
    /// next chunk in memory, at least one, at most `most`.
    pub fn clear(&self, block: u32, most: u32) -> u32 {
        let last = block.saturating_add(most.saturating_sub(1));
        let chunks = self.chunks.read();
        let mut ahead = chunks.range(block / CHUNK_PAGES..=last / CHUNK_PAGES);
        ahead.next().map_or(most, |(&chunk, _)| {
            (chunk * CHUNK_PAGES).saturating_sub(block).max(1)
        })
    }

    /// Returns whether the page of a logical block is in memory.
    pub fn has_page(&self, block: u32) -> bool {
        let has = |chunk: &Chunk| chunk.pages[place(block).1].read().is_some();
        self.at(block, has).unwrap_or(false)
    }

    /// Returns the chunk that holds a logical block, made if needed.
    pub fn get_or_make(&self, block: u32) -> SharedChunk {
        if let Some(chunk) = self.chunks.read().get(&(block / CHUNK_PAGES)) {
            return Arc::clone(chunk);
        }
        Arc::clone(self.chunks.lock().entry(block / CHUNK_PAGES).or_default())
    }

    /// Returns true if no page is in memory.
    pub fn is_empty(&self) -> bool {
        self.chunks.read().is_empty()
    }

    /// Notes that a page is about to be dirty. The file's map is held, shared or not.
    pub fn will_change(&self, block: u32) {
        let chunk = block / CHUNK_PAGES;
        // Written only if needed, because writers of other pages read these words, too.
        if chunk < self.changed.from.load(Relaxed) {
            self.changed.from.fetch_min(chunk, Relaxed);
        }
        if chunk >= self.changed.to.load(Relaxed) {
            self.changed.to.fetch_max(chunk + 1, Relaxed);
        }
    }

    /// Returns true if a page may be dirty. The file's map is held, shared or not.
    pub fn may_be_dirty(&self) -> bool {
        self.changed.from.load(Relaxed) < self.changed.to.load(Relaxed)
    }

    /// Notes that all pages are clean; the file's map is held exclusively.
    pub fn all_written(&self) {
        self.changed.from.store(u32::MAX, Relaxed);
        self.changed.to.store(0, Relaxed);
    }

    /// Chunks with dirty pages that touch `[from, to)`, in order.
    pub fn dirty_chunks(&self, from: u32, to: u32) -> Vec<(u32, SharedChunk)> {
        let first = (from / CHUNK_PAGES).max(self.changed.from.load(Relaxed));
        let last = to.div_ceil(CHUNK_PAGES).min(self.changed.to.load(Relaxed));
        if first >= last {
            return Vec::new();
        }
        self.chunks
            .read()
            .range(first..last)
            .filter(|(_, c)| c.dirty.all() != 0)
            .map(|(&i, c)| (i, Arc::clone(c)))
            .collect()
    }

    /// Returns the first block in `[from, to)` with a dirty page, for seeking data.
    pub fn next_dirty(&self, from: u32, to: u32) -> Option<u32> {
        self.dirty_chunks(from, to)
            .into_iter()
            .find_map(|(index, chunk)| {
                (0..CHUNK_PAGES)
                    .filter(|i| chunk.dirty.has(*i as usize))
                    .map(|i| index * CHUNK_PAGES + i)
                    .find(|b| (from..to).contains(b))
            })
    }

    /// Drops the pages of `[from, to]`, dirty or not; the file's map is held exclusively.
    pub fn drop_range(&self, from: u32, to: u32) -> Dropped {
        let mut dropped = Dropped::default();
        let mut chunks = self.chunks.lock();
        let mut empty = Vec::new();
        for (&index, chunk) in chunks.range(from / CHUNK_PAGES..=to / CHUNK_PAGES) {
            for (i, page) in (0..CHUNK_PAGES).zip(&chunk.pages) {
                let inside = (from..=to).contains(&(index * CHUNK_PAGES + i));
                if inside && page.take().is_some() {
                    dropped.pages += 1;
                    dropped.dirty += chunk.dirty.clear(1 << i);
                    dropped.promised += chunk.promised.clear(1 << i);
                }
            }
            if chunk.is_empty() {
                empty.push(index);
            }
        }
        for index in empty {
            chunks.remove(&index);
        }
        dropped
    }

    /// Drops clean pages not used since the last sweep; `force` drops all clean ones. Returns how many.
    pub fn sweep(&self, force: bool) -> u32 {
        let mut dropped = 0;
        self.chunks.lock().retain(|_, chunk| {
            // Another thread holds the chunk, perhaps to add its first page, so keep the chunk.
            let Some(chunk) = Arc::get_mut(chunk) else {
                return true;
            };
            if std::mem::take(chunk.used.get_mut()) && !force {
                return true;
            }
            let mut left = false;
            for (i, page) in chunk.pages.iter_mut().enumerate() {
                if chunk.dirty.has(i) {
                    left = true
                } else {
                    dropped += u32::from(page.get_mut().take().is_some())
                }
            }
            left
        });
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(blocks: &[u32], dirty: &[u32]) -> Pages {
        let pages = Pages::default();
        for &b in blocks {
            let chunk = pages.get_or_make(b);
            assert!(chunk.pages[place(b).1].fill(|| Page::zeroed(LINE)));
            if dirty.contains(&b) {
                pages.will_change(b);
                assert!(chunk.dirty.set(place(b).1) && chunk.promised.set(place(b).1));
            }
        }
        pages
    }

    #[test]
    fn dropping_a_range_keeps_its_neighbours() {
        let pages = with(&[14, 15, 16, 40], &[15, 40]);
        assert_eq!(
            pages.drop_range(15, 39),
            Dropped {
                pages: 2,
                dirty: 1,
                promised: 1
            }
        );
        assert!(pages.at(14, |_| ()).is_some() && pages.at(16, |_| ()).is_none());
        assert!(pages.has_page(14) && !pages.has_page(15));
        assert_eq!(pages.next_dirty(0, 100), Some(40));
        assert_eq!(pages.next_dirty(0, 40), None);
    }

    #[test]
    fn what_is_clear_ends_before_a_chunk_in_memory() {
        let pages = with(&[40, u32::MAX], &[]);
        assert_eq!(pages.clear(0, 256), 32);
        assert_eq!(pages.clear(0, 32), 32);
        assert_eq!(pages.clear(5, 1), 1);
        assert_eq!(pages.clear(39, 100), 1);
        assert_eq!(pages.clear(48, 100), 100);
        assert_eq!(pages.clear(u32::MAX - 20, 21), 5);
        assert_eq!(pages.clear(u32::MAX - 1, 1), 1);
    }

    #[test]
    fn only_what_may_have_changed_is_looked_at() {
        let pages = with(&[0, 40, 100, u32::MAX], &[40, 100]);
        let found = |pages: &Pages| -> Vec<u32> {
            let dirty = pages.dirty_chunks(0, u32::MAX);
            dirty.into_iter().map(|(chunk, _)| chunk).collect()
        };
        assert_eq!(found(&pages), [40 / 16, 100 / 16]);
        assert_eq!(pages.next_dirty(41, 100), None);
        let ends = |p: &Pages| (p.changed.from.load(Relaxed), p.changed.to.load(Relaxed));
        assert_eq!(ends(&pages), (2, 7));
        for chunk in pages.dirty_chunks(0, u32::MAX) {
            assert_eq!(chunk.1.dirty.clear(u16::MAX), 1);
        }
        pages.all_written();
        assert_eq!(
            (found(&pages), pages.next_dirty(0, u32::MAX)),
            (vec![], None)
        );
        pages.will_change(u32::MAX);
        assert!(pages.get_or_make(u32::MAX).dirty.set(15));
        assert_eq!(found(&pages), [u32::MAX / 16]);
    }

    #[test]
    fn pages_begin_with_a_line() {
        for bytes in [1024, 4096, 65536] {
            let of = |n| match n % 2 {
                0 => Page::zeroed(bytes),
                _ => Page::of(&vec![7; bytes]),
            };
            let pages: Vec<Page> = (0..8).map(of).collect();
            assert!(pages.iter().all(|p| p.len() == bytes));
            assert!(pages[0].iter().all(|&b| b == 0) && pages[1].iter().all(|&b| b == 7));
            assert!(pages.iter().all(|p| p.as_ptr().addr() % LINE == 0));
        }
    }

    #[test]
    fn a_sweep_spares_dirty_pages() {
        let pages = with(&[1, 2, 3], &[2]);
        assert_eq!(pages.sweep(true), 2);
        assert_eq!(pages.next_dirty(0, 16), Some(2));
    }
}

//! The page cache of one file (mechanism L5): pages of one file-system block each, sixteen to a chunk, a
//! lock for each chunk. There is no lock and no list that two files share.

use crate::locks::{self, Mutex, RwLock};
use crate::whereabouts::within;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Pages per chunk.
pub const CHUNK_PAGES: u32 = 16;

/// Sixteen neighbouring pages.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The pages in memory.
    pub pages: [Option<Box<[u8]>>; CHUNK_PAGES as usize],
    /// Pages that must be written back.
    pub dirty: u16,
    /// Dirty pages without a block: one block of space is promised for each.
    pub promised: u16,
    /// Used since the last sweep.
    pub used: bool,
}

impl Chunk {
    /// Pages in memory.
    pub fn count(&self) -> u32 {
        self.pages.iter().flatten().count() as u32
    }
}

/// A chunk behind its lock.
pub type SharedChunk = Arc<Mutex<Chunk, locks::Pages>>;

/// What dropping pages frees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Pages.
    pub pages: u32,
    /// Of them dirty.
    pub dirty: u32,
    /// Of them promised a block.
    pub promised: u32,
}

/// All pages of a file, by chunk.
#[derive(Debug, Default)]
pub struct Pages {
    chunks: RwLock<BTreeMap<u32, SharedChunk>, locks::PageIndex>,
    changed: Changed,
}

/// No chunk outside `[from, to)` has a dirty page: with this an fsync of a large file that is in memory does not look at
/// all of it. Widened by those who make pages dirty, who hold the file's map, shared or not; emptied by write-back, which
/// holds it exclusively.
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

/// Chunk and place in it of a logical block.
pub fn place(block: u32) -> (u32, usize) {
    (block / CHUNK_PAGES, (block % CHUNK_PAGES) as usize)
}

impl Pages {
    /// For [`Engine::what_is_at`](crate::engine::Engine::what_is_at).
    pub(crate) fn what_is_at(&self, address: usize) -> Option<String> {
        self.chunks.read().values().find_map(|chunk| {
            if within(&**chunk, address).is_some() {
                return Some("pages of a file: a chunk and its lock".to_string());
            }
            // Before it, the counts of its handle.
            within(&**chunk, address + 2 * size_of::<usize>())
                .map(|_| "pages of a file: reference counts of a chunk".to_string())
        })
    }

    /// The chunk that holds a logical block, if any of its pages is in memory.
    pub fn get(&self, block: u32) -> Option<SharedChunk> {
        self.chunks.read().get(&(block / CHUNK_PAGES)).cloned()
    }

    /// The chunk that holds a logical block, made if need be.
    pub fn get_or_make(&self, block: u32) -> SharedChunk {
        if let Some(chunk) = self.get(block) {
            return chunk;
        }
        Arc::clone(self.chunks.write().entry(block / CHUNK_PAGES).or_default())
    }

    /// No page is in memory.
    pub fn is_empty(&self) -> bool {
        self.chunks.read().is_empty()
    }

    /// A page is about to be dirty; the file's map is held, shared or not.
    pub fn will_change(&self, block: u32) {
        let chunk = block / CHUNK_PAGES;
        // Written to only if need be: writers of other pages read these, too.
        if chunk < self.changed.from.load(Relaxed) {
            self.changed.from.fetch_min(chunk, Relaxed);
        }
        if chunk >= self.changed.to.load(Relaxed) {
            self.changed.to.fetch_max(chunk + 1, Relaxed);
        }
    }

    /// All pages are clean; the file's map is held exclusively.
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
            .filter(|(_, c)| c.lock().dirty != 0)
            .map(|(&i, c)| (i, Arc::clone(c)))
            .collect()
    }

    /// First block from `from` on, below `to`, whose page is dirty; for seeking data.
    pub fn next_dirty(&self, from: u32, to: u32) -> Option<u32> {
        self.dirty_chunks(from, to)
            .into_iter()
            .find_map(|(index, chunk)| {
                let dirty = chunk.lock().dirty;
                (0..CHUNK_PAGES)
                    .filter(|i| dirty & (1 << i) != 0)
                    .map(|i| index * CHUNK_PAGES + i)
                    .find(|b| (from..to).contains(b))
            })
    }

    /// Drops the pages of `[from, to]`, dirty or not.
    pub fn drop_range(&self, from: u32, to: u32) -> Dropped {
        let mut dropped = Dropped::default();
        let mut chunks = self.chunks.write();
        let mut empty = Vec::new();
        for (&index, chunk) in chunks.range(from / CHUNK_PAGES..=to / CHUNK_PAGES) {
            let mut chunk = chunk.lock();
            for i in 0..CHUNK_PAGES {
                let inside = (from..=to).contains(&(index * CHUNK_PAGES + i));
                if inside && chunk.pages[i as usize].take().is_some() {
                    dropped.pages += 1;
                    dropped.dirty += u32::from(chunk.dirty >> i & 1);
                    dropped.promised += u32::from(chunk.promised >> i & 1);
                    chunk.dirty &= !(1 << i);
                    chunk.promised &= !(1 << i);
                }
            }
            if chunk.count() == 0 {
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
        self.chunks.write().retain(|_, chunk| {
            // Somebody has it in hand, perhaps to put a first page in: not now.
            if Arc::strong_count(chunk) > 1 {
                return true;
            }
            let Some(mut chunk) = chunk.try_lock() else {
                return true;
            };
            if std::mem::take(&mut chunk.used) && !force {
                return true;
            }
            for i in 0..CHUNK_PAGES as usize {
                if chunk.dirty & (1 << i) == 0 && chunk.pages[i].take().is_some() {
                    dropped += 1;
                }
            }
            chunk.count() != 0
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
            let mut chunk = chunk.lock();
            chunk.pages[place(b).1] = Some(vec![0; 8].into());
            if dirty.contains(&b) {
                pages.will_change(b);
                chunk.dirty |= 1 << place(b).1;
                chunk.promised |= 1 << place(b).1;
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
        assert!(pages.get(14).is_some() && pages.get(16).is_none());
        assert_eq!(pages.next_dirty(0, 100), Some(40));
        assert_eq!(pages.next_dirty(0, 40), None);
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
            chunk.1.lock().dirty = 0;
        }
        pages.all_written();
        assert_eq!(
            (found(&pages), pages.next_dirty(0, u32::MAX)),
            (vec![], None)
        );
        pages.will_change(u32::MAX);
        pages.get_or_make(u32::MAX).lock().dirty = 1 << 15;
        assert_eq!(found(&pages), [u32::MAX / 16]);
    }

    #[test]
    fn a_sweep_spares_dirty_pages() {
        let pages = with(&[1, 2, 3], &[2]);
        assert_eq!(pages.sweep(true), 2);
        assert_eq!(pages.next_dirty(0, 16), Some(2));
    }
}

//! Long lists of items in chunks. A list grows without being copied, and two long lists are joined without being copied. The
//! memory of one context serves the next, because memory fresh from the system costs a page fault and a clearing for
//! every page.

use crate::locks::{self, Mutex};
use std::ops::{Index, IndexMut};

/// Items of a full chunk, a power of two.
const CHUNK: usize = 1 << SHIFT;
const SHIFT: u32 = 10;

/// Items in the order in which they came.
#[derive(Debug)]
pub struct Chunks<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> From<Vec<T>> for Chunks<T> {
    fn from(items: Vec<T>) -> Self {
        let mut chunks = Self::default();
        chunks.extend(items);
        chunks
    }
}

impl<T> Extend<T> for Chunks<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        items.into_iter().for_each(|item| self.push(item));
    }
}

impl<T> Chunks<T> {
    /// Adds an item.
    pub fn push(&mut self, item: T) {
        self.push_with(item, Vec::new);
    }

    /// Adds an item, in a chunk of `spare` if one is needed.
    #[inline(always)]
    pub fn push_in(&mut self, item: T, spare: &Spare<T>) {
        self.push_with(item, || spare.take());
    }

    #[inline(always)]
    fn push_with(&mut self, item: T, empty: impl FnOnce() -> Vec<T>) {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(item),
            _ => self.push_into(empty(), item),
        }
    }

    /// Begins a chunk with an item.
    #[cold]
    #[inline(never)]
    fn push_into(&mut self, mut chunk: Vec<T>, item: T) {
        if !self.chunks.is_empty() {
            // The first chunk grows as needed, because it may stay the only one; most of the later ones are filled.
            chunk.reserve_exact(CHUNK);
        }
        chunk.push(item);
        self.chunks.push(chunk);
    }

    /// Takes over the items of `other`. Chunks that are copied, because they fit behind the last items, stay there empty, for
    /// [`Spare::recycle`].
    pub fn append(&mut self, other: &mut Self) {
        other
            .chunks
            .retain_mut(|chunk| match self.chunks.last_mut() {
                Some(last) if last.len() + chunk.len() <= CHUNK => {
                    last.append(chunk);
                    true
                }
                _ => {
                    self.chunks.push(std::mem::take(chunk));
                    false
                }
            });
    }

    /// Takes the items for which `belongs` is true, in order; the others stay, in order.
    pub(crate) fn take_where(&mut self, belongs: impl Fn(&T) -> bool) -> Self {
        let mut taken = Self::default();
        for item in std::mem::take(&mut self.chunks).into_iter().flatten() {
            if belongs(&item) {
                taken.push(item);
            } else {
                self.push(item);
            }
        }
        taken
    }

    /// Returns all items with their positions, which [`Index`] takes.
    pub fn positions(&self) -> impl Iterator<Item = (usize, &T)> {
        self.chunks
            .iter()
            .enumerate()
            .flat_map(|(c, chunk)| (c << SHIFT..).zip(chunk))
    }

    /// Returns all items.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Returns the last item and the one before it.
    pub fn last_two(&self) -> [Option<&T>; 2] {
        let mut items = self
            .chunks
            .iter()
            .rev()
            .flat_map(|chunk| chunk.iter().rev());
        [items.next(), items.next()]
    }

    /// Returns the position of the last item.
    pub fn last_position(&self) -> Option<usize> {
        let last = self.chunks.len().checked_sub(1)?;
        Some(last << SHIFT | self.chunks[last].len().checked_sub(1)?)
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    /// Returns true if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.chunks.iter().all(Vec::is_empty)
    }

    /// Returns one past the last position.
    pub fn end(&self) -> usize {
        self.chunks.len() << SHIFT
    }
}

impl<T> Index<usize> for Chunks<T> {
    type Output = T;

    /// Returns the item at a position from [`Chunks::positions`].
    fn index(&self, position: usize) -> &T {
        &self.chunks[position >> SHIFT][position & (CHUNK - 1)]
    }
}

impl<T> IndexMut<usize> for Chunks<T> {
    fn index_mut(&mut self, position: usize) -> &mut T {
        &mut self.chunks[position >> SHIFT][position & (CHUNK - 1)]
    }
}

/// Emptied chunks, ready for the next context.
#[derive(Debug)]
pub struct Spare<T>(Mutex<Vec<Vec<T>>, locks::SpareItems>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Spare<T> {
    /// Full-grown chunks kept of each kind: those of half a million items.
    const KEPT: usize = 512;

    fn take(&self) -> Vec<T> {
        // Never waits: a commit holds locks.
        let kept = self.0.try_lock().and_then(|mut spare| spare.pop());
        kept.unwrap_or_default()
    }

    /// Empties a list and keeps its full-grown chunks.
    pub fn recycle(&self, list: Chunks<T>) {
        for mut chunk in list.chunks {
            chunk.clear();
            if chunk.capacity() < CHUNK {
                continue;
            }
            let mut spare = self.0.lock();
            if spare.len() < Self::KEPT {
                spare.push(chunk);
            }
        }
    }

    /// Frees the memory.
    pub fn release(&self) {
        drop(std::mem::take(&mut *self.0.lock()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_lead_to_their_items_after_joining() {
        let spare = Spare::default();
        let mut all: Chunks<u32> = Chunks::default();
        for list in 0..3 {
            let mut part = Chunks::default();
            (0..1500).for_each(|i| part.push_in(list * 10_000 + i, &spare));
            all.append(&mut part);
            assert!(part.is_empty());
        }
        assert_eq!(all.len(), 4500);
        assert!(
            all.positions()
                .all(|(p, item)| all[p] == *item && p < all.end())
        );
        let order: Vec<u32> = all.iter().copied().collect();
        assert!(order.is_sorted());
    }

    /// Many short lists, as of many small contexts, take no more memory than one list.
    #[test]
    fn short_lists_share_chunks() {
        let spare = Spare::default();
        spare.recycle(Chunks::from((0..20_000).collect::<Vec<_>>()));
        let kept = spare.0.lock().len();
        let mut all = Chunks::default();
        for list in 0..2000 {
            let mut part = Chunks::default();
            (0..3).for_each(|i| part.push_in(list * 10 + i, &spare));
            all.append(&mut part);
            assert!(part.is_empty());
            spare.recycle(part);
        }
        assert_eq!((all.len(), all.chunks.len()), (6000, 6));
        assert!(all.iter().is_sorted());
        assert!(all.positions().all(|(p, item)| all[p] == *item));
        // All other chunks came back.
        assert_eq!(spare.0.lock().len() + 6, kept);
    }

    #[test]
    fn chunks_come_back_empty() {
        let spare = Spare::default();
        let list: Chunks<u64> = Chunks::from((0..5000).collect::<Vec<_>>());
        spare.recycle(list);
        let mut list = Chunks::default();
        list.push_in(7, &spare);
        assert_eq!(list.iter().collect::<Vec<_>>(), [&7]);
        assert!(list.chunks[0].capacity() >= CHUNK);
        spare.release();
        assert_eq!(spare.take().capacity(), 0);
    }
}

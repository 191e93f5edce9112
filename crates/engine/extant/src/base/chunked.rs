//! A table with an entry for each group, of which only the used parts are in memory: a volume may have a million
//! groups and use a few of them.

use std::sync::OnceLock;

/// Entries that are loaded together.
const CHUNK: u32 = 64;

/// A table of `T`, in chunks.
pub struct Chunked<T> {
    chunks: Box<[OnceLock<Box<[T]>>]>,
    len: u32,
    /// The entries added when the volume grew.
    more: OnceLock<Box<Chunked<T>>>,
}

impl<T> Chunked<T> {
    /// Makes a table of `len` entries, none of them in memory.
    pub fn new(len: u32) -> Self {
        Self {
            chunks: (0..len.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            len,
            more: OnceLock::new(),
        }
    }

    /// Adds entries behind the others, none of them in memory.
    pub fn grow(&self, more: u32) {
        let mut last = self;
        while let Some(next) = last.more.get() {
            last = next;
        }
        if more > 0 {
            let _first = last.more.set(Box::new(Self::new(more)));
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u32 {
        self.len + self.more.get().map_or(0, |more| more.len())
    }

    /// Returns an entry, if it is in memory.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        match self.chunks.get((index / CHUNK) as usize) {
            Some(chunk) if index < self.len => chunk.get()?.get((index % CHUNK) as usize),
            _ => self.get_grown(index),
        }
    }

    #[cold]
    fn get_grown(&self, index: u32) -> Option<&T> {
        self.more.get()?.get(index.checked_sub(self.len)?)
    }

    /// Returns an entry. If it is not in memory, `make` makes the entry and its neighbours. Two callers may both make
    /// them at the same time, and one result is kept. Returns `None` past the end.
    pub fn get_or_make<E>(
        &self,
        index: u32,
        mut make: impl FnMut(u32) -> Result<T, E>,
    ) -> Result<Option<&T>, E> {
        self.get_or_make_with(index, &mut make)
    }

    fn get_or_make_with<E>(
        &self,
        index: u32,
        make: &mut dyn FnMut(u32) -> Result<T, E>,
    ) -> Result<Option<&T>, E> {
        if let Some(found) = self.get(index) {
            return Ok(Some(found));
        }
        if index >= self.len {
            let Some(more) = self.more.get() else {
                return Ok(None);
            };
            return more.get_or_make_with(index - self.len, &mut |i| make(i + self.len));
        }
        let Some(chunk) = self.chunks.get((index / CHUNK) as usize) else {
            return Ok(None);
        };
        let first = index / CHUNK * CHUNK;
        let last = first.saturating_add(CHUNK).min(self.len);
        let made: Box<[T]> = (first..last).map(make).collect::<Result<_, E>>()?;
        Ok(chunk.get_or_init(|| made).get((index - first) as usize))
    }

    /// Returns all entries in memory.
    pub fn in_memory(&self) -> impl Iterator<Item = &T> {
        let tables = std::iter::successors(Some(self), |table| Some(&**table.more.get()?));
        let chunks = tables.flat_map(|table| table.chunks.iter());
        chunks.filter_map(OnceLock::get).flatten()
    }
}

impl<T: Default> Chunked<T> {
    /// Returns an entry, made if it is not in memory, or `None` past the end.
    pub fn get_or_default(&self, index: u32) -> Option<&T> {
        let made = self.get_or_make::<std::convert::Infallible>(index, |_| Ok(T::default()));
        made.unwrap_or_else(|never| match never {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_come_together_and_nothing_else() {
        let table: Chunked<u32> = Chunked::new(1_000_001);
        assert_eq!(table.get(70), None);
        assert_eq!(
            table.get_or_make(70, |i| Ok::<_, ()>(i * 2)),
            Ok(Some(&140))
        );
        assert_eq!(
            (table.get(64), table.get(127), table.get(128)),
            (Some(&128), Some(&254), None)
        );
        assert_eq!(
            table.get_or_make(1_000_000, |i| if i > 999_990 { Err(i) } else { Ok(i) }),
            Err(1_000_000)
        );
        assert_eq!(table.get_or_default(1_000_000), Some(&0));
        assert_eq!(table.get_or_default(1_000_001), None);
        assert_eq!(table.in_memory().count(), 64 + 1_000_001 % 64);
    }

    #[test]
    fn entries_that_come_are_behind_the_others() {
        let table: Chunked<u32> = Chunked::new(70);
        assert_eq!(table.get_or_make(69, Ok::<_, ()>), Ok(Some(&69)));
        table.grow(10);
        table.grow(100);
        assert_eq!((table.len(), table.get(75)), (180, None));
        for index in [70, 79, 80, 179, 69] {
            assert_eq!(table.get_or_make(index, Ok::<_, ()>), Ok(Some(&index)));
            assert_eq!(table.get(index), Some(&index));
        }
        assert_eq!(table.get_or_make(180, Ok::<_, ()>), Ok(None));
        assert!(table.in_memory().all(|i| *i < 180));
    }
}

//! A table with an entry for each group, of which only the used parts are in memory: a volume may have a million
//! groups and use a few of them.

use std::sync::OnceLock;

/// Entries that come into memory together.
const CHUNK: u32 = 64;

/// A table of `T`, in chunks.
pub struct Chunked<T> {
    chunks: Box<[OnceLock<Box<[T]>>]>,
    len: u32,
}

impl<T> Chunked<T> {
    /// A table of `len` entries, none of them in memory.
    pub fn new(len: u32) -> Self {
        Self {
            chunks: (0..len.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            len,
        }
    }

    /// Number of entries.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// An entry, if it is in memory.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        let chunk = self.chunks.get((index / CHUNK) as usize)?.get()?;
        chunk.get((index % CHUNK) as usize)
    }

    /// An entry; `make` makes it and its neighbours if they are not in memory. Two callers at once may both make
    /// them, and one result is kept. `None` past the end.
    pub fn get_or_make<E>(
        &self,
        index: u32,
        make: impl FnMut(u32) -> Result<T, E>,
    ) -> Result<Option<&T>, E> {
        if let Some(found) = self.get(index) {
            return Ok(Some(found));
        }
        let Some(chunk) = self.chunks.get((index / CHUNK) as usize) else {
            return Ok(None);
        };
        let first = index / CHUNK * CHUNK;
        let last = first.saturating_add(CHUNK).min(self.len);
        let made: Box<[T]> = (first..last).map(make).collect::<Result<_, E>>()?;
        Ok(chunk.get_or_init(|| made).get((index - first) as usize))
    }

    /// All entries in memory.
    pub fn in_memory(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().filter_map(OnceLock::get).flatten()
    }
}

impl<T: Default> Chunked<T> {
    /// An entry, made if it is not in memory; `None` past the end.
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
}

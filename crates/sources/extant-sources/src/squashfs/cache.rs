//! A cache of decompressed blocks, which evicts the least recently used ones first.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Blocks by their places in the image.
pub(super) struct Cache<K, T> {
    most: usize,
    known: Mutex<CachedBlocks<K, T>>,
}

struct CachedBlocks<K, T> {
    /// Counts uses.
    now: u64,
    /// Blocks with the time of their last use.
    blocks: HashMap<K, (u64, Arc<T>)>,
}

impl<K: Copy + Eq + Hash, T> Cache<K, T> {
    /// Creates a cache for `most` blocks.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            known: Mutex::new(CachedBlocks {
                now: 0,
                blocks: HashMap::new(),
            }),
        }
    }

    /// Returns the block of a place, and makes it if it is not cached.
    pub fn get<E>(&self, place: K, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        {
            let known = &mut *self.known.lock();
            known.now += 1;
            if let Some((used, block)) = known.blocks.get_mut(&place) {
                *used = known.now;
                return Ok(Arc::clone(block));
            }
        }
        let block = Arc::new(make()?);
        let known = &mut *self.known.lock();
        if known.blocks.len() >= self.most
            && let Some(oldest) = known.blocks.iter().min_by_key(|(_, (used, _))| *used)
        {
            let oldest = *oldest.0;
            known.blocks.remove(&oldest);
        }
        known.blocks.insert(place, (known.now, Arc::clone(&block)));
        Ok(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_used_goes_first() {
        let cache = Cache::new(2);
        let made = std::cell::Cell::new(0);
        let get = |place: u64| {
            let make = || {
                made.set(made.get() + 1);
                Ok::<_, ()>(place)
            };
            assert_eq!(*cache.get(place, make).unwrap(), place);
        };
        for place in [1, 2, 1, 3, 1] {
            get(place);
        }
        assert_eq!(made.get(), 3);
        get(2);
        assert_eq!(made.get(), 4);
        assert!(cache.get(9, || Err::<u64, _>(())).is_err());
    }
}

//! A cache of computed pieces of a disk.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Size limit of the cache in bytes.
const MOST: usize = 64 << 20;

/// Pieces by their numbers.
#[derive(Default)]
pub struct PieceCache(Mutex<Pieces>);

#[derive(Default)]
struct Pieces {
    /// Pieces with the time of their last use.
    pieces: HashMap<u64, (u64, Arc<Vec<u8>>)>,
    bytes: usize,
    /// Number of uses, as a clock.
    clock: u64,
}

impl PieceCache {
    /// Returns a piece from the cache, or makes it. Two concurrent calls for the same piece may both make it.
    pub fn get(
        &self,
        number: u64,
        make: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> io::Result<Arc<Vec<u8>>> {
        let known = self.lock().get(number);
        if let Some(known) = known {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        self.lock().keep(number, &made);
        Ok(made)
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        // Every holder of the lock leaves the state consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pieces {
    fn get(&mut self, number: u64) -> Option<Arc<Vec<u8>>> {
        self.clock += 1;
        let (used, piece) = self.pieces.get_mut(&number)?;
        *used = self.clock;
        Some(Arc::clone(piece))
    }

    fn keep(&mut self, number: u64, piece: &Arc<Vec<u8>>) {
        self.clock += 1;
        self.bytes += piece.len();
        let entry = (self.clock, Arc::clone(piece));
        if let Some((_, same)) = self.pieces.insert(number, entry) {
            self.bytes -= same.len();
        }
        while self.bytes > MOST {
            let oldest = self.pieces.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(number, _)| *number) else {
                return;
            };
            if let Some((_, gone)) = self.pieces.remove(&oldest) {
                self.bytes -= gone.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_and_what_was_read_last() {
        let kept = PieceCache::default();
        let large = || Ok(vec![0; MOST / 4]);
        for number in 0..4 {
            kept.get(number, large).unwrap();
        }
        let unmade = || -> io::Result<Vec<u8>> { Err(io::ErrorKind::NotFound.into()) };
        kept.get(0, unmade).unwrap();
        kept.get(4, large).unwrap();
        kept.lock().keep(4, &Arc::new(vec![0; MOST / 4]));
        assert_eq!(kept.lock().bytes, MOST);
        for number in [0, 2, 3, 4] {
            kept.get(number, unmade).unwrap();
        }
        assert!(kept.get(1, unmade).is_err(), "it was not read longest");
    }
}

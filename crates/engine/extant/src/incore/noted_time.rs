//! Times that each slot notes separately, where all slots would write the core that they belong to.

use ext4_format::timestamp::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};

/// The latest time that one slot has noted, if any. Only that slot notes here.
#[derive(Default)]
pub struct NotedTime(AtomicU64);

/// No time: the earliest one, which no clock shows.
const NONE: u64 = 0;

fn time(bits: u64) -> Option<Timestamp> {
    (bits != NONE).then(|| Timestamp::from_bits(bits))
}

impl NotedTime {
    /// Notes a time, unless a later one is noted.
    pub fn note(&self, time: Timestamp) {
        let bits = time.to_bits();
        if self.0.load(Ordering::Relaxed) < bits {
            self.0.store(bits, Ordering::Relaxed);
        }
    }

    /// Returns the time noted.
    pub fn get(&self) -> Option<Timestamp> {
        time(self.0.load(Ordering::Relaxed))
    }

    /// Takes it out.
    pub fn take(&self) -> Option<Timestamp> {
        time(self.0.swap(NONE, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_is_kept_until_it_is_taken() {
        let noted = NotedTime::default();
        assert_eq!(noted.get(), None);
        for secs in [5, 7, 6] {
            noted.note(Timestamp::new(secs, 1));
        }
        assert_eq!(noted.get(), Some(Timestamp::new(7, 1)));
        assert_eq!(noted.take(), Some(Timestamp::new(7, 1)));
        assert_eq!(noted.get(), None);
    }
}

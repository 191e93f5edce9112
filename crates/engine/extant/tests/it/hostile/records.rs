//! Broken records of inodes.

use crate::common::*;
use blockdev::{BlockDevice, MemDevice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Breaks up to four places of the records in use. Each is in one of the `parts` of a record, given by their starts and lengths.
fn mutate_records(device: &MemDevice, records: &[u64], parts: [(u64, u64); 4], rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let record = records[rng.below(records.len() as u64) as usize];
        let (from, len) = parts[rng.below(4) as usize];
        let at = record + from + rng.below(len);
        let mut byte = [0];
        device.read_at(at, &mut byte).unwrap();
        byte[0] = match rng.below(5) {
            0 => byte[0] ^ 1 << rng.below(8),
            1 => 0,
            2 => 0xff,
            3 => byte[0].wrapping_add(rng.below(9) as u8).wrapping_sub(4),
            _ => rng.next() as u8,
        };
        device.write_at(at, &byte).unwrap();
    }
}

/// Returns the seeds of [`usable_after_damage`].
pub fn damage_seeds() -> std::ops::Range<u64> {
    seeds(0, 1_000, 60_000)
}

/// Breaks the records in a copy for each seed. Returns the number of copies that `read` finds usable; it may neither panic nor hang.
pub fn usable_after_damage(
    base: &MemDevice,
    records: &[u64],
    parts: [(u64, u64); 4],
    read: impl Fn(&Arc<MemDevice>) -> bool,
) -> u64 {
    let mut usable = 0;
    for seed in damage_seeds() {
        let device = Arc::new(base.snapshot());
        mutate_records(&device, records, parts, &mut Rng::new(seed));
        let begin = Instant::now();
        let found = catch_unwind(AssertUnwindSafe(|| read(&device)));
        let found = found.unwrap_or_else(|_| panic!("panics with EXTANT_SEED={seed}"));
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "seed {seed} takes long"
        );
        usable += u64::from(found);
    }
    usable
}

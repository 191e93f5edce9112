//! How the free space is spread.

use super::record::{Record, Value};
use super::{Answered, InspectError, Inspector, Sink};
use ext4_format::{GroupNr, bitmap};

/// Free runs, counted by length: those of 2^n to below 2^(n+1) blocks in the nth place.
struct Runs {
    shortest: u64,
    longest: u64,
    count: u64,
    blocks: u64,
    by_length: [(u64, u64); 64],
}

impl Runs {
    fn add(&mut self, blocks: u64) {
        let Some(power) = blocks.checked_ilog2() else {
            return;
        };
        self.shortest = self.shortest.min(blocks);
        self.longest = self.longest.max(blocks);
        self.count += 1;
        self.blocks += blocks;
        if let Some((runs, sum)) = self.by_length.get_mut(power as usize) {
            *runs += 1;
            *sum += blocks;
        }
    }
}

impl Inspector<'_> {
    pub(super) fn freefrag(&self, sink: &mut Sink<'_>) -> Answered {
        let geo = &self.volume.geo;
        let mut runs = Runs {
            shortest: u64::MAX,
            longest: 0,
            count: 0,
            blocks: 0,
            by_length: [(0, 0); 64],
        };
        // A run may go on in the next group.
        let mut open = 0;
        for group in (0..geo.groups).map(GroupNr) {
            let map = match self.block_bitmap(group) {
                Ok(map) => map,
                Err(InspectError::Output(e)) => return Err(e.into()),
                Err(e) => {
                    sink(Record::problem(format!("group {group}: {e}")))?;
                    runs.add(std::mem::take(&mut open));
                    continue;
                }
            };
            let (mut at, bits) = (0, geo.bits_in_group(group));
            while at < bits {
                let used = bitmap::find_zero(&map, at, bits).unwrap_or(bits);
                if used > at {
                    runs.add(std::mem::take(&mut open));
                }
                let end = bitmap::find_one(&map, used, bits).unwrap_or(bits);
                open += self.blocks_of_bits(group, used, end);
                at = end;
            }
        }
        runs.add(open);
        self.send_runs(&runs, sink)
    }

    /// Returns the blocks of a range of bits; the last cluster of the volume may not be whole.
    fn blocks_of_bits(&self, group: GroupNr, first: u32, end: u32) -> u64 {
        let geo = &self.volume.geo;
        let ratio = u64::from(geo.cluster_ratio);
        let all = u64::from(geo.blocks_in_group(group));
        let clip = |bit: u32| (u64::from(bit) * ratio).min(all);
        clip(end).saturating_sub(clip(first))
    }

    fn send_runs(&self, runs: &Runs, sink: &mut Sink<'_>) -> Answered {
        let geo = &self.volume.geo;
        let some = runs.count > 0;
        let fields = vec![
            ("blocks", geo.blocks_count.into()),
            ("free_blocks", runs.blocks.into()),
            ("free_runs", runs.count.into()),
            ("shortest", Value::number(some.then_some(runs.shortest))),
            ("longest", Value::number(some.then_some(runs.longest))),
            (
                "average",
                Value::number(runs.blocks.checked_div(runs.count)),
            ),
            ("block_size", geo.block_size.into()),
        ];
        sink(Record::lines("free-space", fields))?;
        for (power, (count, blocks)) in runs.by_length.iter().enumerate() {
            if *count > 0 {
                let fields = vec![
                    ("from", (1u64 << power).into()),
                    ("to", (u64::MAX >> (63 - power)).into()),
                    ("runs", (*count).into()),
                    ("blocks", (*blocks).into()),
                ];
                sink(Record::row("free-runs", fields))?;
            }
        }
        Ok(())
    }
}

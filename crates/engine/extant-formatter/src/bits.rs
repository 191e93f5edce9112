//! Net effect of allocations and frees on the block bitmaps. Order does not matter: a block taken once and freed once
//! is unchanged.

use crate::error::Result;
use crate::item::BitsItem;
use ext4_format::{BlockNr, FormatError, Where};

/// A run of blocks whose bits change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub start: u64,
    pub end: u64,
    pub alloc: bool,
}

/// Computes the net runs: sorted, disjoint, with neighbours of one kind joined.
pub(super) fn net(items: impl Iterator<Item = BitsItem>) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::with_capacity(items.size_hint().0);
    for item in items.filter(|i| i.len > 0) {
        let start = item.start.0;
        let end = start
            .checked_add(item.len.into())
            .ok_or(FormatError::corrupt(
                "range of blocks",
                Where::Block(item.start, 0),
            ))?;
        runs.push(Run {
            start,
            end,
            alloc: item.alloc,
        });
    }
    runs.sort_unstable_by_key(|r| r.start);
    let mut out: Vec<Run> = Vec::with_capacity(runs.len());
    let mut rest = &runs[..];
    while let Some(first) = rest.first() {
        // A cluster: runs that overlap, one after the other.
        let mut end = first.end;
        let mut n = 1;
        while let Some(next) = rest.get(n).filter(|r| r.start < end) {
            end = end.max(next.end);
            n += 1;
        }
        let (cluster, tail) = rest.split_at(n);
        rest = tail;
        match cluster {
            [only] => push(&mut out, *only),
            _ => sweep(cluster, &mut out)?,
        }
    }
    Ok(out)
}

fn push(out: &mut Vec<Run>, run: Run) {
    match out.last_mut() {
        Some(last) if last.end == run.start && last.alloc == run.alloc => last.end = run.end,
        _ => out.push(run),
    }
}

/// Sums overlapping runs block by block, from border to border.
fn sweep(cluster: &[Run], out: &mut Vec<Run>) -> Result<()> {
    let mut borders: Vec<(u64, i64)> = Vec::with_capacity(cluster.len() * 2);
    for run in cluster {
        let weight = if run.alloc { 1 } else { -1 };
        borders.extend([(run.start, weight), (run.end, -weight)]);
    }
    borders.sort_unstable();
    let mut sum = 0;
    let mut at = 0;
    for (border, weight) in borders {
        if border > at {
            match sum {
                0 => {}
                1 | -1 => push(
                    out,
                    Run {
                        start: at,
                        end: border,
                        alloc: sum > 0,
                    },
                ),
                _ => {
                    return Err(FormatError::corrupt(
                        "block taken or freed twice",
                        Where::Block(BlockNr(at), 0),
                    )
                    .into());
                }
            }
            at = border;
        }
        sum += weight;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_counting(ops in prop::collection::vec((0u64..40, 0u32..12, any::<bool>()), 0..12)) {
            let items: Vec<_> =
                ops.iter().map(|&(s, len, alloc)| BitsItem { stamp: 0, start: BlockNr(s), len, alloc }).collect();
            let mut model = [0i32; 60];
            for i in &items {
                for b in i.start.0..i.start.0 + u64::from(i.len) {
                    model[b as usize] += if i.alloc { 1 } else { -1 };
                }
            }
            let got = net(items.iter().copied());
            prop_assert_eq!(got.is_err(), model.iter().any(|n| n.abs() > 1));
            if let Ok(runs) = got {
                prop_assert!(runs.windows(2).all(|w| w[0].end < w[1].start || (w[0].end == w[1].start && w[0].alloc != w[1].alloc)));
                let mut sums = [0i32; 60];
                for r in runs {
                    for b in r.start..r.end {
                        sums[b as usize] += if r.alloc { 1 } else { -1 };
                    }
                }
                prop_assert_eq!(sums, model);
            }
        }
    }
}

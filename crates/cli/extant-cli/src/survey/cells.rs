//! Counts by cells of the volume.

use super::Use;
use ext4_format::geometry::Geometry;

/// Division of a volume into cells: parts of equally many groups, each divided into rows of equally many cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    first: u64,
    end: u64,
    /// Groups per part.
    pub groups: u32,
    /// Blocks per part.
    part: u64,
    /// Blocks per cell.
    pub cell: u64,
    /// Rows per part.
    pub rows: u64,
    /// Cells per row.
    pub columns: u64,
}

impl Layout {
    /// Returns a cell for each group.
    pub fn groups(geometry: &Geometry) -> Self {
        Self::cut(geometry, 1, 1, 1)
    }

    /// Lays out a picture of `columns` columns and at most about `rows` rows. A row holds whole groups, or a group
    /// whole rows.
    pub fn picture(geometry: &Geometry, columns: u32, rows: u32) -> Self {
        let (columns, rows) = (columns.max(1), rows.max(1));
        let together = geometry.groups.div_ceil(rows).max(1);
        let parts = geometry.groups.div_ceil(together).max(1);
        Self::cut(geometry, together, (rows / parts).max(1), columns)
    }

    fn cut(geometry: &Geometry, groups: u32, rows: u32, columns: u32) -> Self {
        let part = u64::from(geometry.blocks_per_group)
            .saturating_mul(groups.into())
            .max(1);
        let cell = part.div_ceil(u64::from(rows) * u64::from(columns)).max(1);
        // A part of few blocks needs fewer rows, or not even all columns.
        let columns = u64::from(columns).min(part.div_ceil(cell));
        Self {
            first: geometry.first_data_block,
            end: geometry.blocks_count,
            groups,
            part,
            cell,
            rows: part.div_ceil(cell * columns),
            columns,
        }
    }

    /// Cells of a part.
    fn per_part(&self) -> u64 {
        self.rows * self.columns
    }

    /// Returns the number of cells, including cells without blocks at the ends of parts.
    pub fn count(&self) -> u64 {
        let parts = self.end.saturating_sub(self.first).div_ceil(self.part);
        parts * self.per_part()
    }

    /// Returns the cell of a block, and one past the cell's last block.
    fn cell_of(&self, block: u64) -> Option<(u64, u64)> {
        let within = block.checked_sub(self.first).filter(|_| block < self.end)?;
        let (part, rest) = (within / self.part, within % self.part);
        let end = (rest / self.cell + 1)
            .saturating_mul(self.cell)
            .min(self.part);
        let end = self.first + part * self.part + end;
        Some((part * self.per_part() + rest / self.cell, end.min(self.end)))
    }

    /// Calls `tell` with each cell of the `len` blocks from `start` on, and the number of blocks in it. Blocks outside
    /// of the volume are in no cell.
    fn spread(&self, start: u64, len: u64, mut tell: impl FnMut(usize, u32)) {
        let mut at = start.max(self.first);
        let end = start.saturating_add(len).min(self.end);
        while at < end
            && let Some((cell, cell_end)) = self.cell_of(at)
        {
            let upto = cell_end.min(end);
            if let Ok(cell) = usize::try_from(cell) {
                tell(cell, u32::try_from(upto - at).unwrap_or(u32::MAX));
            }
            at = upto;
        }
    }

    /// Returns the first block of a cell, and one past its last; `None` if the cell has no block.
    pub fn blocks(&self, cell: u64) -> Option<(u64, u64)> {
        let (part, rest) = (cell / self.per_part(), cell % self.per_part());
        let within = rest.saturating_mul(self.cell);
        let start = self.first + part * self.part + within;
        (within < self.part && start < self.end).then(|| {
            let end = start + self.cell.min(self.part - within);
            (start, end.min(self.end))
        })
    }
}

/// Blocks by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts([u32; Use::COUNT]);

impl Counts {
    /// Returns the blocks of this use.
    pub fn get(&self, what: Use) -> u64 {
        self.0[what as usize].into()
    }

    /// Returns the sum of all blocks.
    pub fn sum(&self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }

    /// Returns the most frequent use of the blocks in use; free if all are free.
    pub fn most(&self) -> Use {
        let used = Use::ALL
            .into_iter()
            .filter(|&u| u != Use::Free && self.get(u) > 0);
        // On a tie, prefer the rarer kind, which comes first.
        used.rev().max_by_key(|&u| self.get(u)).unwrap_or(Use::Free)
    }

    /// Returns the share of the blocks that are in use.
    pub fn fill(&self) -> f64 {
        let all = self.sum().max(1);
        (all - self.get(Use::Free).min(all)) as f64 / all as f64
    }
}

/// Counts for each cell of a layout.
pub struct Cells {
    pub layout: Layout,
    counts: Vec<Counts>,
}

impl Cells {
    /// Makes cells without counts.
    pub fn new(layout: Layout) -> Self {
        let count = usize::try_from(layout.count()).unwrap_or(usize::MAX);
        Self {
            layout,
            counts: vec![Counts::default(); count],
        }
    }

    /// Counts `len` blocks from `start` on; blocks outside of the volume do not count.
    pub fn add(&mut self, what: Use, start: u64, len: u64) {
        let counts = &mut self.counts;
        self.layout.spread(start, len, |cell, more| {
            if let Some(counts) = counts.get_mut(cell) {
                let count = &mut counts.0[what as usize];
                *count = count.saturating_add(more);
            }
        });
    }

    /// Ends the counting. [`Use::Other`] and [`Use::Unknown`] counted all blocks that are, or may be, in use;
    /// subtracts the blocks of known use.
    pub fn finish(&mut self) {
        for counts in &mut self.counts {
            let named = |u: &Use| !matches!(u, Use::Free | Use::Other | Use::Unknown);
            let mut named: u64 = Use::ALL
                .iter()
                .filter(|u| named(u))
                .map(|&u| counts.get(u))
                .sum();
            for rest in [Use::Other, Use::Unknown] {
                let count = &mut counts.0[rest as usize];
                let less = u32::try_from(named).unwrap_or(u32::MAX).min(*count);
                *count -= less;
                named -= u64::from(less);
            }
        }
    }

    /// Returns the counts of each cell.
    pub fn iter(&self) -> impl Iterator<Item = &Counts> {
        self.counts.iter()
    }

    /// Returns the blocks of a use in all cells.
    pub fn total(&self, what: Use) -> u64 {
        self.counts.iter().map(|c| c.get(what)).sum()
    }
}

/// Blocks of some files, for each cell of a layout.
pub struct Owned {
    layout: Layout,
    inodes: Vec<u32>,
    counts: Vec<[u32; Self::MOST]>,
}

impl Owned {
    /// Largest number of files that are distinguished.
    pub const MOST: usize = 8;

    /// Makes counters for these files.
    pub fn new(layout: Layout, inodes: &[u32]) -> Self {
        let count = usize::try_from(layout.count()).unwrap_or(usize::MAX);
        Self {
            layout,
            inodes: inodes.iter().copied().take(Self::MOST).collect(),
            counts: vec![[0; Self::MOST]; count],
        }
    }

    /// Counts blocks of a file, if the file is one of the owners.
    pub fn add(&mut self, ino: u32, start: u64, len: u64) {
        let Some(file) = self.inodes.iter().position(|own| *own == ino) else {
            return;
        };
        let counts = &mut self.counts;
        self.layout.spread(start, len, |cell, more| {
            if let Some(counts) = counts.get_mut(cell) {
                counts[file] = counts[file].saturating_add(more);
            }
        });
    }

    /// Returns the counts of each cell, in the order of the files.
    pub fn cells(&self) -> impl Iterator<Item = &[u32; Self::MOST]> {
        self.counts.iter()
    }

    /// Returns the blocks of each file.
    pub fn totals(&self) -> [u64; Self::MOST] {
        let mut totals = [0; Self::MOST];
        for counts in &self.counts {
            for (total, count) in totals.iter_mut().zip(counts) {
                *total += u64::from(*count);
            }
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(first: u64, blocks: u64, per_group: u32, columns: u32, rows: u32) -> Layout {
        let volume = extant::doc_volume();
        let geometry = Geometry {
            first_data_block: first,
            blocks_count: blocks,
            blocks_per_group: per_group,
            groups: u32::try_from((blocks - first).div_ceil(per_group.into())).unwrap(),
            ..volume.geometry().clone()
        };
        Layout::picture(&geometry, columns, rows)
    }

    /// Every block is in one cell, cells are contiguous, and no cell crosses the border of a group's row.
    #[test]
    fn cells_cut_the_volume_without_gaps() {
        for (first, blocks, per_group, columns, rows) in [
            (1, 8193, 8192, 80, 24),
            (1, 20000, 8192, 80, 24),
            (0, 100_000, 1000, 7, 5),
            (0, 300, 256, 100, 50),
            (0, 17, 8, 64, 32),
        ] {
            let layout = layout(first, blocks, per_group, columns, rows);
            let mut at = first;
            for cell in 0..layout.count() {
                if let Some((start, end)) = layout.blocks(cell) {
                    assert_eq!(start, at, "{layout:?}, cell {cell}");
                    assert!(end > start);
                    assert_eq!(layout.cell_of(start), Some((cell, end)));
                    assert_eq!(layout.cell_of(end - 1), Some((cell, end)));
                    at = end;
                }
            }
            assert_eq!(at, blocks, "{layout:?}");
            let drawn = layout.count() / layout.columns;
            assert!(
                layout.columns <= columns.into() && drawn <= u64::from(rows),
                "{layout:?}"
            );
            assert_eq!(layout.cell_of(blocks), None);
        }
    }

    #[test]
    fn blocks_of_a_file_are_counted_for_it_alone() {
        let layout = layout(0, 100, 50, 1, 2);
        let mut owned = Owned::new(layout, &[12, 13]);
        owned.add(12, 40, 20);
        owned.add(13, 60, 5);
        owned.add(14, 70, 5);
        let cells: Vec<_> = owned.cells().map(|cell| (cell[0], cell[1])).collect();
        assert_eq!(cells, [(10, 0), (10, 5)]);
        assert_eq!(owned.totals()[..3], [20, 5, 0]);
    }

    #[test]
    fn what_is_in_use_and_nobodys_is_the_rest() {
        let mut cells = Cells::new(layout(0, 100, 50, 1, 2));
        cells.add(Use::Other, 0, 40);
        cells.add(Use::Free, 40, 10);
        cells.add(Use::Files, 0, 30);
        cells.add(Use::Unknown, 50, 50);
        cells.add(Use::Files, 90, u64::MAX);
        cells.finish();
        let counts: Vec<_> = cells.iter().collect();
        let of = |c: &Counts| [Use::Files, Use::Other, Use::Free, Use::Unknown].map(|u| c.get(u));
        assert_eq!(of(counts[0]), [30, 10, 10, 0]);
        assert_eq!(of(counts[1]), [10, 0, 0, 40]);
        assert_eq!(counts[0].most(), Use::Files);
        assert!((counts[0].fill() - 0.8).abs() < 1e-9);
        assert_eq!(cells.total(Use::Files), 40);
    }
}

//! Writes qcow2 images of version 3 without compression. All numbers are big-endian. Tables come before the data, so that
//! the file is written sequentially, and the same disk gives the same bytes.
//!
//! | in the file | contents |
//! |---|---|
//! | header | one cluster |
//! | refcount table | offsets of the refcount blocks |
//! | refcount blocks | two bytes with the value 1 for each cluster of the file |
//! | L1 table | offsets of the L2 tables; 0 where the disk has no data |
//! | L2 tables | offsets of the data clusters; 0 for a cluster of zeros |
//! | data clusters | the clusters of the disk that are not all zeros, in order |

use crate::packing::{self, CLUSTER, Packing};
use crate::scratch::Scratch;
use blockdev::BlockDevice;
use std::io::{self, Write};

const MAGIC: &[u8; 4] = b"QFI\xfb";
const CLUSTER_BITS: u32 = CLUSTER.trailing_zeros();
/// Reference counts have 2^4 bits.
const COUNT_ORDER: u32 = 4;
const COUNTS_IN_BLOCK: u64 = CLUSTER / 2;
/// Number of offsets in a table of one cluster.
const OFFSETS: u64 = CLUSTER / 8;
/// Size of the header without extensions, in bytes.
const HEADER: u32 = 104;
/// Flag of an offset: the reference count of its cluster is 1.
const COPIED: u64 = 1 << 63;
/// Size of the largest disk: QEMU opens no L1 table of more than 32 MiB.
const LARGEST: u64 = (32 << 20 >> 3) << (13 + CLUSTER_BITS);

/// Sizes of the parts of an image, in clusters.
struct Layout {
    count_table: u64,
    count_blocks: u64,
    first_level: u64,
    second_levels: u64,
    data: u64,
}

impl Layout {
    fn new(first_level: u64, second_levels: u64, data: u64) -> Self {
        let mut layout = Self {
            count_table: 0,
            count_blocks: 0,
            first_level,
            second_levels,
            data,
        };
        // The refcount blocks also count themselves: repeat until there are enough of them.
        loop {
            let blocks = layout.clusters().div_ceil(COUNTS_IN_BLOCK);
            let table = blocks.div_ceil(OFFSETS);
            if (blocks, table) == (layout.count_blocks, layout.count_table) {
                return layout;
            }
            (layout.count_blocks, layout.count_table) = (blocks, table);
        }
    }

    fn clusters(&self) -> u64 {
        self.before_data() + self.data
    }

    fn before_first_level(&self) -> u64 {
        1 + self.count_table + self.count_blocks
    }

    fn before_second_levels(&self) -> u64 {
        self.before_first_level() + self.first_level
    }

    fn before_data(&self) -> u64 {
        self.before_second_levels() + self.second_levels
    }
}

/// Writes a device as a qcow2 image.
pub fn pack(scratch: &Scratch, out: &mut impl Write, packing: &Packing<'_>) -> io::Result<()> {
    let len = scratch.len();
    if !len.is_multiple_of(512) || len > LARGEST {
        let text =
            "the size of a qcow2 image must be whole sectors of 512 bytes, and at most 2 PiB";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let used = packing::filled(scratch)?;
    let tables = len.div_ceil(CLUSTER * OFFSETS);
    let mut filled: Vec<u64> = used.iter().map(|cluster| cluster / OFFSETS).collect();
    filled.dedup();
    let layout = Layout::new(
        tables.div_ceil(OFFSETS).max(1),
        filled.len() as u64,
        used.len() as u64,
    );
    header(&layout, len, tables, out)?;
    let blocks = 0..layout.count_blocks;
    offsets(blocks.map(|n| (1 + layout.count_table + n) * CLUSTER), out)?;
    counts(&layout, out)?;
    let mut next = layout.before_second_levels();
    let mut left = filled.iter().peekable();
    offsets(
        (0..tables).map(|table| match left.next_if(|&&filled| filled == table) {
            Some(_) => {
                next += 1;
                ((next - 1) * CLUSTER) | COPIED
            }
            None => 0,
        }),
        out,
    )?;
    let mut place = layout.before_data();
    let mut left = used.iter().peekable();
    for table in &filled {
        let clusters = table * OFFSETS..(table + 1) * OFFSETS;
        offsets(
            clusters.map(|cluster| match left.next_if(|&&used| used == cluster) {
                Some(_) => {
                    place += 1;
                    ((place - 1) * CLUSTER) | COPIED
                }
                None => 0,
            }),
            out,
        )?;
    }
    packing::copy(scratch, &used, packing, |_, cluster| out.write_all(cluster))
}

fn header(layout: &Layout, len: u64, tables: u64, out: &mut impl Write) -> io::Result<()> {
    let first_level = layout.before_first_level() * CLUSTER;
    let mut bytes = Vec::with_capacity(CLUSTER as usize);
    bytes.extend(MAGIC);
    bytes.extend(3_u32.to_be_bytes());
    // No backing file.
    bytes.extend([0; 12]);
    bytes.extend(CLUSTER_BITS.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    // Not encrypted.
    bytes.extend([0; 4]);
    bytes.extend((tables as u32).to_be_bytes()); // LARGEST bounds it
    bytes.extend(first_level.to_be_bytes());
    bytes.extend(CLUSTER.to_be_bytes());
    bytes.extend((layout.count_table as u32).to_be_bytes()); // less than the first level
    // No snapshots, and no features of any kind.
    bytes.extend([0; 12 + 24]);
    bytes.extend(COUNT_ORDER.to_be_bytes());
    bytes.extend(HEADER.to_be_bytes());
    // An extension of type 0 ends the header extensions.
    bytes.resize(CLUSTER as usize, 0);
    out.write_all(&bytes)
}

/// Writes a table of offsets, and zeros up to the end of the last cluster.
fn offsets(all: impl Iterator<Item = u64>, out: &mut impl Write) -> io::Result<()> {
    let mut written = 0;
    for offset in all {
        out.write_all(&offset.to_be_bytes())?;
        written += 8;
    }
    zeros_to_end(written, out)
}

/// Writes the refcount blocks: a count of 1 for each cluster of the file.
fn counts(layout: &Layout, out: &mut impl Write) -> io::Result<()> {
    for _ in 0..layout.clusters() {
        out.write_all(&1_u16.to_be_bytes())?;
    }
    zeros_to_end(layout.clusters() * 2, out)
}

fn zeros_to_end(written: u64, out: &mut impl Write) -> io::Result<()> {
    let whole = written.max(1).next_multiple_of(CLUSTER);
    let rest = (whole - written) as usize; // at most a cluster
    out.write_all(&vec![0; rest])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refcount_blocks_count_themselves() {
        // A refcount block has 2^15 counts. Besides the data, an image has a header, a refcount table and block, and two tables.
        let blocks = |data| Layout::new(1, 1, data).count_blocks;
        assert_eq!(blocks(COUNTS_IN_BLOCK - 5), 1);
        assert_eq!(blocks(COUNTS_IN_BLOCK - 4), 2);
        for data in (0..1 << 20).chain((1 << 34)..(1 << 34) + 1000) {
            let layout = Layout::new(1, 1, data);
            let counted = layout.count_blocks * COUNTS_IN_BLOCK;
            assert!(counted >= layout.clusters(), "{data}");
            assert!(
                layout.count_table * OFFSETS >= layout.count_blocks,
                "{data}"
            );
        }
    }
}

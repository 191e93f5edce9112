//! The inodes that belong to the file system itself (resize inode, journal, orphan file), and the block of multiple mount protection.

use super::error::Result;
use super::gather::Gather;
use super::plan::{Mapped, Plan};
use blockdev::BlockDevice;
use ext4_format::checksum::inode_seed;
use ext4_format::geometry::Geometry;
use ext4_format::inode::{self, InodeCore};
use ext4_format::mapping::{self, Run};
use ext4_format::superblock::RawSuperblock;
use ext4_format::timestamp::Timestamp;
use ext4_format::{GroupNr, InodeNr, indirect, jbd2, mmp, orphan_file};

/// Records of the inodes made here, by number.
pub(super) type Records = Vec<(InodeNr, Vec<u8>)>;

/// Writes the blocks of the file system's own inodes and of multiple mount protection, enters them in the superblock, and returns
/// their records.
pub(super) fn write(
    device: &dyn BlockDevice,
    plan: &Plan,
    sb: &mut RawSuperblock,
    time: Timestamp,
) -> Result<Records> {
    let geo = &plan.layout.geometry;
    let mut out = Gather::new(device, geo.block_size);
    let mut records = Records::new();
    if let Some(block) = plan.resize_block {
        records.push(resize_inode(geo, block, time, &mut out)?);
    }
    if plan.layout.journal_blocks > 0 {
        let (ino, raw) = journal(plan, time, &mut out)?;
        sb.journal_inum.set(ino.0);
        let size = u64::from(plan.layout.journal_blocks) * u64::from(geo.block_size);
        sb.set_journal_copy(inode::i_block(&raw)?, size);
        records.push((ino, raw));
    }
    if let Some((ino, mapped)) = &plan.orphan_file {
        sb.orphan_file_inum.set(ino.0);
        records.push((*ino, orphans(geo, *ino, mapped, time, &mut out)?));
    }
    if let Some(nr) = plan.mmp_block {
        let seed = geo.features.has_metadata_csum().then_some(geo.csum_seed);
        let block = mmp::clean_block(geo.block_size as usize, time.secs(), seed);
        out.push(nr, &block)?;
        sb.mmp_block.set(nr);
        sb.mmp_interval.set(mmp::DEFAULT_INTERVAL);
    }
    out.flush()?;
    Ok(records)
}

/// Returns a record whose map is built from runs.
fn mapped_record(
    geo: &Geometry,
    ino: InodeNr,
    mapped: &Mapped,
    core: InodeCore,
    out: &mut Gather<'_>,
) -> Result<Vec<u8>> {
    mapping::file_record(geo, ino, &mapped.runs, &mapped.nodes, core, &mut |nr, b| {
        out.push(nr, b)
    })
}

/// Returns the resize inode: a double indirect block whose entries are the primary's reserved descriptor blocks; each
/// of those maps the reserved blocks at the same place of the backups.
fn resize_inode(
    geo: &Geometry,
    block: u64,
    time: Timestamp,
    out: &mut Gather<'_>,
) -> Result<(InodeNr, Vec<u8>)> {
    let per = indirect::per_block(geo.block_size);
    let backups: Vec<u32> = (1..geo.groups)
        .filter(|&g| geo.has_super(GroupNr(g)))
        .collect();
    let first = geo.gdt_block_count();
    let reserved = u32::from(geo.reserved_gdt_blocks);
    let mut top = vec![0; geo.block_size as usize];
    let mut map = vec![0; geo.block_size as usize];
    for i in first..first + reserved {
        let primary = geo.gdt_block(0).0 + u64::from(i);
        indirect::set(&mut top, i % per, Some(ext4_format::BlockNr(primary)))?;
        map.fill(0);
        for (slot, &g) in (0..).zip(&backups) {
            let there = primary + u64::from(g) * u64::from(geo.blocks_per_group);
            indirect::set(&mut map, slot, Some(ext4_format::BlockNr(there)))?;
        }
        out.push(primary, &map)?;
    }
    out.push(block, &top)?;

    let p = u64::from(per);
    let size = (p * p + p + u64::from(indirect::DIRECT)) * u64::from(geo.block_size);
    let mut raw = vec![0; geo.inode_size.into()];
    inode::init(&mut raw, geo);
    inode::encode_core(&InodeCore::of_volume(size, time), &mut raw, geo);
    let root = inode::i_block_mut(&mut raw)?;
    indirect::set(
        root,
        indirect::DIRECT + 1,
        Some(ext4_format::BlockNr(block)),
    )?;
    let blocks = 1 + u64::from(reserved) * (1 + backups.len() as u64);
    inode::set_sectors(&mut raw, geo, blocks * u64::from(geo.sectors_per_block()))?;
    inode::set_checksum(&mut raw, geo, InodeNr::RESIZE);
    Ok((InodeNr::RESIZE, raw))
}

/// Returns an empty journal.
fn journal(plan: &Plan, time: Timestamp, out: &mut Gather<'_>) -> Result<(InodeNr, Vec<u8>)> {
    let geo = &plan.layout.geometry;
    let len = plan.layout.journal_blocks;
    let features = jbd2::Superblock::default_features(
        geo.features.has_64bit(),
        geo.features.has_metadata_csum(),
    );
    let mut jsb = jbd2::Superblock::new(geo.block_size, len, features, geo.uuid);
    // Linux sets the journal's own feature at the first mount.
    jsb.num_fc_blks = plan.layout.fast_commit_blocks;
    let mut block = vec![0; geo.block_size as usize];
    jsb.write(&mut block)?;
    if let Some(Run { physical, .. }) = plan.journal.runs.first() {
        out.push(*physical, &block)?;
    }
    let size = u64::from(len) * u64::from(geo.block_size);
    let raw = mapped_record(
        geo,
        InodeNr::JOURNAL,
        &plan.journal,
        InodeCore::of_volume(size, time),
        out,
    )?;
    Ok((InodeNr::JOURNAL, raw))
}

/// Returns an orphan file without orphans.
fn orphans(
    geo: &Geometry,
    ino: InodeNr,
    mapped: &Mapped,
    time: Timestamp,
    out: &mut Gather<'_>,
) -> Result<Vec<u8>> {
    let seed = inode_seed(geo.csum_seed, ino, 0);
    let seed = geo.features.has_metadata_csum().then_some(seed);
    let mut count = 0;
    for run in &mapped.runs {
        for nr in run.physical..run.physical + u64::from(run.len) {
            let place = ext4_format::BlockNr(nr);
            let block = orphan_file::empty_block(geo.block_size as usize, seed, place);
            out.push(nr, &block)?;
            count += 1;
        }
    }
    let size = count * u64::from(geo.block_size);
    mapped_record(geo, ino, mapped, InodeCore::of_volume(size, time), out)
}

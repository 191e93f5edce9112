//! Carrying a plan out. The order makes a half-written target invalid: the old superblock is cleared first, and the
//! new one is written last, after everything else is durable.

use super::data::{self, Content};
use super::directory::{Writer, least_blocks, shape_of};
use super::error::{MkfsError, Result};
use super::gather::{self, Gather};
use super::options::MkfsOptions;
use super::plan::Plan;
use super::progress::{Monitor, Phase};
use super::records::{self, RecordWriter, generation};
use super::tree::Tree;
use super::{own_inodes, tables, zeros};
use blockdev::BlockDevice;
use ext4_format::checksum::inode_seed;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::INODE_UNINIT;
use ext4_format::timestamp::Timestamp;
use ext4_format::{BlockNr, GroupNr, InodeNr};

/// Directory blocks of one unit of work.
const DIR_BLOCKS: u64 = 256;

/// The result of writing.
pub(super) struct Written {
    pub data_bytes: u64,
    pub free_blocks: u64,
    pub free_inodes: u32,
}

/// Writes the file system.
pub(super) fn write(
    device: &dyn BlockDevice,
    plan: &Plan,
    tree: &Tree,
    content: &dyn Content,
    options: &MkfsOptions,
    monitor: &Monitor,
) -> Result<Written> {
    let created = &plan.layout.superblock;
    let crtime = i64::from(created.mkfs_time.get()) | i64::from(created.mkfs_time_hi) << 32;
    let crtime = Timestamp::new(crtime, 0);
    // Clears boot sector and superblock, so that the old file system is not recognised any more.
    device
        .write_at(0, &[0; 4096])
        .map_err(|e| MkfsError::io("clearing the old superblock", e))?;
    if !options.zeroed_device {
        clear(device, plan, options, monitor)?;
    }
    let how = (options.threads, options.keep_zeros);
    let copied = data::copy(device, plan, tree, content, how, monitor)?;
    let punched = if copied.zeros.is_empty() {
        None
    } else {
        let mut plan = plan.clone();
        zeros::punch(&mut plan, tree, copied.zeros)?;
        Some(plan)
    };
    let plan = punched.as_ref().unwrap_or(plan);

    let parts = records::parts(plan);
    monitor.phase(Phase::Metadata, plan.dirs.len() as u64 + parts.len() as u64);
    write_directories(device, plan, tree, options.threads, monitor)?;
    write_xattr_blocks(device, plan)?;
    let mut sb = plan.layout.superblock;
    let special = own_inodes::write(device, plan, &mut sb, crtime)?;
    let writer = RecordWriter {
        device,
        plan,
        tree,
        special: &special,
        crtime,
    };
    monitor.for_each(
        options.threads,
        parts.len(),
        || (),
        |(), i| {
            monitor.advance(1);
            writer.write(parts[i])
        },
    )?;
    let zeroed = options.zeroed_device || !options.lazy_itable_init;
    let descs = tables::write_bitmaps(device, plan, tree, zeroed)?;
    tables::write_descriptors(device, plan, &descs)?;
    tables::finish_superblock(&mut sb, plan, &descs);

    monitor.phase(Phase::Flush, 0);
    let flush = || {
        device
            .flush()
            .map_err(|e| MkfsError::io("flushing the image", e))
    };
    tables::write_backups(device, plan, &sb)?;
    flush()?;
    monitor.check()?;
    tables::write_primary(device, &mut sb)?;
    flush()?;
    Ok(Written {
        data_bytes: copied.bytes,
        free_blocks: sb.free_blocks(),
        free_inodes: sb.free_inodes_count.get(),
    })
}

/// Zeroes the blocks that must read as zeros: inode tables, the journal, descriptors reserved for growth.
fn clear(
    device: &dyn BlockDevice,
    plan: &Plan,
    options: &MkfsOptions,
    monitor: &Monitor,
) -> Result<()> {
    let geo = &plan.layout.geometry;
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let lazy = options.lazy_itable_init && geo.features.has_group_csum();
    for desc in &plan.layout.groups {
        if !(lazy && desc.flags & INODE_UNINIT != 0) {
            ranges.push((desc.inode_table.0, geo.itable_blocks().into()));
        }
    }
    let journal = plan.journal.runs.iter();
    ranges.extend(journal.map(|r| (r.physical, u64::from(r.len))));
    for g in (0..geo.groups).map(GroupNr).filter(|&g| geo.has_super(g)) {
        let n = u64::from(geo.group_base_meta_blocks(g));
        ranges.push((geo.group_first_block(g).0, n));
    }
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = last.0 + last.1 == next.0;
        if joins {
            last.1 += next.1;
        }
        joins
    });
    for (start, len) in ranges {
        monitor.check()?;
        let (at, len) = (
            BlockNr(start).offset(geo.block_size),
            BlockNr(len).offset(geo.block_size),
        );
        device
            .discard(at, len)
            .map_err(|e| MkfsError::io(format!("zeroing blocks from {start} on"), e))?;
    }
    Ok(())
}

/// Cuts the directories into units of about [`DIR_BLOCKS`] blocks.
fn dir_jobs(plan: &Plan, tree: &Tree) -> Vec<std::ops::Range<usize>> {
    let mut jobs = Vec::new();
    let (mut start, mut sum) = (0, 0);
    for (i, &d) in plan.dirs.iter().enumerate() {
        let inode = tree.dirs[d as usize].inode as usize;
        let runs = plan.runs[inode].as_slice();
        sum += runs.iter().map(|r| u64::from(r.len)).sum::<u64>();
        if sum >= DIR_BLOCKS {
            jobs.push(start..i + 1);
            (start, sum) = (i + 1, 0);
        }
    }
    if start < plan.dirs.len() {
        jobs.push(start..plan.dirs.len());
    }
    jobs
}

fn write_directories(
    device: &dyn BlockDevice,
    plan: &Plan,
    tree: &Tree,
    threads: usize,
    monitor: &Monitor,
) -> Result<()> {
    let geo = &plan.layout.geometry;
    let jobs = dir_jobs(plan, tree);
    monitor.for_each(
        threads,
        jobs.len(),
        || (),
        |(), i| {
            let mut out = Gather::new(device, geo.block_size);
            let dirs = &plan.dirs[jobs[i].clone()];
            for &d in dirs {
                write_directory(geo, plan, tree, d, &mut out)?;
            }
            monitor.advance(dirs.len() as u64);
            out.flush()
        },
    )
}

fn write_directory(
    geo: &Geometry,
    plan: &Plan,
    tree: &Tree,
    d: u32,
    out: &mut Gather<'_>,
) -> Result<()> {
    let dir = &tree.dirs[d as usize];
    let number = |inode: u32| InodeNr(plan.numbers[inode as usize]);
    let own = number(dir.inode);
    let writer = Writer {
        geo,
        tree,
        numbers: &plan.numbers,
        own,
        parent: number(tree.dirs[dir.parent as usize].inode),
        seed: inode_seed(geo.csum_seed, own, generation(geo, own)),
        hash_version: geo.def_hash_version,
    };
    let names = tree.names_of(d);
    let least = least_blocks(geo, plan.lost_found == Some(dir.inode));
    let shape = shape_of(geo, names, least);
    let runs = plan.runs[dir.inode as usize].as_slice();
    let mut places = runs
        .iter()
        .flat_map(|r| r.physical..r.physical + u64::from(r.len));
    writer.write(names, &shape, &mut |bytes| match places.next() {
        Some(block) => out.push(block, bytes),
        None => Err(MkfsError::source(
            tree.show(dir.inode),
            "more blocks than planned",
        )),
    })
}

fn write_xattr_blocks(device: &dyn BlockDevice, plan: &Plan) -> Result<()> {
    let geo = &plan.layout.geometry;
    for shared in &plan.xattrs.blocks {
        let bytes = plan.xattrs.bytes(shared, geo)?;
        gather::write(device, geo.block_size, shared.nr, &bytes)?;
    }
    Ok(())
}

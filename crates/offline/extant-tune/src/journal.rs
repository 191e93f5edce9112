//! The journal made, and taken away.

use crate::error::{Error, refused};
use crate::image::Image;
use crate::layout::{add_overhead, subtract_overhead};
use crate::options::TuneOptions;
use ext4_format::inode::{self, InodeCore};
use ext4_format::layout::default_journal_blocks;
use ext4_format::mapping::{self, Run};
use ext4_format::timestamp::Timestamp;
use ext4_format::{BlockNr, GroupNr, InodeNr, jbd2};

/// Most blocks of a journal.
const MOST: u64 = 10_240_000;

/// Returns the fields of an inode that belongs to the volume itself.
pub(crate) fn own_inode(size: u64, now: i64) -> InodeCore {
    InodeCore::of_volume(size, Timestamp::new(now, 0))
}

/// Returns the blocks taken for a file of the volume itself, with those of its map.
pub(crate) fn take_blocks(
    image: &mut Image<'_, '_>,
    blocks: u32,
    goal: u64,
    what: &'static str,
) -> Result<(Vec<Run>, Vec<u64>), Error> {
    let runs = image.allocate(blocks, goal, what)?;
    let nodes = if image.geo.features.has_extents() {
        mapping::extent_nodes(&runs, image.geo.block_size)
    } else {
        mapping::address_blocks(&runs, image.geo.block_size)
    };
    let after = runs
        .last()
        .map_or(goal, |run| run.physical + u64::from(run.len));
    let nodes = match nodes {
        0 => Vec::new(),
        count => image.allocate_nodes(count, after)?,
    };
    Ok((runs, nodes))
}

/// Writes the record of such a file, and its map.
pub(crate) fn write_file(
    image: &Image<'_, '_>,
    ino: InodeNr,
    (runs, nodes): &(Vec<Run>, Vec<u64>),
    core: InodeCore,
) -> Result<Vec<u8>, Error> {
    let mut emit = |block: u64, bytes: &[u8]| image.write(BlockNr(block), bytes);
    let mut raw = mapping::file_record(&image.geo, ino, runs, nodes, core, &mut emit)?;
    image.write_record(ino, &mut raw)?;
    Ok(raw)
}

/// Frees all blocks of an inode.
pub(crate) fn free_blocks(image: &mut Image<'_, '_>, ino: InodeNr) -> Result<u64, Error> {
    let raw = image.read_record(ino)?;
    let core = inode::decode_verified(&raw, &image.geo, ino)?;
    let map = image.mapping(core.flags, &raw)?;
    for run in &map.extents {
        image.free(run.physical, run.len.into())?;
    }
    for node in &map.nodes {
        image.free(*node, 1)?;
    }
    Ok(map.blocks())
}

/// Removes the journal; returns the number of its blocks.
pub(crate) fn remove(image: &mut Image<'_, '_>) -> Result<u64, Error> {
    let ino = InodeNr(image.geo.journal_ino);
    let raw = image.read_record(ino)?;
    let len = inode::decode_verified(&raw, &image.geo, ino)?.size / u64::from(image.geo.block_size);
    let blocks = free_blocks(image, ino)?;
    let mut zeros = vec![0; image.geo.inode_size.into()];
    image.write_record(ino, &mut zeros)?;
    image.sb.journal_inum.set(0);
    image.sb.jnl_backup_type = 0;
    image.sb.jnl_blocks = [0.into(); 17];
    subtract_overhead(image, blocks);
    image.tell("journal", format!("its {blocks} blocks are freed"));
    Ok(len)
}

/// Makes a journal, of the old one's length unless the options say another.
pub(crate) fn make(
    image: &mut Image<'_, '_>,
    options: &TuneOptions,
    old_blocks: Option<u64>,
) -> Result<(), Error> {
    let geo = image.geo.clone();
    let blocks = match options.journal_mib {
        Some(mib) => mib.saturating_mul(1 << 20) / u64::from(geo.block_size),
        None => old_blocks.unwrap_or(default_journal_blocks(geo.blocks_count).into()),
    };
    let area = options
        .fast_commit_kib
        .map_or(0, |kib| u64::from(kib) * 1024 / u64::from(geo.block_size));
    if blocks < u64::from(jbd2::MIN_BLOCKS) || blocks > MOST.min(geo.blocks_count / 2) {
        return refused(format!(
            "a journal of {blocks} blocks: it has from {} to {MOST}, and not more than half of the volume",
            jbd2::MIN_BLOCKS
        ));
    }
    if options.fast_commit_kib == Some(0) || blocks < area + u64::from(jbd2::MIN_BLOCKS) {
        return refused(format!(
            "an area of {area} blocks for fast commits in a journal of {blocks}: the log needs {}",
            jbd2::MIN_BLOCKS
        ));
    }
    let len = blocks as u32; // at most MOST
    let log = geo.log_groups_per_flex.min(31);
    let middle = (geo.groups / 2) >> log << log;
    let goal = geo.group_first_block(GroupNr(middle)).0;
    let taken = take_blocks(image, len, goal, "the journal")?;
    let ino = InodeNr::JOURNAL;
    let size = blocks * u64::from(geo.block_size);
    let raw = write_file(image, ino, &taken, own_inode(size, options.now))?;
    let mut sb = jbd2::Superblock::new(geo.block_size, len, jbd2::Features::default(), geo.uuid);
    sb.sequence = free_sequence(image, &taken.0)?;
    sb.num_fc_blks = area as u32; // less than `blocks`
    let mut bytes = vec![0; image.block_size()];
    sb.write(&mut bytes)?;
    if let Some(run) = taken.0.first() {
        image.write(BlockNr(run.physical), &bytes)?;
    }
    image.sb.journal_inum.set(ino.0);
    image.sb.set_journal_copy(inode::i_block(&raw)?, size);
    add_overhead(image, blocks);
    image.renew()?;
    let at = taken.0.first().map_or(0, |run| run.physical);
    let parts = match taken.0.len() {
        1 => "in one piece".to_owned(),
        n => format!("in {n} pieces"),
    };
    image.tell(
        "journal",
        format!("it is made of {blocks} blocks from block {at} on, {parts}"),
    );
    Ok(())
}

/// Returns a sequence number behind those of all blocks of an older journal at that place, so that none of them is
/// ever mistaken for one of the new journal.
fn free_sequence(image: &Image<'_, '_>, runs: &[Run]) -> Result<jbd2::Tid, Error> {
    let mut sequence = jbd2::Tid(1);
    for run in runs {
        for block in run.physical..run.physical + u64::from(run.len) {
            if let Some((_, tid)) = jbd2::header(&image.read(BlockNr(block))?)
                && !tid.is_before(sequence)
            {
                sequence = tid.next();
            }
        }
    }
    Ok(if sequence.0 == 0 {
        jbd2::Tid(1)
    } else {
        sequence
    })
}

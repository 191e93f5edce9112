//! `extant info`.

use super::partitions;
use anyhow::Result;
use ext4_format::features::RoCompat;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::superblock::{
    ERRORS_PANIC, ERRORS_READ_ONLY, RawSuperblock, STATE_ERROR, STATE_ORPHAN,
};
use ext4_format::{GroupNr, jbd2};
use extant::{Timestamp, Volume};
use extant_cli_core::address::Rooted;
use extant_cli_core::format::show::human;
use extant_cli_core::format::superblock::{
    self, RecordedError, group_flags, hash_name, hash_seed, recorded_errors, text, time,
};
use extant_cli_core::format::times::Moment;
use extant_cli_core::image::{images, present_content};
use extant_terminal::output;
use serde::Serialize;
use std::fmt::Display;
use std::io::Write;

/// Show superblock, features, journal and groups of an image
///
/// The image is opened read-only: its journal is taken into account, but nothing is written.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant info disk.img\n  extant info --groups disk.img")]
pub struct Args {
    /// The image
    image: Rooted,
    /// Show every group, too
    #[arg(short, long)]
    groups: bool,
    /// Print as JSON, with every group
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Info {
    label: String,
    uuid: String,
    last_mounted: String,
    features: Vec<String>,
    state: Vec<&'static str>,
    read_only_because: Option<String>,
    block_size: u32,
    blocks: u64,
    reserved_blocks: u64,
    free_blocks: u64,
    overhead_blocks: u64,
    inode_size: u16,
    inodes: u32,
    free_inodes: u64,
    first_inode: u32,
    groups: u32,
    blocks_per_group: u32,
    inodes_per_group: u32,
    flex_group_size: u32,
    descriptor_size: u16,
    reserved_descriptor_blocks: u16,
    directory_hash: String,
    hash_seed: String,
    created: Moment,
    written: Moment,
    mounted: Moment,
    checked: Moment,
    mounts: u16,
    errors: Option<Errors>,
    orphan_file: Option<u32>,
    first_orphan: Option<u32>,
    /// Number of deleted files that still use space, because the image was not closed properly.
    orphans: usize,
    journal: Option<Journal>,
}

#[derive(Serialize)]
struct Errors {
    count: u32,
    /// The error policy.
    policy: &'static str,
    first: ErrorFound,
    last: ErrorFound,
}

/// An error recorded in the superblock.
#[derive(Serialize)]
struct ErrorFound {
    time: Moment,
    function: String,
    line: u32,
    inode: u32,
    block: u64,
}

impl std::fmt::Display for ErrorFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {}:{}", self.time, self.function, self.line)?;
        for (what, number) in [("inode", self.inode.into()), ("block", self.block)] {
            if number != 0 {
                write!(f, ", {what} {number}")?;
            }
        }
        Ok(())
    }
}

impl From<RecordedError> for ErrorFound {
    fn from(error: RecordedError) -> Self {
        Self {
            time: moment(error.time),
            function: error.function,
            line: error.line,
            inode: error.inode,
            block: error.block,
        }
    }
}

fn errors(sb: &RawSuperblock) -> Option<Errors> {
    let [first, last] = recorded_errors(sb).map(ErrorFound::from);
    (sb.error_count.get() > 0).then(|| Errors {
        count: sb.error_count.get(),
        policy: match sb.errors.get() {
            ERRORS_READ_ONLY | ERRORS_PANIC => "remount-ro",
            _ => "continue",
        },
        first,
        last,
    })
}

#[derive(Serialize)]
struct Journal {
    inode: u32,
    blocks: u32,
    bytes: u64,
    features: Vec<&'static str>,
    sequence: u32,
    /// The first block of the log when the image was opened; 0 if the journal was clean.
    start: u32,
    transactions_to_replay: u32,
    blocks_to_replay: u64,
    errno: u32,
}

#[derive(Serialize)]
struct Group {
    group: u32,
    first_block: u64,
    blocks: u32,
    superblock: bool,
    block_bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
    inode_table_blocks: u32,
    free_blocks: u32,
    free_inodes: u32,
    directories: u32,
    unused_inodes: u32,
    flags: Vec<&'static str>,
}

/// Returns a time of the superblock; 0 means never.
fn moment(time: Timestamp) -> Moment {
    Moment((time != Timestamp::EPOCH).then_some(time))
}

fn when(low: u32, high: u8) -> Moment {
    moment(time(low, high))
}

fn info(volume: &Volume) -> Result<Info> {
    let geo = volume.geometry();
    let sb = volume.superblock()?;
    let statfs = volume.statfs()?;
    let has_orphan_file = geo.orphan_file_ino != 0;
    Ok(Info {
        label: text(sb.label()),
        uuid: uuid::Uuid::from_bytes(sb.uuid).to_string(),
        last_mounted: text(&sb.last_mounted),
        features: geo.features.names(),
        state: state(&sb, geo),
        // This command always opens read-only, so report only reasons in the image itself.
        read_only_because: (sb.state.get() & STATE_ERROR != 0)
            .then(|| "marked as having errors".to_string()),
        block_size: geo.block_size,
        blocks: geo.blocks_count,
        reserved_blocks: geo.reserved_blocks,
        // A group with a damaged descriptor has no known counts.
        free_blocks: volume
            .groups()
            .flatten()
            .map(|g| u64::from(g.free_blocks) * u64::from(geo.cluster_ratio))
            .sum(),
        overhead_blocks: u64::from(sb.overhead_blocks.get()) * u64::from(geo.cluster_ratio),
        inode_size: geo.inode_size,
        inodes: geo.inodes_count,
        free_inodes: statfs.free_inodes,
        first_inode: geo.first_ino,
        groups: geo.groups,
        blocks_per_group: geo.blocks_per_group,
        inodes_per_group: geo.inodes_per_group,
        flex_group_size: 1 << geo.log_groups_per_flex.min(31),
        descriptor_size: geo.desc_size,
        reserved_descriptor_blocks: geo.reserved_gdt_blocks,
        directory_hash: format!(
            "{}, {} bytes",
            hash_name(&sb),
            if geo.unsigned_hash {
                "unsigned"
            } else {
                "signed"
            }
        ),
        hash_seed: hash_seed(&sb).to_string(),
        created: when(sb.mkfs_time.get(), sb.mkfs_time_hi),
        written: when(sb.wtime.get(), sb.wtime_hi),
        mounted: when(sb.mtime.get(), sb.mtime_hi),
        checked: when(sb.lastcheck.get(), sb.lastcheck_hi),
        mounts: sb.mnt_count.get(),
        errors: errors(&sb),
        orphan_file: has_orphan_file.then_some(geo.orphan_file_ino),
        first_orphan: (sb.last_orphan.get() != 0).then(|| sb.last_orphan.get()),
        orphans: volume.orphans_left(),
        journal: volume.journal().map(|j| journal(j, geo, volume)),
    })
}

fn state(sb: &RawSuperblock, geo: &Geometry) -> Vec<&'static str> {
    let (clean, errors) = superblock::state(sb);
    let mut state = vec![clean];
    state.extend(errors);
    let needs_recovery = geo.features.names().iter().any(|n| n == "needs_recovery");
    for (yes, word) in [
        (
            sb.state.get() & STATE_ORPHAN != 0,
            "orphans being recovered",
        ),
        (needs_recovery, "journal needs recovery"),
        (
            geo.features.ro_compat.contains(RoCompat::ORPHAN_PRESENT),
            "orphan file in use",
        ),
    ] {
        if yes {
            state.push(word);
        }
    }
    state
}

fn journal(j: &jbd2::Superblock, geo: &Geometry, volume: &Volume) -> Journal {
    let recovery = volume.recovery();
    Journal {
        inode: geo.journal_ino,
        blocks: j.max_len,
        bytes: u64::from(j.max_len) * u64::from(j.block_size),
        features: j.features.names(),
        sequence: j.sequence.0,
        start: j.start,
        transactions_to_replay: recovery.transactions,
        blocks_to_replay: recovery.blocks,
        errno: j.errno,
    }
}

fn group(geo: &Geometry, nr: u32, desc: &GroupDesc) -> Group {
    let nr = GroupNr(nr);
    Group {
        group: nr.0,
        first_block: geo.group_first_block(nr).0,
        blocks: geo.blocks_in_group(nr),
        superblock: geo.has_super(nr),
        block_bitmap: desc.block_bitmap.0,
        inode_bitmap: desc.inode_bitmap.0,
        inode_table: desc.inode_table.0,
        inode_table_blocks: geo.itable_blocks(),
        free_blocks: desc.free_blocks.saturating_mul(geo.cluster_ratio),
        free_inodes: desc.free_inodes,
        directories: desc.used_dirs,
        unused_inodes: desc.itable_unused,
        flags: group_flags(desc),
    }
}

#[derive(Serialize)]
struct Everything {
    #[serde(flatten)]
    info: Info,
    group_descriptors: Vec<Group>,
}

pub fn run(args: &Args) -> Result<()> {
    let image = &args.image.0.image;
    let volume = match images::read(image) {
        Ok(volume) => volume,
        // A disk with partitions is not itself an image.
        Err(_) if present_content::is_disk(image) => return partitions::list(image, args.json),
        Err(error) => return Err(error),
    };
    let geo = volume.geometry();
    let info = info(&volume)?;
    // Opening the image has already reported the damage.
    let descs: Vec<_> = (0..).zip(volume.groups()).collect();
    let sound = descs.iter().all(|(_, desc)| desc.is_ok());
    let groups = descs
        .into_iter()
        .filter_map(|(nr, desc)| Some(group(geo, nr, desc.ok()?)));
    if args.json {
        output::json(&Everything {
            info,
            group_descriptors: groups.collect(),
        })?;
    } else {
        let mut out = output::stdout();
        print(&mut out, &info)?;
        if args.groups {
            for g in groups {
                print_group(&mut out, &g)?;
            }
        }
        out.flush()?;
    }
    if sound { Ok(()) } else { Err(output::told()) }
}

/// Prints a name and its value.
fn line(out: &mut impl Write, what: &str, value: impl Display) -> std::io::Result<()> {
    writeln!(out, "{what:20} {value}")
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn print(out: &mut impl Write, i: &Info) -> Result<()> {
    print_state(out, i)?;
    print_shape(out, i)?;
    print_history(out, i)?;
    match &i.journal {
        Some(journal) => print_journal(out, journal),
        None => Ok(line(out, "Journal:", "<none>")?),
    }
}

/// Prints the identity and the state of the volume.
fn print_state(out: &mut impl Write, i: &Info) -> Result<()> {
    line(out, "Label:", or_none(&i.label))?;
    line(out, "UUID:", &i.uuid)?;
    line(out, "Last mounted on:", or_none(&i.last_mounted))?;
    line(out, "Features:", i.features.join(" "))?;
    line(out, "State:", i.state.join(", "))?;
    if let Some(why) = &i.read_only_because {
        line(out, "Not writable:", why)?;
    }
    if let Some(e) = &i.errors {
        line(out, "Errors:", format!("{} (errors={})", e.count, e.policy))?;
        line(out, "  first:", e.first.to_string())?;
        line(out, "  last:", e.last.to_string())?;
    }
    Ok(())
}

/// Prints the numbers of blocks, inodes and groups.
fn print_shape(out: &mut impl Write, i: &Info) -> Result<()> {
    let bytes = |blocks: u64| human(blocks.saturating_mul(i.block_size.into()));
    line(out, "Block size:", i.block_size.to_string())?;
    line(
        out,
        "Blocks:",
        format!("{} ({})", i.blocks, bytes(i.blocks)),
    )?;
    line(
        out,
        "  free:",
        format!("{} ({})", i.free_blocks, bytes(i.free_blocks)),
    )?;
    line(
        out,
        "  reserved:",
        format!("{} ({})", i.reserved_blocks, bytes(i.reserved_blocks)),
    )?;
    line(
        out,
        "  overhead:",
        format!("{} ({})", i.overhead_blocks, bytes(i.overhead_blocks)),
    )?;
    line(out, "Inode size:", i.inode_size.to_string())?;
    line(out, "Inodes:", i.inodes.to_string())?;
    line(out, "  free:", i.free_inodes.to_string())?;
    line(out, "  first:", i.first_inode.to_string())?;
    let (blocks, inodes) = (i.blocks_per_group, i.inodes_per_group);
    line(
        out,
        "Groups:",
        format!("{} of {blocks} blocks and {inodes} inodes", i.groups),
    )?;
    if i.flex_group_size > 1 {
        line(out, "  in a flex group:", i.flex_group_size.to_string())?;
    }
    let reserved = i.reserved_descriptor_blocks;
    line(
        out,
        "  descriptors:",
        format!(
            "{} bytes, {reserved} blocks reserved for growth",
            i.descriptor_size
        ),
    )?;
    Ok(())
}

/// Prints the history of the volume: mounts, checks, errors.
fn print_history(out: &mut impl Write, i: &Info) -> Result<()> {
    line(
        out,
        "Directory hash:",
        format!("{}, seed {}", i.directory_hash, i.hash_seed),
    )?;
    line(out, "Created:", i.created.to_string())?;
    line(out, "Last written:", i.written.to_string())?;
    line(
        out,
        "Last mounted:",
        format!("{} (mount {})", i.mounted, i.mounts),
    )?;
    line(out, "Last checked:", i.checked.to_string())?;
    match (i.orphan_file, i.first_orphan) {
        (Some(ino), _) => line(out, "Orphan file:", format!("inode {ino}"))?,
        (None, Some(ino)) => line(out, "First orphan:", format!("inode {ino}"))?,
        (None, None) => {}
    }
    if i.orphans > 0 {
        let note = "removed files, freed when the image is opened for writing";
        line(out, "Orphans:", format!("{} ({note})", i.orphans))?;
    }
    Ok(())
}

fn print_journal(out: &mut impl Write, j: &Journal) -> Result<()> {
    line(
        out,
        "Journal:",
        format!(
            "inode {}, {} blocks ({})",
            j.inode,
            j.blocks,
            human(j.bytes)
        ),
    )?;
    line(out, "  features:", or_none(&j.features.join(" ")))?;
    line(out, "  next transaction:", j.sequence.to_string())?;
    let state = match (j.start, j.transactions_to_replay) {
        (0, _) => "empty".to_string(),
        (start, n) => format!(
            "starts at block {start}: {n} transactions, {} blocks to replay",
            j.blocks_to_replay
        ),
    };
    line(out, "  log:", state)?;
    if j.errno != 0 {
        line(out, "  aborted:", format!("error {}", j.errno))?;
    }
    Ok(())
}

fn print_group(out: &mut impl Write, g: &Group) -> Result<()> {
    let last = g.first_block + u64::from(g.blocks).saturating_sub(1);
    let superblock = if g.superblock { ", superblock" } else { "" };
    let flags = if g.flags.is_empty() {
        String::new()
    } else {
        format!(" [{}]", g.flags.join(", "))
    };
    writeln!(
        out,
        "\nGroup {}: blocks {}-{last}{superblock}{flags}",
        g.group, g.first_block
    )?;
    let table_end = g.inode_table + u64::from(g.inode_table_blocks).saturating_sub(1);
    let bitmaps = format!(
        "block bitmap {}, inode bitmap {}",
        g.block_bitmap, g.inode_bitmap
    );
    writeln!(
        out,
        "  {bitmaps}, inode table {}-{table_end}",
        g.inode_table
    )?;
    let unused = if g.unused_inodes > 0 {
        format!(" ({} never used)", g.unused_inodes)
    } else {
        String::new()
    };
    let free = format!(
        "{} free blocks, {} free inodes{unused}",
        g.free_blocks, g.free_inodes
    );
    Ok(writeln!(out, "  {free}, {} directories", g.directories)?)
}

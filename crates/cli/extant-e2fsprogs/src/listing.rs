//! The superblock and the journal's superblock in the layout of `dumpe2fs -h` and `tune2fs -l`, which scripts parse.

use super::external_journal;
use super::listing_groups::{self, Manner};
use super::mmp_block::MmpBlock;
use anyhow::{Context, Result, anyhow};
use blockdev::BlockDevice;
use ext4_format::features::{Features, Incompat};
use ext4_format::jbd2;
use ext4_format::mount_options;
use ext4_format::superblock::{
    ERRORS_CONTINUE, ERRORS_PANIC, ERRORS_READ_ONLY, FLAG_SIGNED_HASH, FLAG_UNSIGNED_HASH,
    RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use extant::Timestamp;
use extant_check::inspect::{Inspector, Request, Value};
use extant_cli_core::format::show::show;
use extant_cli_core::format::superblock::{
    self as words, hash_name, hash_seed, joined, recorded_errors,
};
use extant_cli_core::format::times::as_ctime;
use extant_cli_core::image::images;
use std::fmt::Display;
use std::path::Path;
use uuid::Uuid;

/// Width of a name with its colon.
const WIDTH: usize = 26;

/// Where the list of the journal's users is in its superblock, and the bytes of one of them.
const USERS: (usize, usize) = (0x100, 16);

/// Bits of the flags.
const FLAGS: &[(u32, &str)] = &[
    (FLAG_SIGNED_HASH, "signed_directory_hash"),
    (FLAG_UNSIGNED_HASH, "unsigned_directory_hash"),
    (0x4, "test_filesystem"),
];

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn field(&mut self, name: &str, value: impl Display) {
        let name = format!("{name}:");
        self.0.push_str(&format!("{name:WIDTH$}{value}\n"));
    }

    /// Adds a field with a tab behind its name, as e2fsprogs has it in some.
    fn tabbed(&mut self, name: &str, value: impl Display) {
        self.0.push_str(&format!("{name}:\t          {value}\n"));
    }

    /// Adds a further value of the last field.
    fn field_of_list(&mut self, value: impl Display) {
        self.0.push_str(&format!("{:WIDTH$}{value}\n", ""));
    }

    /// Adds features and sizes of a journal with blocks of `size` bytes.
    fn journal_sizes(&mut self, journal: &jbd2::Superblock, size: u64) {
        self.field("Journal features", joined(&journal.features.names()));
        let kib = u64::from(journal.max_len) * (size / 1024);
        let total = if kib < 8192 {
            format!("{kib}k")
        } else {
            format!("{}M", kib >> 10)
        };
        self.field("Total journal size", total);
        self.field("Total journal blocks", journal.max_len);
        let fast = journal.fast_commit_blocks();
        self.field(
            "Max transaction length",
            journal.max_len.saturating_sub(fast),
        );
        self.field("Fast commit length", fast);
    }

    /// Adds what a journal's superblock tells of its log.
    fn journal_state(&mut self, journal: &jbd2::Superblock, bytes: &[u8]) {
        self.field("Journal sequence", format!("0x{:08x}", journal.sequence.0));
        self.field("Journal start", journal.start);
        if journal.features.checksums() != jbd2::Checksums::None {
            self.field("Journal checksum type", "crc32c");
            let sum = bytes.get(0xfc..0x100).and_then(<[u8]>::first_chunk);
            let sum = sum.map_or(0, |bytes| u32::from_be_bytes(*bytes));
            self.field("Journal checksum", format!("0x{sum:08x}"));
        }
        self.some("Journal errno", journal.errno.cast_signed());
    }

    /// Adds a field unless its value is 0.
    fn some<T: Display + PartialEq + Default>(&mut self, name: &str, value: T) {
        if value != T::default() {
            self.field(name, value);
        }
    }
}

/// Reads the superblock of an image.
pub(super) fn superblock(device: &dyn BlockDevice) -> Result<RawSuperblock> {
    let bytes = ext4_image::superblock_bytes(device)?;
    Ok(RawSuperblock::parse(&bytes)?)
}

/// Opens an image and reads its superblock.
pub(super) fn superblock_of(image: &Path) -> Result<RawSuperblock> {
    superblock(&images::device(image)?)
}

/// The extent of a listing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Listed {
    /// The superblock, as in tune2fs.
    Superblock,
    /// With the journal, as in dumpe2fs -h.
    Journal,
    /// With the journal and the groups.
    Groups,
}

/// Reads the superblock at the start of a block.
fn superblock_copy(device: &dyn BlockDevice, (block, size): (u64, u64)) -> Result<RawSuperblock> {
    let at = block.checked_mul(size).context("no such block")?;
    // In block 0, the boot sector comes before the superblock.
    let at = at.max(SUPERBLOCK_OFFSET);
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    device.read_at(at, &mut bytes)?;
    let sb = RawSuperblock::parse(&bytes)?;
    let said = sb.block_size().map(u64::from);
    anyhow::ensure!(said == Some(size), "its blocks are not of {size} bytes");
    Ok(sb)
}

/// Finds the superblock in this block by trying all block sizes.
pub(super) fn place_of_copy(image: &Path, block: u64) -> Result<(u64, u64)> {
    let device = images::device(image)?;
    let found = (10..=16).map(|log| (block, 1 << log));
    let mut found = found.filter(|place| superblock_copy(&device, *place).is_ok());
    found.next().context("there is no superblock")
}

/// Returns the lines about an image.
pub(super) fn lines(image: &Path, what: Listed, manner: Manner) -> Result<String> {
    let with_journal = what != Listed::Superblock;
    let named = || image.display().to_string();
    let device = images::device(image)?;
    let sb = match manner.copy {
        Some(place) => superblock_copy(&device, place),
        None => superblock(&device),
    };
    let mut lines = Lines::default();
    if let Some(sb) = external_journal::device_superblock(&device).filter(|_| with_journal) {
        names(&sb, &mut lines);
        sizes(&sb, &mut lines);
        times(&sb, &mut lines);
        rest(&sb, &mut lines);
        journal_device(&device, &sb, &mut lines).with_context(named)?;
        return Ok(lines.0);
    }
    let sb = sb.with_context(named)?;
    if manner.colons {
        listing_groups::add(&device, &sb, manner, &mut lines.0).with_context(named)?;
        return Ok(lines.0);
    }
    names(&sb, &mut lines);
    sizes(&sb, &mut lines);
    times(&sb, &mut lines);
    rest(&sb, &mut lines);
    if with_journal && sb.journal_inum.get() != 0 {
        journal(&device, &sb, &mut lines).with_context(named)?;
    }
    if with_journal {
        protection(&device, &sb, &mut lines);
        lines.0.push('\n');
    }
    if what == Listed::Groups {
        lines.0.push('\n');
        listing_groups::add(&device, &sb, manner, &mut lines.0).with_context(named)?;
    }
    Ok(lines.0)
}

/// Returns the text before the first NUL byte, or `none` if that text is empty.
fn text(bytes: &[u8], none: &str) -> String {
    let text = words::text(bytes);
    if text.is_empty() { none.into() } else { text }
}

fn set<'n>(bits: u32, names: &[(u32, &'n str)]) -> Vec<&'n str> {
    let set = names.iter().filter(|(bit, _)| bits & bit != 0);
    set.map(|(_, name)| *name).collect()
}

fn names(sb: &RawSuperblock, lines: &mut Lines) {
    lines.field("Filesystem volume name", text(&sb.volume_name, "<none>"));
    lines.field("Last mounted on", text(&sb.last_mounted, "<not available>"));
    lines.field("Filesystem UUID", Uuid::from_bytes(sb.uuid));
    lines.field(
        "Filesystem magic number",
        format_args!("0x{:04X}", sb.magic.get()),
    );
    let revision = match sb.rev_level.get() {
        0 => "0 (original)".to_owned(),
        1 => "1 (dynamic)".to_owned(),
        other => format!("{other} (unknown)"),
    };
    lines.field("Filesystem revision #", revision);
    lines.field("Filesystem features", joined(&Features::of(sb).names()));
    if sb.flags.get() != 0 {
        let flags = set(sb.flags.get(), FLAGS);
        lines.field("Filesystem flags", format!("{} ", flags.join(" ")));
    }
    let words = mount_options::names(sb.default_mount_opts.get());
    lines.field("Default mount options", joined(&words));
    if sb.mount_opts[0] != 0 {
        lines.field("Mount options", text(&sb.mount_opts, ""));
    }
    let (clean, errors) = words::state(sb);
    let state: Vec<_> = [clean].into_iter().chain(errors).collect();
    lines.field("Filesystem state", state.join(" "));
    let behaviour = match sb.errors.get() {
        ERRORS_CONTINUE => "Continue",
        ERRORS_READ_ONLY => "Remount read-only",
        ERRORS_PANIC => "Panic",
        _ => "Unknown (continue)",
    };
    lines.field("Errors behavior", behaviour);
    let systems = ["Linux", "Hurd", "Masix", "FreeBSD", "Lites"];
    let system = systems.get(sb.creator_os.get() as usize);
    lines.field("Filesystem OS type", system.unwrap_or(&"unknown"));
}

fn sizes(sb: &RawSuperblock, lines: &mut Lines) {
    let features = Features::of(sb);
    let block = u64::from(sb.block_size().unwrap_or(0));
    lines.field("Inode count", sb.inodes_count.get());
    lines.field("Block count", sb.blocks_count());
    lines.field("Reserved block count", sb.reserved_blocks());
    lines.some("Overhead clusters", sb.overhead_blocks.get());
    lines.field("Free blocks", sb.free_blocks());
    lines.field("Free inodes", sb.free_inodes_count.get());
    lines.field("First block", sb.first_data_block.get());
    lines.field("Block size", block);
    let clusters = features.has_bigalloc();
    let cluster = 1024u64.checked_shl(sb.log_cluster_size.get()).unwrap_or(0);
    lines.field(
        if clusters {
            "Cluster size"
        } else {
            "Fragment size"
        },
        cluster,
    );
    if features.has_64bit() {
        lines.field("Group descriptor size", sb.desc_size.get());
    }
    lines.some("Reserved GDT blocks", sb.reserved_gdt_blocks.get());
    lines.field("Blocks per group", sb.blocks_per_group.get());
    let fragments = if clusters {
        "Clusters per group"
    } else {
        "Fragments per group"
    };
    lines.field(fragments, sb.clusters_per_group.get());
    lines.field("Inodes per group", sb.inodes_per_group.get());
    let size = if sb.rev_level.get() == 0 {
        128
    } else {
        sb.inode_size.get()
    };
    let table = u64::from(sb.inodes_per_group.get()) * u64::from(size);
    lines.field(
        "Inode blocks per group",
        table.checked_div(block).unwrap_or(0),
    );
    lines.some("First meta block group", sb.first_meta_bg.get());
    lines.some("RAID stride", sb.raid_stride.get());
    lines.some("RAID stripe width", sb.raid_stripe_width.get());
    if sb.log_groups_per_flex != 0 {
        let flex = 1u64.checked_shl(sb.log_groups_per_flex.into()).unwrap_or(0);
        lines.field("Flex block group size", flex);
    }
}

fn moment(low: u32, high: u8) -> String {
    as_ctime(words::time(low, high))
}

fn times(sb: &RawSuperblock, lines: &mut Lines) {
    if sb.mkfs_time.get() != 0 {
        lines.field(
            "Filesystem created",
            moment(sb.mkfs_time.get(), sb.mkfs_time_hi),
        );
    }
    let mounted = match sb.mtime.get() {
        0 => "n/a".to_owned(),
        time => moment(time, sb.mtime_hi),
    };
    lines.field("Last mount time", mounted);
    lines.field("Last write time", moment(sb.wtime.get(), sb.wtime_hi));
    lines.field("Mount count", sb.mnt_count.get());
    lines.field("Maximum mount count", sb.max_mnt_count.get().cast_signed());
    lines.field("Last checked", moment(sb.lastcheck.get(), sb.lastcheck_hi));
    let interval = sb.checkinterval.get();
    lines.field(
        "Check interval",
        format!("{interval} ({})", interval_text(interval)),
    );
    if interval != 0 {
        let next = i64::from(sb.lastcheck.get()) + i64::from(interval);
        let next = as_ctime(Timestamp::new(next, 0));
        lines.field("Next check after", next);
    }
    let written = sb.kbytes_written.get();
    if written != 0 {
        let rounded = |shift: u32| written.saturating_add(1 << (shift - 1)) >> shift;
        let text = match written.checked_ilog2().unwrap_or(0) {
            0..=12 => format!("{written} kB"),
            13..=22 => format!("{} MB", rounded(10)),
            23..=32 => format!("{} GB", rounded(20)),
            33..=42 => format!("{} TB", rounded(30)),
            _ => format!("{} PB", rounded(40)),
        };
        lines.field("Lifetime writes", text);
    }
}

/// Formats an interval in months, weeks, days and so on, without units of zero.
fn interval_text(secs: u32) -> String {
    let units = [
        (60 * 60 * 24 * 30, "month"),
        (60 * 60 * 24 * 7, "week"),
        (60 * 60 * 24, "day"),
        (60 * 60, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let (mut left, mut parts) = (secs, Vec::new());
    for (unit, name) in units {
        let count = left / unit;
        left %= unit;
        if count > 0 {
            let plural = if count == 1 { "" } else { "s" };
            parts.push(format!("{count} {name}{plural}"));
        }
    }
    if parts.is_empty() {
        "<none>".into()
    } else {
        parts.join(", ")
    }
}

/// Returns the name of a number in an account file of the host.
fn account(file: &str, id: u16) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    });
    found.unwrap_or_else(|| "unknown".into())
}

fn rest(sb: &RawSuperblock, lines: &mut Lines) {
    let features = Features::of(sb);
    let (uid, gid) = (sb.def_resuid.get(), sb.def_resgid.get());
    let user = account("/etc/passwd", uid);
    lines.field("Reserved blocks uid", format!("{uid} (user {user})"));
    let group = account("/etc/group", gid);
    lines.field("Reserved blocks gid", format!("{gid} (group {group})"));
    if sb.rev_level.get() >= 1 {
        lines.field("First inode", sb.first_ino.get());
        lines.tabbed("Inode size", sb.inode_size.get());
        lines.some("Required extra isize", sb.min_extra_isize.get());
        lines.some("Desired extra isize", sb.want_extra_isize.get());
    }
    if sb.journal_uuid != [0; 16] {
        lines.field("Journal UUID", Uuid::from_bytes(sb.journal_uuid));
    }
    lines.some("Journal inode", sb.journal_inum.get());
    if sb.journal_dev.get() != 0 {
        lines.tabbed(
            "Journal device",
            format_args!("0x{:04x}", sb.journal_dev.get()),
        );
    }
    lines.some("First orphan inode", sb.last_orphan.get());
    if features.has_dir_index() || sb.def_hash_version != 0 {
        lines.field("Default directory hash", hash_name(sb));
    }
    let seed = hash_seed(sb);
    if !seed.is_nil() {
        lines.field("Directory Hash Seed", seed);
    }
    if sb.jnl_backup_type != 0 {
        let kind = if sb.jnl_backup_type == 1 {
            "inode blocks"
        } else {
            "type unknown"
        };
        lines.field("Journal backup", kind);
    }
    let backups = sb.backup_bgs.map(|group| group.get());
    if backups != [0; 2] {
        lines
            .0
            .push_str(&format!("{:WIDTH$}", "Backup block groups:"));
        for group in backups.into_iter().filter(|group| *group != 0) {
            lines.0.push_str(&format!("{group} "));
        }
        lines.0.push('\n');
    }
    errors(sb, lines);
    if features.incompat.contains(Incompat::MMP) {
        lines.field("MMP block number", sb.mmp_block.get());
        lines.field("MMP update interval", sb.mmp_interval.get());
    }
    lines.some("User quota inode", sb.usr_quota_inum.get());
    lines.some("Group quota inode", sb.grp_quota_inum.get());
    lines.some("Project quota inode", sb.prj_quota_inum.get());
    if sb.checksum_type != 0 {
        lines.field(
            "Checksum type",
            if sb.checksum_type == 1 {
                "crc32c"
            } else {
                "unknown"
            },
        );
    }
    if features.has_metadata_csum() {
        lines.field("Checksum", format!("0x{:08x}", sb.checksum.get()));
    }
    if features.has_csum_seed() {
        lines.field("Checksum seed", format!("0x{:08x}", sb.checksum_seed.get()));
    }
    match sb.encoding.get() {
        0 => {}
        ext4_format::fold::UTF8_12_1 => lines.field("Character encoding", "utf8-12.1"),
        other => lines.field("Character encoding", format!("unknown ({other})")),
    }
    lines.some("Orphan file inode", sb.orphan_file_inum.get());
}

fn errors(sb: &RawSuperblock, lines: &mut Lines) {
    lines.some("FS Error count", sb.error_count.get());
    for (which, error) in ["First", "Last"].into_iter().zip(recorded_errors(sb)) {
        if error.time == Timestamp::EPOCH {
            continue;
        }
        lines.field(&format!("{which} error time"), as_ctime(error.time));
        lines.field(&format!("{which} error function"), error.function);
        lines.field(&format!("{which} error line #"), error.line);
        lines.some(&format!("{which} error inode #"), error.inode);
        lines.some(&format!("{which} error block #"), error.block);
    }
}

fn block_size(sb: &RawSuperblock) -> u64 {
    sb.block_size().unwrap_or(1024).into()
}

/// Adds the block of multiple mount protection, if the volume has a sound one.
fn protection(device: &dyn BlockDevice, sb: &RawSuperblock, lines: &mut Lines) {
    let size = block_size(sb);
    if !Features::of(sb).incompat.contains(Incompat::MMP) {
        return;
    }
    let Ok(mmp) = MmpBlock::read(device, sb.mmp_block.get(), size) else {
        return;
    };
    lines.0.push_str(&format!(
        "MMP_block:\n    mmp_magic: {:#x}\n    mmp_check_interval: {}\n    mmp_sequence: {:#x}\n    \
         mmp_update_date: {}\n    mmp_update_time: {}\n    mmp_node_name: {}\n    mmp_device_name: {}\n",
        mmp.magic,
        mmp.check_interval,
        mmp.sequence,
        as_ctime(Timestamp::new(mmp.seconds, 0)),
        mmp.seconds,
        show(&mmp.node),
        show(&mmp.device)
    ));
}

fn journal(device: &dyn BlockDevice, sb: &RawSuperblock, lines: &mut Lines) -> Result<()> {
    // The journal's superblock on disk, without replaying the log.
    let inspector = Inspector::open(device, false)?;
    let request = Request::from_line(format!("bmap <{}> 0", sb.journal_inum.get()).as_bytes())?;
    let mut place = None;
    let answered = inspector.answer(&request, &mut |record| {
        let block = record.fields.iter().find(|field| field.0 == "block");
        if let Some((_, Value::Number(block))) = block {
            place = Some(*block);
        }
        Ok(())
    });
    answered.map_err(|e| anyhow!("{e}"))?;
    let size = block_size(sb);
    let at = place.and_then(|block| block.checked_mul(size));
    let mut bytes = vec![0; usize::try_from(size)?];
    device.read_at(at.context("the journal has no first block")?, &mut bytes)?;
    let journal = jbd2::Superblock::parse(&bytes)?;
    lines.journal_sizes(&journal, size);
    lines.journal_state(&journal, &bytes);
    Ok(())
}

/// Adds the lines about the journal of a device that is nothing else.
fn journal_device(device: &dyn BlockDevice, sb: &RawSuperblock, lines: &mut Lines) -> Result<()> {
    let size = u64::from(sb.block_size().unwrap_or(1024));
    // The superblock of the device is in front of it, in the second KiB.
    let first = if size == 1024 { 2 } else { 1 };
    let mut bytes = vec![0; usize::try_from(size)?];
    device.read_at(first * size, &mut bytes)?;
    let journal = jbd2::Superblock::parse(&bytes)?;
    lines.journal_sizes(&journal, size);
    lines.field("Journal first block", journal.first);
    lines.journal_state(&journal, &bytes);
    let (at, len) = USERS;
    let users = bytes.get(at..).unwrap_or_default().chunks_exact(len);
    let users = users.take(journal.nr_users as usize);
    for (n, user) in users.enumerate() {
        let user = Uuid::from_slice(user)?;
        if n == 0 {
            lines.field("Journal users", user);
        } else {
            lines.field_of_list(user);
        }
    }
    Ok(())
}

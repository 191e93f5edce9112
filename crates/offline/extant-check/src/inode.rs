//! Inode tables, read in the order of the device, and the inodes in them.

use crate::directories::{Builder, Directories};
use crate::inode_table::InodeKind;
use crate::mapping::Mapped;
use crate::prefetch::Ahead;
use crate::report::{FindingPlace, Rule};
use crate::state::Check;
use crate::subject::Subject;
use crate::{space, work, xattrs};
use ext4_format::inode::inline::Inline;
use ext4_format::inode::{self, encryption, flags, reserved};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, map_walk};
use std::sync::atomic::Ordering;

/// Bytes of inode tables read at once.
const PIECE: usize = 512 << 10;
/// Number of pieces to announce to a slow device.
const AHEAD: usize = 16;

/// Blocks of one group's inode table.
struct Piece {
    group: GroupNr,
    first_index: u32,
    inodes: u32,
    start: BlockNr,
}

/// Checks all inodes, and returns the directories among them.
pub(crate) fn check_tables(check: &Check<'_>) -> Directories {
    let pieces = pieces(check);
    let inodes = pieces.iter().map(|piece| u64::from(piece.inodes));
    check.steps.begin(1, inodes.sum());
    let per_block = check.volume.geo.inodes_per_block();
    let ahead = Ahead::new(AHEAD, |i| {
        pieces.get(i).map(|piece: &Piece| crate::volume::Piece {
            first: piece.start,
            blocks: piece.inodes.div_ceil(per_block),
        })
    });
    let builders = work::each(
        check.threads,
        pieces.len(),
        || (Vec::new(), Builder::default()),
        |(buf, builder), i| {
            if let Some(piece) = pieces.get(i) {
                ahead.tell(&check.volume, i);
                check_piece(check, piece, buf, builder);
                check.steps.add(piece.inodes.into());
                // All pieces have been announced.
                let last = i + AHEAD >= pieces.len();
                builder.read_early(check, AHEAD, last);
            }
        },
    );
    Directories::of(builders.into_iter().map(|(_, builder)| builder))
}

/// Returns the parts of all tables that may hold inodes in use, in the order of the device.
fn pieces(check: &Check<'_>) -> Vec<Piece> {
    let volume = &check.volume;
    let geo = &volume.geo;
    let per_block = geo.inodes_per_block();
    let most = (PIECE / volume.block_size()).max(1) as u32 * per_block;
    let mut pieces = Vec::new();
    for (group, nr) in check.groups.iter().zip((0..).map(GroupNr)) {
        let inodes = group.inodes(volume);
        let mut first_index = 0;
        while first_index < inodes {
            let here = (inodes - first_index).min(most);
            pieces.push(Piece {
                group: nr,
                first_index,
                inodes: here,
                start: BlockNr(group.desc.inode_table.0 + u64::from(first_index / per_block)),
            });
            first_index += here;
        }
    }
    pieces.sort_unstable_by_key(|piece| piece.start);
    pieces
}

fn check_piece(check: &Check<'_>, piece: &Piece, buf: &mut Vec<u8>, builder: &mut Builder) {
    let volume = &check.volume;
    let geo = &volume.geo;
    let blocks = piece.inodes.div_ceil(geo.inodes_per_block()) as usize;
    buf.resize(blocks * volume.block_size(), 0);
    if volume.read_into(piece.start, buf).is_err() {
        // A block that cannot be read does not affect the others.
        for (block, bytes) in (piece.start.0..).zip(buf.chunks_mut(volume.block_size())) {
            let place = FindingPlace::group(piece.group);
            volume.read_or_tell(BlockNr(block), bytes, place, &check.findings);
        }
    }
    let records = buf.chunks_exact(geo.inode_size.into());
    let indexes = piece.first_index..piece.first_index + piece.inodes;
    for (raw, index) in records.zip(indexes) {
        let ino = geo.inode_nr(piece.group, index);
        if ino.0 < geo.first_ino || raw.iter().any(|&b| b != 0) {
            check_record(check, ino, raw, builder);
        }
    }
}

fn check_record(check: &Check<'_>, ino: InodeNr, raw: &[u8], builder: &mut Builder) {
    let geo = &check.volume.geo;
    let (findings, place) = (&check.findings, FindingPlace::inode(ino));
    let reserved = ino.0 < geo.first_ino && ino != InodeNr::ROOT;
    if blockdev::is_zero(raw) {
        if ino == InodeNr::ROOT {
            findings.add(Rule::Root, place, || "there is none".into());
        }
        return;
    }
    let checksum = inode::verify_checksum(raw, geo, ino);
    let core = match inode::decode_verified(raw, geo, ino) {
        Ok(core) => core,
        Err(e) => {
            findings.add_error(Rule::InodeExtra, place, &e);
            check.inodes.insert(ino, InodeKind::Broken, 0);
            return;
        }
    };
    if let Err(e) = checksum {
        findings.add_error(Rule::InodeChecksum, place, &e);
    }
    let subject = Subject { ino, raw, core };
    check_deletion(check, &subject, reserved);
    if reserved {
        check_reserved(check, &subject);
    } else if core.links == 0 {
        if ino == InodeNr::ROOT {
            findings.add(Rule::Root, place, || "it has no links".into());
        }
    } else {
        check_used(check, &subject, builder);
    }
}

/// Checks that the time of deletion agrees with the link count. A small time is the next inode number of the orphan
/// list.
fn check_deletion(check: &Check<'_>, subject: &Subject<'_>, reserved: bool) {
    let core = &subject.core;
    let tell = |what: String| {
        check
            .findings
            .add(Rule::InodeDeleted, subject.place(), || what);
    };
    let (sb, geo) = (&check.volume.sb, &check.volume.geo);
    if core.dtime != 0 && core.dtime <= geo.inodes_count && sb.links_orphans_by_dtime() {
        tell(format!(
            "inode {} is next in a list of orphans that does not hold this one",
            core.dtime
        ));
    } else if reserved {
    } else if core.links == 0 && core.dtime == 0 && core.mode != 0 {
        tell("no links, and no time of deletion".into());
    } else if core.links != 0 && core.dtime != 0 {
        tell(format!("{} links, and a time of deletion", core.links));
    }
}

const FOLDED: &str = "case folded and no directory";
const VALUE: &str = "the value of an attribute and no regular file";

/// Checks a reserved inode, such as the journal or a quota file, which are without names.
fn check_reserved(check: &Check<'_>, subject: &Subject<'_>) {
    let Subject { ino, core, raw } = subject;
    let (sb, place) = (&check.volume.sb, subject.place());
    let fits = reserved::check(raw, sb, *ino);
    // e2fsck looks at these flags of any reserved inode.
    let folded = subject.has(flags::CASEFOLD);
    let value = subject.has(flags::EA_INODE) && core.file_type() != Some(FileType::Regular);
    for (_, what) in [(folded, FOLDED), (value, VALUE)].iter().filter(|f| f.0) {
        check
            .findings
            .add(Rule::InodeFlags, place, || (*what).into());
    }
    if fits.is_ok() && reserved::is_unused(raw, core, *ino) {
        return;
    }
    check.inodes.insert(*ino, InodeKind::Reserved, 0);
    if let Err(e) = fits {
        check.findings.add_error(Rule::InodeReserved, place, &e);
        return;
    }
    if *ino == InodeNr::RESIZE && check.volume.geo.features.has_resize_inode() {
        check_large(check, subject);
        crate::special_inodes::check_resize(check, subject);
        return;
    }
    match core.file_type() {
        // A mapping and no mode.
        None if *ino == reserved::BAD_BLOCKS => drop(space::map(check, subject, false)),
        None => space::check_space(check, subject, &Mapped::default(), 0),
        // A reserved inode that the superblock could name as a file, and does not, has no blocks.
        Some(_) if reserved::can_be_named(*ino) && !reserved::is_named(sb, *ino) => {}
        Some(file_type) => {
            check_flags(check, subject, file_type);
            let attributes = xattrs::check_inode(check, subject);
            let mapped = match file_type {
                FileType::Regular if !subject.has(flags::INLINE_DATA) => {
                    space::map(check, subject, false)
                }
                _ => Mapped::default(),
            };
            check_accounted(check, subject, &mapped, &attributes);
            if file_type == FileType::Regular {
                check_regular(check, subject, &mapped, attributes.inline_data);
            }
        }
    }
}

/// Checks an inode that should have a name.
fn check_used(check: &Check<'_>, subject: &Subject<'_>, builder: &mut Builder) {
    let Subject { ino, core, .. } = subject;
    let (findings, place) = (&check.findings, subject.place());
    let geo = &check.volume.geo;
    let links = core.links as u16;
    let Some(file_type) = core.file_type() else {
        check.inodes.insert(*ino, InodeKind::Broken, links);
        findings.add(Rule::InodeMode, place, || format!("mode {:o}", core.mode));
        return;
    };
    if *ino == InodeNr::ROOT && file_type != FileType::Directory {
        findings.add(Rule::Root, place, || format!("mode {:o}", core.mode));
    }
    let is_value = subject.has(flags::EA_INODE) && file_type == FileType::Regular;
    let hidden = geo.features.has_orphan_file() && ino.0 == geo.orphan_file_ino
        || check.volume.sb.prj_quota_inum.get() == ino.0 && geo.features.has_project();
    let kind = match (is_value, hidden) {
        (_, true) => InodeKind::Reserved,
        (true, _) => InodeKind::Value,
        _ => InodeKind::File(file_type),
    };
    check.inodes.insert(*ino, kind, links);
    check_flags(check, subject, file_type);
    if inode::hurd_translator(subject.raw, &check.volume.sb) != 0 {
        check.has_translators.store(true, Ordering::Relaxed);
    }
    let fragment = inode::fragment(subject.raw);
    if fragment != 0 {
        findings.add(Rule::InodeFlags, place, || {
            format!("address of a fragment {fragment:#x}, which must be 0")
        });
    }
    let unused = inode::unused_halves(subject.raw, geo);
    if unused != 0 {
        findings.add(Rule::InodeFlags, place, || {
            format!("high halves of its blocks and of its attributes' block {unused:#x}, which must be 0")
        });
    }
    if inode::unused_size_half(subject.raw, geo) != 0 {
        tell_size(check, subject, || "its high half must be 0".into());
    }
    let attributes = xattrs::check_inode(check, subject);
    let mapped = match file_type {
        _ if subject.has(flags::INLINE_DATA) => Mapped::default(),
        FileType::Directory | FileType::Regular => {
            space::map(check, subject, file_type == FileType::Directory)
        }
        FileType::Symlink if is_slow(subject, check, attributes.blocks) => {
            space::map(check, subject, false)
        }
        _ => Mapped::default(),
    };
    check_accounted(check, subject, &mapped, &attributes);
    check.quota.add(subject, &check.volume, attributes.values);
    match file_type {
        FileType::Directory => builder.add(check, subject, &mapped, attributes.inline_data),
        FileType::Regular => check_regular(check, subject, &mapped, attributes.inline_data),
        FileType::Symlink => check_symlink(check, subject, &mapped, attributes.inline_data),
        _ => check_special_file(check, subject),
    }
}

/// Returns whether the target of a symbolic link is in a block, not in the inode.
fn is_slow(subject: &Subject<'_>, check: &Check<'_>, attribute_blocks: u64) -> bool {
    let geo = &check.volume.geo;
    let own = attribute_blocks * check.volume.geo.sectors_per_cluster();
    inode::sectors(subject.raw, geo) > own || subject.has(flags::EXTENTS)
}

fn check_flags(check: &Check<'_>, subject: &Subject<'_>, file_type: FileType) {
    let features = &check.volume.geo.features;
    let has = |flag| subject.has(flag);
    let mapped = matches!(
        file_type,
        FileType::Regular | FileType::Directory | FileType::Symlink
    );
    let broken = [
        (
            has(flags::EXTENTS) && !features.has_extents(),
            "extents without the feature",
        ),
        (
            has(flags::EXTENTS) && !mapped,
            "extents of what has no blocks",
        ),
        (
            has(flags::INLINE_DATA) && !features.has_inline_data(),
            "inline data without the feature",
        ),
        (
            has(flags::INLINE_DATA) && has(flags::EXTENTS),
            "inline data and extents",
        ),
        (
            has(flags::INLINE_DATA) && !mapped,
            "inline data of what has no data",
        ),
        (
            has(flags::INDEX) && file_type != FileType::Directory,
            "an index of no directory",
        ),
        (
            has(flags::INDEX) && !features.has_dir_index(),
            "an index without the feature",
        ),
        (has(flags::IMAGIC), "the flag of AFS"),
        (
            has(flags::EA_INODE) && !features.has_ea_inode(),
            "the value of an attribute without the feature",
        ),
        (
            has(flags::ENCRYPT) && !features.has_encrypt(),
            "encrypted without the feature",
        ),
        (
            has(flags::CASEFOLD) && !features.has_casefold(),
            "case folded without the feature",
        ),
        (
            has(flags::CASEFOLD) && file_type != FileType::Directory,
            FOLDED,
        ),
        (
            has(flags::EA_INODE) && file_type != FileType::Regular,
            VALUE,
        ),
        (
            !mapped && subject.core.flags & (flags::IMMUTABLE | flags::APPEND) != 0,
            "immutable or append-only, of what has no data",
        ),
    ];
    for (_, what) in broken.into_iter().filter(|(broken, _)| *broken) {
        check
            .findings
            .add(Rule::InodeFlags, subject.place(), || what.into());
    }
}

/// Compares the count of blocks with those of the data and of the attributes.
fn check_accounted(
    check: &Check<'_>,
    subject: &Subject<'_>,
    mapped: &Mapped,
    attributes: &xattrs::Attributes,
) {
    if !attributes.damaged {
        space::check_space(check, subject, mapped, attributes.blocks);
    }
}

fn tell_size(check: &Check<'_>, subject: &Subject<'_>, why: impl FnOnce() -> String) {
    let size = subject.core.size;
    check.findings.add(Rule::InodeSize, subject.place(), || {
        format!("{size} bytes: {}", why())
    });
}

fn check_regular(check: &Check<'_>, subject: &Subject<'_>, mapped: &Mapped, inline: Option<usize>) {
    let geo = &check.volume.geo;
    let size = subject.core.size;
    check_large(check, subject);
    let is_too_large = size > geo.max_addressed_size(subject.has(flags::EXTENTS));
    if subject.has(flags::INLINE_DATA) && !is_too_large {
        check_inline(check, subject, inline);
        return;
    }
    if mapped.damaged {
        return;
    }
    let block = u64::from(geo.block_size);
    let last = mapped.written_end.saturating_sub(1);
    if mapped.written_end > 0 && size < last * block && !subject.has(flags::VERITY) {
        tell_size(check, subject, || format!("block {last} was written"));
    } else if is_too_large {
        tell_size(check, subject, || "no mapping reaches so far".into());
    }
}

/// Checks that a volume with a file of 2 GiB or more has the feature for it.
fn check_large(check: &Check<'_>, subject: &Subject<'_>) {
    let size = subject.core.size;
    if size > i32::MAX as u64 && !check.volume.geo.features.has_large_file() {
        check.findings.add(Rule::Features, subject.place(), || {
            format!("{size} bytes, without large_file")
        });
    }
}

/// Checks the data in the inode: first the bytes in place of the mapping, then the value of an attribute.
fn check_inline(check: &Check<'_>, subject: &Subject<'_>, inline: Option<usize>) {
    let Some(more) = inline else {
        check.findings.add(Rule::InlineData, subject.place(), || {
            "no attribute system.data".into()
        });
        return;
    };
    let room = (inode::I_BLOCK_SIZE + more) as u64;
    // A file may end in a hole: mke2fs puts files there that are nothing else.
    let holds_target = subject.core.file_type() == Some(FileType::Symlink);
    if holds_target && subject.core.size > room {
        tell_size(check, subject, || format!("room for {room} in the inode"));
    }
}

fn check_symlink(check: &Check<'_>, subject: &Subject<'_>, mapped: &Mapped, inline: Option<usize>) {
    let volume = &check.volume;
    let (findings, place) = (&check.findings, subject.place());
    let size = subject.core.size;
    if subject.has(flags::INLINE_DATA) {
        check_inline(check, subject, inline);
        check_inline_target(check, subject);
        return;
    }
    let mut block = Vec::new();
    let target = if mapped.data == 0 {
        if subject.has(flags::EXTENTS) {
            findings.add(Rule::Symlink, place, || "extents, and no block".into());
            return;
        }
        inode::i_block(subject.raw).map_or(&[][..], |b| &b[..])
    } else {
        if mapped.damaged {
            return;
        }
        if mapped.end != 1 || mapped.data != 1 {
            findings.add(Rule::Symlink, place, || format!("{} blocks", mapped.data));
            return;
        }
        let root = inode::i_block(subject.raw).ok();
        let first = |root: &[u8; inode::I_BLOCK_SIZE]| {
            map_walk::first_block(&check.volume.geo, subject.core.flags, root)
        };
        let Some(at) = root.and_then(first) else {
            return;
        };
        block.resize(volume.block_size(), 0);
        volume.read_or_tell(at, &mut block, place, findings);
        &block[..]
    };
    if subject.has(flags::ENCRYPT) {
        if encryption::target_size(target, target.len()) != Some(size) {
            findings.add(Rule::Symlink, place, || {
                format!("{size} bytes, and an encrypted target of another length")
            });
        }
        return;
    }
    let end = target.iter().position(|&b| b == 0).unwrap_or(target.len());
    if end as u64 != size || size == 0 || end == target.len() {
        findings.add(Rule::Symlink, place, || {
            format!("{size} bytes, and a target of {end}")
        });
    }
}

/// Checks that the target of a link in its inode fills the data there.
fn check_inline_target(check: &Check<'_>, subject: &Subject<'_>) {
    let size = subject.core.size;
    let Ok(inline) = Inline::parse(subject.raw, &check.volume.geo) else {
        return;
    };
    let bytes = inline.bytes();
    if bytes.len() as u64 != size || !subject.has(flags::ENCRYPT) && bytes.contains(&0) {
        check.findings.add(Rule::Symlink, subject.place(), || {
            format!("{size} bytes, and {} in its inode", bytes.len())
        });
    }
}

/// Checks that a device, a pipe or a socket has no data.
fn check_special_file(check: &Check<'_>, subject: &Subject<'_>) {
    if subject.core.size != 0 {
        tell_size(check, subject, || "it can have none".into());
    }
}

//! Special inodes: reserved descriptors, orphans.

use crate::mapping::{Mapped, Run, Walker};
use crate::report::{FindingPlace, Rule};
use crate::space;
use crate::state::Check;
use crate::subject::Subject;
use ext4_format::features::RoCompat;
use ext4_format::inode::{self, flags};
use ext4_format::{BlockNr, FileType, FormatError, GroupNr, InodeNr, indirect, orphan_file};

/// Checks the orphan list and the orphan file named by the superblock.
pub(crate) fn check(check: &Check<'_>) {
    check_orphan_list(check);
    check_orphan_file(check);
    check_named(check);
    check_resize_feature(check);
    check_mmp(check);
}

/// Checks the block of `mmp`. A volume that is in use is not a fault.
fn check_mmp(check: &Check<'_>) {
    let geo = &check.volume.geo;
    let block = BlockNr(check.volume.sb.mmp_block.get());
    if !geo.features.has_mmp() || !geo.is_valid_data_range(block, 1) {
        return;
    }
    let place = FindingPlace::default().block(block);
    let mut bytes = vec![0; check.volume.block_size()];
    let seed = geo.features.has_metadata_csum().then_some(geo.csum_seed);
    if check
        .volume
        .read_or_tell(block, &mut bytes, place, &check.findings)
        && let Err(e) = ext4_format::mmp::state(&bytes, seed)
    {
        check.findings.add_error(Rule::Mmp, place, &e);
    }
}

/// Checks that each file named in the superblock belongs to a feature of the volume. For e2fsck such an inode is in use if its record
/// is in the part of the table that may be in use.
fn check_named(check: &Check<'_>) {
    for (name, ino) in ext4_format::inode::reserved::named_in_vain(&check.volume.sb) {
        let Some((group, index)) = check.volume.geo.group_of_inode(ino) else {
            continue;
        };
        let group = check.groups.get(group.0 as usize);
        if group.is_some_and(|group| index < group.inodes(&check.volume)) {
            check
                .findings
                .add(Rule::SuperblockValue, FindingPlace::inode(ino), || {
                    format!("it is named as {name}, without the feature")
                });
        }
    }
}

/// Checks the inode of reserved descriptors. It maps blocks at the groups' starts, so it claims only the block of its
/// map.
pub(crate) fn check_resize(check: &Check<'_>, subject: &Subject<'_>) {
    let volume = &check.volume;
    let geo = &volume.geo;
    let (findings, place) = (&check.findings, subject.place());
    let tell = |what: &str| findings.add(Rule::ResizeInode, place, || what.into());
    let map = match resize_map(check, subject) {
        Ok(map) => map,
        Err(what) => return tell(what),
    };
    let cluster = geo.cluster_of(map);
    check.claims.claim(cluster, cluster + 1, place, findings);
    if subject.core.size > geo.max_addressed_size(false) {
        tell("no mapping reaches to its size");
    }
    if inode::file_acl(subject.raw, geo) != BlockNr(0) {
        tell("it has a block of attributes");
    }
    if geo.cluster_ratio > 1 {
        // The places of descriptor copies on volumes with clusters are not checked.
        return;
    }
    let mut bytes = vec![0; volume.block_size()];
    if !volume.read_or_tell(map, &mut bytes, place, findings) {
        return;
    }
    let backups: Vec<GroupNr> = (1..geo.groups)
        .map(GroupNr)
        .filter(|&g| geo.has_super(g))
        .collect();
    let per = indirect::per_block(geo.block_size);
    let first = geo.gdt_block_count();
    let super_block = geo.first_data_block;
    let mut wanted = vec![None; per as usize];
    for i in 0..u32::from(geo.reserved_gdt_blocks) {
        let block = super_block + 1 + u64::from(first) + u64::from(i);
        if let Some(slot) = wanted.get_mut(((first + i) % per) as usize) {
            *slot = Some(BlockNr(block));
        }
    }
    if backups.len() > per as usize {
        return tell("more groups have backups than a reserved block can lead to");
    }
    let mut below = vec![0; volume.block_size()];
    for (slot, wanted) in (0..per).zip(wanted) {
        let Some(block) = wanted else {
            match indirect::get(&bytes, slot, geo.blocks_count) {
                Ok(None) => continue,
                _ => return tell("its map leads to other blocks than the reserved ones"),
            }
        };
        if indirect::get(&bytes, slot, geo.blocks_count) != Ok(wanted) {
            return tell("its map does not lead to the reserved blocks");
        }
        volume.read_or_tell(block, &mut below, place, findings);
        let within = block.0 - super_block;
        let others = below.get(4 * backups.len()..).unwrap_or(&[]);
        if others.iter().any(|&b| b != 0) {
            return tell("a reserved block leads to other blocks than its backups");
        }
        for (i, &group) in (0..per).zip(&backups) {
            let wanted = BlockNr(geo.group_first_block(group).0 + within);
            if indirect::get(&below, i, geo.blocks_count) != Ok(Some(wanted)) {
                return tell("a reserved block does not lead to its backups");
            }
        }
    }
    let reserved = u64::from(geo.reserved_gdt_blocks);
    let mapped = Mapped {
        clusters: reserved * backups.len() as u64,
        nodes: 1 + reserved,
        ..Mapped::default()
    };
    space::check_space(check, subject, &mapped, 0);
}

/// Returns the doubly-indirect block, the only block that the inode may map; or the damage.
fn resize_map(check: &Check<'_>, subject: &Subject<'_>) -> Result<BlockNr, &'static str> {
    let geo = &check.volume.geo;
    let Ok(root) = inode::i_block(subject.raw) else {
        return Err("its record is short");
    };
    if subject.core.links == 0 || subject.core.file_type() != Some(FileType::Regular) {
        return Err("it is not a regular file");
    }
    if subject.has(flags::EXTENTS) {
        return Err("it is mapped by extents");
    }
    if subject.has(flags::INDEX) {
        return Err("it has the index of a directory");
    }
    let double = indirect::DIRECT + 1;
    let slots = (0..indirect::SLOTS as u32).filter(|&slot| slot != double);
    if slots
        .into_iter()
        .any(|slot| indirect::get(root, slot, geo.blocks_count) != Ok(None))
    {
        return Err("it maps other blocks than those in two levels");
    }
    match indirect::get(root, double, geo.blocks_count) {
        Ok(Some(map)) => Ok(map),
        _ => Err("it maps nothing"),
    }
}

/// Checks that the inode of reserved descriptors exists if the volume has the feature.
fn check_resize_feature(check: &Check<'_>) {
    let geo = &check.volume.geo;
    if geo.features.has_resize_inode() && check.inodes.get(InodeNr::RESIZE).is_none() {
        let place = FindingPlace::inode(InodeNr::RESIZE);
        check
            .findings
            .add(Rule::ResizeInode, place, || "there is none".into());
    }
}

/// Reports a non-empty orphan list. Waiting orphans are not damage, but they are found as inodes without a name, too.
fn check_orphan_list(check: &Check<'_>) {
    let first = check.volume.geo.last_orphan;
    if first != 0 {
        let place = FindingPlace::inode(InodeNr(first));
        check.findings.add(Rule::Orphans, place, || {
            "the list of orphans is not empty".into()
        });
    }
}

fn check_orphan_file(check: &Check<'_>) {
    let geo = &check.volume.geo;
    if !geo.features.has_orphan_file() {
        return;
    }
    let ino = InodeNr(geo.orphan_file_ino);
    let place = FindingPlace::inode(ino);
    let tell = |what: String| check.findings.add(Rule::OrphanFile, place, || what);
    let Some(raw) = crate::state::read_record(check, ino) else {
        return tell("its inode cannot be".into());
    };
    let Ok(core) = inode::decode_verified(&raw, geo, ino) else {
        return tell("its inode is damaged".into());
    };
    if core.links == 0 || core.file_type() != Some(FileType::Regular) {
        return tell("it is not a regular file".into());
    }
    let seed = check.volume.seed(ino, core.generation);
    let Ok(root) = inode::i_block(&raw) else {
        return;
    };
    let ignored = crate::report::Findings::new(0);
    let walker = Walker::new(&check.volume, &ignored, None, ino, seed).with_runs(true);
    let mapped = walker.walk(core.flags, root);
    let block = u64::from(geo.block_size);
    if mapped.damaged || mapped.data != mapped.end || mapped.end * block != core.size {
        return tell(format!("{} bytes, and {} blocks", core.size, mapped.data));
    }
    let mut sound = true;
    for run in &mapped.runs {
        sound &= check_orphan_blocks(check, place, seed, run);
    }
    // While a volume is mounted, the mark is set.
    if sound
        && geo.features.ro_compat.contains(RoCompat::ORPHAN_PRESENT)
        && !geo.features.has_needs_recovery()
    {
        check.findings.add(Rule::OrphanPresent, place, String::new);
    }
}

/// Checks a run of the orphan file. Returns whether its blocks are sound and empty.
fn check_orphan_blocks(
    check: &Check<'_>,
    place: FindingPlace,
    seed: Option<u32>,
    run: &Run,
) -> bool {
    let mut sound = true;
    let mut bytes = vec![0; check.volume.block_size()];
    for i in 0..run.len {
        let at = BlockNr(run.physical.0 + u64::from(i));
        let place = place.logical((run.logical + i).into());
        if !check
            .volume
            .read_or_tell(at, &mut bytes, place, &check.findings)
        {
            sound = false;
            continue;
        }
        let place = place.block(at);
        let verified: Result<(), FormatError> = orphan_file::verify(&bytes, seed, at);
        if let Err(e) = verified {
            check.findings.add_error(Rule::OrphanFile, place, &e);
            sound = false;
            continue;
        }
        for (_, ino) in orphan_file::orphans(&bytes) {
            sound = false;
            check.findings.add(Rule::Orphans, place, || {
                format!("inode {ino} waits for its end")
            });
        }
    }
    sound
}

//! The superblock: features, sizes, backups.

use crate::error::Error;
use crate::report::{FindingPlace, Findings, Rule};
use crate::volume::Volume;
use ext4_format::features::{Compat, Features, Incompat, RoCompat};
use ext4_format::fold::UTF8_12_1;
use ext4_format::superblock::{RawSuperblock, STATE_ERROR};
use ext4_format::{BlockNr, GroupNr};

// The features whose structures are checked here. A bit that is new in ext4-format is among them unless it is subtracted.
const _: () = assert!(
    Compat::all().bits().count_ones() == 12
        && Incompat::all().bits().count_ones() == 16
        && RoCompat::all().bits().count_ones() == 17,
    "a new feature: subtract it below if its structures are not checked, then count it here"
);
const CHECKED: Features = Features {
    compat: Compat::all(),
    incompat: Incompat::all(),
    ro_compat: RoCompat::all(),
}
.difference(Features {
    compat: Compat::LAZY_BG.union(Compat::EXCLUDE_BITMAP),
    incompat: Incompat::COMPRESSION
        .union(Incompat::JOURNAL_DEV)
        .union(Incompat::DIRDATA),
    ro_compat: RoCompat::BTREE_DIR
        .union(RoCompat::HAS_SNAPSHOT)
        .union(RoCompat::REPLICA),
});

/// Fails for features with structures that are not checked here.
pub(crate) fn refuse_unknown(volume: &Volume<'_>) -> Result<(), Error> {
    match volume.geo.features.difference(CHECKED).names() {
        names if names.is_empty() => Ok(()),
        names => Err(Error::Features(names.join(", "))),
    }
}

pub(crate) fn check(volume: &Volume<'_>, findings: &Findings) {
    let (sb, geo, place) = (&volume.sb, &volume.geo, FindingPlace::default());
    let features = &geo.features;
    let bytes = u128::from(geo.blocks_count) * u128::from(geo.block_size);
    if bytes > volume.device_len().into() {
        findings.add(Rule::VolumeSize, place, || {
            format!("{bytes} bytes, on a device of {}", volume.device_len())
        });
    }
    let exclusive = [
        (
            features.has_metadata_csum() && features.has_gdt_csum(),
            "metadata_csum and uninit_bg",
        ),
        (
            features.has_resize_inode() && features.has_meta_bg(),
            "resize_inode and meta_bg",
        ),
        (
            features.has_csum_seed() && !features.has_metadata_csum(),
            "metadata_csum_seed without metadata_csum",
        ),
        (
            features.has_needs_recovery() && !features.has_journal(),
            "needs_recovery without has_journal",
        ),
        (
            features.ro_compat.contains(RoCompat::ORPHAN_PRESENT) && !features.has_orphan_file(),
            "orphan_present without orphan_file",
        ),
    ];
    for (_, what) in exclusive.into_iter().filter(|(wrong, _)| *wrong) {
        findings.add(Rule::Features, place, || what.into());
    }
    if !features.has_resize_inode()
        && sb.reserved_gdt_blocks.get() != 0
        && !features.has_sparse_super2()
    {
        findings.add(Rule::SuperblockValue, place, || {
            "reserved descriptor blocks without resize_inode".into()
        });
    }
    if geo.reserved_blocks > geo.blocks_count / 2 {
        findings.add(Rule::SuperblockValue, place, || {
            format!(
                "{} reserved blocks of {}",
                geo.reserved_blocks, geo.blocks_count
            )
        });
    }
    if !features.has_bigalloc() && sb.log_cluster_size.get() != sb.log_block_size.get() {
        findings.add(Rule::SuperblockValue, place, || {
            "clusters larger than blocks without bigalloc".into()
        });
    }
    check_values(volume, findings);
    let has_features = *features != Features::default();
    if sb.rev_level.get() > 1 || sb.rev_level.get() == 0 && has_features {
        findings.add(Rule::SuperblockValue, place, || {
            format!("revision {}", sb.rev_level.get())
        });
    }
    if sb.state.get() & STATE_ERROR != 0 {
        findings.add(Rule::ErrorState, place, || {
            format!("{} of them in the superblock", sb.error_count.get())
        });
    }
    check_backups(volume, findings);
}

/// Values that mean something with a feature alone, and that e2fsck looks at in any case.
fn check_values(volume: &Volume<'_>, findings: &Findings) {
    let (sb, geo) = (&volume.sb, &volume.geo);
    let features = &geo.features;
    let desc_size = sb.desc_size.get();
    let mmp = BlockNr(sb.mmp_block.get());
    let wrong = [
        (
            desc_size != 0 && (!desc_size.is_power_of_two() || desc_size > 1024),
            "size of descriptors that is not a power of two",
        ),
        (sb.log_groups_per_flex > 31, "groups per flex group"),
        (
            features.has_mmp() && !geo.is_valid_data_range(mmp, 1),
            "block of mmp outside the volume",
        ),
        (
            features.has_casefold() && sb.encoding.get() != UTF8_12_1,
            "unknown encoding of names",
        ),
        (
            features.has_bigalloc() && !features.has_extents(),
            "bigalloc without extents",
        ),
        (
            !geo.is_extra_isize(sb.min_extra_isize.get()),
            "required length of the extra fields of inodes",
        ),
        (
            !geo.is_extra_isize(sb.want_extra_isize.get()),
            "wanted length of the extra fields of inodes",
        ),
    ];
    for (_, what) in wrong.into_iter().filter(|(wrong, _)| *wrong) {
        findings.add(Rule::SuperblockValue, FindingPlace::default(), || {
            what.into()
        });
    }
}

/// Checks that each backup belongs to this volume and has its shape; its counts may be old.
fn check_backups(volume: &Volume<'_>, findings: &Findings) {
    let geo = &volume.geo;
    let mut bytes = vec![0; volume.block_size()];
    for group in (1..geo.groups).map(GroupNr).filter(|&g| geo.has_super(g)) {
        let block = geo.group_first_block(group);
        let place = FindingPlace::group(group).block(block);
        if !volume.read_or_tell(block, &mut bytes, FindingPlace::group(group), findings) {
            continue;
        }
        match RawSuperblock::parse(&bytes) {
            Err(e) => findings.add_error(Rule::Backup, place, &e),
            Ok(sb) => {
                let shape = |sb: &RawSuperblock| {
                    (
                        sb.uuid,
                        sb.blocks_count(),
                        sb.inodes_count.get(),
                        sb.log_block_size.get(),
                        sb.inode_size.get(),
                    )
                };
                if shape(&sb) != shape(&volume.sb) {
                    findings.add(Rule::Backup, place, || {
                        "UUID, counts or sizes differ from those of the primary superblock".into()
                    });
                }
            }
        }
    }
}

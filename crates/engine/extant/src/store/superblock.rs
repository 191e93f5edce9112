//! Reading the superblock when a volume is opened: the known features, and the places of backups.

use crate::base::error::{Error, Result};
use crate::store::Store;
use blockdev::BlockDevice;
use ext4_format::features::{Incompat, RoCompat};
use ext4_format::fold::UTF8_12_1;
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{FormatError, Where};

/// Incompatible features that can be read; [`check`] reports the ones that cannot be written.
const INCOMPAT: Incompat = Incompat::FILETYPE
    .union(Incompat::NEEDS_RECOVERY)
    .union(Incompat::META_BG)
    .union(Incompat::EXTENT)
    .union(Incompat::SIXTY_FOUR_BIT)
    .union(Incompat::FLEX_BG)
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGE_DIR)
    .union(Incompat::EA_INODE)
    .union(Incompat::MMP)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD)
    .union(Incompat::INLINE_DATA);

/// Read-only-compatible features that can be written.
const RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .union(RoCompat::LARGE_FILE)
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::GDT_CSUM)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::EXTRA_ISIZE)
    .union(RoCompat::METADATA_CSUM)
    .union(RoCompat::PROJECT)
    .union(RoCompat::ORPHAN_PRESENT);

/// A superblock that was found, and the reason why the volume may only be read, if there is one.
pub(crate) struct FoundSuperblock {
    pub raw: RawSuperblock,
    pub geometry: Geometry,
    pub read_only: Option<String>,
    /// The superblock is a backup: the primary must not be used.
    pub backup: bool,
}

/// Finds the superblock: the primary, or a backup for reading.
pub(crate) fn find(device: &dyn BlockDevice) -> Result<FoundSuperblock> {
    let primary = read_at(device, SUPERBLOCK_OFFSET);
    let primary_error = match primary {
        Ok(raw) => match check(device, raw) {
            Ok(found) => return Ok(found),
            // A backup does not overrule a clear statement of the primary.
            Err(e @ Error::Format(FormatError::Incompatible(_))) => return Err(e),
            Err(e @ Error::Invalid(_)) => return Err(e),
            Err(e) => e,
        },
        // The backups describe the volume before or after the interrupted change, but the other metadata are in
        // between.
        Err(e @ Error::Format(FormatError::Interrupted(_))) => return Err(e),
        Err(e) => e,
    };
    for (block, block_size) in backups() {
        let Ok(raw) = read_at(device, block * block_size) else {
            continue;
        };
        let first = u64::from(raw.first_data_block.get()) + u64::from(raw.blocks_per_group.get());
        if raw.block_size().map(u64::from) != Some(block_size)
            || raw.block_group_nr.get() != 1
            || first != block
        {
            continue;
        }
        if let Ok(mut found) = check(device, raw) {
            found.backup = true;
            found.read_only = Some(format!(
                "the primary superblock is damaged ({primary_error}); the backup at block {block} is used"
            ));
            return Ok(found);
        }
    }
    Err(primary_error)
}

/// Returns the positions where the second group may begin, with its backup: the block, and the size of blocks. A group
/// is as large as one bitmap block can count. Groups are smaller where `mke2fs -g` asked for that, and where a group
/// has many inodes for few blocks.
fn backups() -> impl Iterator<Item = (u64, u64)> {
    let place = |block_size: u64, group: u64| (group + u64::from(block_size == 1024), block_size);
    let full = (10..17).map(move |shift| place(1 << shift, 8 << shift));
    let smaller = (10..13).flat_map(move |shift| {
        let groups = (256..8 << shift).step_by(8);
        groups.map(move |group| place(1 << shift, group))
    });
    full.chain(smaller)
}

fn read_at(device: &dyn BlockDevice, offset: u64) -> Result<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if device.len() < offset + SUPERBLOCK_SIZE as u64 {
        return Err(FormatError::NotExt4("too short for a superblock").into());
    }
    device
        .read_at(offset, &mut bytes)
        .map_err(|source| Error::Io {
            context: format!("read superblock at byte {offset}"),
            source,
        })?;
    Ok(RawSuperblock::parse(&bytes)?)
}

/// Checks that names can be folded: the tables of their encoding must be here, and no directory may need a key for it.
fn check_encoding(raw: &RawSuperblock, geometry: &Geometry) -> Result<()> {
    let encoding = raw.encoding.get();
    if encoding != UTF8_12_1 {
        return Err(FormatError::Incompatible(format!("casefold with encoding {encoding}")).into());
    }
    if geometry.features.has_encrypt() {
        return Err(FormatError::Incompatible("casefold with encrypt".into()).into());
    }
    Ok(())
}

fn check(device: &dyn BlockDevice, raw: RawSuperblock) -> Result<FoundSuperblock> {
    let geometry = Geometry::new(&raw)?;
    geometry.features.require_incompat_within(INCOMPAT)?;
    if geometry.features.has_casefold() {
        check_encoding(&raw, &geometry)?;
    }
    if geometry.features.has_journal() && geometry.journal_ino == 0 {
        return Err(FormatError::Incompatible("external journal".into()).into());
    }
    let len = geometry
        .blocks_count
        .checked_mul(u64::from(geometry.block_size));
    if len.is_none_or(|len| device.len() < len) {
        return Err(FormatError::corrupt(
            "image is shorter than its count of blocks",
            Where::Superblock,
        )
        .into());
    }
    let unknown = geometry.features.ro_compat.difference(RO_COMPAT);
    let mut read_only = (!unknown.is_empty()).then(|| {
        format!(
            "feature {} is not supported for writing",
            unknown.names().join(", ")
        )
    });
    if geometry.features.incompat.contains(Incompat::ENCRYPT) {
        read_only.get_or_insert_with(|| "feature encrypt is not supported for writing".into());
    }
    for (has, name) in [
        (geometry.features.has_inline_data(), "inline_data"),
        (geometry.features.has_ea_inode(), "ea_inode"),
    ] {
        if has {
            read_only.get_or_insert_with(|| format!("the feature {name} can be read, not written"));
        }
    }
    Ok(FoundSuperblock {
        raw,
        geometry,
        read_only,
        backup: false,
    })
}

impl Store {
    /// Returns the primary superblock's image in memory.
    pub(crate) fn raw_superblock(&self) -> Result<RawSuperblock> {
        let mut sb = extant_formatter::read_superblock(&self.geometry, &self.buffers)?;
        self.health.damage.apply(&mut sb);
        Ok(sb)
    }
}

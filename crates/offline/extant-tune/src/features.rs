//! Sets and clears features, after a check of their requirements, and applies the consequences. `options.rs` has the features that
//! change.

use crate::error::{Error, refused};
use crate::image::Image;
use crate::options::{CLEARABLE, SETTABLE, TuneOptions};
use crate::quota::{self, Kinds};
use crate::{dirs, journal, layout, mmp, orphans};
use ext4_format::features::{Compat, Features, Incompat, RoCompat};
use ext4_format::inode::{self, flags};
use ext4_format::{FileType, FormatError, InodeNr, fold};

/// First size that needs `large_file`.
const LARGE: u64 = 1 << 31;
/// Links of a directory that are counted without `dir_nlink`.
const MOST_LINKS: u32 = 65_000;

/// Returns the requested features.
fn wanted(now: Features, options: &TuneOptions) -> Result<Features, Error> {
    let mut wanted = now;
    let unknown = |error| {
        Error::Refused(match error {
            FormatError::Incompatible(name) => {
                format!("'{name}' is not a feature (see man 5 ext4)")
            }
            other => other.to_string(),
        })
    };
    wanted.apply(&options.features).map_err(unknown)?;
    if options.journal || options.journal_mib.is_some() {
        wanted.compat |= Compat::HAS_JOURNAL;
    }
    if options.orphan_file_bytes.is_some() {
        wanted.compat |= Compat::ORPHAN_FILE;
    }
    // The newer checksums are stored in place of the older ones.
    if wanted.has_metadata_csum() {
        wanted.ro_compat.remove(RoCompat::GDT_CSUM);
    } else {
        if now.has_metadata_csum() && !options.features.contains("^uninit_bg") {
            // The flags of never used tables stay.
            wanted.ro_compat |= RoCompat::GDT_CSUM;
        }
        if now.has_csum_seed() {
            wanted.incompat.remove(Incompat::CSUM_SEED);
        }
    }
    if !wanted.has_journal() && now.has_journal() {
        wanted
            .compat
            .remove(Compat::ORPHAN_FILE | Compat::FAST_COMMIT);
    }
    Ok(wanted)
}

/// Checks that the features may change in this way.
fn check(now: Features, wanted: Features) -> Result<(), Error> {
    let (set, cleared) = (wanted.difference(now), now.difference(wanted));
    if set.has_64bit() || cleared.has_64bit() {
        return refused("64bit is changed by extant resize");
    }
    for (what, by) in [
        ("set", set.difference(SETTABLE)),
        ("cleared", cleared.difference(CLEARABLE)),
    ] {
        let names = by.names();
        if !names.is_empty() {
            return refused(format!("{} cannot be {what}", names.join(", ")));
        }
    }
    let rules = [
        (
            wanted.has_csum_seed() && !wanted.has_metadata_csum(),
            "metadata_csum_seed needs metadata_csum",
        ),
        (
            wanted.has_orphan_file() && !wanted.has_journal(),
            "orphan_file needs has_journal",
        ),
        (
            wanted.has_fast_commit() && !wanted.has_journal(),
            "fast_commit needs has_journal",
        ),
        (
            cleared.has_extents() && wanted.has_64bit(),
            "64bit needs extent",
        ),
        (
            wanted.ro_compat.contains(RoCompat::VERITY) && !wanted.has_extents(),
            "verity needs extent",
        ),
        (
            wanted.has_casefold() && wanted.has_encrypt() && set.has_casefold(),
            "casefold cannot be set together with encrypt",
        ),
    ];
    match rules.iter().find(|rule| rule.0) {
        Some(rule) => refused(rule.1),
        None => Ok(()),
    }
}

/// Checks that no inode depends on a cleared feature.
fn check_inodes(image: &mut Image<'_, '_>, now: Features, wanted: Features) -> Result<(), Error> {
    let gone = |had: bool, has: bool| had && !has;
    let extents = gone(now.has_extents(), wanted.has_extents());
    let large = gone(now.has_large_file(), wanted.has_large_file());
    let huge = gone(now.has_huge_file(), wanted.has_huge_file());
    let links = gone(now.has_dir_nlink(), wanted.has_dir_nlink());
    let casefold = gone(now.has_casefold(), wanted.has_casefold());
    if !(extents || large || huge || links || casefold) {
        return Ok(());
    }
    // Linux does not open files above the limit of the volume, also those with holes.
    let mut without = image.geo.clone();
    without.features.ro_compat.remove(RoCompat::HUGE_FILE);
    for ino in image.used_inodes()? {
        let raw = image.read_record(ino)?;
        let core = inode::decode_verified(&raw, &image.geo, ino)?;
        if core.links == 0 {
            continue;
        }
        let directory = core.file_type() == Some(FileType::Directory);
        let regular = core.file_type() == Some(FileType::Regular);
        let sectors = inode::sectors(&raw, &image.old) >> 32 != 0;
        let most = without.max_file_size(core.flags & flags::EXTENTS != 0);
        let uses = [
            (extents && core.flags & flags::EXTENTS != 0, "extent"),
            (
                large
                    && regular
                    && core.size >= LARGE
                    && (ino != InodeNr::RESIZE || wanted.has_resize_inode()),
                "large_file",
            ),
            (
                huge && (core.flags & flags::HUGE_FILE != 0
                    || sectors
                    || regular && core.size > most),
                "huge_file",
            ),
            (
                links && directory && (core.links == 1 || core.links >= MOST_LINKS),
                "dir_nlink",
            ),
            (casefold && core.flags & flags::CASEFOLD != 0, "casefold"),
        ];
        if let Some((_, name)) = uses.iter().find(|(uses, _)| *uses) {
            return refused(format!("inode {ino} uses {name}"));
        }
    }
    Ok(())
}

/// Changes features, UUID, journal, orphan file and directories.
pub(crate) fn change(image: &mut Image<'_, '_>, options: &TuneOptions) -> Result<(), Error> {
    let now = image.geo.features;
    let mut wanted = wanted(now, options)?;
    let kinds = Kinds::of(image);
    let wanted_kinds = kinds.wanted(now, &mut wanted, options)?;
    check(now, wanted)?;
    if wanted_kinds != kinds {
        quota::check(image, wanted)?;
    }
    check_inodes(image, now, wanted)?;
    if options.uuid.is_some() && now.compat.contains(Compat::STABLE_INODES) {
        return refused("the UUID does not change with stable_inodes");
    }
    // Blocks are freed by the old geometry.
    if now.has_orphan_file() && !wanted.has_orphan_file() {
        orphans::remove(image)?;
    }
    quota::remove(image, kinds, wanted_kinds)?;
    if options.fast_commit_kib.is_some() && !wanted.has_fast_commit() {
        return refused("fast_commit_size needs fast_commit");
    }
    let is_new = options.journal_mib.is_some() || options.fast_commit_kib.is_some();
    let resized = now.has_journal() && is_new;
    let mut old_blocks = None;
    if now.has_journal() && (!wanted.has_journal() || resized) {
        old_blocks = Some(journal::remove(image)?);
    }
    if now.has_resize_inode() && !wanted.has_resize_inode() {
        layout::remove_reserved_descriptors(image)?;
    }
    set(image, now, wanted);
    if let Some(seed) = options.hash_seed {
        for (word, bytes) in image.sb.hash_seed.iter_mut().zip(seed.as_chunks::<4>().0) {
            word.set(u32::from_le_bytes(*bytes));
        }
        image.tell("superblock", "the seed of the directory hash is new");
    }
    if let Some(uuid) = options.uuid {
        image.sb.uuid = uuid;
        image.tell(
            "superblock",
            format!("the UUID is {}", layout::shown_uuid(&uuid)),
        );
    }
    image.renew()?;
    layout::follow(image)?;
    mmp::follow(image, now, wanted, options)?;
    if wanted.has_journal() && (!now.has_journal() || resized) {
        journal::make(image, options, old_blocks)?;
    }
    if wanted.has_orphan_file() && !now.has_orphan_file() {
        orphans::make(image, options)?;
    }
    dirs::follow(image, options)?;
    quota::follow(image, kinds, wanted_kinds, options)
}

fn set(image: &mut Image<'_, '_>, now: Features, wanted: Features) {
    let seed = image.geo.csum_seed;
    let (first_ino, inode_size) = (image.geo.first_ino, image.geo.inode_size);
    let sb = &mut image.sb;
    if sb.rev_level.get() == 0 && wanted != Features::default() {
        // The original revision has no features, and does not name these numbers.
        sb.rev_level.set(1);
        sb.first_ino.set(first_ino);
        sb.inode_size.set(inode_size);
    }
    sb.feature_compat.set(wanted.compat.bits());
    sb.feature_incompat.set(wanted.incompat.bits());
    sb.feature_ro_compat.set(wanted.ro_compat.bits());
    sb.checksum_type = u8::from(wanted.has_metadata_csum());
    if wanted.has_csum_seed() && !now.has_csum_seed() {
        sb.checksum_seed.set(seed);
    } else if !wanted.has_csum_seed() {
        sb.checksum_seed.set(0);
    }
    if !wanted.has_metadata_csum() {
        sb.checksum.set(0);
    }
    if wanted.has_encrypt() && !now.has_encrypt() {
        // AES-256 in XTS for data, with ciphertext stealing for names.
        sb.encrypt_algos = [1, 4, 0, 0];
    }
    if wanted.has_casefold() && !now.has_casefold() {
        sb.encoding.set(fold::UTF8_12_1); // the only one there is
        sb.encoding_flags.set(0);
    } else if !wanted.has_casefold() {
        sb.encoding.set(0);
        sb.encoding_flags.set(0);
    }
    let (had, has) = (now.names(), wanted.names());
    for name in has.iter().filter(|name| !had.contains(name)) {
        image.tell("feature", format!("{name} is set"));
    }
    for name in had.iter().filter(|name| !has.contains(name)) {
        image.tell("feature", format!("{name} is cleared"));
    }
}

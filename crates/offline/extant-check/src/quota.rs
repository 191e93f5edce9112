//! Quota files: compares their records with the actual use by users, groups and projects.

use crate::mapping::{Walker, block_of};
use crate::report::{FindingPlace, Findings, Rule};
use crate::state::Check;
use ext4_format::inode::{self, flags};
use ext4_format::quota::{QuotaFile, QuotaKind, QuotaSums};
use ext4_format::{FileType, FormatError, InodeNr, Where};

/// Compares the files with the counted use.
pub(crate) fn check(check: &Check<'_>) {
    let Some(all) = &check.quota.all else { return };
    let sums = all.lock();
    for kind in QuotaKind::ALL {
        let ino = InodeNr(kind.inode(&check.volume.sb));
        if ino.0 == 0 {
            continue;
        }
        let place = FindingPlace::inode(ino);
        match read(check, kind, ino) {
            Ok(mut file) => tell_differences(check, kind, &mut file, &sums, place),
            Err(error) => check.findings.add_error(Rule::Quota, place, &error),
        }
    }
}

fn tell_differences(
    check: &Check<'_>,
    kind: QuotaKind,
    file: &mut QuotaFile,
    sums: &QuotaSums,
    place: FindingPlace,
) {
    let name = kind.name();
    for (id, said) in file.set_use(kind, sums) {
        let now = sums.of(kind).get(&id).copied().unwrap_or_default();
        check.findings.add(Rule::QuotaUsage, place, || {
            format!(
                "{name} {id}: it says {} bytes and {} inodes, and there are {} and {}",
                said.bytes, said.inodes, now.bytes, now.inodes
            )
        });
    }
}

/// Reads a quota file. Damage of its mapping is reported elsewhere.
fn read(check: &Check<'_>, kind: QuotaKind, ino: InodeNr) -> Result<QuotaFile, FormatError> {
    let volume = &check.volume;
    let geo = &volume.geo;
    let corrupt = |what| FormatError::corrupt(what, Where::Inode(ino));
    let raw = crate::state::read_record(check, ino).ok_or_else(|| corrupt("its inode"))?;
    let core = inode::decode_verified(&raw, geo, ino)?;
    if core.file_type() != Some(FileType::Regular) || core.links == 0 {
        return Err(corrupt("a quota file that is not a regular file"));
    }
    if core.flags & flags::INLINE_DATA != 0 {
        return Err(corrupt("a quota file inside its inode"));
    }
    let ignored = Findings::new(0);
    let seed = volume.seed(ino, core.generation);
    let walker = Walker::new(volume, &ignored, None, ino, seed).with_runs(true);
    let mapped = walker.walk(core.flags, inode::i_block(&raw)?);
    QuotaFile::read_from(kind, core.size, volume.block_size(), |logical| {
        let at =
            block_of(&mapped.runs, logical).ok_or_else(|| corrupt("a hole in a quota file"))?;
        let bytes = volume.read(at);
        bytes.map_err(|_| corrupt("a block of a quota file that cannot be read"))
    })
}

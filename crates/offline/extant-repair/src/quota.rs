//! Sets the use in quota files. Limits stay if they can be read.

use crate::error::Error;
use crate::mapping::{self, MapRead};
use crate::session::{InodeUse, Session, Used};
use crate::{attributes, inode_map};
use ext4_format::extent::Extent;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::quota::{QuotaFile, QuotaKind, QuotaSums};
use ext4_format::timestamp::Timestamp;
use ext4_format::{FileType, FormatError, InodeNr, Where};
use ext4_image::place_of;

/// Brings the quota files that the superblock names up to date.
pub(crate) fn mend(session: &mut Session<'_, '_>) -> Result<(), Error> {
    names(session)?;
    let features = session.geo.features;
    if !features.has_quota() {
        return Ok(());
    }
    let files: Vec<_> = QuotaKind::ALL
        .into_iter()
        .filter(|kind| kind.inode(&session.sb) != 0)
        .collect();
    if files.is_empty() {
        return Ok(());
    }
    let used = count(session)?;
    for kind in files {
        let ino = InodeNr(kind.inode(&session.sb));
        one(session, kind, ino, &used)?;
    }
    Ok(())
}

/// Removes impossible numbers of quota files from the superblock.
fn names(session: &mut Session<'_, '_>) -> Result<(), Error> {
    for kind in QuotaKind::ALL {
        let ino = kind.inode(&session.sb);
        let own = kind == QuotaKind::Project || ino < session.geo.first_ino;
        let possible = ino <= session.geo.inodes_count && ino != InodeNr::ROOT.0 && own;
        let text = format!(
            "it names no {} quota, as inode {ino} cannot be one",
            kind.name()
        );
        if ino != 0 && !possible && session.ask("superblock", text, None) {
            kind.set_inode(&mut session.sb, 0);
            session.write_superblock()?;
        }
    }
    Ok(())
}

/// Counts the use.
fn count(session: &Session<'_, '_>) -> Result<QuotaSums, Error> {
    let mut sums = QuotaSums::default();
    for &ino in session.inodes.keys() {
        let ino = InodeNr(ino);
        let Some(raw) = session.read_record(ino)? else {
            continue;
        };
        if let Ok(core) = inode::decode_verified(&raw, &session.geo, ino) {
            let values = attributes::values_in_inodes(session, &raw)?.len() as u64;
            sums.add(&session.sb, &session.geo, ino, &raw, &core, values);
        }
    }
    Ok(sums)
}

/// A quota file as it was read.
struct Read {
    map: MapRead,
    /// Its content, or the error of reading it.
    content: Result<QuotaFile, FormatError>,
}

fn one(
    session: &mut Session<'_, '_>,
    kind: QuotaKind,
    ino: InodeNr,
    used: &QuotaSums,
) -> Result<(), Error> {
    let place = format!("{} quota, inode {ino}", kind.name());
    let Some(mut read) = read(session, kind, ino)? else {
        return Ok(());
    };
    let (file, exact) = match read.content {
        Ok(mut file) => {
            let changed = file.set_use(kind, used);
            let text = match &changed[..] {
                [] => return Ok(()),
                [(id, _)] => format!("it says what {id} uses"),
                more => format!("it says what {} numbers use", more.len()),
            };
            if !session.ask(place, text, None) {
                return Ok(());
            }
            (file, false)
        }
        Err(error) => {
            let text = format!("it is rebuilt ({error})");
            if !session.ask(place, text, Some("limits of what may be used")) {
                return Ok(());
            }
            let mut file = QuotaFile::default();
            file.set_use(kind, used);
            (file, true)
        }
    };
    let bytes = file.to_bytes(kind);
    if exact {
        let end = bytes.len().div_ceil(session.block_size()) as u64;
        let end = end.next_multiple_of(session.geo.cluster_ratio.into());
        inode_map::cut(session, &mut read.map, end);
    }
    write(session, ino, read.map, &bytes, exact)
}

/// Reads a file; `None` if its inode cannot be a quota file.
fn read(
    session: &mut Session<'_, '_>,
    kind: QuotaKind,
    ino: InodeNr,
) -> Result<Option<Read>, Error> {
    let corrupt = |what| FormatError::corrupt(what, Where::Inode(ino));
    let Some(raw) = session.read_record(ino)? else {
        return Ok(None);
    };
    let core = inode::decode_verified(&raw, &session.geo, ino).ok();
    let core = core.filter(|core| core.file_type() == Some(FileType::Regular) && core.links > 0);
    let Some(core) = core.filter(|core| core.flags & flags::INLINE_DATA == 0) else {
        let free = !session.inodes.contains_key(&ino.0);
        let text = format!("it names no {} quota, as inode {ino} is none", kind.name());
        if !free && ino.0 >= session.geo.first_ino && session.ask("superblock", text, None) {
            // The inode is that of another file.
            kind.set_inode(&mut session.sb, 0);
            session.write_superblock()?;
        }
        return Ok(free.then(|| Read {
            map: MapRead::default(),
            content: Err(corrupt("there is none")),
        }));
    };
    let seed = session.seed(ino, core.generation);
    let root = inode::i_block(&raw).map_err(Error::Format)?;
    let map = mapping::read(session, core.flags, root, seed)?;
    let content = QuotaFile::read_from(kind, core.size, session.block_size(), |logical| {
        let at =
            place_of(&map.extents, logical).ok_or_else(|| corrupt("a hole in a quota file"))?;
        session
            .read(at)
            .map_err(|_| corrupt("a block that cannot be read"))
    });
    Ok(Some(Read { map, content }))
}

/// Writes the bytes over the blocks of the file, and behind them to new ones. If `exact`, sets the size to that of the
/// bytes; otherwise only raises it, because later blocks stay.
fn write(
    session: &mut Session<'_, '_>,
    ino: InodeNr,
    map: MapRead,
    bytes: &[u8],
    exact: bool,
) -> Result<(), Error> {
    if !session.inodes.contains_key(&ino.0) {
        make(session, ino)?;
    }
    let blocks = bytes.len().div_ceil(session.block_size()) as u32; // a tree has no more
    let mut extents = map.extents;
    let mut changed = make_written(&mut extents, blocks) || exact;
    for logical in 0..blocks {
        if place_of(&extents, logical).is_some() {
            continue;
        }
        let Some(physical) = inode_map::allocate_at(session, &extents, logical) else {
            return Ok(());
        };
        changed = true;
        let here = Extent::block(logical, physical);
        let next = extents.partition_point(|extent| extent.logical < logical);
        match next.checked_sub(1).and_then(|i| extents.get_mut(i)) {
            Some(last) if last.merge(&here).is_some() => last.len += 1,
            _ => extents.insert(next, here),
        }
    }
    for (logical, part) in (0..blocks).zip(bytes.chunks(session.block_size())) {
        if let Some(at) = place_of(&extents, logical) {
            let mut block = vec![0; session.block_size()];
            for (to, from) in block.iter_mut().zip(part) {
                *to = *from;
            }
            session.write(at, &block)?;
        }
    }
    // The file may grow inside its last block.
    set_size(session, ino, bytes.len() as u64, exact)?;
    if changed {
        inode_map::remap(session, ino, extents, map.nodes)?;
    }
    Ok(())
}

/// Clears the mark of unwritten blocks for the first `blocks` blocks of a file, and returns whether any had it. The caller writes
/// their content.
fn make_written(extents: &mut Vec<Extent>, blocks: u32) -> bool {
    let mut changed = false;
    let mut at = 0;
    while let Some(extent) = extents.get_mut(at).filter(|e| e.logical < blocks) {
        at += 1;
        if !extent.unwritten {
            continue;
        }
        changed = true;
        let mut behind = *extent;
        extent.len = extent.len.min(blocks - extent.logical);
        extent.unwritten = false;
        behind.logical += extent.len;
        behind.physical.0 += u64::from(extent.len);
        behind.len -= extent.len;
        if behind.len > 0 {
            extents.insert(at, behind);
        }
    }
    changed
}

/// Raises the size of a file to that of its content, or sets it.
fn set_size(session: &Session<'_, '_>, ino: InodeNr, len: u64, exact: bool) -> Result<(), Error> {
    let Some(mut raw) = session.read_record(ino)? else {
        return Ok(());
    };
    let mut core = inode::decode_verified(&raw, &session.geo, ino).map_err(Error::Format)?;
    core.size = if exact { len } else { core.size.max(len) };
    inode::encode_core(&core, &mut raw, &session.geo);
    Ok(session.write_record(ino, &mut raw)?)
}

/// Makes the record of a file, before its mapping.
fn make(session: &mut Session<'_, '_>, ino: InodeNr) -> Result<(), Error> {
    let now = Timestamp::new(session.now.into(), 0);
    let extents = if session.geo.features.has_extents() {
        flags::EXTENTS
    } else {
        0
    };
    let core = InodeCore {
        mode: 0o100_600,
        links: 1,
        flags: flags::IMMUTABLE | extents,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        ..InodeCore::default()
    };
    let mut raw = vec![0; session.geo.inode_size.into()];
    inode::init(&mut raw, &session.geo);
    inode::encode_core(&core, &mut raw, &session.geo);
    session.write_record(ino, &mut raw)?;
    let kind = InodeUse::Reserved;
    session.inodes.insert(ino.0, Used { kind, names: 0 });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_that_are_written_become_written_ones() {
        let extent = |logical, physical, len, unwritten| Extent {
            logical,
            len,
            physical: ext4_format::BlockNr(physical),
            unwritten,
        };
        let mut extents = vec![
            extent(0, 100, 2, true),
            extent(2, 50, 1, false),
            extent(4, 200, 9000, true),
            extent(9004, 9300, 5, true),
        ];
        assert!(make_written(&mut extents, 6));
        let expected = [
            extent(0, 100, 2, false),
            extent(2, 50, 1, false),
            extent(4, 200, 2, false),
            extent(6, 202, 8998, true),
            extent(9004, 9300, 5, true),
        ];
        assert_eq!(extents, expected);
        assert!(!make_written(&mut extents, 6));
    }
}

//! `list_quota` and `get_quota` of debugfs: the records of a quota file.

use super::queried_image::QueriedImage;
use super::words::number_of;
use anyhow::{Result, bail};
use ext4_format::quota::{QuotaFile, QuotaKind, QuotaRecord};
use ext4_format::{FormatError, InodeNr, Where, inode};
use ext4_image::Image;
use extant_cli_core::format::show::show;
use std::fmt::Write as _;

/// Returns the output of `list_quota KIND`, or of `get_quota KIND ID` if `id` is given.
pub(super) fn list(asked: &QueriedImage<'_>, kind: &[u8], id: Option<&[u8]>) -> Result<String> {
    let mut known = QuotaKind::ALL.into_iter();
    let found = known.find(|known| known.name().as_bytes() == kind);
    let Some(kind) = found else {
        bail!(
            "{}: not a quota type (try user, group or project)",
            show(kind)
        );
    };
    let ino = InodeNr(kind.inode(&asked.sb));
    if ino.0 == 0 {
        bail!("quota feature not enabled");
    }
    let file = read(asked, kind, ino)?;
    let mut text = format!(
        "{:>7} id      space    quota    limit      inodes    quota    limit\n",
        kind.name()
    );
    let none = QuotaRecord::default();
    let id = id
        .map(number_of)
        .transpose()?
        .map(u32::try_from)
        .transpose()?;
    let one = id.map(|id| (id, file.records.get(&id).unwrap_or(&none)));
    let all = file.records.iter().map(|(id, record)| (*id, record));
    let rows: Vec<(u32, &QuotaRecord)> = match one {
        Some(one) => vec![one],
        None => all.collect(),
    };
    for (id, record) in rows {
        let ([block_hard, block_soft], [inode_hard, inode_soft]) =
            (record.block_limits, record.inode_limits);
        let _ = writeln!(
            text,
            "{id:10} {:10} {:8} {:8}    {:8} {:8} {:8}",
            record.used.bytes, block_soft, block_hard, record.used.inodes, inode_soft, inode_hard
        );
    }
    Ok(text)
}

fn read(asked: &QueriedImage<'_>, kind: QuotaKind, ino: InodeNr) -> Result<QuotaFile> {
    let corrupt = |what| FormatError::corrupt(what, Where::Inode(ino));
    let mut image = Image::new(asked.device, asked.sb)?;
    image.read_descriptors()?;
    let raw = image
        .read_record(ino)?
        .ok_or_else(|| corrupt("its inode"))?;
    let core = inode::decode_core(&raw, &image.geo, ino)?;
    let mapping = image.mapping(core.flags, &raw)?;
    let size = image.geo.block_size as usize;
    Ok(QuotaFile::read_from(kind, core.size, size, |logical| {
        let place = mapping.places().find(|(at, _)| *at == logical);
        let (_, block) = place.ok_or_else(|| corrupt("a hole in a quota file"))?;
        let bytes = image.read(block);
        bytes.map_err(|_| corrupt("a block of a quota file that cannot be read"))
    })?)
}

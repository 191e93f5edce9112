//! Requests of debugfs about deleted inodes and free blocks: `lsdel`, `undelete`, `kill_file`, `dump_unused`.

use super::raw::{Bytes, change};
use anyhow::{Result, bail, ensure};
use blockdev::BlockDevice;
use ext4_format::group_desc::INODE_UNINIT;
use ext4_format::inode::{self, InodeCore};
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, bitmap};
use ext4_image::Image;
use extant::Timestamp;
use extant_cli_core::format::clock;
use extant_cli_core::format::show::show;
use extant_cli_core::format::times::as_ctime;
use extant_cli_core::image::images;
use extant_terminal::interrupt;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

/// Bytes of free blocks that are read at once.
const PIECE: u64 = 1 << 20;

/// A deleted inode that still has its blocks.
struct Deleted {
    ino: InodeNr,
    core: InodeCore,
    blocks: Vec<BlockNr>,
    free: usize,
}

/// Returns the output of `lsdel [SECONDS]`: the inodes deleted within the last `seconds`, sorted by the time of deletion.
pub(super) fn list(image: &Path, seconds: Option<u64>) -> Result<String> {
    let device = images::device(image)?;
    let now = clock::stamp()?.cast_unsigned();
    let since = seconds.map_or(0, |seconds| now.saturating_sub(seconds));
    let mut found = deleted(&device)?;
    found.retain(|one| u64::from(one.core.dtime) >= since);
    found.sort_by_key(|one| one.core.dtime);
    let mut text = String::from(" Inode  Owner  Mode    Size      Blocks   Time deleted\n");
    for one in &found {
        let time = as_ctime(Timestamp::new(one.core.dtime.into(), 0));
        let (core, all) = (&one.core, one.blocks.len());
        let _ = writeln!(
            text,
            "{:6} {:6} {:6o} {:6} {:6}/{all:6} {time}",
            one.ino.0, core.uid, core.mode, core.size, one.free
        );
    }
    let _ = writeln!(text, "{} deleted inodes found.", found.len());
    Ok(text)
}

fn deleted(device: &dyn BlockDevice) -> Result<Vec<Deleted>> {
    let mut bytes = Bytes::of(device)?;
    bytes.read_descriptors()?;
    let geo = &bytes.geo;
    let mut found = Vec::new();
    for (group, desc) in (0..).map(GroupNr).zip(&bytes.descs) {
        interrupt::check()?;
        if desc.is_uninit(geo, INODE_UNINIT) {
            continue;
        }
        let used = bytes.map(desc, group, true)?;
        for index in geo.reserved_inodes(group)..desc.used_records(geo) {
            if bitmap::test(&used, index) {
                continue;
            }
            let ino = geo.inode_nr(group, index);
            let Some(raw) = bytes.read_record(ino)? else {
                continue;
            };
            // Skip records without a mode and damaged records, because they do not describe deleted files.
            let Ok(core) = inode::decode_core(&raw, geo, ino) else {
                continue;
            };
            if core.dtime == 0 {
                continue;
            }
            let Ok(blocks) = blocks_of(&bytes, &core, &raw) else {
                continue;
            };
            if blocks.is_empty() {
                continue;
            }
            let mut free = 0;
            for &block in &blocks {
                free += usize::from(!bytes.is_used(block)?);
            }
            // A file whose blocks all belong to other files again cannot come back.
            if free == 0 {
                continue;
            }
            found.push(Deleted {
                ino,
                core,
                blocks,
                free,
            });
        }
    }
    Ok(found)
}

/// Returns all blocks of an inode, including the blocks of its mapping.
fn blocks_of<D: BlockDevice>(
    image: &Image<D>,
    core: &InodeCore,
    raw: &[u8],
) -> Result<Vec<BlockNr>> {
    let has_blocks = match core.file_type() {
        Some(FileType::Regular | FileType::Directory) => true,
        // The inode holds a short target of a symbolic link.
        Some(FileType::Symlink) => core.size >= inode::i_block(raw)?.len() as u64,
        _ => false,
    };
    if !has_blocks || core.flags & inode::flags::INLINE_DATA != 0 {
        return Ok(Vec::new());
    }
    let mapping = image.mapping(core.flags, raw)?;
    let data = mapping.places().map(|(_, block)| block);
    Ok(data.chain(mapping.nodes.iter().copied()).collect())
}

/// Marks a deleted inode and its blocks as used, and sets the link count. Returns the number of the inode.
pub(super) fn restore(image: &Path, word: &[u8]) -> Result<InodeNr> {
    let mut restored = InodeNr(0);
    change(image, |bytes| {
        let ino = bytes.find(b"/", word)?;
        let (_, mut raw) = bytes.record(ino)?;
        let core = inode::decode_core(&raw, &bytes.geo, ino)?;
        if bytes.is_inode_used(ino)? || core.dtime == 0 {
            bail!("Inode is not marked as deleted");
        }
        let blocks = blocks_of(bytes, &core, &raw)?;
        for &block in &blocks {
            ensure!(!bytes.is_used(block)?, "block {block} is in use again");
        }
        let is_dir = core.file_type() == Some(FileType::Directory);
        bytes.set_use(ino, &blocks, is_dir, true)?;
        let links = if is_dir { 2 } else { 1 };
        set_links_and_dtime(&mut raw, links, 0);
        bytes.write_record(ino, raw, true)?;
        restored = ino;
        Ok(())
    })?;
    Ok(restored)
}

/// Frees an inode and its blocks. The names of the inode stay.
pub(super) fn kill(image: &Path, at: &[u8], word: &[u8]) -> Result<()> {
    change(image, |bytes| {
        let ino = bytes.find(at, word)?;
        let (_, mut raw) = bytes.record(ino)?;
        let core = inode::decode_core(&raw, &bytes.geo, ino)?;
        ensure!(bytes.is_inode_used(ino)?, "the inode is free already");
        ensure!(
            ino.0 >= bytes.geo.first_ino,
            "the inode belongs to the file system itself"
        );
        let blocks = blocks_of(bytes, &core, &raw)?;
        let is_dir = core.file_type() == Some(FileType::Directory);
        bytes.set_use(ino, &blocks, is_dir, false)?;
        let now = u32::try_from(clock::stamp()?).unwrap_or(u32::MAX);
        set_links_and_dtime(&mut raw, 0, now);
        bytes.write_record(ino, raw, true)
    })
}

/// Sets the link count and the time of deletion of an inode record.
fn set_links_and_dtime(raw: &mut [u8], links: u16, time: u32) {
    const DTIME: usize = 20;
    const LINKS: usize = 26;
    let mut put = |at: usize, value: &[u8]| {
        let room = raw.iter_mut().skip(at).zip(value);
        room.for_each(|(to, from)| *to = *from);
    };
    put(DTIME, &time.to_le_bytes());
    put(LINKS, &links.to_le_bytes());
}

/// Writes the output of `dump_unused`: the free blocks with non-zero data, and their bytes.
pub(super) fn unused(image: &Path, out: &mut dyn Write) -> Result<()> {
    let device = images::device(image)?;
    let bytes = Bytes::of(&device)?;
    let geo = &bytes.geo;
    let size = u64::from(geo.block_size);
    let mut piece = vec![0; PIECE.max(size) as usize];
    for group in (0..geo.groups).map(GroupNr) {
        interrupt::check()?;
        let (_, _, desc) = bytes.descriptor(group)?;
        let map = bytes.map(&desc, group, false)?;
        let first = geo.group_first_block(group).0;
        let end = geo.bits_in_group(group);
        let mut bit = 0;
        while let Some(start) = bitmap::find_zero(&map, bit, end) {
            let most = (piece.len() as u64 / size / u64::from(geo.cluster_ratio)).max(1);
            bit = start + 1;
            while bit < end && u64::from(bit - start) < most && !bitmap::test(&map, bit) {
                bit += 1;
            }
            let block = first + u64::from(start) * u64::from(geo.cluster_ratio);
            let blocks = u64::from(bit - start) * u64::from(geo.cluster_ratio);
            let blocks = blocks.min(geo.blocks_count.saturating_sub(block));
            piece.resize((blocks * size) as usize, 0);
            bytes.dev.read_at(block * size, &mut piece)?;
            for (block, content) in (block..).zip(piece.chunks(size as usize)) {
                if content.iter().any(|&byte| byte != 0) {
                    write!(out, "\nUnused block {block} contains non-zero data:\n\n")?;
                    out.write_all(content)?;
                }
            }
            piece.resize(PIECE.max(size) as usize, 0);
        }
    }
    Ok(out.flush()?)
}

/// Splits `undelete <INODE> [PATH]` into the inode and the path.
pub(super) fn parse_undelete<'w>(words: &[&'w [u8]]) -> Result<(&'w [u8], Option<&'w [u8]>)> {
    let (ino, path) = match words {
        [ino] => (*ino, None),
        [ino, path] => (*ino, Some(*path)),
        _ => bail!("usage: undelete <inode_num> [dest_name]"),
    };
    ensure!(
        ino.starts_with(b"<") && ino.ends_with(b">"),
        "{}: not an inode number: write it as <12>",
        show(ino)
    );
    Ok((ino, path))
}

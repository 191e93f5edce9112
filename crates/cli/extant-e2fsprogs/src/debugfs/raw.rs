//! Requests of debugfs that edit structures directly: fields of inodes, descriptors and the superblock, bits of
//! bitmaps, bytes of blocks. Only checksums are updated, so e2fsck may find errors afterwards. A request is one change
//! in place, which a crash leaves complete or undone.

use super::fields::{self, text};
use crate::{changes, listing};
use anyhow::{Context, Result, anyhow, bail, ensure};
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::superblock::{RawSuperblock, STATE_VALID, SUPERBLOCK_OFFSET};
use ext4_format::{BlockNr, GroupNr, InodeNr, bitmap, inode};
use ext4_image::{Image, MemOverlay};
use extant_check::inspect::{FieldPlace, Inspector, Request, Structure, Value, field_place};
use extant_cli_core::address::host_path;
use extant_cli_core::address::request::path_from;
use extant_cli_core::format::attr_flags::long_number;
use extant_cli_core::format::show::show;
use extant_cli_core::image::{images, in_place};
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// Requests by all their names, with the least and the largest number of arguments.
pub(super) const REQUESTS: &[(&[&str], usize, usize)] = &[
    (&["clri"], 1, 1),
    (&["freei"], 1, 2),
    (&["seti"], 1, 2),
    (&["freeb"], 1, 2),
    (&["setb"], 1, 2),
    (&["set_block_group", "set_bg"], 3, 3),
    (&["copy_inode"], 2, 2),
    (&["zap_block", "zap"], 1, 9),
    (&["dirty_filesys", "dirty"], 0, 1),
];

/// Size of an inode in the first version of ext2.
const FIRST_PART: usize = 128;

/// An image to be read or edited; damaged descriptors do not end a request.
pub(super) struct Bytes<'d>(Image<&'d dyn BlockDevice>);

impl<'d> Deref for Bytes<'d> {
    type Target = Image<&'d dyn BlockDevice>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Bytes<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// Changes an image.
pub(super) fn change(image: &Path, work: impl FnOnce(&mut Bytes<'_>) -> Result<()>) -> Result<()> {
    changes::replay(image)?;
    let (device, beside) = in_place::ready(image, false)?;
    let overlay = MemOverlay::new(&device);
    work(&mut Bytes::of(&overlay)?)?;
    let changes = overlay.into_changes()?;
    if changes.is_empty() {
        return Ok(());
    }
    let done = changes.write(&device, None, beside.as_deref());
    done.map_err(|e| in_place::after_failure(image, device, e))
}

/// Runs a request by the first of its names; paths begin at a directory.
pub(super) fn run(image: &Path, at: &[u8], name: &str, words: &[&[u8]]) -> Result<()> {
    change(image, |bytes| match (name, words) {
        ("clri", [word]) => {
            let ino = bytes.find(at, word)?;
            bytes.set_first_part(ino, &[0; FIRST_PART])
        }
        ("copy_inode", [from, to]) => {
            let (from, to) = (bytes.find(at, from)?, bytes.find(at, to)?);
            let (_, raw) = bytes.record(from)?;
            bytes.write_record(to, raw, true)
        }
        ("freei" | "seti", [word, rest @ ..]) => {
            let ino = bytes.find(at, word)?;
            let count = rest.first().map_or(Ok(1), |word| number(word))?;
            for next in 0..count {
                let ino = u64::from(ino.0).checked_add(next);
                let ino = ino.and_then(|ino| u32::try_from(ino).ok());
                bytes.mark_inode(InodeNr(ino.unwrap_or(0)), name == "seti")?;
            }
            Ok(())
        }
        ("freeb" | "setb", [word, rest @ ..]) => {
            let first = number(word)?;
            let count = rest.first().map_or(Ok(1), |word| number(word))?;
            ensure!(
                count <= bytes.geo.blocks_count,
                "there are not so many blocks"
            );
            for block in first..first.saturating_add(count) {
                bytes.mark_block(BlockNr(block), name == "setb")?;
            }
            Ok(())
        }
        ("set_block_group", [group, field, value]) => bytes.set_group(group, field, value),
        ("zap_block", words) => bytes.zap(at, words),
        ("dirty_filesys", words) => {
            let state = bytes.sb.state.get();
            let state = match words {
                [b"-clean"] => state | STATE_VALID,
                [] => state & !STATE_VALID,
                _ => bail!("usage: dirty_filesys [-clean]"),
            };
            bytes.sb.state.set(state);
            bytes.write_superblock(true)
        }
        _ => bail!("wrong number of words"),
    })
}

/// Edits a field of an inode directly.
pub(super) fn set_inode_field(
    image: &Path,
    at: &[u8],
    word: &[u8],
    field: &str,
    value: &str,
) -> Result<()> {
    change(image, |bytes| {
        let ino = bytes.find(at, word)?;
        let (_, mut raw) = bytes.record(ino)?;
        if field == "checksum" && value == "calc" {
            return bytes.write_record(ino, raw, true);
        }
        let mut parts = vec![];
        if let Some(nth) = field
            .strip_prefix("block[")
            .and_then(|f| f.strip_suffix(']'))
        {
            let nth = match nth {
                "IND" => 12,
                "DIND" => 13,
                "TIND" => 14,
                nth => long_number(nth).map_err(|e| anyhow!(e))?,
            };
            ensure!(nth < 15, "an inode has 15 blocks");
            let place = inode_place("i_block").map(|place| FieldPlace {
                offset: place.offset + nth as usize * 4,
                len: 4,
                is_time: false,
                is_text: false,
            });
            parts.extend(place);
        } else {
            parts = field_parts(field, room(&raw));
        }
        ensure!(!parts.is_empty(), "invalid field specifier: {field}");
        if field == "mode" {
            same_type(&raw, value)?;
        }
        // Attributes come after the extra fields.
        let room = room(&raw);
        let fields = raw.get_mut(..room).unwrap_or_default();
        put(fields, &parts, value)?;
        if parts.iter().any(|part| part.is_time) && field != "dtime" {
            let seconds = fields::time(value)?;
            put_epoch(fields, inode_place(&format!("i_{field}_extra")), seconds);
        }
        bytes.write_record(ino, raw, !field.starts_with("checksum"))
    })
}

/// Returns the number of bytes of an inode that are fields.
fn room(raw: &[u8]) -> usize {
    let extra = raw.get(128..).and_then(<[u8]>::first_chunk);
    let extra = extra.map_or(0, |extra| usize::from(u16::from_le_bytes(*extra)));
    raw.len().min(128 + extra)
}

/// Fails for a mode that changes the type of the file.
fn same_type(raw: &[u8], value: &str) -> Result<()> {
    let old = raw
        .first_chunk()
        .map_or(0, |mode| u16::from_le_bytes(*mode));
    let new = long_number(value).map_err(|e| anyhow!(e))?;
    ensure!(
        new & !0o7777 == u64::from(old & 0o170_000),
        "{value}: another type of file; this one has {old:#o}"
    );
    Ok(())
}

/// Sets the bits of a time beyond 32, if the inode has room for them.
fn put_epoch(raw: &mut [u8], place: Option<FieldPlace>, seconds: i64) {
    // Two bits count the spans of 2^32 seconds since 1901.
    let epoch = ((seconds - i64::from(seconds as i32)) >> 32) as u8 & 3;
    let byte = place.and_then(|place| raw.get_mut(place.offset));
    if let Some(byte) = byte {
        *byte = (*byte & !3) | epoch;
    }
}

fn inode_place(name: &str) -> Option<FieldPlace> {
    field_place(Structure::Inode, name)
}

/// Returns the names of a field in the structure of an inode: of its lower and its upper part.
fn inode_names(field: &str) -> (String, Option<String>) {
    let (low, high) = match field {
        "size" => ("i_size_lo", Some("i_size_high")),
        "blocks" => ("i_blocks_lo", Some("i_blocks_high")),
        "uid" => ("i_uid", Some("i_uid_high")),
        "gid" => ("i_gid", Some("i_gid_high")),
        "file_acl" => ("i_file_acl_lo", Some("i_file_acl_high")),
        "checksum" => ("i_checksum_lo", Some("i_checksum_hi")),
        "version" => ("i_version", Some("i_version_hi")),
        "dir_acl" => ("i_size_high", None),
        "faddr" => ("i_obso_faddr", None),
        "project" => ("i_projid", None),
        _ => return (format!("i_{field}"), None),
    };
    (low.to_owned(), high.map(str::to_owned))
}

/// Returns the places of a field of an inode with `room` bytes of fields: of its lower and its upper part. A name that
/// ends with `_lo` or `_hi` means one of the parts.
fn field_parts(field: &str, room: usize) -> Vec<FieldPlace> {
    let (base, wants_low, wants_high) = match (field.strip_suffix("_lo"), field.strip_suffix("_hi"))
    {
        (Some(base), _) => (base, true, false),
        (_, Some(base)) => (base, false, true),
        _ => (field, true, true),
    };
    let (low, high) = inode_names(base);
    let low = inode_place(&low).filter(|_| wants_low);
    // Parts of a time are numbers.
    let low = low.map(|place| FieldPlace {
        is_time: place.is_time && base == field,
        ..place
    });
    let high = high.and_then(|name| inode_place(&name));
    let high = high.filter(|place| wants_high && place.offset + place.len <= room);
    let parts: Vec<FieldPlace> = low.into_iter().chain(high).collect();
    if parts.is_empty() && base != field {
        // The field itself has this name.
        return inode_place(&format!("i_{field}")).into_iter().collect();
    }
    parts
}

/// Edits a value of the superblock directly.
pub(super) fn set_super_value(image: &Path, field: &str, value: &str) -> Result<()> {
    change(image, |bytes| {
        let name = format!("s_{field}");
        let of = |name: &str| field_place(Structure::Superblock, name);
        let parts = match of(&format!("{name}_lo")) {
            Some(low) => [Some(low), of(&format!("{name}_hi"))],
            None => [of(&name), of(&format!("{name}_hi"))],
        };
        let parts: Vec<FieldPlace> = parts.into_iter().flatten().collect();
        ensure!(!parts.is_empty(), "invalid field specifier: {field}");
        let mut raw = bytes.sb.bytes().to_vec();
        put(&mut raw, &parts, value)?;
        if field == "checksum" {
            return Ok(bytes.dev.write_at(SUPERBLOCK_OFFSET, &raw)?);
        }
        bytes.sb = parsed_again(raw, bytes.geo.features.has_metadata_csum())?;
        bytes.write_superblock(true)
    })
}

/// Parses a superblock after recomputing its checksum.
fn parsed_again(mut raw: Vec<u8>, has_sum: bool) -> Result<RawSuperblock> {
    if has_sum && let Some((body, sum)) = raw.split_last_chunk_mut::<4>() {
        *sum = ext4_format::checksum::crc32c(!0, body).to_le_bytes();
    }
    RawSuperblock::parse(&raw).map_err(|e| anyhow!("no superblock any more: {e}"))
}

/// Writes a value into the parts of a field, the lower ones first.
fn put(raw: &mut [u8], parts: &[FieldPlace], value: &str) -> Result<()> {
    let first = parts.first().context("no such field")?;
    if first.is_text {
        let room = raw.get_mut(first.offset..first.offset + first.len);
        let room = room.context("no such field")?;
        ensure!(
            value.len() <= room.len(),
            "{value}: longer than {} bytes",
            room.len()
        );
        room.fill(0);
        for (to, from) in room.iter_mut().zip(value.bytes()) {
            *to = from;
        }
        return Ok(());
    }
    let is_bytes = first.len > 8;
    let mut bytes = if is_bytes {
        uuid::Uuid::parse_str(value)?.as_bytes().to_vec()
    } else if first.is_time {
        fields::time(value)?.to_le_bytes().to_vec()
    } else {
        long_number(value)
            .map_err(|e| anyhow!(e))?
            .to_le_bytes()
            .to_vec()
    };
    let len: usize = parts.iter().map(|part| part.len).sum();
    let fits = bytes.iter().skip(len).all(|&b| b == 0) || first.is_time;
    ensure!(fits, "{value}: more than {} bits", len * 8);
    bytes.resize(len, 0);
    let mut rest = &bytes[..];
    for part in parts {
        let (now, later) = rest.split_at_checked(part.len).unwrap_or((rest, &[]));
        rest = later;
        let room = raw.get_mut(part.offset..part.offset + part.len);
        let room = room.context("inodes of this size have no such field")?;
        room.copy_from_slice(now);
    }
    Ok(())
}

fn number(word: &[u8]) -> Result<u64> {
    long_number(text(word)?).map_err(|e| anyhow!(e))
}

impl<'d> Bytes<'d> {
    pub fn of(dev: &'d dyn BlockDevice) -> Result<Self> {
        let sb = listing::superblock(dev)?;
        let geo = Geometry::new(&sb)?;
        let descs = Vec::new();
        Ok(Self(Image {
            dev,
            sb,
            geo,
            descs,
        }))
    }

    /// Returns the inode of a path or number.
    pub fn find(&self, at: &[u8], word: &[u8]) -> Result<InodeNr> {
        let inspector = Inspector::open(self.dev, false)?;
        let path = path_from(at, word);
        let request = Request::new(vec![b"imap".to_vec(), path])?;
        let mut found = None;
        let asked = inspector.answer(&request, &mut |record| {
            if let Some((_, Value::Number(ino))) = record.fields.iter().find(|f| f.0 == "inode") {
                found = u32::try_from(*ino).ok();
            }
            Ok(())
        });
        let missing = || anyhow!("{}: File not found by ext2_lookup ", show(word));
        asked.map_err(|_| missing())?;
        found.map(InodeNr).ok_or_else(missing)
    }

    pub fn descriptor(&self, group: GroupNr) -> Result<(u64, Vec<u8>, GroupDesc)> {
        ensure!(group.0 < self.geo.groups, "there is no group {group}");
        let (block, offset) = self.geo.desc_location(group);
        let at = block.offset(self.geo.block_size) + u64::from(offset);
        let raw = self.descriptor_bytes(group)?;
        let desc = GroupDesc::decode_unchecked(&raw).context("no descriptor")?;
        Ok((at, raw, desc))
    }

    fn write_descriptor(&self, group: GroupNr, desc: &GroupDesc) -> Result<()> {
        let (at, mut raw, _) = self.descriptor(group)?;
        desc.encode(&mut raw, &self.geo, group)?;
        Ok(self.dev.write_at(at, &raw)?)
    }

    /// Returns the offset and the bytes of an inode.
    pub fn record(&self, ino: InodeNr) -> Result<(u64, Vec<u8>)> {
        let place = self.geo.group_of_inode(ino);
        let (group, index) = place.with_context(|| format!("there is no inode {ino}"))?;
        let (_, _, desc) = self.descriptor(group)?;
        let (block, at) = self.geo.inode_place(desc.inode_table, index);
        let at = block.offset(self.geo.block_size) + at as u64;
        let mut raw = vec![0; self.geo.inode_size.into()];
        self.dev.read_at(at, &mut raw)?;
        Ok((at, raw))
    }

    pub fn write_record(&self, ino: InodeNr, mut raw: Vec<u8>, sums: bool) -> Result<()> {
        let (at, _) = self.record(ino)?;
        if sums {
            inode::set_checksum(&mut raw, &self.geo, ino);
        }
        Ok(self.dev.write_at(at, &raw)?)
    }

    /// Replaces the first 128 bytes of an inode; extra fields and attributes stay.
    fn set_first_part(&self, ino: InodeNr, part: &[u8; FIRST_PART]) -> Result<()> {
        let (_, mut raw) = self.record(ino)?;
        let first = raw.first_chunk_mut().context("inodes have 128 bytes")?;
        *first = *part;
        self.write_record(ino, raw, true)
    }

    pub fn write_superblock(&mut self, sums: bool) -> Result<()> {
        if sums {
            self.sb.set_checksum();
        }
        Ok(self.dev.write_at(SUPERBLOCK_OFFSET, self.sb.bytes())?)
    }

    pub fn map(&self, desc: &GroupDesc, group: GroupNr, inodes: bool) -> Result<Vec<u8>> {
        Ok(if inodes {
            self.inode_bitmap(desc)?
        } else {
            self.block_bitmap(group, desc)?
        })
    }

    /// Sets or clears a bit of a bitmap.
    fn mark(&self, group: GroupNr, bit: u32, inodes: bool, used: bool) -> Result<()> {
        let (_, _, desc) = self.descriptor(group)?;
        self.mark_all(group, desc, &[bit], inodes, used)
    }

    /// Sets or clears bits of a bitmap, and writes the descriptor of its group.
    fn mark_all(
        &self,
        group: GroupNr,
        mut desc: GroupDesc,
        bits: &[u32],
        inodes: bool,
        used: bool,
    ) -> Result<()> {
        let mut map = self.map(&desc, group, inodes)?;
        for &bit in bits {
            if used {
                bitmap::set(&mut map, bit)
            } else {
                bitmap::clear(&mut map, bit)
            };
        }
        let block = if inodes {
            desc.flags &= !INODE_UNINIT;
            desc.inode_bitmap_csum = bitmap::inode_bitmap_csum(&map, &self.geo).unwrap_or(0);
            desc.inode_bitmap
        } else {
            desc.flags &= !BLOCK_UNINIT;
            desc.block_bitmap_csum = bitmap::block_bitmap_csum(&map, &self.geo).unwrap_or(0);
            desc.block_bitmap
        };
        let at = block.offset(self.geo.block_size);
        self.dev.write_at(at, &map)?;
        self.write_descriptor(group, &desc)
    }

    fn mark_inode(&self, ino: InodeNr, used: bool) -> Result<()> {
        let place = self.geo.group_of_inode(ino);
        let (group, bit) = place.with_context(|| format!("there is no inode {ino}"))?;
        self.mark(group, bit, true, used)
    }

    /// Returns true if the block bitmap marks a block as used.
    pub fn is_used(&self, block: BlockNr) -> Result<bool> {
        let place = self.geo.group_of_block(block);
        let (group, bit) = place.with_context(|| format!("there is no block {block}"))?;
        let (_, _, desc) = self.descriptor(group)?;
        Ok(bitmap::test(&self.map(&desc, group, false)?, bit))
    }

    /// Returns true if the inode bitmap marks an inode as used.
    pub fn is_inode_used(&self, ino: InodeNr) -> Result<bool> {
        let place = self.geo.group_of_inode(ino);
        let (group, bit) = place.with_context(|| format!("there is no inode {ino}"))?;
        let (_, _, desc) = self.descriptor(group)?;
        Ok(bitmap::test(&self.map(&desc, group, true)?, bit))
    }

    /// Marks an inode and its blocks as used or free, and updates the counts in the group descriptors and the superblock.
    /// Before the call, all of them must be in the opposite state.
    pub fn set_use(
        &mut self,
        ino: InodeNr,
        blocks: &[BlockNr],
        is_dir: bool,
        used: bool,
    ) -> Result<()> {
        let mut clusters = std::collections::BTreeSet::new();
        for &block in blocks {
            let place = self.geo.group_of_block(block);
            clusters.insert(place.with_context(|| format!("there is no block {block}"))?);
        }
        let added = |count: u32, n: u32| {
            if used {
                count.saturating_sub(n)
            } else {
                count.saturating_add(n)
            }
        };
        let clusters: Vec<(GroupNr, u32)> = clusters.into_iter().collect();
        for of_group in clusters.chunk_by(|a, b| a.0 == b.0) {
            let bits: Vec<u32> = of_group.iter().map(|(_, bit)| *bit).collect();
            let Some(&(group, _)) = of_group.first() else {
                continue;
            };
            let (_, _, mut desc) = self.descriptor(group)?;
            desc.free_blocks = added(desc.free_blocks, bits.len() as u32); // bits of a group
            self.mark_all(group, desc, &bits, false, used)?;
        }
        let place = self.geo.group_of_inode(ino);
        let (group, bit) = place.with_context(|| format!("there is no inode {ino}"))?;
        let (_, _, mut desc) = self.descriptor(group)?;
        desc.free_inodes = added(desc.free_inodes, 1);
        if is_dir && used {
            desc.used_dirs = desc.used_dirs.saturating_add(1);
        } else if is_dir {
            desc.used_dirs = desc.used_dirs.saturating_sub(1);
        }
        self.mark_all(group, desc, &[bit], true, used)?;
        // The superblock counts blocks, and descriptors clusters.
        let count = clusters.len() as u64 * u64::from(self.geo.cluster_ratio);
        let free = self.sb.free_blocks();
        self.sb.set_free_blocks(if used {
            free.saturating_sub(count)
        } else {
            free.saturating_add(count)
        });
        let inodes = added(self.sb.free_inodes_count.get(), 1);
        self.sb.free_inodes_count.set(inodes);
        self.write_superblock(true)
    }

    fn mark_block(&self, block: BlockNr, used: bool) -> Result<()> {
        let place = self.geo.group_of_block(block);
        let (group, bit) = place.with_context(|| format!("there is no block {block}"))?;
        self.mark(group, bit, false, used)
    }

    /// Runs `set_bg GROUP FIELD VALUE`.
    fn set_group(&self, group: &[u8], field: &[u8], value: &[u8]) -> Result<()> {
        let group = GroupNr(u32::try_from(number(group)?)?);
        let (at, mut raw, _) = self.descriptor(group)?;
        let (field, value) = (text(field)?, text(value)?);
        let of = |name: &str| field_place(Structure::Descriptor, name);
        let name = format!("bg_{field}");
        let low = of(&format!("{name}_lo")).or_else(|| of(&name));
        let high = of(&format!("{name}_hi")).filter(|place| place.offset + place.len <= raw.len());
        let parts: Vec<FieldPlace> = low.into_iter().chain(high).collect();
        ensure!(!parts.is_empty(), "invalid field specifier: {field}");
        if value != "calc" {
            put(&mut raw, &parts, value)?;
            if field == "checksum" {
                return Ok(self.dev.write_at(at, &raw)?);
            }
        }
        let desc = GroupDesc::decode_unchecked(&raw).context("no descriptor")?;
        desc.encode(&mut raw, &self.geo, group)?;
        Ok(self.dev.write_at(at, &raw)?)
    }

    /// Runs `zap_block [-f FILE] [-o OFFSET] [-l LENGTH] [-p PATTERN] BLOCK`.
    fn zap(&self, at: &[u8], words: &[&[u8]]) -> Result<()> {
        let (mut file, mut offset, mut len, mut pattern, mut block) = (None, 0, None, 0, None);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().copied().context("an option lacks its value");
            match *word {
                b"-f" => file = Some(value()?),
                b"-o" => offset = number(value()?)?,
                b"-l" => len = Some(number(value()?)?),
                b"-p" => pattern = u8::try_from(number(value()?)?)?,
                word => block = Some(number(word)?),
            }
        }
        let mut block = block
            .context("usage: zap_block [-f file] [-o offset] [-l length] [-p pattern] block_num")?;
        let size = u64::from(self.geo.block_size);
        let len = len.unwrap_or_else(|| size.saturating_sub(offset));
        ensure!(
            offset.saturating_add(len) <= size,
            "the offset or length is beyond the block"
        );
        if let Some(file) = file {
            let ino = self.find(at, file)?;
            let inspector = Inspector::open(self.dev, false)?;
            let words = ["bmap".to_owned(), format!("<{ino}>"), block.to_string()];
            let request = Request::new(words.map(String::into_bytes).to_vec())?;
            let mut found = None;
            inspector.answer(&request, &mut |record| {
                if let Some((_, Value::Number(n))) = record.fields.iter().find(|f| f.0 == "block") {
                    found = Some(*n);
                }
                Ok(())
            })?;
            block = found.with_context(|| {
                format!("{}: block {block} is a hole", host_path(file).display())
            })?;
        }
        ensure!(block < self.geo.blocks_count, "there is no block {block}");
        let bytes = vec![pattern; usize::try_from(len)?];
        Ok(self.dev.write_at(block * size + offset, &bytes)?)
    }
}

/// Returns whether an inode is in use by its bitmap.
pub(super) fn inode_in_use(image: &Path, ino: u32) -> Result<bool> {
    let device = images::device(image)?;
    Bytes::of(&device)?.is_inode_used(InodeNr(ino))
}

/// Returns free blocks from a goal on, and then from the start of the volume.
pub(super) fn free_blocks(image: &Path, goal: u64, count: u64) -> Result<Vec<u64>> {
    let device = images::device(image)?;
    let bytes = Bytes::of(&device)?;
    let (mut found, mut behind) = (Vec::new(), Vec::new());
    for group in (0..bytes.geo.groups).map(GroupNr) {
        let (_, _, desc) = bytes.descriptor(group)?;
        let map = bytes.map(&desc, group, false)?;
        let (first, bits) = (
            bytes.geo.group_first_block(group).0,
            bytes.geo.bits_in_group(group),
        );
        let mut bit = 0;
        while let Some(free) = bitmap::find_zero(&map, bit, bits) {
            bit = free + 1;
            let block = first + u64::from(free) * u64::from(bytes.geo.cluster_ratio);
            let list = if block >= goal {
                &mut found
            } else {
                &mut behind
            };
            if (list.len() as u64) < count {
                list.push(block);
            }
            if found.len() as u64 >= count {
                return Ok(found);
            }
        }
    }
    let left = usize::try_from(count)
        .unwrap_or(usize::MAX)
        .saturating_sub(found.len());
    found.extend(behind.into_iter().take(left));
    Ok(found)
}

/// Returns the first free inode that is not reserved, from the group of a directory on.
pub(super) fn free_inode(image: &Path, dir: u32) -> Result<Option<u32>> {
    let device = images::device(image)?;
    let bytes = Bytes::of(&device)?;
    let Some((first, _)) = bytes.geo.group_of_inode(InodeNr(dir)) else {
        return Ok(None);
    };
    let groups = bytes.geo.groups;
    for group in (first.0..groups).chain(0..first.0).map(GroupNr) {
        let (_, _, desc) = bytes.descriptor(group)?;
        let map = bytes.map(&desc, group, true)?;
        let reserved = bytes.geo.reserved_inodes(group);
        let free = bitmap::find_zero(&map, reserved, bytes.geo.inodes_per_group);
        if let Some(bit) = free {
            return Ok(Some(bytes.geo.inode_nr(group, bit).0));
        }
    }
    Ok(None)
}

/// Returns the checksum of a group's descriptor, as it is stored.
pub(super) fn descriptor_checksum(device: &dyn BlockDevice, group: u64) -> Result<u16> {
    let (_, raw, _) = Bytes::of(device)?.descriptor(GroupNr(u32::try_from(group)?))?;
    let place = field_place(Structure::Descriptor, "bg_checksum").context("no such field")?;
    let sum = raw.get(place.offset..).and_then(<[u8]>::first_chunk);
    Ok(sum.map_or(0, |sum| u16::from_le_bytes(*sum)))
}

//! Decodes a block by its role: each field with its offset, and each checksum verified.

use super::fields::{self, Part, field};
use super::inode::Inode;
use super::names::index_kind;
use super::owners::Role;
use super::record::{Record, Value, judge};
use super::{Answered, Inspector, Sink};
use ext4_format::extent::{self, ExtentHeader};
use ext4_format::group_desc::GroupDesc;
use ext4_format::htree::IndexBlockKind;
use ext4_format::inode::flags;
use ext4_format::jbd2::{self, BlockType};
use ext4_format::superblock::SUPERBLOCK_OFFSET;
use ext4_format::{
    BlockNr, FormatError, GroupNr, InodeNr, bitmap, dir_entry, indirect, orphan_file, xattr,
};
use std::collections::BTreeSet;
use std::io;

/// Bytes in a row of a block without known structure.
const ROW: usize = 32;

impl Inspector<'_> {
    pub(super) fn dump_block(&self, block: u64, sink: &mut Sink<'_>) -> Answered {
        let bytes = self.block(BlockNr(block))?;
        let mut role = self.fixed_role(BlockNr(block));
        if role.is_none() {
            self.owners(&BTreeSet::from([block]), &mut |_, found| {
                role = Some(found);
                false
            });
        }
        let (what, ino, logical) = match role {
            Some(role @ Role::Data(ino, logical)) => (role.text(), Some(ino.0), Some(logical)),
            Some(role @ (Role::Node(ino) | Role::Attributes(ino))) => {
                (role.text(), Some(ino.0), None)
            }
            Some(role) => (role.text(), None, None),
            None => ("of no inode", None, None),
        };
        let fields = vec![
            ("block", block.into()),
            ("what", Value::text(what)),
            ("inode", Value::number(ino)),
            ("logical", Value::number(logical)),
        ];
        sink(Record::lines("block", fields))?;
        self.decode_block(BlockNr(block), role, &bytes, sink)
    }

    fn decode_block(
        &self,
        block: BlockNr,
        role: Option<Role>,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Answered {
        match role {
            Some(Role::Superblock) => {
                let is_primary = block.0 == SUPERBLOCK_OFFSET / bytes.len() as u64;
                let at = if is_primary {
                    SUPERBLOCK_OFFSET as usize % bytes.len()
                } else {
                    0
                };
                self.superblock_fields(bytes.get(at..at + 1024).unwrap_or(&[]), at, sink)
            }
            Some(Role::Descriptors(first)) => self.descriptors(first, bytes, sink),
            Some(Role::BlockBitmap(group)) => {
                let (desc, _) = self.descriptor(group)?;
                let judged = bitmap::verify_block_bitmap(bytes, &desc, &self.volume.geo, group);
                let bits = self.volume.geo.bits_in_group(group);
                Ok(self.bits(bytes, bits, ("block bitmap", judged), sink)?)
            }
            Some(Role::InodeBitmap(group)) => {
                let (desc, _) = self.descriptor(group)?;
                let judged = bitmap::verify_inode_bitmap(bytes, &desc, &self.volume.geo, group);
                let bits = self.volume.geo.inodes_per_group;
                Ok(self.bits(bytes, bits, ("inode bitmap", judged), sink)?)
            }
            Some(Role::Inodes(group, first)) => self.inodes(group, first, bytes, sink),
            Some(Role::MultipleMount) => {
                Part::of(bytes, 0).send(fields::MMP, sink)?;
                Ok(())
            }
            Some(Role::Attributes(_)) => Ok(self.attributes(block, bytes, sink)?),
            Some(Role::Node(ino)) => {
                let inode = self.inode(ino)?;
                if inode.has(flags::EXTENTS) {
                    Ok(self.extent_node(&inode, bytes, sink)?)
                } else {
                    Ok(self.addresses(bytes, sink)?)
                }
            }
            Some(Role::Data(ino, logical)) => self.data(ino, logical, block, bytes, sink),
            Some(Role::ReservedDescriptors) | None => Ok(rows(bytes, sink)?),
        }
    }

    fn descriptors(&self, first: GroupNr, bytes: &[u8], sink: &mut Sink<'_>) -> Answered {
        let geo = &self.volume.geo;
        let size = usize::from(geo.desc_size);
        for (i, raw) in bytes.chunks_exact(size).enumerate() {
            let group = GroupNr(first.0.saturating_add(i as u32));
            if group.0 >= geo.groups {
                break;
            }
            let part = Part {
                bytes: raw,
                at: i * size,
                big_endian: false,
            };
            part.send(fields::DESCRIPTOR, sink)?;
            let judged = GroupDesc::decode(raw, geo, group).map(|_| ());
            judge(&format!("descriptor of group {group}"), Some(judged), sink)?;
        }
        Ok(())
    }

    /// Sends the runs of equal bits of a bitmap.
    fn bits(
        &self,
        map: &[u8],
        bits: u32,
        (of, judged): (&str, Result<(), FormatError>),
        sink: &mut Sink<'_>,
    ) -> io::Result<()> {
        let (mut at, bits) = (0, bits.min(map.len().saturating_mul(8) as u32));
        while at < bits {
            let in_use = bitmap::test(map, at);
            let next = if in_use {
                bitmap::find_zero(map, at, bits)
            } else {
                bitmap::find_one(map, at, bits)
            };
            let end = next.unwrap_or(bits);
            let fields = vec![
                ("first_bit", at.into()),
                ("bits", (end - at).into()),
                ("in_use", Value::Is(in_use)),
            ];
            sink(Record::row("bits", fields))?;
            at = end;
        }
        self.judge(of, judged, sink)
    }

    fn inodes(&self, group: GroupNr, first: u32, bytes: &[u8], sink: &mut Sink<'_>) -> Answered {
        let geo = &self.volume.geo;
        let size = usize::from(geo.inode_size);
        for (i, raw) in bytes.chunks_exact(size).enumerate() {
            let index = first.saturating_add(i as u32);
            if index >= geo.inodes_per_group || blockdev::is_zero(raw) {
                continue;
            }
            let ino = geo.inode_nr(group, index);
            let at = i * size;
            let start = vec![
                ("inode", ino.0.into()),
                ("offset", Value::Number(at as u64)),
            ];
            sink(Record::lines("inode-record", start))?;
            self.inode_fields(&self.decode(ino, raw), at, sink)?;
        }
        Ok(())
    }

    fn extent_node(&self, inode: &Inode, bytes: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        let mut at = Part::of(bytes, 0).send(fields::EXTENT_HEADER, sink)?;
        match ExtentHeader::parse(bytes) {
            Err(e) => sink(Record::problem(e.to_string()))?,
            Ok(header) => {
                let entry = match header.depth {
                    0 => fields::EXTENT,
                    _ => fields::EXTENT_INDEX,
                };
                let tail = at + usize::from(header.max) * 12;
                for _ in 0..header.entries {
                    at += Part::of(bytes, at).send(entry, sink)?;
                }
                if self.seed(inode).is_some() {
                    Part::of(bytes, tail).send(fields::EXTENT_TAIL, sink)?;
                }
            }
        }
        let judged = self
            .seed(inode)
            .map(|seed| extent::verify_tail(bytes, seed));
        judge("extent node", judged, sink)
    }

    /// Sends the numbers of a block of a block map that are not 0.
    fn addresses(&self, bytes: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        for i in 0..indirect::per_block(bytes.len() as u32) {
            let at = i as usize * 4;
            match indirect::get(bytes, i, self.volume.geo.blocks_count) {
                Ok(None) => {}
                Ok(Some(nr)) => sink(field(at, 4, format!("block[{i}]"), nr.0.into()))?,
                Err(e) => {
                    Part::of(bytes, at).send("block:4", sink)?;
                    sink(Record::problem(e.to_string()))?;
                }
            }
        }
        Ok(())
    }

    fn attributes(&self, block: BlockNr, bytes: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        let mut at = Part::of(bytes, 0).send(fields::ATTRIBUTES, sink)?;
        while let Some(&[a, b, c, d]) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
            if [a, b, c, d] == [0; 4] {
                break;
            }
            at += Part::of(bytes, at).send(fields::ATTRIBUTE, sink)?;
            let Some(name) = bytes.get(at..at + usize::from(a)) else {
                break;
            };
            sink(field(at, name.len(), "e_name", Value::Name(name.to_vec())))?;
            at += name.len().next_multiple_of(4);
        }
        let walked = xattr::walk_block(bytes, |_, _, _| Ok(()));
        if let Err(e) = walked {
            sink(Record::problem(e.to_string()))?;
        }
        let geo = &self.volume.geo;
        let judged = xattr::verify_checksum(bytes, geo.csum_seed, block);
        self.judge("extended attributes", judged, sink)
    }

    /// Sends a block of an inode's data: of a directory, the journal, the orphan file, or another file.
    fn data(
        &self,
        ino: InodeNr,
        logical: u64,
        block: BlockNr,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Answered {
        let inode = self.inode(ino)?;
        let geo = &self.volume.geo;
        if inode.is_directory() {
            return Ok(self.directory_block(&inode, logical, bytes, sink)?);
        }
        if geo.features.has_journal() && ino.0 == geo.journal_ino {
            return Ok(self.journal_block(bytes, sink)?);
        }
        if geo.features.has_orphan_file() && ino.0 == geo.orphan_file_ino {
            for (slot, orphan) in orphan_file::orphans(bytes) {
                let name = format!("ob_free[{slot}]");
                sink(field(slot * 4, 4, name, orphan.0.into()))?;
            }
            let tail = orphan_file::slots(bytes.len()) * 4;
            Part::of(bytes, tail).send(fields::ORPHAN_TAIL, sink)?;
            let judged = orphan_file::verify(bytes, self.seed(&inode), block);
            return Ok(judge("orphan file", Some(judged), sink)?);
        }
        Ok(rows(bytes, sink)?)
    }

    fn directory_block(
        &self,
        directory: &Inode,
        logical: u64,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> io::Result<()> {
        let kind = index_kind(directory, logical, bytes);
        let has_sum = self.seed(directory).is_some();
        match kind {
            Some(kind) => index_fields(kind, has_sum, bytes, sink)?,
            None => {
                let usable = dir_entry::usable(bytes.len(), has_sum);
                let mut at = 0;
                while at < usable {
                    let head = Part::of(bytes, at).send(fields::ENTRY, sink)?;
                    let Some(&[_, _, _, _, low, high, name, _]) =
                        bytes.get(at..).and_then(<[u8]>::first_chunk)
                    else {
                        break;
                    };
                    let name = bytes.get(at + head..at + head + usize::from(name));
                    let name = name.unwrap_or(&[]);
                    sink(field(
                        at + head,
                        name.len(),
                        "name",
                        Value::Name(name.to_vec()),
                    ))?;
                    let rec_len = u16::from_le_bytes([low, high]);
                    let len = dir_entry::decode_rec_len(rec_len, bytes.len());
                    if len < dir_entry::MIN_REC_LEN {
                        sink(Record::problem(format!(
                            "offset {at}: a record of {len} bytes"
                        )))?;
                        break;
                    }
                    at += len;
                }
                if has_sum {
                    Part::of(bytes, usable).send(fields::ENTRY_TAIL, sink)?;
                }
            }
        }
        let judged = self.judge_entries(directory, kind, bytes);
        judge("directory block", judged, sink)
    }

    fn journal_block(&self, bytes: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
        let Some((kind, _)) = jbd2::header(bytes) else {
            let text = "no block of the journal's own: an image of another block, or never written";
            sink(Record::note(text))?;
            return rows(bytes, sink);
        };
        let part = Part::of(bytes, 0).big_endian();
        let format = self.journal_format();
        match kind {
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => {
                part.send(fields::JOURNAL_SUPERBLOCK, sink)?;
            }
            BlockType::Commit => {
                part.send(fields::JOURNAL_COMMIT, sink)?;
            }
            BlockType::Descriptor => {
                part.send(fields::JOURNAL_HEADER, sink)?;
                let tags = format.as_ref().and_then(|format| format.tags(bytes).ok());
                for tag in tags.unwrap_or_default() {
                    let fields = vec![
                        ("home", tag.home.0.into()),
                        ("flags", Value::Hex(tag.flags.bits().into())),
                        ("checksum", Value::Hex(tag.checksum.into())),
                    ];
                    sink(Record::row("tag", fields))?;
                }
            }
            BlockType::Revoke => {
                part.send(fields::JOURNAL_REVOKE, sink)?;
                let homes = format
                    .as_ref()
                    .and_then(|format| format.revokes(bytes).ok());
                for home in homes.into_iter().flatten() {
                    sink(Record::row("revoke", vec![("home", home.0.into())]))?;
                }
            }
        }
        match format.map(|format| super::journal::judge(&format, kind, bytes)) {
            Some(judged) => judge("journal block", judged, sink),
            None => sink(Record::problem("the journal's superblock cannot be read")),
        }
    }

    /// Returns the format of the journal's blocks, if its superblock is readable.
    fn journal_format(&self) -> Option<jbd2::Format> {
        let ino = InodeNr(self.volume.geo.journal_ino);
        let inode = self.inode(ino).ok()?;
        let first = self.block(self.mapped(&inode, 0)?).ok()?;
        Some(jbd2::Superblock::parse(&first).ok()?.format())
    }
}

/// Sends the fields of a block of a directory's index.
fn index_fields(
    kind: IndexBlockKind,
    has_sum: bool,
    bytes: &[u8],
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    let head = match kind {
        IndexBlockKind::Root => fields::INDEX_ROOT,
        IndexBlockKind::Node => fields::ENTRY,
    };
    let start = Part::of(bytes, 0).send(head, sink)?;
    let counts = bytes.get(start..).and_then(<[u8]>::first_chunk);
    let counts: &[u8; 4] = counts.unwrap_or(&[0; 4]);
    let limit = usize::from(u16::from_le_bytes([counts[0], counts[1]]));
    let count = usize::from(u16::from_le_bytes([counts[2], counts[3]]));
    let mut at = start + Part::of(bytes, start).send(fields::INDEX_FIRST, sink)?;
    for _ in 1..count {
        match Part::of(bytes, at).send(fields::INDEX_ENTRY, sink)? {
            0 => break,
            len => at += len,
        }
    }
    if has_sum {
        Part::of(bytes, start + limit * 8).send(fields::INDEX_TAIL, sink)?;
    }
    Ok(())
}

/// Sends bytes without a known structure, except rows of zeros.
fn rows(bytes: &[u8], sink: &mut Sink<'_>) -> io::Result<()> {
    for (i, row) in bytes.chunks(ROW).enumerate() {
        if row.iter().any(|&b| b != 0) {
            let fields = vec![
                ("offset", Value::Number((i * ROW) as u64)),
                ("bytes", Value::Bytes(row.to_vec())),
            ];
            sink(Record::row("bytes", fields))?;
        }
    }
    Ok(())
}

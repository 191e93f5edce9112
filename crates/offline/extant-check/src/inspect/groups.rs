//! The superblock, the groups and their bitmaps.

use super::fields::{self, Part};
use super::record::{Record, Value};
use super::{Answered, InspectError, Inspector, Sink};
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use ext4_format::{BlockNr, FormatError, GroupNr, Where, bitmap};

impl Inspector<'_> {
    pub(super) fn superblock(&self, sink: &mut Sink<'_>) -> Answered {
        let (sb, geo) = (&self.volume.sb, &self.volume.geo);
        let mut uuid = String::new();
        for (i, byte) in geo.uuid.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                uuid.push('-');
            }
            uuid += &format!("{byte:02x}");
        }
        let fields = vec![
            ("label", Value::Name(sb.label().to_vec())),
            ("uuid", Value::Text(uuid)),
            ("features", Value::Text(geo.features.names().join(" "))),
            ("blocks", geo.blocks_count.into()),
            ("free_blocks", sb.free_blocks().into()),
            ("reserved_blocks", geo.reserved_blocks.into()),
            ("block_size", geo.block_size.into()),
            ("cluster_blocks", geo.cluster_ratio.into()),
            ("inodes", geo.inodes_count.into()),
            ("free_inodes", sb.free_inodes_count.get().into()),
            ("inode_size", u32::from(geo.inode_size).into()),
            ("groups", geo.groups.into()),
        ];
        sink(Record::lines("superblock", fields))?;
        let block = SUPERBLOCK_OFFSET / u64::from(geo.block_size);
        let within = SUPERBLOCK_OFFSET as usize % self.volume.block_size();
        let bytes = self.block(BlockNr(block))?;
        self.superblock_fields(bytes.get(within..).unwrap_or(&[]), within, sink)
    }

    /// Sends the fields of a superblock at `at` of its block.
    pub(super) fn superblock_fields(
        &self,
        bytes: &[u8],
        at: usize,
        sink: &mut Sink<'_>,
    ) -> Answered {
        let part = Part {
            at,
            ..Part::of(bytes, 0)
        };
        part.send(fields::SUPERBLOCK, sink)?;
        let verified = RawSuperblock::parse(bytes).map(|_| ());
        Ok(self.judge("superblock", verified, sink)?)
    }

    pub(super) fn groups(&self, sink: &mut Sink<'_>) -> Answered {
        let geo = &self.volume.geo;
        for group in (0..geo.groups).map(GroupNr) {
            let (desc, kept) = match self.descriptor(group) {
                Ok(found) => found,
                Err(InspectError::Output(e)) => return Err(e.into()),
                Err(e) => {
                    sink(Record::problem(format!("group {group}: {e}")))?;
                    continue;
                }
            };
            let first = geo.group_first_block(group).0;
            let end = first.saturating_add(geo.blocks_in_group(group).into());
            let fields = vec![
                ("group", group.0.into()),
                ("first", first.into()),
                ("last", end.saturating_sub(1).into()),
                ("block_bitmap", desc.block_bitmap.0.into()),
                ("inode_bitmap", desc.inode_bitmap.0.into()),
                ("inode_table", desc.inode_table.0.into()),
                ("free_blocks", desc.free_blocks.into()),
                ("free_inodes", desc.free_inodes.into()),
                ("directories", desc.used_dirs.into()),
                ("unused_inodes", desc.itable_unused.into()),
                ("flags", Value::Hex(desc.flags.into())),
            ];
            sink(Record::row("group", fields))?;
            let judged = [
                kept,
                self.judge_block_bitmap(group, &desc),
                self.judge_inode_bitmap(group, &desc),
            ];
            for error in judged.into_iter().filter_map(Result::err) {
                sink(Record::problem(format!("group {group}: {error}")))?;
            }
        }
        Ok(())
    }

    fn judge_block_bitmap(&self, group: GroupNr, desc: &GroupDesc) -> Result<(), FormatError> {
        if desc.is_uninit(&self.volume.geo, BLOCK_UNINIT) {
            return Ok(());
        }
        let map = self.bitmap_block(desc.block_bitmap, group)?;
        bitmap::verify_block_bitmap(&map, desc, &self.volume.geo, group)
    }

    fn judge_inode_bitmap(&self, group: GroupNr, desc: &GroupDesc) -> Result<(), FormatError> {
        if desc.is_uninit(&self.volume.geo, INODE_UNINIT) {
            return Ok(());
        }
        let map = self.bitmap_block(desc.inode_bitmap, group)?;
        bitmap::verify_inode_bitmap(&map, desc, &self.volume.geo, group)
    }

    fn bitmap_block(&self, block: BlockNr, group: GroupNr) -> Result<Vec<u8>, FormatError> {
        let unreadable =
            |_| FormatError::corrupt("a bitmap that cannot be read", Where::Group(group));
        self.block(block).map_err(unreadable)
    }

    /// Returns the block bitmap of a group, as stored or, if it was never written, as implied.
    pub(super) fn block_bitmap(&self, group: GroupNr) -> Result<Vec<u8>, InspectError> {
        let (desc, _) = self.descriptor(group)?;
        if !desc.is_uninit(&self.volume.geo, BLOCK_UNINIT) {
            return self.block(desc.block_bitmap);
        }
        let map = self.volume.block_bitmap(group, &desc);
        map.map_err(|e| InspectError::Missing(e.to_string()))
    }

    pub(super) fn testb(&self, first: u64, count: u64, sink: &mut Sink<'_>) -> Answered {
        let geo = &self.volume.geo;
        let end = first.saturating_add(count);
        if first >= geo.blocks_count {
            return Err(InspectError::Missing(format!("there is no block {first}")));
        }
        let mut known: Option<(GroupNr, Vec<u8>)> = None;
        for block in first..end.min(geo.blocks_count) {
            let Some((group, bit)) = geo.group_of_block(BlockNr(block)) else {
                sink(Record::note("before the first group there is no bitmap"))?;
                continue;
            };
            let map = match known.take_if(|(of, _)| *of == group) {
                Some((_, map)) => map,
                None => self.block_bitmap(group)?,
            };
            let fields = vec![
                ("block", block.into()),
                ("in_use", Value::Is(bitmap::test(&map, bit))),
            ];
            known = Some((group, map));
            sink(Record::row("bit", fields))?;
        }
        Ok(())
    }
}

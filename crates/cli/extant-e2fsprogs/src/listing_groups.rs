//! The block groups in the layout of `dumpe2fs`.

use anyhow::{Context, Result};
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::GroupDesc;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use ext4_format::{BlockNr, GroupNr, bitmap};
use ext4_image::Image;
use extant_cli_core::format::superblock::group_flags;
use std::fmt::Write;

/// The format of a listing.
#[derive(Clone, Copy, Default)]
pub(super) struct Manner {
    /// Numbers of blocks and inodes are hexadecimal.
    pub hex: bool,
    /// Only the groups, as numbers separated by colons.
    pub colons: bool,
    /// Block and block size of a backup superblock to read instead of the first superblock.
    pub copy: Option<(u64, u64)>,
}

/// Offset of the checksum in a descriptor.
const CHECKSUM_AT: usize = 0x1e;

/// A group of a device.
struct ListedGroup<'d> {
    image: &'d Image<&'d dyn BlockDevice>,
    geo: &'d Geometry,
    nr: GroupNr,
    desc: GroupDesc,
    checksum: u16,
    hex: bool,
}

/// The descriptor blocks in a group.
enum Descriptors {
    Nowhere,
    /// A block of `meta_bg` descriptors.
    Block(u64),
    /// The first and the last descriptor block.
    Blocks(u64, u64),
}

/// Adds the lines of all groups.
pub(super) fn add(
    device: &dyn BlockDevice,
    sb: &RawSuperblock,
    manner: Manner,
    out: &mut String,
) -> Result<()> {
    if manner.colons {
        out.push_str("\ngroup:block:super:gdt:bbitmap:ibitmap:itable\n");
    }
    let geo = Geometry::new(sb)?;
    let image = Image {
        dev: device,
        sb: *sb,
        geo: geo.clone(),
        descs: Vec::new(),
    };
    let mut block = vec![0; geo.block_size as usize];
    for index in 0..geo.gdt_block_count() {
        let at = match manner.copy {
            // The copy of the superblock is followed by a copy of the descriptors.
            Some((copy, _)) if !geo.features.has_meta_bg() => {
                BlockNr(copy.saturating_add(1 + u64::from(index)))
            }
            _ => geo.gdt_block(index),
        };
        device.read_at(at.offset(geo.block_size), &mut block)?;
        let first = index * geo.descs_per_block();
        let end = first.saturating_add(geo.descs_per_block()).min(geo.groups);
        let records = block.chunks_exact(geo.desc_size.into());
        for (raw, nr) in records.zip((first..end).map(GroupNr)) {
            let desc = GroupDesc::decode(raw, &geo, nr).with_context(|| format!("group {nr}"))?;
            let stored = raw.get(CHECKSUM_AT..).and_then(<[u8]>::first_chunk);
            let group = ListedGroup {
                image: &image,
                geo: &geo,
                nr,
                desc,
                hex: manner.hex,
                checksum: stored.map_or(0, |bytes| u16::from_le_bytes(*bytes)),
            };
            if manner.colons {
                group.colons(out)?
            } else {
                group.tell(out)?
            }
        }
    }
    Ok(())
}

impl ListedGroup<'_> {
    fn first(&self) -> u64 {
        self.geo.group_first_block(self.nr).0
    }

    fn is_summed(&self) -> bool {
        self.geo.features.has_group_csum()
    }

    /// Formats a number of a block or an inode.
    fn number(&self, number: u64) -> String {
        match (self.hex, self.geo.features.has_64bit()) {
            (true, true) => format!("0x{number:08x}"),
            (true, false) => format!("0x{number:04x}"),
            (false, _) => number.to_string(),
        }
    }

    fn tell(&self, out: &mut String) -> Result<()> {
        let (geo, desc) = (self.geo, &self.desc);
        let last = self.first() + u64::from(geo.blocks_in_group(self.nr)).saturating_sub(1);
        let (first, last) = (self.number(self.first()), self.number(last));
        write!(out, "Group {}: (Blocks {first}-{last})", self.nr.0)?;
        if self.is_summed() {
            write!(out, " csum 0x{:04x}", self.checksum)?;
            let set = group_flags(desc);
            if !set.is_empty() {
                write!(out, " [{}]", set.join(", "))?;
            }
        }
        out.push('\n');
        self.descriptors(out)?;
        let csum = |csum: u32| {
            if geo.features.has_metadata_csum() {
                format!(", csum 0x{csum:08x}")
            } else {
                String::new()
            }
        };
        let table = desc.inode_table;
        let table_end = table.0 + u64::from(geo.itable_blocks()).saturating_sub(1);
        for (name, place, rest) in [
            (
                "Block bitmap",
                desc.block_bitmap,
                csum(desc.block_bitmap_csum),
            ),
            (
                "Inode bitmap",
                desc.inode_bitmap,
                csum(desc.inode_bitmap_csum),
            ),
        ] {
            let at = self.number(place.0);
            writeln!(out, "  {name} at {at}{}{rest}", self.relative(place))?;
        }
        writeln!(
            out,
            "  Inode table at {}-{}{}",
            self.number(table.0),
            self.number(table_end),
            self.relative(table)
        )?;
        let unit = match geo.cluster_ratio {
            1 => "blocks",
            _ => "clusters",
        };
        write!(
            out,
            "  {} free {unit}, {} free inodes, {} directories",
            desc.free_blocks, desc.free_inodes, desc.used_dirs
        )?;
        if self.is_summed() {
            write!(out, ", {} unused inodes", desc.itable_unused)?;
        }
        out.push('\n');
        self.free(out)
    }

    /// Adds the group as numbers separated by colons.
    fn colons(&self, out: &mut String) -> Result<()> {
        let (copy, descriptors) = self.copies();
        let copy = copy.map_or("-1".into(), |at| at.to_string());
        let descriptors = match descriptors {
            Descriptors::Nowhere => "-1".into(),
            Descriptors::Block(at) => at.to_string(),
            Descriptors::Blocks(first, last) => {
                format!("{}-{}", self.number(first), self.number(last))
            }
        };
        let (nr, first, desc) = (self.nr.0, self.first(), &self.desc);
        let maps = (desc.block_bitmap, desc.inode_bitmap);
        let table = desc.inode_table;
        writeln!(
            out,
            "{nr}:{first}:{copy}:{descriptors}:{}:{}:{table}",
            maps.0, maps.1
        )?;
        Ok(())
    }

    /// Returns whether the group's descriptors are in the `meta_bg` layout.
    fn is_meta(&self) -> bool {
        let meta = self.nr.0 / self.geo.descs_per_block();
        self.geo.features.has_meta_bg() && meta >= self.geo.first_meta_bg
    }

    /// Returns the number of descriptor blocks after each copy of the superblock.
    fn old_descriptors(&self) -> u64 {
        if self.geo.features.has_meta_bg() {
            self.geo.first_meta_bg.into()
        } else {
            self.geo.gdt_block_count().into()
        }
    }

    /// Returns the block of the superblock in the group, and its descriptor blocks.
    fn copies(&self) -> (Option<u64>, Descriptors) {
        let geo = self.geo;
        let at = match self.nr.0 {
            0 => SUPERBLOCK_OFFSET / u64::from(geo.block_size),
            _ => self.first(),
        };
        let copy = geo.has_super(self.nr).then_some(at);
        let (old, within) = (self.old_descriptors(), self.nr.0 % geo.descs_per_block());
        let descriptors = if self.is_meta() {
            if matches!(within, 0 | 1) || within + 1 == geo.descs_per_block() {
                Descriptors::Block(copy.map_or(self.first(), |at| at + 1))
            } else {
                Descriptors::Nowhere
            }
        } else {
            match copy {
                Some(at) if old > 0 => Descriptors::Blocks(at + 1, at + old),
                _ => Descriptors::Nowhere,
            }
        };
        (copy, descriptors)
    }

    /// Adds the superblock of the group and its descriptors.
    fn descriptors(&self, out: &mut String) -> Result<()> {
        let mut parts = Vec::new();
        let (copy, descriptors) = self.copies();
        let kind = match self.nr.0 {
            0 => "Primary",
            _ => "Backup",
        };
        if let Some(at) = copy {
            parts.push(format!("{kind} superblock at {}", self.number(at)));
        }
        match descriptors {
            Descriptors::Nowhere => {}
            Descriptors::Block(at) => {
                parts.push(format!("Group descriptor at {}", self.number(at)));
            }
            Descriptors::Blocks(first, last) => {
                let (first, last) = (self.number(first), self.number(last));
                parts.push(format!("Group descriptors at {first}-{last}"));
            }
        }
        if !parts.is_empty() {
            writeln!(out, "  {}", parts.join(", "))?;
        }
        let reserved = u64::from(self.geo.reserved_gdt_blocks);
        if let Some(at) = copy.filter(|_| reserved > 0 && !self.is_meta()) {
            let first = at + 1 + self.old_descriptors();
            let (first, last) = (self.number(first), self.number(first + reserved - 1));
            writeln!(out, "  Reserved GDT blocks at {first}-{last}")?;
        }
        Ok(())
    }

    /// Formats the position of a block in the group, or the other group that holds the block.
    fn relative(&self, block: BlockNr) -> String {
        let inside = block.0.checked_sub(self.first());
        let inside = inside.filter(|&at| at < u64::from(self.geo.blocks_per_group));
        match (inside, self.geo.group_of_block(block)) {
            (Some(at), _) => format!(" (+{at})"),
            (None, Some((other, _))) => {
                let at = block.0 - self.geo.group_first_block(other).0;
                format!(" (bg #{} + {at})", other.0)
            }
            (None, None) => String::new(),
        }
    }

    /// Adds the free blocks and inodes.
    fn free(&self, out: &mut String) -> Result<()> {
        let (geo, desc) = (self.geo, &self.desc);
        let map = self.image.block_bitmap(self.nr, desc)?;
        let ratio = u64::from(geo.cluster_ratio);
        let runs = self.ranges(&map, geo.bits_in_group(self.nr), self.first(), ratio);
        writeln!(out, "  Free blocks: {runs}")?;
        let map = self.image.inode_bitmap(desc)?;
        let first = u64::from(geo.inode_nr(self.nr, 0).0);
        let runs = self.ranges(&map, geo.inodes_per_group, first, 1);
        writeln!(out, "  Free inodes: {runs}")?;
        Ok(())
    }

    /// Formats the zero bits of a bitmap as ranges, numbered from `first` in steps of `each`.
    fn ranges(&self, map: &[u8], bits: u32, first: u64, each: u64) -> String {
        let number = |bit: u32| self.number(first + u64::from(bit) * each);
        let mut runs = Vec::new();
        let mut at = 0;
        while let Some(start) = bitmap::find_zero(map, at, bits) {
            at = bitmap::find_one(map, start, bits).unwrap_or(bits);
            runs.push(match at - start {
                1 => number(start),
                _ => format!("{}-{}", number(start), number(at - 1)),
            });
        }
        runs.join(", ")
    }
}

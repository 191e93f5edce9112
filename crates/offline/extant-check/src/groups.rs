//! Group descriptors and bitmaps: checks their places, and finally compares them with the blocks and inodes in use.

use crate::directories::Directories;
use crate::group::Group;
use crate::inode_table::InodeKind;
use crate::report::{FindingPlace, Findings, Rule};
use crate::state::Check;
use crate::volume::{Piece, Volume};
use crate::{prefetch, work};
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::{BlockNr, FormatError, GroupNr, bitmap};
use std::ops::Range;

/// Number of groups whose bitmaps are announced to a slow device at once.
pub(crate) const TOLD: usize = 512;

/// Reads all descriptors.
pub(crate) fn read(volume: &Volume<'_>, findings: &Findings) -> Vec<Group> {
    let geo = &volume.geo;
    let mut block = vec![0; volume.block_size()];
    let mut groups = Vec::new();
    for index in 0..geo.gdt_block_count() {
        let nr = geo.gdt_block(index);
        volume.read_or_tell(nr, &mut block, FindingPlace::default(), findings);
        let first = index * geo.descs_per_block();
        let end = first.saturating_add(geo.descs_per_block()).min(geo.groups);
        let descs = block.chunks_exact(geo.desc_size.into());
        for (bytes, group) in descs.zip((first..end).map(GroupNr)) {
            groups.push(read_one(bytes, volume, group, findings));
        }
    }
    groups
}

fn read_one(bytes: &[u8], volume: &Volume<'_>, group: GroupNr, findings: &Findings) -> Group {
    let geo = &volume.geo;
    let error = match GroupDesc::decode(bytes, geo, group) {
        Ok(desc) => {
            if !geo.features.has_group_csum() && desc.flags & (INODE_UNINIT | BLOCK_UNINIT) != 0 {
                findings.add(Rule::Descriptor, FindingPlace::group(group), || {
                    "it is marked as not initialized, without the feature".into()
                });
            }
            if !geo.features.has_group_csum() && desc.itable_unused != 0 {
                findings.add(Rule::Descriptor, FindingPlace::group(group), || {
                    "it counts unused inodes, without the feature".into()
                });
            }
            return Group { desc, usable: true };
        }
        Err(error) => error,
    };
    let desc = GroupDesc::decode_unchecked(bytes).unwrap_or_default();
    findings.add_error(Rule::Descriptor, FindingPlace::group(group), &error);
    let mut usable = true;
    if let Err(places) = desc.check(geo, group) {
        if matches!(error, FormatError::Checksum { .. }) {
            findings.add_error(Rule::DescriptorPlace, FindingPlace::group(group), &places);
        }
        usable = desc.check_places(geo, group).is_ok();
    }
    Group { desc, usable }
}

/// Marks the groups' own structures as in use, and reports overlaps.
pub(crate) fn claim_metadata(check: &Check<'_>) {
    let geo = &check.volume.geo;
    let mut ranges = Vec::new();
    for (group, nr) in check.groups.iter().zip((0..).map(GroupNr)) {
        let base = geo.group_base_meta_blocks(nr);
        if base > 0 {
            check.claims.mark(geo.group_first_block(nr), base.into());
        }
        if !group.usable {
            continue;
        }
        let table = u64::from(geo.itable_blocks());
        for (start, len) in [
            (group.desc.block_bitmap, 1),
            (group.desc.inode_bitmap, 1),
            (group.desc.inode_table, table),
        ] {
            check.claims.mark(start, len);
            ranges.push((start, BlockNr(start.0.saturating_add(len)), nr));
        }
    }
    let mmp = BlockNr(check.volume.sb.mmp_block.get());
    if geo.features.has_mmp() && mmp.0 != 0 {
        check.claims.mark(mmp, 1);
    }
    ranges.sort_unstable();
    let mut end = BlockNr(0);
    for (start, stop, group) in ranges {
        if start < end {
            let place = FindingPlace::group(group).block(start);
            check
                .findings
                .add(Rule::MetadataOverlap, place, String::new);
        }
        end = end.max(stop);
    }
}

/// Sums over all groups.
#[derive(Clone, Copy, Default)]
struct Totals {
    used_inodes: u64,
    used_blocks: u64,
    free_inodes: u64,
    free_blocks: u64,
}

/// Compares bitmaps and counts with the actual use; returns the inodes and the blocks (or clusters) in use.
pub(crate) fn check_counts(check: &Check<'_>, directories: &Directories) -> (u64, u64) {
    let geo = &check.volume.geo;
    let directories_of = directories_by_group(check, directories);
    check.steps.begin(5, check.groups.len() as u64);
    let states = work::each(
        check.threads,
        check.groups.len(),
        || {
            let block = vec![0; check.volume.block_size()];
            (Totals::default(), block.clone(), block)
        },
        |(totals, stored, wanted), index| {
            if index.is_multiple_of(TOLD) {
                tell_bitmaps(check, index + TOLD..index + 2 * TOLD);
            }
            let nr = GroupNr(index as u32);
            let Some(group) = check.groups.get(index) else {
                return;
            };
            let counts = GroupCounts {
                check,
                group,
                nr,
                directories: directories_of.get(index).copied().unwrap_or(0),
            };
            counts.blocks(totals, stored, wanted);
            counts.inodes(totals, stored, wanted);
            check.steps.add(1);
        },
    );
    let mut all = Totals::default();
    for (totals, ..) in states {
        all.used_inodes += totals.used_inodes;
        all.used_blocks += totals.used_blocks;
        all.free_inodes += totals.free_inodes;
        all.free_blocks += totals.free_blocks;
    }
    let sb = &check.volume.sb;
    let free_blocks = all.free_blocks * u64::from(geo.cluster_ratio);
    for (what, stored, counted) in [
        ("free blocks", sb.free_blocks(), free_blocks),
        (
            "free inodes",
            sb.free_inodes_count.get().into(),
            all.free_inodes,
        ),
    ] {
        if stored != counted {
            check
                .findings
                .add(Rule::VolumeCount, FindingPlace::default(), || {
                    format!("{what}: stored {stored}, counted {counted}")
                });
        }
    }
    (all.used_inodes, all.used_blocks)
}

/// Announces the bitmaps of these groups to a slow device, as far as they will be read.
pub(crate) fn tell_bitmaps(check: &Check<'_>, groups: Range<usize>) {
    if !check.volume.is_slow() {
        return;
    }
    let groups = groups.start..groups.end.min(check.groups.len());
    let usable = check.groups.get(groups).unwrap_or(&[]).iter();
    let usable = usable.filter(|group| group.usable);
    let mut blocks: Vec<_> = usable
        .flat_map(|group| {
            let maps = [
                (group.desc.block_bitmap, BLOCK_UNINIT),
                (group.desc.inode_bitmap, INODE_UNINIT),
            ];
            let maps = maps.into_iter();
            maps.filter(|(_, flag)| !group.desc.is_uninit(&check.volume.geo, *flag))
        })
        .map(|(block, _)| block)
        .collect();
    blocks.sort_unstable();
    let pieces = blocks.into_iter().map(|first| Piece { first, blocks: 1 });
    prefetch::tell_all(&check.volume, pieces);
}

/// Returns the number of directories of each group.
fn directories_by_group(check: &Check<'_>, directories: &Directories) -> Vec<u32> {
    let mut counts = vec![0u32; check.groups.len()];
    for ino in directories.inodes() {
        let group = check.volume.geo.group_of_inode(ino);
        if let Some(count) = group.and_then(|(g, _)| counts.get_mut(g.0 as usize)) {
            *count += 1;
        }
    }
    counts
}

/// A group whose bitmaps and counts are compared.
struct GroupCounts<'c> {
    check: &'c Check<'c>,
    group: &'c Group,
    nr: GroupNr,
    directories: u32,
}

impl GroupCounts<'_> {
    fn blocks(&self, totals: &mut Totals, stored: &mut [u8], wanted: &mut [u8]) {
        let (volume, desc) = (&self.check.volume, &self.group.desc);
        let geo = &volume.geo;
        let bits = geo.bits_in_group(self.nr);
        let place = FindingPlace::group(self.nr);
        self.check.claims.write(self.nr.0, wanted);
        bitmap::pad(wanted, bits);
        let free = bitmap::count_zeros(wanted, bits);
        totals.free_blocks += u64::from(free);
        totals.used_blocks += u64::from(bits - free);
        if !self.group.usable {
            return;
        }
        if self.group.desc.is_uninit(geo, BLOCK_UNINIT) {
            // The group has no bitmap yet. Linux makes one in which only the group's own structures are in use.
            bitmap::init_block_bitmap(stored, geo, self.nr, desc);
        } else {
            self.read_bitmap(desc.block_bitmap, stored);
            if let Err(e) = bitmap::verify_block_bitmap(stored, desc, geo, self.nr) {
                let findings = &self.check.findings;
                findings.add_error(Rule::BlockBitmapChecksum, place, &e);
            }
        }
        self.compare(Rule::BlockBitmap, stored, wanted, bits);
        self.count("free blocks", desc.free_blocks, free);
    }

    fn inodes(&self, totals: &mut Totals, stored: &mut [u8], wanted: &mut [u8]) {
        let (volume, desc) = (&self.check.volume, &self.group.desc);
        let geo = &volume.geo;
        let bits = geo.inodes_per_group;
        let place = FindingPlace::group(self.nr);
        wanted.fill(0);
        bitmap::set_range(wanted, 0, geo.reserved_inodes(self.nr));
        for (index, known) in self.check.inodes.of_group(self.nr.0) {
            bitmap::set(wanted, index);
            totals.used_inodes += u64::from(known.kind != InodeKind::Reserved);
        }
        bitmap::pad(wanted, bits);
        let free = bitmap::count_zeros(wanted, bits);
        totals.free_inodes += u64::from(free);
        if !self.group.usable {
            return;
        }
        if self.group.desc.is_uninit(geo, INODE_UNINIT) {
            bitmap::init_inode_bitmap(stored, geo, 0);
        } else {
            self.read_bitmap(desc.inode_bitmap, stored);
            if let Err(e) = bitmap::verify_inode_bitmap(stored, desc, geo, self.nr) {
                let findings = &self.check.findings;
                findings.add_error(Rule::InodeBitmapChecksum, place, &e);
            }
        }
        self.compare(Rule::InodeBitmap, stored, wanted, bits);
        self.count("free inodes", desc.free_inodes, free);
        self.count("directories", desc.used_dirs, self.directories);
    }

    fn read_bitmap(&self, block: BlockNr, map: &mut [u8]) {
        let Check {
            volume, findings, ..
        } = self.check;
        volume.read_or_tell(block, map, FindingPlace::group(self.nr), findings);
    }

    fn compare(&self, rule: Rule, stored: &[u8], wanted: &[u8], bits: u32) {
        let findings = &self.check.findings;
        let place = FindingPlace::group(self.nr);
        if !bitmap::is_padded(stored, bits) {
            findings.add(Rule::BitmapPadding, place, || rule.text().to_owned());
        }
        if stored == wanted {
            return;
        }
        let differs = |bit: &u32| bitmap::test(stored, *bit) != bitmap::test(wanted, *bit);
        let Some(first) = (0..bits).find(differs) else {
            return;
        };
        findings.add(rule, place, || {
            let all: Vec<u32> = (first..bits).filter(differs).collect();
            let in_use = all.iter().filter(|&&bit| bitmap::test(wanted, bit)).count();
            let number = self.name_bit(rule, first);
            format!(
                "{in_use} used ones are marked as free, {} free ones as used; the first is {number}",
                all.len() - in_use
            )
        });
    }

    fn name_bit(&self, rule: Rule, bit: u32) -> String {
        let geo = &self.check.volume.geo;
        match rule {
            Rule::InodeBitmap => format!("inode {}", geo.inode_nr(self.nr, bit)),
            _ => {
                let within = u64::from(bit) * u64::from(geo.cluster_ratio);
                format!("block {}", geo.group_first_block(self.nr).0 + within)
            }
        }
    }

    fn count(&self, what: &str, stored: u32, counted: u32) {
        if stored != counted {
            let findings = &self.check.findings;
            findings.add(Rule::GroupCount, FindingPlace::group(self.nr), || {
                format!("{what}: stored {stored}, counted {counted}")
            });
        }
    }
}

//! Guesses the geometry of a volume without superblocks: block and inode size by the root, which must be at the place
//! in the first descriptor, and inodes per group by the bitmaps. The blocks of a group are assumed to fill the bits
//! of a bitmap, as with `mke2fs`.

use blockdev::BlockDevice;
use ext4_format::features::{Compat, Incompat, RoCompat};
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{GroupDesc, INODE_UNINIT};
use ext4_format::superblock::RawSuperblock;
use ext4_format::{FileType, InodeNr, inode, map_walk};

/// Descriptors that are looked at for inodes per group.
const GROUPS: u64 = 256;

/// Parameters to try.
#[derive(Clone, Copy, Debug)]
struct Guess {
    log_block_size: u32,
    inode_size: u16,
    desc_size: u16,
    inodes_per_group: u32,
}

impl Guess {
    const fn block_size(&self) -> u64 {
        1024 << self.log_block_size
    }

    /// Returns a superblock with these parameters, without checksums.
    fn superblock(&self, dev: &dyn BlockDevice) -> Option<RawSuperblock> {
        let mut sb = RawSuperblock::zeroed();
        let bits = self.block_size() * 8;
        let first = u64::from(self.log_block_size == 0);
        let blocks = (dev.len() / self.block_size()).min(u64::from(u32::MAX) * bits.min(1 << 15));
        let groups = blocks.checked_sub(first)?.div_ceil(bits);
        sb.set_blocks_count(blocks);
        let inodes = u64::from(self.inodes_per_group).checked_mul(groups)?;
        sb.inodes_count.set(u32::try_from(inodes).ok()?);
        sb.first_data_block.set(first as u32);
        sb.log_block_size.set(self.log_block_size);
        sb.log_cluster_size.set(self.log_block_size);
        sb.blocks_per_group.set(bits as u32);
        sb.clusters_per_group.set(bits as u32);
        sb.inodes_per_group.set(self.inodes_per_group);
        sb.rev_level.set(1);
        sb.first_ino.set(11);
        sb.inode_size.set(self.inode_size);
        sb.desc_size.set(self.desc_size);
        sb.journal_inum.set(InodeNr::JOURNAL.0);
        sb.log_groups_per_flex = 4;
        let wide = match self.desc_size {
            64 => Incompat::SIXTY_FOUR_BIT.bits(),
            _ => 0,
        };
        let extents = Incompat::EXTENT | Incompat::FILETYPE | Incompat::FLEX_BG;
        let sparse = RoCompat::SPARSE_SUPER | RoCompat::LARGE_FILE | RoCompat::HUGE_FILE;
        let journal = Compat::HAS_JOURNAL | Compat::EXT_ATTR | Compat::DIR_INDEX;
        sb.feature_incompat.set(extents.bits() | wide);
        sb.feature_ro_compat.set(sparse.bits());
        sb.feature_compat.set(journal.bits());
        Geometry::new(&sb).is_ok().then_some(sb)
    }

    /// Returns the descriptor of a group, not checked.
    fn descriptor(&self, dev: &dyn BlockDevice, group: u64) -> Option<GroupDesc> {
        let table = match self.log_block_size {
            0 => 2048,
            _ => self.block_size(),
        };
        let mut raw = vec![0; self.desc_size.into()];
        let at = table + group * u64::from(self.desc_size);
        dev.read_at(at, &mut raw).ok()?;
        GroupDesc::decode_unchecked(&raw)
    }

    /// Returns whether the root is where the first descriptor leads: a directory whose first names lead to it.
    fn has_root(&self, dev: &dyn BlockDevice) -> bool {
        self.root(dev).unwrap_or(false)
    }

    fn root(&self, dev: &dyn BlockDevice) -> Option<bool> {
        let geo = Geometry::new(&self.superblock(dev)?).ok()?;
        let table = self.descriptor(dev, 0)?.inode_table;
        let at = table.0.checked_mul(self.block_size())?;
        let size = u64::from(self.inode_size);
        let mut raw = vec![0; self.inode_size.into()];
        dev.read_at(at.checked_add(size)?, &mut raw).ok()?;
        let core = inode::decode_verified(&raw, &geo, InodeNr::ROOT).ok()?;
        if core.file_type() != Some(FileType::Directory) || core.links < 2 {
            return None;
        }
        let block = map_walk::first_block(&geo, core.flags, inode::i_block(&raw).ok()?)?;
        let mut dots = [0; 22];
        let place = block.0.checked_mul(self.block_size())?;
        dev.read_at(place, &mut dots).ok()?;
        let own = |at: usize| dots.get(at..at + 4) == Some(&[2, 0, 0, 0]);
        Some(own(0) && own(12) && dots.get(8) == Some(&b'.') && dots.ends_with(b".."))
    }

    /// Returns the number of inodes that a group has at least: the number of free ones, or up to the last clear bit
    /// of its bitmap, whose end is padded with set bits.
    fn count_inodes(&self, dev: &dyn BlockDevice) -> u32 {
        let bits = self.block_size() * 8;
        let groups = (dev.len() / self.block_size()).div_ceil(bits);
        let mut most = 0;
        for group in 0..groups.min(GROUPS) {
            let Some(desc) = self.descriptor(dev, group) else {
                break;
            };
            most = most.max(u64::from(desc.free_inodes));
            let mut map = vec![0; self.block_size() as usize];
            let place = desc.inode_bitmap.0.checked_mul(self.block_size());
            let read = place.is_some_and(|place| dev.read_at(place, &mut map).is_ok());
            if read && desc.flags & INODE_UNINIT == 0 {
                let last = map.iter().rposition(|&byte| byte != 0xff);
                most = most.max(last.map_or(0, |at| at as u64 * 8 + 8));
            }
        }
        let per_block = self.block_size() / u64::from(self.inode_size).max(1);
        most.next_multiple_of(per_block.max(1)).min(bits) as u32
    }
}

/// Returns the geometry that the rest of the volume fits.
pub(crate) fn superblock(dev: &dyn BlockDevice) -> Option<RawSuperblock> {
    for log_block_size in [2, 0, 1, 3, 4, 5, 6] {
        for inode_size in [256, 128, 512, 1024] {
            let mut guess = Guess {
                log_block_size,
                inode_size,
                desc_size: 32,
                inodes_per_group: (1024 << log_block_size) / u32::from(inode_size) * 8,
            };
            if !guess.has_root(dev) {
                continue;
            }
            // Behind a short descriptor is the next one; behind the half of a long one are the high halves of its numbers.
            let next = guess.descriptor(dev, 1);
            if next.is_none_or(|next| next.inode_table.0 == 0) {
                guess.desc_size = 64;
            }
            guess.inodes_per_group = guess.count_inodes(dev);
            if let Some(sb) = guess.superblock(dev) {
                return Some(sb);
            }
        }
    }
    None
}

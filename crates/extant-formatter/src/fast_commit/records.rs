//! Records of inodes, as fast commits give them: without the mapping.

use super::REFUSED;
use crate::error::{Error, Result};
use crate::image::BlockImages;
use crate::inode_phase::{LARGE, first_core, next_core};
use crate::item::InodeItem;
use crate::system_zone::SystemZone;
use crate::xattrs;
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::jbd2::FastChange;
use ext4_format::xattr::{self, XattrSet};
use ext4_format::{BlockNr, FileType, InodeNr};
use std::collections::BTreeSet;

/// The images that records are read from.
pub struct Records<'a> {
    /// The volume's geometry.
    pub geometry: &'a Geometry,
    /// The volume's blocks as of the last batch that was formatted.
    pub images: &'a dyn BlockImages,
    /// The place of an inode's record.
    pub place: &'a dyn Fn(InodeNr) -> Result<(BlockNr, usize)>,
    /// Inodes that earlier fast commits made: the images do not have them.
    pub born: &'a BTreeSet<InodeNr>,
    /// The hash of the volume's directories.
    pub hasher: &'a DirHasher,
    /// The volume's own blocks.
    pub zone: &'a SystemZone,
}

/// The state that a record expresses.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'i> {
    /// The item that begins the inode's life, if the batch has it.
    pub born: Option<&'i InodeItem>,
    pub last: &'i InodeItem,
    /// The attributes, if the batch sets them.
    pub xattrs: Option<&'i XattrSet>,
    /// The inode ends when it loses so many names.
    pub ends_without: Option<u32>,
}

/// A record of every byte states that its fixed part is all of it, because e2fsck (1.47 and before) copies no more than
/// the fixed part. The record that follows corrects that.
const EXTRA_ISIZE: usize = 128;

impl Records<'_> {
    /// Returns the record of an inode as of the last batch that was formatted.
    pub(super) fn raw(&self, ino: InodeNr) -> Result<Vec<u8>> {
        let (block, offset) = (self.place)(ino)?;
        let image = self.images.image(block)?;
        let end = offset.saturating_add(self.geometry.inode_size.into());
        let raw = image.get(offset..end);
        let missing = || Error::corrupt_inode("inode position", ino);
        Ok(raw.ok_or_else(missing)?.to_vec())
    }

    /// Adds the record of an inode; false if fast commits cannot express such an inode.
    pub(super) fn put(
        &self,
        ino: InodeNr,
        wanted: &Wanted<'_>,
        out: &mut Vec<FastChange>,
    ) -> Result<bool> {
        let geometry = self.geometry;
        let ends = wanted.ends_without;
        if !self.speaks_of(&wanted.last.core) || ends.is_none() && wanted.last.core.links == 0 {
            return Ok(false);
        }
        let mut raw = vec![0; geometry.inode_size.into()];
        let mut core = if let Some(init) = wanted.born {
            inode::init_blank(&mut raw, geometry);
            first_core(wanted.last, init, false, true)
        } else if self.born.contains(&ino) {
            inode::init_blank(&mut raw, geometry);
            InodeCore {
                dtime: 0,
                ..wanted.last.core
            }
        } else {
            raw = self.raw(ino)?;
            let old = inode::decode_core(&raw, geometry, ino)?;
            if is_directory(&old) {
                // e2fsck drops the index when it adds a name, and the record would state it again. Links of a
                // directory are not those of its last item.
                if old.flags & flags::INDEX != 0 || wanted.last.core.links < 2 || old.links < 2 {
                    return Ok(false);
                }
            }
            InodeCore {
                links: if is_directory(&old) {
                    old.links
                } else {
                    wanted.last.core.links
                },
                ..next_core(wanted.last, &old, geometry)?
            }
        };
        if core.flags & (REFUSED | flags::VERITY) != 0 {
            return Ok(false);
        }
        if let Some(links) = ends {
            // e2fsck frees inodes without names only if they have neither blocks nor attributes.
            if core.flags & flags::EXTENTS == 0 || inode::file_acl(&raw, geometry).0 != 0 {
                return Ok(false);
            }
            core = InodeCore {
                links,
                size: 0,
                dtime: 0,
                ..core
            };
        }
        inode::encode_core(&core, &mut raw, geometry);
        let none = XattrSet::default();
        let room = inode::xattr_area(&raw, geometry);
        let has_some = |area| raw.get(area).is_some_and(xattr::has_inode_area);
        let set = match (wanted.xattrs, ends) {
            (_, Some(_)) => room.clone().is_some_and(has_some).then_some(&none),
            (set, None) => set,
        };
        let Some(set) = set else {
            raw.truncate(inode::fixed_end(&raw));
            out.push(FastChange::Inode(ino, raw));
            return Ok(true);
        };
        let Some(room) = room else {
            return Ok(false);
        };
        let (area, block) = xattr::place(set, room.len(), geometry.block_size as usize)?;
        if block.is_some()
            || inode::file_acl(&raw, geometry).0 != 0
            || !set.is_empty() && !geometry.features.has_ext_attr()
        {
            return Ok(false);
        }
        xattrs::put_area(&mut raw, room, area);
        let mut whole = raw.clone();
        let fixed = (raw.len() - EXTRA_ISIZE) as u16;
        if let Some(field) = whole.get_mut(EXTRA_ISIZE..EXTRA_ISIZE + 2) {
            field.copy_from_slice(&fixed.to_le_bytes());
        }
        out.push(FastChange::Inode(ino, whole));
        out.push(FastChange::Inode(ino, raw));
        Ok(true)
    }

    fn speaks_of(&self, core: &InodeCore) -> bool {
        let large = core.size >= LARGE && !self.geometry.features.has_large_file();
        let known = matches!(
            core.file_type(),
            Some(FileType::Regular | FileType::Directory)
        );
        known && core.flags & (REFUSED | flags::VERITY) == 0 && !large
    }
}

pub(super) fn is_directory(core: &InodeCore) -> bool {
    core.file_type() == Some(FileType::Directory)
}

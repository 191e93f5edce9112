//! Inode records of fast commits, which do not include the mapping.

use super::REFUSED;
use crate::error::{Error, Result};
use crate::image::BlockImages;
use crate::item::InodeItem;
use crate::mapping_reader::MappingReader;
use crate::record::{LARGE, first_core, next_core};
use crate::system_zone::SystemZone;
use crate::xattrs;
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::jbd2::FastChange;
use ext4_format::xattr::{self, XattrSet};
use ext4_format::{BlockNr, FileType, InodeNr};
use std::collections::BTreeSet;

/// Block images and context for reading inode records.
pub struct Records<'a> {
    /// Geometry of the volume.
    pub geometry: &'a Geometry,
    /// Blocks of the volume as of the last formatted batch.
    pub images: &'a dyn BlockImages,
    /// Returns the block and the offset of an inode's record.
    pub place: &'a dyn Fn(InodeNr) -> Result<(BlockNr, usize)>,
    /// Inodes that earlier fast commits created, and that the images do not contain.
    pub born: &'a BTreeSet<InodeNr>,
    /// Hash function of the volume's directories.
    pub hasher: &'a DirHasher,
    /// Blocks of the volume's own metadata.
    pub zone: &'a SystemZone,
}

/// State of an inode that a record expresses.
#[derive(Clone, Copy)]
pub(super) struct WantedRecord<'i> {
    /// Item that creates the inode, if the batch creates it.
    pub born: Option<&'i InodeItem>,
    pub last: &'i InodeItem,
    /// Extended attributes, if the batch sets them.
    pub xattrs: Option<&'i XattrSet>,
    /// Number of names that the inode loses, if the batch frees the inode.
    pub freed_names: Option<u32>,
}

/// Offset of `i_extra_isize`. A record with attributes states that the fixed fields fill the inode, because e2fsck (1.47
/// and before) copies only the fixed fields. The next record restores the field.
const EXTRA_ISIZE: usize = 128;

impl Records<'_> {
    /// Returns the record of an inode as of the last formatted batch.
    pub(super) fn raw(&self, ino: InodeNr) -> Result<Vec<u8>> {
        let (block, offset) = (self.place)(ino)?;
        let image = self.images.image(block)?;
        let end = offset.saturating_add(self.geometry.inode_size.into());
        let raw = image.get(offset..end);
        let missing = || Error::corrupt_inode("inode position", ino);
        Ok(raw.ok_or_else(missing)?.to_vec())
    }

    /// Returns a reader of the mapping of an inode as of the last formatted batch.
    pub(super) fn mapping_reader(&self, ino: InodeNr, core: &InodeCore) -> MappingReader<'_> {
        MappingReader {
            geometry: self.geometry,
            images: self.images,
            ino,
            generation: core.generation,
            zone: Some(self.zone),
        }
    }

    /// Adds the record of an inode. Returns false if fast commits cannot express the inode.
    pub(super) fn put(
        &self,
        ino: InodeNr,
        wanted: &WantedRecord<'_>,
        out: &mut Vec<FastChange>,
    ) -> Result<bool> {
        let geometry = self.geometry;
        let ends = wanted.freed_names;
        if !self.can_express(&wanted.last.core) || ends.is_none() && wanted.last.core.links == 0 {
            return Ok(false);
        }
        let Some((mut raw, mut core)) = self.record_of(ino, wanted)? else {
            return Ok(false);
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

    /// Returns the record on which a change is based, and its new fields. `None` if fast commits cannot express the inode.
    fn record_of(
        &self,
        ino: InodeNr,
        wanted: &WantedRecord<'_>,
    ) -> Result<Option<(Vec<u8>, InodeCore)>> {
        let geometry = self.geometry;
        let mut raw = vec![0; geometry.inode_size.into()];
        let core = if let Some(init) = wanted.born {
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
                // If e2fsck adds a name, it drops the index, and the record would set the index flag again. The link
                // count of a directory is the one on disk, not that of the last item.
                if old.flags & flags::INDEX != 0 || wanted.last.core.links < 2 || old.links < 2 {
                    return Ok(None);
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
        Ok(Some((raw, core)))
    }

    fn can_express(&self, core: &InodeCore) -> bool {
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

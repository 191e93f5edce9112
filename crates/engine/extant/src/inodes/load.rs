//! The loader, which brings objects from the device into core. It is the only code above the log that reads images of
//! metadata blocks, and it only reads. Everything is checked here, once.

use crate::base::error::{Error, Result};
use crate::base::schedule::{self, Point};
use crate::incore::directory::Directory;
use crate::incore::inode::FAST_SYMLINK_MAX;
use crate::incore::inode::{Content, Inode};
use crate::incore::inode_index::Absent;
use crate::inodes::Inodes;
use crate::types::no_key;
use ext4_format::features::Incompat;
use ext4_format::inode::{self, flags, inline};
use ext4_format::xattr::{self, XattrSet};
use ext4_format::{BlockNr, FileType, FormatError, InodeNr, Where, bitmap, dir_entry};
use extant_formatter::extent_map::{ExtentMap, Found};
use extant_formatter::image::Image;
use extant_formatter::mapping_reader::MappingReader;
use std::ops::{Deref, Range};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// The bytes of an inode's record where they are in memory.
pub(crate) struct RawInode {
    image: Arc<Image>,
    place: Range<usize>,
}

impl Deref for RawInode {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.image[self.place.clone()]
    }
}

/// Source of an inode number. It decides which error a number without an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A name: the volume is damaged.
    Name,
    /// A caller that kept the number: the inode was removed since.
    Caller,
    /// The list of orphans, which holds inodes without links, too.
    OrphanList,
}

impl Origin {
    /// Makes the error for a number that no inode has.
    #[cold]
    fn absent(self, what: &'static str, ino: InodeNr) -> Error {
        match self {
            Self::Caller => Error::StaleInode(ino.0),
            Self::Name | Self::OrphanList => Error::corrupt_inode(what, ino),
        }
    }
}

impl Inodes {
    /// Returns the in-core inode of a number, read if needed.
    #[inline]
    pub(crate) fn inode(&self, ino: InodeNr, origin: Origin) -> Result<Arc<Inode>> {
        crate::base::jitter::point();
        match self.index.get(ino) {
            Some(inode) => Ok(inode),
            None => self.inode_brought_in(ino, origin),
        }
    }

    #[inline(never)]
    fn inode_brought_in(&self, ino: InodeNr, origin: Origin) -> Result<Arc<Inode>> {
        let (inode, loaded) = self.index.get_or_load(
            ino,
            || self.read_inode(ino, origin).map(Arc::new),
            |absent| match absent {
                Absent::OutOfRange => origin.absent("inode number", ino),
                Absent::Freed => origin.absent("name leads to an inode not in use", ino),
            },
        )?;
        if loaded {
            let position = self.enlist(&inode);
            if position.index().is_multiple_of(64)
                && let Some(evictor) = self.evictor.get()
            {
                evictor.bound_inodes();
            }
        }
        Ok(inode)
    }

    /// Returns the in-core inode that a name leads to. If the inode does not exist, the volume is damaged.
    #[inline]
    pub(crate) fn named_inode(&self, ino: InodeNr) -> Result<Arc<Inode>> {
        crate::base::jitter::point();
        schedule::reached(Point::NameFound);
        match self.index.get(ino) {
            Some(inode) => Ok(inode),
            None => self
                .inode_brought_in(ino, Origin::Name)
                .inspect_err(|e| self.store.note_damage(e, "lookup", Some(ino))),
        }
    }

    /// Returns the inode of a number that a caller kept instead of a handle. A number whose inode was removed is stale,
    /// even before a push has formatted the removal.
    pub(crate) fn numbered_inode(&self, ino: InodeNr) -> Result<Arc<Inode>> {
        let inode = self.inode(ino, Origin::Caller)?;
        if inode.is_gone() {
            Err(Error::StaleInode(ino.0))
        } else {
            Ok(inode)
        }
    }

    /// Notes damage found in the blocks of an inode on the device. If the inode was freed meanwhile, nothing is noted,
    /// because the record and the blocks may belong to another inode by now.
    #[cold]
    #[track_caller]
    pub(crate) fn note_damage_of(&self, inode: &Inode, error: &Error, function: &'static str) {
        if !inode.state.read().freed {
            self.store.note_damage(error, function, Some(inode.ino));
        }
    }

    /// Returns an inode's record, in the newest image of its table block.
    pub(crate) fn raw_inode(&self, ino: InodeNr) -> Result<RawInode> {
        let (block, offset) =
            self.store
                .groups
                .inode_location(&self.store.geometry, &self.store.buffers, ino)?;
        let image = self.store.buffers.read(block)?;
        let place = offset..offset + usize::from(self.store.geometry.inode_size);
        if image.get(place.clone()).is_none() {
            return Err(Error::corrupt_inode("inode position", ino));
        }
        Ok(RawInode { image, place })
    }

    /// Fails unless the group's bitmap, as of the last push, marks the number as in use. The rest of the table may
    /// never have been written. A bitmap that cannot be trusted decides nothing: the record does.
    fn check_in_use(&self, ino: InodeNr) -> Result<()> {
        let (geometry, buffers) = (&self.store.geometry, &self.store.buffers);
        let Some((group, index)) = geometry.group_of_inode(ino) else {
            return Err(Error::StaleInode(ino.0));
        };
        match self
            .store
            .groups
            .inode_bitmap(geometry, buffers, group, true)
            .map_err(Error::from)
        {
            Ok(map) if !bitmap::test(&map, index) => Err(Error::StaleInode(ino.0)),
            Ok(_) | Err(Error::Format(_)) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Reads an inode from the device. One without links is only of use to the list of orphans.
    fn read_inode(&self, ino: InodeNr, origin: Origin) -> Result<Inode> {
        if ino.0 < self.store.geometry.first_ino && ino != InodeNr::ROOT {
            return Err(origin.absent("name leads to a reserved inode", ino));
        }
        if origin == Origin::Caller {
            self.check_in_use(ino)?;
        }
        let raw = self.raw_inode(ino)?;
        let mut core = inode::decode_core(&raw, &self.store.geometry, ino)?;
        if core.mode == 0 {
            return Err(origin.absent("name leads to an inode not in use", ino));
        }
        if core.links == 0 && origin != Origin::OrphanList {
            return Err(origin.absent("name leads to an inode without links", ino));
        }
        let ftype = core
            .file_type()
            .ok_or_else(|| Error::corrupt_inode("inode type", ino))?;
        if core.flags & flags::ENCRYPT != 0
            && !self
                .store
                .geometry
                .features
                .incompat
                .contains(Incompat::ENCRYPT)
        {
            return Err(Error::corrupt_inode(
                "encrypted inode without the feature",
                ino,
            ));
        }
        if core.flags & flags::VERITY != 0 && ftype != FileType::Symlink {
            return Err(Error::Unsupported("inode with verity"));
        }
        self.check_inline(&core, ftype, ino)?;
        self.check_no_value(&core, origin, ino)?;
        let content = match ftype {
            FileType::Directory => {
                let compared = self.store.comparison(core.flags);
                let dir = Directory::new(InodeNr(0), Some(core.links), compared);
                dir.size.store(core.size, Ordering::Relaxed);
                Content::Directory(Box::new(dir))
            }
            FileType::Regular => {
                // Another implementation may let the directory grow further than this engine does.
                let extents = core.flags & flags::EXTENTS != 0;
                if core.size > self.store.geometry.max_addressed_size(extents) {
                    return Err(Error::corrupt_inode("file size", ino));
                }
                Content::File(OnceLock::new())
            }
            FileType::Symlink => Content::Symlink(Box::default()),
            _ => Content::Special,
        };
        if !matches!(ftype, FileType::CharDevice | FileType::BlockDevice) {
            core.rdev = 0;
        }
        let inode = Inode::new(ino, ftype, core, content).read_from_device();
        let mut sectors = inode::sectors(&raw, &self.store.geometry);
        if ftype == FileType::Regular && inode.has_flag(flags::INLINE_DATA) {
            // As on Linux, because tools that look for holes treat a file without sectors as a hole.
            sectors = sectors.saturating_add(inode.size.load(Ordering::Relaxed).div_ceil(512));
        }
        let sectors = sectors.min(i64::MAX as u64) as i64;
        inode.sectors.store(sectors, Ordering::Relaxed);
        let has_xattrs = inode::file_acl(&raw, &self.store.geometry).0 != 0
            || inode::xattr_area(&raw, &self.store.geometry)
                .and_then(|r| raw.get(r))
                .is_some_and(xattr::has_inode_area);
        if has_xattrs {
            // An ACL or capabilities may be among the attributes. A caller that needs to know reads them.
            inode.has_acl.store(true, Ordering::Relaxed);
            inode.has_capability.store(true, Ordering::Relaxed);
        } else {
            inode.state.lock().without_xattrs = true;
        }
        Ok(inode)
    }

    pub(crate) fn mapping_reader<'a>(&'a self, inode: &Inode) -> MappingReader<'a> {
        let generation = inode.state.lock().core.generation;
        MappingReader {
            geometry: &self.store.geometry,
            images: &self.store.buffers,
            ino: inode.ino,
            generation,
            zone: Some(&self.store.zone),
        }
    }

    /// Reads the mapping on the device, with every batch formatted until now.
    pub(crate) fn read_mapping(&self, inode: &Inode) -> Result<ExtentMap> {
        if inode.has_flag(flags::INLINE_DATA) {
            // The data have no blocks, and a volume with such inodes is not written.
            return Ok(ExtentMap::default());
        }
        let raw = self.raw_inode(inode.ino)?;
        let inode_flags = inode::decode_core(&raw, &self.store.geometry, inode.ino)?.flags;
        self.mapping_reader(inode)
            .read(inode_flags, inode::i_block(&raw)?)
            .map_err(Error::from)
            .inspect_err(|e| self.note_damage_of(inode, e, "read_mapping"))
    }

    /// Reads the extended attributes on the device.
    pub(super) fn read_xattrs(&self, inode: &Inode) -> Result<XattrSet> {
        self.parse_xattrs(inode)
            .inspect_err(|e| self.note_damage_of(inode, e, "read_xattrs"))
    }

    fn parse_xattrs(&self, inode: &Inode) -> Result<XattrSet> {
        let raw = self.raw_inode(inode.ino)?;
        let block = inode::file_acl(&raw, &self.store.geometry);
        let image = match block {
            BlockNr(0) => None,
            _ if self
                .store
                .zone
                .check(&self.store.buffers, block, 1)
                .is_err() =>
            {
                return Err(Error::corrupt_inode(
                    "attribute block outside the data area",
                    inode.ino,
                ));
            }
            _ => {
                let image = self.store.buffers.read(block)?;
                if self.store.geometry.features.has_metadata_csum() && !image.is_verified() {
                    xattr::verify_checksum(&image, self.store.geometry.csum_seed, block)
                        .map_err(|e| e.at(Where::Block(block, 0)))?;
                    image.set_verified();
                }
                Some(image)
            }
        };
        let area = inode::xattr_area(&raw, &self.store.geometry).and_then(|r| raw.get(r));
        let parse = if self.store.geometry.features.has_ea_inode() {
            XattrSet::parse_all
        } else {
            XattrSet::parse
        };
        let mut set = parse(area, image.as_deref().map(|i| &**i))
            .map_err(|e| e.at(Where::Inode(inode.ino)))?;
        if self.store.geometry.features.has_inline_data() {
            // The attribute holds a part of the data, and is not the user's. The volume is read-only, so the attribute
            // is not lost here.
            set.remove(inline::ATTRIBUTE_NAME);
        }
        Ok(set)
    }

    /// Reads the target of a symbolic link.
    pub(crate) fn read_symlink(&self, inode: &Inode) -> Result<Box<[u8]>> {
        let raw = self.raw_inode(inode.ino)?;
        let size = inode.size.load(Ordering::Relaxed) as usize;
        let target: Option<Box<[u8]>> = if inode.has_flag(flags::INLINE_DATA) {
            Some(self.inline_target(inode)?)
        } else if size <= FAST_SYMLINK_MAX {
            inode::i_block(&raw)?.get(..size).map(Box::from)
        } else {
            let map = self.read_mapping(inode)?;
            let Found::Mapped(run) = map.at(0) else {
                return Err(Error::corrupt_inode(
                    "symbolic link without its block",
                    inode.ino,
                ));
            };
            let mut bytes = vec![0; self.store.geometry.block_size as usize];
            self.store.read_data(run.physical, 0, &mut bytes)?;
            bytes.get(..size).map(Box::from)
        };
        let target = if inode.has_flag(flags::ENCRYPT) {
            target
                .and_then(|stored| no_key::target(&stored))
                .map(Into::into)
        } else {
            target
        };
        target
            .filter(|t| !t.is_empty() && !t.contains(&0))
            .ok_or_else(|| Error::corrupt_inode("symbolic link's target", inode.ino))
            .inspect_err(|e| self.note_damage_of(inode, e, "read_symlink"))
    }
}

/// Verifies whichever kind of checksum a directory block carries.
pub(crate) fn verify_directory_block(
    block: &[u8],
    is_root: bool,
    seed: u32,
) -> Result<(), FormatError> {
    use ext4_format::htree::{self, IndexBlockKind};
    if is_root {
        return htree::verify_checksum(block, IndexBlockKind::Root, seed);
    }
    // An index node looks like one empty entry that fills the block.
    let is_node = block.len() >= 8
        && block[..4] == [0; 4]
        && block[6] == 0
        && dir_entry::decode_rec_len(u16::from_le_bytes([block[4], block[5]]), block.len())
            == block.len();
    if is_node {
        htree::verify_checksum(block, IndexBlockKind::Node, seed)
    } else {
        dir_entry::verify_tail(block, seed)
    }
}

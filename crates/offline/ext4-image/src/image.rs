//! An image and its structures: the superblock or a backup of it, descriptors, blocks, records of inodes, mappings.

use crate::error::Error;
use crate::mapping::Mapping;
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::group_desc::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{BlockNr, FormatError, GroupNr, InodeNr, Where, bitmap, checksum, inode, jbd2};
use std::io;

/// Reads the bytes of the superblock.
///
/// # Errors
/// The errors of the device, and [`io::ErrorKind::InvalidData`] for one that ends before.
pub fn superblock_bytes(dev: &dyn BlockDevice) -> io::Result<[u8; SUPERBLOCK_SIZE]> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if dev.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        let short = FormatError::NotExt4("too short for a superblock");
        return Err(io::Error::new(io::ErrorKind::InvalidData, short));
    }
    dev.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    Ok(bytes)
}

/// Reads the superblock.
///
/// # Errors
/// [`Error::Superblock`] and [`Error::Io`].
///
/// ```
/// use ext4_image::{Error, blockdev::MemDevice, superblock};
/// let blank = MemDevice::new(1 << 20);
/// assert!(matches!(superblock(&blank), Err(Error::Superblock(_))));
/// ```
pub fn superblock(dev: &dyn BlockDevice) -> Result<RawSuperblock, Error> {
    RawSuperblock::parse(&superblock_bytes(dev)?).map_err(Error::Superblock)
}

/// Returns the backups of the superblock at the start of groups of the usual sizes, each with its offset in bytes.
pub fn usual_backups(dev: &dyn BlockDevice) -> impl Iterator<Item = (u64, RawSuperblock)> {
    let places = (0..7u32).flat_map(|log| {
        let (size, first) = (1024_u64 << log, u64::from(log == 0));
        let groups = [1, 3, 5, 7, 9, 25, 27].into_iter();
        groups.map(move |group| (log, (group * (8192 << log) + first) * size))
    });
    places.filter_map(|(log, at)| Some((at, backup_at(dev, at, log)?)))
}

/// Returns the backup of the superblock at an offset, of a volume whose blocks have `1024 << log` bytes.
pub fn backup_at(dev: &dyn BlockDevice, at: u64, log: u32) -> Option<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    dev.read_at(at, &mut bytes).ok()?;
    let sb = RawSuperblock::parse(&bytes).ok()?;
    (sb.log_block_size.get() == log && Geometry::new(&sb).is_ok()).then_some(sb)
}

/// An image: a device with its superblock, geometry and descriptors.
///
/// ```
/// use ext4_image::{Error, Image, blockdev::MemDevice};
/// let blank = MemDevice::new(1 << 20);
/// assert!(matches!(Image::open(&blank), Err(Error::Superblock(_))));
/// ```
#[derive(Clone, Debug)]
pub struct Image<D> {
    /// The device.
    pub dev: D,
    /// The superblock.
    pub sb: RawSuperblock,
    /// The geometry that the superblock has.
    pub geo: Geometry,
    /// The descriptors; empty until they are read.
    pub descs: Vec<GroupDesc>,
}

impl<D: BlockDevice> Image<D> {
    /// Reads the superblock of an image.
    ///
    /// # Errors
    /// [`Error::Superblock`] and [`Error::Io`].
    pub fn open(dev: D) -> Result<Self, Error> {
        let sb = superblock(&dev)?;
        Self::new(dev, sb)
    }

    /// Creates an image with a superblock that was read before, such as a backup.
    ///
    /// # Errors
    /// [`Error::Superblock`] for a superblock without a valid geometry.
    pub fn new(dev: D, sb: RawSuperblock) -> Result<Self, Error> {
        Ok(Self {
            dev,
            geo: Geometry::new(&sb).map_err(Error::Superblock)?,
            sb,
            descs: Vec::new(),
        })
    }

    /// Reads the descriptors.
    ///
    /// # Errors
    /// [`Error::Format`] for a damaged descriptor, and [`Error::Io`].
    pub fn read_descriptors(&mut self) -> Result<(), Error> {
        let geo = &self.geo;
        let mut block = vec![0; self.block_size()];
        self.descs.clear();
        for index in 0..geo.gdt_block_count() {
            self.dev
                .read_at(geo.gdt_block(index).offset(geo.block_size), &mut block)?;
            let first = index * geo.descs_per_block();
            let end = first.saturating_add(geo.descs_per_block()).min(geo.groups);
            let records = block.chunks_exact(geo.desc_size.into());
            for (raw, group) in records.zip((first..end).map(GroupNr)) {
                self.descs.push(GroupDesc::decode(raw, geo, group)?);
            }
        }
        Ok(())
    }

    /// Reads the bytes of one descriptor, for readers that make do with a damaged one.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn descriptor_bytes(&self, group: GroupNr) -> Result<Vec<u8>, Error> {
        let (block, offset) = self.geo.desc_location(group);
        self.read_within(block, offset as usize, self.geo.desc_size.into())
    }

    /// Reads a part of a block. The whole block is read, because a server may refuse less.
    fn read_within(&self, block: BlockNr, offset: usize, len: usize) -> Result<Vec<u8>, Error> {
        let bytes = self.read(block)?;
        let part = bytes.get(offset..offset.saturating_add(len));
        Ok(part.unwrap_or_default().to_vec())
    }

    /// Reads the block bitmap of a group; one that was never written is the one that the layout implies.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn block_bitmap(&self, group: GroupNr, desc: &GroupDesc) -> Result<Vec<u8>, Error> {
        if !desc.is_uninit(&self.geo, BLOCK_UNINIT) {
            return self.read(desc.block_bitmap);
        }
        let mut map = vec![0; self.block_size()];
        bitmap::init_block_bitmap(&mut map, &self.geo, group, desc);
        Ok(map)
    }

    /// Reads the inode bitmap of a group; one that was never written has no inode in use.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn inode_bitmap(&self, desc: &GroupDesc) -> Result<Vec<u8>, Error> {
        if !desc.is_uninit(&self.geo, INODE_UNINIT) {
            return self.read(desc.inode_bitmap);
        }
        let mut map = vec![0; self.block_size()];
        bitmap::init_inode_bitmap(&mut map, &self.geo, 0);
        Ok(map)
    }

    /// Returns the number of bytes of a block.
    pub const fn block_size(&self) -> usize {
        self.geo.block_size as usize
    }

    /// Reads a block.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn read(&self, block: BlockNr) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.block_size()];
        self.dev
            .read_at(block.offset(self.geo.block_size), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes from the start of a block on.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn write(&self, block: BlockNr, bytes: &[u8]) -> Result<(), Error> {
        let offset = block.offset(self.geo.block_size);
        Ok(self.dev.write_at(offset, bytes)?)
    }

    /// Sets the checksum of the superblock and writes it; the geometry follows it.
    ///
    /// # Errors
    /// [`Error::Superblock`] for a superblock without a valid geometry, and [`Error::Io`].
    pub fn write_superblock(&mut self) -> Result<(), Error> {
        self.sb.set_checksum();
        self.dev.write_at(SUPERBLOCK_OFFSET, self.sb.bytes())?;
        self.geo = Geometry::new(&self.sb).map_err(Error::Superblock)?;
        Ok(())
    }

    /// Returns the seed of the checksums of an inode's blocks, if blocks have checksums.
    pub fn seed(&self, ino: InodeNr, generation: u32) -> Option<u32> {
        let seed = || checksum::inode_seed(self.geo.csum_seed, ino, generation);
        self.geo.features.has_metadata_csum().then(seed)
    }

    /// Returns the place of an inode's record, its block and the offset there; `None` without a descriptor that has a
    /// place for the table.
    pub fn record_place(&self, ino: InodeNr) -> Option<(BlockNr, usize)> {
        let (group, index) = self.geo.group_of_inode(ino)?;
        let table = self.descs.get(group.0 as usize)?.inode_table;
        (table.0 != 0).then(|| self.geo.inode_place(table, index))
    }

    fn record_offset(&self, ino: InodeNr) -> Option<u64> {
        let (block, at) = self.record_place(ino)?;
        Some(block.offset(self.geo.block_size) + at as u64)
    }

    /// Reads the record of an inode; `None` if it has no place.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn read_record(&self, ino: InodeNr) -> Result<Option<Vec<u8>>, Error> {
        let block_size = u64::from(self.geo.block_size);
        let read = |at: u64| {
            let (block, within) = (BlockNr(at / block_size), (at % block_size) as usize);
            self.read_within(block, within, self.geo.inode_size.into())
        };
        self.record_offset(ino).map(read).transpose()
    }

    /// Reads the record at an index of the inode table that begins at a block, which is not checked.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn record_in(&self, table: BlockNr, index: u32) -> Result<Vec<u8>, Error> {
        let per_block = self.geo.inodes_per_block();
        let block = table.0.saturating_add((index / per_block).into());
        let size = usize::from(self.geo.inode_size);
        self.read_within(BlockNr(block), (index % per_block) as usize * size, size)
    }

    /// Writes the record of an inode, with its checksum unless it is all zeros. A record without a place is not written.
    ///
    /// # Errors
    /// The errors of the device.
    pub fn write_record(&self, ino: InodeNr, raw: &mut [u8]) -> Result<(), Error> {
        let Some(at) = self.record_offset(ino) else {
            return Ok(());
        };
        if raw.iter().any(|&b| b != 0) {
            inode::set_checksum(raw, &self.geo, ino);
        }
        Ok(self.dev.write_at(at, raw)?)
    }

    /// Reads the mapping of an inode of a sound image, given its flags and its record.
    ///
    /// # Errors
    /// The errors of the device, and of a mapping that breaks a rule.
    pub fn mapping(&self, inode_flags: u32, raw: &[u8]) -> Result<Mapping, Error> {
        let root = inode::i_block(raw)?;
        Mapping::read(&self.geo, inode_flags, root, |block| self.read(block))
    }

    /// Returns the superblock of the journal, and the blocks of the journal in order, from that superblock to the end of the log. Returns
    /// `None` if the volume has no journal. The descriptors must have been read.
    ///
    /// # Errors
    /// The errors of the device, of the inode, and of a journal that is shorter than its superblock states or has blocks outside the volume.
    pub fn journal(&self) -> Result<Option<(jbd2::Superblock, Vec<BlockNr>)>, Error> {
        let ino = InodeNr(self.geo.journal_ino);
        let corrupt = || FormatError::corrupt("journal mapping", Where::Inode(ino));
        if ino.0 == 0 {
            return Ok(None);
        }
        let raw = self.read_record(ino)?.ok_or_else(corrupt)?;
        let core = inode::decode_core(&raw, &self.geo, ino)?;
        let mapping = self.mapping(core.flags, &raw)?;
        let (_, first) = mapping.places().next().ok_or_else(corrupt)?;
        let sb = jbd2::Superblock::parse(&self.read(first)?)?;
        let end = u64::from(sb.log_range().end);
        if end > self.geo.blocks_count {
            return Err(corrupt().into());
        }
        let places = mapping.places().take(end as usize).enumerate();
        let places = places.map(|(nth, (logical, block))| {
            let is_valid = logical as usize == nth && block.0 < self.geo.blocks_count;
            is_valid.then_some(block).ok_or_else(corrupt)
        });
        let places = places.collect::<Result<Vec<_>, _>>()?;
        if (places.len() as u64) < end {
            return Err(corrupt().into());
        }
        Ok(Some((sb, places)))
    }
}

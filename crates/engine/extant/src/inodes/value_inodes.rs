//! Values of extended attributes that are in inodes (`ea_inode`). A volume with this feature is read-only, so the records
//! on the device are always current.

use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::Inodes;
use crate::inodes::load::Origin;
use ext4_format::inode::{self, InodeCore, flags, value};
use ext4_format::xattr::{VALUE_MAX, ValueInode};
use ext4_format::{InodeNr, Where};
use extant_formatter::extent_map::Found;
use extant_formatter::mapping_reader::MappingReader;

impl Inodes {
    /// Fails for an inode that holds the value of an attribute, because no name and no handle lead to such an inode.
    pub(super) fn check_no_value(
        &self,
        core: &InodeCore,
        origin: Origin,
        ino: InodeNr,
    ) -> Result<()> {
        let value = core.flags & flags::EA_INODE != 0;
        if value && self.store.geometry.features.has_ea_inode() && origin != Origin::OrphanList {
            Err(Error::corrupt_inode(
                "attribute's value in place of a file",
                ino,
            ))
        } else {
            Ok(())
        }
    }

    /// Returns the value of the attribute `name` of an inode, which is in another inode.
    pub(super) fn value_in_inode(
        &self,
        owner: &Inode,
        name: &[u8],
        value: &ValueInode,
    ) -> Result<Vec<u8>> {
        self.read_value(owner, name, value)
            .map_err(|e| match e {
                Error::Format(e) => e.at(Where::Inode(value.ino)).into(),
                other => other,
            })
            .inspect_err(|e| self.store.note_damage(e, "value_in_inode", Some(value.ino)))
    }

    fn read_value(&self, owner: &Inode, name: &[u8], value: &ValueInode) -> Result<Vec<u8>> {
        let geometry = &self.store.geometry;
        value::check_number(geometry, owner.ino, value)?;
        let raw = self.raw_inode(value.ino)?;
        let core = inode::decode_core(&raw, geometry, value.ino)?;
        value::check_record(&raw, geometry, value)?;
        let size = value.size as usize;
        if size > VALUE_MAX {
            // No system call returns such a value.
            return Err(Error::TooBig);
        }
        let mut bytes = vec![0; size];
        let reader = MappingReader {
            geometry,
            images: &self.store.buffers,
            ino: value.ino,
            generation: core.generation,
            zone: Some(&self.store.zone),
        };
        let map = reader.read(core.flags, inode::i_block(&raw)?)?;
        let parts = bytes.chunks_mut(geometry.block_size as usize);
        for (block, part) in (0..).zip(parts) {
            // The bytes of a hole are zeros, and the hash decides whether they are the value.
            if let Found::Mapped(run) = map.at(block)
                && !run.unwritten
            {
                // Linux writes values as metadata: the newest ones may be in the journal.
                let image = self.store.buffers.read(run.physical)?;
                part.copy_from_slice(&image[..part.len()]);
            }
        }
        let of_owner = self.raw_inode(owner.ino)?;
        let owner = (owner.ino, &of_owner[..]);
        value::check_bytes(&raw, geometry, owner, (name, value), &bytes)?;
        Ok(bytes)
    }
}

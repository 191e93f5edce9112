//! Reading names that are not in memory, and looking them up through the index on the device.

use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::load::verify_directory_block;
use crate::names::Names;
use crate::types::dentry::{Dentry, NameHash};
use crate::types::no_key;
use ext4_format::fold::Comparison;
use ext4_format::inode::{self, flags};
use ext4_format::{BlockNr, FormatError, InodeNr, Where, checksum, dir_entry};
use extant_formatter::extent_map::Found;
use extant_formatter::name::Name;
use std::sync::atomic::Ordering;

impl Names {
    /// Runs `visit` on every checked leaf and index block of a directory. Index blocks of an htree hold no live entries
    /// but "." and "..", so one walk over all blocks sees all names.
    pub(super) fn each_directory_block(
        &self,
        dir: &Inode,
        mut visit: impl FnMut(u32, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let raw = self.inodes.raw_inode(dir.ino)?;
        let core = inode::decode_core(&raw, &self.store.geometry, dir.ino)?;
        let map = self
            .inodes
            .mapping_reader(dir)
            .read(core.flags, inode::i_block(&raw)?)?;
        let bs = u64::from(self.store.geometry.block_size);
        if core.size == 0 || core.size % bs != 0 {
            return Err(Error::corrupt_inode("directory size", dir.ino));
        }
        let blocks = u32::try_from(core.size / bs)
            .map_err(|_| Error::corrupt_inode("directory size", dir.ino))?;
        let seed = checksum::inode_seed(self.store.geometry.csum_seed, dir.ino, core.generation);
        let mut logical = 0;
        while logical < blocks {
            let run = match map.at(logical) {
                Found::Mapped(run) if !run.unwritten => run,
                _ => {
                    return Err(FormatError::corrupt(
                        "hole in a directory",
                        Where::InodeBlock(dir.ino, u64::from(logical)),
                    )
                    .into());
                }
            };
            for i in 0..run.len.min(blocks - logical) {
                let block = BlockNr(run.physical.0 + u64::from(i));
                let image = self.store.buffers.read(block)?;
                if self.store.geometry.features.has_metadata_csum() && !image.is_verified() {
                    verify_directory_block(
                        &image,
                        core.flags & flags::INDEX != 0 && logical + i == 0,
                        seed,
                    )
                    .map_err(|e| e.at(Where::Block(block, 0)))?;
                    image.set_verified();
                }
                if !visit(logical + i, &image).map_err(|e| match e {
                    Error::Format(f) => f.at(Where::Block(block, 0)).into(),
                    other => other,
                })? {
                    return Ok(());
                }
            }
            logical += run.len;
        }
        Ok(())
    }

    /// Reads all names of a directory, and how it compares them.
    pub(super) fn read_names(&self, dir: &Inode) -> Result<(Vec<Dentry>, Comparison)> {
        let compared = self.store.comparison(dir.flags());
        self.parse_names(dir, compared)
            .map(|names| (names, compared))
            .inspect_err(|e| self.inodes.note_damage_of(dir, e, "read_names"))
    }

    fn parse_names(&self, dir: &Inode, compared: Comparison) -> Result<Vec<Dentry>> {
        let mut names = Vec::new();
        if dir.has_flag(flags::INLINE_DATA) {
            let size = dir.size.load(Ordering::Relaxed);
            self.inodes.at_inline(dir, |inline| {
                inline.check_directory_size(size)?;
                let [own, rest] = inline.records();
                self.parse_records(dir, own, false, false, compared, &mut names)?;
                self.parse_records(dir, rest, false, false, compared, &mut names)
            })?;
            return Ok(names);
        }
        let one_block = dir.directory().is_some_and(|names| {
            names.size.load(Ordering::Relaxed) == u64::from(self.store.geometry.block_size)
        });
        let indexed = self.store.geometry.features.has_dir_index()
            && (one_block || dir.has_flag(flags::INDEX));
        self.each_directory_block(dir, |logical, block| {
            self.parse_records(dir, block, logical == 0, indexed, compared, &mut names)?;
            Ok(true)
        })?;
        Ok(names)
    }

    /// Adds the names of a chain of records: of a directory block, or inside the directory's inode. Only the first
    /// block has "." and "..", which are left out.
    fn parse_records(
        &self,
        dir: &Inode,
        records: &[u8],
        has_dots: bool,
        indexed: bool,
        compared: Comparison,
        names: &mut Vec<Dentry>,
    ) -> Result<()> {
        let encrypted = dir.has_flag(flags::ENCRYPT);
        for entry in dir_entry::entries_of(records, encrypted) {
            let entry = entry?;
            if entry.name == b"." || entry.name == b".." {
                if has_dots {
                    continue;
                }
                let at = Where::Buffer(entry.offset);
                return Err(
                    FormatError::corrupt("\".\" or \"..\" outside of the first block", at).into(),
                );
            }
            let shown;
            let name = if encrypted {
                let hash = indexed.then(|| self.store.hash(entry.name));
                shown = no_key::name(hash, entry.name);
                &shown[..]
            } else {
                entry.name
            };
            dir_entry::check_name(name)?;
            if entry.inode.0 > self.store.geometry.inodes_count {
                let at = Where::Buffer(entry.offset);
                return Err(FormatError::corrupt("inode number of a name", at).into());
            }
            let ftype = match entry.file_type {
                Some(ftype) => ftype,
                // Without the filetype feature, only the inode holds the type.
                None => {
                    let raw = self.inodes.raw_inode(entry.inode)?;
                    inode::decode_core(&raw, &self.store.geometry, entry.inode)?
                        .file_type()
                        .ok_or_else(|| Error::corrupt_inode("inode type", entry.inode))?
                }
            };
            names.push(Dentry {
                hash: self.store.hash_by(compared, name),
                ino: entry.inode,
                ftype,
                name: Name::new(name)?,
            });
        }
        Ok(())
    }

    /// Looks the inode of a name up in the index on disk. The caller notes damage, if the directory did not change
    /// meanwhile.
    pub(super) fn lookup_on_disk(
        &self,
        dir: &Inode,
        name: &[u8],
        hash: NameHash,
    ) -> Result<Option<InodeNr>> {
        self.with_index(dir, |index| {
            Ok(index.lookup(name, hash.major)?.map(|(ino, _)| ino))
        })
    }

    /// Reads the inode that a directory's ".." leads to.
    pub(super) fn read_parent(&self, dir: &Inode) -> Result<InodeNr> {
        let mut parent = None;
        if dir.has_flag(flags::INLINE_DATA) {
            parent = Some(self.inodes.at_inline(dir, |inline| Ok(inline.parent()))?);
        } else {
            self.each_directory_block(dir, |_, block| {
                parent = dir_entry::find(block, b"..")?.map(|e| e.inode);
                Ok(false)
            })?;
        }
        parent
            .filter(|p| p.0 != 0 && p.0 <= self.store.geometry.inodes_count)
            .ok_or_else(|| Error::corrupt_inode("directory without \"..\"", dir.ino))
            .inspect_err(|e| self.inodes.note_damage_of(dir, e, "read_parent"))
    }
}

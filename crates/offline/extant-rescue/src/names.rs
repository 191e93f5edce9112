//! Names: of directories that can be read, then of blocks that look like those of a directory.

use crate::notes::Progress;
use crate::scan;
use crate::state::Rescue;
use ext4_format::dir_entry::{self, RawRecord};
use ext4_format::inode::flags;
use ext4_format::inode::inline::Inline;
use ext4_format::{BlockNr, FileType, InodeNr};
use std::collections::{BTreeMap, BTreeSet};

/// The directory of names whose directory is not known.
pub(crate) const NOWHERE: u32 = 0;

#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Directory and name, and the inode that the name leads to.
    pub(crate) all: BTreeMap<(u32, Vec<u8>), u32>,
    /// Inodes with a name.
    pub(crate) named: BTreeSet<u32>,
    /// Directories whose inodes are lost.
    pub(crate) lost_directories: BTreeSet<u32>,
    /// Directories without a lost block.
    whole: BTreeSet<u32>,
}

impl Names {
    fn add(&mut self, dir: u32, name: &[u8], ino: u32) {
        if let std::collections::btree_map::Entry::Vacant(free) =
            self.all.entry((dir, name.to_vec()))
        {
            free.insert(ino);
            self.named.insert(ino);
        }
    }
}

/// Returns whether a record can be one of a directory's: not one of the dots.
pub(crate) fn is_name(record: &RawRecord<'_>) -> bool {
    dir_entry::check_name(record.name).is_ok() && !matches!(record.name, b"." | b"..")
}

impl Rescue<'_> {
    /// Reads the blocks of all directories.
    pub(crate) fn read_directories(&mut self, names: &mut Names) {
        let directories = self.inodes.iter();
        let directories: Vec<u32> = directories
            .filter(|(_, inode)| inode.file_type == FileType::Directory)
            .map(|(&ino, _)| ino)
            .collect();
        for ino in directories {
            let Some((raw, core)) = self.record(InodeNr(ino)) else {
                continue;
            };
            if core.flags & flags::INLINE_DATA != 0 {
                if self.read_inline_names(names, ino, &raw) {
                    names.whole.insert(ino);
                } else {
                    self.note_lost_names(ino);
                }
                continue;
            }
            let map = self.map(&raw, &core, false);
            let end = core.size.div_ceil(self.image.geo.block_size.into());
            let mut lost = u64::from(map.damaged || map.extents.is_empty());
            for extent in &map.extents {
                for i in 0..u64::from(extent.len) {
                    if u64::from(extent.logical) + i < end {
                        let block = BlockNr(extent.physical.0 + i);
                        lost += u64::from(!self.read_names(names, ino, block));
                        self.directory_blocks.insert(block, ino);
                    }
                }
            }
            if lost == 0 {
                names.whole.insert(ino);
            } else {
                self.note_lost_names(ino);
            }
        }
    }

    fn note_lost_names(&mut self, dir: u32) {
        let note = format!("directory #{dir}: some of its names are lost");
        self.notes.add(note);
    }

    /// Reads the names inside the record of a directory; returns whether all could be read.
    fn read_inline_names(&self, names: &mut Names, dir: u32, raw: &[u8]) -> bool {
        let Ok(inline) = Inline::undamaged_part(raw, &self.image.geo) else {
            return false;
        };
        let [own, rest] = inline.records();
        let read = self.read_records(names, dir, own) & self.read_records(names, dir, rest);
        read && Inline::parse(raw, &self.image.geo).is_ok()
    }

    /// Reads the names of a block; returns whether the whole block could be read.
    fn read_names(&self, names: &mut Names, dir: u32, block: BlockNr) -> bool {
        let block = self.block(block);
        block.is_some_and(|bytes| self.read_records(names, dir, &bytes))
    }

    /// Collects the names of a chain of records; returns whether the whole chain could be read.
    fn read_records(&self, names: &mut Names, dir: u32, records: &[u8]) -> bool {
        for record in dir_entry::records(records, 0, true) {
            let Ok(record) = record else {
                return false;
            };
            let reserved = record.inode.0 <= InodeNr::ROOT.0;
            if is_name(&record) && !reserved && record.inode.0 <= self.image.geo.inodes_count {
                names.add(dir, record.name, record.inode.0);
            }
        }
        true
    }

    /// Searches names in all blocks of the device, if an inode without a name exists.
    pub(crate) fn search_names(&mut self, names: &mut Names, progress: Progress<'_>) {
        let root = InodeNr::ROOT.0;
        let nameless = |ino: &u32| *ino != root && !names.named.contains(ino);
        if !self.inodes.keys().any(nameless) && self.inodes.contains_key(&root) {
            return;
        }
        let mut loose: Vec<(Vec<u8>, u32)> = Vec::new();
        let size = u64::from(self.image.geo.block_size);
        scan::pieces(self.image.dev, size, progress, &mut |at, bytes| {
            if !self.journal.meets(BlockNr(at / size), 1) {
                self.found_block(names, &mut loose, bytes);
            }
            true
        });
        // The log may have names that were removed since.
        for block in self.journal.runs.iter().flat_map(|run| run.blocks()) {
            if let Some(bytes) = self.block(block.physical) {
                self.found_block(names, &mut loose, &bytes);
            }
        }
        for (name, ino) in loose {
            if !names.named.contains(&ino) {
                names.add(NOWHERE, &name, ino);
            }
        }
        // A directory whose inode is lost is worth a line only if something is in it.
        for ino in &names.lost_directories {
            self.notes.add(format!(
                "directory #{ino}: its inode is lost; names were found in its first block"
            ));
        }
    }

    fn found_block(&self, names: &mut Names, loose: &mut Vec<(Vec<u8>, u32)>, bytes: &[u8]) {
        let dot = bytes.get(4..9) == Some(&[12, 0, 1, 2, b'.'])
            || bytes.get(4..9) == Some(&[12, 0, 1, 0, b'.']);
        let dotdot = bytes.get(20..22) == Some(b"..") && bytes.get(18) == Some(&2);
        let records: Result<Vec<RawRecord<'_>>, _> = dir_entry::records(bytes, 0, false).collect();
        let Ok(records) = records else {
            return;
        };
        // Accepts the first name of an inode if its type is that of the inode.
        let fits = |record: &RawRecord<'_>| {
            let inode = self.inodes.get(&record.inode.0);
            let file_type = FileType::from_dir_byte(record.file_type);
            is_name(record)
                && !names.named.contains(&record.inode.0)
                && record.inode != InodeNr::ROOT
                && inode.is_some_and(|i| file_type.is_none_or(|t| t == i.file_type))
        };
        let wanted = records.iter().filter(|record| fits(record));
        let wanted: Vec<(Vec<u8>, u32)> = wanted.map(|r| (r.name.to_vec(), r.inode.0)).collect();
        let own = bytes.first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
        if dot && dotdot {
            let known = self.inodes.get(&own).map(|inode| inode.file_type);
            let lost =
                known.is_none() && own >= InodeNr::ROOT.0 && own <= self.image.geo.inodes_count;
            let usable = lost || known == Some(FileType::Directory) && !names.whole.contains(&own);
            if !usable {
                loose.extend(wanted);
            } else if !wanted.is_empty() {
                if lost {
                    names.lost_directories.insert(own);
                }
                wanted
                    .iter()
                    .for_each(|(name, ino)| names.add(own, name, *ino));
            }
        } else if records.iter().all(is_name) {
            loose.extend(wanted);
        }
    }
}

//! The records of the inode tables.

use crate::state::{Inode, Rescue};
use ext4_format::inode::{self, InodeCore};
use ext4_format::{GroupNr, InodeNr};

impl Rescue<'_> {
    /// Collects the inodes in use.
    pub(crate) fn read_inodes(&mut self) {
        let size = usize::from(self.image.geo.inode_size);
        let per_block = self.image.geo.inodes_per_block();
        for (group, table) in (0..).map(GroupNr).zip(self.tables.clone()) {
            let Some(first) = table.first else {
                continue;
            };
            for n in 0..table.records.div_ceil(per_block) {
                let block = ext4_format::BlockNr(first.0.saturating_add(n.into()));
                let Some(bytes) = self.block(block) else {
                    self.notes.add(format!(
                        "block {block} of the inode table of group {group} cannot be read"
                    ));
                    continue;
                };
                let left = (table.records - n * per_block).min(per_block) as usize;
                for (i, raw) in (0..).zip(bytes.chunks_exact(size).take(left)) {
                    let ino = self.image.geo.inode_nr(group, n * per_block + i);
                    self.note_inode(ino, raw);
                }
            }
        }
    }

    fn note_inode(&mut self, ino: InodeNr, raw: &[u8]) {
        let reserved = ino.0 < self.image.geo.first_ino && ino != InodeNr::ROOT;
        if reserved || ino.0 == self.image.geo.orphan_file_ino || blockdev::is_zero(raw) {
            return;
        }
        let Some((core, sealed)) = self.decode(ino, raw) else {
            return;
        };
        if core.links == 0 || (core.dtime != 0 && !sealed) {
            if sealed && core.file_type().is_some() {
                self.dead.push(ino.0);
            }
            return;
        }
        if let Some(file_type) = core.file_type() {
            let (size, generation) = (core.size, core.generation);
            self.inodes.insert(
                ino.0,
                Inode {
                    file_type,
                    size,
                    generation,
                    sealed,
                },
            );
        }
    }

    /// Decodes a record; returns the core and whether the checksum is right.
    fn decode(&self, ino: InodeNr, raw: &[u8]) -> Option<(InodeCore, bool)> {
        match inode::decode_core(raw, &self.image.geo, ino) {
            Ok(core) => Some((core, true)),
            Err(_) => Some((
                inode::decode_verified(raw, &self.image.geo, ino).ok()?,
                false,
            )),
        }
    }

    /// Returns the record of an inode.
    pub(crate) fn record(&self, ino: InodeNr) -> Option<(Vec<u8>, InodeCore)> {
        let (group, index) = self.image.geo.group_of_inode(ino)?;
        let table = self.tables.get(group.0 as usize)?.first?;
        let raw = self.image.record_in(table, index).ok()?;
        let (core, _) = self.decode(ino, &raw)?;
        Some((raw, core))
    }
}

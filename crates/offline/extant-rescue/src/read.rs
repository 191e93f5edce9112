//! The data of a file.

use crate::state::{Found, Rescue};
use ext4_format::FileType;
use ext4_format::inode::inline::Inline;
use ext4_format::inode::{self, InodeCore, flags};
use std::io;

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

impl Rescue<'_> {
    /// Returns the attributes of a file; `None` if its inode is lost.
    pub fn attributes(&self, found: &Found) -> Option<InodeCore> {
        self.record_of(found).map(|(_, core)| core)
    }

    fn record_of(&self, found: &Found) -> Option<(Vec<u8>, InodeCore)> {
        if !found.deleted {
            return self.record(found.ino);
        }
        let old = self.old_inodes.get(&(found.ino.0, found.generation))?;
        Some((old.raw.clone(), old.core))
    }

    /// Reads the data of a regular file, or the target of a symbolic link: `sink` gets each piece with its offset, in
    /// their order. The remaining ranges are holes, or lost: the result describes the losses.
    ///
    /// # Errors
    /// The errors of `sink`.
    pub fn read(
        &self,
        found: &Found,
        sink: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<Vec<String>> {
        let mut lost = Vec::new();
        let Some((raw, core)) = self.record_of(found) else {
            return Ok(vec!["its inode is lost".into()]);
        };
        if core.flags & flags::INLINE_DATA != 0 {
            // Damage ends the search for the rest; the data before it count.
            let inline = Inline::undamaged_part(&raw, &self.image.geo).ok();
            let data = inline.map_or_else(Vec::new, |inline| inline.bytes());
            let len = (data.len() as u64).min(core.size);
            // The end of an undamaged file is a hole.
            let sound = Inline::parse(&raw, &self.image.geo).is_ok();
            let hole = sound && found.file_type == FileType::Regular;
            if len < core.size && !hole {
                lost.push("the end of its data, which are in the inode".into());
            }
            sink(0, data.get(..len as usize).unwrap_or(&[]))?;
            return Ok(lost);
        }
        let root = inode::i_block(&raw).map_or(&[][..], |root| root);
        let short = core.size < inode::I_BLOCK_SIZE as u64 && core.flags & flags::EXTENTS == 0;
        if found.file_type == FileType::Symlink && short {
            sink(0, root.get(..core.size as usize).unwrap_or(&[]))?;
            return Ok(lost);
        }
        let map = self.map(&raw, &core, found.deleted);
        if map.damaged {
            lost.push("a part of its mapping is damaged".into());
        }
        let block = u64::from(self.image.geo.block_size);
        let mut unreadable = 0_u64;
        for extent in map.extents.iter().filter(|extent| !extent.unwritten) {
            let begin = u64::from(extent.logical) * block;
            let len = (u64::from(extent.len) * block).min(core.size.saturating_sub(begin));
            let mut at = 0;
            while at < len {
                let piece = (len - at).min(PIECE);
                let from = extent
                    .physical
                    .offset(self.image.geo.block_size)
                    .saturating_add(at);
                unreadable += self.piece(from, begin + at, piece, sink)?;
                at += piece;
            }
        }
        if unreadable > 0 {
            lost.push(format!("{unreadable} of its blocks cannot be read"));
        }
        Ok(lost)
    }

    /// Passes a piece on; a piece that cannot be read as a whole is read block by block. Returns how many blocks
    /// cannot be read.
    fn piece(
        &self,
        from: u64,
        to: u64,
        len: u64,
        sink: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut bytes = vec![0; len as usize];
        if self.image.dev.read_at(from, &mut bytes).is_ok() {
            sink(to, &bytes)?;
            return Ok(0);
        }
        let mut unreadable = 0;
        let block = u64::from(self.image.geo.block_size);
        for (i, part) in (0..).zip(bytes.chunks_mut(block as usize)) {
            match self.image.dev.read_at(from.saturating_add(i * block), part) {
                Ok(()) => sink(to + i * block, part)?,
                Err(_) => unreadable += 1,
            }
        }
        Ok(unreadable)
    }
}

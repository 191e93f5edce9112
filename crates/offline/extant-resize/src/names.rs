//! Names of inodes that have another number, and the checksums of directories that have one.

use crate::error::Error;
use crate::inodes::Directory;
use crate::session::Session;
use ext4_format::htree::{self, IndexBlockKind};
use ext4_format::inode::flags;
use ext4_format::{BlockNr, dir_entry};

/// Changes the names in all directories.
pub(crate) fn make(session: &Session<'_, '_>, directories: &[Directory]) -> Result<(), Error> {
    for directory in directories {
        for extent in &directory.extents {
            for i in 0..extent.len {
                let block = BlockNr(extent.physical.0 + u64::from(i));
                one(session, directory, extent.logical.saturating_add(i), block)?;
            }
        }
    }
    Ok(())
}

fn one(
    session: &Session<'_, '_>,
    directory: &Directory,
    logical: u32,
    block: BlockNr,
) -> Result<(), Error> {
    let mut bytes = session.read(block)?;
    let mut new = Vec::new();
    for record in dir_entry::records(&bytes, 0, true) {
        let record = record?;
        if let Some(number) = session.numbers.get(&record.inode.0) {
            new.push((record.offset, *number));
        }
    }
    if new.is_empty() && !directory.renumbered {
        return Ok(());
    }
    for (at, number) in new {
        if let Some(to) = bytes.get_mut(at..at + 4) {
            to.copy_from_slice(&number.to_le_bytes());
        }
    }
    if let Some(seed) = session.seed(directory.ino, directory.core.generation) {
        let has_index = directory.core.flags & flags::INDEX != 0;
        let kind = IndexBlockKind::of(logical.into(), &bytes).filter(|_| has_index);
        match kind {
            Some(kind) => htree::set_checksum(&mut bytes, kind, seed)?,
            None => dir_entry::set_tail(&mut bytes, seed),
        }
    }
    Ok(session.write(block, &bytes)?)
}

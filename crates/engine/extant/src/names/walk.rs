//! A single step of a walk along a path.

use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::walk_cache::At;
use crate::inodes::walk_cache::SlotsOwn;
use crate::inodes::walk_cache::Step;
use crate::inodes::walk_cache::step_hash;
use crate::names::Names;
use std::sync::Arc;

impl Names {
    /// Returns the root directory, to walk from.
    pub(super) fn walk_root(&self) -> Result<At<'static>> {
        if let Some(root) = &self.inodes.walks.slots.local().lock().root {
            return Ok(At::Remembered(Arc::clone(root)));
        }
        let root = Arc::new(SlotsOwn(self.root()?));
        self.inodes.walks.slots.local().lock().root = Some(Arc::clone(&root));
        Ok(At::Remembered(root))
    }

    /// Takes a step of a walk, if the name is in memory and leads to a directory.
    pub(super) fn step_into(
        &self,
        parent: &Arc<Inode>,
        name: &[u8],
    ) -> Result<Option<At<'static>>> {
        if let Some(child) = self.inodes.walks.find(parent, name) {
            return Ok(Some(At::Remembered(child)));
        }
        let Some(names) = parent.directory().filter(|names| names.is_complete()) else {
            return Ok(None);
        };
        let hash = self.hash_in(parent, name);
        let bucket = names.table.read(hash);
        let entry = match bucket.find(hash, name) {
            Some(entry) if entry.ftype == ext4_format::FileType::Directory => entry,
            _ => return Ok(None),
        };
        let child = self.inodes.named_inode(entry.ino)?;
        if child.ino == parent.ino {
            return Err(Error::corrupt_inode(
                "directory that holds itself",
                parent.ino,
            ));
        }
        // Read with the bucket locked, so it is of the same moment as the entry.
        let moves = names.moves().count();
        drop(bucket);
        if child.directory().is_none() {
            // The type in the entry is wrong.
            return Ok(None);
        }
        let child = Arc::new(SlotsOwn(child));
        self.inodes.walks.remember(Step {
            parent: Arc::clone(parent),
            hash: step_hash(parent, name),
            moves,
            name: name.into(),
            child: Arc::clone(&child),
        });
        Ok(Some(At::Remembered(child)))
    }
}

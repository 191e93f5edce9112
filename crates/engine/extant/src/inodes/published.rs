//! Results of a push for the inodes in memory.

use crate::inodes::Inodes;
use extant_formatter::Published;
use std::sync::atomic::Ordering;

impl Inodes {
    pub(super) fn note_published(&self, published: &Published) {
        if let Some(inode) = self.index.get(published.ino) {
            inode
                .sectors
                .fetch_add(published.sectors_delta, Ordering::Relaxed);
            if let Some(file) = inode.touched_file().filter(|_| published.tree_delta != 0) {
                file.tree.note_formatted(published.tree_delta);
            }
            if let (Some(size), Some(dir)) = (published.size, inode.directory()) {
                dir.size.store(size, Ordering::Relaxed);
            }
        }
    }
}

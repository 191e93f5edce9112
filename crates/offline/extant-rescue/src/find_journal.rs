//! Finds the journal.

use crate::journal::Journal;
use crate::state::Rescue;
use ext4_format::extent::{Extent, ExtentHeader};
use ext4_format::inode::flags;
use ext4_format::{InodeNr, jbd2};

impl Rescue<'_> {
    /// Returns the blocks of the journal: those of its inode, or those of the copy of its mapping in the superblock. Empty if neither
    /// leads to a journal.
    pub(crate) fn find_journal(&self) -> Journal {
        let own = self.record(InodeNr(self.image.geo.journal_ino));
        let own = own.map(|(raw, core)| self.map(&raw, &core, false).extents);
        own.filter(|runs| self.is_journal(runs))
            .or_else(|| self.copied_journal().filter(|runs| self.is_journal(runs)))
            .map_or_else(Journal::default, Journal::new)
    }

    /// Returns the mapping of the journal that is copied in the superblock.
    fn copied_journal(&self) -> Option<Vec<Extent>> {
        let (root, _) = self.image.sb.journal_copy()?;
        let is_tree = ExtentHeader::parse(&root).is_ok();
        let flags = if is_tree { flags::EXTENTS } else { 0 };
        Some(self.map_root(&root, flags, false).extents)
    }

    /// Returns whether these runs begin with the superblock of a journal.
    fn is_journal(&self, runs: &[Extent]) -> bool {
        let first = runs.first().and_then(|run| run.map(0));
        let bytes = first.and_then(|first| self.block(first));
        let sb = bytes.and_then(|bytes| jbd2::Superblock::parse(&bytes).ok());
        sb.is_some_and(|sb| sb.block_size == self.image.geo.block_size)
    }
}

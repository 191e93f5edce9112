//! Rules that the engine itself must keep, whatever the callers do and whatever is on the device; checked at run time, in
//! every build.
//!
//! A rule that does not hold means that what is in memory is not to be trusted. Then nothing more of it may reach the
//! device: the volume stops, the error names the rule and what was found, and the image is as of the last commit. Nothing
//! panics, and nothing goes on as if all were well.
//!
//! Checks on the way of an operation are one comparison of words that are at hand; those of a push may look at each block.

use crate::base::error::{Error, Result};
use crate::volume::engine::Engine;
use ext4_format::BlockNr;

/// A rule, by what it speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    // The log and its contexts
    FormattedInOrder,
    DurableInOrder,
    DurableIsFormatted,
    FreedIsNotLogged,
    SizeHasItsData,
    CreditsCover,
    // What the formatter gives
    BlocksAscend,
    BlocksInVolume,
    ImageIsABlock,
    RevokedIsNotLogged,
    NoMoreThanATransaction,
    // The journal
    LogHasRoom,
    LogHeadInside,
    CommitBehindItsBlocks,
    TransactionsInOrder,
    FlushBeforeCommit,
    FlushAfterCommit,
    AllHomeBeforeEmpty,
    FlushBeforeEmpty,
    FrozenIsStill,
    // Space
    FreeWithinVolume,
    TakenWasFree,
    FreedWasUsed,
    NumberInRange,
    // Files
    HoleWasEmpty,
    RunIsMapped,
    RunInVolume,
    PromisesCover,
    DirtyPageIsThere,
}

impl Rule {
    /// What must hold.
    pub fn text(self) -> &'static str {
        match self {
            Self::FormattedInOrder => "contexts are formatted in the order of their numbers",
            Self::DurableInOrder => "contexts become durable in the order of their numbers",
            Self::DurableIsFormatted => "a durable context was formatted before",
            Self::FreedIsNotLogged => "a freed inode is not logged any more",
            Self::SizeHasItsData => "the size that is logged is not beyond the file's",
            Self::CreditsCover => "drawn credits cover what a commit charges",
            Self::BlocksAscend => "a batch changes each block once, in order",
            Self::BlocksInVolume => "a batch changes blocks of the volume",
            Self::ImageIsABlock => "an image is as long as a block",
            Self::RevokedIsNotLogged => "a block that is revoked is not logged with it",
            Self::NoMoreThanATransaction => "a batch is no larger than a transaction",
            Self::LogHasRoom => "what is logged fits the room left in the log",
            Self::LogHeadInside => "the log's head is inside the log",
            Self::CommitBehindItsBlocks => "a commit block is behind the blocks that it commits",
            Self::TransactionsInOrder => "transactions have consecutive numbers",
            Self::FlushBeforeCommit => "a flush comes before the commit block",
            Self::FlushAfterCommit => "a flush comes after the commit block",
            Self::AllHomeBeforeEmpty => "every image is home before the log is emptied",
            Self::FlushBeforeEmpty => "a flush comes before the log is emptied",
            Self::FrozenIsStill => "nothing is written to a frozen volume",
            Self::FreeWithinVolume => "no more blocks are free than the volume has",
            Self::TakenWasFree => "a block that is taken was free",
            Self::FreedWasUsed => "a block that is freed was in use",
            Self::NumberInRange => "an inode number is one that files may have",
            Self::HoleWasEmpty => "blocks taken for a hole replace no others",
            Self::RunIsMapped => "a logged run has blocks",
            Self::RunInVolume => "a logged run is inside the volume",
            Self::PromisesCover => "pages have no more promises than their file",
            Self::DirtyPageIsThere => "a dirty page is in memory",
        }
    }

    /// The error of this rule.
    #[cold]
    pub fn broken(self, found: String) -> Error {
        Error::Broken {
            rule: self.text(),
            found,
        }
    }
}

/// Returns the error of a rule unless it holds; what was found is put together only then.
macro_rules! insist {
    ($holds:expr, $rule:ident, $($found:tt)+) => {
        if !$holds {
            return Err($crate::base::invariants::Rule::$rule.broken(format!($($found)+)));
        }
    };
}
pub(crate) use insist;

impl Engine {
    /// Stops the volume if a rule does not hold: for where no error can be returned.
    #[inline(always)]
    pub(crate) fn insist(&self, holds: bool, rule: Rule, found: impl FnOnce() -> String) {
        if !holds {
            self.stop_for(rule, found());
        }
    }

    #[cold]
    fn stop_for(&self, rule: Rule, found: String) {
        self.stop(&rule.broken(found));
    }

    /// Passes a result on, and stops the volume if it is a broken rule.
    #[inline]
    pub(crate) fn heed<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e @ Error::Broken { .. }) = &result {
            self.stop(e);
        }
        result
    }

    /// Blocks may be used again: the checkpoint that frees them is on disk, or they were never logged.
    pub(crate) fn give_blocks_back(&self, start: BlockNr, len: u32) -> Result<()> {
        let given = self.blocks.give_back(start, len);
        given.inspect_err(|e| self.stop(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;
    use crate::log::Cost;
    use crate::store::buffers::Image;
    use crate::types::credentials::Credentials;
    use crate::types::extent_map::Run;

    /// Breaks a rule of a volume on which something was made durable and something was not; the volume stops with the
    /// rule's text, and the image has the first and not the second.
    fn breaks(rule: Rule, how: impl FnOnce(&Engine)) {
        let device = std::sync::Arc::new(blockdev::MemDevice::new(16 << 20));
        let options = crate::mkfs::MkfsOptions {
            size: Some(16 << 20),
            zeroed_device: true,
            ..Default::default()
        };
        crate::mkfs::format(&*device, &options).unwrap();
        let open = || -> Volume {
            let device = std::sync::Arc::clone(&device);
            let options = crate::OpenOptions::new().background(false);
            options.open_device(device).unwrap()
        };
        let volume = open();
        volume.write_file("/durable", b"1").unwrap();
        volume.sync().unwrap();
        volume.create("/not", 0o600).unwrap();
        how(volume.guard_engine());
        let error = volume.sync().unwrap_err().to_string();
        assert!(error.contains(rule.text()), "{error}");
        let error = volume.create("/more", 0o600).map(drop).unwrap_err();
        assert!(matches!(error, Error::ReadOnly(_)), "{error}");
        assert_eq!(volume.read_file("/durable").unwrap(), b"1");
        volume.close().unwrap_err();
        let volume = open();
        assert_eq!(volume.read_file("/durable").unwrap(), b"1");
        assert!(matches!(volume.stat("/not"), Err(Error::NotFound)));
    }

    #[test]
    fn blocks_that_are_free_are_not_freed() {
        breaks(Rule::FreedWasUsed, |engine| {
            let block = engine.allocate_block(BlockNr(2000)).unwrap();
            engine.give_blocks_back(block, 1).unwrap();
            assert!(engine.give_blocks_back(block, 1).is_err());
        });
    }

    #[test]
    fn a_run_beyond_the_volume_is_not_logged() {
        breaks(Rule::RunInVolume, |engine| {
            let tx = engine.begin(&Credentials::root(), Cost::MAP).unwrap();
            let run = Run {
                logical: 0,
                len: 2,
                physical: BlockNr(engine.geometry.blocks_count - 1),
                unwritten: false,
            };
            tx.commit(0, |c| c.map_run(ext4_format::InodeNr(12), run, true));
        });
    }

    #[test]
    fn contexts_become_durable_in_order() {
        breaks(Rule::DurableInOrder, |engine| {
            let settled = engine.log.settled(engine.log.durable());
            engine.heed(settled).unwrap_err();
        });
    }

    #[test]
    fn nothing_is_written_home_while_the_volume_is_frozen() {
        breaks(Rule::FrozenIsStill, |engine| {
            assert!(engine.gate.close() && engine.gate.shut());
            let images = [(BlockNr(2000), Image::made(vec![1; 4096]))];
            let written = crate::commit::journal::home::write_home(engine, &images);
            engine.heed(written).unwrap_err();
            engine.gate.open();
        });
    }
}

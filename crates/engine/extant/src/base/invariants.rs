//! Rules that the engine itself must keep, whatever callers do and whatever the device holds. They are checked at run
//! time, in every build.
//!
//! A broken rule means that memory cannot be trusted. Then no more of it may reach the device: the volume stops, the
//! error names the rule and the finding, and the image is as of the last commit. No rule panics, and no operation
//! continues as if all were well.
//!
//! A check inside an operation is one comparison of words that are already in registers or caches. Checks of a push may
//! look at each block.

use crate::base::error::Error;

/// A rule, by its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    // The log and its contexts
    FormattedInOrder,
    DurableInOrder,
    DurableIsFormatted,
    FreedIsNotLogged,
    SizeHasItsData,
    CreditsCover,
    // The output of the formatter
    BlocksAscend,
    BlocksInVolume,
    ImageIsABlock,
    RevokedIsNotLogged,
    NoMoreThanATransaction,
    FastCommitsFit,
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
    /// Returns the rule in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::FormattedInOrder => "contexts are formatted in the order of their numbers",
            Self::DurableInOrder => "contexts become durable in the order of their numbers",
            Self::DurableIsFormatted => "a durable context was formatted before",
            Self::FreedIsNotLogged => "a freed inode is not logged any more",
            Self::SizeHasItsData => "the size that is logged is not beyond the file's",
            Self::CreditsCover => "drawn credits cover the items of a commit",
            Self::BlocksAscend => "a batch changes each block once, in order",
            Self::BlocksInVolume => "a batch changes blocks of the volume",
            Self::ImageIsABlock => "an image is as long as a block",
            Self::RevokedIsNotLogged => "a block that is revoked is not logged with it",
            Self::NoMoreThanATransaction => "a batch is no larger than a transaction",
            Self::FastCommitsFit => "what fast commits made durable fits one transaction",
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

    /// Returns the error of this rule.
    #[cold]
    pub fn broken(self, found: String) -> Error {
        Error::Broken {
            rule: self.text(),
            found,
        }
    }
}

/// Returns the error of a rule unless it holds; the finding is formatted only then.
macro_rules! insist {
    ($holds:expr, $rule:ident, $($found:tt)+) => {
        if !$holds {
            return Err($crate::base::invariants::Rule::$rule.broken(format!($($found)+)));
        }
    };
}
pub(crate) use insist;

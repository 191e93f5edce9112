//! Faults that were fixed, to be planted again: the tests that found them must still find them.
//!
//! In a build with debug assertions the environment variable `EXTANT_PLANTED` names one fault, and the engine behaves
//! as if the change that fixed it had never been made. In every other build the checks below are constants, and the
//! compiler removes them.

/// A fault that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // A name is listed here before the place that asks for it is written.
pub(crate) enum Fault {
    /// `fsync` returns although no flush began after the last write of data.
    FsyncWithoutFlush,
    /// A file's size becomes durable before the zeroed tail of its last block.
    SizeBeforeTail,
    /// A block read from the device replaces an image that is newer.
    StaleBuffer,
    /// A second push continues after one that failed.
    PushAfterFailure,
    /// A bitmap that cannot be read does not keep freed blocks from being used again before their commit.
    UnreadBitmap,
    /// `sync` does not wait for the write-back that another thread has begun.
    SyncWithoutOthers,
    /// A new file waits for a push with the bucket of its name locked.
    WaitsLocked,
    /// The flush before the commit block is left out.
    NoFlushBeforeCommit,
    /// The flush after the commit block is left out.
    NoFlushAfterCommit,
    /// A freed metadata block is not revoked.
    NoRevoke,
    /// Freed blocks are used again before their freeing is durable.
    ReuseBeforeCommit,
    /// The mapping of new blocks is committed before their data are written.
    MappingBeforeData,
    /// A file's mapping leads to a copy that was made before the last write to the original blocks.
    MovedBlindly,
    /// A number that was freed is looked up on the device before a push has formatted that.
    FreedNumberReadAgain,
    /// The parent of a removed directory is looked for as that of any other.
    DeadParentIsDamage,
    /// `sync` and the timer return at the first file that cannot be written back.
    StopsAtFirstFailure,
    /// A checkpoint marks the log as empty although fast commits continue it.
    FastCommitsForgotten,
    /// A fast commit is written although the transaction that it continues is not durable.
    FastCommitAhead,
    /// A fast commit is written before the data of its mappings and sizes are on the medium.
    FastCommitBeforeData,
    /// A fast commit without a mapping is written before the data that a larger size covers are on the medium.
    FastCommitBeforeSize,
    /// A fast commit does not count the names and mappings of earlier ones.
    FastCommitsUncounted,
    /// The first change of fast commits may be in the table block of the journal's inode.
    FastCommitBesideJournal,
    /// A fast commit is written after the one before it has failed.
    FastCommitAfterFailure,
}

#[cfg(debug_assertions)]
impl Fault {
    const ALL: [(&'static str, Self); 23] = [
        ("fsync-without-flush", Self::FsyncWithoutFlush),
        ("size-before-tail", Self::SizeBeforeTail),
        ("stale-buffer", Self::StaleBuffer),
        ("push-after-failure", Self::PushAfterFailure),
        ("unread-bitmap", Self::UnreadBitmap),
        ("sync-without-others", Self::SyncWithoutOthers),
        ("waits-locked", Self::WaitsLocked),
        ("no-flush-before-commit", Self::NoFlushBeforeCommit),
        ("no-flush-after-commit", Self::NoFlushAfterCommit),
        ("no-revoke", Self::NoRevoke),
        ("reuse-before-commit", Self::ReuseBeforeCommit),
        ("mapping-before-data", Self::MappingBeforeData),
        ("moved-blindly", Self::MovedBlindly),
        ("freed-number-read-again", Self::FreedNumberReadAgain),
        ("dead-parent-is-damage", Self::DeadParentIsDamage),
        ("stops-at-first-failure", Self::StopsAtFirstFailure),
        ("fast-commits-forgotten", Self::FastCommitsForgotten),
        ("fast-commit-ahead", Self::FastCommitAhead),
        ("fast-commit-before-data", Self::FastCommitBeforeData),
        ("fast-commit-before-size", Self::FastCommitBeforeSize),
        ("fast-commits-uncounted", Self::FastCommitsUncounted),
        ("fast-commit-beside-journal", Self::FastCommitBesideJournal),
        ("fast-commit-after-failure", Self::FastCommitAfterFailure),
    ];
}

/// Returns whether this fault is planted.
#[cfg(debug_assertions)]
pub(crate) fn is(fault: Fault) -> bool {
    use std::sync::OnceLock;
    static PLANTED: OnceLock<Option<Fault>> = OnceLock::new();
    let planted = PLANTED.get_or_init(|| {
        let name = std::env::var("EXTANT_PLANTED").ok()?;
        let known = Fault::ALL.iter().find(|(n, _)| *n == name);
        // A misspelt name would plant nothing, and the run would wrongly report that it found nothing.
        Some(
            known
                .unwrap_or_else(|| panic!("no planted fault is called {name}"))
                .1,
        )
    });
    *planted == Some(fault)
}

/// Returns false, because no fault is planted in this build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) const fn is(_fault: Fault) -> bool {
    false
}

/// Gives other threads the time to meet the planted fault.
#[cfg(debug_assertions)]
pub(crate) fn wait() {
    std::thread::sleep(std::time::Duration::from_millis(2));
}

/// Does not wait, because no fault is planted in this build.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) const fn wait() {}

//! Faults that were mended, to be planted again: the tests that found them must still find them.
//!
//! In builds with debug assertions, those of the tests, the environment variable `EXTANT_PLANTED` names a fault (`scripts/judge.sh`). In
//! every other build the checks below are constants, and the compiler removes them.

/// A fault that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // A release build names no fault.
pub enum Fault {
    /// The superblock of a changed image is written first, and no mark before it.
    SuperblockFirst,
    /// A journal with transactions is replaced by an empty one.
    JournalThrownAway,
}

#[cfg(debug_assertions)]
impl Fault {
    const ALL: [(&'static str, Self); 2] = [
        ("superblock-first", Self::SuperblockFirst),
        ("journal-thrown-away", Self::JournalThrownAway),
    ];
}

/// Returns whether this fault is planted.
#[cfg(debug_assertions)]
pub fn is(fault: Fault) -> bool {
    let planted = std::env::var("EXTANT_PLANTED").ok();
    let known = Fault::ALL
        .iter()
        .find(|(n, _)| Some(*n) == planted.as_deref());
    known.is_some_and(|(_, known)| *known == fault)
}

/// Returns false, because this build does not plant faults.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn is(_fault: Fault) -> bool {
    false
}

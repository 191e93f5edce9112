//! Code that tests of several crates share: images of every kind, damage, walks over all structures, and two judges: of the contents
//! after a cut, and of the verdicts of a check and of e2fsck.
#![allow(
    missing_docs,
    reason = "names of tests and their helpers speak for themselves"
)]

pub mod bases;
pub mod chosen;
pub mod common;
pub mod folded;
pub mod image;
pub mod judge;
pub mod map;
pub mod mounted;
pub mod mutant;
pub mod mutate;
pub mod operations;
pub mod quota;
pub mod record_in_log;
pub mod verdict;
pub mod walk;

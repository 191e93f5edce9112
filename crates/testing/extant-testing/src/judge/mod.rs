//! The judge of crash states: the legal content of a file after a power cut, synced or not.
//!
//! A *program* of random operations runs in one or several tasks over a *target* (the library, the mount's handler, a
//! mounted directory) above a recording device. Each cell of [`stamp::CELL`] bytes that a program writes carries a
//! stamp that no other write has, so a cell that is read later tells which write it is from. The *model* keeps the
//! history of every cell, size and name. After a cut the *verdict* compares the recovered volume with the model:
//!
//! - The names of a task are those after its operation k, for a k that is not before the last sync and not after the
//!   last operation that began. Operations before a join of all tasks exist if any operation after that join exists.
//! - A cell holds the value that it had when its file was synced last, or a later value. Values that a truncation, a
//!   punched hole or a zeroed range removed do not reappear in a state that has this operation.
//! - A size is the one the file had at the last sync or after a later operation.
//! - e2fsck finds nothing to mend.
//!
//! After a device has lied about one flush, only one promise is left: metadata are not wrong silently ([`lies`]).
//!
//! A *campaign* cuts, recovers, judges, continues on the recovered volume, and cuts again: the recovery of a second
//! round is cut as its operations are.

pub mod campaign;
pub mod lies;
pub mod model;
pub mod program;
pub mod stamp;
pub mod target;
pub mod verdict;

//! The watchers of a volume.

pub mod watchers;

//! Who is told what happens in a volume.

pub mod watchers;

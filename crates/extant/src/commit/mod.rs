//! The way to the device: a push has the formatter turn a context into block images, and the journal makes them durable. The
//! only writer of metadata.

pub mod begin;
pub mod formatter;
pub mod journal;
pub mod push;
pub mod statistics;
pub mod superblock;

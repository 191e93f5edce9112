//! Fast commits as the formatter's input and output: a batch of items that is durable without being formatted, and the batch that
//! recovery formats for it.

mod changes;
mod replay;

pub use changes::{Records, changes};
pub use replay::{FreeSpace, Volume};

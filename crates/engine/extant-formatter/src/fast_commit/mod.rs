//! Fast commits as the formatter's input and output: a batch of items that is durable without being formatted, and the
//! batch that recovery formats in its place.

mod changes;
mod mappings;
mod records;
mod replay;
mod room;
mod transaction_size;

use ext4_format::inode::flags;

pub use changes::{SincePush, changes};
pub use records::Records;
pub use replay::{FreeSpace, Volume};

/// Flags of inodes whose changes are neither written as fast commits nor replayed here.
const REFUSED: u32 = flags::INLINE_DATA | flags::ENCRYPT | flags::CASEFOLD;

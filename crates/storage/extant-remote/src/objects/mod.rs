//! An image as numbered objects: a log of segments, and a map of where each block is.
//!
//! | object | contents |
//! |---|---|
//! | `log/NUMBER` | a segment: the blocks of one flush, or of a part of the writes between two flushes |
//! | `map/NUMBER` | the map as of the segment of this number, so that opening does not read the whole log |
//! | `snap/NAME` | the map as of a snapshot |
//!
//! Segments are made with a condition: the object must not exist. A flush is one such request, and all the writes of a segment land
//! or none. The condition is also the fence: a writer begins with a segment that claims the image, and a former writer that returns
//! finds the number of its next segment taken.
//!
//! Several segments are sent at once, if the store is not a directory. Segments behind a missing one do not count, and a flush waits for
//! all segments before its own. Each segment records how many segments before it were still being sent, so that a segment that is lost
//! later is damage. A claim takes the first missing number, and also the next ones, because the former writer may still be sending
//! their segments.
//!
//! Claims are never deleted, because the number of a claim is the one that the former writer would use next.

pub mod cipher;
mod device;
mod log;
mod map;
#[cfg(test)]
mod parallel;
#[cfg(test)]
mod races;
mod segment;
mod sender;
#[cfg(test)]
#[path = "../../tests/it/watched.rs"]
mod watched;

pub use cipher::ImageKey;
pub use sender::ObjectsDevice;

use crate::address::Address;
use std::io;
use tokio::runtime::Runtime;

/// Makes a snapshot of the flushed state. Fails if the name is taken.
pub fn snapshot(address: Address, runtime: Runtime, name: &str) -> io::Result<()> {
    log::snapshot(&log::Log::new(address, runtime), name)
}

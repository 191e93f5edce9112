//! Block devices.
//!
//! The object-safe trait [`BlockDevice`], and the devices behind it:
//!
//! | device | is | for |
//! |---|---|---|
//! | [`FileDevice`] | an image file or a block special file, locked against a second user | real volumes |
//! | [`UnlockedFile`] | a file or block special file that is only read, even if it is locked | sources, detection of formats |
//! | [`MemDevice`] | sparse memory with copy-on-write snapshots | tests, benchmarks, crash images |
//! | [`RecordingDevice`] | any device, with a [`Log`] of every write and flush | crash tests, with [`Replayer`] |
//! | [`TimedDevice`] | any device, with the beginning and end of every write and flush | tests of durability, with [`TimedReplay`] |
//! | [`FaultDevice`] | any device, failing on demand | tests of error paths |
//! | [`Overlay`] | a device that is only read, below a store that takes all writes | scratch mounts, trials of changes |
//! | [`PartDevice`] | a part of another device | partitions |
//! | [`SnapshotDevice`] | any device, with a snapshot while writes continue | checks and copies of a volume in use |
//! | [`SlowDevice`] | any device, with flushes that take time | tests and benchmarks of fsync |
//!
//! [`reading_ahead`] lends a device that reads announced large ranges ahead.
//!
//! ```
//! use extant_blockdev::{BlockDevice, MemDevice};
//! let dev = MemDevice::new(1 << 30);           // 1 GiB, nothing allocated yet
//! dev.write_at(4096, b"hello").unwrap();
//! let before = dev.snapshot();                 // cheap: chunks are shared
//! dev.write_at(4096, b"HELLO").unwrap();
//! let mut buf = [0; 5];
//! before.read_at(4096, &mut buf).unwrap();
//! assert_eq!(&buf, b"hello");
//! ```
//!
//! # What a device promises
//! [`conformance::check`] tests these promises on any device.
//!
//! - Reads and writes are exact: the whole range is transferred or an error is returned.
//! - Concurrent calls are allowed. Two writes that overlap in space and time leave an
//!   unspecified mix of both; the file system above never issues such a pair.
//! - A write is durable only after a [`flush`](BlockDevice::flush) that began after the write
//!   returned. Until then a crash may lose any part of the write, at a granularity of 512 bytes.

#[macro_use]
mod device;

pub mod conformance;
mod copy;
mod errors;
mod fault;
mod file;
pub mod host;
mod kernel;
mod mem;
mod overlay;
mod part;
mod read_ahead;
mod record;
mod replay;
mod slow;
mod snapshot;
mod threads;
mod timed;

pub use copy::copy_bytes;
#[doc(hidden)]
pub use device::refuse_read_only;
pub use device::{BlockDevice, SECTOR, is_zero, write_zeroes};
pub use errors::errno_of;
#[doc(hidden)]
pub use errors::without_path;
pub use fault::{FaultDevice, Op};
pub use file::{Access, FileDevice, UnlockedFile, unnamed_file, write_protection};
pub use mem::MemDevice;
pub use overlay::{Overlay, apply_overlay};
pub use part::PartDevice;
pub use read_ahead::reading_ahead;
pub use record::{Event, Log, RecordingDevice};
pub use replay::{Crash, Fate, Replayer};
pub use slow::SlowDevice;
pub use snapshot::{Snapshot, SnapshotDevice, SnapshotOptions};
pub use threads::start_threads;
pub use timed::{TimedDevice, TimedEvent, TimedReplay};

/// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

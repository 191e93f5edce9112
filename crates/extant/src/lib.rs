//! ext4 for many cores, in user space.
pub mod error;
pub use error::{Error, Result};
pub mod alloc;
pub mod buffers;
pub mod engine;
pub mod formatter;
pub mod groups;
pub mod journal;
pub mod log;
pub mod mapping;
pub mod namespace;

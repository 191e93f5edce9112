//! Interface for a server of a volume, such as the FUSE mount: inodes by number, reads and writes that leave times and
//! rights to a cache above, and observers of inodes. [`VolumeSide`] is a volume as a side of a copy. This interface may
//! change with any version of this crate.
//!
//! ```
//! # let volume = extant::doc_volume();
//! use extant::unstable::{MakeNode, Node};
//! let who = extant::Credentials::root();
//! let dir = Node::root(&volume)?.make(&who, b"dir", MakeNode::Directory, 0o755)?;
//! assert_eq!(Node::of_number(&volume, dir.ino())?.generation(), dir.generation());
//! # Ok::<(), extant::Error>(())
//! ```

pub use super::copy::{PathMessages, VolumeSide};
pub use super::node::{MakeNode, Node, NodeEntry};
pub use super::open_options::OpenFlags;
pub use crate::base::fix_time;
#[doc(hidden)]
pub use crate::base::jitter::jitter;
#[doc(hidden)]
pub use crate::base::schedule;
pub use crate::data::fallocate::Seek;
pub use crate::inodes::observe::{InodeInCore, InodeObserver};

//! Reads the sources of new file systems: archives, plain or compressed, lists of files, and device tables. Every byte
//! may be hostile.
//!
//! | file | contents |
//! |---|---|
//! | `archive/` | archives as streams of members; compression |
//! | `tar/`, `cpio/` | members of tar and cpio archives |
//! | `squashfs/` | SquashFS images as trees |
//! | `manifest/` | lists of files (mtree) and device tables |
//! | `read_tree` | [`ReadTree`]: trees of other readers |
//! | `white_out` | names by which a layer removes files of lower layers |
//! | `archive_member`, `member`, `monitor`, `error` | members, progress, cancellation and errors |

#![forbid(unsafe_code)]

mod archive;
mod archive_member;
mod attribute_change;
mod cpio;
mod error;
mod manifest;
mod member;
mod monitor;
mod read_tree;
mod squashfs;
mod tar;
mod white_out;

pub use archive::{ArchiveInput, decompressed, read_archive, read_tree};
pub use archive_member::{ArchiveKind, ArchiveMember};
pub use attribute_change::AttributeChange;
pub use blockdev;
pub use error::{Result, SourceError};
pub use manifest::{DeviceTable, Manifest};
pub use read_tree::ReadTree;
pub use squashfs::SquashTree;
pub use tar::flag_names;
pub use white_out::WhiteOut;

/// Internal parts that `extant-mkfs` uses.
#[doc(hidden)]
pub mod parts {
    pub use crate::archive::stream::{Store, Stream};
    pub use crate::archive::{Members, squashfs};
    pub use crate::error::show;
    pub use crate::manifest::{Entry, Order};
    pub use crate::member::{Member, MemberKind, RawXattrs, Segment, is_kept_xattr};
    pub use crate::monitor::ReadMonitor;
}

//! The quota files of the new volume, and the use of the inodes whose mappings get more or fewer blocks.

use crate::target::Shape;
use ext4_format::InodeNr;
use ext4_format::extent::Extent;
use ext4_format::inode::{self, InodeCore};
use ext4_format::quota::{QuotaKind, QuotaSums};

/// Quota files, and the use of the inodes whose mappings change.
#[derive(Default)]
pub(crate) struct Quota {
    pub(crate) before: QuotaSums,
    pub(crate) after: QuotaSums,
    pub(crate) files: Vec<File>,
}

/// A quota file of the new volume.
pub(crate) struct File {
    pub(crate) kind: QuotaKind,
    pub(crate) ino: InodeNr,
    pub(crate) len: u64,
    pub(crate) extents: Vec<Extent>,
}

impl Quota {
    /// Notes the blocks of an inode with its old record and with its new one. `shape` is that of the old volume, whose
    /// numbers tell which inodes are not counted.
    pub(crate) fn note_use(
        &mut self,
        shape: &Shape,
        (ino, core): (InodeNr, &InodeCore),
        [old, new]: [&[u8]; 2],
    ) {
        let Shape { sb, geo } = shape;
        if geo.features.has_quota() && inode::sectors(old, geo) != inode::sectors(new, geo) {
            self.before.add(sb, geo, ino, old, core, 0);
            self.after.add(sb, geo, ino, new, core, 0);
        }
    }
}

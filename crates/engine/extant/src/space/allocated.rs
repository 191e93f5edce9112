//! Allocated inode numbers.

use ext4_format::InodeNr;
use ext4_format::geometry::Geometry;

/// An allocated number; `after` is a stamp that everything logged for it must exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// The number.
    pub ino: InodeNr,
    /// Stamp of the free in the same context, or 0.
    pub after: u64,
    /// That context; with [`DIRECTORY`] the number was counted as a directory's.
    pub(super) context: u64,
}

/// Mark of a directory's number in its context, which no context has as a bit.
pub(super) const DIRECTORY: u64 = 1 << 63;

/// Returns the index of the first number of group 0 that is taken as long as there are others. On volumes with fast commits, files come
/// into the table block of the journal's inode last, because their fsync cannot be the first fast commit after a push.
pub(super) fn first_taken(geometry: &Geometry) -> u32 {
    let per_block = geometry.inodes_per_block();
    match geometry.journal_ino {
        journal if journal > 0 && journal <= geometry.inodes_per_group => {
            let is_fast = geometry.features.has_fast_commit();
            if is_fast {
                journal.next_multiple_of(per_block)
            } else {
                0
            }
        }
        _ => 0,
    }
}

impl Allocated {
    /// Makes a number that was free in the bitmap.
    pub(super) fn new(ino: InodeNr) -> Self {
        Self {
            ino,
            after: 0,
            context: 0,
        }
    }
}

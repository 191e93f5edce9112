//! Log items: the narrow interface between the concurrent code above the log and the formatter. Items are small and
//! logical, and hold no block images.
//!
//! Every item of one object carries a `stamp`, and stamps grow in the order in which the object's
//! lock was held. Only the order per object matters: bits commute.

use crate::chunks::{Chunks, Spare};
use crate::name::Name;
use ext4_format::inode::InodeCore;
use ext4_format::timestamp::Timestamp;
use ext4_format::xattr::XattrSet;
use ext4_format::{BlockNr, FileType, InodeNr};
use std::sync::Arc;

/// Order of an item among all items of the same object.
pub type Stamp = u64;

/// The event of an [`InodeItem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeEvent {
    /// The number was allocated: everything logged for it before belongs to an earlier life.
    Init,
    /// The core changed.
    Update,
    /// The number was freed; `core` holds the mode (for the directory count) and deletion time.
    Free,
}

/// Core snapshot of an inode. For regular files `core.size` is the size up to which data is on disk; for directories
/// the formatter keeps size and mapping itself and ignores `core.size`. It also counts a directory's links by
/// [`NameItem::links`]: of `core.links` it takes only 0 (removed) and 1 (not counted any more).
#[derive(Clone, Copy, Debug)]
pub struct InodeItem {
    /// The inode.
    pub ino: InodeNr,
    /// The event.
    pub event: InodeEvent,
    /// Order.
    pub stamp: Stamp,
    /// State after it happened.
    pub core: InodeCore,
}

/// The event of a [`NameItem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameEvent {
    /// The directory had no such name.
    Added,
    /// The name leads elsewhere from now on, or the directory had no such name.
    Set,
    /// The name is gone.
    Removed,
}

/// A name of a directory added, replaced or removed.
#[derive(Clone, Debug)]
pub struct NameItem {
    /// The directory.
    pub dir: InodeNr,
    /// The inode that the name leads to, or led to.
    pub ino: InodeNr,
    /// Inode that loses the name by [`NameEvent::Set`], or 0 if the inode is unknown or no name is replaced.
    pub replaced: InodeNr,
    /// The event.
    pub event: NameEvent,
    /// Directory hash of the name (low bit clear).
    pub hash: u32,
    /// Minor hash.
    pub minor: u32,
    /// Order among items of this name, and against the directory's own [`InodeItem`].
    pub stamp: Stamp,
    /// When: the directory's mtime and ctime become at least this if its last [`InodeItem`] has a
    /// lower stamp.
    pub time: Timestamp,
    /// Type byte of the entry.
    pub ftype: FileType,
    /// Subdirectories more or less in the directory. Sums, so their order does not matter.
    pub links: i8,
    /// The name itself.
    pub name: Name,
}

const _: () = assert!(size_of::<NameItem>() == 64);

/// Logical blocks `[logical, logical + len)` of a file now lead to `physical`.., or are a hole. The formatter replaces
/// the previous mapping there. Data blocks' bitmap bits come as [`BitsItem`]s.
#[derive(Clone, Copy, Debug)]
pub struct MapItem {
    /// The inode, which is never a directory.
    pub ino: InodeNr,
    /// Order.
    pub stamp: Stamp,
    /// First logical block.
    pub logical: u32,
    /// Number of blocks; `u32::MAX` with a hole means "to the end".
    pub len: u32,
    /// First physical block; `BlockNr(0)` is a hole.
    pub physical: BlockNr,
    /// Allocated but reads as zero.
    pub unwritten: bool,
}

/// Data blocks allocated or freed. Metadata blocks that the formatter takes do not appear here.
#[derive(Clone, Copy, Debug)]
pub struct BitsItem {
    /// Order, among the items of the same transaction.
    pub stamp: Stamp,
    /// First block.
    pub start: BlockNr,
    /// Number of blocks.
    pub len: u32,
    /// Allocated, else freed.
    pub alloc: bool,
}

/// Rare events.
#[derive(Clone, Debug)]
pub enum MiscEvent {
    /// A new directory: write "." and ".." into its first block.
    DirInit {
        /// Inode that ".." leads to.
        parent: InodeNr,
    },
    /// The directory moved: ".." leads elsewhere.
    DirParent {
        /// Inode that ".." leads to.
        parent: InodeNr,
    },
    /// Target of a fast symbolic link (at most 59 bytes), kept in the inode.
    SymlinkTarget(Box<[u8]>),
    /// All extended attributes of the inode, as they are now.
    Xattrs(Arc<XattrSet>),
    /// No name leads to the inode but it is open, or it is being truncated.
    OrphanAdd,
    /// The inode leaves the orphan list.
    OrphanRemove,
}

/// A [`MiscEvent`] of an inode.
#[derive(Clone, Debug)]
pub struct MiscItem {
    /// The inode.
    pub ino: InodeNr,
    /// Order.
    pub stamp: Stamp,
    /// The event.
    pub event: MiscEvent,
}

/// The committed items of one slot in one context, by kind so that a push sorts plain arrays.
#[derive(Debug, Default)]
pub struct ItemList {
    /// Inode cores.
    pub inodes: Chunks<InodeItem>,
    /// Names.
    pub names: Chunks<NameItem>,
    /// Mappings.
    pub maps: Chunks<MapItem>,
    /// Block bits.
    pub bits: Chunks<BitsItem>,
    /// The rest.
    pub misc: Chunks<MiscItem>,
    /// Transactions committed.
    pub commits: u64,
    /// Of these, those that added items.
    pub added: u64,
    /// Metadata blocks reserved for the formatter by these transactions.
    pub reserved_blocks: u64,
    /// Items that may be logged before the budget is asked again.
    pub credits: u64,
    /// The items were durable by fast commits. More names may follow in the same way, so directories keep room for them.
    pub keeps_room: bool,
}

impl ItemList {
    /// Returns true if no transaction committed here.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.commits == 0
    }

    /// Returns the number of all items.
    #[inline]
    pub fn len(&self) -> usize {
        let changes = self.maps.len() + self.bits.len() + self.misc.len();
        self.inodes.len() + self.names.len() + changes
    }

    /// Takes over all items of `other`.
    pub fn append(&mut self, other: &mut Self) {
        self.inodes.append(&mut other.inodes);
        self.names.append(&mut other.names);
        self.maps.append(&mut other.maps);
        self.bits.append(&mut other.bits);
        self.misc.append(&mut other.misc);
        self.commits += std::mem::take(&mut other.commits);
        self.reserved_blocks += std::mem::take(&mut other.reserved_blocks);
    }

    /// Parts the batch in two by order, near the middle, so that every operation is whole and comes after all
    /// operations that it followed; `None` if it is one operation.
    pub fn split(mut self) -> Option<(Self, Self)> {
        let mut stamps: Vec<Stamp> = Vec::new();
        stamps.extend(self.inodes.iter().map(|i| i.stamp));
        stamps.extend(self.names.iter().map(|i| i.stamp));
        stamps.extend(self.maps.iter().map(|i| i.stamp));
        stamps.extend(self.bits.iter().map(|i| i.stamp));
        stamps.extend(self.misc.iter().map(|i| i.stamp));
        stamps.sort_unstable();
        // The first stamp of the second part: the stamp in the middle, unless it is the very first.
        let (&least, &middle) = (stamps.first()?, stamps.get(stamps.len() / 2)?);
        let from = if middle > least {
            middle
        } else {
            *stamps.iter().find(|s| **s > least)?
        };
        let rest = Self {
            inodes: self.inodes.take_where(|i| i.stamp >= from),
            names: self.names.take_where(|i| i.stamp >= from),
            maps: self.maps.take_where(|i| i.stamp >= from),
            bits: self.bits.take_where(|i| i.stamp >= from),
            misc: self.misc.take_where(|i| i.stamp >= from),
            commits: self.commits,
            ..Self::default()
        };
        Some((self, rest))
    }
}

/// Emptied chunks of every kind of item.
#[derive(Debug, Default)]
pub struct SpareItems {
    /// Memory for inode cores.
    pub inodes: Spare<InodeItem>,
    /// Memory for names.
    pub names: Spare<NameItem>,
    /// Memory for mappings.
    pub maps: Spare<MapItem>,
    /// Memory for block bits.
    pub bits: Spare<BitsItem>,
    /// Memory for the rest.
    pub misc: Spare<MiscItem>,
}

impl SpareItems {
    /// Keeps the memory of a list that was formatted.
    pub fn recycle(&self, list: ItemList) {
        self.inodes.recycle(list.inodes);
        self.names.recycle(list.names);
        self.maps.recycle(list.maps);
        self.bits.recycle(list.bits);
        self.misc.recycle(list.misc);
    }

    /// Frees the memory.
    pub fn release(&self) {
        self.inodes.release();
        self.names.release();
        self.maps.release();
        self.bits.release();
        self.misc.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_keeps_operations_whole() {
        let bits = |stamp, start| BitsItem {
            stamp,
            start: BlockNr(start),
            len: 1,
            alloc: true,
        };
        let map = |stamp| MapItem {
            ino: InodeNr(12),
            stamp,
            logical: 0,
            len: 1,
            physical: BlockNr(9),
            unwritten: false,
        };
        let items = ItemList {
            bits: vec![bits(7, 1), bits(3, 2), bits(7, 3), bits(9, 4)].into(),
            maps: vec![map(7), map(3)].into(),
            ..ItemList::default()
        };
        let (first, rest) = items.split().unwrap();
        let stamps = |l: &ItemList| {
            let bits = l.bits.iter().map(|b| b.stamp);
            bits.chain(l.maps.iter().map(|m| m.stamp))
                .collect::<Vec<_>>()
        };
        assert_eq!(stamps(&first), [3, 3]);
        assert_eq!(stamps(&rest), [7, 7, 9, 7]);
        assert!(first.split().is_none(), "one operation");
        // Most of it is the first operation; the rest is the other part.
        let items = ItemList {
            bits: vec![bits(1, 1), bits(1, 2), bits(1, 3), bits(4, 4)].into(),
            ..ItemList::default()
        };
        let (first, rest) = items.split().unwrap();
        assert_eq!((first.bits.len(), rest.bits.len()), (3, 1));
        assert!(ItemList::default().split().is_none());
    }
}

//! The geometry, tables and files of an image, and the old blocks in its journal.

use crate::journal::Journal;
use crate::notes::Notes;
use blockdev::BlockDevice;
use ext4_format::inode::InodeCore;
use ext4_format::jbd2::{Format, Tid};
use ext4_format::{BlockNr, FileType, InodeNr};
use ext4_image::Image;
use std::collections::BTreeMap;

/// The inode table of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Table {
    pub(crate) first: Option<BlockNr>,
    /// The block bitmap; `None` if it was never written, or is not known.
    pub(crate) block_bitmap: Option<BlockNr>,
    /// Records at its beginning that may be in use.
    pub(crate) records: u32,
}

/// An inode in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub(crate) file_type: FileType,
    pub(crate) size: u64,
    pub(crate) generation: u32,
    /// Whether its checksum is right, or the volume lacks checksums.
    pub(crate) sealed: bool,
}

/// An image in the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldImage {
    pub(crate) tid: Tid,
    /// Place of the image on the device.
    pub(crate) place: BlockNr,
    pub(crate) escaped: bool,
    pub(crate) checksum: u32,
}

/// Old block images in the journal.
#[derive(Debug)]
pub(crate) struct OldBlocks {
    pub(crate) format: Format,
    /// The images of each block, by its home.
    pub(crate) images: BTreeMap<BlockNr, Vec<OldImage>>,
}

/// Number and generation of an inode: a number that is used again gets another generation.
pub(crate) type InodeKey = (u32, u32);

/// A deleted inode, as it was.
#[derive(Debug)]
pub(crate) struct OldInode {
    pub(crate) tid: Tid,
    /// The first known transaction in which another file has the number.
    pub(crate) until: Option<Tid>,
    pub(crate) raw: Vec<u8>,
    pub(crate) core: InodeCore,
    /// The directory, if it is known, and the name.
    pub(crate) name: Option<(Tid, u32, Vec<u8>)>,
}

/// A name of a file, or a file without a name.
///
/// ```no_run
/// # let device = extant_rescue::blockdev::MemDevice::new(1 << 20);
/// let rescue = extant_rescue::Rescue::open(&device, &mut |_, _| {})?;
/// let unnamed = rescue.found().iter().filter(|found| !found.named).count();
/// # Ok::<(), extant_rescue::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The inode. A deleted file may have the same number as a newer file.
    pub ino: InodeNr,
    /// Generation of the inode, which differs between files that had the same number.
    pub generation: u32,
    /// Path from the root, without a leading slash. The unknown part of a path is `#INODE`.
    pub path: Vec<u8>,
    /// Whether the last part of the path is the file's name, not its number.
    pub named: bool,
    /// Whether it was deleted, and is in the journal only: [`Rescue::find_deleted`] finds such files.
    pub deleted: bool,
    /// The type.
    pub file_type: FileType,
    /// Bytes.
    pub size: u64,
    /// Reason to doubt the file.
    pub problem: Option<&'static str>,
}

/// Extent of a search for deleted files. It explains a search without a result.
///
/// ```
/// let none = extant_rescue::DeletedSearch::default();
/// assert_eq!(none.transactions, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeletedSearch {
    /// Transactions that the journal still has, in whole or in part.
    pub transactions: u64,
    /// Blocks of inode tables, as they were at the time.
    pub tables: u64,
    /// Blocks of directories, as they were at the time.
    pub directories: u64,
    /// Deleted files.
    pub files: u64,
}

/// Result of searching an image.
///
/// ```no_run
/// use extant_rescue::{Rescue, blockdev::{Access, FileDevice}};
/// let image = FileDevice::open("disk.img", Access::ReadOnly)?;
/// let rescue = Rescue::open(&image, &mut |_done, _total| {})?;
/// rescue.notes().iter().for_each(|note| println!("{note}"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rescue<'d> {
    pub(crate) image: Image<&'d dyn BlockDevice>,
    pub(crate) tables: Vec<Table>,
    /// The blocks of the journal, if they are known.
    pub(crate) journal: Journal,
    pub(crate) inodes: BTreeMap<u32, Inode>,
    /// Numbers of the inodes without links whose record is still there.
    pub(crate) dead: Vec<u32>,
    pub(crate) found: Vec<Found>,
    pub(crate) notes: Notes,
    /// Blocks of directories, and the directory of each.
    pub(crate) directory_blocks: BTreeMap<BlockNr, u32>,
    pub(crate) old_blocks: Option<OldBlocks>,
    pub(crate) old_inodes: BTreeMap<InodeKey, OldInode>,
    pub(crate) deleted_search: Option<DeletedSearch>,
}

impl<'d> Rescue<'d> {
    /// Returns the extent of the search for deleted files; `None` before the search, or without a journal.
    pub fn deleted_search(&self) -> Option<DeletedSearch> {
        self.deleted_search
    }

    /// Returns all files, by path; a file with several names appears with each of them.
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// Returns the deleted inodes whose records are still in the inode table, without their names and mostly without
    /// their blocks. The time of change is that of the deletion.
    pub fn dead_inodes(&self) -> impl Iterator<Item = (InodeNr, InodeCore)> {
        let numbers = self.dead.iter().map(|&ino| InodeNr(ino));
        numbers.filter_map(|ino| Some((ino, self.record(ino)?.1)))
    }

    /// Returns the missing parts of the image, with their replacements.
    pub fn notes(&self) -> &[String] {
        &self.notes.kept
    }

    /// Notes that were not kept, because there were too many.
    pub const fn more_notes(&self) -> u64 {
        self.notes.more
    }

    /// Reads a block; `None` if it cannot be read.
    pub(crate) fn block(&self, block: BlockNr) -> Option<Vec<u8>> {
        self.image.read(block).ok()
    }
}

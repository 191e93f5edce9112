#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod deleted;
mod find;
mod guess;
mod inodes;
mod map;
mod names;
mod paths;
mod read;
mod scan;
mod tables;

pub use blockdev;

use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::{BlockNr, FileType, FormatError, InodeNr};
use inodes::Inode;
use std::collections::BTreeMap;
use std::io;
use tables::Table;

/// Why nothing can be rescued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Neither a superblock nor a backup.
    #[error("no superblock and no backup of one: {0}")]
    Superblock(#[source] FormatError),
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
    /// The inode.
    pub ino: InodeNr,
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
    dev: &'d dyn BlockDevice,
    geo: Geometry,
    tables: Vec<Table>,
    inodes: BTreeMap<u32, Inode>,
    found: Vec<Found>,
    notes: Notes,
    /// Blocks of directories, and the directory of each.
    directory_blocks: BTreeMap<BlockNr, u32>,
    old_blocks: Option<deleted::OldBlocks>,
    old_inodes: BTreeMap<u32, deleted::OldInode>,
    deleted_search: Option<DeletedSearch>,
}

/// Notes that are kept; the others are counted.
const NOTES: usize = 1000;

#[derive(Debug, Default)]
struct Notes {
    kept: Vec<String>,
    more: u64,
}

impl Notes {
    fn add(&mut self, text: String) {
        if self.kept.len() < NOTES {
            self.kept.push(text)
        } else {
            self.more += 1
        }
    }
}

/// Told how many bytes of how many were looked at.
pub type Progress<'p> = &'p mut dyn FnMut(u64, u64);

impl<'d> Rescue<'d> {
    /// Searches for all files. `progress` is called during searches of the whole device, which are made only if
    /// something is missing.
    ///
    /// # Errors
    /// [`Error`] if no geometry is found. Unreadable parts are not errors: they are in [`Self::notes`].
    pub fn open(device: &'d dyn BlockDevice, progress: Progress<'_>) -> Result<Self, Error> {
        let mut notes = Notes::default();
        let geo = find::geometry(device, &mut notes, progress)?;
        let tables = tables::find(device, &geo, &mut notes);
        let mut rescue = Self {
            dev: device,
            geo,
            tables,
            inodes: BTreeMap::new(),
            found: Vec::new(),
            notes,
            directory_blocks: BTreeMap::new(),
            old_blocks: None,
            old_inodes: BTreeMap::new(),
            deleted_search: None,
        };
        rescue.read_inodes();
        let mut names = names::Names::default();
        rescue.read_directories(&mut names);
        rescue.search_names(&mut names, progress);
        rescue.found = rescue.paths(&names);
        Ok(rescue)
    }

    /// Returns the extent of the search for deleted files; `None` before the search, or without a journal.
    pub fn deleted_search(&self) -> Option<DeletedSearch> {
        self.deleted_search
    }

    /// Returns all files, by path; a file with several names appears with each of them.
    pub fn found(&self) -> &[Found] {
        &self.found
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
    fn block(&self, block: BlockNr) -> Option<Vec<u8>> {
        read_block(self.dev, &self.geo, block)
    }
}

fn read_block(dev: &dyn BlockDevice, geo: &Geometry, block: BlockNr) -> Option<Vec<u8>> {
    let at = block.0.checked_mul(geo.block_size.into())?;
    let mut bytes = vec![0; geo.block_size as usize];
    dev.read_at(at, &mut bytes).ok()?;
    Some(bytes)
}

//! The changes of one directory in a batch, and the directory's blocks.

use crate::error::Result;
use crate::threads::Crew;
use crate::workspace::Workspace;
use ext4_format::hash::DirHasher;
use ext4_format::{BlockNr, FileType, InodeNr};

/// The blocks of one directory.
pub trait DirBlocks {
    /// Returns the size in blocks.
    fn blocks(&self) -> u32;
    /// Returns the physical block of a logical one. Fails for a hole.
    fn get(&mut self, ws: &mut Workspace<'_>, logical: u32) -> Result<BlockNr>;
    /// Adds a block at the end and returns both its numbers. Its image is made by the caller.
    fn append(&mut self, ws: &mut Workspace<'_>) -> Result<(u32, BlockNr)>;
}

/// The net change of a name in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetChange {
    /// The name leads to this inode, whether it existed or not.
    Add(InodeNr),
    /// The name is gone, whether it existed or not.
    Remove,
}

/// A change of one name. A batch has at most one for each name; never for "." or "..".
#[derive(Clone, Copy, Debug)]
pub struct NetName<'a> {
    /// Directory hash by the volume's hasher, low bit clear.
    pub hash: u32,
    /// Minor hash; only orders.
    pub minor: u32,
    /// The name.
    pub name: &'a [u8],
    /// Type of the inode added.
    pub ftype: FileType,
    /// The change.
    pub change: NetChange,
    /// The directory has no such name: the change needs no search for one.
    pub is_new: bool,
}

/// All changes of one directory in a batch.
#[derive(Clone, Copy, Debug)]
pub struct DirUpdate<'a> {
    /// The directory.
    pub ino: InodeNr,
    /// Checksum seed of the inode.
    pub seed: u32,
    /// Whether the inode has the INDEX flag now.
    pub indexed: bool,
    /// The directory is new and has no blocks yet: its parent.
    pub init: Option<InodeNr>,
    /// ".." now leads here.
    pub new_parent: Option<InodeNr>,
    /// Leaves of an index that take names are split while they have room for more, because fast commits add the next names and cannot
    /// split leaves.
    pub keeps_room: bool,
    /// Changes, sorted by (hash, minor, name).
    pub names: &'a [NetName<'a>],
    /// The directory's hasher, which made the hashes of `names`: the volume's but for folding.
    pub hasher: &'a DirHasher,
    /// Threads that may help.
    pub crew: &'a Crew,
}

/// The fields of the inode after the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirOutcome {
    /// Whether the INDEX flag is set.
    pub indexed: bool,
}

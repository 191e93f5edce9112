//! The input and the output of one unit of a batch.

use super::gaps::Gaps;
use super::group_images::InodeBits;
use super::ledger::{Ledger, MetaSpace};
use super::orphans::OrphanChange;
use super::superblock::Needs;
use super::threads::Crew;
use super::workspace::Workspace;
use crate::groups::DescTable;
use crate::image::BlockImages;
use crate::locks::{self, Mutex};
use crate::system_zone::SystemZone;
use ext4_format::geometry::Geometry;
use ext4_format::hash::DirHasher;
use ext4_format::xattr::XattrSet;
use ext4_format::{BlockNr, InodeNr};
use std::sync::Arc;

/// The input of all units.
pub(super) struct Shared<'s, 'a> {
    pub geometry: &'a Geometry,
    pub images: &'a dyn BlockImages,
    pub space: &'a dyn MetaSpace,
    pub zone: &'a SystemZone,
    pub descs: &'s DescTable,
    pub hasher: &'s DirHasher,
    pub gaps: Mutex<&'s mut Gaps, locks::FormatterShared>,
    pub crew: Crew,
    /// Directories keep room for the names that follow.
    pub keeps_room: bool,
}

/// The output of some units.
pub(super) struct Part<'a> {
    pub ws: Workspace<'a>,
    pub ledger: Ledger<'a>,
    pub done: InodesDone,
}

/// A change of an attribute block that the inodes of a batch bring about.
#[derive(Debug)]
pub(super) enum BlockChange {
    /// The block loses one inode that points at it.
    Release(BlockNr),
    /// An inode gets these attributes, which do not all fit into it, or did not.
    Set {
        ino: InodeNr,
        set: Arc<XattrSet>,
        goal: BlockNr,
    },
}

/// The change of an inode's mapping that stat must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The inode.
    pub ino: InodeNr,
    /// New size in bytes, for directories.
    pub size: Option<u64>,
    /// Change of its count of 512-byte sectors by metadata blocks (directory blocks, index and
    /// extent blocks, attribute block); data blocks are the namespace's own to count.
    pub sectors_delta: i64,
    /// Change of the blocks that a file's mapping takes besides its data.
    pub tree_delta: i64,
}

/// Work that follows from the inodes.
#[derive(Debug, Default)]
pub(super) struct InodesDone {
    pub bits: InodeBits,
    pub published: Vec<Published>,
    pub freed: Vec<InodeNr>,
    pub zeroed: Vec<(BlockNr, u32)>,
    pub orphans: Vec<(InodeNr, OrphanChange)>,
    /// Changes of attribute blocks, by the order of the inodes.
    pub attributes: Vec<BlockChange>,
    /// Features that the volume needs from now on.
    pub needs: Needs,
}

impl InodesDone {
    /// Takes over what later inodes left to do.
    pub fn append(&mut self, other: Self) {
        self.bits.changed.extend(other.bits.changed);
        self.bits.dirs.extend(other.bits.dirs);
        self.published.extend(other.published);
        self.freed.extend(other.freed);
        self.zeroed.extend(other.zeroed);
        self.orphans.extend(other.orphans);
        self.attributes.extend(other.attributes);
        self.needs.compat |= other.needs.compat;
        self.needs.ro_compat |= other.needs.ro_compat;
    }
}

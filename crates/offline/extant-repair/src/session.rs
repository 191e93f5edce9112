//! Shared state of the passes of a round: the image on its overlay, the blocks and inodes in use, and the list of
//! mends.

use crate::error::Error;
use ext4_format::group_desc::GroupDesc;
use ext4_format::superblock::RawSuperblock;
use ext4_format::{BlockNr, FileType, GroupNr, InodeNr, bitmap};
use ext4_image::{ClusterSet, Image, MemOverlay};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::{Deref, DerefMut};

/// The loss of a name whose inode is empty, although the inode bitmap has it in use.
pub(crate) const NAME_OF_EMPTY_INODE: &str = "the name of an empty inode";

/// A change by a repair.
///
/// ```
/// use extant_repair::Mend;
/// let mend = Mend::new("inode 12", "its checksum is set", None);
/// assert!(mend.is_safe());
/// assert_eq!(mend.to_string(), "inode 12: its checksum is set");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mend {
    /// The changed structure.
    pub place: String,
    /// The change.
    pub text: String,
    /// The data that the change loses, if any.
    pub loses: Option<String>,
}

impl Mend {
    /// Creates a mend for a place.
    pub fn new(place: impl Display, text: impl Into<String>, loses: Option<&str>) -> Self {
        Self {
            place: place.to_string(),
            text: text.into(),
            loses: loses.map(str::to_owned),
        }
    }

    /// Returns whether the mend loses nothing.
    pub const fn is_safe(&self) -> bool {
        self.loses.is_none()
    }

    /// Returns whether the mend loses only names whose inodes are empty, although the inode bitmap has them in use: their
    /// files are lost already. `e2fsck -p` makes such a mend, too.
    pub fn loses_only_names_of_empty_inodes(&self) -> bool {
        self.loses.as_deref() == Some(NAME_OF_EMPTY_INODE)
    }
}

impl Display for Mend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.text)?;
        match &self.loses {
            Some(loses) => write!(f, "; lost: {loses}"),
            None => Ok(()),
        }
    }
}

/// The list of mends, and the callback that decides on them.
pub(crate) struct Decisions<'a> {
    pub(crate) decide: &'a mut dyn FnMut(&Mend) -> bool,
    pub(crate) done: Vec<Mend>,
    pub(crate) declined: Vec<Mend>,
}

impl Decisions<'_> {
    /// Adds a mend to the list and returns whether to make it.
    pub(crate) fn ask(
        &mut self,
        place: impl Display,
        text: impl Into<String>,
        loses: Option<&str>,
    ) -> bool {
        let mend = Mend::new(place, text, loses);
        if self.declined.contains(&mend) {
            return false;
        }
        let yes = (self.decide)(&mend);
        if yes {
            self.done.push(mend)
        } else {
            self.declined.push(mend)
        }
        yes
    }
}

/// Kind of an inode in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeUse {
    File(FileType),
    /// The value of an attribute.
    Value,
    /// An inode without a name.
    Reserved,
}

/// An inode in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    pub(crate) kind: InodeUse,
    /// Names that lead to it.
    pub(crate) names: u32,
}

/// A directory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DirState {
    /// The directory with a name for it, or 0.
    pub(crate) parent: u32,
    /// Inode number in its "..".
    pub(crate) dotdot: u32,
    /// Of several directories with a name for it, the one that its ".." leads to, or 0.
    pub(crate) stays_in: u32,
    /// Directories in it.
    pub(crate) children: u32,
}

/// A round of a repair.
pub(crate) struct Session<'a, 'd> {
    pub(crate) image: Image<&'a MemOverlay<'d>>,
    pub(crate) decisions: &'a mut Decisions<'d>,
    /// Groups whose tables are read whole, whatever their descriptors say of the part that was never used.
    pub(crate) whole_tables: BTreeSet<u32>,
    pub(crate) now: u32,
    pub(crate) claims: ClusterSet,
    pub(crate) inodes: BTreeMap<u32, Used>,
    pub(crate) dirs: BTreeMap<u32, DirState>,
    /// Inodes of the list of orphans and of the orphan file.
    pub(crate) orphans: BTreeSet<u32>,
    /// The block of the map of reserved descriptors, if no other structure claims it.
    pub(crate) resize_map: Option<BlockNr>,
    /// Blocks of extended attributes, and the inodes found that share each.
    pub(crate) attribute_blocks: BTreeMap<BlockNr, u32>,
    /// Blocks of attributes that another structure has, and the inodes that get a copy of each.
    pub(crate) attribute_copies: BTreeMap<BlockNr, Vec<InodeNr>>,
    /// Inodes with values of attributes, and the attributes found that refer to each.
    pub(crate) value_inodes: BTreeMap<u32, u64>,
    /// Empty inodes with names that stay. The inode bitmap has them in use, and keeps that trace of their files.
    pub(crate) named_empty_inodes: BTreeSet<u32>,
    /// Policies of encrypted inodes.
    pub(crate) policies: BTreeMap<u32, Vec<u8>>,
}

impl<'a, 'd> Deref for Session<'a, 'd> {
    type Target = Image<&'a MemOverlay<'d>>;

    fn deref(&self) -> &Self::Target {
        &self.image
    }
}

impl DerefMut for Session<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.image
    }
}

impl<'a, 'd> Session<'a, 'd> {
    pub(crate) fn new(
        dev: &'a MemOverlay<'d>,
        decisions: &'a mut Decisions<'d>,
        sb: RawSuperblock,
        whole_tables: BTreeSet<u32>,
        now: u32,
    ) -> Result<Self, Error> {
        let image = Image::new(dev, sb)?;
        Ok(Self {
            decisions,
            whole_tables,
            now,
            claims: ClusterSet::new(&image.geo),
            inodes: BTreeMap::new(),
            dirs: BTreeMap::new(),
            orphans: BTreeSet::new(),
            resize_map: None,
            attribute_blocks: BTreeMap::new(),
            attribute_copies: BTreeMap::new(),
            value_inodes: BTreeMap::new(),
            named_empty_inodes: BTreeSet::new(),
            policies: BTreeMap::new(),
            image,
        })
    }

    /// Adds a mend to the list and returns whether to make it.
    pub(crate) fn ask(
        &mut self,
        place: impl Display,
        text: impl Into<String>,
        loses: Option<&str>,
    ) -> bool {
        self.decisions.ask(place, text, loses)
    }

    pub(crate) fn has_csum(&self) -> bool {
        self.geo.features.has_metadata_csum()
    }

    /// Returns whether a bitmap of a group has a bit as free; `false` if the bitmap cannot be read. With the flag `uninit` the group
    /// has no bitmap, and all is free.
    pub(crate) fn is_free(
        &self,
        (group, index): (GroupNr, u32),
        uninit: u16,
        bitmap_of: impl Fn(&GroupDesc) -> BlockNr,
    ) -> bool {
        let Some(desc) = self.descs.get(group.0 as usize) else {
            return false;
        };
        if self.geo.features.has_group_csum() && desc.flags & uninit != 0 {
            return true;
        }
        let block = bitmap_of(desc);
        let bits = (block.0 != 0).then(|| self.read(block));
        matches!(bits, Some(Ok(bits)) if !bitmap::test(&bits, index))
    }

    /// Returns the number of records of a group's table that may be in use.
    pub(crate) fn records_in(&self, group: u32) -> u32 {
        let Some(desc) = self.descs.get(group as usize) else {
            return 0;
        };
        // A lost table is placed after all blocks in use are known.
        if desc.inode_table.0 == 0 {
            return 0;
        }
        if self.whole_tables.contains(&group) {
            self.geo.inodes_per_group
        } else {
            desc.used_records(&self.geo)
        }
    }

    /// Returns whether an inode is in the part of its table that is not read, because the descriptor calls it unused. Of a lost table
    /// nothing can be read.
    pub(crate) fn is_unread(&self, (group, index): (GroupNr, u32)) -> bool {
        let desc = self.descs.get(group.0 as usize);
        desc.is_some_and(|desc| desc.inode_table.0 != 0) && index >= self.records_in(group.0)
    }

    /// Takes a free block, which then is claimed.
    pub(crate) fn allocate(&mut self) -> Option<BlockNr> {
        (0..self.geo.groups).find_map(|group| self.allocate_in(group))
    }

    /// Takes a free block of a group.
    pub(crate) fn allocate_in(&mut self, group: u32) -> Option<BlockNr> {
        let per = u64::from(self.geo.blocks_per_group / self.geo.cluster_ratio);
        let first = u64::from(group) * per;
        let bits = u64::from(self.geo.bits_in_group(GroupNr(group)));
        let cluster = (first..first + bits).find(|&cluster| !self.claims.contains(cluster))?;
        self.claims.insert(cluster..cluster + 1);
        let block = cluster * u64::from(self.geo.cluster_ratio);
        Some(BlockNr(self.geo.first_data_block + block))
    }

    /// Returns the first of `len` consecutive free blocks of a group; with `bigalloc` they begin with a cluster.
    pub(crate) fn find_free(&self, group: u32, len: u64) -> Option<BlockNr> {
        let ratio = u64::from(self.geo.cluster_ratio);
        let per = u64::from(self.geo.blocks_per_group) / ratio;
        let first = u64::from(group) * per;
        let end = first + u64::from(self.geo.bits_in_group(GroupNr(group)));
        let (mut start, wanted) = (first, len.div_ceil(ratio));
        for cluster in first..end {
            if self.claims.contains(cluster) {
                start = cluster + 1;
            } else if cluster + 1 - start == wanted {
                return Some(BlockNr(self.geo.first_data_block + start * ratio));
            }
        }
        None
    }

    /// Frees a block.
    pub(crate) fn free(&mut self, block: BlockNr) {
        self.claims.remove(self.geo.clusters_of(block, 1));
    }
}

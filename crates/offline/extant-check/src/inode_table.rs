//! A word for each inode in use: its type, its stored link count, and the number of names found.

use ext4_format::geometry::Geometry;
use ext4_format::{FileType, InodeNr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kind of an inode in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeKind {
    /// A file of a type.
    File(FileType),
    /// The value of an extended attribute.
    Value,
    /// A mode that means nothing.
    Broken,
    /// A reserved inode without a name.
    Reserved,
}

const VALUE: u64 = 8;
const BROKEN: u64 = 9;
const RESERVED: u64 = 10;

/// An inode in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownInode {
    pub(crate) kind: InodeKind,
    /// Links, as the inode says.
    pub(crate) links: u16,
    /// Names that were found.
    pub(crate) names: u64,
}

/// Names are counted in the low bits.
const LINKS_SHIFT: u32 = 40;
const KIND_SHIFT: u32 = 56;

/// All inodes in use, by group; a group without any takes no memory.
#[derive(Debug)]
pub(crate) struct InodeTable {
    per_group: u32,
    count: u32,
    groups: Vec<OnceLock<Box<[AtomicU64]>>>,
}

impl InodeTable {
    pub(crate) fn new(geo: &Geometry) -> Self {
        Self {
            per_group: geo.inodes_per_group,
            count: geo.inodes_count,
            groups: (0..geo.groups).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Returns the word of an inode, if its group has inodes in use.
    fn word(&self, ino: InodeNr) -> Option<&AtomicU64> {
        let index = ino.0.checked_sub(1).filter(|_| ino.0 <= self.count)?;
        let group = self.groups.get((index / self.per_group) as usize)?.get()?;
        group.get((index % self.per_group) as usize)
    }

    /// Notes an inode in use.
    pub(crate) fn insert(&self, ino: InodeNr, kind: InodeKind, links: u16) {
        let Some(index) = ino.0.checked_sub(1) else {
            return;
        };
        let Some(group) = self.groups.get((index / self.per_group) as usize) else {
            return;
        };
        let words = group.get_or_init(|| (0..self.per_group).map(|_| AtomicU64::new(0)).collect());
        let code = match kind {
            InodeKind::File(file_type) => file_type as u64,
            InodeKind::Value => VALUE,
            InodeKind::Broken => BROKEN,
            InodeKind::Reserved => RESERVED,
        };
        if let Some(word) = words.get((index % self.per_group) as usize) {
            let value = code << KIND_SHIFT | u64::from(links) << LINKS_SHIFT;
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the known facts of an inode, if it is in use.
    pub(crate) fn get(&self, ino: InodeNr) -> Option<KnownInode> {
        known(self.word(ino)?.load(Ordering::Relaxed))
    }

    /// Counts a name of an inode and returns the known facts of the inode if it is in use.
    pub(crate) fn count_name(&self, ino: InodeNr) -> Option<KnownInode> {
        let word = self.word(ino)?;
        known(word.load(Ordering::Relaxed))?;
        known(word.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the inodes in use of a group, with their index there.
    pub(crate) fn of_group(&self, group: u32) -> impl Iterator<Item = (u32, KnownInode)> + '_ {
        let words = self.groups.get(group as usize).and_then(OnceLock::get);
        let words = words.into_iter().flatten().zip(0..);
        words.filter_map(|(word, index)| Some((index, known(word.load(Ordering::Relaxed))?)))
    }
}

fn known(word: u64) -> Option<KnownInode> {
    let kind = match word >> KIND_SHIFT {
        0 => return None,
        VALUE => InodeKind::Value,
        BROKEN => InodeKind::Broken,
        RESERVED => InodeKind::Reserved,
        code => InodeKind::File(FileType::from_dir_byte(code as u8)?),
    };
    Some(KnownInode {
        kind,
        links: (word >> LINKS_SHIFT) as u16,
        names: word & ((1 << LINKS_SHIFT) - 1),
    })
}

/// Returns whether an inode of this kind is counted as a directory of its group.
pub(crate) fn is_directory(kind: InodeKind) -> bool {
    kind == InodeKind::File(FileType::Directory)
}

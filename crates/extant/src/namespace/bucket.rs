//! The names of a directory that fall into one interval of its hash, and where a name stands in their order.

use super::name::Name;
use crate::log::item::Stamp;
use ext4_format::{FileType, InodeNr};

/// A bucket longer than this asks for a larger table; so many entries have a tag.
pub(super) const LONG_BUCKET: usize = 20;

/// Place of a name in the directory's order: hash, then minor hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameHash {
    /// Hash, low bit clear.
    pub major: u32,
    /// Minor hash.
    pub minor: u32,
}

impl NameHash {
    /// Readdir cookie: 63 bits; 0 is the start, 1 and 2 are left for "." and "..".
    pub fn cookie(self) -> u64 {
        (u64::from(self.major >> 1) << 32 | u64::from(self.minor)).max(3)
    }

    /// Eight bits that differ between names of one bucket.
    fn tag(self) -> u8 {
        (self.minor ^ self.major >> 1) as u8
    }
}

/// One name.
#[derive(Clone, Debug)]
pub struct Dentry {
    /// Where it stands.
    pub hash: NameHash,
    /// Where it leads.
    pub ino: InodeNr,
    /// Type of the inode.
    pub ftype: FileType,
    /// The name.
    pub name: Name,
}

/// The names of one interval of the hash, as they came; order is made when it is asked for. A bucket and
/// its lock fill one cache line. A search compares tags, looks at the entry whose tag agrees, and at no other.
#[derive(Debug, Default)]
pub struct Bucket {
    pub(super) entries: Vec<Dentry>,
    /// Stamp of the last item logged for a name of this bucket.
    pub stamp: Stamp,
    /// Context (its low half) in which the log was last charged for the leaf block behind this bucket.
    pub charged: u32,
    tags: [u8; LONG_BUCKET],
}

impl Bucket {
    fn place(&self, hash: NameHash, name: &[u8]) -> Option<usize> {
        let is = |i: &usize| {
            let entry = &self.entries[*i];
            entry.hash == hash && entry.name.as_bytes() == name
        };
        let tagged = self.entries.len().min(LONG_BUCKET);
        memchr::memchr_iter(hash.tag(), &self.tags[..tagged])
            .find(is)
            .or_else(|| (tagged..self.entries.len()).find(is))
    }

    fn tag(&mut self, i: usize) {
        if let (Some(tag), Some(entry)) = (self.tags.get_mut(i), self.entries.get(i)) {
            *tag = entry.hash.tag();
        }
    }

    /// The entry of that name.
    pub fn find(&self, hash: NameHash, name: &[u8]) -> Option<&Dentry> {
        self.place(hash, name).map(|i| &self.entries[i])
    }

    /// Adds a name that is known not to be there.
    pub fn add(&mut self, entry: Dentry) {
        self.entries.push(entry);
        self.tag(self.entries.len() - 1);
    }

    /// Adds a name, or replaces what it leads to.
    pub fn set(&mut self, entry: Dentry) {
        match self.place(entry.hash, entry.name.as_bytes()) {
            Some(i) => self.entries[i] = entry,
            None => self.add(entry),
        }
    }

    /// Takes a name away.
    pub fn remove(&mut self, hash: NameHash, name: &[u8]) -> Option<Dentry> {
        self.place(hash, name).map(|i| {
            let entry = self.entries.swap_remove(i);
            self.tag(i);
            entry
        })
    }
}

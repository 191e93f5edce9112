//! The names of a directory that fall into one interval of its hash, and the order of names.

use crate::types::dentry::Dentry;
use crate::types::dentry::NameHash;
use ext4_format::InodeNr;
use ext4_format::fold::Comparison;
use extant_formatter::item::Stamp;

/// A bucket with more entries than this asks for a larger table. Tags exist for this number of entries.
pub(super) const LONG_BUCKET: usize = 20;

/// The names of one interval of the hash, unsorted. A bucket and its lock fill one cache line. A search compares tags,
/// and looks only at entries whose tag agrees.
#[derive(Debug, Default)]
pub struct Bucket {
    pub(super) entries: Vec<Dentry>,
    /// Stamp of the last item logged for a name of this bucket.
    pub stamp: Stamp,
    /// Comparison of names in the directory.
    pub compared: Comparison,
    tags: [u8; LONG_BUCKET],
}

/// Each byte is 1.
const ONES: u64 = u64::MAX / 255;

/// Returns the highest bit of each byte that is zero, and no other bit.
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = !(ONES << 7);
    // No addition carries into the next byte.
    !(((word & LOW) + LOW) | word | LOW)
}

/// Stamp of a pending bucket: its names are still in the bucket below, which holds the names of both halves.
const PENDING: Stamp = Stamp::MAX;
/// Stamp of a split bucket: its names were moved to its two halves.
const SPLIT: Stamp = Stamp::MAX - 1;

impl Bucket {
    /// Makes a pending bucket, whose names are still in the bucket below.
    pub(super) fn pending() -> Self {
        Self {
            stamp: PENDING,
            ..Self::default()
        }
    }

    /// Returns true if the names are still in the bucket below.
    pub(super) fn is_pending(&self) -> bool {
        self.stamp == PENDING
    }

    /// Returns true if the names of the bucket's interval are here.
    #[inline(always)]
    pub(super) fn is_active(&self) -> bool {
        self.stamp < SPLIT
    }

    /// Returns true if the names were moved to the two halves.
    pub(super) fn is_split(&self) -> bool {
        self.stamp == SPLIT
    }

    #[inline]
    fn place(&self, hash: NameHash, name: &[u8]) -> Option<usize> {
        let [first, second] = self.eights();
        let count = self.entries.len();
        let mut found = self.among(0, first, hash, name);
        if found.is_none() && count > 8 {
            found = self.among(8, second, hash, name);
        }
        if found.is_none() && count > 16 {
            let behind = || (LONG_BUCKET..count).find(|&i| self.is_at(i, hash, name));
            found = self.among(16, self.rest(), hash, name).or_else(behind);
        }
        found
    }

    /// Finds the place of a name among the eight entries from `first` on, which have these tags.
    #[inline(always)]
    fn among(&self, first: usize, tags: u64, hash: NameHash, name: &[u8]) -> Option<usize> {
        let tag = u64::from(hash.tag()).wrapping_mul(ONES);
        let mut agree = zero_bytes(tags ^ tag);
        while agree != 0 {
            let i = first + agree.trailing_zeros() as usize / 8;
            // Bytes behind the last tag agree with a tag of 0.
            if i < LONG_BUCKET && self.is_at(i, hash, name) {
                return Some(i);
            }
            agree &= agree - 1;
        }
        None
    }

    #[inline(always)]
    fn is_at(&self, i: usize, hash: NameHash, name: &[u8]) -> bool {
        let entry = self.entries.get(i);
        entry.is_some_and(|e| e.hash == hash && self.is_same(e.name.as_bytes(), name))
    }

    /// Returns true if two names of one hash are equal.
    #[inline]
    fn is_same(&self, there: &[u8], name: &[u8]) -> bool {
        there == name || self.compared.folds() && self.is_same_folded(there, name)
    }

    #[cold]
    #[inline(never)]
    fn is_same_folded(&self, there: &[u8], name: &[u8]) -> bool {
        self.compared.same(there, name)
    }

    /// Returns the first 16 tags, eight in a word.
    #[inline(always)]
    fn eights(&self) -> [u64; 2] {
        let word = |tags: Option<&[u8; 8]>| tags.map_or(0, |&tags| u64::from_le_bytes(tags));
        let (first, behind) = self.tags.split_at(8);
        [word(first.first_chunk()), word(behind.first_chunk())]
    }

    /// Returns the tags after the first 16.
    #[inline(always)]
    fn rest(&self) -> u64 {
        let tags = self.tags.last_chunk();
        tags.map_or(0, |&tags| u32::from_le_bytes(tags).into())
    }

    fn tag(&mut self, i: usize) {
        if let (Some(tag), Some(entry)) = (self.tags.get_mut(i), self.entries.get(i)) {
            *tag = entry.hash.tag();
        }
    }

    /// Returns true if the tags prove that no name with this hash is in the bucket. They do for most names that are
    /// missing.
    #[inline(always)]
    pub fn is_free(&self, hash: NameHash) -> bool {
        let tag = u64::from(hash.tag()).wrapping_mul(ONES);
        let [first, second] = self.eights();
        let behind = zero_bytes(self.rest() ^ tag);
        let agree = zero_bytes(first ^ tag) | zero_bytes(second ^ tag) | behind;
        agree == 0 && self.entries.len() <= LONG_BUCKET
    }

    /// Finds the entry of a name.
    #[inline]
    pub fn find(&self, hash: NameHash, name: &[u8]) -> Option<&Dentry> {
        self.place(hash, name).and_then(|i| self.entries.get(i))
    }

    /// Finds the position of the entry of a name, and the inode that the name leads to. The position holds as long as
    /// the bucket stays locked and no name is removed.
    #[inline]
    pub fn locate(&self, hash: NameHash, name: &[u8]) -> Option<(usize, InodeNr)> {
        let place = self.place(hash, name)?;
        Some((place, self.entries.get(place)?.ino))
    }

    /// Adds a name that is known not to be there.
    #[inline]
    pub fn add(&mut self, entry: Dentry) {
        // Take the tag from the new entry, because its final position may be far away in memory.
        if let Some(tag) = self.tags.get_mut(self.entries.len()) {
            *tag = entry.hash.tag();
        }
        self.entries.push(entry);
    }

    /// Prefetches the position of the next entry.
    #[inline(always)]
    pub fn prefetch_end(&self) {
        let entries = self.entries.as_ptr();
        percpu::prefetch(entries.wrapping_add(self.entries.len()));
    }

    /// Prefetches the last entry, which moves into the position of a removed entry.
    #[inline(always)]
    pub fn prefetch_last(&self) {
        let entries = self.entries.as_ptr();
        percpu::prefetch(entries.wrapping_add(self.entries.len()).wrapping_sub(1));
    }

    /// Adds a name, or replaces the inode number and type of an existing one.
    pub fn set(&mut self, entry: Dentry) {
        match self.place(entry.hash, entry.name.as_bytes()) {
            Some(i) => self.entries[i] = entry,
            None => self.add(entry),
        }
    }

    /// Takes a name away.
    pub fn remove(&mut self, hash: NameHash, name: &[u8]) -> Option<Dentry> {
        self.place(hash, name).and_then(|i| self.remove_at(i))
    }

    /// Takes the name at a [position](Bucket::locate) away.
    #[inline(always)]
    pub fn remove_at(&mut self, place: usize) -> Option<Dentry> {
        if place >= self.entries.len() {
            return None;
        }
        let entry = self.entries.swap_remove(place);
        self.tag(place);
        Some(entry)
    }

    /// Splits the names by their hash. The lower half of the interval keeps its memory. The upper half gets the same amount:
    /// about the size that both halves will have at the next split. The bucket itself is left without names.
    pub(super) fn split(&mut self, is_high: impl Fn(NameHash) -> bool) -> [Self; 2] {
        let gone = Self {
            stamp: SPLIT,
            compared: self.compared,
            ..Self::default()
        };
        let mut low = std::mem::replace(self, gone);
        let high = low.split_off(is_high);
        [low, high]
    }

    fn split_off(&mut self, is_high: impl Fn(NameHash) -> bool) -> Self {
        let mut high = Self {
            entries: Vec::with_capacity(self.entries.len()),
            stamp: self.stamp,
            compared: self.compared,
            tags: [0; LONG_BUCKET],
        };
        let mut at = 0;
        while let Some(entry) = self.entries.get(at) {
            if is_high(entry.hash) {
                high.add(self.entries.swap_remove(at));
            } else {
                self.tag(at);
                at += 1;
            }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ext4_format::FileType;
    use extant_formatter::name::Name;

    #[test]
    fn a_split_parts_the_names_and_keeps_them_found() {
        let mut whole = Bucket {
            stamp: 7,
            ..Bucket::default()
        };
        // More entries than have a tag.
        let names: Vec<_> = (0..2 * LONG_BUCKET as u32)
            .map(|n| format!("n{n}"))
            .collect();
        let hash = |n: usize| NameHash {
            major: (n as u32).wrapping_mul(0x9E37_79B9) & !1,
            minor: n as u32,
        };
        let is_high = |hash: NameHash| hash.major >> 31 == 1;
        for (n, name) in names.iter().enumerate() {
            whole.add(Dentry {
                hash: hash(n),
                ino: InodeNr(n as u32),
                ftype: FileType::Regular,
                name: Name::new(name.as_bytes()).unwrap(),
            });
        }
        let [low, high] = whole.split(is_high);
        assert!(whole.is_split() && whole.entries.is_empty());
        assert!(whole.is_free(hash(1)));
        assert_eq!(high.stamp, 7);
        assert_eq!(low.entries.len() + high.entries.len(), names.len());
        for (n, name) in names.iter().enumerate() {
            let (there, not_there) = if is_high(hash(n)) {
                (&high, &low)
            } else {
                (&low, &high)
            };
            let found = there.find(hash(n), name.as_bytes()).unwrap();
            assert_eq!(found.ino, InodeNr(n as u32));
            assert!(not_there.find(hash(n), name.as_bytes()).is_none());
        }
    }
}

//! The changes of a leaf, found by the names in the leaf.

use super::update::NetName;
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Up to this number of changes, a name is compared with each change that may have it. With more changes, a map is
/// used.
const FEW: usize = 32;

/// Changes, to be found by name. Names that are asked for in the order of the changes, as in a leaf packed in that
/// order, cost one comparison. The first name out of order builds a map.
pub(super) struct WantedNames<'n> {
    changes: &'n [NetName<'n>],
    tags: Tags,
    /// Digests of the names, if there are few changes.
    digests: [u32; FEW],
    next: Cell<usize>,
    map: OnceCell<HashMap<&'n [u8], usize, Keyed>>,
}

/// Hashes names for a map that lives while one leaf is merged: folded multiplications, several times as fast as
/// SipHash. The key is random, because users choose the names. The map is never iterated, so the written bytes do not
/// depend on the key.
#[derive(Clone, Copy)]
pub(super) struct Keyed(u64);

impl BuildHasher for Keyed {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Keyed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.write_u64(chunk.try_into().map_or(0, u64::from_le_bytes));
        }
        let rest = chunks
            .remainder()
            .iter()
            .fold(0, |word, &b| word << 8 | u64::from(b));
        self.write_u64(rest);
    }
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(0xf39c_c060_5ced_c835_u64);
        self.0 = (product >> 64) as u64 ^ product as u64 ^ self.0.rotate_left(23);
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// Returns a number that two names seldom share. Names differ at their ends more often than at their beginnings.
#[inline(always)]
fn digest(name: &[u8]) -> u32 {
    let end = name.last_chunk().map_or(0, |end| u32::from_le_bytes(*end));
    (end ^ name.len() as u32).wrapping_mul(0x9E37_79B1)
}

/// A set of the tags of some names, of 256 tags, which are the high bits of digests. Most names of a leaf have a tag
/// outside the set, and are not looked up.
struct Tags([u64; 4]);

impl Tags {
    fn add(&mut self, digest: u32) {
        self.0[(digest >> 30) as usize] |= 1 << (digest >> 24 & 63);
    }

    #[inline(always)]
    fn may_have(&self, digest: u32) -> bool {
        self.0[(digest >> 30) as usize] >> (digest >> 24 & 63) & 1 == 1
    }
}

impl<'n> WantedNames<'n> {
    pub fn new(changes: &'n [NetName<'n>]) -> Self {
        let mut wanted = Self {
            changes,
            tags: Tags([0; 4]),
            digests: [0; FEW],
            next: Cell::new(0),
            map: OnceCell::new(),
        };
        if changes.len() <= FEW {
            for (change, place) in changes.iter().zip(&mut wanted.digests) {
                *place = digest(change.name);
                wanted.tags.add(*place);
            }
        } else {
            for change in changes {
                wanted.tags.add(digest(change.name));
            }
        }
        wanted
    }

    /// Returns true if there may be a change of this name.
    #[inline(always)]
    pub fn may_have(&self, name: &[u8]) -> bool {
        let digest = digest(name);
        self.tags.may_have(digest) && self.has_digest(digest)
    }

    #[inline(never)]
    fn has_digest(&self, digest: u32) -> bool {
        let few = self.digests.get(..self.changes.len());
        few.is_none_or(|digests| digests.contains(&digest))
    }

    /// Returns the position of the change of this name.
    #[inline(always)]
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let digest = digest(name);
        if self.tags.may_have(digest) {
            self.find_digest(name, digest)
        } else {
            None
        }
    }

    #[inline(never)]
    fn find_digest(&self, name: &[u8], digest: u32) -> Option<usize> {
        if name == b"." || name == b".." {
            return None;
        }
        let next = self.next.get();
        if self.changes.get(next).is_some_and(|c| c.name == name) {
            self.next.set(next + 1);
            return Some(next);
        }
        let found = if self.changes.len() <= FEW {
            let mut pairs = self.changes.iter().zip(&self.digests);
            pairs.position(|(c, d)| *d == digest && c.name == name)
        } else {
            let map = self.map.get_or_init(|| {
                let key = Keyed(RandomState::new().hash_one(0));
                let mut map = HashMap::with_capacity_and_hasher(self.changes.len(), key);
                map.extend(self.changes.iter().enumerate().map(|(i, c)| (c.name, i)));
                map
            });
            map.get(name).copied()
        };
        if let Some(i) = found {
            self.next.set(i + 1);
        }
        found
    }
}

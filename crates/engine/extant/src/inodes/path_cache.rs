//! Paths of directories that a slot has walked more than once, each with the directory that it leads to. Such a walk
//! checks for each directory on the way only whether a directory was moved out of it since. It reads neither names nor
//! inodes.
//!
//! A cached path is valid as long as no name of a directory was moved out of its parents or replaced, and the directory
//! that it leads to was not removed. While that directory exists, its parents exist too.

use crate::incore::directory::Moves;
use crate::incore::inode::Inode;
use crate::inodes::walk_cache::SlotsOwn;
use std::sync::Arc;

/// Places of a slot: a power of two.
const PLACES: usize = 512;
/// Longer paths are walked step by step.
pub(super) const LONGEST: usize = 256;

/// A cached path.
pub(super) struct CachedPath {
    /// The directory that it begins at.
    pub(super) start: Arc<Inode>,
    /// The path as it was given.
    pub(super) path: Box<[u8]>,
    /// The counts of moves of all directories but the last, as they were.
    pub(super) parents: Box<[(Moves, u64)]>,
    /// The last directory.
    pub(super) child: Arc<SlotsOwn>,
}

impl CachedPath {
    fn is_valid(&self) -> bool {
        let unmoved = |(moves, before): &(Moves, u64)| moves.count() == *before;
        self.parents.iter().all(unmoved) && self.child.0.directory().is_some_and(|d| !d.is_dead())
    }
}

/// A place for a cached path, and the hash of the path that asked for it last. A path gets the place when it asks twice, so
/// that walks done only once displace nothing.
#[derive(Default)]
struct PathPlace {
    asked: u32,
    cached: Option<CachedPath>,
}

/// The cached paths of a slot.
#[derive(Default)]
pub(super) struct PathCache {
    places: Box<[PathPlace]>,
}

/// Returns the names on a path.
pub(crate) fn names_of(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    path.split(|&b| b == b'/').filter(|name| !name.is_empty())
}

/// Hashes the start of a walk and its path, eight bytes at a time.
pub(super) fn hash(start: &Inode, path: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let add = |hash: u64, word: u64| (hash.rotate_left(29) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = path.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let begin = u64::from(start.ino.0) << 32 | path.len() as u64;
    let hash = words
        .iter()
        .fold(begin, |hash, word| add(hash, u64::from_le_bytes(*word)));
    add(hash, u64::from_le_bytes(last))
}

fn place(hash: u64) -> usize {
    (hash >> 32) as usize % PLACES
}

impl PathCache {
    /// Returns the directory that a path leads to, if the cached path is remembered and still holds.
    #[inline]
    pub(super) fn find(&self, start: &Arc<Inode>, path: &[u8]) -> Option<&Arc<SlotsOwn>> {
        let there = self.places.get(place(hash(start, path)))?;
        let cached = there.cached.as_ref()?;
        let found = Arc::ptr_eq(&cached.start, start) && *cached.path == *path && cached.is_valid();
        found.then_some(&cached.child)
    }

    /// Returns the place for a path with this hash, if the path was also the last one that asked for it.
    pub(super) fn place_for(&mut self, hash: u64) -> Option<usize> {
        if self.places.is_empty() {
            self.places = (0..PLACES).map(|_| PathPlace::default()).collect();
        }
        let there = &mut self.places[place(hash)];
        let twice = there.asked == hash as u32;
        there.asked = hash as u32;
        twice.then_some(place(hash))
    }

    /// Cached paths that are remembered, whether they hold or not.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let paths = self.places.iter().filter_map(|place| place.cached.as_ref());
        paths.count()
    }

    /// Puts a cached path into its place; returns the previous one.
    pub(super) fn put(&mut self, place: usize, cached: CachedPath) -> Option<CachedPath> {
        self.places[place].cached.replace(cached)
    }
}

//! Hashes of names that several blocks of a directory may hold. Blocks are read in the order of the device, by many threads, so the
//! hashes of all names are kept until the last block, eight bytes a name.

use crate::dir::Directory;
use std::collections::HashSet;

/// Hashes of the names of directories without an index.
#[derive(Debug, Default)]
pub(crate) struct SpreadNames(Vec<u64>);

impl SpreadNames {
    pub(crate) fn push(&mut self, hash: u64) {
        self.0.push(hash);
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Returns the hashes that are there twice.
    pub(crate) fn repeated(mut self) -> HashSet<u64> {
        self.0.sort_unstable();
        let twice = self.0.windows(2).filter(|pair| pair[0] == pair[1]);
        twice.map(|pair| pair[0]).collect()
    }
}

/// Returns the hash of a name in a directory (FNV-1a with the directory's number in front). With a random seed, a hostile volume
/// cannot have many different names with equal hashes.
pub(crate) fn hash(seed: u64, directory: &Directory, name: &[u8]) -> u64 {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let start = directory.ino.0.to_le_bytes();
    start
        .iter()
        .chain(name)
        .fold(0xcbf2_9ce4_8422_2325 ^ seed, add)
}

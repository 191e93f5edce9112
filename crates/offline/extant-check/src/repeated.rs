//! Names that two blocks of a directory have. An index keeps equal names in one leaf; without an index each block may hold a name
//! again. Blocks are read in the order of the device, by many threads, so hashes of all names are kept until the last block, eight
//! bytes a name. Only a damaged volume has equal hashes; its directories are read again to compare the names.

use crate::dir::Directory;
use crate::directories::Directories;
use crate::link::shown;
use crate::report::{FindingPlace, Rule};
use crate::state::Check;
use ext4_format::inode::flags;
use ext4_format::{BlockNr, InodeNr, dir_entry};
use std::collections::HashSet;

/// Names with equal hashes that each thread compares at most, so that a volume of nothing else takes no memory without bound.
const MOST_COMPARED: usize = 1 << 16;

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
    fn repeated(mut self) -> HashSet<u64> {
        self.0.sort_unstable();
        let twice = self.0.windows(2).filter(|pair| pair[0] == pair[1]);
        twice.map(|pair| pair[0]).collect()
    }
}

/// Returns the hash of a name in a directory (FNV-1a with the directory's number in front).
pub(crate) fn hash(directory: &Directory, name: &[u8]) -> u64 {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let start = directory.ino.0.to_le_bytes();
    start.iter().chain(name).fold(0xcbf2_9ce4_8422_2325, add)
}

/// A name, as it is compared, and its place.
type Placed = (InodeNr, Vec<u8>, u32, BlockNr, u32);

/// Reports names that a directory without an index has in two blocks.
pub(crate) fn check(check: &Check<'_>, directories: &Directories, spread: SpreadNames) {
    let repeated = spread.repeated();
    if repeated.is_empty() {
        return;
    }
    let states = directories.each_block(
        check,
        Vec::<Placed>::new,
        |found, directory, logical, at, bytes| {
            if !directory.has_names_in_blocks() || found.len() >= MOST_COMPARED {
                return;
            }
            let compared = check.volume.geo.comparison(directory.flags);
            let entries = dir_entry::entries_of(bytes, directory.has(flags::ENCRYPT));
            for entry in entries.map_while(Result::ok) {
                let key = compared.key(entry.name);
                let dots = matches!(entry.name, b"." | b"..");
                if !dots && repeated.contains(&hash(directory, &key)) {
                    let key = key.into_owned();
                    found.push((directory.ino, key, logical, at, entry.offset));
                }
            }
        },
    );
    let mut names: Vec<Placed> = states.into_iter().flatten().collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        let [(ino, name, first, ..), (other, same, logical, at, offset)] = pair else {
            continue;
        };
        // A name that is twice in one block was reported with its block.
        if (ino, name) == (other, same) && first != logical {
            let place = FindingPlace::inode(*ino).logical((*logical).into());
            check
                .findings
                .add(Rule::EntryTwice, place.block(*at).offset(*offset), || {
                    format!("{}, also in block {first} of the directory", shown(name))
                });
        }
    }
}

//! Names that occur in two blocks of a directory. An index keeps equal names in one leaf; without an index, any block may repeat a
//! name. If two hashes of a directory are equal, its blocks are read again and the names are compared.

use crate::directories::Directories;
use crate::link::shown;
use crate::report::{FindingPlace, Rule};
use crate::spread_names::{SpreadNames, hash};
use crate::state::Check;
use ext4_format::inode::flags;
use ext4_format::{BlockNr, InodeNr, dir_entry};

/// Names with equal hashes that each thread compares at most, so that a volume of nothing else takes no memory without bound.
const MOST_COMPARED: usize = 1 << 16;

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
                if !dots && repeated.contains(&hash(check.name_seed, directory, &key)) {
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

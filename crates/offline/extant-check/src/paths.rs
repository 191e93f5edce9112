//! The paths of inodes that findings name: searched for afterwards, as most images have no finding.

use crate::directories::Directories;
use crate::state::Check;
use ext4_format::inode::flags;
use ext4_format::{InodeNr, dir_entry};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;

/// The directory of an inode, and its name there.
type Named = HashMap<InodeNr, (InodeNr, Vec<u8>)>;

/// No path has more names than this, or it is one of a loop.
const DEEPEST: usize = 4096;

/// Returns the path of each inode that has one.
pub(crate) fn find(
    check: &Check<'_>,
    directories: &Directories,
    wanted: &BTreeSet<InodeNr>,
) -> HashMap<InodeNr, Vec<u8>> {
    if wanted.is_empty() {
        return HashMap::new();
    }
    let mut named = names(check, directories, wanted);
    let mut above = BTreeSet::new();
    for start in named.values().map(|(parent, _)| *parent) {
        let mut at = start;
        while at != InodeNr::ROOT && above.insert(at) {
            let Some(directory) = directories.get(at) else {
                break;
            };
            at = InodeNr(directory.parent.load(Ordering::Relaxed));
        }
    }
    above.retain(|ino| !named.contains_key(ino));
    if !above.is_empty() {
        named.extend(names(check, directories, &above));
    }
    let paths = wanted
        .iter()
        .filter_map(|&ino| Some((ino, path(ino, &named)?)));
    paths.collect()
}

/// Returns the names of inodes.
fn names(check: &Check<'_>, directories: &Directories, wanted: &BTreeSet<InodeNr>) -> Named {
    let states = directories.each_block(check, Named::new, |found, directory, _, _, bytes| {
        let entries = dir_entry::entries_of(bytes, directory.has(flags::ENCRYPT));
        for entry in entries.map_while(Result::ok) {
            if wanted.contains(&entry.inode) && !matches!(entry.name, b"." | b"..") {
                found.insert(entry.inode, (directory.ino, entry.name.to_vec()));
            }
        }
    });
    // Of several names the one in the directory with the lowest number is used, so that the result does not depend on
    // threads.
    let mut all = Named::new();
    for (ino, named) in states.into_iter().flatten() {
        let kept = all.entry(ino).or_insert_with(|| named.clone());
        if named < *kept {
            *kept = named;
        }
    }
    all
}

fn path(ino: InodeNr, named: &Named) -> Option<Vec<u8>> {
    if ino == InodeNr::ROOT {
        return Some(b"/".to_vec());
    }
    let (mut at, mut parts) = (ino, Vec::new());
    while at != InodeNr::ROOT {
        let (parent, name) = named.get(&at)?;
        parts.push(name);
        at = *parent;
        if parts.len() > DEEPEST {
            return None;
        }
    }
    let mut path = Vec::new();
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    Some(path)
}

//! Names that must change: names with invalid characters, and duplicate names.

use ext4_format::InodeNr;
use ext4_format::dir_entry;
use ext4_format::fold::Comparison;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// The names of a directory, in the form in which they are compared.
#[derive(Debug, Default)]
pub(crate) struct SeenNames {
    /// The names that stay, with their inodes.
    kept: BTreeMap<Vec<u8>, InodeNr>,
    /// Hashes of all names, sorted. A new name must be none of them.
    all: Vec<u64>,
}

impl SeenNames {
    /// Adds a name of the directory.
    pub(crate) fn add(&mut self, name: &[u8]) {
        self.all.push(hash(name));
    }

    /// Ends the additions.
    pub(crate) fn sort(&mut self) {
        self.all.sort_unstable();
    }

    /// Returns whether two names may be equal.
    pub(crate) fn may_repeat(&self) -> bool {
        self.all.windows(2).any(|pair| pair[0] == pair[1])
    }

    pub(crate) fn inode(&self, name: &[u8]) -> Option<InodeNr> {
        self.kept.get(name).copied()
    }

    pub(crate) fn keep(&mut self, name: Vec<u8>, ino: InodeNr) {
        self.kept.insert(name, ino);
    }

    /// Forgets the names that are kept.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }

    fn is_free(&self, name: &[u8]) -> bool {
        !self.kept.contains_key(name) && self.all.binary_search(&hash(name)).is_err()
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

/// Removes invalid bytes from a name; `None` if the name cannot be mended.
pub(crate) fn without_bad_bytes(name: &[u8]) -> Option<Vec<u8>> {
    let mended: Vec<u8> = name
        .iter()
        .map(|&byte| if matches!(byte, 0 | b'/') { b'.' } else { byte })
        .collect();
    let possible = dir_entry::check_name(&mended).is_ok();
    (possible && !matches!(&*mended, b"." | b"..")).then_some(mended)
}

/// Returns a variant of a name that no other name of the directory has and that fits the same record, if there is one.
pub(crate) fn another(name: &[u8], compared: Comparison, seen: &SeenNames) -> Option<Vec<u8>> {
    // A record has room for its name up to a multiple of four.
    let room = name.len().next_multiple_of(4).min(dir_entry::NAME_MAX);
    (0..1000u32).find_map(|n| {
        let end = format!("~{n}");
        let mut kept = name.get(..room.checked_sub(end.len())?.min(name.len()))?;
        // A character is not cut in two.
        while !compared.allows(kept) {
            kept = kept.split_last()?.1;
        }
        let new = [kept, end.as_bytes()].concat();
        seen.is_free(&compared.key(&new)).then_some(new)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_changed_as_little_as_can_be() {
        assert_eq!(without_bad_bytes(b"a/b\0c"), Some(b"a.b.c".to_vec()));
        assert_eq!(without_bad_bytes(b"/"), None);
        let mut seen = SeenNames::default();
        let bytes = Comparison::Exact;
        for wanted in ["fstab~0", "fstab~1", "fstab~2"] {
            let new = another(b"fstab", bytes, &seen).unwrap();
            assert_eq!(new, wanted.as_bytes());
            seen.keep(new, InodeNr(12));
        }
        let full = another(b"modules.conf.old", bytes, &seen);
        assert_eq!(full.unwrap(), b"modules.conf.o~0");
    }
}

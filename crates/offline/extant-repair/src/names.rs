//! Names that must change: names with invalid characters, and duplicate names.

use ext4_format::InodeNr;
use ext4_format::dir_entry;
use ext4_format::fold::Comparison;
use std::collections::BTreeMap;

/// The names of a directory that stay, in the form in which they are compared, with their inodes.
pub(crate) type SeenNames = BTreeMap<Vec<u8>, InodeNr>;

/// Removes invalid bytes from a name; `None` if the name cannot be mended.
pub(crate) fn without_bad_bytes(name: &[u8]) -> Option<Vec<u8>> {
    let mended: Vec<u8> = name
        .iter()
        .map(|&byte| if matches!(byte, 0 | b'/') { b'.' } else { byte })
        .collect();
    let possible = dir_entry::check_name(&mended).is_ok();
    (possible && !matches!(&*mended, b"." | b"..")).then_some(mended)
}

/// Returns a variant of a name that is not among `seen` and fits the same record, if there is one.
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
        (!seen.contains_key(&*compared.key(&new))).then_some(new)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_changed_as_little_as_can_be() {
        assert_eq!(without_bad_bytes(b"a/b\0c"), Some(b"a.b.c".to_vec()));
        assert_eq!(without_bad_bytes(b"/"), None);
        let mut seen = SeenNames::new();
        let bytes = Comparison::Exact;
        for wanted in ["fstab~0", "fstab~1", "fstab~2"] {
            let new = another(b"fstab", bytes, &seen).unwrap();
            assert_eq!(new, wanted.as_bytes());
            seen.insert(new, InodeNr(12));
        }
        let full = another(b"modules.conf.old", bytes, &seen);
        assert_eq!(full.unwrap(), b"modules.conf.o~0");
    }
}

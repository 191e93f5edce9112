//! Flags of files by libarchive's names in `SCHILY.fflags`.

use ext4_format::inode::flags;

/// Names of flags that are set. Those of BSD that mean the same are read as well.
const NAMES: [(&str, u32); 24] = [
    ("nodump", flags::NODUMP),
    ("schg", flags::IMMUTABLE),
    ("schange", flags::IMMUTABLE),
    ("simmutable", flags::IMMUTABLE),
    ("immutable", flags::IMMUTABLE),
    ("sappnd", flags::APPEND),
    ("sappend", flags::APPEND),
    ("append", flags::APPEND),
    ("noatime", flags::NOATIME),
    ("compress", flags::COMPR),
    ("dirsync", flags::DIRSYNC),
    ("journal", flags::JOURNAL_DATA),
    ("journal-data", flags::JOURNAL_DATA),
    ("projinherit", flags::PROJINHERIT),
    ("securedeletion", flags::SECRM),
    ("secdel", flags::SECRM),
    ("securedelete", flags::SECRM),
    ("sync", flags::SYNC),
    ("synchronous", flags::SYNC),
    ("notail", flags::NOTAIL),
    ("topdir", flags::TOPDIR),
    ("undel", flags::UNRM),
    ("undelete", flags::UNRM),
    ("casefold", flags::CASEFOLD),
];

/// Returns the flags that a list of names sets. Other names are of other file systems, and have no meaning here.
pub(super) fn parse(list: &[u8]) -> u32 {
    let known = |name: &[u8]| NAMES.iter().find(|(known, _)| known.as_bytes() == name);
    let names = list.split(|b| matches!(b, b',' | b' ')).filter_map(known);
    names.fold(0, |all, (_, bit)| all | bit)
}

/// Returns the names of inode flags for the attribute `SCHILY.fflags` of a tar archive, as libarchive writes them. Flags without
/// a name are left out.
///
/// ```
/// use ext4_format::inode::flags;
/// assert_eq!(extant_sources::flag_names(flags::IMMUTABLE | flags::NODUMP | flags::EXTENTS), "nodump,schg");
/// ```
pub fn flag_names(all: u32) -> String {
    let mut left = all;
    let mut names = Vec::new();
    for (name, bit) in NAMES {
        // A flag has several names: write the first one.
        if left & bit != 0 {
            left &= !bit;
            names.push(name);
        }
    }
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_list() {
        let set = flags::NODUMP | flags::IMMUTABLE;
        assert_eq!(parse(b"nodump,immutable"), set);
        assert_eq!(parse(b"nodump,schg,uarch"), set);
        assert_eq!(parse(b""), 0);
        for (_, bit) in NAMES {
            assert_eq!(parse(flag_names(bit).as_bytes()), bit);
        }
    }
}

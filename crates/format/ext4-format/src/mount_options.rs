//! The mount options that a superblock holds as bits: those a kernel takes where a mount says nothing else.

use crate::superblock::{DEFM_ACL, DEFM_DATA_MODE, DEFM_XATTR_USER};

/// Options of one bit each, in the order in which they are listed.
pub const SINGLE: [(&str, u32); 9] = [
    ("debug", 0x1),
    ("bsdgroups", 0x2),
    ("user_xattr", DEFM_XATTR_USER),
    ("acl", DEFM_ACL),
    ("uid16", 0x10),
    ("nobarrier", 0x100),
    ("block_validity", 0x200),
    ("discard", 0x400),
    ("nodelalloc", 0x800),
];

/// The data modes, which exclude each other.
pub const DATA_MODES: [(&str, u32); 3] = [
    ("journal_data", 0x20),
    ("journal_data_ordered", 0x40),
    ("journal_data_writeback", 0x60),
];

/// Returns the names of the options among some bits.
///
/// ```
/// assert_eq!(ext4_format::mount_options::names(0x44), ["journal_data_ordered", "user_xattr"]);
/// ```
pub fn names(bits: u32) -> Vec<&'static str> {
    let modes = DATA_MODES.into_iter();
    let mode = modes.filter(|(_, mode)| bits & DEFM_DATA_MODE == *mode);
    let single = SINGLE.into_iter().filter(|(_, bit)| bits & bit != 0);
    mode.chain(single).map(|(name, _)| name).collect()
}

/// Applies a list of options, separated by commas or spaces, to bits: each is added, or with a caret removed. An
/// unknown name is the error.
///
/// ```
/// use ext4_format::mount_options::change;
/// assert_eq!(change(0x4, "acl,^user_xattr"), Ok(0x8));
/// assert_eq!(change(0x20, "journal_data_ordered"), Ok(0x40));
/// assert_eq!(change(0, "acl,noatime"), Err("noatime"));
/// ```
///
/// # Errors
/// The first name that is not an option.
pub fn change(mut bits: u32, list: &str) -> Result<u32, &str> {
    for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
        let (name, on) = match word.strip_prefix('^') {
            Some(name) => (name, false),
            None => (word, true),
        };
        let find = |names: &[(&str, u32)]| names.iter().find(|n| n.0 == name).map(|n| n.1);
        if let Some(bit) = find(&SINGLE) {
            bits = if on { bits | bit } else { bits & !bit };
        } else if let Some(mode) = find(&DATA_MODES) {
            bits &= !DEFM_DATA_MODE;
            bits |= if on { mode } else { 0 };
        } else {
            return Err(name);
        }
    }
    Ok(bits)
}

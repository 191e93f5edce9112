//! The flags of inodes by the letters of chattr and lsattr.

use anyhow::{Result, bail};
use ext4_format::inode::flags::{self, USER_MODIFIABLE, USER_VISIBLE};

/// The columns of lsattr.
const LETTERS: [(char, u32); 22] = [
    ('s', flags::SECRM),
    ('u', flags::UNRM),
    ('S', flags::SYNC),
    ('D', flags::DIRSYNC),
    ('i', flags::IMMUTABLE),
    ('a', flags::APPEND),
    ('d', flags::NODUMP),
    ('A', flags::NOATIME),
    ('c', flags::COMPR),
    ('E', flags::ENCRYPT),
    ('j', flags::JOURNAL_DATA),
    ('I', flags::INDEX),
    ('t', flags::NOTAIL),
    ('T', flags::TOPDIR),
    ('e', flags::EXTENTS),
    // Copy on write is not a flag of ext4.
    ('C', 0),
    ('x', flags::DAX),
    ('F', flags::CASEFOLD),
    ('N', flags::INLINE_DATA),
    ('P', flags::PROJINHERIT),
    ('V', flags::VERITY),
    ('m', flags::NOCOMPR),
];

/// Returns the flags as lsattr shows them: a letter for each that is set, a dash for the others.
pub fn columns(set: u32) -> String {
    let column = |(letter, bit): (char, u32)| if set & bit != 0 { letter } else { '-' };
    LETTERS.map(column).iter().collect()
}

/// Copy on write, a flag of other file systems of Linux.
const NO_COPY_ON_WRITE: u32 = 0x0080_0000;

/// Returns the flags of a file that Linux shows, as lsattr shows them.
pub fn columns_of_host(set: u32) -> String {
    let column = |(letter, bit): (char, u32)| {
        let bit = if letter == 'C' { NO_COPY_ON_WRITE } else { bit };
        if set & bit != 0 { letter } else { '-' }
    };
    LETTERS.map(column).iter().collect()
}

/// Returns the flag that a letter of chattr changes on a file that Linux shows.
pub fn letter_bit(letter: char) -> Option<u32> {
    match letter {
        'C' => return Some(NO_COPY_ON_WRITE),
        // ext4 ignores the flag, and other file systems have it.
        'm' => return Some(flags::NOCOMPR),
        _ => {}
    }
    let known = LETTERS.iter().find(|(l, _)| *l == letter);
    known
        .map(|(_, bit)| *bit)
        .filter(|bit| bit & USER_MODIFIABLE != 0)
}

/// The flags by the names that lsattr -l gives them.
pub const LONG_NAMES: [(u32, &str); 22] = [
    (flags::SECRM, "Secure_Deletion"),
    (flags::UNRM, "Undelete"),
    (flags::SYNC, "Synchronous_Updates"),
    (flags::DIRSYNC, "Synchronous_Directory_Updates"),
    (flags::IMMUTABLE, "Immutable"),
    (flags::APPEND, "Append_Only"),
    (flags::NODUMP, "No_Dump"),
    (flags::NOATIME, "No_Atime"),
    (flags::COMPR, "Compression_Requested"),
    (flags::ENCRYPT, "Encrypted"),
    (flags::JOURNAL_DATA, "Journaled_Data"),
    (flags::INDEX, "Indexed_directory"),
    (flags::NOTAIL, "No_Tailmerging"),
    (flags::TOPDIR, "Top_of_Directory_Hierarchies"),
    (flags::EXTENTS, "Extents"),
    (NO_COPY_ON_WRITE, "No_COW"),
    (flags::DAX, "DAX"),
    (flags::CASEFOLD, "Casefold"),
    (flags::INLINE_DATA, "Inline_Data"),
    (flags::PROJINHERIT, "Project_Hierarchy"),
    (flags::VERITY, "Verity"),
    (flags::NOCOMPR, "Dont_Compress"),
];

/// Returns a number as chattr and debugfs take it, also in hexadecimal or octal digits.
pub fn number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x");
    let parsed = match (digits, text.strip_prefix('0')) {
        (Some(digits), _) => u32::from_str_radix(digits, 16),
        (None, Some(digits)) if !digits.is_empty() => u32::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    parsed.map_err(|_| format!("{text}: no number of 32 bits"))
}

/// Parses a 64-bit number, like [`number`].
pub fn long_number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let parsed = match (digits, text.strip_prefix('0')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (None, Some(digits)) if !digits.is_empty() => u64::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    parsed.map_err(|_| format!("{text}: no number"))
}

/// A change of flags: `+i`, `-ad`, `=Ae`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagChange {
    /// Adds these flags.
    Add(u32),
    /// Removes these flags.
    Remove(u32),
    /// Replaces the flags by these.
    Set(u32),
}

impl FlagChange {
    /// Returns the flags that chattr may set, after the change; the others go with the inode.
    pub fn apply(self, set: u32) -> u32 {
        let kept = set & USER_VISIBLE;
        match self {
            Self::Add(bits) => kept | bits,
            Self::Remove(bits) => kept & !bits,
            Self::Set(bits) => kept & !(USER_MODIFIABLE & !flags::EXTENTS) | bits,
        }
    }
}

impl std::str::FromStr for FlagChange {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut letters = text.chars();
        let sign = letters.next();
        let mut bits = 0;
        for letter in letters {
            let known = LETTERS.iter().find(|(l, _)| *l == letter);
            match known {
                Some((_, bit)) if bit & USER_MODIFIABLE != 0 => bits |= bit,
                Some(_) => bail!("{text}: {letter} cannot be changed"),
                None => {
                    bail!("{text}: {letter} is not a flag: see extant lsattr --help")
                }
            }
        }
        match sign {
            Some('+') if bits != 0 => Ok(Self::Add(bits)),
            Some('-') if bits != 0 => Ok(Self::Remove(bits)),
            Some('=') => Ok(Self::Set(bits)),
            _ => bail!("{text} is not a change of flags: write +i, -ad or =A"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_and_changed_by_letter() {
        let set = flags::IMMUTABLE | flags::EXTENTS | flags::NOCOMPR;
        assert_eq!(columns(set), "----i---------e------m");
        let change = |text: &str| text.parse::<FlagChange>().unwrap();
        assert_eq!(
            change("+aA").apply(flags::EXTENTS),
            flags::EXTENTS | flags::APPEND | flags::NOATIME
        );
        assert_eq!(change("-i").apply(set), flags::EXTENTS | flags::NOCOMPR);
        // The mapping flag and the flags that only the file system sets stay.
        let kept = flags::EXTENTS | flags::NOCOMPR;
        assert_eq!(change("=d").apply(set), kept | flags::NODUMP);
        for bad in ["", "i", "+", "-", "+I", "+q", "=N", "+m"] {
            assert!(bad.parse::<FlagChange>().is_err(), "{bad}");
        }
    }
}

//! A name, as far as it leads to an inode.

use ext4_format::InodeNr;
use ext4_format::dir_entry::Entry;

/// Role of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// ".": it leads to its own directory.
    Own,
    /// "..": it leads to the directory above.
    Parent,
    Name,
}

/// A name, as far as it leads to an inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) ino: InodeNr,
    /// Offset of its entry in units of four bytes, because the lengths of records are multiples of four.
    pub(crate) offset: u16,
    /// The entry's byte for the type.
    pub(crate) type_byte: u8,
    pub(crate) role: Role,
}

const _: () = assert!(size_of::<Link>() == 8);

impl Link {
    pub(crate) fn of(entry: &Entry<'_>, bytes: &[u8], role: Role) -> Self {
        let type_byte = bytes.get(entry.offset as usize + 7).copied().unwrap_or(0);
        Self {
            ino: entry.inode,
            offset: (entry.offset / 4) as u16, // a block has 64 KiB at most
            type_byte,
            role,
        }
    }

    pub(crate) const fn offset(self) -> u32 {
        self.offset as u32 * 4
    }
}

/// Formats a name for messages.
pub(crate) fn shown(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}

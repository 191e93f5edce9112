//! Extended attributes: the space behind an inode's fixed part, and one block per inode that
//! inodes with the same attributes may share.
//!
//! Both hold a list of entries that grows up and values that grow down. On disk a name is an index for its prefix and
//! the rest of it; here names are whole ("user.mime_type"). Values of ACLs are kept as stored; [`crate::acl`]
//! translates them. For a value in a separate inode (`ea_inode`) there is a reference to the inode, whose bytes
//! [`crate::inode::value`] checks.

mod block;
mod placement;
mod rehash;
mod remove;
mod set;

pub use block::{refcount, set_checksum, set_refcount, stored_block_hash, verify_checksum};
pub use placement::{Placed, entry_hash, place};
pub use rehash::{rehash_in_block, rehash_in_inode};
pub use remove::{
    Removable, clear_hash, remove_in_block, remove_in_inode, renumber_in_block, renumber_in_inode,
};
pub use set::{Stored, ValueInode, XattrSet, has_inode_area, walk_block, walk_inode_area};

use crate::error::{FormatError, Result, Where};
use core::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = 0xea02_0000;
/// The most inodes that share a block.
pub const MAX_REFCOUNT: u32 = 1024;
/// The longest full name, in bytes.
pub const NAME_MAX: usize = 255;
/// The longest value the system-call interface allows.
pub const VALUE_MAX: usize = 65_536;
/// The longest value in an inode (`ea_inode`).
pub const VALUE_INODE_MAX: u32 = 1 << 24;
/// Four zero bytes end the entries.
const END_LEN: usize = 4;
const INODE_HEADER_LEN: usize = 4;
const HEADER_LEN: usize = size_of::<RawHeader>();
const ENTRY_LEN: usize = size_of::<RawEntry>();

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    refcount: U32,
    blocks: U32,
    hash: U32,
    checksum: U32,
    reserved: [U32; 3],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    name_len: u8,
    name_index: u8,
    value_offs: U16,
    value_inum: U32,
    value_size: U32,
    hash: U32,
}

const _: () = {
    assert!(HEADER_LEN == 32 && ENTRY_LEN == 16);
    assert!(offset_of!(RawHeader, hash) == 12 && offset_of!(RawHeader, checksum) == 16);
    assert!(offset_of!(RawEntry, value_inum) == 4 && offset_of!(RawEntry, hash) == 12);
};

/// Prefixes by index. Those that do not end in a dot are whole names. Longest match first.
const PREFIXES: [(u8, &[u8]); 10] = [
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (8, b"system.richacl"),
    (7, b"system."),
    (1, b"user."),
    (4, b"trusted."),
    (5, b"lustre."),
    (6, b"security."),
    // The prefix of fscrypt: no system call shows it.
    (9, b"encryption."),
    (10, b"gnu."),
];

/// Name of the access ACL.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the default ACL of a directory.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Returns the beginning of the names with an index, or the whole name where there is only one; `None` for an unknown
/// index.
///
/// ```
/// assert_eq!(ext4_format::xattr::name_prefix(1), Some(&b"user."[..]));
/// ```
pub fn name_prefix(index: u8) -> Option<&'static [u8]> {
    let found = PREFIXES.iter().find(|(i, _)| *i == index);
    found.map(|(_, prefix)| *prefix)
}

/// Returns the index and stored rest of a full name.
pub(crate) fn split_name(full: &[u8]) -> Result<(u8, &[u8])> {
    if full.len() > NAME_MAX || full.contains(&0) {
        return Err(FormatError::Unrepresentable(
            "extended attribute name too long or with NUL",
        ));
    }
    for (index, prefix) in PREFIXES {
        match full.strip_prefix(prefix) {
            Some(rest) if rest.is_empty() != prefix.ends_with(b".") => return Ok((index, rest)),
            _ => {}
        }
    }
    Err(FormatError::Unrepresentable(
        "extended attribute name prefix",
    ))
}

fn full_name(index: u8, rest: &[u8], at: usize) -> Result<Vec<u8>> {
    let Some(prefix) = name_prefix(index) else {
        return Err(FormatError::Incompatible(format!(
            "extended attribute name index {index}"
        )));
    };
    if rest.is_empty() == prefix.ends_with(b".") || rest.contains(&0) {
        return Err(corrupt("extended attribute name", at));
    }
    Ok([prefix, rest].concat())
}

const fn corrupt(what: &'static str, offset: usize) -> FormatError {
    FormatError::corrupt(what, Where::Buffer(offset as u32))
}

const fn pad4(len: usize) -> usize {
    (len + 3) & !3
}

#[cfg(test)]
mod tests;

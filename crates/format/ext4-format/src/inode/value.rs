//! Inodes that hold the value of an extended attribute (`ea_inode`).
//!
//! Such an inode is a regular file with the flag [`flags::EA_INODE`] and without a name. Its access time holds the hash of the
//! value. Its change time holds the upper half of the reference count, and the version field the lower half. Each inode with the
//! attribute accounts for the whole value.

use super::{at, file_acl, flags, put, u16_at, u32_at, xattr_area};
use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::geometry::Geometry;
use crate::types::{FileType, InodeNr};
use crate::xattr::{VALUE_INODE_MAX, ValueInode, entry_hash, has_inode_area, split_name};

/// Where the lower half of the number of references is: the version of other inodes.
const REFERENCES_LOW: usize = 36;

/// Returns the number of attributes that refer to a value.
///
/// ```
/// use ext4_format::inode::value::{references, set_references};
/// let mut record = [0; 256];
/// set_references(&mut record, 3);
/// assert_eq!(references(&record), 3);
/// ```
pub fn references(raw: &[u8]) -> u64 {
    u64::from(u32_at(raw, at::CTIME)) << 32 | u64::from(u32_at(raw, REFERENCES_LOW))
}

/// Sets the number of attributes that refer to a value.
pub fn set_references(raw: &mut [u8], count: u64) {
    put(raw, at::CTIME, ((count >> 32) as u32).to_le_bytes());
    put(raw, REFERENCES_LOW, (count as u32).to_le_bytes());
}

/// Returns whether a record counts the attributes that refer to its value. Those that Lustre made do not: they have times
/// instead, of which the time of change equals that of access (`check_ea_inode` of e2fsck).
///
/// ```
/// use ext4_format::inode::value::{counts_references, set_hash, set_references};
/// let mut record = [0; 256];
/// set_hash(&mut record, 0x594f_621c);
/// assert!(counts_references(&record));
/// set_references(&mut record, 0x594f_621c << 32 | 1);
/// assert!(!counts_references(&record));
/// ```
pub fn counts_references(raw: &[u8]) -> bool {
    u32_at(raw, at::CTIME) != u32_at(raw, at::ATIME)
}

/// Returns the hash of a value, as its record has it.
pub fn hash(raw: &[u8]) -> u32 {
    u32_at(raw, at::ATIME)
}

/// Sets the hash of a value.
pub fn set_hash(raw: &mut [u8], hash: u32) {
    put(raw, at::ATIME, hash.to_le_bytes());
}

/// Returns whether a record is that of a value.
pub fn is_value(raw: &[u8]) -> bool {
    u32_at(raw, at::FLAGS) & flags::EA_INODE != 0 && can_be_value(raw)
}

fn can_be_value(raw: &[u8]) -> bool {
    FileType::from_mode(u16_at(raw, at::MODE)) == Some(FileType::Regular)
        && u16_at(raw, at::LINKS) != 0
}

/// Returns whether an inode lacks only the flag to hold the value of an attribute, whose name ends in `rest`. The
/// bytes of the value are not looked at.
pub fn could_hold(raw: &[u8], rest: &[u8], value: &ValueInode) -> bool {
    let hash = u32_at(raw, at::ATIME).to_le_bytes();
    let hashed = [false, true].map(|signed| entry_hash(rest, &hash, signed));
    can_be_value(raw) && has_size_of(raw, value) && hashed.contains(&value.hash)
}

fn has_size_of(raw: &[u8], value: &ValueInode) -> bool {
    value.size != 0 && u32_at(raw, at::SIZE) == value.size && u32_at(raw, at::SIZE_HI) == 0
}

/// Returns whether a value of an attribute of the inode `owner` belongs to that inode alone. Lustre made such inodes, without a
/// reference count, and not accounted for.
pub fn is_of_owner(raw: &[u8], value: &ValueInode, ino: u32, owner: &[u8]) -> bool {
    is_value(raw)
        && has_size_of(raw, value)
        && u32_at(raw, at::MTIME) == ino
        && u32_at(raw, at::GENERATION) == u32_at(owner, at::GENERATION)
}

/// Checks that an inode may hold the value of an attribute of the inode `owner`, by its number. The record is not
/// looked at.
///
/// # Errors
/// `Corrupt` at the inode with the value.
pub fn check_number(geo: &Geometry, owner: InodeNr, value: &ValueInode) -> Result<()> {
    let possible = value.ino.0 >= geo.first_ino && geo.group_of_inode(value.ino).is_some();
    rule(
        possible && value.ino != owner,
        "inode number of an attribute's value",
        value,
    )
}

/// Checks that the record of an inode is that of a value of this size, as Linux does before it reads the value. An empty value is
/// never in an inode.
///
/// # Errors
/// `Corrupt` at the inode with the value.
pub fn check_record(raw: &[u8], geo: &Geometry, value: &ValueInode) -> Result<()> {
    let inside = u32_at(raw, at::FLAGS) & flags::INLINE_DATA != 0;
    rule(
        is_value(raw) && !inside,
        "attribute's value in an inode of another kind",
        value,
    )?;
    let area = xattr_area(raw, geo).and_then(|area| raw.get(area));
    rule(
        file_acl(raw, geo).0 == 0 && !area.is_some_and(has_inode_area),
        "attributes of an attribute's value",
        value,
    )?;
    rule(
        has_size_of(raw, value) && value.size <= VALUE_INODE_MAX,
        "size of an attribute's value",
        value,
    )
}

/// Checks the bytes of a value: the record of the inode with the value has their hash, and the attribute has the hash
/// of that and of its `name`. A value that belongs to one inode alone, with the number and the record of `owner`, has
/// no hashes.
///
/// # Errors
/// `Checksum` at the inode with the value.
pub fn check_bytes(
    raw: &[u8],
    geo: &Geometry,
    (ino, owner): (InodeNr, &[u8]),
    (name, value): (&[u8], &ValueInode),
    bytes: &[u8],
) -> Result<()> {
    let computed = crc32c(geo.csum_seed, bytes);
    let stored = u32_at(raw, at::ATIME);
    let (_, rest) = split_name(name)?;
    let hashed = [false, true].map(|signed| entry_hash(rest, &computed.to_le_bytes(), signed));
    if computed == stored && hashed.contains(&value.hash) || is_of_owner(raw, value, ino.0, owner) {
        return Ok(());
    }
    let (what, stored, computed) = if computed == stored {
        ("extended attribute", value.hash, hashed[0])
    } else {
        ("value of an extended attribute", stored, computed)
    };
    Err(FormatError::Checksum {
        what,
        at: Where::Inode(value.ino),
        stored,
        computed,
    })
}

fn rule(holds: bool, what: &'static str, value: &ValueInode) -> Result<()> {
    if holds {
        Ok(())
    } else {
        Err(FormatError::corrupt(what, Where::Inode(value.ino)))
    }
}

/// Clusters that an inode accounts for with a value of `size` bytes.
pub fn value_clusters(geo: &Geometry, size: u32) -> u64 {
    u64::from(size).div_ceil(u64::from(geo.block_size) * u64::from(geo.cluster_ratio))
}

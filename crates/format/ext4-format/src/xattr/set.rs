//! All attributes of an inode, read from the inode and its block.

use super::{
    END_LEN, ENTRY_LEN, HEADER_LEN, INODE_HEADER_LEN, MAGIC, PREFIXES, RawEntry, VALUE_MAX,
    corrupt, entry_hash, full_name, pad4, refcount, split_name,
};
use crate::error::{FormatError, Result, Where};
use crate::types::InodeNr;
use zerocopy::FromBytes;

/// All extended attributes of an inode, sorted by full name.
///
/// ```
/// use ext4_format::xattr::{self, XattrSet};
/// let mut set = XattrSet::default();
/// set.set(b"user.colour", b"blue")?;
/// let (area, block) = xattr::place(&set, 96, 4096)?;
/// assert!(block.is_none());
/// assert_eq!(XattrSet::parse(area.as_deref(), None)?, set);
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XattrSet {
    list: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names whose values are in inodes, sorted.
    outside: Vec<(Vec<u8>, ValueInode)>,
}

impl XattrSet {
    /// Reads the attributes of an inode: the space behind its fixed part (with or without magic in
    /// it) and its block.
    ///
    /// # Errors
    /// `Corrupt` for a broken rule, `Incompatible` for values in inodes or unknown name indices.
    pub fn parse(inode_area: Option<&[u8]>, block: Option<&[u8]>) -> Result<Self> {
        let set = Self::parse_all(inode_area, block)?;
        if set.outside.is_empty() {
            Ok(set)
        } else {
            Err(FormatError::Incompatible("ea_inode".into()))
        }
    }

    /// Reads the attributes of an inode of a volume with `ea_inode`. [`value_inode`](Self::value_inode) returns where
    /// the values in inodes are, and [`get`](Self::get) returns the other values.
    ///
    /// # Errors
    /// `Corrupt` for a broken rule, `Incompatible` for unknown name indices.
    pub fn parse_all(inode_area: Option<&[u8]>, block: Option<&[u8]>) -> Result<Self> {
        let mut set = Self::default();
        if let Some(area) = inode_area.filter(|a| has_inode_area(a)) {
            let body = area.get(INODE_HEADER_LEN..).unwrap_or(&[]);
            set.read(body, 0, false)
                .map_err(|e| shift_offset(e, INODE_HEADER_LEN))?;
        }
        if let Some(block) = block {
            refcount(block)?;
            set.read(block, HEADER_LEN, true)?;
        }
        Ok(set)
    }

    /// Reads entries from `base[first..]`; value offsets count from the start of `base`.
    fn read(&mut self, base: &[u8], first: usize, in_block: bool) -> Result<()> {
        walk(base, first, in_block, |at, raw, rest, value| {
            let name = full_name(raw.name_index, rest, at)?;
            let (Err(here), Err(outside)) = (self.position(&name), self.outside(&name)) else {
                return Err(corrupt("extended attribute twice", at));
            };
            match value {
                Stored::Here(value) => self.list.insert(here, (name, value.to_vec())),
                Stored::Inode(value) => self.outside.insert(outside, (name, value)),
            }
            Ok(())
        })
    }

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        self.list.binary_search_by(|(n, _)| n[..].cmp(name))
    }

    fn outside(&self, name: &[u8]) -> Result<usize, usize> {
        self.outside.binary_search_by(|(n, _)| n[..].cmp(name))
    }

    /// Returns the value of a full name, unless the value is in an inode.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let (_, value) = self.list.get(self.position(name).ok()?)?;
        Some(value)
    }

    /// Returns the reference to the inode with the value of a full name, if the value is in an inode.
    pub fn value_inode(&self, name: &[u8]) -> Option<ValueInode> {
        let (_, value) = self.outside.get(self.outside(name).ok()?)?;
        Some(*value)
    }

    /// Returns whether the set has a name, wherever its value is.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.position(name).is_ok() || self.outside(name).is_ok()
    }

    /// Returns all full names in order, wherever their values are.
    pub fn names(&self) -> Vec<&[u8]> {
        let here = self.list.iter().map(|(name, _)| &name[..]);
        let outside = self.outside.iter().map(|(name, _)| &name[..]);
        let mut names: Vec<&[u8]> = here.chain(outside).collect();
        names.sort_unstable();
        names
    }

    /// Returns whether values are in inodes.
    pub(super) const fn has_outside(&self) -> bool {
        !self.outside.is_empty()
    }

    /// Sets or replaces a value. Whether everything fits is known when it is placed ([`place`](super::place)).
    ///
    /// # Errors
    /// `Unrepresentable` for a name without a known prefix, a name or value too long, or a name whose value is in an
    /// inode.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        split_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(FormatError::Unrepresentable(
                "extended attribute value too long",
            ));
        }
        if self.outside(name).is_ok() {
            return Err(FormatError::Unrepresentable(
                "change of an extended attribute whose value is in an inode",
            ));
        }
        match self.position(name) {
            Ok(i) => {
                if let Some(slot) = self.list.get_mut(i) {
                    slot.1 = value.to_vec();
                }
            }
            Err(i) => self.list.insert(i, (name.to_vec(), value.to_vec())),
        }
        Ok(())
    }

    /// Takes a name out and returns its value, unless the value is in an inode.
    pub fn remove(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        self.position(name).ok().map(|i| self.list.remove(i).1)
    }

    /// Returns (full name, value) in the order of names, without the values in inodes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.list.iter().map(|(n, v)| (&n[..], &v[..]))
    }

    /// Returns the number of attributes.
    pub const fn len(&self) -> usize {
        self.list.len() + self.outside.len()
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Place of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored<'a> {
    /// Stored with its name.
    Here(&'a [u8]),
    /// Stored in a separate inode.
    Inode(ValueInode),
}

/// Reference to an inode that holds the value of an attribute (`ea_inode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueInode {
    /// Inode with the value as its data.
    pub ino: InodeNr,
    /// Length of the value in bytes.
    pub size: u32,
    /// Hash of the attribute, over its name and the hash of the value.
    pub hash: u32,
}

/// Calls `f` with index and rest of the name, and with the value, of each attribute in the space behind an inode's
/// fixed part. The structure is checked, but names that are unknown to this crate are accepted.
///
/// # Errors
/// `Corrupt` or `Checksum` for a broken rule, and the errors of `f`.
pub fn walk_inode_area<'a>(
    area: &'a [u8],
    mut f: impl FnMut(u8, &'a [u8], Stored<'a>) -> Result<()>,
) -> Result<()> {
    if !has_inode_area(area) {
        return Ok(());
    }
    let body = area.get(INODE_HEADER_LEN..).unwrap_or(&[]);
    walk(body, 0, false, |at, raw, rest, value| {
        check_unused(body, at, raw)?;
        f(raw.name_index, rest, value)
    })
    .map_err(|e| shift_offset(e, INODE_HEADER_LEN))
}

/// Like [`walk_inode_area`], for a block of attributes, whose header is checked too.
///
/// # Errors
/// The same.
pub fn walk_block(
    block: &[u8],
    mut f: impl FnMut(u8, &[u8], Stored<'_>) -> Result<()>,
) -> Result<()> {
    refcount(block)?;
    walk(block, HEADER_LEN, true, |at, raw, rest, value| {
        // A name in an inode may be without an index, as in e2fsck.
        if raw.name_index == 0 {
            return Err(corrupt("extended attribute name", at));
        }
        check_unused(block, at, raw)?;
        f(raw.name_index, rest, value)
    })
}

/// Checks fields that a reader of the attributes does not use. Only the names of ACLs may have an empty rest, and the
/// place of an empty value must be 0 or inside.
fn check_unused(base: &[u8], at: usize, raw: &RawEntry) -> Result<()> {
    let whole = PREFIXES
        .iter()
        .any(|(index, prefix)| *index == raw.name_index && !prefix.ends_with(b"."));
    if raw.name_len == 0 && !whole {
        return Err(corrupt("extended attribute name", at));
    }
    if usize::from(raw.value_offs.get()) > base.len() {
        return Err(corrupt("extended attribute value out of bounds", at));
    }
    Ok(())
}

/// Calls `f` with offset, head, rest of the name, and value of each entry of `base[first..]`, checked.
fn walk<'a>(
    base: &'a [u8],
    first: usize,
    in_block: bool,
    mut f: impl FnMut(usize, &RawEntry, &'a [u8], Stored<'a>) -> Result<()>,
) -> Result<()> {
    let end = end_of_entries(base, first)?;
    let mut values: Vec<(usize, usize)> = Vec::new();
    let mut at = first;
    while at + END_LEN < end {
        let (raw, name) = entry_at(base, at)?;
        let next = at + pad4(ENTRY_LEN + name.len());
        if raw.value_inum != 0 {
            let value = ValueInode {
                ino: InodeNr(raw.value_inum.get()),
                size: raw.value_size.get(),
                hash: raw.hash.get(),
            };
            f(at, raw, name, Stored::Inode(value))?;
            at = next;
            continue;
        }
        let (offs, size) = (
            usize::from(raw.value_offs.get()),
            raw.value_size.get() as usize,
        );
        let value = match size {
            0 => &[][..],
            _ => offs
                .checked_add(size)
                // The padding must be inside too.
                .filter(|stop| {
                    offs >= end && pad4(*stop - offs) <= base.len() - offs.min(base.len())
                })
                .and_then(|stop| base.get(offs..stop))
                .ok_or(corrupt("extended attribute value out of bounds", at))?,
        };
        // A wrong name is reported before the hash, because the hash covers the name.
        f(at, raw, name, Stored::Here(value))?;
        let stored = raw.hash.get();
        if stored != 0 || in_block {
            let computed = entry_hash(name, value, false);
            if stored != computed && stored != entry_hash(name, value, true) {
                let place = Where::Buffer(at as u32);
                return Err(FormatError::Checksum {
                    what: "extended attribute",
                    at: place,
                    stored,
                    computed,
                });
            }
        }
        if size > 0 {
            values.push((offs, offs + pad4(size)));
        }
        at = next;
    }
    values.sort_unstable();
    match values.windows(2).find(|w| matches!(w, [a, b] if a.1 > b.0)) {
        Some(pair) => Err(corrupt(
            "extended attribute values overlap",
            pair.first().map_or(0, |v| v.0),
        )),
        None => Ok(()),
    }
}

fn shift_offset(e: FormatError, by: usize) -> FormatError {
    match e {
        FormatError::Corrupt {
            what,
            at: Where::Buffer(o),
        } => corrupt(what, o as usize + by),
        other => other,
    }
}

/// Returns whether an in-inode space holds attributes: it begins with the magic.
pub fn has_inode_area(area: &[u8]) -> bool {
    area.first_chunk()
        .is_some_and(|m| u32::from_le_bytes(*m) == MAGIC)
}

fn entry_at(base: &[u8], at: usize) -> Result<(&RawEntry, &[u8])> {
    let bytes = base.get(at..).unwrap_or(&[]);
    let Ok((raw, rest)) = RawEntry::ref_from_prefix(bytes) else {
        return Err(corrupt("extended attribute entry out of bounds", at));
    };
    let name = rest.get(..raw.name_len.into());
    Ok((
        raw,
        name.ok_or(corrupt("extended attribute name out of bounds", at))?,
    ))
}

/// Returns the offset just behind the four zero bytes that end the entries. Values begin at or after it.
fn end_of_entries(base: &[u8], first: usize) -> Result<usize> {
    let mut at = first;
    loop {
        match base.get(at..at + END_LEN) {
            None => return Err(corrupt("extended attribute list without an end", at)),
            Some([0, 0, 0, 0]) => return Ok(at + END_LEN),
            Some(_) => {
                let (_, name) = entry_at(base, at)?;
                at += pad4(ENTRY_LEN + name.len());
            }
        }
    }
}

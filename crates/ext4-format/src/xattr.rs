//! Extended attributes: the space behind an inode's fixed part, and one block per inode that
//! inodes with the same attributes may share.
//!
//! Both hold a list of entries that grows up and values that grow down. On disk a name is an index
//! for its prefix and the rest of it; here names are whole ("user.mime_type"). Values of ACLs are
//! kept as stored; [`crate::acl`] translates them. Values in inodes of their own (`ea_inode`) are
//! refused.

use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use crate::types::BlockNr;
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
const PREFIXES: [(u8, &[u8]); 9] = [
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (8, b"system.richacl"),
    (7, b"system."),
    (1, b"user."),
    (4, b"trusted."),
    (5, b"lustre."),
    (6, b"security."),
    (10, b"gnu."),
];

/// Name of the access ACL.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the default ACL of a directory.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Index and stored rest of a full name.
fn split_name(full: &[u8]) -> Result<(u8, &[u8])> {
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
    let Some((_, prefix)) = PREFIXES.iter().find(|(i, _)| *i == index) else {
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
}

impl XattrSet {
    /// Reads the attributes of an inode: the space behind its fixed part (with or without magic in
    /// it) and its block.
    ///
    /// # Errors
    /// `Corrupt` for a broken rule, `Incompatible` for values in inodes or unknown name indices.
    pub fn parse(inode_area: Option<&[u8]>, block: Option<&[u8]>) -> Result<Self> {
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
        let end = end_of_entries(base, first)?;
        let mut values: Vec<(usize, usize)> = Vec::new();
        let mut at = first;
        while at + END_LEN < end {
            let (raw, name) = entry_at(base, at)?;
            let name = full_name(raw.name_index, name, at)?;
            if raw.value_inum != 0 {
                return Err(FormatError::Incompatible("ea_inode".into()));
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
            let stored = raw.hash.get();
            if stored != 0 || in_block {
                let rest = base.get(at + ENTRY_LEN..at + ENTRY_LEN + usize::from(raw.name_len));
                let rest = rest.unwrap_or(&[]);
                let computed = entry_hash(rest, value, false);
                if stored != computed && stored != entry_hash(rest, value, true) {
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
            match self.position(&name) {
                Ok(_) => return Err(corrupt("extended attribute twice", at)),
                Err(i) => self.list.insert(i, (name, value.to_vec())),
            }
            at += pad4(ENTRY_LEN + usize::from(raw.name_len));
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

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        self.list.binary_search_by(|(n, _)| n[..].cmp(name))
    }

    /// The value of a full name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let (_, value) = self.list.get(self.position(name).ok()?)?;
        Some(value)
    }

    /// Sets or replaces a value. Whether everything fits is known when it is [`place`]d.
    ///
    /// # Errors
    /// `Unrepresentable` for a name without a known prefix, or a name or value too long.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<()> {
        split_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(FormatError::Unrepresentable(
                "extended attribute value too long",
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

    /// Takes a name out and returns its value.
    pub fn remove(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        self.position(name).ok().map(|i| self.list.remove(i).1)
    }

    /// (full name, value) in the order of names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.list.iter().map(|(n, v)| (&n[..], &v[..]))
    }

    /// Number of attributes.
    pub const fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
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

/// Whether an in-inode space holds attributes: it begins with the magic.
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

/// Offset just behind the four zero bytes that end the entries. Values begin at or after it.
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

/// Hash of one entry over the stored part of its name and its value. Kernels on machines whose
/// `char` is signed used to take name bytes as signed; both are valid, new ones are unsigned.
pub fn entry_hash(name: &[u8], value: &[u8], signed: bool) -> u32 {
    let named = name.iter().fold(0_u32, |h, &b| {
        h.rotate_left(5)
            ^ if signed {
                b as i8 as i32 as u32
            } else {
                b.into()
            }
    });
    value.chunks(4).fold(named, |h, chunk| {
        let mut word = [0; 4];
        for (w, b) in word.iter_mut().zip(chunk) {
            *w = *b;
        }
        h.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// An attribute on its way to disk.
struct Item<'a> {
    index: u8,
    rest: &'a [u8],
    value: &'a [u8],
}

impl Item<'_> {
    const fn space(&self) -> usize {
        pad4(ENTRY_LEN + self.rest.len()) + pad4(self.value.len())
    }
}

/// Writes entries upwards from `first` and values downwards from the end of `base`. The items fit.
fn write(base: &mut [u8], first: usize, items: &[Item<'_>], hashed: bool) -> Result<()> {
    let overflow = || FormatError::Unrepresentable("extended attributes larger than their space");
    let (mut at, mut top) = (first, base.len() & !3);
    for item in items {
        let from = top
            .checked_sub(pad4(item.value.len()))
            .ok_or_else(overflow)?;
        let raw = RawEntry {
            name_len: item.rest.len() as u8,
            name_index: item.index,
            value_offs: if item.value.is_empty() {
                0
            } else {
                from as u16
            }
            .into(),
            value_inum: 0.into(),
            value_size: (item.value.len() as u32).into(),
            hash: if hashed {
                entry_hash(item.rest, item.value, false)
            } else {
                0
            }
            .into(),
        };
        let behind_head = at + ENTRY_LEN;
        let parts = [
            (at, raw.as_bytes()),
            (behind_head, item.rest),
            (from, item.value),
        ];
        for (offset, bytes) in parts {
            let slot = base
                .get_mut(offset..offset + bytes.len())
                .ok_or_else(overflow)?;
            slot.copy_from_slice(bytes);
        }
        at += pad4(ENTRY_LEN + item.rest.len());
        top = from;
    }
    if at + END_LEN > top {
        Err(overflow())
    } else {
        Ok(())
    }
}

/// Picks, in the order given, what fits into `room`; returns (picked, left over).
fn pick<'a>(items: Vec<Item<'a>>, mut room: usize) -> (Vec<Item<'a>>, Vec<Item<'a>>) {
    items
        .into_iter()
        .partition(|item| match room.checked_sub(item.space()) {
            Some(rest) => {
                room = rest;
                true
            }
            None => false,
        })
}

/// In-inode space and block of a set, where it needs them.
pub type Placed = (Option<Vec<u8>>, Option<Vec<u8>>);

/// Lays a set out as the kernel does: what fits goes into the inode, the rest into one block.
/// `inode_area_len` is the space behind the inode's fixed part, 0 when there is none. The first
/// vector is exactly that long, the second a whole block with a reference count of 1 and no
/// checksum yet ([`set_checksum`]). `None` where nothing is kept.
///
/// # Errors
/// `Unrepresentable` when the set is too large for both: the caller's ENOSPC.
pub fn place(set: &XattrSet, inode_area_len: usize, block_size: usize) -> Result<Placed> {
    let items = || -> Result<Vec<Item<'_>>> {
        set.iter()
            .map(|(name, value)| split_name(name).map(|(index, rest)| Item { index, rest, value }))
            .collect()
    };
    let inode_room = (inode_area_len & !3).saturating_sub(INODE_HEADER_LEN + END_LEN);
    let block_room = block_size.saturating_sub(HEADER_LEN + END_LEN);
    let space = |items: &[Item<'_>]| items.iter().map(Item::space).sum::<usize>();

    let (mut inner, mut outer) = pick(items()?, inode_room);
    if space(&outer) > block_room {
        // Short names first may waste the inode's room; try the largest first.
        let mut by_size = items()?;
        by_size.sort_by_key(|item| core::cmp::Reverse(item.space()));
        (inner, outer) = pick(by_size, inode_room);
        if space(&outer) > block_room {
            return Err(FormatError::Unrepresentable(
                "extended attributes larger than their space",
            ));
        }
    }
    let mut area = None;
    if !inner.is_empty() {
        let mut bytes = vec![0; inode_area_len];
        let (magic, body) = bytes.split_at_mut(INODE_HEADER_LEN);
        magic.copy_from_slice(&MAGIC.to_le_bytes());
        // The kernel hashes only what may be shared: the block.
        write(body, 0, &inner, false)?;
        area = Some(bytes);
    }
    let mut block = None;
    if !outer.is_empty() {
        // The kernel finds names in a block by this order.
        outer.sort_by_key(|item| (item.index, item.rest.len(), item.rest));
        let mut bytes = vec![0; block_size];
        write(&mut bytes, HEADER_LEN, &outer, true)?;
        let header = RawHeader {
            magic: MAGIC.into(),
            refcount: 1.into(),
            blocks: 1.into(),
            hash: block_hash(&outer).into(),
            checksum: 0.into(),
            reserved: [0.into(); 3],
        };
        // write has checked that the block is longer than its header.
        header
            .write_to_prefix(&mut bytes)
            .map_err(|_| corrupt("block length", 0))?;
        block = Some(bytes);
    }
    Ok((area, block))
}

/// Hash of a whole block, by which equal blocks are found; 0 (an entry's hash is 0) means "do not
/// share".
fn block_hash(items: &[Item<'_>]) -> u32 {
    let mut hash = 0_u32;
    for item in items {
        match entry_hash(item.rest, item.value, false) {
            0 => return 0,
            h => hash = hash.rotate_left(16) ^ h,
        }
    }
    hash
}

/// How many inodes share a block. Checks its header.
///
/// # Errors
/// `Corrupt` for a bad magic, block count or reference count.
pub fn refcount(block: &[u8]) -> Result<u32> {
    let Ok((header, _)) = RawHeader::ref_from_prefix(block) else {
        return Err(corrupt("extended attribute block length", 0));
    };
    let count = header.refcount.get();
    if header.magic != MAGIC {
        Err(corrupt("extended attribute block magic", 0))
    } else if header.blocks != 1 {
        Err(corrupt(
            "extended attribute block count",
            offset_of!(RawHeader, blocks),
        ))
    } else if count == 0 || count > MAX_REFCOUNT {
        Err(corrupt(
            "extended attribute reference count",
            offset_of!(RawHeader, refcount),
        ))
    } else {
        Ok(count)
    }
}

/// The hash by which blocks that can be shared are found.
pub fn stored_block_hash(block: &[u8]) -> Option<u32> {
    Some(RawHeader::ref_from_prefix(block).ok()?.0.hash.get())
}

/// Changes how many inodes share a block. The checksum must be set again.
///
/// # Errors
/// `Unrepresentable` for 0 or more than [`MAX_REFCOUNT`].
pub fn set_refcount(block: &mut [u8], count: u32) -> Result<()> {
    match RawHeader::mut_from_prefix(block) {
        Ok((header, _)) if (1..=MAX_REFCOUNT).contains(&count) => {
            header.refcount = count.into();
            Ok(())
        }
        _ => Err(FormatError::Unrepresentable(
            "extended attribute reference count",
        )),
    }
}

/// Over the block's number and the block, with the checksum as zero.
fn checksum(block: &[u8], fs_seed: u32, nr: BlockNr) -> u32 {
    let field = offset_of!(RawHeader, checksum);
    let (before, rest) = block.split_at_checked(field).unwrap_or((block, &[]));
    let sum = crc32c(crc32c(fs_seed, &nr.0.to_le_bytes()), before);
    crc32c(crc32c(sum, &[0; 4]), rest.get(4..).unwrap_or(&[]))
}

/// Writes the checksum of a block that will stand at `nr`. `fs_seed` is the volume's.
pub fn set_checksum(block: &mut [u8], fs_seed: u32, nr: BlockNr) {
    let sum = checksum(block, fs_seed, nr);
    if let Ok((header, _)) = RawHeader::mut_from_prefix(block) {
        header.checksum = sum.into();
    }
}

/// Checks the checksum of a block read from `nr`.
///
/// # Errors
/// `Checksum` when it does not match.
pub fn verify_checksum(block: &[u8], fs_seed: u32, nr: BlockNr) -> Result<()> {
    let Ok((header, _)) = RawHeader::ref_from_prefix(block) else {
        return Err(corrupt("extended attribute block length", 0));
    };
    let (stored, computed) = (header.checksum.get(), checksum(block, fs_seed, nr));
    if stored == computed {
        return Ok(());
    }
    Err(FormatError::Checksum {
        what: "extended attribute block",
        at: Where::Block(nr, 0),
        stored,
        computed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(area: Option<&[u8]>, block: Option<&[u8]>) -> &'static str {
        match XattrSet::parse(area, block) {
            Err(FormatError::Corrupt { what, .. } | FormatError::Checksum { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names() {
        assert_eq!(split_name(b"user.a").unwrap(), (1, &b"a"[..]));
        assert_eq!(split_name(ACL_ACCESS).unwrap(), (2, &b""[..]));
        assert_eq!(split_name(b"system.data").unwrap(), (7, &b"data"[..]));
        for bad in [
            &b"user."[..],
            b"bare",
            b"user.a\0",
            b"System.x",
            b"",
            &[b'u'; 256],
        ] {
            assert!(split_name(bad).is_err());
        }
        for (index, prefix) in PREFIXES {
            let full = if prefix.ends_with(b".") {
                [prefix, b"x"].concat()
            } else {
                prefix.to_vec()
            };
            let (i, rest) = split_name(&full).unwrap();
            assert_eq!(i, index);
            assert_eq!(full_name(i, rest, 0).unwrap(), full);
        }
    }

    #[test]
    fn broken_rules_are_named() {
        let mut set = XattrSet::default();
        set.set(b"user.a", b"12345").unwrap();
        set.set(b"user.b", b"67890").unwrap();
        let (none, Some(good)) = place(&set, 0, 1024).unwrap() else {
            panic!()
        };
        assert!(none.is_none());
        let entry = HEADER_LEN;
        for (offset, value, what) in [
            (0, 1, "extended attribute block magic"),
            (4, 0, "extended attribute reference count"),
            (5, 5, "extended attribute reference count"),
            (8, 2, "extended attribute block count"),
            (entry, 0, "extended attribute name"),
            (entry + 2, 0xff, "extended attribute value out of bounds"),
            (entry + 9, 0xff, "extended attribute value out of bounds"),
            (entry + 12, 0, "extended attribute"),
        ] {
            let mut bad = good.clone();
            bad[offset] = value;
            assert_eq!(rule(None, Some(&bad)), what, "{offset}");
        }
        let mut inode = good.clone();
        inode[entry + 4] = 12;
        assert!(matches!(
            XattrSet::parse(None, Some(&inode)),
            Err(FormatError::Incompatible(_))
        ));
        let (Some(area), None) = place(&set, 100, 1024).unwrap() else {
            panic!()
        };
        let mut bad = area.clone();
        bad[4 + 20 + 2] = bad[4 + 2];
        assert_eq!(rule(Some(&bad), None), "extended attribute values overlap");
        assert_eq!(rule(Some(&area), Some(&good)), "extended attribute twice");
    }

    #[test]
    fn inode_first_rest_in_the_block() {
        let mut set = XattrSet::default();
        set.set(b"user.small", b"x").unwrap();
        set.set(b"user.large", &[7; 500]).unwrap();
        let (area, block) = place(&set, 96, 1024).unwrap();
        assert_eq!(XattrSet::parse(area.as_deref(), None).unwrap().len(), 1);
        let mut block = block.unwrap();
        assert_eq!(XattrSet::parse(area.as_deref(), Some(&block)).unwrap(), set);
        set_refcount(&mut block, 1024).unwrap();
        set_checksum(&mut block, 9, BlockNr(77));
        verify_checksum(&block, 9, BlockNr(77)).unwrap();
        assert!(verify_checksum(&block, 9, BlockNr(78)).is_err());
        assert_eq!(refcount(&block).unwrap(), 1024);
        assert!(set_refcount(&mut block, 1025).is_err());
        set.set(b"user.huge", &[7; 500]).unwrap();
        assert!(matches!(
            place(&set, 96, 1024),
            Err(FormatError::Unrepresentable(_))
        ));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), nudge: bool) {
            if let (true, Some(m)) = (nudge, bytes.get_mut(..12)) {
                m.copy_from_slice(&[0, 0, 2, 0xea, 1, 0, 0, 0, 1, 0, 0, 0]);
            }
            let _ = XattrSet::parse(Some(&bytes), None);
            let _ = XattrSet::parse(None, Some(&bytes));
            let _ = verify_checksum(&bytes, 1, BlockNr(1));
            set_checksum(&mut bytes, 1, BlockNr(1));
        }

        #[test]
        fn round_trip(
            pairs in proptest::collection::vec((0..PREFIXES.len(), "[a-zé]{1,12}", proptest::collection::vec(any::<u8>(), 0..60)), 0..14),
            area_len in 0..300_usize,
        ) {
            let mut set = XattrSet::default();
            for (p, rest, value) in &pairs {
                let prefix = PREFIXES[*p].1;
                let rest = if prefix.ends_with(b".") { rest.as_bytes() } else { b"" };
                set.set(&[prefix, rest].concat(), value).unwrap();
            }
            if let Ok((area, block)) = place(&set, area_len, 1024) {
                prop_assert_eq!(area.as_ref().map_or(area_len, Vec::len), area_len);
                prop_assert_eq!(XattrSet::parse(area.as_deref(), block.as_deref()).unwrap(), set);
            }
        }
    }
}

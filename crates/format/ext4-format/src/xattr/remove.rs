//! Taking single attributes out, for a repair: the others stay where they are.

use super::{
    END_LEN, ENTRY_LEN, HEADER_LEN, INODE_HEADER_LEN, RawEntry, RawHeader, has_inode_area, pad4,
};
use crate::types::InodeNr;
use zerocopy::FromBytes;

/// Attribute that may be removed: its entry without the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removable<'a> {
    /// Index of the name's prefix.
    pub index: u8,
    /// Name behind the prefix.
    pub rest: &'a [u8],
    /// Inode with the value; `None` if the value is stored with the name.
    pub value: Option<InodeNr>,
}

/// Removes the attributes for which `unwanted` is true from the space behind an inode's fixed part. The space is
/// cleared if all are removed. The entries must be sound. Returns how many attributes were removed.
pub fn remove_in_inode(area: &mut [u8], unwanted: impl Fn(&Removable<'_>) -> bool) -> usize {
    let Some(body) = area.get_mut(INODE_HEADER_LEN..) else {
        return 0;
    };
    let removed = remove(body, 0, unwanted);
    if removed > 0 && body.starts_with(&[0; END_LEN]) {
        area.fill(0);
    }
    removed
}

/// Like [`remove_in_inode`], for a block of attributes. The block's hash is cleared, so that the block is not found
/// for sharing; its checksum must be set again.
pub fn remove_in_block(block: &mut [u8], unwanted: impl Fn(&Removable<'_>) -> bool) -> usize {
    let removed = remove(block, HEADER_LEN, unwanted);
    if removed > 0
        && let Ok((header, _)) = RawHeader::mut_from_prefix(block)
    {
        header.hash = 0.into();
    }
    removed
}

/// Clears the hash of an attribute in the space behind an inode's fixed part, after its value was changed in place. The hash is
/// optional there.
pub fn clear_hash(area: &mut [u8], (index, rest): (u8, &[u8])) {
    let Some(body) = area.get_mut(INODE_HEADER_LEN..) else {
        return;
    };
    let mut at = 0;
    while let Some(bytes) = body.get_mut(at..)
        && !bytes.starts_with(&[0; END_LEN])
        && let Ok((raw, name)) = RawEntry::mut_from_prefix(bytes)
        && let Some(name) = name.get(..raw.name_len.into())
    {
        if raw.name_index == index && name == rest {
            raw.hash = 0.into();
        }
        at += pad4(ENTRY_LEN + name.len());
    }
}

/// Gives the inodes with values of attributes in the space behind an inode's fixed part the numbers that `number` returns. The hashes
/// of attributes do not depend on the numbers. Returns whether a number changed.
pub fn renumber_in_inode(area: &mut [u8], number: impl Fn(InodeNr) -> InodeNr) -> bool {
    if !has_inode_area(area) {
        return false;
    }
    let body = area.get_mut(INODE_HEADER_LEN..);
    body.is_some_and(|body| renumber(body, number))
}

/// Like [`renumber_in_inode`], for a block of attributes. Its checksum must be set again.
pub fn renumber_in_block(block: &mut [u8], number: impl Fn(InodeNr) -> InodeNr) -> bool {
    let body = block.get_mut(HEADER_LEN..);
    body.is_some_and(|body| renumber(body, number))
}

fn renumber(body: &mut [u8], number: impl Fn(InodeNr) -> InodeNr) -> bool {
    let mut changed = false;
    let mut at = 0;
    while let Some(bytes) = body.get_mut(at..)
        && !bytes.starts_with(&[0; END_LEN])
        && let Ok((raw, _)) = RawEntry::mut_from_prefix(bytes)
    {
        let old = InodeNr(raw.value_inum.get());
        let new = if old.0 == 0 { old } else { number(old) };
        raw.value_inum.set(new.0);
        changed |= new != old;
        at += pad4(ENTRY_LEN + usize::from(raw.name_len));
    }
    changed
}

fn remove(base: &mut [u8], first: usize, unwanted: impl Fn(&Removable<'_>) -> bool) -> usize {
    let (mut kept, mut end, mut removed) = (Vec::new(), first, 0);
    while let Some(bytes) = base.get(end..)
        && !bytes.starts_with(&[0; END_LEN])
        && let Ok((raw, rest)) = RawEntry::ref_from_prefix(bytes)
        && let Some(rest) = rest.get(..raw.name_len.into())
        && let Some(entry) = bytes.get(..pad4(ENTRY_LEN + rest.len()))
    {
        let ino = InodeNr(raw.value_inum.get());
        let attribute = Removable {
            index: raw.name_index,
            rest,
            value: (ino.0 != 0).then_some(ino),
        };
        if unwanted(&attribute) {
            removed += 1;
        } else {
            kept.extend_from_slice(entry);
        }
        end += entry.len();
    }
    if removed > 0
        && let Some(entries) = base.get_mut(first..end)
    {
        entries.fill(0);
        if let Some(to) = entries.get_mut(..kept.len()) {
            to.copy_from_slice(&kept);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::super::{XattrSet, place};
    use super::*;

    #[test]
    fn one_of_three_goes_and_the_others_stay() {
        let mut set = XattrSet::default();
        for name in [&b"user.a"[..], b"user.bb", b"user.ccc"] {
            set.set(name, b"value").unwrap();
        }
        let (area, _) = place(&set, 160, 1024).unwrap();
        let mut area = area.unwrap();
        assert_eq!(remove_in_inode(&mut area, |a| a.value.is_some()), 0);
        // The second entry, of 16 bytes and a name in 4, leads to an inode.
        area[4 + 20 + 4..][..4].copy_from_slice(&12u32.to_le_bytes());
        let leads_to = |ino| move |a: &Removable<'_>| a.value == Some(InodeNr(ino));
        assert_eq!(remove_in_inode(&mut area, leads_to(13)), 0);
        let to = |new| move |old: InodeNr| InodeNr(if old.0 == 12 { new } else { old.0 });
        assert!(renumber_in_inode(&mut area, to(14)));
        assert!(!renumber_in_inode(&mut area, to(15)));
        assert_eq!(remove_in_inode(&mut area.clone(), leads_to(14)), 1);
        assert!(renumber_in_inode(&mut area, |_| InodeNr(12)));
        assert_eq!(remove_in_inode(&mut area, leads_to(12)), 1);
        set.remove(b"user.bb").unwrap();
        assert_eq!(XattrSet::parse(Some(&area), None).unwrap(), set);
        assert_eq!(remove_in_inode(&mut area, |a| a.rest == b"a"), 1);
        assert_eq!(remove_in_inode(&mut area, |_| true), 1);
        assert_eq!(area, [0; 160]);
        // Any bytes.
        assert_eq!(remove_in_inode(&mut [0xff; 7], |_| true), 0);
        assert_eq!(remove_in_block(&mut [1; 33], |_| true), 0);
        assert!(!renumber_in_inode(&mut [0xff; 7], |_| InodeNr(1)));
        assert!(!renumber_in_block(&mut [1; 33], |_| InodeNr(1)));
    }
}

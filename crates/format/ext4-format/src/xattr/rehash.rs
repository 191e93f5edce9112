//! New hashes of attributes whose values are in inodes, after the seed of the values' hashes changed.

use super::{
    END_LEN, ENTRY_LEN, HEADER_LEN, INODE_HEADER_LEN, MAGIC, RawEntry, RawHeader, entry_hash,
    has_inode_area, pad4,
};
use crate::types::InodeNr;
use zerocopy::FromBytes;

/// Sets the hashes of the attributes in the space behind an inode's fixed part whose values are in inodes. `hashes`
/// returns the old and the new hash of the value in an inode. Hashes that did not match stay. Returns whether a hash
/// changed.
pub fn rehash_in_inode(area: &mut [u8], hashes: impl Fn(InodeNr) -> Option<[u32; 2]>) -> bool {
    if !has_inode_area(area) {
        return false;
    }
    let body = area.get_mut(INODE_HEADER_LEN..);
    body.is_some_and(|body| rehash(body, hashes).0)
}

/// Like [`rehash_in_inode`], for a block of attributes. Its checksum must be set again.
pub fn rehash_in_block(block: &mut [u8], hashes: impl Fn(InodeNr) -> Option<[u32; 2]>) -> bool {
    let Some((head, body)) = block.split_at_mut_checked(HEADER_LEN) else {
        return false;
    };
    if !matches!(RawHeader::ref_from_prefix(head), Ok((header, _)) if header.magic == MAGIC) {
        return false;
    }
    let (changed, hash) = rehash(body, hashes);
    // A block whose hash is 0 is not shared, and stays so.
    if changed
        && let Ok((header, _)) = RawHeader::mut_from_prefix(head)
        && header.hash != 0
    {
        header.hash = hash.into();
    }
    changed
}

/// Returns whether a hash changed, and the hash over the hashes of all entries, as in a block's header.
fn rehash(body: &mut [u8], hashes: impl Fn(InodeNr) -> Option<[u32; 2]>) -> (bool, u32) {
    let (mut changed, mut whole) = (false, Some(0_u32));
    let mut at = 0;
    while let Some(bytes) = body.get_mut(at..)
        && !bytes.starts_with(&[0; END_LEN])
        && let Ok((raw, rest)) = RawEntry::mut_from_prefix(bytes)
        && let Some(rest) = rest.get(..raw.name_len.into())
    {
        let ino = InodeNr(raw.value_inum.get());
        if ino.0 != 0
            && let Some(values) = hashes(ino)
        {
            let stored = raw.hash.get();
            for signed in [false, true] {
                let [old, new] = values.map(|value| entry_hash(rest, &value.to_le_bytes(), signed));
                if stored == old && stored != new {
                    raw.hash.set(new);
                    changed = true;
                    break;
                }
            }
        }
        whole = match raw.hash.get() {
            0 => None,
            hash => whole.map(|sum| sum.rotate_left(16) ^ hash),
        };
        at += pad4(ENTRY_LEN + rest.len());
    }
    (changed, whole.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::{XattrSet, place};
    use super::*;

    #[test]
    fn only_hashes_of_values_in_inodes_change() {
        let mut set = XattrSet::default();
        for name in [&b"user.a"[..], b"user.bb"] {
            set.set(name, b"value").unwrap();
        }
        let (area, _) = place(&set, 160, 1024).unwrap();
        let mut area = area.unwrap();
        let second = 4 + 20;
        area[second + 4..][..4].copy_from_slice(&12u32.to_le_bytes());
        let hash = |value: u32| entry_hash(b"bb", &value.to_le_bytes(), false);
        area[second + 12..][..4].copy_from_slice(&hash(7).to_le_bytes());
        let before = area.clone();
        let new = |ino| (ino == InodeNr(12)).then_some([7, 9]);
        assert!(!rehash_in_inode(&mut area, |_| None));
        assert!(!rehash_in_inode(&mut area, |_| Some([8, 9])));
        assert!(rehash_in_inode(&mut area, new));
        assert_eq!(area[second + 12..][..4], hash(9).to_le_bytes());
        area[second + 12..][..4].copy_from_slice(&hash(7).to_le_bytes());
        assert_eq!(area, before);
        // Any bytes.
        assert!(!rehash_in_inode(&mut [0xff; 7], new));
        assert!(!rehash_in_block(&mut [1; 33], new));
        assert!(!rehash_in_block(&mut [1; 3], new));
    }
}

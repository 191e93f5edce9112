//! Names of encrypted directories and targets of encrypted links, as Linux shows them without the key (fscrypt).
//!
//! The bytes on disk are arbitrary, so they are shown as a text in the letters of base64 for URLs. The text holds the
//! hash by which the directory's index knows the name, the name's first bytes and, if it is longer, a digest of the
//! rest. The volume never has a key, so encrypted directories hold these names in memory instead of those on disk.

use crate::types::dentry::NameHash;
use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest, Sha256};

/// Bytes of a name that are shown as they are.
const SHOWN: usize = 149;

/// Returns the name shown for bytes on disk. `hash` is the hash of the bytes if the directory has an index.
pub(crate) fn name(hash: Option<NameHash>, bytes: &[u8]) -> Vec<u8> {
    let hash = hash.map_or([0, 0], |hash| [hash.major, hash.minor]);
    let mut raw: Vec<u8> = hash.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (shown, rest) = bytes.split_at(bytes.len().min(SHOWN));
    raw.extend_from_slice(shown);
    if !rest.is_empty() {
        raw.extend_from_slice(&Sha256::digest(rest));
    }
    BASE64URL_NOPAD.encode(&raw).into_bytes()
}

/// Returns the target shown for an encrypted link, whose content is a length and that number of bytes. Returns `None`
/// if the content is damaged.
pub(crate) fn target(stored: &[u8]) -> Option<Vec<u8>> {
    let (len, bytes) = stored.split_first_chunk()?;
    let bytes = bytes.get(..usize::from(u16::from_le_bytes(*len)))?;
    (!bytes.is_empty()).then(|| name(None, bytes))
}

/// Returns the length of [`target`] for a content of this length.
pub(crate) fn target_len(stored: u64) -> u64 {
    let bytes = stored.saturating_sub(2);
    let raw = if bytes <= SHOWN as u64 {
        8 + bytes
    } else {
        8 + SHOWN as u64 + 32
    };
    (raw * 4).div_ceil(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_the_names() {
        for len in [1, 15, 16, 148, 149, 150, 255, 4000u16] {
            let mut stored = len.to_le_bytes().to_vec();
            stored.resize(usize::from(len) + 2, 0xA5);
            let shown = target(&stored).unwrap();
            assert_eq!(shown.len() as u64, target_len(stored.len() as u64), "{len}");
            assert!(shown.len() <= 255 && !shown.contains(&b'/'));
        }
        assert_eq!(target(&[5, 0, 1]), None, "shorter than it says");
        assert_eq!(target(&[0, 0]), None);
    }
}

//! The superblock of a hash tree, and the place of each of its blocks.
//!
//! The format is that of the kernel's `Documentation/admin-guide/device-mapper/verity.rst` and of the superblock of veritysetup. A block of
//! hashes is full of hashes, except the last one of its level, which ends with zeros. The levels lie behind the superblock, the one block of the top first. The
//! root hash is that of the top block. Version 1 hashes the salt before the bytes.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::str::FromStr;

/// Bytes of a block of data and of a block of hashes in trees that are made.
pub const BLOCK: u64 = 4096;
/// Bytes of a hash.
pub(crate) const HASH: u64 = 32;
/// Bytes of the superblock; the rest of its block is zeros.
pub(crate) const SUPERBLOCK: usize = 512;
const MAGIC: [u8; 8] = *b"verity\0\0";
const MOST_SALT: usize = 256;

/// SHA-256 of the top block of a hash tree.
///
/// ```
/// let text = "00".repeat(31) + "ff";
/// let root: extant_verity::RootHash = text.parse()?;
/// assert_eq!(root.to_string(), text);
/// # Ok::<(), extant_verity::ParseRootError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootHash(pub [u8; HASH as usize]);

/// A text is not a root hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseRootError;

impl fmt::Display for ParseRootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a root hash (64 hexadecimal digits)")
    }
}

impl std::error::Error for ParseRootError {}

impl fmt::Display for RootHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl FromStr for RootHash {
    type Err = ParseRootError;

    fn from_str(text: &str) -> Result<Self, ParseRootError> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
        let root = bytes.and_then(|bytes| bytes.try_into().ok());
        root.map(Self).ok_or(ParseRootError)
    }
}

/// The properties of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) uuid: [u8; 16],
    pub(crate) salt: Vec<u8>,
    pub(crate) data_block: u64,
    pub(crate) hash_block: u64,
    pub(crate) data_blocks: u64,
}

fn wrong(what: impl fmt::Display) -> io::Error {
    let text = format!("not a valid hash tree of dm-verity: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Layout {
    pub(crate) fn decode(bytes: &[u8; SUPERBLOCK]) -> io::Result<Self> {
        let number = |at: usize, len: usize| {
            let little = bytes[at..at + len].iter().rev();
            little.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        if bytes[..8] != MAGIC {
            return Err(wrong("it has no superblock"));
        }
        let (version, kind) = (number(8, 4), number(12, 4));
        let algorithm = bytes[32..64].split(|byte| *byte == 0).next();
        if version != 1 || kind != 1 || algorithm != Some(b"sha256") {
            let why = "only version 1 with sha256 is supported";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let salt = number(80, 2) as usize;
        let salt = bytes[88..88 + MOST_SALT].get(..salt);
        let layout = Self {
            uuid: std::array::from_fn(|at| bytes[16 + at]),
            salt: salt.ok_or_else(|| wrong("its salt is too long"))?.to_vec(),
            data_block: number(64, 4),
            hash_block: number(68, 4),
            data_blocks: number(72, 8),
        };
        let is_size = |size: u64| size.is_power_of_two() && (512..=64 << 10).contains(&size);
        if !is_size(layout.data_block) || !is_size(layout.hash_block) {
            return Err(wrong("the size of its blocks"));
        }
        let len = layout.data_blocks.checked_mul(layout.data_block);
        if layout.data_blocks == 0 || len.is_none_or(|len| len > i64::MAX as u64) {
            return Err(wrong("the number of its blocks"));
        }
        Ok(layout)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(1u32.to_le_bytes()); // version
        bytes.extend(1u32.to_le_bytes()); // kind of hashes: the salt first
        bytes.extend(self.uuid);
        bytes.extend(b"sha256");
        bytes.resize(64, 0);
        bytes.extend((self.data_block as u32).to_le_bytes());
        bytes.extend((self.hash_block as u32).to_le_bytes());
        bytes.extend(self.data_blocks.to_le_bytes());
        bytes.extend((self.salt.len() as u16).to_le_bytes());
        bytes.resize(88, 0);
        bytes.extend(&self.salt);
        bytes.resize(self.hash_block as usize, 0);
        bytes
    }

    /// Returns the number of hashes in a block.
    pub(crate) fn fan(&self) -> u64 {
        self.hash_block / HASH
    }

    /// Returns the number of blocks of each level, the lowest first. The last has one. An image of one block has no level.
    pub(crate) fn levels(&self) -> Vec<u64> {
        let mut levels = Vec::new();
        let mut blocks = self.data_blocks;
        while blocks > 1 {
            blocks = blocks.div_ceil(self.fan());
            levels.push(blocks);
        }
        levels
    }

    /// Returns the offset of each level behind the start of the tree, in bytes, the lowest first.
    pub(crate) fn starts(&self) -> Vec<u64> {
        let levels = self.levels();
        let after = |level: usize| levels[level + 1..].iter().sum::<u64>();
        (0..levels.len())
            .map(|level| (1 + after(level)) * self.hash_block)
            .collect()
    }

    /// Returns the length of the tree with its superblock, in bytes.
    pub(crate) fn len(&self) -> u64 {
        (1 + self.levels().iter().sum::<u64>()) * self.hash_block
    }

    pub(crate) fn hash(&self, bytes: &[u8]) -> [u8; HASH as usize] {
        Sha256::new_with_prefix(&self.salt)
            .chain_update(bytes)
            .finalize()
            .into()
    }
}

#[test]
fn root_hashes_are_of_64_digits() {
    let text = "0f".repeat(32);
    assert_eq!(text.to_uppercase().parse(), Ok(RootHash([15; 32])));
    for wrong in [
        "",
        "0f",
        "é",
        &text[1..],
        &(text.clone() + "0f"),
        &text.replace("0f", "0g"),
        &(text.clone() + "\n"),
    ] {
        assert_eq!(wrong.parse::<RootHash>(), Err(ParseRootError), "{wrong}");
    }
}

#[test]
fn superblocks_that_lie_are_refused() {
    let right = Layout {
        uuid: [7; 16],
        salt: vec![3; 32],
        data_block: 4096,
        hash_block: 4096,
        data_blocks: 1000,
    };
    let bytes: [u8; SUPERBLOCK] = right.encode()[..SUPERBLOCK].try_into().unwrap();
    assert_eq!(Layout::decode(&bytes).unwrap(), right);
    // Magic, version, kind, algorithm, sizes, number of blocks, length of the salt.
    for at in [0, 8, 12, 33, 65, 69, 79, 81] {
        let mut bytes = bytes;
        bytes[at] = 0xff;
        assert!(Layout::decode(&bytes).is_err(), "{at}");
    }
}

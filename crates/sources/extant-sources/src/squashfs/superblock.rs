//! The superblock: properties of the image, and the places of its tables.

use super::compressor::Compressor;

/// Bytes of the superblock.
pub(super) const LEN: usize = 96;
/// The first bytes of an image.
pub(super) const MAGIC: &[u8; 4] = b"hsqs";
/// Place of a missing table.
const NONE: u64 = u64::MAX;
/// Sizes of data blocks that the format allows.
const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 4096..=1 << 20;

/// Returns whether bytes are the start of a SquashFS image, also of an unsupported one, such as a big-endian one.
pub(crate) fn is_squashfs(head: &[u8]) -> bool {
    head.starts_with(MAGIC) || head.starts_with(b"sqsh")
}

/// The parsed superblock. All existing tables begin inside of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    pub inodes: u32,
    /// Bytes of a block of data.
    pub block_size: u32,
    pub fragments: u32,
    pub compressor: Compressor,
    pub ids: u16,
    /// The root's inode: its block in the inode table, and the offset there.
    pub root: u64,
    /// Bytes of the image.
    pub len: u64,
    pub id_table: u64,
    pub xattr_table: Option<u64>,
    pub inode_table: u64,
    pub directory_table: u64,
    pub fragment_table: Option<u64>,
}

/// A broken rule, and its offset.
pub(super) type Broken = (u64, String);

impl Superblock {
    /// Parses and checks the superblock of an image on a device of `device` bytes.
    pub fn parse(raw: &[u8; LEN], device: u64) -> Result<Self, Broken> {
        let u16_at = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]); // below LEN, as all here
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let broken = |at: u64, what: &str| Err((at, what.to_string()));
        if !raw.starts_with(MAGIC) {
            return broken(0, "not a SquashFS image of version 4.0, little-endian");
        }
        let version = (u16_at(28), u16_at(30));
        if version != (4, 0) {
            let (major, minor) = version;
            let what = format!("SquashFS of version {major}.{minor}, where only 4.0 is read");
            return Err((28, what));
        }
        let compressor = Compressor::of(u16_at(20)).map_err(|what| (20, what))?;
        let block_size = u32_at(12);
        let is_size = block_size.is_power_of_two() && BLOCK_SIZES.contains(&block_size);
        if !is_size || u32::from(u16_at(22)) != block_size.trailing_zeros() {
            return broken(12, "an impossible size of blocks");
        }
        let len = u64_at(40);
        if len < LEN as u64 {
            return broken(40, "the image ends in its superblock");
        }
        if len > device {
            let what = format!("the image is cut off: {device} bytes of {len}");
            return Err((40, what));
        }
        let table = |at: usize| match u64_at(at) {
            NONE => Ok(None),
            start if start >= LEN as u64 && start < len => Ok(Some(start)),
            _ => Err((at as u64, "a table outside of the image".to_string())),
        };
        let needed = |at: usize| {
            let missing = || {
                (
                    at as u64,
                    "a table that must be there is missing".to_string(),
                )
            };
            table(at)?.ok_or_else(missing)
        };
        let fragments = u32_at(16);
        Ok(Self {
            inodes: u32_at(4),
            block_size,
            fragments,
            compressor,
            ids: u16_at(26),
            root: u64_at(32),
            len,
            id_table: needed(48)?,
            xattr_table: table(56)?,
            inode_table: needed(64)?,
            directory_table: needed(72)?,
            fragment_table: match fragments {
                0 => None,
                _ => Some(needed(80)?),
            },
        })
    }
}

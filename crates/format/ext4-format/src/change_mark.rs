//! The mark of a change in place that is under way: a superblock that nothing mounts.
//!
//! While an image is repaired, resized or tuned, the first sector of its primary superblock is a mark. The mark has an
//! incompatible feature that neither Linux nor e2fsprogs knows, so that both refuse the image without writing to it. The mark
//! names the undo file, from which the old image is restored. One sector is written whole or not at all, so an image has the
//! mark or does not. The mark lacks the feature `metadata_csum`, so the checksum in the other sector is not verified.
//!
//! | offset in the superblock | bytes | content |
//! |---|---|---|
//! | `0x38` | 2 | `magic`, as always |
//! | `0x4c` | 4 | `rev_level`: 1 |
//! | `0x60` | 4 | `feature_incompat` with [`CHANGE_BIT`] |
//! | `0x64` | 4 | `feature_ro_compat` without `metadata_csum` |
//! | `0x88` | 64 | `last_mounted`: a line for human readers |
//! | `0x10c` | 8 | [`MARK_MAGIC`] |
//! | `0x114` | 8 | identity of the undo file |
//! | `0x11c` | 4 | length of the undo file's path |
//! | `0x120` | 4 | CRC-32C of the 16 bytes before it and of the path's field |
//! | `0x178` | 136 | path of the undo file, its last 136 bytes if it is longer; or a zero byte and the offset of the undo record in the image, in digits |
//!
//! All other bytes are those of the new superblock, so that the volume's name and UUID are found.

use crate::checksum::crc32c;
use crate::features::RoCompat;
use crate::types::MAGIC;
use std::fmt;

/// The incompatible feature of an image that is being changed in place.
pub const CHANGE_BIT: u32 = 1 << 31;
/// Size of the part of the superblock that is the mark.
pub const MARK_SIZE: usize = 512;
/// Magic number of the record of the undo file.
pub const MARK_MAGIC: [u8; 8] = *b"EXTCHNG\n";

const LINE: &[u8] = b"interrupted change: extant undo takes it back";
const FIELD_MAGIC: usize = 0x38;
const FIELD_REVISION: usize = 0x4c;
const FIELD_INCOMPAT: usize = 0x60;
const FIELD_RO_COMPAT: usize = 0x64;
const FIELD_LAST_MOUNTED: usize = 0x88;
const LAST_MOUNTED_SIZE: usize = 64;
const RECORD: usize = 0x10c;
const SUM: usize = RECORD + 20;
const PATH: usize = 0x178;
const PATH_SIZE: usize = MARK_SIZE - PATH;

/// The mark: which undo file belongs to the change that is under way.
///
/// ```
/// use ext4_format::change_mark::{ChangeMark, MARK_SIZE};
/// let mark = ChangeMark::new(7, b"/srv/disk.img.extant-undo");
/// let sector = mark.over(&[0; MARK_SIZE]);
/// assert_eq!(ChangeMark::read(&sector), Some(mark));
/// assert_eq!(ChangeMark::read(&[0; MARK_SIZE]), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeMark {
    id: u64,
    path: Vec<u8>,
    path_len: u32,
}

impl ChangeMark {
    /// Creates a mark for the undo file with this identity, at this absolute path. The path is empty if the undo
    /// record is not in a file.
    pub fn new(id: u64, path: &[u8]) -> Self {
        let tail = path.len().saturating_sub(PATH_SIZE);
        Self {
            id,
            path: path.get(tail..).unwrap_or_default().to_vec(),
            path_len: u32::try_from(path.len()).unwrap_or(u32::MAX),
        }
    }

    /// Returns the path field for an undo record inside the image, at this offset. Its first byte is zero, so it
    /// differs from every path of a file.
    ///
    /// ```
    /// use ext4_format::change_mark::ChangeMark;
    /// let mark = ChangeMark::new(7, &ChangeMark::path_of_offset(8192));
    /// assert_eq!(mark.offset(), Some(8192));
    /// assert_eq!(mark.to_string(), "the record at byte 8192 of the image");
    /// ```
    pub fn path_of_offset(offset: u64) -> Vec<u8> {
        format!("\0{offset}").into_bytes()
    }

    /// Returns the offset of the undo record, if it is in the image itself.
    pub fn offset(&self) -> Option<u64> {
        let digits = self.path.strip_prefix(b"\0")?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Reads the mark from the beginning of a superblock.
    pub fn read(superblock: &[u8]) -> Option<Self> {
        let sector = superblock.first_chunk::<MARK_SIZE>()?;
        let is_marked = word(sector, FIELD_INCOMPAT) & CHANGE_BIT != 0;
        let has_magic = sector.get(RECORD..RECORD + 8) == Some(&MARK_MAGIC);
        if !is_marked || !has_magic || word(sector, SUM) != sum(sector) {
            return None;
        }
        let path_len = word(sector, RECORD + 16);
        let len = PATH_SIZE.min(path_len as usize);
        Some(Self {
            id: u64::from(word(sector, RECORD + 8)) | u64::from(word(sector, RECORD + 12)) << 32,
            path: sector.get(PATH..PATH + len)?.to_vec(),
            path_len,
        })
    }

    /// Returns the sector that marks the image, made from the first sector of the new superblock.
    pub fn over(&self, sector: &[u8; MARK_SIZE]) -> [u8; MARK_SIZE] {
        let mut marked = *sector;
        put(&mut marked, FIELD_MAGIC, &MAGIC.to_le_bytes());
        put(&mut marked, FIELD_REVISION, &1u32.to_le_bytes());
        let incompat = word(sector, FIELD_INCOMPAT) | CHANGE_BIT;
        put(&mut marked, FIELD_INCOMPAT, &incompat.to_le_bytes());
        let ro_compat = word(sector, FIELD_RO_COMPAT) & !RoCompat::METADATA_CSUM.bits();
        put(&mut marked, FIELD_RO_COMPAT, &ro_compat.to_le_bytes());
        put(&mut marked, FIELD_LAST_MOUNTED, &[0; LAST_MOUNTED_SIZE]);
        put(&mut marked, FIELD_LAST_MOUNTED, LINE);
        put(&mut marked, RECORD, &MARK_MAGIC);
        put(&mut marked, RECORD + 8, &self.id.to_le_bytes());
        put(&mut marked, RECORD + 16, &self.path_len.to_le_bytes());
        put(&mut marked, PATH, &[0; PATH_SIZE]);
        put(&mut marked, PATH, &self.path);
        let sum = sum(&marked);
        put(&mut marked, SUM, &sum.to_le_bytes());
        marked
    }

    /// Returns the identity of the undo file.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the path of the undo file, or its last 136 bytes.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns whether the mark holds the whole path of the undo file.
    pub const fn is_path_whole(&self) -> bool {
        !self.path.is_empty() && self.path_len as usize == self.path.len()
    }
}

/// Shows the path of the undo file.
impl fmt::Display for ChangeMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str("a file at an unknown place");
        }
        if let Some(offset) = self.offset() {
            return write!(f, "the record at byte {offset} of the image");
        }
        let cut = if self.is_path_whole() { "" } else { "..." };
        // Bytes from disk: control characters would reach a terminal.
        write!(
            f,
            "{cut}{}",
            String::from_utf8_lossy(&self.path).escape_debug()
        )
    }
}

fn put(sector: &mut [u8; MARK_SIZE], at: usize, bytes: &[u8]) {
    for (to, from) in sector.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

fn word(sector: &[u8; MARK_SIZE], at: usize) -> u32 {
    let bytes = sector.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn sum(sector: &[u8; MARK_SIZE]) -> u32 {
    let record = sector.get(RECORD + 8..SUM).unwrap_or_default();
    let path = sector.get(PATH..).unwrap_or_default();
    crc32c(crc32c(!0, record), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::FormatError;
    use crate::superblock::{RawSuperblock, SUPERBLOCK_SIZE};
    use core::mem::offset_of;

    #[test]
    fn the_fields_are_where_the_superblock_has_them() {
        assert_eq!(offset_of!(RawSuperblock, magic), FIELD_MAGIC);
        assert_eq!(offset_of!(RawSuperblock, rev_level), FIELD_REVISION);
        assert_eq!(offset_of!(RawSuperblock, feature_incompat), FIELD_INCOMPAT);
        assert_eq!(
            offset_of!(RawSuperblock, feature_ro_compat),
            FIELD_RO_COMPAT
        );
        assert_eq!(offset_of!(RawSuperblock, last_mounted), FIELD_LAST_MOUNTED);
        assert_eq!(offset_of!(RawSuperblock, jnl_blocks), RECORD);
        assert_eq!(offset_of!(RawSuperblock, kbytes_written), PATH);
        assert_eq!(offset_of!(RawSuperblock, mount_opts), MARK_SIZE);
    }

    #[test]
    fn a_marked_superblock_is_refused_with_its_undo_file() {
        let mark = ChangeMark::new(3, b"/srv/a\nb.extant-undo");
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes[..MARK_SIZE].copy_from_slice(&mark.over(&[0xff; MARK_SIZE]));
        let error = RawSuperblock::parse(&bytes).map(|_| ()).unwrap_err();
        assert_eq!(error, FormatError::Interrupted(mark.to_string()));
        assert!(
            error.to_string().contains("/srv/a\\nb.extant-undo"),
            "{error}"
        );
    }

    #[test]
    fn damage_to_a_mark_is_found_and_a_long_path_keeps_its_end() {
        let path: Vec<u8> = (0..300u32).map(|i| b'a' + (i % 26) as u8).collect();
        let mark = ChangeMark::new(u64::MAX, &path);
        assert!(!mark.is_path_whole() && path.ends_with(mark.path()));
        let sector = mark.over(&[0; MARK_SIZE]);
        assert_eq!(ChangeMark::read(&sector), Some(mark.clone()));
        for at in (RECORD..SUM + 4).chain(PATH..MARK_SIZE) {
            let mut broken = sector;
            broken[at] ^= 1;
            assert_eq!(ChangeMark::read(&broken), None, "byte {at}");
        }
        assert_eq!(ChangeMark::read(&sector[1..]), None);
    }
}

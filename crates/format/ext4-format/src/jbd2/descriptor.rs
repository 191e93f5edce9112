//! Descriptor blocks: tags that say where the images behind them belong.
//!
//! A tag has 8, 10, 12, 14 or 16 bytes, as block numbers have 32 or 64 bits and checksums are
//! absent, v2 or v3. The first tag is followed by the journal's UUID, which later ones share.

use super::{BlockType, Checksums, Format, HEADER_LEN, Tid, corrupt, header};
use crate::error::Result;
use crate::types::BlockNr;
use core::mem::{offset_of, size_of};
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A tag, with v3 checksums.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawTag3 {
    block: U32,
    flags: U32,
    block_high: U32,
    checksum: U32,
}

/// A tag without v3 checksums; cut or padded at the end, see [`Format::tag_len`].
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawTag {
    block: U32,
    checksum: U16,
    flags: U16,
    block_high: U32,
}

const _: () = {
    assert!(size_of::<RawTag3>() == 16 && size_of::<RawTag>() == 12);
    assert!(offset_of!(RawTag3, checksum) == 12 && offset_of!(RawTag, block_high) == 8);
};

const UUID_LEN: usize = 16;

bitflags::bitflags! {
    /// The flags of a tag.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TagFlags: u32 {
        /// The image began with the journal's magic, which the log has zeroed.
        const ESCAPE = 1;
        /// No UUID follows: it is that of the tag before.
        const SAME_UUID = 2;
        /// Deleted by this transaction (never written today).
        const DELETED = 4;
        /// The block's last tag.
        const LAST = 8;
    }
}

/// An image's place in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Its place in the volume.
    pub home: BlockNr,
    /// Flags.
    pub flags: TagFlags,
    /// Checksum of the image as logged; 16 bits with v2, 0 without checksums.
    pub checksum: u32,
}

impl Format {
    /// Returns the number of bytes of a tag, without the UUID that may follow.
    pub const fn tag_len(&self) -> usize {
        let base = match self.checksums {
            Checksums::V3 => return size_of::<RawTag3>(),
            // Two bytes more, never used: the 16-bit checksum was to be a wider one.
            Checksums::V2 => size_of::<RawTag>() + 2,
            Checksums::None | Checksums::V1 => size_of::<RawTag>(),
        };
        if self.is_64bit { base } else { base - 4 }
    }

    /// Returns the number of images that a descriptor block can list.
    ///
    /// ```
    /// use ext4_format::jbd2::{Checksums, Format};
    /// let f = Format { block_size: 4096, is_64bit: true, checksums: Checksums::V3, seed: 0, uuid: [0; 16] };
    /// assert_eq!(f.tags_per_block(), 254);
    /// ```
    pub const fn tags_per_block(&self) -> usize {
        let payload =
            (self.block_size as usize).saturating_sub(HEADER_LEN + UUID_LEN + self.tail_len());
        payload / self.tag_len()
    }

    fn tag_at(&self, block: &[u8], at: usize) -> Option<Tag> {
        let bytes = block.get(at..at + self.tag_len())?;
        let (low, high, flags, checksum) = if self.checksums == Checksums::V3 {
            let (raw, _) = RawTag3::ref_from_prefix(bytes).ok()?;
            (
                raw.block.get(),
                raw.block_high.get(),
                raw.flags.get(),
                raw.checksum.get(),
            )
        } else {
            // A 32-bit tag has no high word: read it as 12 bytes with zeros at the end.
            let mut whole = [0; size_of::<RawTag>()];
            for (to, from) in whole.iter_mut().zip(bytes) {
                *to = *from;
            }
            let raw = RawTag::read_from_bytes(&whole).ok()?;
            let sum = if self.checksums == Checksums::V2 {
                raw.checksum.get()
            } else {
                0
            };
            (
                raw.block.get(),
                raw.block_high.get(),
                raw.flags.get().into(),
                sum.into(),
            )
        };
        let high = if self.is_64bit { high } else { 0 };
        Some(Tag {
            home: BlockNr(u64::from(high) << 32 | u64::from(low)),
            flags: TagFlags::from_bits_retain(flags),
            checksum,
        })
    }

    fn put_tag(&self, block: &mut [u8], at: usize, tag: &Tag) -> Option<()> {
        let bytes = block.get_mut(at..at + self.tag_len())?;
        bytes.fill(0);
        let low = (tag.home.0 as u32).into();
        let block_high = if self.is_64bit {
            (tag.home.0 >> 32) as u32
        } else {
            0
        }
        .into();
        let (flags, checksum) = (tag.flags.bits(), tag.checksum);
        if self.checksums == Checksums::V3 {
            let raw = RawTag3 {
                block: low,
                flags: flags.into(),
                block_high,
                checksum: checksum.into(),
            };
            raw.write_to_prefix(bytes).ok()
        } else {
            let (flags, checksum) = ((flags as u16).into(), (checksum as u16).into());
            let raw = RawTag {
                block: low,
                checksum,
                flags,
                block_high,
            };
            // A 32-bit tag drops the high word.
            bytes
                .iter_mut()
                .zip(raw.as_bytes())
                .for_each(|(to, from)| *to = *from);
            Some(())
        }
    }

    /// Returns the tags of a descriptor block. The list ends with the tag that has the flag for the last or, as in
    /// the kernel, where no further tag would fit. The block's checksum is a matter of [`Self::verify_tail`].
    ///
    /// # Errors
    /// `Corrupt` for a block of wrong length or without a tag.
    pub fn tags(&self, block: &[u8]) -> Result<Vec<Tag>> {
        let end = self.payload_end(block)?;
        let (mut tags, mut at) = (Vec::new(), HEADER_LEN);
        while at + self.tag_len() <= end {
            let Some(tag) = self.tag_at(block, at) else {
                break;
            };
            at += self.tag_len()
                + if tag.flags.contains(TagFlags::SAME_UUID) {
                    0
                } else {
                    UUID_LEN
                };
            tags.push(tag);
            if tag.flags.contains(TagFlags::LAST) {
                break;
            }
        }
        if tags.is_empty() {
            Err(corrupt("journal descriptor without tags", HEADER_LEN))
        } else {
            Ok(tags)
        }
    }
}

/// Fills a descriptor block.
///
/// ```
/// use ext4_format::{BlockNr, jbd2::{Checksums, DescriptorWriter, Format, Tid}};
/// let f = Format { block_size: 1024, is_64bit: true, checksums: Checksums::V3, seed: 5, uuid: [1; 16] };
/// let mut block = [0; 1024];
/// let mut d = DescriptorWriter::new(&f, &mut block, Tid(9))?;
/// let image = [3; 1024];
/// assert!(d.push(BlockNr(77), f.image_checksum(Tid(9), &image), false)?);
/// d.finish();
/// f.verify_tail(&block)?;
/// assert_eq!(f.tags(&block)?[0].home, BlockNr(77));
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
#[derive(Debug)]
pub struct DescriptorWriter<'a> {
    format: &'a Format,
    block: &'a mut [u8],
    end: usize,
    next: usize,
    last: Option<(usize, Tag)>,
}

impl<'a> DescriptorWriter<'a> {
    /// Starts a descriptor block, whatever the buffer held.
    ///
    /// # Errors
    /// `Corrupt` for a buffer that is not a block.
    pub fn new(format: &'a Format, block: &'a mut [u8], tid: Tid) -> Result<Self> {
        let end = format.start_block(block, BlockType::Descriptor, tid)?;
        Ok(Self {
            format,
            block,
            end,
            next: HEADER_LEN,
            last: None,
        })
    }

    /// Lists an image; `checksum` is [`Format::image_checksum`] of it as logged. `Ok(false)` when
    /// the block is full.
    ///
    /// # Errors
    /// `Unrepresentable` for a block number this journal cannot hold.
    pub fn push(&mut self, home: BlockNr, checksum: u32, escaped: bool) -> Result<bool> {
        self.format.check_block(home)?;
        let first = self.last.is_none();
        let len = self.format.tag_len() + if first { UUID_LEN } else { 0 };
        if self.next + len > self.end {
            return Ok(false);
        }
        let mut flags = TagFlags::empty();
        flags.set(TagFlags::ESCAPE, escaped);
        flags.set(TagFlags::SAME_UUID, !first);
        let tag = Tag {
            home,
            flags,
            checksum,
        };
        // The length was checked above.
        let _ = self.format.put_tag(self.block, self.next, &tag);
        if first {
            let at = self.next + self.format.tag_len();
            if let Some(slot) = self.block.get_mut(at..at + UUID_LEN) {
                slot.copy_from_slice(&self.format.uuid);
            }
        }
        self.last = Some((self.next, tag));
        self.next += len;
        Ok(true)
    }

    /// Marks the last tag and writes the checksum.
    pub fn finish(self) {
        if let Some((at, mut tag)) = self.last {
            tag.flags |= TagFlags::LAST;
            let _ = self.format.put_tag(self.block, at, &tag);
        }
        self.format.set_tail(self.block);
    }
}

/// Returns whether a block is a descriptor of this transaction.
pub fn is_descriptor(block: &[u8], tid: Tid) -> bool {
    header(block) == Some((BlockType::Descriptor, tid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn format(is_64bit: bool, checksums: Checksums) -> Format {
        Format {
            block_size: 1024,
            is_64bit,
            checksums,
            seed: 0x1234,
            uuid: [0x5a; 16],
        }
    }

    #[test]
    fn tag_lengths() {
        let len = |b, c| format(b, c).tag_len();
        assert_eq!(
            [len(false, Checksums::None), len(true, Checksums::None)],
            [8, 12]
        );
        assert_eq!(
            [len(false, Checksums::V2), len(true, Checksums::V2)],
            [10, 14]
        );
        assert_eq!(
            [len(false, Checksums::V3), len(true, Checksums::V3)],
            [16, 16]
        );
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 1024), cut in 0..1025_usize, kind in 0..4_usize, wide: bool) {
            let f = format(wide, [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3][kind]);
            let _ = f.tags(&bytes[..cut]);
            let _ = f.tags(&bytes);
            let _ = f.verify_tail(&bytes[..cut]);
        }

        #[test]
        fn round_trip(homes in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<bool>()), 1..140), kind in 0..4_usize, wide: bool) {
            let f = format(wide, [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3][kind]);
            let mut block = [0xee; 1024];
            let mut d = DescriptorWriter::new(&f, &mut block, Tid(3)).unwrap();
            let mut expected = Vec::new();
            for (home, sum, escaped) in homes {
                let home = BlockNr(if wide { home } else { home & 0xffff_ffff });
                let sum = match f.checksums { Checksums::V3 => sum, Checksums::V2 => sum & 0xffff, _ => 0 };
                if !d.push(home, sum, escaped).unwrap() {
                    prop_assert_eq!(expected.len(), f.tags_per_block());
                    break;
                }
                expected.push((home, sum, escaped));
            }
            d.finish();
            prop_assert!(is_descriptor(&block, Tid(3)));
            f.verify_tail(&block).unwrap();
            let tags = f.tags(&block).unwrap();
            let found: Vec<_> = tags.iter().map(|t| (t.home, t.checksum, t.flags.contains(TagFlags::ESCAPE))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

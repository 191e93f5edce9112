//! Block 0 of the journal.

use super::features::{Compat, Features, Incompat};
use super::{BlockType, Format, Header, MAGIC, MIN_BLOCKS, Tid};
use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};
use core::mem::{offset_of, size_of};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes the superblock takes of its block.
pub const LEN: usize = size_of::<Raw>();
/// Fast-commit blocks when the superblock does not say.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
const CRC32C: u8 = 4;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Raw {
    header: Header,
    block_size: U32,
    max_len: U32,
    first: U32,
    sequence: U32,
    start: U32,
    errno: U32,
    // The following fields are of version 2 only.
    compat: U32,
    incompat: U32,
    ro_compat: U32,
    uuid: [u8; 16],
    nr_users: U32,
    dynsuper: U32,
    max_transaction: U32,
    max_trans_data: U32,
    checksum_type: u8,
    padding2: [u8; 3],
    num_fc_blks: U32,
    head: U32,
    padding: [U32; 40],
    checksum: U32,
    users: [u8; 768],
}

const _: () = {
    assert!(size_of::<Raw>() == 1024);
    assert!(offset_of!(Raw, errno) == 32 && offset_of!(Raw, uuid) == 48);
    assert!(offset_of!(Raw, checksum_type) == 80 && offset_of!(Raw, num_fc_blks) == 84);
    assert!(offset_of!(Raw, checksum) == 252 && offset_of!(Raw, users) == 256);
};

/// The journal superblock, checked.
///
/// ```
/// use ext4_format::jbd2::{Features, Superblock, Tid, features::Incompat};
/// let features = Features { incompat: Incompat::CSUM_V3, ..Features::default() };
/// let sb = Superblock::new(4096, 8192, features, [7; 16]);
/// let mut block = vec![0; 4096];
/// sb.write(&mut block)?;
/// assert_eq!(Superblock::parse(&block)?, sb);
/// assert_eq!(sb.log_range(), 1..8192);
/// # Ok::<(), ext4_format::FormatError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Version 2, with features and all later fields.
    pub v2: bool,
    /// Bytes per block: the volume's.
    pub block_size: u32,
    /// Blocks of the journal, superblock included.
    pub max_len: u32,
    /// First block of the log.
    pub first: u32,
    /// The first transaction to expect in the log.
    pub sequence: Tid,
    /// Block where it begins; 0 for an empty log.
    pub start: u32,
    /// An error number recorded when the journal was aborted, 0 for none.
    pub errno: u32,
    /// Features.
    pub features: Features,
    /// UUID: the volume's for an internal journal.
    pub uuid: [u8; 16],
    /// File systems that use it.
    pub nr_users: u32,
    /// Blocks kept for fast commits, as stored; see [`Self::fast_commit_blocks`].
    pub num_fc_blks: u32,
    /// Where the next transaction would go, valid with an empty log (`s_head`).
    pub head: u32,
}

impl Superblock {
    /// Creates an empty journal of `max_len` blocks.
    pub const fn new(block_size: u32, max_len: u32, features: Features, uuid: [u8; 16]) -> Self {
        Self {
            v2: true,
            block_size,
            max_len,
            first: 1,
            sequence: Tid(1),
            start: 0,
            errno: 0,
            features,
            uuid,
            nr_users: 1,
            num_fc_blks: 0,
            head: 0,
        }
    }

    /// Reads and checks a superblock from the journal's first block.
    ///
    /// # Errors
    /// `Corrupt`, `Checksum`, or `Incompatible` for features not known.
    pub fn parse(block: &[u8]) -> Result<Self> {
        let Ok((raw, _)) = Raw::ref_from_prefix(block) else {
            return Err(rule("journal superblock length"));
        };
        let v2 = match raw.header.kind.get() {
            k if k == BlockType::SuperblockV1 as u32 => false,
            k if k == BlockType::SuperblockV2 as u32 => true,
            _ => return Err(rule("journal superblock type")),
        };
        if raw.header.magic != MAGIC {
            return Err(rule("journal superblock magic"));
        }
        let features = if v2 {
            Features::from_bits(raw.compat.get(), raw.incompat.get(), raw.ro_compat.get())?
        } else {
            Features::default()
        };
        if features.checksums().in_blocks() {
            if raw.checksum_type != CRC32C {
                return Err(rule("journal checksum type"));
            }
            let (stored, computed) = (raw.checksum.get(), raw.computed_checksum());
            if stored != computed {
                return Err(FormatError::Checksum {
                    what: "journal superblock",
                    at: Where::Journal(0),
                    stored,
                    computed,
                });
            }
        }
        let sb = Self {
            v2,
            block_size: raw.block_size.get(),
            max_len: raw.max_len.get(),
            first: raw.first.get(),
            sequence: Tid(raw.sequence.get()),
            start: raw.start.get(),
            errno: raw.errno.get(),
            features,
            uuid: if v2 { raw.uuid } else { [0; 16] },
            nr_users: if v2 { raw.nr_users.get() } else { 1 },
            num_fc_blks: if v2 { raw.num_fc_blks.get() } else { 0 },
            head: if v2 { raw.head.get() } else { 0 },
        };
        sb.check(block.len())?;
        Ok(sb)
    }

    fn check(&self, block_len: usize) -> Result<()> {
        let size = self.block_size;
        if !size.is_power_of_two() || !(1024..=65_536).contains(&size) || size as usize > block_len
        {
            return Err(rule("journal block size"));
        }
        if self.max_len < MIN_BLOCKS {
            return Err(rule("journal length"));
        }
        // The kernel and e2fsck refuse such a journal, too; e2fsck discards the whole log then.
        // Replaying it would write images home that no other program would.
        if self.max_len.saturating_sub(self.fast_commit_blocks()) < MIN_BLOCKS {
            return Err(rule("journal length beside its fast commits"));
        }
        let log = self.log_range();
        if self.first == 0 || self.first >= self.max_len || log.len() < 8 {
            return Err(rule("journal's first block"));
        }
        if self.start != 0 && !log.contains(&self.start) {
            return Err(rule("journal start outside its log"));
        }
        Ok(())
    }

    /// Returns whether the journal's first block has values in the fields of version 2 that are impossible for a
    /// journal inside its volume: several users, or features in version 1. e2fsck does not read such a journal.
    pub fn has_foreign_fields(block: &[u8]) -> bool {
        let Ok((raw, _)) = Raw::ref_from_prefix(block) else {
            return false;
        };
        let features = raw.compat.get() | raw.incompat.get() | raw.ro_compat.get();
        if raw.header.kind.get() == BlockType::SuperblockV1 as u32 {
            features != 0 || raw.nr_users.get() != 0
        } else {
            raw.nr_users.get() > 1
        }
    }

    /// Clears the fields found by [`Self::has_foreign_fields`]. The checksum is left to [`Self::write`].
    pub fn clear_foreign_fields(block: &mut [u8]) {
        let Ok((raw, _)) = Raw::mut_from_prefix(block) else {
            return;
        };
        if raw.header.kind.get() == BlockType::SuperblockV1 as u32 {
            (raw.compat, raw.incompat, raw.ro_compat) = (0.into(), 0.into(), 0.into());
            raw.nr_users = 0.into();
        } else {
            raw.nr_users = 1.into();
        }
    }

    /// Writes the superblock, checksum included, over the first [`LEN`] bytes of a block. The list of an external
    /// journal's users and bytes unknown to this crate are kept.
    ///
    /// # Errors
    /// `Unrepresentable` for a buffer too short.
    pub fn write(&self, block: &mut [u8]) -> Result<()> {
        let Ok((raw, _)) = Raw::mut_from_prefix(block) else {
            return Err(FormatError::Unrepresentable(
                "journal superblock in a short buffer",
            ));
        };
        let kind = if self.v2 {
            BlockType::SuperblockV2
        } else {
            BlockType::SuperblockV1
        };
        raw.header = Header::new(kind, Tid(0));
        raw.block_size = self.block_size.into();
        raw.max_len = self.max_len.into();
        raw.first = self.first.into();
        raw.sequence = self.sequence.0.into();
        raw.start = self.start.into();
        raw.errno = self.errno.into();
        if self.v2 {
            raw.compat = self.features.compat.bits().into();
            raw.incompat = self.features.incompat.bits().into();
            raw.ro_compat = 0.into();
            raw.uuid = self.uuid;
            raw.nr_users = self.nr_users.into();
            raw.num_fc_blks = self.num_fc_blks.into();
            raw.head = self.head.into();
            let sealed = self.features.checksums().in_blocks();
            raw.checksum_type = if sealed { CRC32C } else { 0 };
            raw.checksum = if sealed { raw.computed_checksum() } else { 0 }.into();
        }
        Ok(())
    }

    /// Returns the blocks of the log's ring: all but the superblock and the fast-commit area.
    pub fn log_range(&self) -> core::ops::Range<u32> {
        self.first..self.max_len.saturating_sub(self.fast_commit_blocks())
    }

    /// Returns the blocks for fast commits, counted from the journal's start; none without the feature.
    pub fn fast_commit_area(&self) -> core::ops::Range<u32> {
        if self.fast_commit_blocks() == 0 {
            return 0..0;
        }
        // Linux leaves one block between the log and the area unused.
        self.log_range().end.saturating_add(1)..self.max_len
    }

    /// Returns the number of blocks at the end kept for fast commits: 0 without the feature.
    pub fn fast_commit_blocks(&self) -> u32 {
        match (self.features.incompat, self.num_fc_blks) {
            (features, _) if !features.contains(Incompat::FAST_COMMIT) => 0,
            (_, 0) => DEFAULT_FAST_COMMIT_BLOCKS,
            (_, stated) => stated,
        }
    }

    /// Keeps the last blocks for fast commits, or no longer; false, and nothing is changed, if the rest would be too short for a log.
    pub fn set_fast_commits(&mut self, on: bool) -> bool {
        let before = self.features;
        self.features.incompat.set(Incompat::FAST_COMMIT, on);
        let fits = self.max_len.saturating_sub(self.fast_commit_blocks()) >= MIN_BLOCKS;
        if !fits {
            self.features = before;
        }
        fits
    }

    /// Returns the format of the journal's blocks.
    pub fn format(&self) -> Format {
        Format {
            block_size: self.block_size,
            is_64bit: self.features.incompat.contains(Incompat::BIT64),
            checksums: self.features.checksums(),
            seed: crc32c(!0, &self.uuid),
            uuid: self.uuid,
        }
    }

    /// Returns the block after `block` in the ring.
    pub fn next_block(&self, block: u32) -> u32 {
        let log = self.log_range();
        let next = block.saturating_add(1);
        if next >= log.end { log.start } else { next }
    }

    /// Returns whether the log holds nothing to replay.
    pub const fn is_clean(&self) -> bool {
        self.start == 0
    }

    /// Returns the features ext4 gives a journal: 64-bit numbers, revoke, and checksums v3 when the volume has
    /// `metadata_csum`.
    pub fn default_features(is_64bit: bool, metadata_csum: bool) -> Features {
        let mut incompat = Incompat::REVOKE;
        incompat.set(Incompat::BIT64, is_64bit);
        incompat.set(Incompat::CSUM_V3, metadata_csum);
        Features {
            compat: Compat::empty(),
            incompat,
        }
    }
}

impl Raw {
    fn computed_checksum(&self) -> u32 {
        crc32c(
            !0,
            Self {
                checksum: 0.into(),
                ..*self
            }
            .as_bytes(),
        )
    }
}

const fn rule(what: &'static str) -> FormatError {
    FormatError::corrupt(what, Where::Journal(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fast_commit_area_shortens_the_log() {
        let features = Features {
            incompat: Incompat::FAST_COMMIT,
            ..Features::default()
        };
        let mut sb = Superblock::new(1024, 4096, features, [0; 16]);
        assert_eq!(sb.log_range(), 1..3840);
        assert_eq!(sb.next_block(3839), 1);
        sb.num_fc_blks = 100;
        assert_eq!(sb.log_range(), 1..3996);
    }

    #[test]
    fn a_fast_commit_area_that_leaves_no_log_is_refused() {
        let features = Features {
            incompat: Incompat::FAST_COMMIT,
            ..Features::default()
        };
        let mut block = [0; 1024];
        for (max_len, num_fc_blks, good) in [
            (MIN_BLOCKS, 0, false),
            (MIN_BLOCKS + 255, 0, false),
            (MIN_BLOCKS + 256, 0, true),
            (MIN_BLOCKS, 1, false),
            (MIN_BLOCKS + 1, 1, true),
            (4096, u32::MAX, false),
        ] {
            let mut sb = Superblock::new(1024, max_len, features, [0; 16]);
            sb.num_fc_blks = num_fc_blks;
            sb.write(&mut block).unwrap();
            let parsed = Superblock::parse(&block);
            let refused = matches!(parsed, Err(FormatError::Corrupt { .. }));
            assert_eq!(refused, !good, "{max_len} {num_fc_blks}: {parsed:?}");
        }
    }

    #[test]
    fn impossible_values_are_refused() {
        let good = Superblock::new(1024, 2048, Features::default(), [0; 16]);
        for bad in [
            Superblock {
                block_size: 512,
                ..good.clone()
            },
            Superblock {
                block_size: 3000,
                ..good.clone()
            },
            Superblock {
                block_size: 2048,
                ..good.clone()
            },
            Superblock {
                max_len: 100,
                ..good.clone()
            },
            Superblock {
                first: 0,
                ..good.clone()
            },
            Superblock {
                first: 2048,
                ..good.clone()
            },
            Superblock {
                start: 2048,
                ..good.clone()
            },
        ] {
            let mut block = [0; 1024];
            bad.write(&mut block).unwrap();
            assert!(
                matches!(Superblock::parse(&block), Err(FormatError::Corrupt { .. })),
                "{bad:?}"
            );
        }
        assert!(matches!(
            Features::from_bits(0, 0x40, 0),
            Err(FormatError::Incompatible(_))
        ));
        assert!(Features::from_bits(0, 0x18, 0).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1000..1100), kind in 3..6_u8) {
            if bytes.len() >= 12 {
                bytes[..8].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, kind]);
                bytes[36..48].fill(0);
            }
            if let Ok(sb) = Superblock::parse(&bytes) {
                let _ = (sb.log_range(), sb.next_block(u32::MAX));
            }
        }
    }
}

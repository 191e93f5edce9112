//! The journal's feature bits.

use super::Checksums;
use crate::error::{FormatError, Result, Where};

bitflags::bitflags! {
    /// Features a reader may ignore.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// Commit blocks hold a CRC-32 of their transaction.
        const CHECKSUM = 0x1;
    }

    /// Features a reader must know.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// Revoke blocks may exist.
        const REVOKE = 0x1;
        /// Block numbers have 64 bits.
        const BIT64 = 0x2;
        /// A commit block may reach the disk before the blocks that it commits.
        const ASYNC_COMMIT = 0x4;
        /// Checksums, 16 bits per image.
        const CSUM_V2 = 0x8;
        /// Checksums, 32 bits per image.
        const CSUM_V3 = 0x10;
        /// The last blocks of the journal are for fast commits.
        const FAST_COMMIT = 0x20;
    }
}

/// The three feature words of a journal superblock. No read-only-compatible feature exists.
///
/// ```
/// use ext4_format::jbd2::{Checksums, Features, features::Incompat};
/// let f = Features { incompat: Incompat::REVOKE | Incompat::CSUM_V3, ..Features::default() };
/// assert_eq!(f.checksums(), Checksums::V3);
/// assert_eq!(f.names(), ["journal_incompat_revoke", "journal_checksum_v3"]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Features that a program may ignore.
    pub compat: Compat,
    /// Features that a program must know.
    pub incompat: Incompat,
}

impl Features {
    /// Decodes the stored words; unknown bits and contradictions are errors.
    ///
    /// # Errors
    /// `Incompatible` for an unknown bit, `Corrupt` for two kinds of checksums at once.
    pub fn from_bits(compat: u32, incompat: u32, ro_compat: u32) -> Result<Self> {
        let Some(known) = Incompat::from_bits(incompat) else {
            let unknown = incompat & !Incompat::all().bits();
            return Err(FormatError::Incompatible(format!(
                "journal incompat {unknown:#x}"
            )));
        };
        if ro_compat != 0 {
            return Err(FormatError::Incompatible(format!(
                "journal ro_compat {ro_compat:#x}"
            )));
        }
        let features = Self {
            compat: Compat::from_bits_retain(compat),
            incompat: known,
        };
        let kinds = [
            known.contains(Incompat::CSUM_V2),
            known.contains(Incompat::CSUM_V3),
            features.compat.contains(Compat::CHECKSUM),
        ];
        if kinds.iter().filter(|k| **k).count() > 1 {
            return Err(FormatError::corrupt(
                "journal with two kinds of checksums",
                Where::Superblock,
            ));
        }
        Ok(features)
    }

    /// Returns the kind of checksums by the features.
    pub const fn checksums(&self) -> Checksums {
        if self.incompat.contains(Incompat::CSUM_V3) {
            Checksums::V3
        } else if self.incompat.contains(Incompat::CSUM_V2) {
            Checksums::V2
        } else if self.compat.contains(Compat::CHECKSUM) {
            Checksums::V1
        } else {
            Checksums::None
        }
    }

    /// Returns the names as in dumpe2fs and debugfs.
    pub fn names(&self) -> Vec<&'static str> {
        let incompat = [
            (Incompat::REVOKE, "journal_incompat_revoke"),
            (Incompat::BIT64, "journal_64bit"),
            (Incompat::ASYNC_COMMIT, "journal_async_commit"),
            (Incompat::CSUM_V2, "journal_checksum_v2"),
            (Incompat::CSUM_V3, "journal_checksum_v3"),
            (Incompat::FAST_COMMIT, "fast_commit"),
        ];
        let compat = self
            .compat
            .contains(Compat::CHECKSUM)
            .then_some("journal_checksum");
        let known = incompat
            .into_iter()
            .filter(|(bit, _)| self.incompat.contains(*bit));
        compat
            .into_iter()
            .chain(known.map(|(_, name)| name))
            .collect()
    }
}

//! The inode to check.

use crate::report::{FindingPlace, Rule};
use crate::volume::Volume;
use ext4_format::inode::InodeCore;
use ext4_format::{FormatError, InodeNr};

/// The inode to check.
pub(crate) struct Subject<'r> {
    pub(crate) ino: InodeNr,
    pub(crate) raw: &'r [u8],
    pub(crate) core: InodeCore,
}

impl Subject<'_> {
    pub(crate) fn place(&self) -> FindingPlace {
        FindingPlace::inode(self.ino)
    }

    pub(crate) const fn has(&self, flag: u32) -> bool {
        self.core.flags & flag != 0
    }

    /// Returns the seed of the checksums of its blocks, if blocks have checksums.
    pub(crate) fn seed(&self, volume: &Volume<'_>) -> Option<u32> {
        volume.seed(self.ino, self.core.generation)
    }
}

/// Returns the rule that an error of a parser of this inode's blocks breaks: a checksum, or something else.
pub(crate) fn rule_of(error: &FormatError, checksum: Rule, other: Rule) -> Rule {
    match error {
        FormatError::Checksum { .. } => checksum,
        _ => other,
    }
}

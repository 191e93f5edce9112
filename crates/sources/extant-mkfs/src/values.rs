//! Values of a new superblock from which nothing else in the volume follows.

use super::error::{MkfsError, Result};
use ext4_format::superblock::{FLAG_TEST_VOLUME, RawSuperblock};

/// Values of a new superblock from which nothing else in the volume follows. The names in brackets are those of mke2fs.
///
/// ```
/// use extant_mkfs::{MkfsOptions, SuperblockValues};
/// let values = SuperblockValues { stride: 16, stripe_width: 64, ..SuperblockValues::default() };
/// let options = MkfsOptions { values, ..MkfsOptions::default() };
/// assert!(!options.values.test_volume);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuperblockValues {
    /// Blocks of a RAID chunk (`-E stride`).
    pub stride: u16,
    /// Blocks of a stripe of a RAID (`-E stripe_width`).
    pub stripe_width: u32,
    /// Directory of the last mount (`-M`), at most 63 bytes.
    pub last_mounted: Vec<u8>,
    /// Experimental drivers may mount the volume (`-E test_fs`).
    pub test_volume: bool,
    /// Creator system (`-o`): 0 for Linux, 1 for Hurd, 3 for FreeBSD.
    pub creator_os: u32,
    /// The format of the first ext2 (`-r 0`): no features, inodes of 128 bytes.
    pub old_revision: bool,
}

impl SuperblockValues {
    /// Enters the values.
    pub(super) fn enter(&self, sb: &mut RawSuperblock) -> Result<()> {
        sb.raid_stride.set(self.stride);
        sb.raid_stripe_width.set(self.stripe_width);
        let field = sb.last_mounted.get_mut(..self.last_mounted.len());
        let field = field.filter(|field| field.len() < 64);
        let too_long = || MkfsError::Options("a last mount point of more than 63 bytes".into());
        field
            .ok_or_else(too_long)?
            .copy_from_slice(&self.last_mounted);
        if self.test_volume {
            sb.flags.set(sb.flags.get() | FLAG_TEST_VOLUME);
        }
        sb.creator_os.set(self.creator_os);
        if self.old_revision {
            let features =
                sb.feature_compat.get() | sb.feature_incompat.get() | sb.feature_ro_compat.get();
            if features != 0 || sb.inode_size.get() != 128 {
                let why = "revision 0 has no features, and inodes of 128 bytes: -O none -I 128";
                return Err(MkfsError::Options(why.into()));
            }
            sb.rev_level.set(0);
            sb.first_ino.set(0);
            sb.inode_size.set(0);
            sb.default_mount_opts.set(0);
        }
        Ok(())
    }
}

//! The used and free space of a volume, and its label.

use crate::base::error::{Error, Result};
use crate::volume::engine::Engine;

impl Engine {
    pub(crate) fn statfs(&self) -> Result<StatFs> {
        let raw = self.store.raw_superblock()?;
        let geometry = &self.store.geometry;
        // The superblock counts clusters.
        let overhead = u64::from(raw.overhead_blocks.get()) * u64::from(geometry.cluster_ratio);
        let (free_blocks, available_blocks) = self.space.counts.free();
        Ok(StatFs {
            block_size: geometry.block_size,
            blocks: geometry.blocks_count.saturating_sub(overhead),
            free_blocks,
            available_blocks,
            inodes: u64::from(geometry.inodes_count),
            free_inodes: self.space.inodes.free(),
            name_max: 255,
            uuid: geometry.uuid,
        })
    }

    /// Sets the label of the volume, durably.
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<()> {
        self.store.check_writable()?;
        let mut name = [0; 16];
        match name.get_mut(..label.len()) {
            Some(place) if !label.contains(&0) => place.copy_from_slice(label),
            _ => {
                return Err(Error::Invalid(
                    "a label has at most 16 bytes, none of them 0",
                ));
            }
        }
        self.commit.formatter.lock().set_label(name);
        self.log_something()?;
        self.data.sync_formatted()?;
        // Write the superblock to its place, too, so that programs that look for file systems on devices find the new
        // label.
        match self.freeze() {
            Ok(()) => self.thaw(),
            // A frozen volume has the superblock in its place already.
            Err(Error::Busy(_)) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    pub(crate) fn label(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.store.raw_superblock()?.label()).into_owned())
    }
}

/// Free and total space, as statfs shows it.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// let stats = extant::doc_volume().statfs()?;
/// assert!(stats.available_blocks <= stats.free_blocks);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatFs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks for data: all but the file system's own fixed metadata.
    pub blocks: u64,
    /// Free blocks, without reserved ones.
    pub free_blocks: u64,
    /// Free blocks that others than root may use.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Identifies the volume.
    pub uuid: [u8; 16],
}

//! Many small neighbouring blocks, one large write.

use super::error::{MkfsError, Result};
use blockdev::BlockDevice;
use ext4_format::BlockNr;

/// Bytes of the largest write of metadata.
const LARGEST: usize = 1 << 20;

/// Collects consecutive blocks, and writes them together.
pub(super) struct Gather<'a> {
    device: &'a dyn BlockDevice,
    block_size: u32,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Gather<'a> {
    pub fn new(device: &'a dyn BlockDevice, block_size: u32) -> Self {
        Self {
            device,
            block_size,
            start: 0,
            bytes: Vec::new(),
        }
    }

    /// Adds whole blocks for the places from `block` on.
    pub fn push(&mut self, block: u64, bytes: &[u8]) -> Result<()> {
        let next = self.start + (self.bytes.len() / self.block_size as usize) as u64;
        if block != next || self.bytes.len() + bytes.len() > LARGEST {
            self.flush()?;
            self.start = block;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes the remaining bytes. Not called on drop, because the caller must see errors.
    pub fn flush(&mut self) -> Result<()> {
        if !self.bytes.is_empty() {
            write(self.device, self.block_size, self.start, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// Writes whole blocks.
pub(super) fn write(
    device: &dyn BlockDevice,
    block_size: u32,
    block: u64,
    bytes: &[u8],
) -> Result<()> {
    device
        .write_at(BlockNr(block).offset(block_size), bytes)
        .map_err(|e| MkfsError::io(format!("writing block {block} of the image"), e))
}

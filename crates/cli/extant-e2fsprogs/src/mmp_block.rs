//! The fields of the block of multiple mount protection (MMP), for listings.

use anyhow::{Context, Result, bail};
use blockdev::BlockDevice;
use ext4_format::mmp;

const MAGIC: u32 = 0x004d_4d50;
/// Bytes of the device name.
const DEVICE: std::ops::Range<usize> = 80..112;

/// Fields of a block of MMP.
pub(super) struct MmpBlock {
    pub magic: u32,
    pub sequence: u32,
    /// Time of the last change, in seconds.
    pub seconds: i64,
    pub node: Vec<u8>,
    pub device: Vec<u8>,
    pub check_interval: u32,
    pub checksum: u32,
}

impl MmpBlock {
    /// Reads a block of a volume with blocks of `block_size` bytes.
    pub fn read(device: &dyn BlockDevice, block: u64, block_size: u64) -> Result<Self> {
        let mut bytes = vec![0; 1024];
        let at = block.checked_mul(block_size);
        device.read_at(at.context("there is no such block")?, &mut bytes)?;
        let word = |at: usize| {
            let four = bytes.get(at..).and_then(<[u8]>::first_chunk);
            four.map_or(0, |four| u32::from_le_bytes(*four))
        };
        if word(0) != MAGIC {
            bail!("MMP: invalid magic number");
        }
        let name = bytes.get(DEVICE).unwrap_or_default();
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(Self {
            magic: word(0),
            sequence: mmp::number(&bytes),
            seconds: i64::from(word(8)) | i64::from(word(12)) << 32,
            node: mmp::node(&bytes).to_vec(),
            device: name.to_vec(),
            check_interval: word(112) & 0xffff,
            checksum: word(1020),
        })
    }
}

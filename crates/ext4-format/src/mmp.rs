//! The block by which a volume is kept from being mounted twice: whoever has it writes a number there again and again, and
//! others look whether that changes.

use crate::checksum::crc32c;

/// The magic number.
const MAGIC: u32 = 0x004d_4d50;
/// The number where nobody has the volume.
const CLEAN: u32 = 0xff4d_4d50;
/// Where the time of the last number is.
const TIME_AT: usize = 8;
/// Where the seconds between two looks are.
const INTERVAL_AT: usize = 112;
/// Seconds between two looks, at the least.
const CHECK_INTERVAL: u16 = 5;
/// Where the checksum is: of the bytes before it.
const CHECKSUM_AT: usize = 1020;

/// Seconds between two numbers if nobody says otherwise.
pub const DEFAULT_INTERVAL: u16 = 5;
/// Most seconds between two numbers.
pub const MAX_INTERVAL: u16 = 300;

/// Writes the block of a volume that nobody has, at a time in seconds; without a checksum.
///
/// ```
/// let mut block = vec![7; 1024];
/// ext4_format::mmp::init(&mut block, 1_700_000_000);
/// assert_eq!(block[..8], *b"PMM\0PMM\xff");
/// ```
pub fn init(block: &mut [u8], time: i64) {
    block.fill(0);
    let parts: [(usize, &[u8]); 4] = [
        (0, &MAGIC.to_le_bytes()),
        (4, &CLEAN.to_le_bytes()),
        (TIME_AT, &time.to_le_bytes()),
        (INTERVAL_AT, &CHECK_INTERVAL.to_le_bytes()),
    ];
    for (at, bytes) in parts {
        if let Some(to) = block.get_mut(at..at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    }
}

/// Whether a block says that nobody has the volume.
///
/// ```
/// let mut block = vec![0; 1024];
/// ext4_format::mmp::init(&mut block, 0);
/// assert!(ext4_format::mmp::is_clean(&block));
/// block[4] = 1;
/// assert!(!ext4_format::mmp::is_clean(&block));
/// ```
pub fn is_clean(block: &[u8]) -> bool {
    let word = |at: usize| block.get(at..).and_then(<[u8]>::first_chunk).copied();
    word(0) == Some(MAGIC.to_le_bytes()) && word(4) == Some(CLEAN.to_le_bytes())
}

/// Sets the checksum, with the seed of the volume.
pub fn set_checksum(block: &mut [u8], seed: u32) {
    if let Some((summed, rest)) = block.split_at_mut_checked(CHECKSUM_AT)
        && let Some(stored) = rest.first_chunk_mut()
    {
        *stored = crc32c(seed, summed).to_le_bytes();
    }
}

//! The block that prevents mounting a volume twice (multiple mount protection). A node that uses the volume writes a
//! new number there at intervals, and other nodes check whether it changes.

use crate::checksum::crc32c;
use crate::error::{FormatError, Result, Where};

/// The magic number.
const MAGIC: u32 = 0x004d_4d50;
/// The number of an unused volume.
const CLEAN: u32 = 0xff4d_4d50;
/// Number while a checker has the volume.
pub const CHECKED: u32 = 0xe24d_4d50;
/// Largest number of a mount; the least is 1.
pub const MAX_NUMBER: u32 = 0xe24d_4d4f;
/// Places of the names of the machine and of the device, and their bytes.
const NODE: (usize, usize) = (16, 64);
const DEVICE: (usize, usize) = (80, 32);
/// Offset of the time of the last number.
const TIME_AT: usize = 8;
/// Offset of the seconds between two checks.
const INTERVAL_AT: usize = 112;
/// Least seconds between two checks.
const CHECK_INTERVAL: u16 = 5;
/// Offset of the checksum of the bytes before it.
const CHECKSUM_AT: usize = 1020;

/// Default seconds between two numbers.
pub const DEFAULT_INTERVAL: u16 = 5;
/// Most seconds between two numbers.
pub const MAX_INTERVAL: u16 = 300;

/// Writes the block of an unused volume, at a time in seconds; without a checksum.
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

/// Returns the MMP block of an unmounted volume. If `seed` is given, sets the checksum of the block.
///
/// ```
/// let block = ext4_format::mmp::clean_block(1024, 1_700_000_000, Some(7));
/// assert!(ext4_format::mmp::state(&block, Some(7)).is_ok());
/// ```
pub fn clean_block(size: usize, time: i64, seed: Option<u32>) -> Vec<u8> {
    let mut block = vec![0; size];
    init(&mut block, time);
    if let Some(seed) = seed {
        set_checksum(&mut block, seed);
    }
    block
}

/// Returns whether the volume is unused according to a block.
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

/// State of a volume, as the number in its block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmpState {
    /// The volume is unused.
    Clean,
    /// A checker uses the volume, or was interrupted.
    Checked,
    /// A mount uses the volume and changes this number, or was interrupted.
    Mounted(u32),
}

/// Reads a block, whose checksum is verified with the seed of the volume if it has any.
///
/// # Errors
/// `Corrupt` for another magic number, `Checksum` for a wrong checksum.
///
/// ```
/// use ext4_format::mmp::{self, MmpState};
/// let mut block = vec![0; 1024];
/// assert!(mmp::state(&block, None).is_err());
/// mmp::init(&mut block, 0);
/// assert_eq!(mmp::state(&block, None), Ok(MmpState::Clean));
/// assert!(mmp::state(&block, Some(7)).is_err());
/// mmp::set_checksum(&mut block, 7);
/// assert!(mmp::state(&block, Some(7)).is_ok());
/// ```
pub fn state(block: &[u8], seed: Option<u32>) -> Result<MmpState> {
    let word = |at: usize| {
        let bytes = block.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    if word(0) != MAGIC {
        return Err(FormatError::corrupt("magic of mmp", Where::Buffer(0)));
    }
    if let Some(seed) = seed {
        let (stored, computed) = (
            word(CHECKSUM_AT),
            crc32c(seed, block.get(..CHECKSUM_AT).unwrap_or(&[])),
        );
        if stored != computed {
            return Err(FormatError::Checksum {
                what: "block of mmp",
                at: Where::Buffer(CHECKSUM_AT as u32),
                stored,
                computed,
            });
        }
    }
    Ok(match word(4) {
        CLEAN => MmpState::Clean,
        CHECKED => MmpState::Checked,
        number => MmpState::Mounted(number),
    })
}

/// Holder of a volume, as its block names it.
///
/// ```
/// use ext4_format::mmp::{self, Mark, MmpState};
/// let mut block = vec![0; 1024];
/// let mark = Mark { number: 7, time: 1_700_000_000, node: b"box", device: b"sda", interval: 10 };
/// mark.write(&mut block);
/// assert_eq!(mmp::state(&block, None), Ok(MmpState::Mounted(7)));
/// assert_eq!((mmp::number(&block), mmp::node(&block), mmp::interval(&block)), (7, &b"box"[..], 10));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Mark<'n> {
    /// Number of a mount, or [`CHECKED`].
    pub number: u32,
    /// Seconds since 1970.
    pub time: i64,
    /// Name of the machine, cut at 63 bytes.
    pub node: &'n [u8],
    /// Name of the device, cut at 31 bytes.
    pub device: &'n [u8],
    /// Seconds between two checks, as [`interval`] returns them.
    pub interval: u16,
}

impl Mark<'_> {
    /// Writes the block, without a checksum.
    pub fn write(&self, block: &mut [u8]) {
        init(block, self.time);
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(to) = block.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
        };
        put(4, &self.number.to_le_bytes());
        put(INTERVAL_AT, &self.interval.to_le_bytes());
        for ((at, len), name) in [(NODE, self.node), (DEVICE, self.device)] {
            put(at, name.get(..len - 1).unwrap_or(name));
        }
    }
}

/// Returns the number in a block.
pub fn number(block: &[u8]) -> u32 {
    let bytes = block.get(4..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Returns the name of the machine that wrote a block.
pub fn node(block: &[u8]) -> &[u8] {
    let field = block.get(NODE.0..NODE.0 + NODE.1).unwrap_or(&[]);
    field.split(|&byte| byte == 0).next().unwrap_or(&[])
}

/// Returns a number of seconds between two checks, clamped to the valid range.
pub fn clamp_interval(seconds: u64) -> u16 {
    // Both bounds are 16 bits wide.
    seconds.clamp(CHECK_INTERVAL.into(), MAX_INTERVAL.into()) as u16
}

/// Stored number of seconds between two checks of the block, clamped to the valid range.
pub fn interval(block: &[u8]) -> u16 {
    let bytes = block.get(INTERVAL_AT..).and_then(<[u8]>::first_chunk);
    let said = bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes));
    clamp_interval(said.into())
}

//! The seek table of the seekable format of zstd: a file of independent frames, followed by a frame that other readers
//! skip, which contains the compressed and uncompressed length of each frame.
//!
//! The table is `magic, length, entries, count of entries, descriptor, magic`, with all numbers little endian. An
//! entry has the two lengths, and a checksum if the descriptor has the flag.

use blockdev::BlockDevice;
use std::io;
use std::ops::Range;

/// Magic number of a skippable frame.
const SKIPPED: u32 = 0x184d_2a5e;
const MAGIC: u32 = 0x8f92_eab1;
/// The magic number and the length of a skippable frame.
const HEAD: u64 = 8;
/// The count of entries, the descriptor and the magic number.
const FOOT: u64 = 9;
/// Bits of the descriptor: entries have checksums; reserved ones, which are 0.
const CHECKSUMS: u8 = 0x80;
const RESERVED: u8 = 0x7c;
/// Largest number of frames: with frames of 1 MiB they cover 16 TiB, and the table takes 256 MiB of memory.
pub const MOST_FRAMES: u64 = 1 << 24;
/// Longest frame, compressed or not, that is read at once.
pub const LONGEST: u64 = 16 << 20;

/// Table of the frames.
pub struct SeekTable {
    /// Start of each frame, compressed and uncompressed; the last element is the end.
    starts: Vec<(u64, u64)>,
}

/// A frame.
pub struct Frame {
    pub index: usize,
    /// Its bytes in the file.
    pub packed: Range<u64>,
    /// Its bytes in the content.
    pub data: Range<u64>,
}

fn damaged(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the seek table of the zstd file is damaged: {what}"),
    )
}

/// Returns a little-endian number in bytes; 0 beyond their end.
fn number(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk());
    four.map_or(0, |four| u32::from_le_bytes(*four))
}

impl SeekTable {
    /// Reads the table at the end of a file; `None` if the file has no table.
    pub fn read(file: &dyn BlockDevice) -> io::Result<Option<Self>> {
        let Some(foot_at) = file.len().checked_sub(FOOT).filter(|at| *at >= HEAD) else {
            return Ok(None);
        };
        let mut foot = [0; FOOT as usize];
        file.read_at(foot_at, &mut foot)?;
        if number(&foot, 5) != MAGIC {
            return Ok(None);
        }
        let (count, descriptor) = (u64::from(number(&foot, 0)), foot[4]);
        if descriptor & RESERVED != 0 {
            return Err(damaged(format_args!("descriptor {descriptor:#04x}")));
        }
        if count > MOST_FRAMES {
            let what =
                format_args!("{count} frames, and at most {MOST_FRAMES} are read").to_string();
            return Err(damaged(what));
        }
        let entry = match descriptor & CHECKSUMS {
            0 => 8,
            _ => 12,
        };
        let entries = count * entry; // below 2^28
        let start = foot_at.checked_sub(entries + HEAD);
        let start = start.ok_or_else(|| damaged("it is longer than the file"))?;
        let mut head = [0; HEAD as usize];
        file.read_at(start, &mut head)?;
        if number(&head, 0) != SKIPPED || u64::from(number(&head, 4)) != entries + FOOT {
            return Err(damaged("its beginning and its end differ"));
        }
        Self::entries(file, start, count, entry as usize).map(Some)
    }

    fn entries(file: &dyn BlockDevice, start: u64, count: u64, entry: usize) -> io::Result<Self> {
        /// Number of entries read at once.
        const AT_ONCE: usize = 8192;
        let mut starts = Vec::with_capacity(count as usize + 1); // bounded by the caller
        let (mut packed, mut data) = (0_u64, 0_u64);
        let (mut at, mut left) = (start + HEAD, count as usize);
        while left > 0 {
            let mut bytes = vec![0; left.min(AT_ONCE) * entry];
            file.read_at(at, &mut bytes)?;
            for lengths in bytes.chunks_exact(entry) {
                let (taken, made) = (number(lengths, 0), number(lengths, 4));
                if made > 0 {
                    starts.push((packed, data));
                }
                // Sums of at most 2^24 numbers of 32 bits.
                packed += u64::from(taken);
                data += u64::from(made);
            }
            at += bytes.len() as u64;
            left -= left.min(AT_ONCE);
        }
        if packed != start {
            return Err(damaged(format_args!(
                "its frames have {packed} bytes, and {start} are there"
            )));
        }
        starts.push((packed, data));
        Ok(Self { starts })
    }

    /// Returns the length of the content in bytes.
    pub fn len(&self) -> u64 {
        self.starts.last().map_or(0, |(_, data)| *data)
    }

    /// Returns whether each frame is short enough to be read at once.
    pub fn has_short_frames(&self) -> bool {
        let mut pairs = self.starts.windows(2);
        pairs.all(|pair| {
            // The sums are ascending.
            pair[1].0 - pair[0].0 <= LONGEST && pair[1].1 - pair[0].1 <= LONGEST
        })
    }

    /// Returns the frame that contains a byte of the content.
    pub fn find(&self, offset: u64) -> Option<Frame> {
        let after = self.starts.partition_point(|(_, data)| *data <= offset);
        let index = after.checked_sub(1)?;
        let (start, end) = (self.starts.get(index)?, self.starts.get(after)?);
        Some(Frame {
            index,
            packed: start.0..end.0,
            data: start.1..end.1,
        })
    }
}

/// Encodes the table of frames with these lengths, compressed and uncompressed; at most [`MOST_FRAMES`].
pub fn bytes(frames: &[(u32, u32)]) -> Vec<u8> {
    let entries = frames.len() * 8;
    let mut bytes = Vec::with_capacity(entries + (HEAD + FOOT) as usize);
    bytes.extend(SKIPPED.to_le_bytes());
    bytes.extend((entries as u32 + FOOT as u32).to_le_bytes());
    for (packed, data) in frames {
        bytes.extend(packed.to_le_bytes());
        bytes.extend(data.to_le_bytes());
    }
    bytes.extend((frames.len() as u32).to_le_bytes());
    bytes.push(0);
    bytes.extend(MAGIC.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::MemDevice;

    fn read(bytes: &[u8]) -> io::Result<Option<SeekTable>> {
        SeekTable::read(&MemDevice::from_bytes(bytes))
    }

    #[test]
    fn a_table_is_read_as_it_is_written() {
        let file = [vec![1; 30], bytes(&[(10, 100), (5, 0), (15, 7)])].concat();
        let table = read(&file).unwrap().unwrap();
        assert_eq!(table.len(), 107);
        let frame = |at| table.find(at).map(|f| (f.index, f.packed, f.data));
        assert_eq!(frame(0), Some((0, 0..15, 0..100)));
        assert_eq!(frame(99), Some((0, 0..15, 0..100)));
        assert_eq!(frame(100), Some((1, 15..30, 100..107)));
        assert_eq!(frame(107), None);
        assert!(read(&[0; 100]).unwrap().is_none());
        assert!(read(&[]).unwrap().is_none());
    }

    #[test]
    fn a_frame_without_content_belongs_to_none() {
        // The first frame with content starts after the empty one.
        let file = [vec![1; 30], bytes(&[(10, 0), (20, 7)])].concat();
        let frame = read(&file).unwrap().unwrap().find(0).unwrap();
        assert_eq!((frame.packed, frame.data), (10..30, 0..7));
    }

    #[test]
    fn tables_that_break_the_rules_are_errors() {
        let good = [vec![1; 30], bytes(&[(10, 100), (20, 7)])].concat();
        let says = |change: &dyn Fn(&mut Vec<u8>), what: &str| {
            let mut bytes = good.clone();
            change(&mut bytes);
            let e = read(&bytes).err().expect(what).to_string();
            assert!(e.contains(what), "{e}");
        };
        let end = good.len();
        says(&|b| b[end - 5] = 0x04, "descriptor 0x04");
        says(&|b| b[end - 6] = 0xff, "4278190082 frames");
        says(&|b| b[end - 8] = 1, "longer than the file");
        says(&|b| b[end - 9] = 1, "beginning and its end");
        says(&|b| b[38] = 11, "31 bytes, and 30 are there");
        says(&|b| b[34] = 0, "beginning and its end");
        says(&|b| *b = b.split_off(1), "30 bytes, and 29 are there");
    }
}

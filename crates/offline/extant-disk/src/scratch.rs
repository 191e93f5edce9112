//! The base of a new image before it is packed: an unnamed sparse file that records which parts were written.

use blockdev::{BlockDevice, FileDevice};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of a piece, the unit of recorded writes.
pub const PIECE: u64 = 1 << 20;

/// The device. A flush does nothing, because the file is lost in a crash anyway.
pub struct Scratch {
    file: FileDevice,
    /// A bit for each piece. The reader joins the writers' threads first.
    touched: Vec<AtomicU64>,
}

impl Scratch {
    /// Makes a device of `len` zero bytes, in a directory with room for the written data.
    pub fn new(dir: &Path, len: u64) -> io::Result<Self> {
        let words = usize::try_from(len.div_ceil(PIECE).div_ceil(64));
        let words = words.map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok(Self {
            file: FileDevice::temporary(dir, len)?,
            touched: std::iter::repeat_with(AtomicU64::default)
                .take(words)
                .collect(),
        })
    }

    /// Returns whether anything was written to a piece.
    pub fn is_touched(&self, piece: u64) -> bool {
        let word = usize::try_from(piece / 64).ok();
        let word = word.and_then(|word| self.touched.get(word));
        word.is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (piece % 64)) != 0)
    }

    fn touch(&self, offset: u64, len: u64) {
        let Some(last) = len.checked_sub(1).and_then(|len| offset.checked_add(len)) else {
            return;
        };
        for piece in offset / PIECE..=last / PIECE {
            let word = usize::try_from(piece / 64).ok();
            // Writes beyond the end are refused below.
            let Some(word) = word.and_then(|word| self.touched.get(word)) else {
                return;
            };
            word.fetch_or(1 << (piece % 64), Ordering::Relaxed);
        }
    }
}

impl BlockDevice for Scratch {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.touch(offset, buf.len() as u64);
        self.file.write_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        self.touch(offset, bufs.iter().map(|buf| buf.len() as u64).sum());
        self.file.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        // Packing reads trimmed bytes again, unlike the users of other devices.
        self.file.discard(offset, len)
    }

    fn read_only(&self) -> bool {
        false
    }
}

//! Read-only disks that a table maps to pieces of a file.

use crate::piece_cache::PieceCache;
use blockdev::{BlockDevice, FileDevice};
use std::io;

/// Content of a stretch of the disk.
pub enum Stretch {
    Zeros,
    /// Four bytes repeated, beginning at a multiple of four.
    Fill([u8; 4]),
    /// The bytes of the file from this offset on.
    File(u64),
    /// The bytes of a piece that the map makes, from the second number on.
    Made(u64, usize),
}

/// Mapping of a disk to a file.
pub trait Map: Send + Sync {
    /// Returns the size of the disk in bytes.
    fn len(&self) -> u64;

    /// Returns the content at an offset below [`len`](Self::len), and its length in bytes.
    fn at(&self, file: &FileDevice, offset: u64) -> io::Result<(Stretch, u64)>;

    /// Makes a piece that the file does not contain in plain form.
    fn make(&self, file: &FileDevice, piece: u64) -> io::Result<Vec<u8>> {
        let (_, _) = (file, piece);
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The disk.
pub struct Mapped<M> {
    file: FileDevice,
    map: M,
    kept: PieceCache,
}

/// Returns an error for a damaged file, with the name of its format.
pub fn damaged(format: &str, what: impl std::fmt::Display) -> io::Error {
    let text = format!("the {format} is damaged: {what}");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl<M: Map> Mapped<M> {
    pub fn new(file: FileDevice, map: M) -> Self {
        Self {
            file,
            map,
            kept: PieceCache::default(),
        }
    }

    fn fill(&self, offset: u64, stretch: &Stretch, buf: &mut [u8]) -> io::Result<()> {
        match stretch {
            Stretch::Zeros => buf.fill(0),
            Stretch::Fill(four) => {
                let from = (offset % 4) as usize;
                let bytes = four.iter().cycle().skip(from);
                buf.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
            }
            Stretch::File(at) => self.file.read_at(*at, buf)?,
            Stretch::Made(piece, from) => {
                let made = self
                    .kept
                    .get(*piece, || self.map.make(&self.file, *piece))?;
                let made = from
                    .checked_add(buf.len())
                    .and_then(|end| made.get(*from..end));
                let made = made.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
                buf.copy_from_slice(made);
            }
        }
        Ok(())
    }
}

impl<M: Map> BlockDevice for Mapped<M> {
    fn len(&self) -> u64 {
        self.map.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        end.filter(|end| *end <= self.len()).ok_or_else(beyond)?;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let named = |e: io::Error| {
                let name = self.file.path().display();
                io::Error::new(e.kind(), format!("{name}: {e}"))
            };
            let (stretch, len) = self.map.at(&self.file, at).map_err(named)?;
            let n = usize::try_from(len).map_or(rest.len(), |len| len.min(rest.len()));
            let (now, later) = rest.split_at_mut(n);
            self.fill(at, &stretch, now).map_err(named)?;
            at += n as u64;
            rest = later;
        }
        Ok(())
    }

    blockdev::only_read!();
}

/// Returns the error of a read beyond the end.
pub fn beyond() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the disk")
}

//! A stream that can be peeked at, and the detection of its compression from its first bytes.

use std::io::{self, BufRead, Read};

/// Bytes read at once.
const CHUNK: usize = 512 << 10;
/// Number of bytes that determine the compression.
pub(super) const MAGIC: usize = 6;

/// A stream of bytes that can be peeked at before they are read.
pub(super) struct Raw {
    from: Box<dyn Read + Send>,
    buf: Vec<u8>,
    /// The bytes of `buf` that were read and not consumed.
    used: usize,
    end: usize,
}

impl Raw {
    pub fn new(from: Box<dyn Read + Send>) -> Self {
        Self {
            from,
            buf: Vec::new(),
            used: 0,
            end: 0,
        }
    }

    /// Returns the next bytes without consuming them: at least `most`, or fewer at the end of the stream.
    pub fn head(&mut self, most: usize) -> io::Result<&[u8]> {
        self.buf.copy_within(self.used..self.end, 0);
        (self.used, self.end) = (0, self.end - self.used);
        if self.buf.len() < CHUNK.max(most) {
            self.buf.resize(CHUNK.max(most), 0);
        }
        while self.end < most {
            match self.from.read(&mut self.buf[self.end..]) {
                Ok(0) => break,
                Ok(n) => self.end = (self.end + n).min(self.buf.len()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(&self.buf[..self.end])
    }

    /// Detects the compression by the next bytes; `None` at the end.
    pub fn compression(&mut self) -> io::Result<Option<Compression>> {
        match self.head(MAGIC)? {
            [] => Ok(None),
            head => Compression::of(head).map(Some),
        }
    }
}

impl BufRead for Raw {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used < self.end {
            Ok(&self.buf[self.used..self.end])
        } else {
            self.head(1)
        }
    }

    fn consume(&mut self, n: usize) {
        self.used = (self.used + n).min(self.end);
    }
}

impl Read for Raw {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut ready = self.fill_buf()?;
        let n = ready.read(buf)?;
        self.consume(n);
        Ok(n)
    }
}

/// Compression by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

impl Compression {
    /// # Errors
    /// The error kind is `Unsupported` for compressions that are known but not supported.
    pub fn of(head: &[u8]) -> io::Result<Self> {
        let other = match head {
            [0x1f, 0x8b, ..] => return Ok(Self::Gzip),
            // Or a frame for applications, which zstd's readers skip.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                return Ok(Self::Zstd);
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => return Ok(Self::Xz),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => return Ok(Self::Bzip2),
            [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => "lz4",
            [b'L', b'Z', b'I', b'P', ..] => "lzip",
            [0x89, b'L', b'Z', b'O', ..] => "lzop",
            [0x1f, 0x9d, ..] => "compress (.Z)",
            _ => return Ok(Self::None),
        };
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{other} is not a supported compression; decompress it first"),
        ))
    }
}

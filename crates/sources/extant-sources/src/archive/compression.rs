//! Compressed archives, recognised by their first bytes: gzip, zstd, xz and bzip2, in any number of consecutive
//! pieces. Bytes behind the last piece are an error, except zeros that fill up a block and a plain cpio archive, as
//! in the images that Linux boots from.

use super::decoders::Piece;
use super::raw::{Compression, MAGIC, Raw};
use std::io::{self, BufRead, Read};

/// The content of a stream, decompressed.
pub(super) struct Unpacked {
    /// `None` at the end.
    piece: Option<Piece>,
}

impl Unpacked {
    pub fn new(mut raw: Raw) -> io::Result<Self> {
        let compression = raw.compression()?.unwrap_or(Compression::None);
        Ok(Self {
            piece: Some(Piece::new(compression, raw)?),
        })
    }

    /// Returns the piece behind a finished one.
    fn next(mut raw: Raw) -> io::Result<Option<Piece>> {
        loop {
            let ready = raw.fill_buf()?;
            let zeros = ready.iter().take_while(|b| **b == 0).count();
            if zeros == 0 {
                break;
            }
            raw.consume(zeros);
        }
        match raw.compression()? {
            None => Ok(None),
            Some(Compression::None) if !raw.head(MAGIC)?.starts_with(b"0707") => {
                Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "other bytes after the compressed data",
                ))
            }
            Some(compression) => Piece::new(compression, raw).map(Some),
        }
    }
}

impl Read for Unpacked {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(piece) = &mut self.piece {
            let n = piece.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            self.piece = match self.piece.take() {
                Some(piece) if !piece.is_plain() => Self::next(piece.into_raw())?,
                _ => None,
            };
        }
        Ok(0)
    }
}

/// Decompresses a stream whose first bytes are those of gzip, zstd, xz or bzip2, all pieces of it; other streams are
/// passed through.
///
/// ```
/// use std::io::Read;
/// let mut text = String::new();
/// let plain = Box::new(&b"not compressed"[..]);
/// extant_sources::decompressed(plain)?.read_to_string(&mut text)?;
/// assert_eq!(text, "not compressed");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The errors of the reader; of kind `Unsupported` for a compression that is known but not supported.
pub fn decompressed(from: Box<dyn Read + Send>) -> io::Result<impl Read + Send> {
    Unpacked::new(Raw::new(from))
}

#[cfg(all(test, feature = "compression"))]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut out = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 1).unwrap()
    }

    /// `xz -0` of "hello xz\n".
    const HELLO_XZ: &[u8] = include_bytes!("hello.xz");

    fn unpack(bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decompressed(Box::new(io::Cursor::new(bytes)))?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn pieces_of_all_kinds_follow_each_other() {
        let zeros = vec![0; 700_000];
        let pieces = [
            (gzip(b"a"), "a"),
            (bzip2(b"b"), "b"),
            (zeros.clone(), ""),
            (HELLO_XZ.to_vec(), "hello xz\n"),
            (vec![0; 4], ""),
            (HELLO_XZ.to_vec(), "hello xz\n"),
            (zstd(b"c"), "c"),
            (bzip2(b"d"), "d"),
            (zstd(&zeros[..3]), "\0\0\0"),
            (zeros, ""),
            (gzip(b"e"), "e"),
        ];
        let (bytes, text): (Vec<_>, Vec<_>) = pieces.into_iter().unzip();
        assert_eq!(unpack(bytes.concat()).unwrap(), text.concat().into_bytes());
    }

    #[test]
    fn what_is_cut_off_or_followed_by_other_bytes_is_an_error() {
        for whole in [
            gzip(b"text"),
            bzip2(b"text"),
            zstd(b"text"),
            HELLO_XZ.to_vec(),
        ] {
            for len in MAGIC..whole.len() {
                assert!(
                    unpack(whole[..len].to_vec()).is_err(),
                    "{len} of {whole:x?}"
                );
            }
            let more = [&whole[..], b"garbage"].concat();
            let e = unpack(more).unwrap_err().to_string();
            assert!(e.contains("after the compressed data"), "{e}");
        }
    }

    #[test]
    fn damage_is_an_error_or_goes_unseen() {
        for whole in [bzip2(&[7; 3000]), HELLO_XZ.to_vec(), zstd(&[7; 3000])] {
            for at in 0..whole.len() {
                for bit in 0..8 {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 1 << bit;
                    let _ = unpack(bytes);
                }
            }
        }
    }

    /// A header that asks for a dictionary of 1.5 GiB is refused, not believed.
    #[test]
    fn dictionaries_are_bounded() {
        let mut bytes = HELLO_XZ.to_vec();
        // The block's header is at 12: size, flags, filter, size of properties, dictionary; its checksum is last.
        let header = 12..12 + (usize::from(bytes[12]) + 1) * 4;
        assert_eq!(&bytes[14..16], [0x21, 1]);
        bytes[16] = 37;
        let (content, sum) = bytes[header].split_at_mut(8);
        let mut crc = flate2::Crc::new();
        crc.update(content);
        sum.copy_from_slice(&crc.sum().to_le_bytes());
        let e = unpack(bytes).unwrap_err().to_string();
        assert!(e.contains("dictionary of 1610612736 bytes"), "{e}");
    }

    #[test]
    fn others_are_named() {
        for (head, name) in [
            (&b"LZIP\x01..."[..], "lzip"),
            (b"\x04\x22\x4d\x18...", "lz4"),
        ] {
            let e = unpack(head.to_vec()).unwrap_err().to_string();
            assert!(e.starts_with(name), "{e}");
        }
    }
}

//! Stands in for the decoders in a build without the feature `compression`: reads plain streams only.

use super::raw::{Compression, Raw};
use std::io::{self, Read};

/// A piece of the stream.
pub(super) enum Piece {
    Plain(Raw),
}

impl Piece {
    pub fn new(compression: Compression, raw: Raw) -> io::Result<Self> {
        if compression == Compression::None {
            return Ok(Self::Plain(raw));
        }
        let why = format!(
            "{compression:?} data: this build has no decompressors (feature `compression`)"
        );
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    pub fn is_plain(&self) -> bool {
        true
    }

    pub fn into_raw(self) -> Raw {
        let Self::Plain(raw) = self;
        raw
    }

    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Self::Plain(raw) = self;
        raw.read(buf)
    }
}

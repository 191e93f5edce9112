//! Decoders of a piece of a compressed stream.

use super::raw::{Compression, Raw};
use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read};
use xz4rust::{XzDecoder, XzError, XzNextBlockResult};

/// Largest dictionary of xz that is allocated; `xz -9` needs 64 MiB.
const MOST_DICTIONARY: usize = 256 << 20;
/// Largest window of zstd, as a power of two: that of `zstd --ultra --long=31`.
const MOST_WINDOW: u32 = 31;

/// A piece of the stream.
pub(super) enum Piece {
    Plain(Raw),
    Gzip(Box<GzDecoder<Raw>>),
    Zstd(zstd::stream::read::Decoder<'static, Raw>),
    Xz(Box<Xz>),
    Bzip2(bzip2::bufread::BzDecoder<Raw>),
}

impl Piece {
    pub fn new(compression: Compression, raw: Raw) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::Plain(raw),
            Compression::Gzip => Self::Gzip(Box::new(GzDecoder::new(raw))),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(raw)?.single_frame();
                decoder.window_log_max(MOST_WINDOW)?;
                Self::Zstd(decoder)
            }
            Compression::Xz => Self::Xz(Box::new(Xz::new(raw))),
            Compression::Bzip2 => Self::Bzip2(bzip2::bufread::BzDecoder::new(raw)),
        })
    }

    pub fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    pub fn into_raw(self) -> Raw {
        match self {
            Self::Plain(raw) => raw,
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
            Self::Xz(decoder) => decoder.raw,
            Self::Bzip2(decoder) => decoder.into_inner(),
        }
    }

    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(raw) => raw.read(buf),
            Self::Gzip(decoder) => decoder.read(buf),
            Self::Zstd(decoder) => decoder.read(buf),
            Self::Xz(decoder) => decoder.read(buf),
            Self::Bzip2(decoder) => decoder.read(buf),
        }
    }
}

/// A stream of xz.
pub(super) struct Xz {
    decoder: Box<XzDecoder<'static>>,
    raw: Raw,
    ended: bool,
}

impl Xz {
    fn new(raw: Raw) -> Self {
        Self {
            decoder: XzDecoder::in_heap_with_alloc_dict_size(0, MOST_DICTIONARY),
            raw,
            ended: false,
        }
    }

    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !buf.is_empty() {
            let ready = self.raw.fill_buf()?;
            if ready.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let step = self.decoder.decode(ready, buf).map_err(xz_error)?;
            let (taken, made) = (step.input_consumed(), step.output_produced());
            self.ended = matches!(step, XzNextBlockResult::EndOfStream(..));
            self.raw.consume(taken);
            if made > 0 {
                return Ok(made);
            }
            if taken == 0 && !self.ended {
                let stuck = "xz data that do not go on";
                return Err(io::Error::new(io::ErrorKind::InvalidData, stuck));
            }
        }
        Ok(0)
    }
}

fn xz_error(e: XzError) -> io::Error {
    let what = match e {
        XzError::DictionaryTooLarge(size) => {
            format!("xz: a dictionary of {size} bytes, where at most {MOST_DICTIONARY} are read")
        }
        e => format!("xz: {e}"),
    };
    io::Error::new(io::ErrorKind::InvalidData, what)
}

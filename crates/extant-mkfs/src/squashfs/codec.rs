//! The compressors of blocks. Every block stands for itself.

use parking_lot::Mutex;
use xz4rust::{XzDecoder, XzNextBlockResult};

/// The largest dictionary of xz that is made room for; no block is larger than 1 MiB.
const MOST_DICTIONARY: usize = 8 << 20;

/// The compressor of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compressor {
    Gzip,
    Lzo,
    Xz,
    Lz4,
    Zstd,
}

impl Compressor {
    /// The compressor of a number; fails with the reason why there is none.
    pub fn of(number: u16) -> Result<Self, String> {
        Ok(match number {
            1 => Self::Gzip,
            2 => {
                return Err(
                    "compressed with lzma, the older format, which is not read: make it with -comp xz"
                        .into(),
                );
            }
            3 => Self::Lzo,
            4 => Self::Xz,
            5 => Self::Lz4,
            6 => Self::Zstd,
            _ => return Err(format!("an unknown compressor, number {number}")),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Lzo => "lzo",
            Self::Xz => "xz",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// The state of a decompressor, which is used again for the next block.
enum Decoder {
    Gzip(Box<flate2::Decompress>),
    Lzo,
    Xz(Box<XzDecoder<'static>>),
    Lz4,
    Zstd(zstd::bulk::Decompressor<'static>),
}

impl Decoder {
    fn new(compressor: Compressor) -> std::io::Result<Self> {
        Ok(match compressor {
            Compressor::Gzip => Self::Gzip(Box::new(flate2::Decompress::new(true))),
            Compressor::Lzo => Self::Lzo,
            Compressor::Xz => Self::Xz(XzDecoder::in_heap_with_alloc_dict_size(0, MOST_DICTIONARY)),
            Compressor::Lz4 => Self::Lz4,
            Compressor::Zstd => Self::Zstd(zstd::bulk::Decompressor::new()?),
        })
    }

    /// Decompresses a block; returns its length.
    fn decode(&mut self, from: &[u8], to: &mut [u8]) -> Result<usize, String> {
        match self {
            Self::Gzip(inflate) => {
                inflate.reset(true);
                let status = inflate.decompress(from, to, flate2::FlushDecompress::Finish);
                match status.map_err(|e| e.to_string())? {
                    flate2::Status::StreamEnd => Ok(inflate.total_out() as usize), // within `to`
                    _ => Err("it does not end where it should".into()),
                }
            }
            Self::Lzo => lzokay::decompress::decompress(from, to).map_err(|e| e.to_string()),
            Self::Xz(xz) => decode_xz(xz, from, to),
            Self::Lz4 => lz4_flex::block::decompress_into(from, to).map_err(|e| e.to_string()),
            Self::Zstd(zstd) => zstd
                .decompress_to_buffer(from, to)
                .map_err(|e| e.to_string()),
        }
    }
}

fn decode_xz(xz: &mut XzDecoder<'_>, from: &[u8], to: &mut [u8]) -> Result<usize, String> {
    xz.reset();
    let (mut taken, mut made) = (0, 0);
    loop {
        // Never more than there is.
        let (rest, room) = (&from[taken..], &mut to[made..]);
        let step = xz.decode(rest, room).map_err(|e| e.to_string())?;
        taken += step.input_consumed();
        made += step.output_produced();
        if matches!(step, XzNextBlockResult::EndOfStream(..)) {
            return Ok(made);
        }
        if step.input_consumed() == 0 && step.output_produced() == 0 {
            return Err("it does not end where it should".into());
        }
    }
}

/// The decompressors of an image, as many as threads use at a time.
pub(super) struct Codec {
    compressor: Compressor,
    idle: Mutex<Vec<Decoder>>,
}

impl Codec {
    pub fn new(compressor: Compressor) -> Self {
        Self {
            compressor,
            idle: Mutex::default(),
        }
    }

    /// Decompresses a block of at most the length of `to`; returns its length, or what is wrong.
    pub fn decode(&self, from: &[u8], to: &mut [u8]) -> Result<usize, String> {
        let name = self.compressor.name();
        let idle = self.idle.lock().pop();
        let mut decoder = match idle {
            Some(decoder) => decoder,
            None => Decoder::new(self.compressor).map_err(|e| format!("{name}: {e}"))?,
        };
        let decoded = decoder.decode(from, to);
        let decoded = decoded.map_err(|e| format!("{name} data that cannot be decompressed: {e}"));
        // After an error a new one takes its place.
        if decoded.is_ok() {
            self.idle.lock().push(decoder);
        }
        decoded
    }
}

//! The decompressor of one block, for each format.

use super::compressor::Compressor;
use xz4rust::{XzDecoder, XzNextBlockResult};

/// Largest dictionary of xz that is allocated; no block is larger than 1 MiB.
const MOST_DICTIONARY: usize = 8 << 20;

/// The state of a decompressor, which is used again for the next block.
pub(super) enum Decoder {
    Gzip(Box<flate2::Decompress>),
    Lzo,
    Xz(Box<XzDecoder<'static>>),
    Lz4,
    Zstd(zstd::bulk::Decompressor<'static>),
}

impl Decoder {
    pub fn new(compressor: Compressor) -> std::io::Result<Self> {
        Ok(match compressor {
            Compressor::Gzip => Self::Gzip(Box::new(flate2::Decompress::new(true))),
            Compressor::Lzo => Self::Lzo,
            Compressor::Xz => Self::Xz(XzDecoder::in_heap_with_alloc_dict_size(0, MOST_DICTIONARY)),
            Compressor::Lz4 => Self::Lz4,
            Compressor::Zstd => Self::Zstd(zstd::bulk::Decompressor::new()?),
        })
    }

    /// Decompresses a block; returns its length.
    pub fn decode(&mut self, from: &[u8], to: &mut [u8]) -> Result<usize, String> {
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

//! The compressors of blocks. Every block is compressed separately.

use super::decoder::Decoder;
use parking_lot::Mutex;

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
    /// Returns the compressor with a number; fails with the reason if it is not supported.
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

    /// Decompresses a block of at most the length of `to`; returns its length, or an error message.
    pub fn decode(&self, from: &[u8], to: &mut [u8]) -> Result<usize, String> {
        let name = self.compressor.name();
        let idle = self.idle.lock().pop();
        let mut decoder = match idle {
            Some(decoder) => decoder,
            None => Decoder::new(self.compressor).map_err(|e| format!("{name}: {e}"))?,
        };
        let decoded = decoder.decode(from, to);
        let decoded = decoded.map_err(|e| format!("{name} data that cannot be decompressed: {e}"));
        // After an error the decoder is dropped.
        if decoded.is_ok() {
            self.idle.lock().push(decoder);
        }
        decoded
    }
}

//! The compressors of blocks. Every block is compressed separately.

use super::compressor::Compressor;
use super::decoder::Decoder;
use parking_lot::Mutex;

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

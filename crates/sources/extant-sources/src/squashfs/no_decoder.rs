//! Stands in for the decompressors in a build without the feature `compression`.

use super::compressor::Compressor;

/// A decompressor; this build does not have one.
pub(super) enum Decoder {}

impl Decoder {
    pub fn new(_compressor: Compressor) -> std::io::Result<Self> {
        let why = "this build has no decompressors (feature `compression`)";
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, why))
    }

    pub fn decode(&mut self, _from: &[u8], _to: &mut [u8]) -> Result<usize, String> {
        match *self {}
    }
}

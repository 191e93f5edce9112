//! The compressor of an image.

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

    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Lzo => "lzo",
            Self::Xz => "xz",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

//! Errors of a repair.

use ext4_format::FormatError;
use std::io;

/// Why an image could not be repaired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device or a file failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A usable superblock is missing.
    #[error("no usable superblock: {0}")]
    Superblock(#[source] FormatError),
    /// A group's places are lost, and no backup has them.
    #[error("the descriptor of group {0} is lost, and no backup has it")]
    Descriptors(u32),
    /// A mend without which nothing else can be mended was declined.
    #[error("without this mend nothing else can be mended")]
    Declined,
    /// Something that cannot be written.
    #[error("{0}")]
    Format(#[from] FormatError),
    /// The image cannot be checked.
    #[error("{0}")]
    Check(#[from] extant_check::Error),
    /// Another program has the volume, as its block of `mmp` says.
    #[error(
        "{0} has the volume, by what its block of mmp says: wait for its end, or clear the block with tune2fs -f -E clear_mmp"
    )]
    InUse(&'static str),
    /// The plan could not be written, or the image not restored.
    #[error("{0}")]
    Image(#[source] ext4_image::Error),
}

impl From<ext4_image::Error> for Error {
    fn from(error: ext4_image::Error) -> Self {
        match error {
            ext4_image::Error::Io(e) => Self::Io(e),
            ext4_image::Error::Superblock(e) => Self::Superblock(e),
            ext4_image::Error::Format(e) => Self::Format(e),
            other => Self::Image(other),
        }
    }
}

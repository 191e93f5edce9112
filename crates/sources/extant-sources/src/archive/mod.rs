//! Archives as a source: tar and cpio, plain or compressed, from files or streams; several are layers of a container
//! image. SquashFS images come from the same files and streams; they are detected here and read as a tree.
//!
//! One pass reads the headers. A plain file is read again for the data, at places recorded in the pass. The data of a
//! stream or a compressed file is spooled to a temporary file during the pass. Spooling is faster than decompressing
//! twice: writing to the page cache is several times faster than inflating, and the second pass can then read
//! anywhere, from all threads.

pub(super) mod compression;
#[cfg_attr(not(feature = "compression"), path = "no_decoders.rs")]
mod decoders;
mod input;
pub(super) mod raw;
pub(crate) mod stream;
mod visit;

pub use compression::decompressed;
pub use input::ArchiveInput;
pub use visit::{read_archive, read_tree};

use crate::cpio;
use crate::error::{Result, SourceError};
use crate::member::Member;
use crate::squashfs::{SquashTree, is_squashfs};
use crate::tar;
use blockdev::UnlockedFile;
use stream::Stream;

/// The members of an archive, in their order.
#[doc(hidden)]
#[allow(private_interfaces)]
pub enum Members<'s, 'a> {
    Tar(tar::Members<'s, 'a>),
    Cpio(cpio::Members<'s, 'a>),
}

#[doc(hidden)]
impl<'s, 'a> Members<'s, 'a> {
    /// Detects the format of the stream.
    pub fn new(stream: &'s mut Stream<'a>) -> Result<Self> {
        let head = stream.peek()?;
        if cpio::is_cpio(head) {
            return Ok(Self::Cpio(cpio::Members::new(stream)));
        }
        if cpio::is_binary_cpio(head) {
            let what = "a cpio archive in a binary format: make it with cpio -H newc";
            return Err(stream.error(what));
        }
        Ok(Self::Tar(tar::Members::new(stream)))
    }

    /// Returns the next member; `None` at the end.
    pub fn next_member(&mut self) -> Result<Option<Member>> {
        match self {
            Self::Tar(tar) => tar.next(),
            Self::Cpio(cpio) => cpio.next(),
        }
    }

    /// Reads data of the last member, unless its data are kept. Returns 0 at the end of the data.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        match self {
            Self::Tar(tar) => tar.stream().read_data(buf),
            Self::Cpio(cpio) => cpio.stream().read_data(buf),
        }
    }
}

/// Returns the tree of a stream if it is a SquashFS image. Such an image is read at many places, so a stream other
/// than a plain file is spooled first.
#[doc(hidden)]
pub fn squashfs(stream: &mut Stream<'_>) -> Result<Option<SquashTree>> {
    if !is_squashfs(stream.peek()?) {
        return Ok(None);
    }
    let device = stream.whole().and_then(|file| {
        UnlockedFile::new(file).map_err(|e| SourceError::io(format!("reading {}", stream.name), e))
    })?;
    SquashTree::open(&*stream.name, device).map(Some)
}

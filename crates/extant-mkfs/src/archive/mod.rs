//! Archives as a source: tar and cpio, plain or compressed, from files or streams; several are layers of a container
//! image. SquashFS images come from the same files and streams; they are detected here and read as a tree.
//!
//! One pass reads the headers. A plain file is read again for the data, at places recorded in the pass. The data of a
//! stream or a compressed file is spooled to a temporary file during the pass. Spooling is faster than decompressing
//! twice: writing to the page cache is several times faster than inflating, and the second pass can then read
//! anywhere, from all threads.

pub(super) mod compression;
mod content;
#[cfg_attr(not(feature = "compression"), path = "no_decoders.rs")]
mod decoders;
pub(super) mod member;
pub(super) mod stream;
mod visit;

pub use compression::decompressed;
pub(super) use content::ArchiveReader;
pub use visit::{ArchiveKind, ArchiveMember, read_archive, read_tree};

use super::cpio;
use super::error::{MkfsError, Result};
use super::layers::Layers;
use super::source_attributes::Adopter;
use super::squashfs::{SquashTree, is_squashfs};
use super::tar;
use blockdev::UnlockedFile;
use member::Member;
use std::io::Read;
use std::path::PathBuf;
use stream::{Store, Stream};

/// An archive or a SquashFS image, plain, or compressed with gzip, zstd, xz or bzip2. Its first bytes determine the
/// format.
///
/// ```
/// use extant_mkfs::ArchiveInput;
/// let from_pipe = ArchiveInput::Reader { name: "standard input".into(), reader: Box::new(std::io::stdin()) };
/// let from_file = ArchiveInput::File("layer.tar.zst".into());
/// # drop((from_pipe, from_file));
/// ```
pub enum ArchiveInput {
    /// A file.
    File(PathBuf),
    /// A file that messages call by another name, such as the digest of a layer.
    Named {
        /// Name for messages.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// A stream, read once; the name is for messages.
    Reader {
        /// Name of the stream.
        name: String,
        /// The stream.
        reader: Box<dyn Read + Send>,
    },
}

/// The members of an archive, in their order.
enum Members<'s, 'a> {
    Tar(tar::Members<'s, 'a>),
    Cpio(cpio::Members<'s, 'a>),
}

impl<'s, 'a> Members<'s, 'a> {
    /// Detects the format of the stream.
    fn new(stream: &'s mut Stream<'a>) -> Result<Self> {
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
    fn next(&mut self) -> Result<Option<Member>> {
        match self {
            Self::Tar(tar) => tar.next(),
            Self::Cpio(cpio) => cpio.next(),
        }
    }

    /// Reads data of the last member, if it is not kept; nothing at its end.
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        match self {
            Self::Tar(tar) => tar.stream().read_data(buf),
            Self::Cpio(cpio) => cpio.stream().read_data(buf),
        }
    }
}

/// Returns the tree of a stream if it is a SquashFS image. Such an image is read at many places, so a stream other
/// than a plain file is spooled first.
fn squashfs(stream: &mut Stream<'_>) -> Result<Option<SquashTree>> {
    if !is_squashfs(stream.peek()?) {
        return Ok(None);
    }
    let device = stream.whole().and_then(|file| {
        UnlockedFile::new(file).map_err(|e| MkfsError::io(format!("reading {}", stream.name), e))
    })?;
    SquashTree::open(&*stream.name, device).map(Some)
}

/// Enters the members of an archive. A SquashFS image is returned: it is a tree.
pub(super) fn scan(
    input: ArchiveInput,
    store: &mut Store,
    layers: &mut Layers,
    adopter: &Adopter<'_>,
) -> Result<Option<SquashTree>> {
    let Adopter {
        options, monitor, ..
    } = adopter;
    let spool_dir = options.spool_dir.clone().unwrap_or_else(std::env::temp_dir);
    let mut stream = Stream::open(input, store, &spool_dir, monitor)?;
    let tree = squashfs(&mut stream)?;
    if tree.is_some() {
        return Ok(tree);
    }
    let mut members = Members::new(&mut stream)?;
    while let Some(member) = members.next()? {
        layers.enter(member, adopter)?;
        monitor.check()?;
    }
    Ok(None)
}

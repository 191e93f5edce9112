//! The input of a reader of archives.

use std::io::Read;
use std::path::PathBuf;

/// An archive or a SquashFS image, which may be compressed with gzip, zstd, xz or bzip2. The first bytes determine the
/// format and the compression.
///
/// ```
/// use extant_sources::ArchiveInput;
/// let from_pipe = ArchiveInput::Reader { name: "standard input".into(), reader: Box::new(std::io::stdin()) };
/// let from_file = ArchiveInput::File("layer.tar.zst".into());
/// # drop((from_pipe, from_file));
/// ```
pub enum ArchiveInput {
    /// A file.
    File(PathBuf),
    /// A file that has another name in messages, such as the digest of a layer.
    Named {
        /// Name of the file in messages.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// A stream, which is read once.
    Reader {
        /// Name of the stream in messages.
        name: String,
        /// The stream.
        reader: Box<dyn Read + Send>,
    },
}

//! The input of a reader of archives.

use std::io::Read;
use std::path::PathBuf;

/// An archive or a SquashFS image, plain, or compressed with gzip, zstd, xz or bzip2. Its first bytes determine the
/// format.
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

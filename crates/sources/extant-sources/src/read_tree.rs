//! Trees from other readers: another file system, or a tree made by the caller.

use crate::archive_member::ArchiveMember;
use crate::attribute_change::AttributeChange;
use crate::error::Result;

/// A tree that something else reads, such as another file system. Its names and attributes are asked for once, its data
/// later, from several threads.
///
/// ```
/// use extant_sources::{ArchiveKind, ArchiveMember, ReadTree, Result, SourceError, read_tree};
///
/// /// A single file.
/// struct Motd;
///
/// impl ReadTree for Motd {
///     fn members(&self, enter: &mut dyn FnMut(ArchiveMember, u32) -> Result<()>) -> Result<()> {
///         let kind = ArchiveKind::File { size: 6, stretches: vec![(0, 6)] };
///         enter(ArchiveMember::new("etc/motd", kind, 0o644), 0)
///     }
///
///     fn read_at(&self, _file: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
///         buf.copy_from_slice(&b"hello\n"[offset as usize..][..buf.len()]);
///         Ok(())
///     }
/// }
///
/// read_tree(&Motd, None, |member, data| {
///     assert_eq!(member.path, b"etc/motd");
///     assert_eq!(std::io::read_to_string(data).unwrap(), "hello\n");
///     Ok::<(), SourceError>(())
/// })?;
/// # Ok::<(), SourceError>(())
/// ```
pub trait ReadTree: Send + Sync {
    /// Shows all members, each with a number that [`read_at`](Self::read_at) gets if it is a file. A hard link
    /// follows the name that it links to; a repeated member replaces the earlier one.
    ///
    /// # Errors
    /// Read errors; errors of `enter` must be returned.
    fn members(&self, enter: &mut dyn FnMut(ArchiveMember, u32) -> Result<()>) -> Result<()>;

    /// Returns new attributes of files that other sources have, in the order in which they apply, after
    /// [`members`](Self::members).
    fn changes(&self) -> Vec<AttributeChange> {
        Vec::new()
    }

    /// Reads data of a file, all of the buffer, which is inside of the file.
    ///
    /// # Errors
    /// Read errors.
    fn read_at(&self, file: u32, offset: u64, buf: &mut [u8]) -> Result<()>;
}

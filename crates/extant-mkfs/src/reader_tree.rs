//! Trees from other readers: another file system, or a tree made by the caller.

use super::archive::{ArchiveKind, ArchiveMember};
use super::data::ContentReader;
use super::error::{MkfsError, Result};
use super::layers::Layers;
use super::tree::{Body, Tree};
use crate::source_attributes::Adopter;

/// A tree that something else reads, such as another file system. Its names and attributes are asked for once, its data
/// later, from several threads.
///
/// ```
/// use extant_mkfs::{ArchiveKind, ArchiveMember, MkfsOptions, ReadTree, Result, Source, prepare_from};
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
/// let prepared = prepare_from(&MkfsOptions::default(), Source::Other(Box::new(Motd)))?;
/// # drop(prepared);
/// # Ok::<(), extant_mkfs::MkfsError>(())
/// ```
pub trait ReadTree: Send + Sync {
    /// Shows all members, each with a number that [`read_at`](Self::read_at) gets if it is a file. A hard link
    /// follows the name that it links to; a repeated member replaces the earlier one.
    ///
    /// # Errors
    /// Read errors; errors of `enter` must be returned.
    fn members(&self, enter: &mut dyn FnMut(ArchiveMember, u32) -> Result<()>) -> Result<()>;

    /// Reads data of a file, all of the buffer, which is inside of the file.
    ///
    /// # Errors
    /// Read errors.
    fn read_at(&self, file: u32, offset: u64, buf: &mut [u8]) -> Result<()>;
}

/// Enters the members of a tree; `origin` makes the origin of a file of its number.
pub(super) fn scan(
    tree: &dyn ReadTree,
    layers: &mut Layers,
    adopter: &Adopter<'_>,
    origin: impl Fn(u32) -> u64,
) -> Result<()> {
    tree.members(&mut |member, file| {
        check_stretches(&member)?;
        adopter.monitor.check()?;
        adopter.monitor.advance(1);
        layers.enter(member.into_member(origin(file)), adopter)
    })
}

/// Refuses stretches of data that are out of order, or reach beyond a file.
fn check_stretches(member: &ArchiveMember) -> Result<()> {
    let ArchiveKind::File { size, stretches } = &member.kind else {
        return Ok(());
    };
    let mut at = 0;
    for &(start, len) in stretches {
        match start
            .checked_add(len)
            .filter(|end| start >= at && end <= size)
        {
            Some(end) => at = end,
            None => {
                let path = super::error::show(&member.path);
                return Err(MkfsError::source(
                    path,
                    "data out of order or beyond the file",
                ));
            }
        }
    }
    Ok(())
}

/// Reads the files of one such tree.
pub(super) struct OtherReader<'a> {
    pub source: &'a dyn ReadTree,
    pub tree: &'a Tree,
    /// The number of a file, by its origin.
    pub number: fn(u64) -> u32,
}

impl ContentReader for OtherReader<'_> {
    fn read(&mut self, inode: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(0);
        let node = &self.tree.inodes[inode as usize]; // an inode of the tree
        let Body::File { origin, map } = &node.body else {
            return Ok(());
        };
        let file = (self.number)(*origin);
        let end = node.size.min(offset.saturating_add(buf.len() as u64));
        let mut part = |from: u64, to: u64| {
            let (from, to) = (from.max(offset), to.min(end));
            if from >= to {
                return Ok(());
            }
            let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
            self.source.read_at(file, from, part)
        };
        let Some(map) = map else {
            return part(0, end);
        };
        let first = map.partition_point(|s| s.start + s.len <= offset);
        let mut met = map[first..].iter().take_while(|s| s.start < end);
        met.try_for_each(|s| part(s.start, s.start + s.len))
    }
}

//! Reads an archive or a tree once, and passes each member to a callback in order. No member is kept.

use super::Members;
use super::input::ArchiveInput;
use super::stream::{Store, Stream};
use crate::archive_member::{ArchiveKind, ArchiveMember};
use crate::error::SourceError;
use crate::monitor::{CancelFlag, ReadMonitor};
use crate::read_tree::ReadTree;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The data of a member.
struct Data<'m, 's, 'a>(&'m mut Members<'s, 'a>);

impl Read for Data<'_, '_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(io::Error::other)
    }
}

/// The data of a tree's file, range by range.
struct TreeData<'a> {
    tree: &'a dyn ReadTree,
    file: u32,
    /// Start and length, the last one first.
    stretches: Vec<(u64, u64)>,
}

impl<'a> TreeData<'a> {
    fn new(tree: &'a dyn ReadTree, file: u32, member: &ArchiveMember) -> Self {
        let mut stretches = match &member.kind {
            ArchiveKind::File { stretches, .. } => stretches.clone(),
            _ => Vec::new(),
        };
        stretches.retain(|(_, len)| *len > 0);
        stretches.reverse();
        Self {
            tree,
            file,
            stretches,
        }
    }
}

impl Read for TreeData<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some((start, len)) = self.stretches.pop() else {
            return Ok(0);
        };
        let n = usize::try_from(len).map_or(buf.len(), |len| len.min(buf.len()));
        let read = self.tree.read_at(self.file, start, &mut buf[..n]);
        read.map_err(io::Error::other)?;
        if (n as u64) < len {
            self.stretches.push((start + n as u64, len - n as u64));
        }
        Ok(n)
    }
}

/// Shows every member of a tree with its data, as [`read_archive`] shows those of an archive.
///
/// ```no_run
/// use extant_sources::{Manifest, SourceError, read_tree};
/// read_tree(&Manifest::new("list.mtree", "rootfs"), None, |member, data| {
///     let len = std::io::copy(data, &mut std::io::sink()).unwrap();
///     println!("{}: {len} bytes", String::from_utf8_lossy(&member.path));
///     Ok::<(), SourceError>(())
/// })?;
/// # Ok::<(), SourceError>(())
/// ```
///
/// # Errors
/// The errors of the tree, [`SourceError::Interrupted`], and whatever `visit` returns.
pub fn read_tree<E: From<SourceError>>(
    tree: &dyn ReadTree,
    cancel: Option<Arc<AtomicBool>>,
    mut visit: impl FnMut(ArchiveMember, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E> {
    let monitor = CancelFlag(cancel);
    let mut stopped = None;
    let walked = tree.members(&mut |member, file| {
        monitor.check()?;
        let mut data = TreeData::new(tree, file, &member);
        visit(member, &mut data).map_err(|e| {
            stopped = Some(e);
            SourceError::Interrupted
        })
    });
    match stopped {
        Some(e) => Err(e),
        None => Ok(walked?),
    }
}

/// Reads an archive once, from front to back, and shows every member with its data; unread data are skipped. It ends
/// with the first error, or when `cancel` is set. A SquashFS image from a stream is spooled to a temporary file
/// first.
///
/// # Errors
/// [`SourceError::Archive`] for bytes that are not an archive, [`SourceError::Io`], [`SourceError::Interrupted`], and the
/// errors of `visit`.
pub fn read_archive<E: From<SourceError>>(
    input: ArchiveInput,
    cancel: Option<Arc<AtomicBool>>,
    mut visit: impl FnMut(ArchiveMember, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E> {
    let monitor = CancelFlag(cancel.clone());
    let (mut store, spool_dir) = (Store::default(), std::env::temp_dir());
    let mut stream = Stream::open(input, &mut store, &spool_dir, &monitor)?;
    if let Some(tree) = super::squashfs(&mut stream)? {
        return read_tree(&tree, cancel, visit);
    }
    // Nothing is spooled: the data are read in passing.
    stream.in_passing();
    let mut members = Members::new(&mut stream)?;
    while let Some(member) = members.next_member()? {
        visit(ArchiveMember::of(member), &mut Data(&mut members))?;
        monitor.check()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an archive of two files; the data of the first are not read.
    fn archive() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in [("skipped", vec![1; 70_000]), ("read", b"here\n".to_vec())] {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            header.set_mode(0o640);
            header.set_uid(5);
            header.set_gid(6);
            header.set_mtime(7);
            builder
                .append_data(&mut header, path, &content[..])
                .unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn members_and_their_data_in_passing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), archive()).unwrap();
        let stream = ArchiveInput::Reader {
            name: "bytes".into(),
            reader: Box::new(io::Cursor::new(archive())),
        };
        for input in [stream, ArchiveInput::File(file.path().into())] {
            let mut seen = Vec::new();
            read_archive(input, None, |m, data| {
                let mut content = Vec::new();
                if m.path == b"read" {
                    data.read_to_end(&mut content).unwrap();
                }
                seen.push((m.path, m.mode, m.uid, m.mtime.secs(), content));
                Ok::<(), SourceError>(())
            })
            .unwrap();
            let want = [
                (b"skipped".to_vec(), 0o640, 5, 7, Vec::new()),
                (b"read".to_vec(), 0o640, 5, 7, b"here\n".to_vec()),
            ];
            assert_eq!(seen, want);
        }
    }

    #[test]
    fn cut_off_archives_are_errors() {
        for len in [512, 1000, 500 + 70_000] {
            let input = ArchiveInput::Reader {
                name: "bytes".into(),
                reader: Box::new(io::Cursor::new(archive()[..len].to_vec())),
            };
            let read = read_archive(input, None, |_, data| {
                let copied = io::copy(data, &mut io::sink());
                copied.map(drop).map_err(|e| SourceError::io("copy", e))
            });
            assert!(read.is_err(), "{len}");
        }
    }
}

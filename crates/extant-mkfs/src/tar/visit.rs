//! One pass over an archive for a caller that puts its members somewhere else: the data are shown as they come,
//! nothing is kept.

use super::TarInput;
use super::member::{Member, MemberKind, Members};
use super::stream::{Store, Stream};
use crate::error::MkfsError;
use crate::progress::Monitor;
use ext4_format::timestamp::Timestamp;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The kind of an archive's member.
///
/// ```
/// use extant_mkfs::TarKind;
/// assert_ne!(TarKind::Directory, TarKind::Fifo);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TarKind {
    /// A regular file.
    File {
        /// Bytes of the file.
        size: u64,
        /// Where in the file the data goes, start and length, in order; all else is a hole. The data
        /// is that of all stretches together.
        stretches: Vec<(u64, u64)>,
    },
    /// Another name of an earlier member, by its path.
    HardLink(Vec<u8>),
    /// A symbolic link and where it leads.
    Symlink(Vec<u8>),
    /// A directory.
    Directory,
    /// A character device, major and minor number.
    CharDevice(u32, u32),
    /// A block device, likewise.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
}

/// A member of an archive, with everything its headers say.
///
/// ```
/// use extant_mkfs::{MkfsError, TarInput, read_tar};
/// let empty = TarInput::Reader { name: "zeros".into(), reader: Box::new(&[0; 1024][..]) };
/// read_tar(empty, None, |member, _data| {
///     println!("{}", String::from_utf8_lossy(&member.path));
///     Ok::<(), MkfsError>(())
/// })?;
/// # Ok::<(), MkfsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TarMember {
    /// Path, as it stands in the archive.
    pub path: Vec<u8>,
    /// The kind.
    pub kind: TarKind,
    /// Permissions.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access; the last change if the archive does not say.
    pub atime: Timestamp,
    /// Last change.
    pub mtime: Timestamp,
    /// Extended attributes, full names; ACLs in the form of system calls.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Something that could not be kept.
    pub warning: Option<&'static str>,
}

impl TarMember {
    fn of(m: Member) -> Self {
        let warning = match (m.unresolved_acl, m.unknown_type) {
            (true, _) => Some("its ACL names users or groups without numbers, and is left out"),
            (_, Some(_)) => Some("a member of a type that nobody knows, taken for a file"),
            _ => None,
        };
        Self {
            path: m.path,
            kind: match m.kind {
                MemberKind::File { size, map, .. } => TarKind::File {
                    size,
                    stretches: match map {
                        Some(map) => map.iter().map(|s| (s.start, s.len)).collect(),
                        None if size == 0 => Vec::new(),
                        None => vec![(0, size)],
                    },
                },
                MemberKind::HardLink(to) => TarKind::HardLink(to),
                MemberKind::Symlink(to) => TarKind::Symlink(to),
                MemberKind::Directory => TarKind::Directory,
                MemberKind::CharDevice(major, minor) => TarKind::CharDevice(major, minor),
                MemberKind::BlockDevice(major, minor) => TarKind::BlockDevice(major, minor),
                MemberKind::Fifo => TarKind::Fifo,
            },
            mode: m.mode,
            uid: m.uid,
            gid: m.gid,
            atime: m.atime,
            mtime: m.mtime,
            xattrs: m.xattrs,
            warning,
        }
    }
}

/// The data of a member.
struct Data<'m, 's, 'a>(&'m mut Members<'s, 'a>);

impl Read for Data<'_, '_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).map_err(io::Error::other)
    }
}

/// Reads an archive once, from front to back, and shows every member with its data; unread data are skipped. It
/// ends with the first error, or when `cancel` is raised.
///
/// # Errors
/// [`MkfsError::Tar`] for bytes that are no archive, [`MkfsError::Io`], [`MkfsError::Interrupted`], and
/// whatever `visit` returns.
pub fn read_tar<E: From<MkfsError>>(
    input: TarInput,
    cancel: Option<Arc<AtomicBool>>,
    mut visit: impl FnMut(TarMember, &mut dyn Read) -> Result<(), E>,
) -> Result<(), E> {
    let monitor = Monitor::new(None, cancel);
    let mut store = Store::default();
    // Nothing is spooled: the data are read in passing.
    let mut stream = Stream::open(input, &mut store, Path::new("."), &monitor)?;
    let mut members = Members::in_passing(&mut stream);
    while let Some(member) = members.next()? {
        visit(TarMember::of(member), &mut Data(&mut members))?;
        monitor.check()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive of two files; the data of the first are not read.
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
        let stream = TarInput::Reader {
            name: "bytes".into(),
            reader: Box::new(io::Cursor::new(archive())),
        };
        for input in [stream, TarInput::File(file.path().into())] {
            let mut seen = Vec::new();
            read_tar(input, None, |m, data| {
                let mut content = Vec::new();
                if m.path == b"read" {
                    data.read_to_end(&mut content).unwrap();
                }
                seen.push((m.path, m.mode, m.uid, m.mtime.secs(), content));
                Ok::<(), MkfsError>(())
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
        for len in [512, 1000, 600 + 70_000] {
            let input = TarInput::Reader {
                name: "bytes".into(),
                reader: Box::new(io::Cursor::new(archive()[..len].to_vec())),
            };
            let read = read_tar(input, None, |_, data| {
                let copied = io::copy(data, &mut io::sink());
                copied.map(drop).map_err(|e| MkfsError::io("copy", e))
            });
            assert!(read.is_err(), "{len}");
        }
    }
}

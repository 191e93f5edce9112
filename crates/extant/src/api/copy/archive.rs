//! Extracting an archive into a volume.
//!
//! The archive is read once, from front to back, and its members are made in its order. Attributes of directories are
//! set last, the deepest first, because names made in a directory change its times.

use super::side::{Data, Meta, Side, Xattr};
use super::volume::VolumeSide;
use super::{CHUNK, CopyCounts, CopyOptions, PathError};
use crate::api::dir::Dir;
use crate::base::error::{Error, Result};
use ext4_format::FileType;
use ext4_format::inode::makedev;
use extant_mkfs::{ArchiveInput, ArchiveKind, ArchiveMember, MkfsError, read_archive};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

impl Dir {
    /// Extracts an archive (tar, cpio or SquashFS, plain or compressed) into directory `to`, which is made if it does
    /// not exist. Directories are merged; another file of a member's name is replaced. Owners, permissions, times,
    /// extended attributes, ACLs, hard links, holes and devices are kept. The calling thread does all work; what an
    /// import that failed has made stays there.
    ///
    /// ```
    /// use extant::mkfs::ArchiveInput;
    /// # let volume = extant::doc_volume();
    /// # let mut tar = tar::Builder::new(Vec::new());
    /// # let mut header = tar::Header::new_ustar();
    /// # header.set_size(4);
    /// # header.set_mode(0o600);
    /// # tar.append_data(&mut header, "etc/hostname", &b"box\n"[..]).unwrap();
    /// # let bytes = std::io::Cursor::new(tar.into_inner().unwrap());
    /// let archive = ArchiveInput::Reader { name: "rootfs.tar".into(), reader: Box::new(bytes) };
    /// let copied = volume.import_archive(archive, "/srv", &extant::CopyOptions::new())?;
    /// assert_eq!((copied.files, copied.bytes), (1, 4));
    /// assert_eq!(volume.read_to_string("/srv/etc/hostname")?, "box\n");
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error, with the path in the volume where it was met. [`Error::Mkfs`] for bytes that are not an
    /// archive, [`Error::Invalid`] for a member whose path has `..`, [`Error::IsDirectory`] for a file in the place of
    /// a directory, [`Error::Interrupted`] after [`CopyOptions::cancel`].
    pub fn import_archive(
        &self,
        archive: ArchiveInput,
        to: impl AsRef<Path>,
        options: &CopyOptions<'_>,
    ) -> Result<CopyCounts, PathError> {
        let mut import = Import {
            dir: self,
            side: VolumeSide::new(self, to.as_ref()),
            options,
            counts: CopyCounts::default(),
            directories: BTreeMap::new(),
            buffer: Vec::new(),
        };
        import.run(archive)
    }
}

struct Import<'a> {
    dir: &'a Dir,
    side: VolumeSide,
    options: &'a CopyOptions<'a>,
    counts: CopyCounts,
    /// Attributes of directories, to be set last.
    directories: BTreeMap<PathBuf, (Meta, Vec<Xattr>)>,
    buffer: Vec<u8>,
}

/// The end of reading: an error of the archive, or one of the volume, whose path is known.
enum Stop {
    Archive(Error),
    Volume(PathError),
}

impl From<MkfsError> for Stop {
    fn from(error: MkfsError) -> Self {
        Self::Archive(error.into())
    }
}

/// Returns a member's path below the top. A leading `/` and components `.` are dropped.
fn relative(path: &[u8]) -> Result<PathBuf> {
    let path = bytes_to_path(path);
    let mut found = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => found.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            Component::ParentDir => return Err(Error::Invalid("a path in the archive has '..'")),
        }
    }
    Ok(found)
}

fn bytes_to_path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(OsStr::from_bytes(bytes))
}

fn meta(member: &ArchiveMember) -> Meta {
    let (file_type, size, rdev) = match member.kind {
        ArchiveKind::File { size, .. } => (FileType::Regular, size, 0),
        ArchiveKind::HardLink(_) => (FileType::Regular, 0, 0),
        ArchiveKind::Symlink(_) => (FileType::Symlink, 0, 0),
        ArchiveKind::Directory => (FileType::Directory, 0, 0),
        ArchiveKind::CharDevice(major, minor) => (FileType::CharDevice, 0, makedev(major, minor)),
        ArchiveKind::BlockDevice(major, minor) => (FileType::BlockDevice, 0, makedev(major, minor)),
        ArchiveKind::Fifo => (FileType::Fifo, 0, 0),
        ArchiveKind::Socket => (FileType::Socket, 0, 0),
    };
    Meta {
        file_type,
        mode: u32::from(member.mode) & 0o7777,
        uid: member.uid,
        gid: member.gid,
        size,
        rdev,
        atime: member.atime,
        mtime: member.mtime,
        links: 1,
        id: (0, 0),
    }
}

fn xattrs(member: &ArchiveMember) -> Vec<Xattr> {
    let owned = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let name = bytes_to_path(name).as_os_str().to_owned();
        (name, value.clone())
    };
    member
        .xattrs
        .iter()
        .map(owned)
        .collect::<Vec<(OsString, _)>>()
}

impl Import<'_> {
    fn run(&mut self, archive: ArchiveInput) -> Result<CopyCounts, PathError> {
        let top = self.side.top().to_path_buf();
        let at_top = |source| PathError {
            path: top.clone(),
            source,
        };
        self.dir.create_dir_all(&top).map_err(at_top)?;
        let read = read_archive(archive, None, |member, data| {
            let path = relative(&member.path).map_err(|source| {
                Stop::Volume(PathError {
                    path: bytes_to_path(&member.path).to_path_buf(),
                    source,
                })
            })?;
            let made = self.member(&path, &member, data);
            made.map_err(|source| {
                let path = self.side.at(&path);
                Stop::Volume(PathError { path, source })
            })
        });
        read.map_err(|stop| match stop {
            Stop::Archive(source) => at_top(source),
            Stop::Volume(error) => error,
        })?;
        for (path, (meta, xattrs)) in self.directories.iter().rev() {
            let kept = self.side.keep(path, meta, self.options.owners, xattrs);
            kept.map_err(|source| PathError {
                path: self.side.at(path),
                source,
            })?;
        }
        Ok(self.counts)
    }

    fn member(&mut self, path: &Path, member: &ArchiveMember, data: &mut dyn Read) -> Result<()> {
        self.options.check()?;
        if path.as_os_str().is_empty() {
            // The top exists, and keeps its attributes.
            return Ok(());
        }
        let meta = meta(member);
        match &member.kind {
            ArchiveKind::Directory => {
                self.directory(path)?;
                self.directories
                    .insert(path.to_path_buf(), (meta, xattrs(member)));
                self.counts.directories += 1;
                self.tell();
                return Ok(());
            }
            ArchiveKind::HardLink(old) => {
                let old = relative(old)?;
                if old != path {
                    self.place(path, |import| import.side.link(&old, path))?;
                    self.counts.hard_links += 1;
                }
                self.tell();
                return Ok(());
            }
            ArchiveKind::File { size, stretches } => {
                let file = self.place(path, |import| import.side.create(path))?;
                self.content(&*file, *size, stretches, data)?;
                self.counts.files += 1;
            }
            ArchiveKind::Symlink(target) => {
                let target = bytes_to_path(target);
                self.place(path, |import| import.side.symlink(target, path))?;
                self.counts.symlinks += 1;
            }
            _ => {
                self.place(path, |import| import.side.special(path, &meta))?;
                self.counts.specials += 1;
            }
        }
        let owners = self.options.owners;
        self.side.keep(path, &meta, owners, &xattrs(member))?;
        self.tell();
        Ok(())
    }

    fn tell(&self) {
        if let Some(told) = self.options.progress {
            told(&self.counts);
        }
    }

    /// Makes something at a path: makes the parents that the archive has not named, and removes a file that is there.
    fn place<R>(&mut self, path: &Path, make: impl Fn(&Self) -> Result<R>) -> Result<R> {
        match make(self) {
            Err(Error::NotFound) => {
                if let Some(parent) = path.parent() {
                    self.dir.create_dir_all(self.side.at(parent))?;
                }
            }
            Err(Error::Exists) => self.dir.remove_file(self.side.at(path))?,
            done => return done,
        }
        match make(self) {
            // With the parents made, a file may still be there, because a symbolic link leads to it.
            Err(Error::Exists) => {
                self.dir.remove_file(self.side.at(path))?;
                make(self)
            }
            done => done,
        }
    }

    fn directory(&mut self, path: &Path) -> Result<()> {
        match self.side.make_dir(path) {
            Err(Error::Exists) if self.side.meta(path)?.file_type == FileType::Directory => Ok(()),
            Err(Error::Exists | Error::NotFound) => {
                self.place(path, |import| import.side.make_dir(path))
            }
            done => done,
        }
    }

    fn content(
        &mut self,
        file: &dyn Data,
        size: u64,
        stretches: &[(u64, u64)],
        data: &mut dyn Read,
    ) -> Result<()> {
        let mut end = 0;
        for &(start, len) in stretches {
            let mut done = 0;
            while done < len {
                self.options.check()?;
                let want = usize::try_from((len - done).min(CHUNK)).unwrap_or(1);
                self.buffer.resize(want, 0);
                data.read_exact(&mut self.buffer)?;
                let offset = start.checked_add(done).ok_or(Error::FileTooLarge)?;
                file.write_all_at(&self.buffer, offset)?;
                done += want as u64;
                self.counts.bytes += want as u64;
                end = start.saturating_add(done);
            }
        }
        if end < size {
            file.set_len(size)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn header(kind: tar::EntryType, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o640);
        header.set_uid(5);
        header.set_gid(6);
        header.set_mtime(7);
        header
    }

    fn input(tar: tar::Builder<Vec<u8>>) -> ArchiveInput {
        ArchiveInput::Reader {
            name: "archive".into(),
            reader: Box::new(std::io::Cursor::new(tar.into_inner().unwrap())),
        }
    }

    fn file(tar: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8]) {
        let mut header = header(tar::EntryType::Regular, content.len() as u64);
        tar.append_data(&mut header, path, content).unwrap();
    }

    #[test]
    fn members_are_merged_into_what_is_there() {
        let volume = crate::doc_volume();
        volume.create_dir_all("/srv/kept").unwrap();
        volume.write("/srv/kept/old", "old").unwrap();
        volume.write("/srv/replaced", "old").unwrap();
        let mut tar = tar::Builder::new(Vec::new());
        let mut dir = header(tar::EntryType::Directory, 0);
        dir.set_mode(0o750);
        tar.append_data(&mut dir, "kept/", &[][..]).unwrap();
        file(&mut tar, "kept/new", b"new");
        file(&mut tar, "replaced", &vec![9; 3 << 20]);
        file(&mut tar, "not/named/before", b"deep");
        let mut link = header(tar::EntryType::Symlink, 0);
        tar.append_link(&mut link, "link", "kept/new").unwrap();
        let mut link = header(tar::EntryType::Link, 0);
        tar.append_link(&mut link, "second", "./kept/new").unwrap();
        let mut fifo = header(tar::EntryType::Fifo, 0);
        tar.append_data(&mut fifo, "fifo", &[][..]).unwrap();
        let done = volume.import_archive(input(tar), "/srv", &CopyOptions::new());
        let done = done.unwrap();
        assert_eq!((done.directories, done.files, done.symlinks), (1, 3, 1));
        assert_eq!((done.specials, done.hard_links), (1, 1));
        assert_eq!(done.bytes, 7 + (3 << 20));
        assert_eq!(volume.read("/srv/kept/old").unwrap(), b"old");
        assert_eq!(volume.read("/srv/replaced").unwrap(), vec![9; 3 << 20]);
        assert_eq!(volume.read("/srv/not/named/before").unwrap(), b"deep");
        assert_eq!(volume.read("/srv/link").unwrap(), b"new");
        let second = volume.metadata("/srv/second").unwrap();
        assert_eq!((second.nlink(), second.uid(), second.gid()), (2, 5, 6));
        let kept = volume.metadata("/srv/kept").unwrap();
        assert_eq!((kept.mode() & 0o7777, kept.mtime().secs()), (0o750, 7));
    }

    #[test]
    fn what_cannot_be_extracted_is_named() {
        let volume = crate::doc_volume();
        volume.create_dir_all("/d/sub").unwrap();
        let options = CopyOptions::new();
        let failed = |bytes: ArchiveInput| volume.import_archive(bytes, "/", &options).unwrap_err();
        let mut tar = tar::Builder::new(Vec::new());
        file(&mut tar, "d", b"in the way");
        let error = failed(input(tar));
        assert_eq!(error.path, Path::new("/d"));
        assert!(matches!(error.source, Error::IsDirectory), "{error}");
        let mut upward = header(tar::EntryType::Regular, 0);
        upward.as_old_mut().name[..7].copy_from_slice(b"a/../b\0");
        upward.set_cksum();
        let mut tar = tar::Builder::new(Vec::new());
        tar.append(&upward, &[][..]).unwrap();
        let error = failed(input(tar));
        assert!(matches!(error.source, Error::Invalid(_)), "{error}");
        let error = failed(ArchiveInput::Reader {
            name: "noise".into(),
            reader: Box::new(&[7; 4096][..]),
        });
        assert!(matches!(error.source, Error::Mkfs(_)), "{error}");
        assert_eq!(volume.read_dir("/d").unwrap().count(), 1);
    }

    #[test]
    fn the_flag_ends_it() {
        let volume = crate::doc_volume();
        let mut tar = tar::Builder::new(Vec::new());
        for n in 0..3 {
            file(&mut tar, &format!("f{n}"), b"x");
        }
        let stop = AtomicBool::new(false);
        let tell = |done: &CopyCounts| stop.store(done.files == 2, Ordering::Relaxed);
        let options = CopyOptions::new().cancel(&stop).progress(&tell);
        let error = volume
            .import_archive(input(tar), "/", &options)
            .unwrap_err();
        assert!(matches!(error.source, Error::Interrupted), "{error}");
        assert!(volume.exists("/f1").unwrap() && !volume.exists("/f2").unwrap());
    }
}

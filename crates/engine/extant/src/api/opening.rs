//! Opening files below a directory, and files as a whole.

use super::dir::Dir;
use super::file::File;
use super::open_options::{OpenFlags, OpenOptions, check_open};
use super::{FILE_MODE, bytes};
use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::attributes::SetAttributes;
use crate::inodes::new_inode::NewInode;
use crate::inodes::open_files::Opened;
use crate::names::create::{CreateOptions, new_name};
use ext4_format::{FileType, InodeNr};
use extant_formatter::name::NameRef;
use std::path::Path;
use std::sync::Arc;

/// Bytes that one step of [`Dir::copy`] copies.
const COPY_STEP: u64 = 1 << 30;

impl Dir {
    /// Opens a file for reading.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", b"data")?;
    /// let mut text = String::new();
    /// std::io::Read::read_to_string(&mut volume.open_file("/file")?, &mut text).unwrap();
    /// assert_eq!(text, "data");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_flags(bytes(&path), OpenFlags::READ, 0)
    }

    /// Opens a file for writing; it is made if it does not exist, and cut to nothing if it does.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", b"long before")?;
    /// volume.create_file("/file")?.write(b"now")?;
    /// assert_eq!(volume.read("/file")?, b"now");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
        self.open_flags(bytes(&path), flags, FILE_MODE)
    }

    /// Makes a file that must not exist, and opens it for reading and writing.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/new")?;
    /// file.write_at(b"data", 0)?;
    /// assert_eq!(file.metadata()?.mode(), 0o100644);
    /// assert!(matches!(volume.create_new_file("/new"), Err(extant::Error::Exists)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create_new_file(&self, path: impl AsRef<Path>) -> Result<File> {
        const NEW: OpenFlags = OpenFlags::READ
            .union(OpenFlags::WRITE)
            .union(OpenFlags::CREATE)
            .union(OpenFlags::EXCLUSIVE);
        self.open_flags(bytes(&path), NEW, FILE_MODE)
    }

    /// Opens a file with the given options.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, OpenOptions};
    /// let log = volume.open_file_with("/log", &OpenOptions::new().append(true).create(true))?;
    /// log.append(b"started\n")?;
    /// let again = OpenOptions::new().write(true).create_new(true);
    /// assert!(matches!(volume.open_file_with("/log", &again), Err(Error::Exists)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for options without any access, besides what a system call would return.
    pub fn open_file_with(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let (flags, mode) = options.parts()?;
        self.open_flags(bytes(&path), flags, mode)
    }

    /// Makes a handle on an inode that counts it already.
    pub(super) fn handle(&self, inode: Arc<Inode>, flags: OpenFlags) -> File {
        File::of(Arc::clone(&self.caller), Opened::There(inode), flags)
    }

    fn open_flags(&self, path: &[u8], flags: OpenFlags, mode: u16) -> Result<File> {
        if flags.contains(OpenFlags::CREATE) {
            return self.open_or_create(path, flags, mode);
        }
        if self.engine()?.inodes.open_files.has_some()
            && let Some((dir, name)) = self.last_step(path)?
            && let Some(opened) = self.engine()?.inodes.open_remembered(&dir, name)
        {
            let file = File::of(Arc::clone(&self.caller), opened, flags);
            return self.finish_open(file, false);
        }
        let inode = self.at_inode(path, !flags.contains(OpenFlags::NO_FOLLOW), |inode| {
            self.engine()?.lifecycle.opened(inode)?;
            Ok(Arc::clone(inode))
        })?;
        let opened = self.engine()?.inodes.remember_open(inode);
        let file = File::of(Arc::clone(&self.caller), opened, flags);
        self.finish_open(file, false)
    }

    fn open_or_create(&self, path: &[u8], flags: OpenFlags, mode: u16) -> Result<File> {
        if path.ends_with(b"/") {
            return Err(Error::IsDirectory);
        }
        let how = CreateOptions {
            mode,
            exclusive: flags.contains(OpenFlags::EXCLUSIVE),
            open: true,
        };
        let follow = !flags.intersects(OpenFlags::EXCLUSIVE | OpenFlags::NO_FOLLOW);
        // The common case needs no walk. It checks that the caller may search the directory.
        if let Ok(name) = NameRef::new(path) {
            let names = &self.engine()?.names;
            let (inode, made) =
                names.create(self.who(), &self.inode, name, &NewInode::File, how)?;
            if made {
                return Ok(self.handle(inode, flags));
            }
            if !follow || inode.ftype != FileType::Symlink {
                return self.finish_open(self.handle(inode, flags), false);
            }
            self.engine()?.lifecycle.closed(&inode)?;
        }
        self.walk_to_create(path, flags, how, follow)
    }

    /// Opens what a path leads to, or makes a file there.
    #[inline(never)]
    fn walk_to_create(
        &self,
        path: &[u8],
        flags: OpenFlags,
        how: CreateOptions,
        follow: bool,
    ) -> Result<File> {
        let names = &self.engine()?.names;
        let create = |dir: &Arc<Inode>, name: &[u8]| {
            names.create(self.who(), dir, new_name(name)?, &NewInode::File, how)
        };
        let (inode, made) = self
            .at_parent(path, |dir, name| {
                let found = create(dir, name)?;
                if !follow || found.0.ftype != FileType::Symlink {
                    return Ok(found);
                }
                self.engine()?.lifecycle.closed(&found.0)?;
                let (dir, name) = names.walk_to_parent(self.who(), dir, name, true)?;
                create(&dir, &name)
            })
            .map_err(|e| match e {
                // The path leads to the root itself, which exists and is a directory.
                Error::Exists if !how.exclusive => Error::IsDirectory,
                other => other,
            })?;
        self.finish_open(self.handle(inode, flags), made)
    }

    /// Checks what a handle was opened for, and cuts the file if asked.
    pub(super) fn finish_open(&self, file: File, made: bool) -> Result<File> {
        let (inode, flags) = file.parts();
        if inode.ftype == FileType::Symlink {
            return Err(Error::SymlinkLoop);
        }
        if !made {
            check_open(self.engine()?, self.who(), inode, flags)?;
        }
        let truncate =
            flags.contains(OpenFlags::TRUNCATE) && !made && inode.ftype == FileType::Regular;
        if truncate {
            file.set_len_unchecked(0)?;
        }
        Ok(file)
    }

    /// Reads the whole content of a file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", b"data")?;
    /// assert_eq!(volume.read("/file")?, b"data");
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] when memory cannot hold it, besides what opening and reading return.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let size = file.metadata()?.len();
        let no_memory = || Error::Io {
            context: format!("memory for a file of {size} bytes"),
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        let len = usize::try_from(size).map_err(|_| no_memory())?;
        let mut content = Vec::new();
        // The size comes from the disk, so it is not trusted.
        content.try_reserve_exact(len).map_err(|_| no_memory())?;
        content.resize(len, 0);
        let n = file.read_at(&mut content, 0)?;
        content.truncate(n);
        Ok(content)
    }

    /// Makes or replaces a file with this content.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", b"first, and long")?;
    /// volume.write("/file", b"second")?;
    /// assert_eq!(volume.read("/file")?, b"second");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        self.create_file(path)?.write_all_at(content.as_ref(), 0)
    }

    /// Reads the whole content of a file that holds UTF-8 text.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", "text")?;
    /// assert_eq!(volume.read_to_string("/file")?, "text");
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for other bytes, besides those of [`read`](Self::read).
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let content = self.read(path)?;
        String::from_utf8(content).map_err(|_| Error::Invalid("the file's content is not UTF-8"))
    }

    /// Copies the content and the permissions of a regular file, like `std::fs::copy`, inside the library. An existing
    /// file is overwritten. Holes stay holes. Returns the number of bytes.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/tool", b"#!/bin/sh\n")?;
    /// volume.set_permissions("/tool", 0o755)?;
    /// assert_eq!(volume.copy("/tool", "/copy")?, 10);
    /// assert_eq!(volume.read("/copy")?, b"#!/bin/sh\n");
    /// assert_eq!(volume.metadata("/copy")?.mode() & 0o7777, 0o755);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if the source is not a regular file, or if both paths lead to the same file. After other
    /// errors, such as [`Error::NoSpace`], a part of the content may be copied.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let from = self.open_file(from)?;
        let attributes = from.metadata()?;
        if !attributes.is_file() {
            return Err(Error::Invalid("the source is not a regular file"));
        }
        let mode = attributes.mode() & 0o7777;
        let writing = OpenOptions::new().write(true).create(true).mode(mode);
        let to = writing.open(self, to)?;
        if to.ino() == from.ino() {
            return Err(Error::Invalid("source and destination are the same file"));
        }
        to.set_len(0)?;
        let mut copied = 0;
        // The source may become longer meanwhile.
        loop {
            match from.copy_range_to(copied, &to, copied, COPY_STEP)? {
                0 => break,
                n => copied += n,
            }
        }
        to.set_attributes(&SetAttributes {
            mode: Some(super::mode_bits(mode)),
            ..Default::default()
        })?;
        Ok(copied)
    }

    /// Opens a regular file by inode number.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::OpenOptions;
    /// volume.write("/file", b"data")?;
    /// let ino = volume.metadata("/file")?.ino();
    /// let file = volume.open_ino(ino, &OpenOptions::new().read(true))?;
    /// assert_eq!(file.metadata()?.len(), 4);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::StaleInode`] if no inode has the number, or its inode was removed.
    pub fn open_ino(&self, ino: u32, options: &OpenOptions) -> Result<File> {
        let (flags, _) = options.parts()?;
        let inode = self.engine()?.lifecycle.open_number(InodeNr(ino))?;
        self.finish_open(self.handle(inode, flags), false)
    }

    /// Opens a directory by inode number, to work from; for callers that keep numbers.
    /// [`Node`](crate::unstable::Node) reaches inodes that are not directories, or have no name.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let ino = volume.create_dir("/dir")?.ino();
    /// let dir = volume.open_dir_ino(ino)?;
    /// dir.create_new_file("file")?;
    /// assert!(volume.metadata("/dir/file").is_ok());
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::StaleInode`] if no inode has the number, or its inode was removed; [`Error::NotDirectory`] if the inode
    /// is not a directory.
    pub fn open_dir_ino(&self, ino: u32) -> Result<Self> {
        let inode = self.engine()?.inodes.numbered_inode(InodeNr(ino))?;
        if inode.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        Ok(self.to(inode))
    }
}

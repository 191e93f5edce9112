//! The content of directories and of the files below them: attributes, names, whole files.

use super::dir::Dir;
use super::file::{File, OpenFlags};
use crate::api::dir::DirEntry;
use crate::api::dir::entries;
use crate::base::error::{Error, Result};
use crate::inodes::attributes::{Attributes, SetAttributes};
use crate::inodes::xattrs::SetXattr;
use crate::types::credentials::READ;
use ext4_format::InodeNr;
use std::sync::Arc;

impl Dir {
    fn attributes(&self, path: impl AsRef<[u8]>, follow: bool) -> Result<Attributes> {
        let path = path.as_ref();
        if let Some((dir, name)) = self.last_step(path)?
            && let Some(attributes) = self
                .engine()?
                .names
                .attributes_of_name(&dir, name, follow)?
        {
            return Ok(attributes);
        }
        let mut removed = None;
        self.at_inode(path, follow, |inode| {
            let attributes = self.engine()?.inodes.attributes(inode);
            // A removed directory that is open is recognised when it is found again.
            if attributes.links == 0
                && removed.replace(Arc::as_ptr(inode)) != Some(Arc::as_ptr(inode))
            {
                return Err(Error::NotFound);
            }
            Ok(attributes)
        })
    }

    /// Attributes; a last symbolic link is followed.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write_file("/file", b"data")?;
    /// let stat = volume.stat("/file")?;
    /// assert_eq!((stat.size, stat.uid, stat.links), (4, 0, 1));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attributes> {
        self.attributes(path, true)
    }

    /// Attributes of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, FileType};
    /// volume.symlink("nowhere", "/link")?;
    /// assert_eq!(volume.lstat("/link")?.file_type, FileType::Symlink);
    /// assert!(matches!(volume.stat("/link"), Err(Error::NotFound)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Attributes> {
        self.attributes(path, false)
    }

    /// Changes attributes; a last symbolic link is followed.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{SetAttributes, Timestamp};
    /// volume.create("/file", 0o600)?;
    /// let set = SetAttributes {
    ///     mode: Some(0o644),
    ///     uid: Some(1000),
    ///     mtime: Some(Timestamp::new(1_700_000_000, 5).into()),
    ///     ..Default::default()
    /// };
    /// volume.set_attributes("/file", &set)?;
    /// assert_eq!(volume.stat("/file")?.mtime.nanos(), 5);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_attributes(&self, path: impl AsRef<[u8]>, set: &SetAttributes) -> Result<()> {
        self.at_inode(path, true, |inode| {
            self.engine()?.data.set_attributes(self.who(), inode, set)
        })
    }

    /// Changes attributes of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetAttributes;
    /// volume.symlink("nowhere", "/link")?;
    /// let set = SetAttributes { uid: Some(1000), ..Default::default() };
    /// volume.lset_attributes("/link", &set)?;
    /// assert_eq!(volume.lstat("/link")?.uid, 1000);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn lset_attributes(&self, path: impl AsRef<[u8]>, set: &SetAttributes) -> Result<()> {
        self.at_inode(path, false, |inode| {
            self.engine()?.data.set_attributes(self.who(), inode, set)
        })
    }

    /// Sets the size of a file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write_file("/file", b"hello, world")?;
    /// volume.truncate("/file", 5)?;
    /// assert_eq!(volume.read_file("/file")?, b"hello");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn truncate(&self, path: impl AsRef<[u8]>, size: u64) -> Result<()> {
        self.at_inode(path, true, |inode| {
            let set = SetAttributes {
                size: Some(size),
                ..Default::default()
            };
            self.engine()?.data.set_attributes(self.who(), inode, &set)
        })
    }

    /// The target of a symbolic link.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.symlink("usr/lib", "/lib")?;
    /// assert_eq!(volume.read_link("/lib")?, b"usr/lib");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.of_inode(path, |inode| {
            let engine = self.engine()?;
            let target = engine.names.symlink_target(inode)?;
            engine.inodes.accessed(inode);
            Ok(target.into_vec())
        })
    }

    /// All names of a directory, in the order of its hash.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create("/a", 0o600)?;
    /// let names: Vec<_> = volume.read_dir("/")?.into_iter().map(|e| e.name).collect();
    /// assert!(names.contains(&b"a".to_vec()));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_dir(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>> {
        self.read_dir_from(path, 0, usize::MAX)
    }

    /// Names after a cookie (0: from the start), at least `at_least` if there are so many; an empty
    /// answer is the end.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// for n in 0..100 {
    ///     volume.create(format!("/{n}"), 0o600)?;
    /// }
    /// let (mut cookie, mut seen) = (0, 0);
    /// loop {
    ///     let part = volume.read_dir_from("/", cookie, 10)?;
    ///     let Some(last) = part.last() else { break };
    ///     cookie = last.cookie;
    ///     seen += part.len();
    /// }
    /// assert_eq!(seen, 101); // and lost+found
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_dir_from(
        &self,
        path: impl AsRef<[u8]>,
        cookie: u64,
        at_least: usize,
    ) -> Result<Vec<DirEntry>> {
        let inode = self.walk(path, true)?;
        if inode.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        self.engine()?.inodes.permit(self.who(), &inode, READ)?;
        entries(self.engine()?, &inode, cookie, at_least)
    }

    /// Value of an extended attribute of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, SetXattr};
    /// volume.create("/file", 0o600)?;
    /// volume.set_xattr("/file", "user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(volume.get_xattr("/file", "user.origin")?, b"here");
    /// assert!(matches!(volume.get_xattr("/file", "user.none"), Err(Error::NoAttribute)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn get_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.of_inode(path, |inode| {
            self.engine()?
                .inodes
                .get_xattr(self.who(), inode, name.as_ref())
        })
    }

    /// Names of the extended attributes of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// volume.create("/file", 0o600)?;
    /// volume.set_xattr("/file", "user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(volume.list_xattrs("/file")?, [b"user.origin"]);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn list_xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>> {
        self.of_inode(path, |inode| {
            self.engine()?.inodes.list_xattrs(self.who(), inode)
        })
    }

    /// Sets an extended attribute of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// volume.create("/file", 0o600)?;
    /// volume.set_xattr("/file", "user.a", b"1", SetXattr::Create)?;
    /// volume.set_xattr("/file", "user.a", b"2", SetXattr::Replace)?;
    /// assert_eq!(volume.get_xattr("/file", "user.a")?, b"2");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        self.at_inode(path, false, |inode| {
            self.engine()?
                .inodes
                .set_xattr(self.who(), inode, name.as_ref(), Some(value), how)
        })
    }

    /// Removes an extended attribute of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// volume.create("/file", 0o600)?;
    /// volume.set_xattr("/file", "user.a", b"1", SetXattr::Any)?;
    /// volume.remove_xattr("/file", "user.a")?;
    /// assert!(volume.list_xattrs("/file")?.is_empty());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<()> {
        self.at_inode(path, false, |inode| {
            self.engine()?
                .inodes
                .set_xattr(self.who(), inode, name.as_ref(), None, SetXattr::Any)
        })
    }

    /// The whole content of a file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write_file("/file", b"data")?;
    /// assert_eq!(volume.read_file("/file")?, b"data");
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] when memory cannot hold it, besides what opening and reading return.
    pub fn read_file(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let file = self.open(path, OpenFlags::READ, 0)?;
        let size = file.stat()?.size;
        let no_memory = || Error::Io {
            context: format!("memory for a file of {size} bytes"),
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        let len = usize::try_from(size).map_err(|_| no_memory())?;
        let mut content = Vec::new();
        // The size is what the disk says.
        content.try_reserve_exact(len).map_err(|_| no_memory())?;
        content.resize(len, 0);
        let n = file.read_at(0, &mut content)?;
        content.truncate(n);
        Ok(content)
    }

    /// Makes or replaces a file with this content.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write_file("/file", b"first, and long")?;
    /// volume.write_file("/file", b"second")?;
    /// assert_eq!(volume.read_file("/file")?, b"second");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn write_file(&self, path: impl AsRef<[u8]>, content: &[u8]) -> Result<()> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
        self.open(path, flags, 0o644)?.write_all_at(0, content)
    }
}

impl Dir {
    /// Opens a regular file by inode number; for servers that keep numbers.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::OpenFlags;
    /// volume.write_file("/file", b"data")?;
    /// let ino = volume.stat("/file")?.ino;
    /// let file = volume.open_ino(ino, OpenFlags::READ)?;
    /// assert_eq!(file.stat()?.size, 4);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn open_ino(&self, ino: u32, flags: OpenFlags) -> Result<File> {
        let inode = self.engine()?.inodes.inode_in_use(InodeNr(ino))?;
        self.engine()?.lifecycle.opened(&inode)?;
        self.finish_open(self.handle(inode, flags), false)
    }

    /// Opens a directory by inode number, to work from; for callers that keep numbers.
    /// [`Volume::node`](crate::Volume::node) reaches inodes that are no directory, or have no name.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let ino = volume.create_dir("/dir", 0o755)?.ino();
    /// let dir = volume.open_dir_ino(ino)?;
    /// dir.create("file", 0o644)?;
    /// assert!(volume.stat("/dir/file").is_ok());
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if the number's inode was removed, [`Error::NotDirectory`] if it is no directory.
    pub fn open_dir_ino(&self, ino: u32) -> Result<Self> {
        let inode = self.engine()?.inodes.inode_in_use(InodeNr(ino))?;
        if inode.directory().is_none() {
            return Err(Error::NotDirectory);
        }
        Ok(self.to(inode))
    }
}

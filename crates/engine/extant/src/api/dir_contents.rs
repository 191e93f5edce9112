//! Contents by path: metadata, the target of a link, extended attributes.

use super::bytes;
use super::dir::Dir;
use crate::base::error::{Error, Result};
use crate::inodes::attributes::{Metadata, SetAttributes};
use crate::inodes::xattrs::SetXattr;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Dir {
    fn metadata_of(&self, path: &[u8], follow: bool) -> Result<Metadata> {
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

    /// Returns the metadata of a path. A last symbolic link is followed.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", b"data")?;
    /// let stat = volume.metadata("/file")?;
    /// assert_eq!((stat.len(), stat.uid(), stat.nlink()), (4, 0, 1));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(bytes(&path), true)
    }

    /// Returns the metadata of the name itself: a last symbolic link is not followed.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, FileType};
    /// volume.symlink("nowhere", "/link")?;
    /// assert_eq!(volume.symlink_metadata("/link")?.file_type(), FileType::Symlink);
    /// assert!(matches!(volume.metadata("/link"), Err(Error::NotFound)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(bytes(&path), false)
    }

    /// Returns true if a path leads to an inode. A symbolic link that leads nowhere does not.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert!(volume.exists("/lost+found")? && !volume.exists("/none")?);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// Errors that leave the question open, such as a directory on the way that may not be searched.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(Error::NotFound) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Changes permissions, set-id and sticky bits; a last symbolic link is followed.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", "data")?;
    /// volume.set_permissions("/file", 0o400)?;
    /// assert_eq!(volume.metadata("/file")?.mode() & 0o7777, 0o400);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let set = SetAttributes {
            mode: Some(super::mode_bits(mode)),
            ..Default::default()
        };
        self.set_attributes(path, &set)
    }

    /// Changes attributes; a last symbolic link is followed.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{SetAttributes, Timestamp};
    /// volume.create_new_file("/file")?;
    /// let set = SetAttributes {
    ///     mode: Some(0o644),
    ///     uid: Some(1000),
    ///     mtime: Some(Timestamp::new(1_700_000_000, 5).into()),
    ///     ..Default::default()
    /// };
    /// volume.set_attributes("/file", &set)?;
    /// assert_eq!(volume.metadata("/file")?.mtime().nanos(), 5);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_attributes(&self, path: impl AsRef<Path>, set: &SetAttributes) -> Result<()> {
        self.at_inode(bytes(&path), true, |inode| {
            self.engine()?.names.set_attributes(self.who(), inode, set)
        })
    }

    /// Changes attributes of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetAttributes;
    /// volume.symlink("nowhere", "/link")?;
    /// let set = SetAttributes { uid: Some(1000), ..Default::default() };
    /// volume.set_symlink_attributes("/link", &set)?;
    /// assert_eq!(volume.symlink_metadata("/link")?.uid(), 1000);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_symlink_attributes(
        &self,
        path: impl AsRef<Path>,
        set: &SetAttributes,
    ) -> Result<()> {
        self.at_inode(bytes(&path), false, |inode| {
            self.engine()?.names.set_attributes(self.who(), inode, set)
        })
    }

    /// Sets the size of a file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", b"hello, world")?;
    /// volume.set_len("/file", 5)?;
    /// assert_eq!(volume.read("/file")?, b"hello");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_len(&self, path: impl AsRef<Path>, size: u64) -> Result<()> {
        self.at_inode(bytes(&path), true, |inode| {
            let set = SetAttributes {
                size: Some(size),
                ..Default::default()
            };
            self.engine()?.names.set_attributes(self.who(), inode, &set)
        })
    }

    /// Returns the target of a symbolic link.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.symlink("usr/lib", "/lib")?;
    /// assert_eq!(volume.read_link("/lib")?.to_str(), Some("usr/lib"));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.of_inode(bytes(&path), false, |inode| {
            let engine = self.engine()?;
            let target = engine.names.symlink_target(inode)?;
            engine.inodes.accessed(inode);
            Ok(OsString::from_vec(target.into_vec()).into())
        })
    }

    /// Returns the value of an extended attribute of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, SetXattr};
    /// volume.create_new_file("/file")?;
    /// volume.set_xattr("/file", "user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(volume.get_xattr("/file", "user.origin")?, b"here");
    /// assert!(matches!(volume.get_xattr("/file", "user.none"), Err(Error::NoAttribute)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        self.of_inode(bytes(&path), false, |inode| {
            self.engine()?
                .inodes
                .get_xattr(self.who(), inode, name.as_ref().as_bytes())
        })
    }

    /// Returns the names of the extended attributes of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// volume.create_new_file("/file")?;
    /// volume.set_xattr("/file", "user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(volume.list_xattrs("/file")?, ["user.origin"]);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let names = self.of_inode(bytes(&path), false, |inode| {
            self.engine()?.inodes.list_xattrs(self.who(), inode)
        })?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Sets an extended attribute of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// volume.create_new_file("/file")?;
    /// volume.set_xattr("/file", "user.a", b"1", SetXattr::Create)?;
    /// volume.set_xattr("/file", "user.a", b"2", SetXattr::Replace)?;
    /// assert_eq!(volume.get_xattr("/file", "user.a")?, b"2");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        self.at_inode(bytes(&path), false, |inode| {
            self.engine()?.inodes.set_xattr(
                self.who(),
                inode,
                name.as_ref().as_bytes(),
                Some(value),
                how,
            )
        })
    }

    /// Removes an extended attribute of the name itself.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// volume.create_new_file("/file")?;
    /// volume.set_xattr("/file", "user.a", b"1", SetXattr::Any)?;
    /// volume.remove_xattr("/file", "user.a")?;
    /// assert!(volume.list_xattrs("/file")?.is_empty());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.at_inode(bytes(&path), false, |inode| {
            self.engine()?.inodes.set_xattr(
                self.who(),
                inode,
                name.as_ref().as_bytes(),
                None,
                SetXattr::Any,
            )
        })
    }
}

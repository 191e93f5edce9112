//! Access control lists as values. [`Dir::get_xattr`] returns them as the bytes that system calls exchange.

use super::bytes;
use super::dir::Dir;
use super::file::File;
use crate::base::error::Result;
use crate::inodes::xattrs::{ACCESS, DEFAULT, SetXattr};
use ext4_format::acl::Acl;
use std::path::Path;

impl Dir {
    /// Returns the access ACL of the file or directory that a path leads to. Without an ACL, the mode is returned as
    /// one.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_new_file("/file")?;
    /// volume.set_permissions("/file", 0o640)?;
    /// assert_eq!(volume.acl("/file")?.to_string(), "user::rw-,group::r--,other::---");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn acl(&self, path: impl AsRef<Path>) -> Result<Acl> {
        self.of_inode(bytes(&path), true, |inode| {
            self.engine()?.inodes.access_acl(self.who(), inode)
        })
    }

    /// Sets the access ACL of the file or directory that a path leads to. The permission bits follow.
    ///
    /// # Errors
    /// `NotPermitted` for others than its owner.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::acl::{READ, Tag, WRITE};
    /// volume.create_new_file("/file")?;
    /// volume.set_permissions("/file", 0o640)?;
    /// let mut acl = volume.acl("/file")?;
    /// acl.set(Tag::User(1000), READ | WRITE);
    /// volume.set_acl("/file", &acl)?;
    /// assert_eq!(volume.acl("/file")?, acl);
    /// // As stat(2) has it, the bits of the group are the most that anyone named gets.
    /// assert_eq!(volume.metadata("/file")?.mode() & 0o777, 0o670);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_acl(&self, path: impl AsRef<Path>, acl: &Acl) -> Result<()> {
        self.change_acl(path.as_ref(), ACCESS, Some(acl))
    }

    /// Returns the list that new files and directories in a directory begin with, if it has one.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_dir("/dir")?;
    /// assert!(volume.default_acl("/dir")?.is_none());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn default_acl(&self, path: impl AsRef<Path>) -> Result<Option<Acl>> {
        self.of_inode(bytes(&path), true, |inode| {
            self.engine()?.inodes.default_acl(self.who(), inode)
        })
    }

    /// Sets the list that new files and directories in a directory begin with. `None` removes it.
    ///
    /// # Errors
    /// `NotPermitted` for other callers than the owner, `PermissionDenied` if the path does not lead to a directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::acl::{Acl, READ, Tag};
    /// volume.create_dir("/dir")?;
    /// let mut acl = Acl::from_mode(0o750);
    /// acl.set(Tag::Group(100), READ);
    /// volume.set_default_acl("/dir", Some(&acl))?;
    /// volume.create_new_file("/dir/file")?;
    /// assert!(volume.acl("/dir/file")?.to_string().contains("group:100:r--"));
    /// volume.set_default_acl("/dir", None)?;
    /// assert!(volume.default_acl("/dir")?.is_none());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_default_acl(&self, path: impl AsRef<Path>, acl: Option<&Acl>) -> Result<()> {
        self.change_acl(path.as_ref(), DEFAULT, acl)
    }

    fn change_acl(&self, path: &Path, which: &[u8], acl: Option<&Acl>) -> Result<()> {
        let value = acl.map(Acl::to_xattr);
        self.at_inode(bytes(&path), true, |inode| {
            self.engine()?.inodes.set_xattr(
                self.who(),
                inode,
                which,
                value.as_deref(),
                SetXattr::Any,
            )
        })
    }
}

impl File {
    /// Returns the access ACL of the file. Without an ACL, the mode is returned as one.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::acl::Acl;
    /// let file = volume.create_new_file("/file")?;
    /// file.set_acl(&Acl::from_mode(0o604))?;
    /// assert_eq!(file.acl()?.mode(), 0o604);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn acl(&self) -> Result<Acl> {
        let (engine, who, inode) = self.called()?;
        engine.inodes.access_acl(who, inode)
    }

    /// Sets the access ACL of the file. The permission bits follow. [`Self::acl`] has an example.
    ///
    /// # Errors
    /// `NotPermitted` for others than its owner.
    pub fn set_acl(&self, acl: &Acl) -> Result<()> {
        let (engine, who, inode) = self.called()?;
        let value = acl.to_xattr();
        engine
            .inodes
            .set_xattr(who, inode, ACCESS, Some(&value), SetXattr::Any)
    }
}

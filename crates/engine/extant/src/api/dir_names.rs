//! Making, moving and removing names below a directory.

use super::dir::Dir;
use super::file::File;
use super::open_options::OpenFlags;
use super::{DIR_MODE, bytes, mode_bits};
use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::new_inode::NewInode;
use crate::names::create::{CreateOptions, new_name};
use crate::names::rename::RenameMode;
use ext4_format::FileType;
use extant_formatter::name::NameRef;
use std::path::Path;
use std::sync::Arc;

impl Dir {
    fn make(&self, path: &[u8], what: &NewInode<'_>, mode: u16) -> Result<Arc<Inode>> {
        self.at_parent(path, |dir, name| {
            if path.ends_with(b"/") && !matches!(what, NewInode::Directory) {
                return Err(Error::NotFound);
            }
            let how = CreateOptions {
                mode,
                exclusive: true,
                open: false,
            };
            Ok(self
                .engine()?
                .names
                .create(self.who(), dir, new_name(name)?, what, how)?
                .0)
        })
    }

    /// Makes a directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let etc = volume.create_dir("/etc")?;
    /// etc.write("motd", b"hello\n")?;
    /// assert_eq!(volume.read("/etc/motd")?, b"hello\n");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<Self> {
        self.create_dir_with_mode(path, DIR_MODE.into())
    }

    /// Makes a directory with these permissions, less the caller's umask.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_dir_with_mode("/root", 0o700)?;
    /// assert_eq!(volume.metadata("/root")?.mode() & 0o777, 0o700);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create_dir_with_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<Self> {
        let inode = self.make(bytes(&path), &NewInode::Directory, mode_bits(mode))?;
        Ok(self.to(inode))
    }

    /// Makes a symbolic link that points to `target`.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/file", b"data")?;
    /// volume.symlink("file", "/link")?;
    /// assert_eq!(volume.read("/link")?, b"data");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        self.make(bytes(&path), &NewInode::Symlink(bytes(&target)), 0o777)
            .map(|_| ())
    }

    /// Makes a device, FIFO or socket; `rdev` counts for devices only.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::FileType;
    /// use ext4_format::inode::makedev;
    /// volume.mknod("/null", FileType::CharDevice, 0o666, makedev(1, 3))?;
    /// assert_eq!(volume.metadata("/null")?.rdev(), makedev(1, 3));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn mknod(
        &self,
        path: impl AsRef<Path>,
        file_type: FileType,
        mode: u32,
        rdev: u32,
    ) -> Result<()> {
        let what = NewInode::special(file_type, rdev)?;
        self.make(bytes(&path), &what, mode_bits(mode)).map(|_| ())
    }

    fn check_same_volume(&self, other: &Self) -> Result<()> {
        if !Arc::ptr_eq(self.caller.any_engine(), other.caller.any_engine()) {
            return Err(Error::CrossDevice);
        }
        Ok(())
    }

    /// Adds the name `new` to the inode that `old` leads to. A symbolic link at `old` is not followed.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.create_new_file("/a")?;
    /// volume.hard_link("/a", "/b")?;
    /// assert_eq!(volume.metadata("/a")?.nlink(), 2);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn hard_link(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        self.hard_link_from(self, old, new)
    }

    /// Like [`hard_link`](Self::hard_link), where `old` starts at another directory of the volume, as with linkat. No
    /// path has to lead from one to the other.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let (a, b) = (volume.create_dir("/a")?, volume.create_dir("/b")?);
    /// a.create_new_file("file")?;
    /// b.hard_link_from(&a, "file", "again")?;
    /// assert_eq!(volume.metadata("/b/again")?.nlink(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::CrossDevice`] for a directory of another volume, and whatever [`hard_link`](Self::hard_link) returns.
    pub fn hard_link_from(
        &self,
        from: &Self,
        old: impl AsRef<Path>,
        new: impl AsRef<Path>,
    ) -> Result<()> {
        self.check_same_volume(from)?;
        from.at_inode(bytes(&old), false, |inode| {
            self.at_parent(bytes(&new), |dir, name| {
                self.engine()?.names.link(self.who(), inode, dir, name)
            })
        })
    }

    /// Makes a regular file without a name in this directory, and opens it for reading and writing. The file is freed
    /// when it is closed, or after a crash, unless [`link_file`](Self::link_file) names it.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_unnamed(0o644)?;
    /// file.write_all_at(b"whole or not at all", 0)?;
    /// volume.link_file(&file, "/report")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_unnamed(&self, mode: u32) -> Result<File> {
        let inode =
            self.engine()?
                .names
                .create_unnamed(self.who(), &self.inode, mode_bits(mode))?;
        Ok(self.handle(inode, OpenFlags::READ | OpenFlags::WRITE))
    }

    /// Adds a name to an open file, or its first name if it was made without one.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::RenameMode;
    /// let file = volume.create_new_file("/a")?;
    /// volume.rename("/a", "/elsewhere")?;
    /// volume.link_file(&file, "/b")?;
    /// assert_eq!(file.metadata()?.nlink(), 2);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if all its names were removed, [`Error::CrossDevice`] for a file of another volume.
    pub fn link_file(&self, file: &File, path: impl AsRef<Path>) -> Result<()> {
        if !file.is_of(self.caller.any_engine()) {
            return Err(Error::CrossDevice);
        }
        self.at_parent(bytes(&path), |dir, name| {
            self.engine()?
                .names
                .link(self.who(), file.inode(), dir, name)
        })
    }

    /// Removes a name of anything but a directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::Error;
    /// let file = volume.create_new_file("/temporary")?;
    /// volume.remove_file("/temporary")?;
    /// assert!(matches!(volume.metadata("/temporary"), Err(Error::NotFound)));
    /// // It stays until it is closed.
    /// file.append(b"still here")?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = bytes(&path);
        // The common case needs no walk. It checks that the caller may search the directory.
        if NameRef::new(path).is_ok() {
            return self.engine()?.names.unlink(self.who(), &self.inode, path);
        }
        let unlink = |dir: &Arc<Inode>, name: &[u8]| {
            if path.ends_with(b"/") {
                let inode = self.engine()?.names.lookup(dir, name)?;
                return Err(if inode.directory().is_some() {
                    Error::IsDirectory
                } else {
                    Error::NotDirectory
                });
            }
            self.engine()?.names.unlink(self.who(), dir, name)
        };
        self.at_parent(path, unlink).map_err(|e| match e {
            Error::Exists => Error::IsDirectory,
            other => other,
        })
    }

    /// Removes an empty directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::Error;
    /// volume.create_dir("/dir")?;
    /// volume.create_new_file("/dir/file")?;
    /// assert!(matches!(volume.remove_dir("/dir"), Err(Error::NotEmpty)));
    /// volume.remove_file("/dir/file")?;
    /// volume.remove_dir("/dir")?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.at_parent(bytes(&path), |dir, name| {
            self.engine()?.names.rmdir(self.who(), dir, name)
        })
        .map_err(|e| match e {
            Error::Exists => Error::Busy("the root directory cannot be removed"),
            other => other,
        })
    }

    /// Moves a name; what the new one led to before is replaced.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// volume.write("/a", b"one")?;
    /// volume.write("/b", b"two")?;
    /// volume.rename("/a", "/b")?;
    /// assert_eq!(volume.read("/b")?, b"one");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn rename(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        self.rename_with(old, new, RenameMode::Replace)
    }

    /// Moves a name in the given mode, like renameat2(2).
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, RenameMode};
    /// volume.write("/a", b"one")?;
    /// volume.write("/b", b"two")?;
    /// assert!(matches!(volume.rename_with("/a", "/b", RenameMode::NoReplace), Err(Error::Exists)));
    /// volume.rename_with("/a", "/b", RenameMode::Exchange)?;
    /// assert_eq!(volume.read("/a")?, b"two");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn rename_with(
        &self,
        old: impl AsRef<Path>,
        new: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_from(self, old, new, mode)
    }

    /// Like [`rename_with`](Self::rename_with), where `old` starts at another directory of the volume, as with
    /// renameat2(2). No path has to lead from one to the other.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::RenameMode;
    /// let (a, b) = (volume.create_dir("/a")?, volume.create_dir("/b")?);
    /// a.create_new_file("file")?;
    /// b.rename_from(&a, "file", "moved", RenameMode::NoReplace)?;
    /// assert!(volume.exists("/b/moved")?);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::CrossDevice`] for a directory of another volume, and whatever [`rename_with`](Self::rename_with) returns.
    pub fn rename_from(
        &self,
        from: &Self,
        old: impl AsRef<Path>,
        new: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        self.check_same_volume(from)?;
        let (old, new) = (bytes(&old), bytes(&new));
        let moved = from.at_parent(old, |old_dir, old_name| {
            if old.ends_with(b"/") || new.ends_with(b"/") {
                let source = self.engine()?.names.lookup(old_dir, old_name)?;
                if source.directory().is_none() {
                    return Err(Error::NotDirectory);
                }
            }
            // Ask first, because a second root in the way is a different error from an existing name.
            let is_root = !new.is_empty() && new.iter().all(|&b| b == b'/');
            if is_root {
                return Err(Error::Busy("the root directory cannot be renamed"));
            }
            self.at_parent(new, |new_dir, new_name| {
                self.engine()?.names.rename(
                    self.who(),
                    (old_dir, old_name),
                    (new_dir, new_name),
                    mode,
                )
            })
        });
        match moved {
            Err(Error::Exists) if old.iter().all(|&b| b == b'/') => {
                Err(Error::Busy("the root directory cannot be renamed"))
            }
            other => other,
        }
    }
}

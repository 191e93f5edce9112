//! Operations by inode, for servers that get names one at a time and numbers instead of paths.

use super::open_options::{OpenFlags, check_open};
use super::volume::Volume;
use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::attributes::{Metadata, SetAttributes};
use crate::inodes::new_inode::NewInode;
use crate::inodes::xattrs::SetXattr;
use crate::names::create::{CreateOptions, new_name};
use crate::names::rename::RenameMode;
use crate::types::credentials::Credentials;
use crate::types::dentry::Dentry;
use crate::volume::caller::EngineShare;
use crate::volume::engine::Engine;
use ext4_format::inode::flags;
use ext4_format::{FileType, InodeNr};
use std::fmt;
use std::sync::Arc;

/// The kinds of inodes that [`Node::make`] makes.
///
/// ```
/// use extant::unstable::MakeNode;
/// use extant::FileType;
/// let null = MakeNode::Special(FileType::CharDevice, 0x103);
/// assert_ne!(null, MakeNode::Symlink(b"/dev/null"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeNode<'a> {
    /// An empty regular file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A device (with its number, as [`Metadata::rdev`] shows it), FIFO or socket.
    Special(FileType, u32),
}

/// A name that [`Node::list`] shows.
///
/// ```
/// # let volume = extant::doc_volume();
/// use extant::unstable::Node;
/// let names = Node::root(&volume)?.list(0, 1)?;
/// assert_eq!(names[0].name, b"lost+found");
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode it leads to.
    pub ino: u32,
    /// Type of that inode.
    pub file_type: FileType,
    /// Position in the directory. Listing from here returns the names after this one, even if names before it were
    /// added or removed meanwhile.
    pub cookie: u64,
}

impl NodeEntry {
    /// Returns the names of a directory after a cookie.
    pub(super) fn list(
        engine: &Engine,
        dir: &Arc<Inode>,
        cookie: u64,
        at_least: usize,
    ) -> Result<Vec<Self>> {
        let entry = |e: Dentry| Self {
            cookie: e.hash.cookie(),
            name: e.name.as_bytes().to_vec(),
            ino: e.ino.0,
            file_type: e.ftype,
        };
        let names = engine.names.list(dir, cookie, at_least)?;
        engine.inodes.accessed(dir);
        Ok(names.into_iter().map(entry).collect())
    }
}

/// An inode, held: after its last name is removed it stays usable until its last node, and the last
/// [`File`](crate::File) opened on it, is dropped. Cheap to clone. Operations take their caller, and check the
/// caller's rights.
///
/// A node does not keep the volume open: when the volume is closed, every operation fails with [`Error::Stale`].
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// use extant::unstable::{MakeNode, Node};
/// use extant::Credentials;
/// let who = Credentials::root();
/// let root = Node::root(&volume)?;
/// let dir = root.make(&who, b"dir", MakeNode::Directory, 0o755)?;
/// let (file, made) = dir.create(&who, b"file", 0o644, false)?;
/// assert!(made);
/// file.write_at(&who, b"data", 0)?;
/// dir.unlink(&who, b"file")?;
/// let mut data = [0; 4];
/// assert_eq!(file.read_at(&mut data, 0)?, 4);
/// assert_eq!(file.metadata()?.nlink(), 0);
/// # Ok(())
/// # }
/// ```
pub struct Node {
    pub(super) inode: Arc<Inode>,
    share: EngineShare,
}

impl Node {
    /// Makes a node for an inode that counts it already.
    fn of(engine: &Arc<Engine>, inode: Arc<Inode>) -> Self {
        Self {
            inode,
            share: engine.share(),
        }
    }

    /// Returns the root directory.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// assert_eq!(Node::root(&volume)?.ino(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn root(volume: &Volume) -> Result<Self> {
        Self::of_number(volume, InodeNr::ROOT.0)
    }

    /// Returns the inode of a number, which must be in use, for servers that are asked by number. [`Node::generation`]
    /// shows whether it is the inode that had the number when the server learned it.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{FileType, unstable::Node};
    /// let ino = volume.create_new_file("/file")?.ino();
    /// assert_eq!(Node::of_number(&volume, ino)?.file_type(), FileType::Regular);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::StaleInode`] if no inode has the number, or its inode was removed.
    pub fn of_number(volume: &Volume, ino: u32) -> Result<Self> {
        Self::of_engine(&volume.guard.engine, ino)
    }

    pub(super) fn of_engine(engine: &Arc<Engine>, ino: u32) -> Result<Self> {
        engine.store.check_here()?;
        let inode = engine.lifecycle.open_number(InodeNr(ino))?;
        Ok(Self::of(engine, inode))
    }

    pub(super) fn engine(&self) -> Result<&Arc<Engine>> {
        self.share.store.check_here()?;
        Ok(&self.share)
    }

    /// Returns the inode number.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// assert_eq!(Node::root(&volume)?.ino(), 2);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn ino(&self) -> u32 {
        self.inode.ino.0
    }

    /// Returns the generation of the number. Number and generation together identify one inode for ever.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// let (ino, generation) = (file.ino(), file.generation());
    /// assert_eq!(Node::of_number(&volume, ino)?.generation(), generation);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn generation(&self) -> u32 {
        self.inode.state.lock().core.generation
    }

    /// Returns the type of the inode.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::FileType;
    /// assert_eq!(Node::root(&volume)?.file_type(), FileType::Directory);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn file_type(&self) -> FileType {
        self.inode.ftype
    }

    /// Returns the metadata. Only memory is read.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.write_at(&who, b"data", 0)?;
    /// assert_eq!(file.metadata()?.len(), 4);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(self.engine()?.inodes.attributes(&self.inode))
    }

    /// Returns the inode that a name of this directory leads to. The names "." and ".." are allowed.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// let who = extant::Credentials::root();
    /// volume.create_dir("/dir")?;
    /// let root = Node::root(&volume)?;
    /// let dir = root.lookup(&who, b"dir")?;
    /// assert_eq!(dir.lookup(&who, b"..")?.ino(), root.ino());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] if the name does not exist.
    pub fn lookup(&self, who: &Credentials, name: &[u8]) -> Result<Self> {
        if name.is_empty() {
            return Err(Error::NotFound);
        }
        let engine = self.engine()?;
        let inode = engine.names.lookup_to_hold(who, &self.inode, name)?;
        Ok(Self::of(engine, inode))
    }

    /// Makes an inode under a name of this directory that must be free.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::{MakeNode, Node};
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// root.make(&who, b"dir", MakeNode::Directory, 0o755)?;
    /// let link = root.make(&who, b"link", MakeNode::Symlink(b"dir"), 0o777)?;
    /// assert_eq!(&*link.read_link()?, b"dir");
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if the name exists; [`Error::NotPermitted`] for a device if the caller is not root.
    pub fn make(
        &self,
        who: &Credentials,
        name: &[u8],
        what: MakeNode<'_>,
        mode: u16,
    ) -> Result<Self> {
        let what = match what {
            MakeNode::File => NewInode::File,
            MakeNode::Directory => NewInode::Directory,
            MakeNode::Symlink(target) => NewInode::Symlink(target),
            MakeNode::Special(file_type, rdev) => NewInode::special(file_type, rdev)?,
        };
        let how = CreateOptions {
            mode,
            exclusive: true,
            open: true,
        };
        let engine = self.engine()?;
        let name = new_name(name)?;
        let (inode, _) = engine.names.create(who, &self.inode, name, &what, how)?;
        Ok(Self::of(engine, inode))
    }

    /// Makes a regular file, or finds the existing one unless `exclusive` is set. The flag is true if the file was
    /// made. A caller that opens an existing file calls [`Node::check_open`].
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, made) = root.create(&who, b"file", 0o600, false)?;
    /// let (again, made_again) = root.create(&who, b"file", 0o600, false)?;
    /// assert!(made && !made_again && file.ino() == again.ino());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn create(
        &self,
        who: &Credentials,
        name: &[u8],
        mode: u16,
        exclusive: bool,
    ) -> Result<(Self, bool)> {
        let how = CreateOptions {
            mode,
            exclusive,
            open: true,
        };
        let engine = self.engine()?;
        let (inode, made) =
            engine
                .names
                .create(who, &self.inode, new_name(name)?, &NewInode::File, how)?;
        Ok((Self::of(engine, inode), made))
    }

    /// Makes a regular file without a name, as it would be made in this directory (`O_TMPFILE`). The file is freed with
    /// its last node, or after a crash, unless it is given a name.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// let who = extant::Credentials::root();
    /// let top = Node::root(&volume)?;
    /// let file = top.make_unnamed(&who, 0o600)?;
    /// file.write_at(&who, b"all of it", 0)?;
    /// file.link(&who, &top, b"name")?;
    /// assert_eq!(volume.read("/name")?, b"all of it");
    /// # Ok(())
    /// # }
    /// ```
    pub fn make_unnamed(&self, who: &Credentials, mode: u16) -> Result<Self> {
        let engine = self.engine()?;
        let inode = engine.names.create_unnamed(who, &self.inode, mode)?;
        Ok(Self::of(engine, inode))
    }

    /// Adds a name for this inode in `dir`, or its first name if it was made without one.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.link(&who, &root, b"again")?;
    /// assert_eq!(file.metadata()?.nlink(), 2);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn link(&self, who: &Credentials, dir: &Self, name: &[u8]) -> Result<()> {
        self.same_volume(dir)?
            .names
            .link(who, &self.inode, &dir.inode, name)
    }

    /// Removes a name of this directory, of anything but a directory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// root.unlink(&who, b"file")?;
    /// assert_eq!(file.metadata()?.nlink(), 0);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn unlink(&self, who: &Credentials, name: &[u8]) -> Result<()> {
        self.engine()?.names.unlink(who, &self.inode, name)
    }

    /// Removes an empty directory in this one.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::{MakeNode, Node};
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// root.make(&who, b"dir", MakeNode::Directory, 0o755)?;
    /// root.remove_dir(&who, b"dir")?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_dir(&self, who: &Credentials, name: &[u8]) -> Result<()> {
        self.engine()?.names.rmdir(who, &self.inode, name)
    }

    /// Moves a name of this directory to `to`, which may be this one too.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, RenameMode};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// root.rename(&who, b"file", &root, b"moved", RenameMode::NoReplace)?;
    /// assert_eq!(root.lookup(&who, b"moved")?.ino(), file.ino());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn rename(
        &self,
        who: &Credentials,
        name: &[u8],
        to: &Self,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.same_volume(to)?
            .names
            .rename(who, (&self.inode, name), (&to.inode, new_name), mode)
    }

    pub(super) fn same_volume(&self, other: &Self) -> Result<&Arc<Engine>> {
        if !Arc::ptr_eq(&self.share, &other.share) && !Arc::ptr_eq(&**self.share, &**other.share) {
            return Err(Error::CrossDevice);
        }
        self.engine()
    }

    /// Returns names of this directory after a cookie (0: from the start): at least `at_least` names, if that many
    /// exist. An empty answer is the end. Names with equal cookies are returned together. "." and ".." are not among
    /// them, and cookies 1 and 2 are left for them. A caller that lists calls [`Node::check_open`] once.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// let names = root.list(0, usize::MAX)?;
    /// assert!(names.iter().any(|e| e.name == b"file" && e.ino == file.ino()));
    /// let last = names.last().expect("there are some").cookie;
    /// assert!(root.list(last, 1)?.is_empty());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn list(&self, cookie: u64, at_least: usize) -> Result<Vec<NodeEntry>> {
        NodeEntry::list(self.engine()?, &self.inode, cookie, at_least)
    }

    /// Returns the number of the directory above this one.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::{MakeNode, Node};
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let dir = root.make(&who, b"dir", MakeNode::Directory, 0o755)?;
    /// assert_eq!(dir.parent()?, root.ino());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn parent(&self) -> Result<u32> {
        Ok(self.engine()?.names.parent_of(&self.inode)?.0)
    }

    /// Returns the target of this symbolic link.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::{MakeNode, Node};
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let link = root.make(&who, b"lib", MakeNode::Symlink(b"usr/lib"), 0o777)?;
    /// assert_eq!(&*link.read_link()?, b"usr/lib");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_link(&self) -> Result<Box<[u8]>> {
        let engine = self.engine()?;
        let target = engine.names.symlink_target(&self.inode)?;
        engine.inodes.accessed(&self.inode);
        Ok(target)
    }

    /// Fails unless the caller has all the permissions of `mask` (4 read, 2 write, 1 execute or search), as access(2)
    /// does.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, Error};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// let other = Credentials::new(1000, 1000, &[]);
    /// assert!(matches!(file.check_access(&other, 4), Err(Error::PermissionDenied)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn check_access(&self, who: &Credentials, mask: u16) -> Result<()> {
        self.engine()?.inodes.check_access(who, &self.inode, mask)
    }

    /// Fails unless the caller may open the inode with these flags: by its permissions, and because an immutable file
    /// is not opened for writing, an append-only one only to append. The file is not cut, even if the flags ask for it.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::{Node, OpenFlags};
    /// use extant::{Credentials, Error};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.check_open(&who, OpenFlags::READ)?;
    /// assert!(matches!(root.check_open(&who, OpenFlags::WRITE), Err(Error::IsDirectory)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn check_open(&self, who: &Credentials, flags: OpenFlags) -> Result<()> {
        check_open(self.engine()?, who, &self.inode, flags)
    }

    /// Changes attributes.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, SetAttributes};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.set_attributes(&who, &SetAttributes { mode: Some(0o400), ..Default::default() })?;
    /// assert_eq!(file.metadata()?.mode() & 0o777, 0o400);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_attributes(&self, who: &Credentials, set: &SetAttributes) -> Result<()> {
        self.engine()?.names.set_attributes(who, &self.inode, set)
    }

    /// Returns true if this directory ignores the case of names: then the result of one look-up also holds for other
    /// spellings.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// assert!(!Node::root(&volume)?.folds_case());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn folds_case(&self) -> bool {
        self.inode.has_flag(flags::CASEFOLD)
    }

    /// Removes the privileges of a program file: set-user-id, set-group-id where it means execution, capabilities.
    /// For servers whose kernel asks for it (FUSE's `KILL_SUIDGID`); [`Node::write_at`] and [`Node::truncate`] do so
    /// themselves when the caller is not root. True if the mode has changed.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, SetAttributes};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.set_attributes(&who, &SetAttributes { mode: Some(0o4755), ..Default::default() })?;
    /// assert!(file.strip_privileges(&Credentials::new(1000, 1000, &[]))?);
    /// assert_eq!(file.metadata()?.mode() & 0o7777, 0o755);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) for an immutable file, and for an append-only one with such bits.
    pub fn strip_privileges(&self, who: &Credentials) -> Result<bool> {
        self.engine()?.inodes.strip_privileges(who, &self.inode)
    }

    /// Removes the set-group-id bit, as setting an access ACL does for a caller that is not in the group.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, SetAttributes};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.set_attributes(&who, &SetAttributes { mode: Some(0o2755), ..Default::default() })?;
    /// file.clear_set_group_id()?;
    /// assert_eq!(file.metadata()?.mode() & 0o7777, 0o755);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn clear_set_group_id(&self) -> Result<()> {
        let engine = self.engine()?;
        engine.store.check_writable()?;
        engine.inodes.clear_mode(&self.inode, |_| 0o2000).map(drop)
    }

    /// Returns the value of an extended attribute.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, SetXattr};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.set_xattr(&who, b"user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(file.get_xattr(&who, b"user.origin")?, b"here");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn get_xattr(&self, who: &Credentials, name: &[u8]) -> Result<Vec<u8>> {
        self.engine()?.inodes.get_xattr(who, &self.inode, name)
    }

    /// Returns the names of the extended attributes.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, SetXattr};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.set_xattr(&who, b"user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(file.list_xattrs(&who)?, [b"user.origin"]);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn list_xattrs(&self, who: &Credentials) -> Result<Vec<Vec<u8>>> {
        self.engine()?.inodes.list_xattrs(who, &self.inode)
    }

    /// Sets an extended attribute.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, SetXattr};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.set_xattr(&who, b"user.a", b"1", SetXattr::Create)?;
    /// file.set_xattr(&who, b"user.a", b"2", SetXattr::Replace)?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_xattr(
        &self,
        who: &Credentials,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        self.engine()?
            .inodes
            .set_xattr(who, &self.inode, name, Some(value), how)
    }

    /// Removes an extended attribute.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, SetXattr};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.set_xattr(&who, b"user.a", b"1", SetXattr::Any)?;
    /// file.remove_xattr(&who, b"user.a")?;
    /// assert!(file.list_xattrs(&who)?.is_empty());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_xattr(&self, who: &Credentials, name: &[u8]) -> Result<()> {
        self.engine()?
            .inodes
            .set_xattr(who, &self.inode, name, None, SetXattr::Any)
    }
}

impl Clone for Node {
    fn clone(&self) -> Self {
        // The inode is held already, so no other thread can free it now.
        self.inode.handles.add(1);
        Self::of(&self.share, Arc::clone(&self.inode))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(e) = self.share.lifecycle.closed(&self.inode) {
            tracing::error!(ino = self.inode.ino.0, error = %e, "freeing a removed file at its last node");
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.inode.ftype {
            FileType::Directory => "Directory",
            _ => "Node",
        };
        write!(f, "{name}({})", self.inode.ino.0)
    }
}

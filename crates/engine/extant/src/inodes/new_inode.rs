//! New inodes.

use crate::base::error::{Error, Result};
use crate::base::fixed_time;
use crate::incore::inode::FAST_SYMLINK_MAX;
use crate::incore::inode::Inode;
use crate::inodes::Inodes;
use crate::types::credentials::Credentials;
use ext4_format::FileType;
use ext4_format::inode::{self, InodeCore, flags};
use ext4_format::xattr::XattrSet;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inodes {
    /// Puts a newborn inode where it is found: index and per-slot list. Call it in the commit that makes the inode, see
    /// [`InodeIndex::insert`](crate::incore::inode_index::InodeIndex::insert).
    #[inline(always)]
    pub(crate) fn insert(&self, inode: &Arc<Inode>) {
        self.enlist(inode);
        self.index.insert(Arc::clone(inode));
    }

    #[inline(always)]
    pub(crate) fn new_core(
        &self,
        who: &Credentials,
        parent: &Inode,
        what: &NewInode<'_>,
        mode: u16,
        time: ext4_format::timestamp::Timestamp,
    ) -> InodeCore {
        let (_, parent_gid, parent_mode) = parent.owner_and_mode();
        let ftype = what.ftype();
        let set_gid = parent_mode & 0o2000 != 0;
        let mut mode = mode & 0o7777;
        if set_gid && ftype == FileType::Directory {
            mode |= 0o2000;
        } else if set_gid
            && mode & 0o2010 == 0o2010
            && !who.is_unbound()
            && !who.in_group(parent_gid)
        {
            // A caller that is not in a group cannot make a program that runs as that group.
            mode &= !0o2000;
        }
        let inherited = parent.flags.load(Ordering::Relaxed) & flags::INHERITED;
        let by_extents = self.store.geometry.first().features.has_extents();
        let mapped = matches!(what, NewInode::File | NewInode::Directory)
            || matches!(what, NewInode::Symlink(target) if target.len() > FAST_SYMLINK_MAX);
        InodeCore {
            mode: ftype.mode_bits() | mode,
            links: if ftype == FileType::Directory { 2 } else { 1 },
            uid: who.uid,
            gid: if set_gid { parent_gid } else { who.gid },
            size: match what {
                NewInode::Symlink(target) => target.len() as u64,
                _ => 0,
            },
            flags: flags::of_type(ftype, inherited)
                | if by_extents && mapped {
                    flags::EXTENTS
                } else {
                    0
                },
            generation: generation(),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            dtime: 0,
            rdev: match what {
                NewInode::Special(FileType::CharDevice | FileType::BlockDevice, rdev) => *rdev,
                _ => 0,
            },
            project: self.inherited_project(parent),
        }
    }

    /// Returns the project of a new inode: the directory's, if the directory passes it on.
    #[inline(always)]
    fn inherited_project(&self, parent: &Inode) -> u32 {
        let inherits = parent.has_flag(flags::PROJINHERIT);
        if inherits && inode::has_project_room(&[], &self.store.geometry) {
            parent.project()
        } else {
            0
        }
    }

    /// Returns the mode of a new inode, and the ACLs it takes over. A default ACL replaces the umask.
    #[inline]
    pub(crate) fn inherited_acls(
        &self,
        who: &Credentials,
        parent: &Inode,
        ftype: FileType,
        mode: u16,
    ) -> Result<(u16, Option<Arc<XattrSet>>)> {
        match ftype {
            FileType::Symlink => Ok((mode, None)),
            _ if !parent.has_acl.load(Ordering::Relaxed) => Ok((mode & !who.umask(), None)),
            _ => self.acls_of_parent(who, parent, ftype, mode),
        }
    }

    #[inline(never)]
    fn acls_of_parent(
        &self,
        who: &Credentials,
        parent: &Inode,
        ftype: FileType,
        mode: u16,
    ) -> Result<(u16, Option<Arc<XattrSet>>)> {
        let Some(default) = self.acl(parent, crate::inodes::xattrs::DEFAULT)? else {
            return Ok((mode & !who.umask(), None));
        };
        let access = default.inherit(mode);
        let mode = mode & !0o777 | access.mode();
        let mut set = XattrSet::default();
        if access.equivalent_mode().is_none() {
            set.set(crate::inodes::xattrs::ACCESS, &access.to_disk())?;
        }
        if ftype == FileType::Directory {
            set.set(crate::inodes::xattrs::DEFAULT, &default.to_disk())?;
        }
        Ok((mode, (!set.is_empty()).then(|| Arc::new(set))))
    }
}

thread_local! {
    /// Number of inodes that this thread has made, counted from a random number, or from one that follows from a fixed
    /// time.
    static MADE: Cell<u32> = Cell::new(match fixed_time() {
        Some(seconds) => seconds as u32,
        None => RandomState::new().hash_one(0) as u32,
    });
}

/// Returns the generation of a new inode, by which NFS and FUSE distinguish the lives of a number. A thread uses none
/// twice in 2^32 inodes, however fast they follow each other. Those of two threads, and of two mounts, are equal by
/// chance alone.
fn generation() -> u32 {
    let mut n = MADE.replace(MADE.get().wrapping_add(1));
    // A permutation of 32-bit numbers (the finalizer of MurmurHash3): no two counts become one generation.
    n = (n ^ n >> 16).wrapping_mul(0x85EB_CA6B);
    n = (n ^ n >> 13).wrapping_mul(0xC2B2_AE35);
    n ^ n >> 16
}

/// The kinds of new inodes.
pub(crate) enum NewInode<'a> {
    /// An empty regular file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A device (with its number), FIFO or socket.
    Special(FileType, u32),
}

impl NewInode<'_> {
    /// Returns the kind of inode that mknod makes of a type.
    pub(crate) fn special(ftype: FileType, rdev: u32) -> Result<Self> {
        match ftype {
            FileType::Regular => Ok(Self::File),
            FileType::Directory | FileType::Symlink => Err(Error::Invalid("mknod of this type")),
            special => Ok(Self::Special(special, rdev)),
        }
    }

    /// Returns true for a device, which only root may make. A whiteout may be made by any caller.
    #[inline(always)]
    pub(crate) fn is_device(&self) -> bool {
        match self {
            Self::Special(FileType::CharDevice, 0) => false,
            Self::Special(ftype, _) => {
                matches!(ftype, FileType::CharDevice | FileType::BlockDevice)
            }
            _ => false,
        }
    }

    #[inline(always)]
    pub(crate) fn ftype(&self) -> FileType {
        match self {
            Self::File => FileType::Regular,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Special(t, _) => *t,
        }
    }
}

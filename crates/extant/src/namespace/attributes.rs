//! What stat shows, and what chmod, chown and utimes change.

use super::credentials::Credentials;
use super::inode::Inode;
use super::{from_ns, now};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::log::Cost;
use ext4_format::inode::flags;
use ext4_format::timestamp::Timestamp;
use ext4_format::{FileType, InodeNr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What stat shows of an inode.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let attr = volume.stat("/")?;
/// assert_eq!(attr.ino, 2);
/// assert_eq!(attr.mode & 0o170000, 0o040000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number.
    pub ino: u32,
    /// Type.
    pub file_type: FileType,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Number of links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, as [`ext4_format::inode::makedev`] makes it.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space held, in 512-byte sectors.
    pub sectors: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation; zero where the format does not keep it.
    pub crtime: Timestamp,
    /// Generation of the inode number.
    pub generation: u32,
    /// Inode flags as `lsattr` shows them.
    pub flags: u32,
}

/// What to change; `None` leaves it.
///
/// ```
/// let to_read_only = extant::SetAttributes { mode: Some(0o444), ..Default::default() };
/// assert!(to_read_only.uid.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits, set-id and sticky bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of the data.
    pub mtime: Option<Timestamp>,
    /// The user-modifiable inode flags.
    pub flags: Option<u32>,
}

impl Engine {
    /// Attributes of an inode. Reads memory only [L9].
    pub(crate) fn attributes(&self, inode: &Inode) -> Result<Attributes> {
        let _span = lockmeter::span!("stat");
        crate::stir::point();
        let state = inode.state.lock();
        let core = state.core;
        drop(state);
        let sectors = inode.sectors.load(Ordering::Relaxed).max(0) as u64;
        let mut attributes = Attributes {
            ino: inode.ino.0,
            file_type: inode.ftype,
            mode: u32::from(core.mode),
            links: core.links,
            uid: core.uid,
            gid: core.gid,
            rdev: core.rdev,
            size: core.size,
            sectors,
            atime: core.atime,
            mtime: core.mtime,
            ctime: core.ctime,
            crtime: core.crtime,
            generation: core.generation,
            flags: core.flags,
        };
        if let Some(names) = inode.directory() {
            attributes.size = names.size.load(Ordering::Relaxed);
            if let Some(newest) = names.last_change_ns().map(from_ns) {
                attributes.mtime = newest;
                attributes.ctime = attributes.ctime.max(newest);
            }
        }
        if self.has_short_times() {
            let times = [
                &mut attributes.atime,
                &mut attributes.mtime,
                &mut attributes.ctime,
            ];
            times.into_iter().for_each(|t| *t = self.storable(*t));
            attributes.crtime = Timestamp::default();
        }
        Ok(attributes)
    }

    /// Changes attributes.
    pub(crate) fn set_attributes(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        set: &SetAttributes,
    ) -> Result<()> {
        let _span = lockmeter::span!("set attributes");
        self.check_writable()?;
        let (uid, gid, _) = inode.owner_and_mode();
        let owns = who.is_privileged() || who.uid == uid;
        let bound = inode.flags.load(Ordering::Relaxed) & flags::IMMUTABLE != 0;
        if !owns || (bound && set.flags.is_none()) {
            return Err(Error::NotPermitted);
        }
        if !who.is_privileged() {
            let gives_away = set.uid.is_some_and(|u| u != uid);
            let foreign_group = set.gid.is_some_and(|g| g != gid && !who.in_group(g));
            let binds = set
                .flags
                .is_some_and(|f| f & (flags::IMMUTABLE | flags::APPEND) != 0);
            if gives_away || foreign_group || binds {
                return Err(Error::NotPermitted);
            }
        }
        let acl = match set.mode {
            Some(mode) if inode.has_acl.load(Ordering::Relaxed) => {
                self.acl_after_chmod(inode, mode)?
            }
            _ => None,
        };
        let chown = (set.uid.is_some() || set.gid.is_some()) && inode.directory().is_none();
        if chown {
            self.drop_capability(who, inode)?;
        }
        let tx = match acl {
            Some(_) => self.begin(who, Cost::XATTR)?,
            None => self.begin_core()?,
        };
        let mut state = inode.state.lock();
        if state.freed {
            return Err(Error::NotFound);
        }
        let names = inode.directory();
        let seen = state.stamp.max(names.map_or(0, |n| n.last_stamp()));
        let time = now();
        tx.commit(seen, |c| {
            let core = &mut state.core;
            if let Some(names) = names {
                self.fold_times(names, core);
                names.reset_time();
            }
            if let Some(new) = set.mode {
                let mut new = new & 0o7777;
                if !who.is_privileged() && !who.in_group(set.gid.unwrap_or(gid)) {
                    new &= !0o2000;
                }
                core.mode = core.mode & 0o170_000 | new;
            }
            if chown && set.mode.is_none() {
                core.mode = who.mode_after_chown(core.mode, core.gid);
            }
            core.uid = set.uid.unwrap_or(core.uid);
            core.gid = set.gid.unwrap_or(core.gid);
            core.atime = set.atime.map_or(core.atime, |t| self.storable(t));
            core.mtime = set.mtime.map_or(core.mtime, |t| self.storable(t));
            if let Some(new) = set.flags {
                core.flags = core.flags & !flags::USER_MODIFIABLE | new & flags::USER_MODIFIABLE;
            }
            core.ctime = time;
            let core = state.core;
            inode.mirror(&core);
            if let Some(acl) = &acl {
                self.log_xattrs(inode, &mut state, acl, c);
            }
            self.log_core(inode, &mut state, c);
        });
        self.tell_attributes(inode);
        Ok(())
    }

    /// Inodes have no room for nanoseconds.
    fn has_short_times(&self) -> bool {
        usize::from(self.geometry.inode_size) == ext4_format::inode::GOOD_OLD_SIZE
    }

    /// A time as this volume's inodes can hold it, so that stat shows the same before and after a reopening.
    fn storable(&self, time: Timestamp) -> Timestamp {
        if self.has_short_times() {
            Timestamp::decode(time.encode_short(), None)
        } else {
            Timestamp::new(time.secs, time.nanos)
        }
    }

    /// The inode of a number, if it is in use; for callers that keep numbers instead of handles.
    pub(crate) fn inode_in_use(&self, ino: InodeNr) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        if inode.is_gone() {
            Err(Error::NotFound)
        } else {
            Ok(inode)
        }
    }
}

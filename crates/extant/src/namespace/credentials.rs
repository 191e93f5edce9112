//! Who calls, and what the mode bits and ACLs let them do.

use super::inode::Inode;
use crate::engine::Engine;
use crate::error::{Error, Result};
use ext4_format::inode::flags;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The identity an operation runs under.
///
/// ```
/// use extant::Credentials;
/// assert!(Credentials::root().is_privileged());
/// assert!(!Credentials::new(1000, 1000, &[27]).is_privileged());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Credentials {
    /// User, group and supplementary groups.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Self {
        Self {
            uid,
            gid,
            groups: groups.into(),
        }
    }

    /// User 0: no permission check applies.
    pub fn root() -> Self {
        Self::new(0, 0, &[])
    }

    /// Permission bits do not bind this caller.
    pub fn is_privileged(&self) -> bool {
        self.uid == 0
    }

    /// What is left of a file's mode when this caller changes its contents: set-user-id goes, and
    /// set-group-id where it means execution or the caller is no member. Root's changes leave both.
    pub(crate) fn mode_after_write(&self, mode: u16, gid: u32) -> u16 {
        if self.is_privileged() {
            mode
        } else {
            self.mode_after_chown(mode, gid)
        }
    }

    /// What is left of the mode of anything but a directory when this caller changes its owner or group;
    /// `gid` is the group until now. Here root is no exception, but is a member of every group.
    pub(crate) fn mode_after_chown(&self, mode: u16, gid: u32) -> u16 {
        let executes = mode & 0o010 != 0;
        let member = self.is_privileged() || self.in_group(gid);
        let set_gid = if executes || !member { 0o2000 } else { 0 };
        mode & !(0o4000 | set_gid)
    }

    /// Member of the group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Read permission bit.
pub const READ: u16 = 4;
/// Write permission bit.
pub const WRITE: u16 = 2;
/// Execute or search permission bit.
pub const EXECUTE: u16 = 1;

impl Engine {
    /// Fails unless the caller has all the permission bits of `wanted` on the inode.
    pub(crate) fn permit(&self, who: &Credentials, inode: &Inode, wanted: u16) -> Result<()> {
        let (uid, gid, mode) = inode.owner_and_mode();
        if who.is_privileged() {
            // Even root executes a file only if somebody may.
            let nobody = wanted & EXECUTE != 0 && inode.directory().is_none() && mode & 0o111 == 0;
            return if nobody {
                Err(Error::PermissionDenied)
            } else {
                Ok(())
            };
        }
        if who.uid != uid
            && let Some(acl) = self.acl(inode, super::xattrs::ACCESS)?
        {
            let granted = acl.permits(uid, gid, who.uid, |g| who.in_group(g), wanted as u8);
            return if granted {
                Ok(())
            } else {
                Err(Error::PermissionDenied)
            };
        }
        let bits = if who.uid == uid {
            mode >> 6
        } else if who.in_group(gid) {
            mode >> 3
        } else {
            mode
        };
        if bits & wanted == wanted {
            Ok(())
        } else {
            Err(Error::PermissionDenied)
        }
    }

    /// Fails unless the caller has all the permission bits of `wanted`, and the volume and the inode can be written if
    /// that is among them; a device, FIFO or socket is written without the volume.
    pub(crate) fn check_access(&self, who: &Credentials, inode: &Inode, wanted: u16) -> Result<()> {
        use ext4_format::FileType::{Directory, Regular, Symlink};
        if wanted & WRITE != 0 {
            if matches!(inode.ftype, Regular | Directory | Symlink) {
                self.check_writable()?;
            }
            if inode.flags.load(Ordering::Relaxed) & flags::IMMUTABLE != 0 {
                return Err(Error::NotPermitted);
            }
        }
        self.permit(who, inode, wanted)
    }

    /// The sticky-bit rule: who may remove or rename `victim` out of `dir`.
    pub(crate) fn permit_removal(
        &self,
        who: &Credentials,
        dir: &Inode,
        victim: &Inode,
    ) -> Result<()> {
        let (dir_uid, _, dir_mode) = dir.owner_and_mode();
        let sticky = dir_mode & 0o1000 != 0;
        if !sticky
            || who.is_privileged()
            || who.uid == dir_uid
            || who.uid == victim.owner_and_mode().0
        {
            Ok(())
        } else {
            Err(Error::NotPermitted)
        }
    }

    /// Fails unless the caller owns the inode.
    pub(crate) fn permit_owner(&self, who: &Credentials, inode: &Inode) -> Result<()> {
        if who.is_privileged() || who.uid == inode.owner_and_mode().0 {
            Ok(())
        } else {
            Err(Error::NotPermitted)
        }
    }
}

//! Permission checks of inodes.

use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::inodes::Inodes;
use crate::types::credentials::{Credentials, EXECUTE, WRITE};
use ext4_format::FileType;
use ext4_format::inode::flags;

impl Inodes {
    /// Fails unless the caller has all the permission bits of `wanted` on the inode. An immutable inode cannot be
    /// written.
    #[inline]
    pub(crate) fn permit(&self, who: &Credentials, inode: &Inode, wanted: u16) -> Result<()> {
        // Every step of a walk checks directories, which are open to root and to a caller that was checked elsewhere.
        let unbound = who.is_unbound() && inode.ftype == FileType::Directory;
        let writable = wanted & WRITE == 0 || !inode.has_flag(flags::IMMUTABLE);
        if unbound && writable {
            Ok(())
        } else {
            self.permit_bound(who, inode, wanted)
        }
    }

    #[inline(never)]
    fn permit_bound(&self, who: &Credentials, inode: &Inode, wanted: u16) -> Result<()> {
        if wanted & WRITE != 0 && inode.has_flag(flags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        if who.checked {
            return Ok(());
        }
        let (uid, gid, mode) = inode.owner_and_mode();
        if who.is_privileged() {
            // Even root executes a file only if someone has the right to.
            let nobody = wanted & EXECUTE != 0 && inode.directory().is_none() && mode & 0o111 == 0;
            return if nobody {
                Err(Error::PermissionDenied)
            } else {
                Ok(())
            };
        }
        if who.uid != uid
            && let Some(acl) = self.acl(inode, crate::inodes::xattrs::ACCESS)?
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

    /// Fails unless the caller has all the permission bits of `wanted`, and, if these include writing, the volume and
    /// the inode can be written. A device, FIFO or socket is written without the volume.
    pub(crate) fn check_access(&self, who: &Credentials, inode: &Inode, wanted: u16) -> Result<()> {
        use ext4_format::FileType::{Directory, Regular, Symlink};
        if wanted & WRITE != 0 && matches!(inode.ftype, Regular | Directory | Symlink) {
            self.store.check_writable()?;
        }
        self.permit(who, inode, wanted)
    }

    /// Checks the sticky-bit rule for removing or renaming `victim` out of `dir`.
    #[inline]
    pub(crate) fn permit_removal(
        &self,
        who: &Credentials,
        dir: &Inode,
        victim: &Inode,
    ) -> Result<()> {
        let (dir_uid, _, dir_mode) = dir.owner_and_mode();
        let sticky = dir_mode & 0o1000 != 0;
        if !sticky || who.is_unbound() || who.uid == dir_uid || who.uid == victim.owner_and_mode().0
        {
            Ok(())
        } else {
            Err(Error::NotPermitted)
        }
    }

    /// Fails unless the caller owns the inode.
    pub(super) fn permit_owner(&self, who: &Credentials, inode: &Inode) -> Result<()> {
        if who.is_unbound() || who.uid == inode.owner_and_mode().0 {
            Ok(())
        } else {
            Err(Error::NotPermitted)
        }
    }
}

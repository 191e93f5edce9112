//! The caller of an operation, and the rights by mode bits and ACLs.

use crate::base::now;
use ext4_format::inode::InodeCore;
use ext4_format::timestamp::Timestamp;
use std::sync::Arc;

/// The identity an operation runs under.
///
/// ```
/// use extant::Credentials;
/// assert!(Credentials::root().is_privileged());
/// let user = Credentials::new(1000, 1000, &[27]).with_umask(0o022);
/// assert!(!user.is_privileged());
/// assert_eq!(user.groups(), [27]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups, if there are any: a server makes credentials for each request.
    groups: Option<Arc<[u32]>>,
    umask: u16,
    pub(crate) checked: bool,
    cache: bool,
    /// The caller is a cache that writes back data which programs have written before.
    late: bool,
}

impl Credentials {
    /// Makes the credentials of a user, a group and supplementary groups.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Self {
        Self {
            uid,
            gid,
            groups: (!groups.is_empty()).then(|| groups.into()),
            umask: 0,
            checked: false,
            cache: false,
            late: false,
        }
    }

    /// Makes the credentials of user 0, to whom no permission check applies.
    pub fn root() -> Self {
        Self::new(0, 0, &[])
    }

    /// Returns the same caller as seen through a cache above the volume. The cache keeps the times of files it changes
    /// and writes them back by [`SetAttributes::ctime`](crate::SetAttributes::ctime), so that writing data and setting
    /// sizes change no times.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let who = extant::Credentials::root().keeping_times();
    /// let (file, _) = extant::unstable::Node::root(&volume)?.create(&who, b"file", 0o600, true)?;
    /// let made = file.metadata()?.mtime();
    /// file.write_at(&who, b"text", 0)?;
    /// assert_eq!(file.metadata()?.mtime(), made);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn keeping_times(self) -> Self {
        Self {
            cache: true,
            ..self
        }
    }

    /// Makes the credentials of a cache that writes back. The writing program has its answer already, and set-id bits
    /// were removed then.
    pub(crate) fn writing_back() -> Self {
        Self {
            late: true,
            ..Self::root().keeping_times()
        }
    }

    /// Returns true if the change was made before, with its immediate consequences.
    pub(crate) fn is_late(&self) -> bool {
        self.late
    }

    /// Sets the permission bits to leave out of new files of this caller. If the directory has a default ACL, the ACL
    /// decides instead.
    #[must_use]
    pub fn with_umask(self, umask: u16) -> Self {
        Self {
            umask: umask & 0o777,
            ..self
        }
    }

    /// Returns the same caller, with rights that another party, usually the kernel (FUSE's `default_permissions`), has
    /// checked already: permission bits, ACLs, ownership, the sticky bit, capabilities. The volume still checks what
    /// only the volume knows, such as immutable and append-only flags. User and group still own new files, and decide
    /// when set-id bits are removed.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// use extant::Credentials;
    /// let user = Credentials::new(1000, 1000, &[]);
    /// let top = extant::unstable::Node::root(&volume)?;
    /// assert!(top.create(&user, b"mine", 0o600, true).is_err(), "the root directory is root's");
    /// let (mine, _) = top.create(&user.already_checked(), b"mine", 0o600, true)?;
    /// assert_eq!(mine.metadata()?.uid(), 1000);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn already_checked(self) -> Self {
        Self {
            checked: true,
            ..self
        }
    }

    /// Returns true if permission bits do not bind this caller.
    pub fn is_privileged(&self) -> bool {
        self.uid == 0
    }

    /// Returns the supplementary groups.
    pub fn groups(&self) -> &[u32] {
        self.groups.as_deref().unwrap_or_default()
    }

    /// Returns the permission bits to leave out of new files of this caller.
    pub fn umask(&self) -> u16 {
        self.umask
    }

    /// Changes of data by this caller change no times.
    pub(crate) fn keeps_times(&self) -> bool {
        self.cache
    }

    /// Returns the times of the last change of data and inode, after this caller changes data.
    pub(crate) fn times_of_change(&self, core: &InodeCore) -> (Timestamp, Timestamp) {
        if self.cache {
            (core.mtime, core.ctime)
        } else {
            let time = now();
            (time, time)
        }
    }

    /// Returns true if checks by the caller's identity are skipped.
    pub(crate) fn is_unbound(&self) -> bool {
        self.is_privileged() || self.checked
    }

    /// Returns a file's mode after this caller changes its contents: without set-user-id, and without set-group-id if
    /// that bit means execution or the caller is not in the group. Root's changes keep both.
    pub(crate) fn mode_after_write(&self, mode: u16, gid: u32) -> u16 {
        if self.is_privileged() {
            mode
        } else {
            self.mode_after_chown(mode, gid)
        }
    }

    /// Returns the mode after this caller changes the owner or group of anything but a directory. `gid` is the group
    /// until now. The rule holds for root, too, which is a member of every group.
    pub(crate) fn mode_after_chown(&self, mode: u16, gid: u32) -> u16 {
        let executes = mode & 0o010 != 0;
        // The groups of a caller whose rights were checked elsewhere are unknown; the kernel decides when the bit must
        // be removed.
        let member = self.is_unbound() || self.in_group(gid);
        let set_gid = if executes || !member { 0o2000 } else { 0 };
        mode & !(0o4000 | set_gid)
    }

    /// Returns true if the caller is a member of the group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups().contains(&gid)
    }
}

/// Read permission bit.
pub const READ: u16 = 4;
/// Write permission bit.
pub const WRITE: u16 = 2;
/// Execute or search permission bit.
pub const EXECUTE: u16 = 1;

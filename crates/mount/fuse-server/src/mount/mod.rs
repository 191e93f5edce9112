//! Mounting: by mount(2) if permitted, else through `fusermount3`.

mod direct;
mod fusermount;
mod mountinfo;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

pub use mountinfo::{Mounted, mounted_at, mounts};

/// Options of a mount.
///
/// ```no_run
/// let options = fuse_server::MountOptions {
///     source: "example".into(),
///     subtype: Some("example".into()),
///     default_permissions: true,
///     ..Default::default()
/// };
/// let connection = fuse_server::mount("/mnt", &options)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The mount's source, as `mount` lists it.
    pub source: OsString,
    /// Subtype, listed after `fuse.`.
    pub subtype: Option<String>,
    /// Mount read-only.
    pub read_only: bool,
    /// Other users may use the mount, too. Without root this needs `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Whether the kernel checks permissions by mode, owner and ACL.
    pub default_permissions: bool,
    /// Ignore set-id bits. Always set unless root mounts.
    pub nosuid: bool,
    /// Refuse to open device files. Always set unless root mounts.
    pub nodev: bool,
    /// Refuse to execute files.
    pub noexec: bool,
    /// Reads do not change times.
    pub noatime: bool,
    /// Reads do not change times of directories.
    pub nodiratime: bool,
    /// Reads always change times, not only old times (`strictatime`).
    pub strictatime: bool,
    /// Times are written late (`lazytime`).
    pub lazytime: bool,
    /// Every write is synchronous.
    pub sync: bool,
    /// Every change of a directory is synchronous.
    pub dirsync: bool,
    /// Largest read in one request; 0 for the kernel's default.
    pub max_read: u32,
    /// Block size, if [`source`](Self::source) is a block device that the kernel is to hold for this mount
    /// (`fuseblk`). Only root may set this. The server then receives sync(2) and requests for block numbers.
    pub block_device: Option<u32>,
    /// Further options for the kernel's FUSE, each `name` or `name=value`.
    pub extra: Vec<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source: "fuse".into(),
            subtype: None,
            read_only: false,
            allow_other: false,
            default_permissions: false,
            nosuid: true,
            nodev: true,
            noexec: false,
            noatime: false,
            nodiratime: false,
            strictatime: false,
            lazytime: false,
            sync: false,
            dirsync: false,
            max_read: 0,
            block_device: None,
            extra: Vec::new(),
        }
    }
}

impl MountOptions {
    /// Returns the options that both methods of mounting pass to the kernel's FUSE.
    fn for_fuse(&self) -> Vec<String> {
        let mut options = Vec::new();
        if self.allow_other {
            options.push("allow_other".to_owned());
        }
        if self.default_permissions {
            options.push("default_permissions".to_owned());
        }
        if self.max_read != 0 {
            options.push(format!("max_read={}", self.max_read));
        }
        options.extend(self.extra.iter().cloned());
        options
    }
}

/// Method of unmounting.
///
/// ```
/// assert_ne!(fuse_server::Unmounting::Detached, fuse_server::Unmounting::Aborted);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounting {
    /// Fails with the kind `ResourceBusy` while the mount is in use.
    Unused,
    /// At once; programs that use the mount keep it until they are done.
    Detached,
    /// Programs that use the mount, or wait for an answer, get an error.
    Aborted,
}

/// Unmounts for a server that has confined itself and may not unmount any more.
pub trait Unmount: std::fmt::Debug + Send + Sync {
    /// Unmounts if the mount still exists.
    fn unmount(&self, how: Unmounting) -> io::Result<()>;
}

/// A mounted file system that is not yet served. Dropping it unmounts the file system.
#[derive(Debug)]
pub struct Connection {
    device: Arc<OwnedFd>,
    mount: MountPoint,
    /// Whether the mount belongs to another process now.
    left: bool,
}

/// The target of a connection, and the identity of its mount, because another mount may have been made over it since.
///
/// ```no_run
/// let connection = fuse_server::mount("/mnt", &fuse_server::MountOptions::default())?;
/// let place = connection.leave();
/// place.unmount(fuse_server::Unmounting::Detached)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MountPoint {
    target: PathBuf,
    id: MountId,
    /// The helper that unmounts, if this process may not.
    by: Option<Arc<dyn Unmount>>,
}

/// Identity of a mount: its device number, and the mount's own number, which Linux 6.8 and later never reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MountId {
    device: (u32, u32),
    number: u64,
}

impl MountId {
    /// `STATX_MNT_ID_UNIQUE`; older kernels ignore it and return a number that they reuse.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

    /// Returns the mount at a path, or that of the open `dir` itself if the path is empty.
    fn of(dir: impl AsFd, path: impl AsRef<Path>) -> io::Result<Self> {
        // The kernel knows the root without asking the server, which may not answer yet, or not any more.
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        let wanted = StatxFlags::TYPE | StatxFlags::MNT_ID | Self::UNIQUE;
        let stat = rustix::fs::statx(dir, path.as_ref(), flags, wanted)?;
        Ok(Self {
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            number: stat.stx_mnt_id,
        })
    }
}

impl Connection {
    /// Wraps a connection that another process made by [`mount`] and passed to this one, with the helper that unmounts
    /// it.
    pub fn received(device: OwnedFd, target: &Path, by: Arc<dyn Unmount>) -> io::Result<Self> {
        let mut connection = Self::new(device, target.to_path_buf())?;
        connection.mount.by = Some(by);
        Ok(connection)
    }

    /// Drops the connection without unmounting, because a process with another descriptor of it serves it.
    pub fn leave(mut self) -> MountPoint {
        self.left = true;
        self.mount.clone()
    }

    fn new(device: OwnedFd, target: PathBuf) -> io::Result<Self> {
        let mount = MountPoint {
            id: MountId::of(rustix::fs::CWD, &target)?,
            target,
            by: None,
        };
        Ok(Self {
            device: Arc::new(device),
            mount,
            left: false,
        })
    }

    /// Returns the target: absolute, without symbolic links.
    pub fn target(&self) -> &Path {
        &self.mount.target
    }

    /// Returns the number of the connection in `/sys/fs/fuse/connections`.
    pub fn number(&self) -> u32 {
        self.mount.number()
    }

    pub(crate) fn shared_device(&self) -> &Arc<OwnedFd> {
        &self.device
    }

    pub(crate) fn place(&self) -> &MountPoint {
        &self.mount
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.left {
            // A failure can be neither handled nor reported here.
            let _ = self.mount.unmount(Unmounting::Detached);
        }
    }
}

impl MountPoint {
    /// Opens the root of the mount; `None` if another mount, or no mount, is at its path.
    fn root(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.target, flags, Mode::empty()).ok()?;
        (MountId::of(&root, "").ok()? == self.id).then_some(root)
    }

    /// Returns the kernel's own device number.
    fn number(&self) -> u32 {
        let (major, minor) = self.id.device;
        major << 20 | minor
    }

    /// Returns the major and minor number.
    pub(crate) fn device(&self) -> (u32, u32) {
        self.id.device
    }

    /// Makes the kernel ask the server for the root's attributes. The answer is not used.
    pub(crate) fn ask_root(&self) {
        let _ = rustix::fs::statx(
            rustix::fs::CWD,
            &self.target,
            AtFlags::STATX_FORCE_SYNC,
            StatxFlags::BASIC_STATS,
        );
    }

    /// Unmounts if the mount still exists.
    pub fn unmount(&self, how: Unmounting) -> io::Result<()> {
        if let Some(by) = &self.by {
            return by.unmount(how);
        }
        match how {
            Unmounting::Aborted => {
                self.abort_here();
                Ok(())
            }
            Unmounting::Unused if self.root().is_some() => unmount(&self.target),
            Unmounting::Detached => self.root().map_or(Ok(()), |root| self.detach_root(&root)),
            Unmounting::Unused => Ok(()),
        }
    }

    /// Detaches the mount by its root, so that a mount made over it meanwhile stays.
    fn detach_root(&self, root: &OwnedFd) -> io::Result<()> {
        let place = format!("/proc/self/fd/{}", root.as_raw_fd());
        match rustix::mount::unmount(place, UnmountFlags::DETACH) {
            Ok(()) => Ok(()),
            // Without privilege, or without /proc: by its path.
            Err(_) => detach(&self.target),
        }
    }

    /// Ends the connection, so that every program that waits for an answer gets an error.
    pub(crate) fn abort(&self) {
        // If even that fails, waiting programs get their error when this process ends.
        let _ = self.unmount(Unmounting::Aborted);
    }

    fn abort_here(&self) {
        let root = self.root();
        // The kernel reuses the number of a connection as soon as the connection is unused.
        let number_is_ours = root.is_some() || !self.number_is_reused();
        let control = format!("/sys/fs/fuse/connections/{}/abort", self.number());
        if number_is_ours && std::fs::write(control, "1").is_ok() {
            return;
        }
        if let Some(root) = root {
            let force = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            if rustix::mount::unmount(&self.target, force).is_err() {
                let _ = self.detach_root(&root);
            }
        }
    }

    /// Returns whether a mount other than this one has this one's device number.
    fn number_is_reused(&self) -> bool {
        mounts().is_ok_and(|all| {
            let same_number = all.into_iter().filter(|m| m.device == self.id.device);
            let mut ids = same_number.filter_map(|m| MountId::of(rustix::fs::CWD, &m.target).ok());
            ids.any(|id| id.device == self.id.device && id != self.id)
        })
    }
}

/// Mounts at `target`: directly if the process may (root, or root of its own user namespace), else through
/// `fusermount3`.
pub fn mount(target: impl AsRef<Path>, options: &MountOptions) -> io::Result<Connection> {
    let target = target.as_ref().canonicalize()?;
    let device = match direct::mount(&target, options) {
        Ok(device) => device,
        Err(error) if is_forbidden(&error) && options.block_device.is_none() => {
            fusermount::mount(&target, options).map_err(|helper| explain(&error, &helper))?
        }
        Err(error) => return Err(error),
    };
    match Connection::new(device, target.clone()) {
        Ok(connection) => Ok(connection),
        Err(error) => {
            let _ = detach(&target);
            Err(error)
        }
    }
}

fn is_forbidden(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn explain(direct: &io::Error, helper: &io::Error) -> io::Error {
    io::Error::new(
        helper.kind(),
        format!("no permission to mount ({direct}), and fusermount3 did not: {helper}"),
    )
}

/// Unmounts the file system at `target`; fails with `EBUSY` while it is in use.
pub fn unmount(target: impl AsRef<Path>) -> io::Result<()> {
    unmount_with(target.as_ref(), UnmountFlags::NOFOLLOW, &[])
}

/// Unmounts the file system at `target`; programs that use it keep it until they are done (`umount --lazy`).
pub fn detach(target: impl AsRef<Path>) -> io::Result<()> {
    unmount_with(
        target.as_ref(),
        UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        &[OsStr::new("-z")],
    )
}

fn unmount_with(target: &Path, flags: UnmountFlags, helper_flags: &[&OsStr]) -> io::Result<()> {
    match rustix::mount::unmount(target, flags) {
        Err(Errno::PERM | Errno::ACCESS) => fusermount::unmount(target, helper_flags),
        result => Ok(result?),
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| Errno::INVAL.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel gives the device number of the first mount to the second one.
    #[test]
    fn a_mount_in_the_place_of_another_outlives_the_unmounting_of_that() {
        needs::that!(rustix::process::geteuid().is_root(), "mounting takes root");
        needs::that!(Path::new("/dev/fuse").exists(), "there is no /dev/fuse");
        let dir = tempfile::tempdir().unwrap();
        let options = MountOptions {
            source: "a test".into(),
            ..MountOptions::default()
        };
        for how in [
            Unmounting::Unused,
            Unmounting::Detached,
            Unmounting::Aborted,
        ] {
            let first = mount(dir.path(), &options).unwrap();
            let place = first.place().clone();
            rustix::mount::unmount(place.target.as_path(), UnmountFlags::DETACH).unwrap();
            let _ = first.leave();
            let second = mount(dir.path(), &options).unwrap();
            place.unmount(how).unwrap();
            let there = mounted_at(second.target()).unwrap();
            let still = there.is_some_and(|mounted| mounted.device == second.mount.id.device);
            assert!(still, "{how:?}");
            assert!(second.place().root().is_some());
            drop(second);
            assert_eq!(mounted_at(&place.target).unwrap(), None, "{how:?}");
        }
    }
}

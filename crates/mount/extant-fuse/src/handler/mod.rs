//! A volume as a handler of FUSE requests.
//!
//! The kernel checks permissions by mode bits and ACLs, resolves paths, and caches names, attributes and pages. The
//! kernel may cache all of them until it forgets the inode, because only the kernel makes changes. The kernel does not
//! know immutable and append-only files: the engine guards those. The kernel also implements locks, because a volume
//! has one kernel.
//!
//! Open files have no separate handles here: a node number identifies the file, and the kernel does not forget an
//! inode that is open.

mod attributes;
mod data;
mod ioctl;
mod listing;
mod names;
mod wants;
mod xattrs;

use crate::control;
use crate::counters::RequestKind;
use crate::mount::Shared;
use crate::options::MountOptions;
use extant::unstable::MakeNode;
use extant::{Credentials, Volume};
use fuse_server::{
    Answer, Errno, Handler, KernelOffer, Notifier, Operation, Request, StatFs, Wants,
};
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Lifetime of cached data without expiry: until the kernel forgets the inode.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// Lifetime of attributes of files open for writing. Not shorter, because the kernel also asks before each write.
const BRIEFLY: Duration = Duration::from_millis(10);
/// Bytes of free space below which, or below a thirty-second of the volume, no data are kept back for long.
const LITTLE_SPACE: u64 = 16 << 20;

/// A volume as a handler of FUSE requests. The handler keeps the volume open as long as it lives.
///
/// ```
/// let options = extant_fuse::MountOptions::default();
/// let fs = extant_fuse::Filesystem::new(extant::doc_volume(), "disk.img", &options)?;
/// assert_eq!(fs.status()?.nodes_known, 0);
/// # Ok::<(), extant::Error>(())
/// ```
pub struct Filesystem {
    shared: Arc<Shared>,
    notifier: OnceLock<Notifier>,
    read_only: bool,
    /// Whether files are opened for reading without a request to the server.
    opens_unasked: bool,
    write_through: bool,
    /// Owner and group that are shown for all files.
    shown: (Option<u32>, Option<u32>),
    /// Whether changes of names and attributes are durable before they are answered. The kernel makes data durable
    /// itself: it writes them through, and asks for fsync.
    sync: bool,
    block_size: u32,
}

thread_local! {
    /// The credentials of this thread's last caller, which is often the next one's, too.
    static WHO: RefCell<Credentials> = RefCell::new(checked(0, 0));
}

/// Returns a caller whose permissions the kernel has checked, as it does for every request but an ioctl.
fn checked(uid: u32, gid: u32) -> Credentials {
    Credentials::new(uid, gid, &[]).already_checked()
}

impl Filesystem {
    /// Serves a volume; `image` is its name in reports.
    pub fn new(volume: Volume, image: &str, options: &MountOptions) -> extant::Result<Self> {
        let read_only = volume.read_only().is_some();
        let block_size = volume.geometry().block_size;
        // Encrypted files must not be opened.
        let encrypt = ext4_format::features::Incompat::ENCRYPT;
        let opens_unasked = read_only && !volume.geometry().features.incompat.contains(encrypt);
        let shared = Arc::new(Shared::new(volume, image.into())?);
        Ok(Self {
            shared,
            notifier: OnceLock::new(),
            read_only,
            opens_unasked,
            write_through: options.writes_through(),
            shown: (options.shown_uid, options.shown_gid),
            sync: options.sync || options.sync_names,
            block_size,
        })
    }

    /// Returns live counters.
    pub fn status(&self) -> extant::Result<control::Status> {
        self.shared.status()
    }

    /// Sets the name of the transport in reports.
    pub fn set_transport(&self, name: &'static str) {
        // The transport never changes, so a second call would set the same name.
        let _ = self.shared.transport.set(name);
    }

    /// Listens for clients of the control socket at a path.
    pub fn listen(&self, socket: &Path) -> io::Result<control::Server> {
        control::Server::start(socket, Arc::clone(&self.shared))
    }

    /// Returns the errno of a failure, which is also logged if it is not one of every day.
    fn tried<T>(&self, done: extant::Result<T>) -> Result<T, Errno> {
        done.map_err(|e| {
            match &e {
                extant::Error::Format(_) | extant::Error::Io { .. } => {
                    self.shared.trouble(&e);
                }
                _ => tracing::debug!(error = %e, "request failed"),
            }
            Errno::from_raw_os_error(e.errno())
        })
    }

    /// Runs `f` with the caller's credentials; `umask` applies to new files.
    fn for_caller<R>(
        &self,
        request: &Request<'_>,
        umask: u32,
        f: impl FnOnce(&Credentials) -> R,
    ) -> R {
        let umask = (umask & 0o777) as u16;
        // Taken out meanwhile: a handler that fails half way leaves nothing borrowed.
        let mut who = WHO.with(|who| {
            let mut who = who.borrow_mut();
            if (who.uid, who.gid) != (request.uid, request.gid) {
                *who = checked(request.uid, request.gid);
            }
            who.clone()
        });
        if umask != 0 {
            who = who.with_umask(umask);
        }
        f(&who)
    }

    /// Runs the operation; returns the number of bytes of data moved.
    fn act(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<u64, Errno> {
        type Op<'a> = Operation<'a>;
        let nodes = &self.shared.nodes;
        let held = || nodes.get(request.node);
        match &request.operation {
            Op::Lookup { name } => {
                let held = || self.known(request.node, name);
                self.for_caller(request, 0, |who| self.lookup(&*held()?, who, name, answer))?;
            }
            Op::Forget { lookups } => {
                nodes.forget(request.node, *lookups);
            }
            Op::BatchForget(forgets) => {
                forgets.for_each(|(node, n)| nodes.forget(node, n));
            }
            Op::GetAttr { handle } => {
                self.asked_for_attr((request.node, &*held()?), *handle, answer)?;
            }
            Op::Statx { .. } => {
                self.statx((request.node, &*held()?), answer)?;
            }
            Op::SetAttr(set) => {
                self.for_caller(request, 0, |who| self.set_attr(&*held()?, who, set, answer))?;
            }
            Op::ReadLink => {
                let held = held()?;
                answer.bytes(&self.tried(held.node.read_link())?);
            }
            Op::Open {
                flags,
                kill_suidgid,
            } => {
                let how = (*flags, *kill_suidgid);
                let held = held()?;
                self.for_caller(request, 0, |who| {
                    self.open((request.node, &held), who, how, answer)
                })?;
            }
            Op::Release { flags, .. } => {
                self.release((request.node, &*held()?), *flags)?;
            }
            _ => return self.act_on_names(request, answer),
        }
        Ok(0)
    }

    /// Runs operations that make, remove and move names. Inlined, so that there is one match with the functions above
    /// and below.
    #[inline(always)]
    fn act_on_names(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<u64, Errno> {
        type Op<'a> = Operation<'a>;
        let held = || self.shared.nodes.get(request.node);
        match &request.operation {
            Op::Symlink { name, target } => {
                let what = (*name, MakeNode::Symlink(target), 0o777);
                self.for_caller(request, 0, |who| self.make(&*held()?, who, what, answer))?;
            }
            Op::Mknod {
                name,
                mode,
                rdev,
                umask,
            } => {
                let what = (*name, *mode, *rdev);
                self.for_caller(request, *umask, |who| {
                    self.mknod(&*held()?, who, what, answer)
                })?;
            }
            Op::Mkdir { name, mode, umask } => {
                let what = (*name, MakeNode::Directory, *mode);
                self.for_caller(request, *umask, |who| {
                    self.make(&*held()?, who, what, answer)
                })?;
            }
            Op::Unlink { name } => {
                self.for_caller(request, 0, |who| self.tried(held()?.node.unlink(who, name)))?;
            }
            Op::Rmdir { name } => {
                self.for_caller(request, 0, |who| {
                    self.tried(held()?.node.remove_dir(who, name))
                })?;
            }
            Op::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                let names = (*name, *new_parent, *new_name);
                self.for_caller(request, 0, |who| self.rename(&*held()?, who, names, *flags))?;
            }
            Op::Link { target, name } => {
                self.for_caller(request, 0, |who| {
                    self.link(&*held()?, who, (*target, name), answer)
                })?;
            }
            Op::Create {
                name,
                mode,
                umask,
                flags,
                kill_suidgid,
            } => {
                let how = (*name, *mode, *flags, *kill_suidgid);
                self.for_caller(request, *umask, |who| {
                    self.create(&*held()?, who, how, answer)
                })?;
            }
            Op::Tmpfile {
                mode, umask, flags, ..
            } => {
                let how = (*mode, *flags);
                self.for_caller(request, *umask, |who| {
                    self.tmpfile(&*held()?, who, how, answer)
                })?;
            }
            _ => return self.act_on_data(request, answer),
        }
        Ok(0)
    }

    /// Runs operations that read and write files and directories.
    #[inline(always)]
    fn act_on_data(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<u64, Errno> {
        type Op<'a> = Operation<'a>;
        let held = || self.shared.nodes.get(request.node);
        match &request.operation {
            Op::Read {
                offset,
                size,
                flags,
                ..
            } => {
                return self.read(&*held()?, (*offset, *size, *flags), answer);
            }
            Op::Write {
                offset,
                data,
                cached,
                kill_suidgid,
                flags,
                ..
            } => {
                let (held, data) = (held()?, (*offset, *data));
                if *cached {
                    return self.write_cached((request.node, &held), data, answer);
                }
                return self.for_caller(request, 0, |who| {
                    if *kill_suidgid {
                        self.strip_privileges(&held.node, who)?;
                    }
                    self.write((request.node, &held), who, (data, *flags), answer)
                });
            }
            Op::Fsync { datasync, .. } | Op::FsyncDir { datasync, .. } => {
                let held = held()?;
                self.tried(held.node.fsync(*datasync))?;
                // The kernel reports lost data at the end of this fsync.
                held.failed.store(false, Relaxed);
                self.note_synced(request.node, &held);
            }
            Op::ReadDir { offset, size, .. } => {
                let how = (*offset, *size, false);
                self.for_caller(request, 0, |who| self.read_dir(&*held()?, who, how, answer))?;
            }
            Op::ReadDirPlus { offset, size, .. } => {
                let how = (*offset, *size, true);
                self.for_caller(request, 0, |who| self.read_dir(&*held()?, who, how, answer))?;
            }
            Op::Seek { offset, whence, .. } => {
                self.seek(request.node, &*held()?, (*offset, *whence), answer)?;
            }
            Op::Fallocate {
                offset,
                length,
                mode,
                ..
            } => {
                let how = (*offset, *length, *mode);
                self.for_caller(request, 0, |who| self.fallocate(&*held()?, who, how))?;
            }
            Op::CopyFileRange {
                offset,
                to_node,
                to_offset,
                length,
                ..
            } => {
                let how = (*offset, *to_node, *to_offset, *length);
                let copied =
                    self.for_caller(request, 0, |who| self.copy_range(&*held()?, who, how))?;
                answer.copied(copied);
                return Ok(copied);
            }
            Op::Bmap { block, block_size } => {
                self.block_of(&*held()?, (*block, *block_size), answer)?;
            }
            _ => return self.act_on_the_rest(request, answer),
        }
        Ok(0)
    }

    /// Runs operations on extended attributes and on the whole volume.
    #[inline(always)]
    fn act_on_the_rest(
        &self,
        request: &Request<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<u64, Errno> {
        type Op<'a> = Operation<'a>;
        let held = || self.shared.nodes.get(request.node);
        match &request.operation {
            Op::SetXattr {
                name,
                value,
                flags,
                acl_kill_sgid,
            } => {
                let how = (*name, *value, *flags, *acl_kill_sgid);
                self.for_caller(request, 0, |who| self.set_xattr(&*held()?, who, how))?;
            }
            Op::GetXattr { name, size } => {
                let how = (*name, *size);
                self.for_caller(request, 0, |who| {
                    self.get_xattr(&*held()?, who, how, answer)
                })?;
            }
            Op::ListXattr { size } => {
                self.for_caller(request, 0, |who| {
                    self.list_xattrs(&*held()?, who, *size, answer)
                })?;
            }
            Op::RemoveXattr { name } => {
                self.for_caller(request, 0, |who| self.remove_xattr(&*held()?, who, name))?;
            }
            Op::Ioctl {
                flags,
                command,
                input,
                output,
                ..
            } => {
                let call = ioctl::Call {
                    command: *command,
                    flags: *flags,
                    input,
                    output: *output,
                };
                let who = Credentials::new(request.uid, request.gid, &[]);
                self.ioctl(&*held()?, &who, &call, answer)?;
            }
            Op::StatFs => {
                let s = self.tried(self.shared.volume.statfs())?;
                answer.statfs(&StatFs {
                    blocks: s.blocks,
                    free: s.free_blocks,
                    available: s.available_blocks,
                    files: s.inodes,
                    free_files: s.free_inodes,
                    block_size: s.block_size,
                    fragment_size: s.block_size,
                    name_length: s.name_max,
                });
            }
            Op::SyncFs => {
                self.tried(self.shared.volume.sync())?;
            }
            // Requests that the kernel handles itself once it knows that the server does not support them, or
            // replaces: flush after the pages it wrote, opening directories, access (the kernel checks permissions),
            // poll, locks.
            _ => return Err(Errno::NOSYS),
        }
        Ok(0)
    }
}

impl Handler for Filesystem {
    fn init(&self, _offer: &KernelOffer, notifier: Notifier) -> Wants {
        let _ = self.notifier.set(notifier);
        self.wants()
    }

    fn handle(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let kind = RequestKind::of(&request.operation);
        let counted = self.shared.counters.begin(kind);
        let mut done = self.act(request, answer);
        if self.sync && done.is_ok() && kind.changes_metadata() {
            done = done.and_then(|n| self.tried(self.shared.volume.sync()).map(|()| n));
        }
        counted.done(done.is_err(), *done.as_ref().unwrap_or(&0));
        done.map(|_| ())
    }

    fn unmounting(&self) {
        self.shared.nodes.clear();
        self.shared.close_early();
    }

    fn destroy(&self) {
        self.shared.nodes.clear();
        self.shared.end_read_only();
    }
}

//! The one decoder of requests, for both transports.
//!
//! A message is a header, the structure of the operation, and what follows it: names, data. `/dev/fuse` delivers
//! them in one piece, a ring in three. Every length is checked here; what does not fit is [`Malformed`] and is
//! answered with an error, never a panic.

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::attr::{FileLock, Time};
use crate::request::{Forgets, Operation, Request, SetAttr, SetTime};
use crate::wire::{self, InHeader, bits, opcode};

/// A request that is shorter than its operation needs, or a name without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl From<Malformed> for Errno {
    fn from(_: Malformed) -> Self {
        Errno::IO
    }
}

/// The bytes after the header.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    /// Structure and rest in one piece, as `/dev/fuse` delivers them.
    Joined(&'a [u8]),
    /// Structure and rest apart, as a ring delivers them.
    Split { fixed: &'a [u8], rest: &'a [u8] },
}

impl<'a> Body<'a> {
    fn fixed<T: FromBytes + KnownLayout + Immutable>(self) -> Result<(T, &'a [u8]), Malformed> {
        match self {
            Body::Joined(bytes) => T::read_from_prefix(bytes).map_err(|_| Malformed),
            Body::Split { fixed, rest } => {
                let (value, _) = T::read_from_prefix(fixed).map_err(|_| Malformed)?;
                Ok((value, rest))
            }
        }
    }

    /// The bytes of an operation without a structure.
    fn rest(self) -> &'a [u8] {
        match self {
            Body::Joined(rest) | Body::Split { rest, .. } => rest,
        }
    }
}

/// Results of INIT that change the layout of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dialect {
    pub setxattr_ext: bool,
}

/// Splits a message of `/dev/fuse` into its header and the rest.
pub(crate) fn header(message: &[u8]) -> Result<(InHeader, &[u8]), Malformed> {
    let (header, _) = InHeader::read_from_prefix(message).map_err(|_| Malformed)?;
    let end = usize::try_from(header.len).map_err(|_| Malformed)?;
    let body = message.get(size_of::<InHeader>()..end).ok_or(Malformed)?;
    Ok((header, body))
}

/// A name and what follows its NUL.
fn name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(Malformed)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn only_name(bytes: &[u8]) -> Result<&[u8], Malformed> {
    name(bytes).map(|(name, _)| name)
}

fn prefix(bytes: &[u8], length: u32) -> Result<&[u8], Malformed> {
    bytes
        .get(..usize::try_from(length).map_err(|_| Malformed)?)
        .ok_or(Malformed)
}

fn lock(lock: &wire::FileLockWire) -> FileLock {
    FileLock {
        start: lock.start,
        end: lock.end,
        kind: lock.kind,
        pid: lock.pid,
    }
}

/// Decodes a request.
pub(crate) fn request<'a>(
    header: &InHeader,
    body: Body<'a>,
    dialect: Dialect,
) -> Result<Request<'a>, Malformed> {
    Ok(Request {
        unique: header.unique,
        node: header.nodeid,
        uid: header.uid,
        gid: header.gid,
        pid: header.pid,
        operation: operation(header.opcode, body, dialect)?,
    })
}

fn operation<'a>(code: u32, body: Body<'a>, dialect: Dialect) -> Result<Operation<'a>, Malformed> {
    Ok(match code {
        opcode::LOOKUP => Operation::Lookup {
            name: only_name(body.rest())?,
        },
        opcode::FORGET => Operation::Forget {
            lookups: body.fixed::<wire::ForgetIn>()?.0.nlookup,
        },
        opcode::BATCH_FORGET => {
            let (batch, rest) = body.fixed::<wire::BatchForgetIn>()?;
            let length = (batch.count as usize)
                .checked_mul(size_of::<wire::ForgetOne>())
                .ok_or(Malformed)?;
            Operation::BatchForget(Forgets {
                bytes: rest.get(..length).ok_or(Malformed)?,
            })
        }
        opcode::GETATTR => {
            let (get, _) = body.fixed::<wire::GetAttrIn>()?;
            Operation::GetAttr {
                handle: (get.flags & bits::GETATTR_FH != 0).then_some(get.fh),
            }
        }
        opcode::STATX => {
            let (get, _) = body.fixed::<wire::StatxIn>()?;
            let handle = (get.getattr_flags & bits::GETATTR_FH != 0).then_some(get.fh);
            Operation::Statx {
                handle,
                flags: get.sx_flags,
                mask: get.sx_mask,
            }
        }
        opcode::SETATTR => Operation::SetAttr(set_attr(&body.fixed::<wire::SetAttrIn>()?.0)),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => {
            let (name, rest) = name(body.rest())?;
            Operation::Symlink {
                name,
                target: only_name(rest)?,
            }
        }
        opcode::MKNOD => {
            let (make, rest) = body.fixed::<wire::MknodIn>()?;
            Operation::Mknod {
                name: only_name(rest)?,
                mode: make.mode,
                rdev: make.rdev,
                umask: make.umask,
            }
        }
        opcode::MKDIR => {
            let (make, rest) = body.fixed::<wire::MkdirIn>()?;
            Operation::Mkdir {
                name: only_name(rest)?,
                mode: make.mode,
                umask: make.umask,
            }
        }
        opcode::UNLINK => Operation::Unlink {
            name: only_name(body.rest())?,
        },
        opcode::RMDIR => Operation::Rmdir {
            name: only_name(body.rest())?,
        },
        opcode::RENAME => {
            let (rename, rest) = body.fixed::<wire::RenameIn>()?;
            let (name, rest) = name(rest)?;
            Operation::Rename {
                name,
                new_parent: rename.newdir,
                new_name: only_name(rest)?,
                flags: 0,
            }
        }
        opcode::RENAME2 => {
            let (rename, rest) = body.fixed::<wire::Rename2In>()?;
            let (name, rest) = name(rest)?;
            Operation::Rename {
                name,
                new_parent: rename.newdir,
                new_name: only_name(rest)?,
                flags: rename.flags,
            }
        }
        opcode::LINK => {
            let (link, rest) = body.fixed::<wire::LinkIn>()?;
            Operation::Link {
                target: link.oldnodeid,
                name: only_name(rest)?,
            }
        }
        opcode::OPEN => {
            let (open, _) = body.fixed::<wire::OpenIn>()?;
            Operation::Open {
                flags: open.flags,
                kill_suidgid: open.open_flags & bits::OPEN_KILL_SUIDGID != 0,
            }
        }
        opcode::CREATE => {
            let (create, rest) = body.fixed::<wire::CreateIn>()?;
            Operation::Create {
                name: only_name(rest)?,
                mode: create.mode,
                umask: create.umask,
                flags: create.flags,
                kill_suidgid: create.open_flags & bits::OPEN_KILL_SUIDGID != 0,
            }
        }
        opcode::TMPFILE => {
            let (create, rest) = body.fixed::<wire::CreateIn>()?;
            // The name is the kernel's own affair; that it is there at all is not promised.
            let name = name(rest).map_or(&[][..], |(name, _)| name);
            Operation::Tmpfile {
                name,
                mode: create.mode,
                umask: create.umask,
                flags: create.flags,
            }
        }
        opcode::READ => {
            let (read, _) = body.fixed::<wire::ReadIn>()?;
            Operation::Read {
                handle: read.fh,
                offset: read.offset,
                size: read.size,
                flags: read.flags,
            }
        }
        opcode::WRITE => {
            let (write, rest) = body.fixed::<wire::WriteIn>()?;
            Operation::Write {
                handle: write.fh,
                offset: write.offset,
                data: prefix(rest, write.size)?,
                cached: write.write_flags & bits::WRITE_CACHE != 0,
                kill_suidgid: write.write_flags & bits::WRITE_KILL_SUIDGID != 0,
                flags: write.flags,
            }
        }
        opcode::FLUSH => {
            let (flush, _) = body.fixed::<wire::FlushIn>()?;
            Operation::Flush {
                handle: flush.fh,
                lock_owner: flush.lock_owner,
            }
        }
        opcode::RELEASE => {
            let (release, _) = body.fixed::<wire::ReleaseIn>()?;
            Operation::Release {
                handle: release.fh,
                flags: release.flags,
                lock_owner: release.lock_owner,
                flush: release.release_flags & bits::RELEASE_FLUSH != 0,
                unlock: release.release_flags & bits::RELEASE_FLOCK_UNLOCK != 0,
            }
        }
        opcode::FSYNC => {
            let (sync, _) = body.fixed::<wire::FsyncIn>()?;
            Operation::Fsync {
                handle: sync.fh,
                datasync: sync.fsync_flags & bits::FSYNC_DATASYNC != 0,
            }
        }
        opcode::OPENDIR => Operation::OpenDir {
            flags: body.fixed::<wire::OpenIn>()?.0.flags,
        },
        opcode::READDIR => {
            let (read, _) = body.fixed::<wire::ReadIn>()?;
            Operation::ReadDir {
                handle: read.fh,
                offset: read.offset,
                size: read.size,
            }
        }
        opcode::READDIRPLUS => {
            let (read, _) = body.fixed::<wire::ReadIn>()?;
            Operation::ReadDirPlus {
                handle: read.fh,
                offset: read.offset,
                size: read.size,
            }
        }
        opcode::RELEASEDIR => {
            let (release, _) = body.fixed::<wire::ReleaseIn>()?;
            Operation::ReleaseDir {
                handle: release.fh,
                flags: release.flags,
            }
        }
        opcode::FSYNCDIR => {
            let (sync, _) = body.fixed::<wire::FsyncIn>()?;
            Operation::FsyncDir {
                handle: sync.fh,
                datasync: sync.fsync_flags & bits::FSYNC_DATASYNC != 0,
            }
        }
        opcode::STATFS => Operation::StatFs,
        opcode::SETXATTR => set_xattr(body, dialect)?,
        opcode::GETXATTR => {
            let (get, rest) = body.fixed::<wire::GetXattrIn>()?;
            Operation::GetXattr {
                name: only_name(rest)?,
                size: get.size,
            }
        }
        opcode::LISTXATTR => Operation::ListXattr {
            size: body.fixed::<wire::GetXattrIn>()?.0.size,
        },
        opcode::REMOVEXATTR => Operation::RemoveXattr {
            name: only_name(body.rest())?,
        },
        opcode::ACCESS => Operation::Access {
            mask: body.fixed::<wire::AccessIn>()?.0.mask,
        },
        opcode::GETLK => {
            let (get, _) = body.fixed::<wire::LkIn>()?;
            Operation::GetLock {
                handle: get.fh,
                owner: get.owner,
                lock: lock(&get.lk),
            }
        }
        opcode::SETLK | opcode::SETLKW => {
            let (set, _) = body.fixed::<wire::LkIn>()?;
            Operation::SetLock {
                handle: set.fh,
                owner: set.owner,
                lock: lock(&set.lk),
                wait: code == opcode::SETLKW,
                flock: set.lk_flags & bits::LK_FLOCK != 0,
            }
        }
        opcode::IOCTL => {
            let (control, rest) = body.fixed::<wire::IoctlIn>()?;
            Operation::Ioctl {
                handle: control.fh,
                flags: control.flags,
                command: control.cmd,
                argument: control.arg,
                input: prefix(rest, control.in_size)?,
                output: control.out_size,
            }
        }
        opcode::LSEEK => {
            let (seek, _) = body.fixed::<wire::LseekIn>()?;
            Operation::Seek {
                handle: seek.fh,
                offset: seek.offset,
                whence: seek.whence,
            }
        }
        opcode::FALLOCATE => {
            let (allocate, _) = body.fixed::<wire::FallocateIn>()?;
            Operation::Fallocate {
                handle: allocate.fh,
                offset: allocate.offset,
                length: allocate.length,
                mode: allocate.mode,
            }
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => copy_file_range(code, body)?,
        opcode::POLL => {
            let (poll, _) = body.fixed::<wire::PollIn>()?;
            Operation::Poll {
                handle: poll.fh,
                kernel_handle: poll.kh,
                flags: poll.flags,
                events: poll.events,
            }
        }
        opcode::BMAP => {
            let (map, _) = body.fixed::<wire::BmapIn>()?;
            Operation::Bmap {
                block: map.block,
                block_size: map.blocksize,
            }
        }
        opcode::SYNCFS => Operation::SyncFs,
        opcode::INTERRUPT => Operation::Interrupt {
            unique: body.fixed::<wire::InterruptIn>()?.0.unique,
        },
        opcode::DESTROY => Operation::Destroy,
        unknown => Operation::Unknown(unknown),
    })
}

fn set_attr(set: &wire::SetAttrIn) -> SetAttr {
    let has = |bit: u32| set.valid & bit != 0;
    let time = |wanted: u32, now: u32, seconds: u64, nanoseconds: u32| {
        has(wanted | now).then(|| match has(now) {
            true => SetTime::Now,
            false => SetTime::At(Time {
                seconds: seconds.cast_signed(),
                nanoseconds,
            }),
        })
    };
    SetAttr {
        handle: has(bits::FATTR_FH).then_some(set.fh),
        size: has(bits::FATTR_SIZE).then_some(set.size),
        mode: has(bits::FATTR_MODE).then_some(set.mode),
        uid: has(bits::FATTR_UID).then_some(set.uid),
        gid: has(bits::FATTR_GID).then_some(set.gid),
        atime: time(
            bits::FATTR_ATIME,
            bits::FATTR_ATIME_NOW,
            set.atime,
            set.atimensec,
        ),
        mtime: time(
            bits::FATTR_MTIME,
            bits::FATTR_MTIME_NOW,
            set.mtime,
            set.mtimensec,
        ),
        ctime: has(bits::FATTR_CTIME).then_some(Time {
            seconds: set.ctime.cast_signed(),
            nanoseconds: set.ctimensec,
        }),
        kill_suidgid: has(bits::FATTR_KILL_SUIDGID),
    }
}

fn set_xattr(body: Body<'_>, dialect: Dialect) -> Result<Operation<'_>, Malformed> {
    let (size, flags, extended, rest) = if dialect.setxattr_ext {
        let (set, rest) = body.fixed::<wire::SetXattrIn>()?;
        (set.size, set.flags, set.setxattr_flags, rest)
    } else {
        let (set, rest) = body.fixed::<wire::SetXattrInShort>()?;
        (set.size, set.flags, 0, rest)
    };
    let (name, rest) = name(rest)?;
    let acl_kill_sgid = extended & bits::SETXATTR_ACL_KILL_SGID != 0;
    Ok(Operation::SetXattr {
        name,
        value: prefix(rest, size)?,
        flags,
        acl_kill_sgid,
    })
}

fn copy_file_range(code: u32, body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (copy, _) = body.fixed::<wire::CopyFileRangeIn>()?;
    // The older form counts what was copied in 32 bits. Its last whole block is the most it can tell of.
    let most = if code == opcode::COPY_FILE_RANGE {
        u64::from(!4095u32)
    } else {
        u64::MAX
    };
    Ok(Operation::CopyFileRange {
        handle: copy.fh_in,
        offset: copy.off_in,
        to_node: copy.nodeid_out,
        to_handle: copy.fh_out,
        to_offset: copy.off_out,
        length: copy.len.min(most),
        flags: copy.flags,
    })
}

/// Whether the kernel waits for an answer.
pub(crate) fn is_answered(code: u32) -> bool {
    !matches!(
        code,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY
    )
}

/// Whether an answer may be longer than [`Answer`](crate::Answer)'s small structures. Such requests carry few bytes
/// (a name, or an ioctl's argument), so a transport with one buffer for both copies the request aside.
pub(crate) fn answer_is_long(code: u32) -> bool {
    matches!(
        code,
        opcode::READ
            | opcode::READDIR
            | opcode::READDIRPLUS
            | opcode::READLINK
            | opcode::GETXATTR
            | opcode::LISTXATTR
            | opcode::IOCTL
    )
}

#[cfg(test)]
mod tests;

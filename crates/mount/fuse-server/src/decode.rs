//! The decoder of requests, shared by both transports.
//!
//! A message is a header, the structure of the operation, and variable data: names or file data. `/dev/fuse` delivers
//! them in one piece, a ring in three. Every length is checked here. A malformed message is [`Malformed`] and is
//! answered with an error, never a panic.

mod attributes;
mod files;
mod names;

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::request::{Operation, Request};
use crate::wire::{self, InHeader, opcode};

/// A request that is shorter than its operation needs, or that has an unterminated name.
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
    /// Structure and rest in one piece, from `/dev/fuse`.
    Joined(&'a [u8]),
    /// Structure and rest separately, from a ring.
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

    /// Returns the bytes of an operation without a structure.
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

/// Returns a name and the bytes after its NUL.
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

/// Decodes the message of an operation code. Messages of more than one value are decoded in the submodules.
fn operation<'a>(code: u32, body: Body<'a>, dialect: Dialect) -> Result<Operation<'a>, Malformed> {
    Ok(match code {
        opcode::LOOKUP => Operation::Lookup {
            name: only_name(body.rest())?,
        },
        opcode::FORGET => Operation::Forget {
            lookups: body.fixed::<wire::ForgetIn>()?.0.nlookup,
        },
        opcode::BATCH_FORGET => names::batch_forget(body)?,
        opcode::GETATTR => attributes::get_attr(body)?,
        opcode::STATX => attributes::statx(body)?,
        opcode::SETATTR => {
            Operation::SetAttr(attributes::set_attr(&body.fixed::<wire::SetAttrIn>()?.0))
        }
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => names::symlink(body)?,
        opcode::MKNOD => names::mknod(body)?,
        opcode::MKDIR => names::mkdir(body)?,
        opcode::UNLINK => Operation::Unlink {
            name: only_name(body.rest())?,
        },
        opcode::RMDIR => Operation::Rmdir {
            name: only_name(body.rest())?,
        },
        opcode::RENAME => names::rename(body)?,
        opcode::RENAME2 => names::rename2(body)?,
        opcode::LINK => names::link(body)?,
        opcode::OPEN => files::open(body)?,
        opcode::CREATE => names::create(body)?,
        opcode::TMPFILE => names::tmpfile(body)?,
        opcode::READ => files::read(body)?,
        opcode::WRITE => files::write(body)?,
        opcode::FLUSH => files::flush(body)?,
        opcode::RELEASE => files::release(body)?,
        opcode::FSYNC => files::fsync(body)?,
        opcode::OPENDIR => Operation::OpenDir {
            flags: body.fixed::<wire::OpenIn>()?.0.flags,
        },
        opcode::READDIR => names::read_dir(body)?,
        opcode::READDIRPLUS => names::read_dir_plus(body)?,
        opcode::RELEASEDIR => names::release_dir(body)?,
        opcode::FSYNCDIR => names::fsync_dir(body)?,
        opcode::STATFS => Operation::StatFs,
        opcode::SETXATTR => attributes::set_xattr(body, dialect)?,
        opcode::GETXATTR => attributes::get_xattr(body)?,
        opcode::LISTXATTR => Operation::ListXattr {
            size: body.fixed::<wire::GetXattrIn>()?.0.size,
        },
        opcode::REMOVEXATTR => Operation::RemoveXattr {
            name: only_name(body.rest())?,
        },
        opcode::ACCESS => Operation::Access {
            mask: body.fixed::<wire::AccessIn>()?.0.mask,
        },
        opcode::GETLK => files::get_lock(body)?,
        opcode::SETLK | opcode::SETLKW => files::set_lock(code, body)?,
        opcode::IOCTL => files::ioctl(body)?,
        opcode::LSEEK => files::seek(body)?,
        opcode::FALLOCATE => files::fallocate(body)?,
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => files::copy_file_range(code, body)?,
        opcode::POLL => files::poll(body)?,
        opcode::BMAP => files::bmap(body)?,
        opcode::SYNCFS => Operation::SyncFs,
        opcode::INTERRUPT => Operation::Interrupt {
            unique: body.fixed::<wire::InterruptIn>()?.0.unique,
        },
        opcode::DESTROY => Operation::Destroy,
        unknown => Operation::Unknown(unknown),
    })
}

/// Returns whether the kernel waits for an answer.
pub(crate) fn is_answered(code: u32) -> bool {
    !matches!(
        code,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY
    )
}

/// Returns whether an answer may be longer than the small structures of [`Answer`](crate::Answer). Such requests have
/// few bytes (a name, or an ioctl's argument), so a transport with one buffer for both first copies the request.
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

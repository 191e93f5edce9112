//! Messages about names, and about the contents of directories.

use super::{Body, Malformed, name, only_name};
use crate::request::{Forgets, Operation};
use crate::wire::{self, bits};

#[inline]
pub(super) fn batch_forget(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (batch, rest) = body.fixed::<wire::BatchForgetIn>()?;
    let length = (batch.count as usize)
        .checked_mul(size_of::<wire::ForgetOne>())
        .ok_or(Malformed)?;
    Ok(Operation::BatchForget(Forgets {
        bytes: rest.get(..length).ok_or(Malformed)?,
    }))
}

#[inline]
pub(super) fn symlink(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (name, rest) = name(body.rest())?;
    Ok(Operation::Symlink {
        name,
        target: only_name(rest)?,
    })
}

#[inline]
pub(super) fn mknod(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (make, rest) = body.fixed::<wire::MknodIn>()?;
    Ok(Operation::Mknod {
        name: only_name(rest)?,
        mode: make.mode,
        rdev: make.rdev,
        umask: make.umask,
    })
}

#[inline]
pub(super) fn mkdir(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (make, rest) = body.fixed::<wire::MkdirIn>()?;
    Ok(Operation::Mkdir {
        name: only_name(rest)?,
        mode: make.mode,
        umask: make.umask,
    })
}

#[inline]
pub(super) fn rename(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (rename, rest) = body.fixed::<wire::RenameIn>()?;
    let (name, rest) = name(rest)?;
    Ok(Operation::Rename {
        name,
        new_parent: rename.newdir,
        new_name: only_name(rest)?,
        flags: 0,
    })
}

#[inline]
pub(super) fn rename2(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (rename, rest) = body.fixed::<wire::Rename2In>()?;
    let (name, rest) = name(rest)?;
    Ok(Operation::Rename {
        name,
        new_parent: rename.newdir,
        new_name: only_name(rest)?,
        flags: rename.flags,
    })
}

#[inline]
pub(super) fn link(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (link, rest) = body.fixed::<wire::LinkIn>()?;
    Ok(Operation::Link {
        target: link.oldnodeid,
        name: only_name(rest)?,
    })
}

#[inline]
pub(super) fn create(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (create, rest) = body.fixed::<wire::CreateIn>()?;
    Ok(Operation::Create {
        name: only_name(rest)?,
        mode: create.mode,
        umask: create.umask,
        flags: create.flags,
        kill_suidgid: create.open_flags & bits::OPEN_KILL_SUIDGID != 0,
    })
}

#[inline]
pub(super) fn tmpfile(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (create, rest) = body.fixed::<wire::CreateIn>()?;
    // The kernel alone uses the name, which may be missing.
    let name = name(rest).map_or(&[][..], |(name, _)| name);
    Ok(Operation::Tmpfile {
        name,
        mode: create.mode,
        umask: create.umask,
        flags: create.flags,
    })
}

#[inline]
pub(super) fn read_dir(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (read, _) = body.fixed::<wire::ReadIn>()?;
    Ok(Operation::ReadDir {
        handle: read.fh,
        offset: read.offset,
        size: read.size,
    })
}

#[inline]
pub(super) fn read_dir_plus(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (read, _) = body.fixed::<wire::ReadIn>()?;
    Ok(Operation::ReadDirPlus {
        handle: read.fh,
        offset: read.offset,
        size: read.size,
    })
}

#[inline]
pub(super) fn release_dir(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (release, _) = body.fixed::<wire::ReleaseIn>()?;
    Ok(Operation::ReleaseDir {
        handle: release.fh,
        flags: release.flags,
    })
}

#[inline]
pub(super) fn fsync_dir(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (sync, _) = body.fixed::<wire::FsyncIn>()?;
    Ok(Operation::FsyncDir {
        handle: sync.fh,
        datasync: sync.fsync_flags & bits::FSYNC_DATASYNC != 0,
    })
}

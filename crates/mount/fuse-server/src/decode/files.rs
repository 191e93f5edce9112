//! Messages about open files and their data.

use super::{Body, Malformed, prefix};
use crate::attr::FileLock;
use crate::request::Operation;
use crate::wire::{self, bits, opcode};

#[inline]
pub(super) fn open(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (open, _) = body.fixed::<wire::OpenIn>()?;
    Ok(Operation::Open {
        flags: open.flags,
        kill_suidgid: open.open_flags & bits::OPEN_KILL_SUIDGID != 0,
    })
}

#[inline]
pub(super) fn read(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (read, _) = body.fixed::<wire::ReadIn>()?;
    Ok(Operation::Read {
        handle: read.fh,
        offset: read.offset,
        size: read.size,
        flags: read.flags,
    })
}

#[inline]
pub(super) fn write(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (write, rest) = body.fixed::<wire::WriteIn>()?;
    Ok(Operation::Write {
        handle: write.fh,
        offset: write.offset,
        data: prefix(rest, write.size)?,
        cached: write.write_flags & bits::WRITE_CACHE != 0,
        kill_suidgid: write.write_flags & bits::WRITE_KILL_SUIDGID != 0,
        flags: write.flags,
    })
}

#[inline]
pub(super) fn flush(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (flush, _) = body.fixed::<wire::FlushIn>()?;
    Ok(Operation::Flush {
        handle: flush.fh,
        lock_owner: flush.lock_owner,
    })
}

#[inline]
pub(super) fn release(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (release, _) = body.fixed::<wire::ReleaseIn>()?;
    Ok(Operation::Release {
        handle: release.fh,
        flags: release.flags,
        lock_owner: release.lock_owner,
        flush: release.release_flags & bits::RELEASE_FLUSH != 0,
        unlock: release.release_flags & bits::RELEASE_FLOCK_UNLOCK != 0,
    })
}

#[inline]
pub(super) fn fsync(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (sync, _) = body.fixed::<wire::FsyncIn>()?;
    Ok(Operation::Fsync {
        handle: sync.fh,
        datasync: sync.fsync_flags & bits::FSYNC_DATASYNC != 0,
    })
}

#[inline]
pub(super) fn get_lock(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (get, _) = body.fixed::<wire::LkIn>()?;
    Ok(Operation::GetLock {
        handle: get.fh,
        owner: get.owner,
        lock: lock(&get.lk),
    })
}

#[inline]
pub(super) fn set_lock(code: u32, body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (set, _) = body.fixed::<wire::LkIn>()?;
    Ok(Operation::SetLock {
        handle: set.fh,
        owner: set.owner,
        lock: lock(&set.lk),
        wait: code == opcode::SETLKW,
        flock: set.lk_flags & bits::LK_FLOCK != 0,
    })
}

#[inline]
pub(super) fn ioctl(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (control, rest) = body.fixed::<wire::IoctlIn>()?;
    Ok(Operation::Ioctl {
        handle: control.fh,
        flags: control.flags,
        command: control.cmd,
        argument: control.arg,
        input: prefix(rest, control.in_size)?,
        output: control.out_size,
    })
}

#[inline]
pub(super) fn seek(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (seek, _) = body.fixed::<wire::LseekIn>()?;
    Ok(Operation::Seek {
        handle: seek.fh,
        offset: seek.offset,
        whence: seek.whence,
    })
}

#[inline]
pub(super) fn fallocate(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (allocate, _) = body.fixed::<wire::FallocateIn>()?;
    Ok(Operation::Fallocate {
        handle: allocate.fh,
        offset: allocate.offset,
        length: allocate.length,
        mode: allocate.mode,
    })
}

#[inline]
pub(super) fn poll(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (poll, _) = body.fixed::<wire::PollIn>()?;
    Ok(Operation::Poll {
        handle: poll.fh,
        kernel_handle: poll.kh,
        flags: poll.flags,
        events: poll.events,
    })
}

#[inline]
pub(super) fn bmap(body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (map, _) = body.fixed::<wire::BmapIn>()?;
    Ok(Operation::Bmap {
        block: map.block,
        block_size: map.blocksize,
    })
}

#[inline]
pub(super) fn copy_file_range(code: u32, body: Body<'_>) -> Result<Operation<'_>, Malformed> {
    let (copy, _) = body.fixed::<wire::CopyFileRangeIn>()?;
    // The older form answers with 32 bits. Limit the copy to the last whole block that 32 bits can express.
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

fn lock(lock: &wire::FileLockWire) -> FileLock {
    FileLock {
        start: lock.start,
        end: lock.end,
        kind: lock.kind,
        pid: lock.pid,
    }
}

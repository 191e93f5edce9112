//! Many operations by one call.

use crate::border::{self, Fail, call_long, handle, path, store};
use crate::open_file::OpenFile;
use crate::{Stat, read_full, stat};
use engine::{OpenOptions, SetAttributes, Volume};
use std::ffi::{c_char, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Operations that a thread takes at a time.
const PIECE: usize = 16;

/// An operation of a batch; `extant.h` documents the fields.
#[repr(C)]
pub struct Op {
    code: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    path: *const c_char,
    target: *const c_char,
    file: *mut OpenFile,
    buffer: *mut c_void,
    length: u64,
    offset: u64,
    st: *mut Stat,
    result: i64,
}

/// The caller's array, of which each element is taken by one thread.
struct Ops(*mut Op, usize);

// SAFETY: the header asks for pointers that may be used by any thread; each operation is taken by one thread.
unsafe impl Sync for Ops {}

const MKDIR: u32 = 1;
const RMDIR: u32 = 2;
const UNLINK: u32 = 3;
const RENAME: u32 = 4;
const LINK: u32 = 5;
const SYMLINK: u32 = 6;
const CHMOD: u32 = 7;
const CHOWN: u32 = 8;
const TRUNCATE: u32 = 9;
const STAT: u32 = 10;
const LSTAT: u32 = 11;
const WRITE_FILE: u32 = 12;
const READ_FILE: u32 = 13;
const PREAD: u32 = 14;
const PWRITE: u32 = 15;
const FSYNC: u32 = 16;

/// Runs one operation, and returns its count.
///
/// # Safety
/// The fields that the operation reads are as the header asks for.
unsafe fn run(volume: &Volume, op: &Op) -> Result<usize, Fail> {
    let length = usize::try_from(op.length).map_err(|_| Fail::Errno(22))?;
    // SAFETY: by the caller; each field is only read by operations that the header says need it.
    unsafe {
        match op.code {
            PREAD => {
                return read_full(
                    handle(op.file)?,
                    border::room(op.buffer, length)?,
                    op.offset,
                );
            }
            PWRITE => {
                handle(op.file)?.write_all_at(border::bytes(op.buffer, length)?, op.offset)?;
                return Ok(length);
            }
            FSYNC => return Ok(handle(op.file)?.sync_all().map(|()| 0)?),
            _ => {}
        }
        let at = path(op.path)?;
        match op.code {
            MKDIR => volume.create_dir_with_mode(at, op.mode).map(drop)?,
            RMDIR => volume.remove_dir(at)?,
            UNLINK => volume.remove_file(at)?,
            RENAME => volume.rename(at, path(op.target)?)?,
            LINK => volume.hard_link(at, path(op.target)?)?,
            SYMLINK => volume.symlink(path(op.target)?, at)?,
            CHMOD => volume.set_permissions(at, op.mode)?,
            CHOWN => volume.set_attributes(
                at,
                &SetAttributes {
                    uid: Some(op.uid).filter(|&id| id != u32::MAX),
                    gid: Some(op.gid).filter(|&id| id != u32::MAX),
                    ..SetAttributes::default()
                },
            )?,
            TRUNCATE => volume.set_len(at, op.length)?,
            STAT => store(op.st, stat(&volume.metadata(at)?))?,
            LSTAT => store(op.st, stat(&volume.symlink_metadata(at)?))?,
            WRITE_FILE => {
                let options = OpenOptions::new().write(true).create(true).truncate(true);
                let file = volume.open_file_with(at, &options.mode(op.mode))?;
                file.write_all_at(border::bytes(op.buffer, length)?, 0)?;
                return Ok(length);
            }
            READ_FILE => {
                let file = volume.open_file(at)?;
                return read_full(&file, border::room(op.buffer, length)?, op.offset);
            }
            _ => {
                return Err(Fail::Text(
                    22,
                    format!("operation {} is not known", op.code),
                ));
            }
        }
    }
    Ok(0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_submit(
    volume: *mut Volume,
    ops: *mut Op,
    count: usize,
    threads: c_uint,
) -> isize {
    call_long(|| {
        // SAFETY: a volume.
        let volume = unsafe { handle(volume)? };
        if ops.is_null() && count > 0 {
            return Err(Fail::Null);
        }
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => usize::try_from(n).unwrap_or(1),
        };
        let threads = threads.min(count.div_ceil(PIECE)).max(1);
        let (ops, next, failed) = (&Ops(ops, count), AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            loop {
                let first = next.fetch_add(PIECE, Ordering::Relaxed);
                for n in first..first.saturating_add(PIECE).min(ops.1) {
                    // SAFETY: `n` is below the count, and no other thread takes the same number.
                    let op = unsafe { &mut *ops.0.add(n) };
                    // SAFETY: as the header asks for.
                    let done = catch_unwind(AssertUnwindSafe(|| unsafe { run(volume, op) }));
                    let done = done.unwrap_or_else(|_| Err(border::fault()));
                    op.result = match done {
                        Ok(n) => n as i64,
                        Err(fail) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            -i64::from(border::errno(fail))
                        }
                    };
                }
                if first >= ops.1 {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            engine::blockdev::start_threads(scope, 1..threads, |_| work());
            work();
        });
        Ok(failed.into_inner())
    })
}

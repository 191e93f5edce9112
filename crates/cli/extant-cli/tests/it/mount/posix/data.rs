//! Calls on the contents of files.

use super::names::{done, mode};
use super::sys::{self, Result};
use super::world::{Args, World};
use rustix::fs::{CWD, FallocateFlags, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::os::fd::AsFd;

const FALLOCATE: &[(&str, u32)] = &[
    ("0", 0),
    ("keep", FallocateFlags::KEEP_SIZE.bits()),
    ("punch", FallocateFlags::PUNCH_HOLE.bits()),
    ("zero", FallocateFlags::ZERO_RANGE.bits()),
    ("collapse", FallocateFlags::COLLAPSE_RANGE.bits()),
    ("insert", FallocateFlags::INSERT_RANGE.bits()),
    ("unshare", FallocateFlags::UNSHARE_RANGE.bits()),
];

pub fn call(world: &mut World, verb: &str, args: &Args<'_>) -> Result<Option<String>> {
    let fd = || world.fd(args.bytes(0));
    let number = |at| args.number(at);
    Ok(Some(match verb {
        "read" => read(number(1), |buf| rustix::io::read(fd()?, buf)),
        "pread" => read(number(1), |buf| {
            rustix::io::pread(fd()?, buf, number(2) as u64)
        }),
        "cat" => cat(args),
        "write" => wrote(rustix::io::write(fd()?, args.bytes(1))),
        "pwrite" => wrote(rustix::io::pwrite(fd()?, args.bytes(1), number(2) as u64)),
        "dread" => direct_read(world, args),
        "dwrite" => direct_write(world, args),
        "truncate" => done(sys::truncate(&args.path(world, 0)?, number(1))),
        "ftruncate" => done(rustix::fs::ftruncate(fd()?, number(1) as u64)),
        "seek" => seek(world, args),
        "fallocate" => {
            let mode = FallocateFlags::from_bits_retain(args.flags(1, FALLOCATE));
            let (offset, len) = (number(2) as u64, number(3) as u64);
            done(rustix::fs::fallocate(fd()?, mode, offset, len))
        }
        "fill" => fill(world, args),
        "copy" => copy(world, args),
        "fsync" => done(rustix::fs::fsync(fd()?)),
        "fdatasync" => done(rustix::fs::fdatasync(fd()?)),
        "syncfs" => done(rustix::fs::syncfs(fd()?)),
        "mmapread" => {
            let at = (number(1) as u64, number(2) as usize);
            sys::mapped(fd()?, at, false, |map| shown(map))
        }
        "mmapwrite" => {
            let bytes = args.bytes(2);
            let at = number(1) as u64;
            let (page, inside) = (at / 4096 * 4096, (at % 4096) as usize);
            let put = |map: &mut [u8]| map[inside..].copy_from_slice(bytes);
            done(sys::mapped(fd()?, (page, inside + bytes.len()), true, put))
        }
        "msync" => done(sys::msync(
            fd()?,
            (number(1) as u64, number(2) as usize),
            args.bytes(3)[0],
        )),
        _ => return Ok(None),
    }?))
}

fn wrote(result: Result<usize>) -> Result<String> {
    Ok(format!("{} bytes", result?))
}

fn read(len: i64, from: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<String> {
    let mut buf = vec![0xee; len as usize];
    let len = from(&mut buf)?;
    Ok(shown(&buf[..len]))
}

fn cat(args: &Args<'_>) -> Result<String> {
    let read = std::fs::read(args.text(0));
    let read = read.map_err(|e| Errno::from_raw_os_error(e.raw_os_error().unwrap()))?;
    Ok(shown(&read))
}

/// Formats bytes briefly: runs of five or more as {byte*count}.
pub fn shown(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".into();
    }
    let mut out = String::new();
    let runs = bytes.chunk_by(|a, b| a == b);
    for run in runs {
        let byte = match run[0] {
            0 => "\\0".into(),
            b if b.is_ascii_graphic() => char::from(b).to_string(),
            b => format!("\\x{b:02x}"),
        };
        if run.len() < 5 {
            out += &byte.repeat(run.len());
        } else {
            out += &format!("{{{byte}*{}}}", run.len());
        }
        if out.len() > 400 {
            return format!("{out}... {} bytes", bytes.len());
        }
    }
    out
}

/// Reads a number of bytes into memory at the start of a page.
fn direct_read(world: &World, args: &Args<'_>) -> Result<String> {
    let (len, at, shift) = (args.number(1), args.number(2), args.number_or(3, 0));
    let (len, shift) = (len as usize, shift as usize);
    let mut memory = sys::aligned(len + shift);
    let buf = &mut memory.as_mut()[shift..];
    let len = rustix::io::pread(world.fd(args.bytes(0))?, &mut *buf, at as u64)?;
    Ok(shown(&buf[..len]))
}

fn direct_write(world: &World, args: &Args<'_>) -> Result<String> {
    let (data, at, shift) = (args.bytes(1), args.number(2), args.number_or(3, 0));
    let shift = shift as usize;
    let mut memory = sys::aligned(data.len() + shift);
    let buf = &mut memory.as_mut()[shift..];
    buf.copy_from_slice(data);
    wrote(rustix::io::pwrite(world.fd(args.bytes(0))?, buf, at as u64))
}

fn seek(world: &World, args: &Args<'_>) -> Result<String> {
    let at = args.number(1);
    let to = match args.text(2) {
        "set" => SeekFrom::Start(at as u64),
        "cur" => SeekFrom::Current(at),
        "end" => SeekFrom::End(at),
        "data" => SeekFrom::Data(at as u64),
        "hole" => SeekFrom::Hole(at as u64),
        other => panic!("from where: {other}"),
    };
    Ok(rustix::fs::seek(world.fd(args.bytes(0))?, to)?.to_string())
}

/// Runs fill NAME: a file that takes every block available to its owner, with the last blocks in NAME.rest.
fn fill(world: &mut World, args: &Args<'_>) -> Result<String> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let new = |path: &str| rustix::fs::openat(CWD, path, flags, mode(0o644));
    let name = args.text(0);
    rustix::fs::mkdirat(CWD, format!("{name}.rest"), mode(0o755))?;
    let rest: Result<Vec<_>> = (0..40).map(|i| new(&format!("{name}.rest/{i}"))).collect();
    let file = new(name)?;
    let (mut at, mut piece) = (0, 1 << 20);
    until_full(&file, || {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), at, piece) {
            Err(Errno::NOSPC) if piece > 4096 => piece /= 2,
            outcome => {
                outcome?;
                at += piece;
            }
        }
        Ok(())
    })?;
    // Setting one attribute takes exactly one block; other calls need more free blocks than they use.
    let mut rest = rest?.into_iter().zip(1u8..);
    until_full(&file, || {
        let (file, i) = rest.next().expect("few are left");
        rustix::fs::fsetxattr(file, c"user.rest", &[i; 2000], XattrFlags::empty())
    })?;
    world.files.insert(name.into(), file);
    Ok(String::new())
}

/// Writes until the volume is full, even after a sync, which may free reserved blocks.
fn until_full(file: impl AsFd, mut take: impl FnMut() -> Result<()>) -> Result<()> {
    let mut full = false;
    loop {
        match take() {
            Ok(()) => full = false,
            Err(Errno::NOSPC) if full => return Ok(()),
            Err(Errno::NOSPC) => {
                rustix::fs::fsync(file.as_fd())?;
                full = true;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Runs copy FROM OFFSET TO OFFSET LENGTH; an offset of "here" is the file's own.
fn copy(world: &World, args: &Args<'_>) -> Result<String> {
    let offset = |at| (args.text(at) != "here").then(|| args.number(at) as u64);
    let (mut from_at, mut to_at) = (offset(1), offset(3));
    let (from, to) = (world.fd(args.bytes(0))?, world.fd(args.bytes(2))?);
    let len = args.number(4) as usize;
    let copied = rustix::fs::copy_file_range(from, from_at.as_mut(), to, to_at.as_mut(), len)?;
    Ok(format!("{copied} bytes"))
}

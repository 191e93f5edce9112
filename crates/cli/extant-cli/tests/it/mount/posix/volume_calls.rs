//! Calls on whole volumes, locks, programs, devices, and steps of several calls.

use super::names::{done, open_flags};
use super::sys::{self, Result};
use super::world::{Args, World};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};

const FITRIM: u32 = 0xc018_5879;
const GETFSLABEL: u32 = 0x8100_9431;
const SETFSLABEL: u32 = 0x4100_9432;
const SHUTDOWN: u32 = 0x8004_587d;

pub fn call(world: &mut World, verb: &str, args: &Args<'_>) -> Result<Option<String>> {
    Ok(Some(match verb {
        "flock" => flock(world, args),
        "lock" => lock(world, args, libc::F_SETLK),
        "ofdlock" => lock(world, args, libc::F_OFD_SETLK),
        "otherlock" => sys::with_own_files(|| lock(world, args, libc::F_SETLK)),
        "othergetlock" => sys::with_own_files(|| lock(world, args, libc::F_GETLK)),
        "bind" => done(of_std(UnixListener::bind(args.text(0)).map(drop))),
        "connect" => done(of_std(UnixStream::connect(args.text(0)).map(drop))),
        "copyin" => copy_in(args),
        "run" => run(args),
        "spawn" => spawn(world, args),
        "kill" => {
            let mut child = world.running.remove(args.text(0)).expect("it runs");
            child.kill().unwrap();
            child.wait().unwrap();
            done(Ok(()))
        }
        "chdir" => done(rustix::process::chdir(args.bytes(0))),
        "cwd" => rustix::process::getcwd(Vec::new()).map(|path| {
            let path = path.into_string().unwrap();
            path.rsplit('/').next().unwrap_or_default().to_string()
        }),
        "handle" => sys::handle(args.bytes(0)).map(|handle| {
            world.handles.insert(args.name(), handle);
            String::new()
        }),
        "openhandle" => open_handle(world, args),
        "trim" => trim(args),
        "label" => label(args),
        "setlabel" => set_label(args),
        "shutdown" => {
            let how = (args.number(1) as u32).to_ne_bytes();
            ioctl(args, SHUTDOWN, &mut how.to_vec())
        }
        "ioctl" => ioctl(args, args.flags(1, &[]), &mut vec![0; 1 << 14]),
        "statfs" => statfs(args),
        "statfree" => free(args),
        "dirchange" => directory_under_change(args),
        "dirseek" => directory_seek(args),
        _ => return Ok(None),
    }?))
}

fn of_std<T>(result: std::io::Result<T>) -> Result<T> {
    result.map_err(|e| match e.raw_os_error() {
        Some(number) => Errno::from_raw_os_error(number),
        None => Errno::INVAL,
    })
}

fn flock(world: &World, args: &Args<'_>) -> Result<String> {
    let how = match args.text(1) {
        "sh" => FlockOperation::NonBlockingLockShared,
        "ex" => FlockOperation::NonBlockingLockExclusive,
        "un" => FlockOperation::Unlock,
        other => panic!("flock {other}"),
    };
    done(rustix::fs::flock(world.fd(args.bytes(0))?, how))
}

/// Runs lock FILE rd|wr|un START LENGTH.
fn lock(world: &World, args: &Args<'_>, command: i32) -> Result<String> {
    let kind = match args.text(1) {
        "rd" => libc::F_RDLCK,
        "wr" => libc::F_WRLCK,
        "un" => libc::F_UNLCK,
        other => panic!("lock {other}"),
    };
    let range = (args.number_or(2, 0), args.number_or(3, 0));
    let found = sys::lock(world.fd(args.bytes(0))?, command, kind, range)?;
    if command != libc::F_GETLK {
        return Ok(String::new());
    }
    let kind = match i32::from(found.l_type) {
        libc::F_RDLCK => "rd",
        libc::F_WRLCK => "wr",
        _ => return Ok("free".into()),
    };
    Ok(format!("{kind} {} {}", found.l_start, found.l_len))
}

fn copy_in(args: &Args<'_>) -> Result<String> {
    of_std(std::fs::copy(args.text(0), args.text(1)))?;
    done(rustix::fs::chmod(
        args.bytes(1),
        Mode::from_raw_mode(args.octal(2)),
    ))
}

fn command(args: &Args<'_>) -> Command {
    let mut command = Command::new(args.text(0));
    for at in 1.. {
        let Some(_) = args.get(at) else { break };
        command.arg(args.text(at));
    }
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn run(args: &Args<'_>) -> Result<String> {
    let output = of_std(command(args).output())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<_> = text.split_whitespace().collect();
    let code = output.status.code().unwrap_or(-1);
    Ok(format!("{code}: {}", words.join(" ")))
}

fn spawn(world: &mut World, args: &Args<'_>) -> Result<String> {
    let child = of_std(command(args).stdout(Stdio::null()).spawn())?;
    world.running.insert(args.name(), child);
    Ok(String::new())
}

fn open_handle(world: &mut World, args: &Args<'_>) -> Result<String> {
    let here = rustix::fs::openat(CWD, c".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let handle = &world.handles[args.text(0)];
    let file = sys::open_handle(here.as_fd(), handle, open_flags(args, 1).bits() as i32)?;
    args.keep(world, file);
    Ok(String::new())
}

fn ioctl(args: &Args<'_>, command: u32, bytes: &mut [u8]) -> Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, args.bytes(0), flags, Mode::empty())?;
    done(sys::ioctl(file.as_fd(), command, bytes))
}

/// Runs trim PATH START LENGTH LEAST; the amount trimmed depends on the free space.
fn trim(args: &Args<'_>) -> Result<String> {
    let words = [1, 2, 3].map(|at| (args.number(at) as u64).to_ne_bytes());
    let mut bytes = words.concat();
    ioctl(args, FITRIM, &mut bytes)?;
    let trimmed = u64::from_ne_bytes(bytes[8..16].try_into().unwrap());
    Ok(if trimmed > 0 { "some" } else { "nothing" }.into())
}

fn label(args: &Args<'_>) -> Result<String> {
    let mut bytes = [0; 256];
    ioctl(args, GETFSLABEL, &mut bytes)?;
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    Ok(super::data::shown(&bytes[..end]))
}

fn set_label(args: &Args<'_>) -> Result<String> {
    let mut bytes = [0; 256];
    let label = args.bytes(1);
    bytes[..label.len()].copy_from_slice(label);
    ioctl(args, SETFSLABEL, &mut bytes)
}

/// Returns the fields that do not depend on how full the volume is.
fn statfs(args: &Args<'_>) -> Result<String> {
    let s = rustix::fs::statvfs(args.bytes(0))?;
    Ok(format!(
        "block {} fragment {} blocks {} files {} name {}, free {}",
        s.f_bsize,
        s.f_frsize,
        s.f_blocks,
        s.f_files,
        s.f_namemax,
        s.f_bfree >= s.f_bavail && s.f_bavail > 0 && s.f_ffree > 0
    ))
}

/// Returns the space available to every user.
fn free(args: &Args<'_>) -> Result<String> {
    let s = rustix::fs::statvfs(args.bytes(0))?;
    let any = |n| if n > 0 { "some" } else { "none" };
    Ok(format!(
        "blocks {}, inodes {}",
        any(s.f_bavail),
        any(s.f_favail)
    ))
}

type Seen = BTreeMap<Vec<u8>, u32>;

/// Reads some entries; returns whether there were any.
fn some_entries(dir: impl AsFd, seen: &mut Seen) -> Result<bool> {
    let mut buf = [MaybeUninit::uninit(); 512];
    let mut entries = RawDir::new(dir, &mut buf);
    let mut any = false;
    while let Some(entry) = entries.next() {
        *seen
            .entry(entry?.file_name().to_bytes().to_vec())
            .or_default() += 1;
        any = true;
        if entries.is_buffer_empty() {
            break;
        }
    }
    Ok(any)
}

/// Lists a directory of `count` names while other names change: each name that stays is listed once.
fn directory_under_change(args: &Args<'_>) -> Result<String> {
    let count = args.number(1);
    let path = |name: String| format!("{}/{name}", args.text(0));
    let make = |name: String| of_std(std::fs::write(path(name), ""));
    of_std(std::fs::create_dir(args.text(0)))?;
    for i in 0..count {
        make(format!("stays{i}"))?;
        make(format!("goes{i}"))?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, args.bytes(0), flags, Mode::empty())?;
    let mut seen = Seen::new();
    let mut step = 0;
    while some_entries(&dir, &mut seen)? {
        for i in step * 8..(step + 1) * 8 {
            if i < count {
                of_std(std::fs::remove_file(path(format!("goes{i}"))))?;
                make(format!("comes{i}"))?;
            }
        }
        step += 1;
    }
    let stays = (0..count).filter(|i| seen.get(format!("stays{i}").as_bytes()) == Some(&1));
    let twice = seen.values().filter(|n| **n > 1).count();
    Ok(format!("{} of {count} once, {twice} twice", stays.count()))
}

/// Seeks to each returned offset, and finds the same names from there.
fn directory_seek(args: &Args<'_>) -> Result<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, args.bytes(0), flags, Mode::empty())?;
    let mut order = Vec::new();
    let mut buf = [MaybeUninit::uninit(); 2048];
    let mut entries = RawDir::new(&dir, &mut buf);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        order.push((
            entry.next_entry_cookie(),
            entry.file_name().to_bytes().to_vec(),
        ));
    }
    let mut wrong = 0;
    for (at, (cookie, _)) in order.iter().enumerate().step_by(3) {
        rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(*cookie))?;
        let mut buf = [MaybeUninit::uninit(); 512];
        let mut entries = RawDir::new(&dir, &mut buf);
        let next = entries.next().transpose()?;
        let next = next.map(|e| e.file_name().to_bytes().to_vec());
        if next.as_ref() != order.get(at + 1).map(|(_, name)| name) {
            wrong += 1;
        }
    }
    Ok(format!("{} names, {wrong} wrong", order.len()))
}

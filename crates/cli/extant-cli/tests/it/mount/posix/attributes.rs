//! Calls on the attributes in stat, on extended attributes and inode flags.

use super::names::{done, letter, mode};
use super::sys::{self, Result};
use super::world::{Args, World};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Statx, Timespec, Timestamps, Uid, XattrFlags,
};
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

/// Longer than a tick of the clock of file times.
const TICK: Duration = Duration::from_millis(11);

const XATTR: &[(&str, u32)] = &[("create", 1), ("replace", 2)];

const NOTHING: AtFlags = AtFlags::empty();
const LINK: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

pub fn call(world: &mut World, verb: &str, args: &Args<'_>) -> Result<Option<String>> {
    Ok(Some(match verb {
        "umask" => {
            let _ = rustix::process::umask(Mode::from_raw_mode(args.octal(0)));
            done(Ok(()))
        }
        "chmod" => match args.bytes(0).strip_prefix(b"&") {
            Some(file) => done(rustix::fs::fchmod(world.fd(file)?, mode(args.octal(1)))),
            None => done(rustix::fs::chmod(args.path(world, 0)?, mode(args.octal(1)))),
        },
        "chown" => chown(world, args, NOTHING),
        "lchown" => chown(world, args, LINK),
        "stat" => stat(world, args, NOTHING),
        "lstat" => stat(world, args, LINK),
        "blocks" => {
            let s = world.statx(args.bytes(0), LINK);
            s.map(|s| s.stx_blocks.to_string())
        }
        "attributes" => attributes(world, args),
        "utimens" => utimens(world, args, NOTHING),
        "lutimens" => utimens(world, args, LINK),
        "times" => times(world, args),
        "mark" => mark(world, args),
        "moved" => moved(world, args),
        "access" => access(args, 0),
        "eaccess" => access(args, libc::AT_EACCESS),
        "laccess" => access(args, libc::AT_SYMLINK_NOFOLLOW),
        "setx" | "lsetx" => set_xattr(world, verb, args),
        "getx" | "lgetx" => get_xattr(world, verb, args),
        "listx" | "llistx" => list_xattr(world, verb, args),
        "rmx" | "lrmx" => remove_xattr(world, verb, args),
        _ => return inode_flags(verb, args),
    }?))
}

fn chown(world: &World, args: &Args<'_>, flags: AtFlags) -> Result<String> {
    let id = |at| (args.text(at) != "-").then(|| args.number(at) as u32);
    let (uid, gid) = (id(1).map(Uid::from_raw), id(2).map(Gid::from_raw));
    match args.bytes(0).strip_prefix(b"&") {
        Some(file) => done(rustix::fs::fchown(world.fd(file)?, uid, gid)),
        None => done(rustix::fs::chownat(
            CWD,
            args.path(world, 0)?,
            uid,
            gid,
            flags,
        )),
    }
}

/// Returns the attributes that do not depend on time and place; a directory's size depends on when it was formatted.
fn stat(world: &World, args: &Args<'_>, flags: AtFlags) -> Result<String> {
    let s = world.statx(args.bytes(0), flags)?;
    let kind = FileType::from_raw_mode(s.stx_mode.into());
    let mut out = format!(
        "{} {:o} links {} {}:{}",
        letter(kind),
        s.stx_mode & 0o7777,
        s.stx_nlink,
        s.stx_uid,
        s.stx_gid
    );
    match kind {
        FileType::Directory => {}
        FileType::CharacterDevice | FileType::BlockDevice => {
            out += &format!(" {},{}", s.stx_rdev_major, s.stx_rdev_minor);
        }
        _ => out += &format!(" {} bytes", s.stx_size),
    }
    Ok(out)
}

/// Shows the attributes of statx that a file has, and the supported ones.
fn attributes(world: &World, args: &Args<'_>) -> Result<String> {
    let s = world.statx(args.bytes(0), LINK)?;
    let named = [
        (0x10, "immutable"),
        (0x20, "append"),
        (0x40, "nodump"),
        (0x4, "compressed"),
        (0x800, "encrypted"),
        (0x10_0000, "verity"),
    ];
    let of = |bits: u64| {
        let names = named.iter().filter(|(bit, _)| bits & bit != 0);
        names.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
    };
    let btime = s.stx_mask & 0x800 != 0 && s.stx_btime.tv_sec > 1_000_000_000;
    Ok(format!(
        "has [{}] of [{}] birth {btime}",
        of(s.stx_attributes.bits()),
        of(s.stx_attributes_mask.bits() & !0x800 & !0x10_0000)
    ))
}

/// Parses now, omit, or SECONDS.NANOSECONDS.
fn time(text: &str) -> Timespec {
    let of = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    match text {
        "now" => of(0, libc::UTIME_NOW),
        "omit" => of(0, libc::UTIME_OMIT),
        _ => {
            let (seconds, nanoseconds) = text.split_once('.').unwrap_or((text, "0"));
            of(seconds.parse().unwrap(), nanoseconds.parse().unwrap())
        }
    }
}

fn utimens(world: &World, args: &Args<'_>, flags: AtFlags) -> Result<String> {
    let times = Timestamps {
        last_access: time(args.text(1)),
        last_modification: time(args.text(2)),
    };
    match args.bytes(0).strip_prefix(b"&") {
        Some(file) => done(rustix::fs::futimens(world.fd(file)?, &times)),
        None => done(rustix::fs::utimensat(
            CWD,
            args.path(world, 0)?,
            &times,
            flags,
        )),
    }
}

/// Shows the times of access and modification; recent times are shown as "now".
fn times(world: &World, args: &Args<'_>) -> Result<String> {
    let s = world.statx(args.bytes(0), LINK)?;
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let one = |t: rustix::fs::StatxTimestamp| {
        if (now - 600..=now + 1).contains(&t.tv_sec) {
            "now".into()
        } else {
            format!("{}.{:09}", t.tv_sec, t.tv_nsec)
        }
    };
    Ok(format!("{} {}", one(s.stx_atime), one(s.stx_mtime)))
}

fn mark(world: &mut World, args: &Args<'_>) -> Result<String> {
    for at in 0.. {
        let Some(path) = args.get(at) else { break };
        let s = world.statx(path, LINK)?;
        world.times.insert(path.to_vec(), s);
    }
    sleep(TICK);
    Ok(String::new())
}

/// Shows the times that differ from those at the mark.
fn moved(world: &mut World, args: &Args<'_>) -> Result<String> {
    let path = args.bytes(0);
    let now = world.statx(path, LINK)?;
    let then = &world.times[path];
    let differ = |name, of: fn(&Statx) -> rustix::fs::StatxTimestamp| {
        let (a, b) = (of(then), of(&now));
        ((a.tv_sec, a.tv_nsec) != (b.tv_sec, b.tv_nsec)).then_some(name)
    };
    let all = [
        differ("access", |s| s.stx_atime),
        differ("modification", |s| s.stx_mtime),
        differ("change", |s| s.stx_ctime),
        differ("birth", |s| s.stx_btime),
    ];
    let all: Vec<_> = all.into_iter().flatten().collect();
    Ok(if all.is_empty() {
        "none".into()
    } else {
        all.join(" ")
    })
}

fn access(args: &Args<'_>, flags: i32) -> Result<String> {
    let known = [("f", 0), ("r", 4), ("w", 2), ("x", 1), ("bad", 8)];
    let mode = args.flags(1, &known) as i32;
    done(sys::access(args.bytes(0), mode, flags))
}

fn set_xattr(world: &World, verb: &str, args: &Args<'_>) -> Result<String> {
    let (name, value) = (args.bytes(1), args.bytes(2));
    let flags = XattrFlags::from_bits_retain(args.flags(3, XATTR));
    done(match args.bytes(0).strip_prefix(b"&") {
        Some(file) => rustix::fs::fsetxattr(world.fd(file)?, name, value, flags),
        None if verb == "setx" => rustix::fs::setxattr(args.path(world, 0)?, name, value, flags),
        None => rustix::fs::lsetxattr(args.bytes(0), name, value, flags),
    })
}

fn get_xattr(world: &World, verb: &str, args: &Args<'_>) -> Result<String> {
    let name = args.bytes(1);
    let mut buf = vec![0; args.number_or(2, 70_000) as usize];
    let room = &mut buf[..];
    let len = match args.bytes(0).strip_prefix(b"&") {
        Some(file) => rustix::fs::fgetxattr(world.fd(file)?, name, room)?,
        None if verb == "getx" => rustix::fs::getxattr(args.path(world, 0)?, name, room)?,
        None => rustix::fs::lgetxattr(args.bytes(0), name, room)?,
    };
    if buf.is_empty() {
        return Ok(format!("{len} bytes"));
    }
    Ok(super::data::shown(&buf[..len]))
}

fn list_xattr(world: &World, verb: &str, args: &Args<'_>) -> Result<String> {
    let mut buf = vec![0; args.number_or(1, 70_000) as usize];
    let room = &mut buf[..];
    let len = match args.bytes(0).strip_prefix(b"&") {
        Some(file) => rustix::fs::flistxattr(world.fd(file)?, room)?,
        None if verb == "listx" => rustix::fs::listxattr(args.path(world, 0)?, room)?,
        None => rustix::fs::llistxattr(args.bytes(0), room)?,
    };
    if buf.is_empty() {
        return Ok(format!("{len} bytes"));
    }
    let names = buf[..len].split(|&b| b == 0).filter(|n| !n.is_empty());
    let mut names: Vec<_> = names.map(super::data::shown).collect();
    names.sort();
    Ok(format!("[{}]", names.join(" ")))
}

fn remove_xattr(world: &World, verb: &str, args: &Args<'_>) -> Result<String> {
    let name = args.bytes(1);
    done(match args.bytes(0).strip_prefix(b"&") {
        Some(file) => rustix::fs::fremovexattr(world.fd(file)?, name),
        None if verb == "rmx" => rustix::fs::removexattr(args.path(world, 0)?, name),
        None => rustix::fs::lremovexattr(args.bytes(0), name),
    })
}

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const GETVERSION: u32 = 0x8008_7601;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;

/// Flags as lsattr spells them.
const FLAGS: &[(&str, u32)] = &[
    ("0", 0),
    ("s", 0x1),
    ("u", 0x2),
    ("c", 0x4),
    ("S", 0x8),
    ("i", 0x10),
    ("a", 0x20),
    ("d", 0x40),
    ("A", 0x80),
    ("I", 0x1000),
    ("j", 0x4000),
    ("t", 0x8000),
    ("D", 0x1_0000),
    ("T", 0x2_0000),
    ("e", 0x8_0000),
    ("C", 0x80_0000),
    ("P", 0x2000_0000),
    ("F", 0x4000_0000),
];

/// Flags as FS_IOC_FSSETXATTR spells them.
const XFLAGS: &[(&str, u32)] = &[
    ("0", 0),
    ("realtime", 1),
    ("prealloc", 2),
    ("immutable", 8),
    ("append", 0x10),
    ("sync", 0x20),
    ("noatime", 0x40),
    ("nodump", 0x80),
    ("projinherit", 0x200),
    ("dax", 0x8000),
];

fn shown(known: &[(&str, u32)], flags: u32) -> String {
    let one = |bit: u32| {
        let found = known.iter().find(|(_, b)| *b == bit);
        found.map_or_else(|| format!("{bit:#x}"), |(name, _)| (*name).into())
    };
    let bits = (0..32).map(|n| 1 << n).filter(|b| flags & b != 0);
    let names: Vec<String> = bits.map(one).collect();
    format!("[{}]", names.join("|"))
}

fn to_ask(args: &Args<'_>) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, args.bytes(0), flags, mode(0))
}

fn inode_flags(verb: &str, args: &Args<'_>) -> Result<Option<String>> {
    use std::os::fd::AsFd;
    let ioctl = |command, bytes: &mut [u8]| -> Result<()> {
        let file = to_ask(args)?;
        sys::ioctl(file.as_fd(), command, bytes)
    };
    let word = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut bytes = [0; 32];
    Ok(Some(match verb {
        "flags" => ioctl(GETFLAGS, &mut bytes).map(|()| shown(FLAGS, word(&bytes, 0))),
        "setflags" => {
            bytes[..4].copy_from_slice(&args.flags(1, FLAGS).to_ne_bytes());
            done(ioctl(SETFLAGS, &mut bytes))
        }
        "version" => ioctl(GETVERSION, &mut bytes).map(|()| "a number".into()),
        "xflags" => ioctl(FSGETXATTR, &mut bytes).map(|()| {
            let flags = shown(XFLAGS, word(&bytes, 0));
            format!("{flags} project {}", word(&bytes, 12))
        }),
        "setxflags" => {
            bytes[..4].copy_from_slice(&args.flags(1, XFLAGS).to_ne_bytes());
            bytes[12..16].copy_from_slice(&(args.number_or(2, 0) as u32).to_ne_bytes());
            done(ioctl(FSSETXATTR, &mut bytes))
        }
        _ => return Ok(None),
    }?))
}

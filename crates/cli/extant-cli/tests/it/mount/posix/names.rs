//! Calls on names.

use super::sys::Result;
use super::world::{Args, World};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;

const OPEN: &[(&str, u32)] = &[
    ("rdonly", 0),
    ("wronly", OFlags::WRONLY.bits()),
    ("rdwr", OFlags::RDWR.bits()),
    ("creat", OFlags::CREATE.bits()),
    ("excl", OFlags::EXCL.bits()),
    ("trunc", OFlags::TRUNC.bits()),
    ("append", OFlags::APPEND.bits()),
    ("directory", OFlags::DIRECTORY.bits()),
    ("nofollow", OFlags::NOFOLLOW.bits()),
    ("nonblock", OFlags::NONBLOCK.bits()),
    ("direct", OFlags::DIRECT.bits()),
    ("path", OFlags::PATH.bits()),
    ("tmpfile", OFlags::TMPFILE.bits()),
    ("noatime", OFlags::NOATIME.bits()),
    ("sync", OFlags::SYNC.bits()),
    ("dsync", OFlags::DSYNC.bits()),
    ("noctty", OFlags::NOCTTY.bits()),
];

const RENAME: &[(&str, u32)] = &[
    ("noreplace", RenameFlags::NOREPLACE.bits()),
    ("exchange", RenameFlags::EXCHANGE.bits()),
    ("whiteout", RenameFlags::WHITEOUT.bits()),
];

pub fn call(world: &mut World, verb: &str, args: &Args<'_>) -> Result<Option<String>> {
    Ok(Some(match verb {
        "open" => open(world, args),
        "creat" => creat(world, args),
        "close" => {
            let gone = world.files.remove(args.text(0));
            done(gone.map(drop).ok_or(Errno::BADF))
        }
        "mkdir" => done(rustix::fs::mkdirat(
            CWD,
            args.bytes(0),
            mode(args.octal_or(1, 0o755)),
        )),
        "rmdir" => done(rustix::fs::unlinkat(CWD, args.bytes(0), AtFlags::REMOVEDIR)),
        "unlink" => done(rustix::fs::unlinkat(CWD, args.bytes(0), AtFlags::empty())),
        "link" => link(world, args, AtFlags::empty()),
        "linkfollow" => link(world, args, AtFlags::SYMLINK_FOLLOW),
        "linkfd" => done(rustix::fs::linkat(
            world.fd(args.bytes(0))?,
            c"",
            CWD,
            args.bytes(1),
            AtFlags::EMPTY_PATH,
        )),
        "symlink" => done(rustix::fs::symlinkat(args.bytes(0), CWD, args.bytes(1))),
        "readlink" => read_link(world, args),
        "rename" => done(rustix::fs::renameat(CWD, args.bytes(0), CWD, args.bytes(1))),
        "rename2" => {
            let flags = RenameFlags::from_bits_retain(args.flags(2, RENAME));
            let (from, to) = (args.bytes(0), args.bytes(1));
            done(rustix::fs::renameat_with(CWD, from, CWD, to, flags))
        }
        "mknod" => mknod(args),
        "ls" => list(world, args),
        _ => return Ok(None),
    }?))
}

pub fn done(result: Result<()>) -> Result<String> {
    result.map(|()| String::new())
}

pub fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

pub fn open_flags(args: &Args<'_>, at: usize) -> OFlags {
    OFlags::from_bits_retain(args.flags(at, OPEN)) | OFlags::CLOEXEC
}

fn open(world: &mut World, args: &Args<'_>) -> Result<String> {
    let path = args.path(world, 0)?;
    let file = rustix::fs::openat(
        CWD,
        path,
        open_flags(args, 1),
        mode(args.octal_or(2, 0o644)),
    )?;
    args.keep(world, file);
    Ok(String::new())
}

/// Makes or truncates a file with contents.
fn creat(world: &mut World, args: &Args<'_>) -> Result<String> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, args.bytes(0), flags, mode(args.octal_or(1, 0o644)))?;
    if let Some(data) = args.get(2) {
        assert_eq!(rustix::io::write(&file, data)?, data.len());
    }
    args.keep(world, file);
    Ok(String::new())
}

fn link(world: &World, args: &Args<'_>, flags: AtFlags) -> Result<String> {
    let from = args.path(world, 0)?;
    done(rustix::fs::linkat(CWD, from, CWD, args.bytes(1), flags))
}

fn read_link(world: &World, args: &Args<'_>) -> Result<String> {
    let room = args.number_or(1, 5000) as usize;
    let mut buf = vec![0; room];
    let len = match args.bytes(0).strip_prefix(b"&") {
        Some(file) => rustix::fs::readlinkat_raw(world.fd(file)?, c"", &mut buf[..])?,
        None => rustix::fs::readlinkat_raw(CWD, args.bytes(0), &mut buf[..])?,
    };
    Ok(super::data::shown(&buf[..len]))
}

fn mknod(args: &Args<'_>) -> Result<String> {
    let kind = match args.text(1) {
        "f" => FileType::RegularFile,
        "c" => FileType::CharacterDevice,
        "b" => FileType::BlockDevice,
        "p" => FileType::Fifo,
        "s" => FileType::Socket,
        "d" => FileType::Directory,
        "l" => FileType::Symlink,
        other => panic!("type {other}"),
    };
    let (major, minor) = (args.number_or(3, 0), args.number_or(4, 0));
    let device = rustix::fs::makedev(major as u32, minor as u32);
    done(rustix::fs::mknodat(
        CWD,
        args.bytes(0),
        kind,
        mode(args.octal(2)),
        device,
    ))
}

pub fn letter(kind: FileType) -> char {
    match kind {
        FileType::RegularFile => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Unknown => '?',
    }
}

/// Lists all names with their types, in order.
fn list(world: &World, args: &Args<'_>) -> Result<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, args.path(world, 0)?, flags, mode(0))?;
    let mut buf = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(dir, &mut buf);
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = super::data::shown(entry.file_name().to_bytes());
        names.push(format!("{name}:{}", letter(entry.file_type())));
    }
    names.sort();
    Ok(names.join(" "))
}

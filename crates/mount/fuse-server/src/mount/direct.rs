//! Mounting by mount(2): for root, and for root of a user namespace.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{getgid, getuid};

use super::{MountOptions, c_string};

pub(super) fn open_device() -> io::Result<OwnedFd> {
    let opened = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|e| match e {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => io::Error::new(
            io::ErrorKind::NotFound,
            "/dev/fuse is missing: run modprobe fuse, or start the container with --device /dev/fuse",
        ),
        e => io::Error::new(
            io::Error::from(e).kind(),
            format!("/dev/fuse: {}", io::Error::from(e)),
        ),
    })
}

pub(super) fn mount(target: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let device = open_device()?;
    // The kernel requires the file type of the root, in octal.
    let root_mode = target.metadata()?.mode() & 0o170_000;
    let mut data = vec![
        format!("fd={}", device.as_raw_fd()),
        format!("rootmode={root_mode:o}"),
        format!("user_id={}", getuid().as_raw()),
        format!("group_id={}", getgid().as_raw()),
    ];
    data.extend(options.for_fuse());
    let kind = match options.block_device {
        Some(block_size) => {
            data.push(format!("blksize={block_size}"));
            "fuseblk"
        }
        None => "fuse",
    };
    let kind = match &options.subtype {
        Some(subtype) => format!("{kind}.{subtype}"),
        None => kind.to_owned(),
    };
    let data = c_string(data.join(",").as_ref())?;
    let source = c_string(&options.source)?;
    let kind = c_string(kind.as_ref())?;
    rustix::mount::mount(&*source, target, &*kind, flags(options), Some(&*data))?;
    Ok(device)
}

fn flags(options: &MountOptions) -> MountFlags {
    [
        (options.read_only, MountFlags::RDONLY),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
        (options.noatime, MountFlags::NOATIME),
        (options.nodiratime, MountFlags::NODIRATIME),
        (options.strictatime, MountFlags::STRICTATIME),
        (options.lazytime, MountFlags::LAZYTIME),
        (options.sync, MountFlags::SYNCHRONOUS),
        (options.dirsync, MountFlags::DIRSYNC),
    ]
    .into_iter()
    .filter_map(|(wanted, flag)| wanted.then_some(flag))
    .collect()
}

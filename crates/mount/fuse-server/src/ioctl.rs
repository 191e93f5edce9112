//! The only ioctl of `/dev/fuse` used here.
#![allow(unsafe_code)] // An ioctl's number and argument type have to be vouched for.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};

/// `FUSE_DEV_IOC_CLONE`: the device becomes one more channel of another's connection.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Makes `fresh`, a newly opened `/dev/fuse`, a channel of the connection of `device`.
pub(crate) fn clone_channel(fresh: &OwnedFd, device: BorrowedFd<'_>) -> Result<(), Errno> {
    let number = u32::try_from(device.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: by its number, as linux/fuse.h defines it, this ioctl reads a u32 through its argument.
    unsafe { ioctl(fresh, Setter::<CLONE, u32>::new(number)) }
}

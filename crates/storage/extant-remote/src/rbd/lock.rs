//! The exclusive lock of an image, which its one writer holds.
//!
//! librbd keeps the address of the client that has the lock. Each writer also stores its host and process as metadata of the image,
//! together with this address. By this note the next writer can name the holder. If the holder was a process of this machine that has
//! ended, the next writer breaks the lock at once. A note whose address is not that of the lock is ignored. A writer never removes its
//! note, because it could remove the note of the next writer.
//!
//! Another program, such as a virtual machine, releases the lock on request. Therefore a lock without a note is not requested
//! while its client has the image open.

use super::ceph::Image;
use crate::holder::{self, Life};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;

/// Feature of an image that has such a lock.
const EXCLUSIVE_LOCK: u64 = 1 << 2;
/// Key of the note.
const KEY: &str = "extant.holder";
/// Seconds to wait for a process of this machine that is about to end.
const WAIT: i64 = 3;

fn in_use(by: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("in use by {by}"))
}

/// Waits until a process ends.
fn wait_for(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let opened = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let limit = Timespec {
        tv_sec: WAIT,
        tv_nsec: 0,
    };
    if let Some(process) = opened {
        // If the wait fails, the holder is looked at again all the same.
        let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit));
    }
}

/// The note about the holder of a lock, if it is about this lock.
fn note(image: &Image, owner: &str) -> io::Result<Option<String>> {
    let note = image.metadata(KEY)?;
    let note = note.as_deref().and_then(|note| note.split_once(' '));
    Ok(note.and_then(|(address, holder)| (address == owner).then(|| holder.to_owned())))
}

/// Makes way for [`Image::lock`]: fails if the holder of the lock is alive, and breaks the lock of a process that has ended.
fn make_way(image: &Image) -> io::Result<()> {
    let mut has_waited = false;
    while let Some(owner) = image.lock_owner()? {
        let Some(holder) = note(image, &owner)? else {
            if image.is_watched_by(&owner)? {
                return Err(in_use(&format!("the client at {owner}")));
            }
            return Ok(());
        };
        match holder::life(&holder) {
            Life::Ended => return image.break_lock(&owner),
            Life::Runs if !has_waited => {
                has_waited = true;
                if let Some(pid) = holder::pid(&holder) {
                    wait_for(pid);
                }
            }
            Life::Runs => {
                let by = format!("{}, the client at {owner}", holder::shown(&holder));
                return Err(in_use(&by));
            }
            // The holder answers if it runs; librbd breaks its lock if it does not.
            Life::Elsewhere => return Ok(()),
        }
    }
    Ok(())
}

/// Takes the lock for this process.
pub fn take(image: &Image) -> io::Result<()> {
    if image.features()? & EXCLUSIVE_LOCK == 0 {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the image has no exclusive lock, which keeps two writers apart: add it by 'rbd feature enable IMAGE exclusive-lock'",
        ));
    }
    make_way(image)?;
    if let Err(error) = image.lock() {
        let owner = image.lock_owner().ok().flatten();
        let refused = [libc::EROFS, libc::EBUSY, libc::EAGAIN].map(Some);
        return Err(match owner {
            Some(owner) if refused.contains(&error.raw_os_error()) => {
                let holder = note(image, &owner).ok().flatten();
                let by = holder.map(|holder| format!("{}, ", holder::shown(&holder)));
                in_use(&format!("{}the client at {owner}", by.unwrap_or_default()))
            }
            _ => error,
        });
    }
    match image.lock_owner()? {
        Some(owner) => image.set_metadata(KEY, &format!("{owner} {}", holder::this())),
        None => Err(io::Error::other("the exclusive lock was lost")),
    }
}

//! Control of a running mount over a local socket that only its owner can open: status, metrics, the meters switched
//! on and off, sync, freeze, and waiting for its end.
//!
//! A client writes one [`Command`] as a line of JSON and reads one [`Reply`], also a line of JSON. A connection that
//! froze the mount keeps it frozen until the connection ends, so a client that dies leaves nothing frozen. A
//! connection that waits for the end is answered when the last byte is in the image. A connection that took or joined
//! a snapshot reads the image as of that moment; the bytes follow the line of the answer.

mod client;
mod server;
mod status;

pub use client::Client;
pub use server::Server;
pub use status::{
    LockStatus, LogStatus, MemoryStatus, SlotStatus, SpaceStatus, StageStatus, Status,
};

use serde::{Deserialize, Serialize};
use std::fs::DirBuilder;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A client's request.
///
/// ```
/// let line = serde_json::to_string(&extant_fuse::control::Command::Status).unwrap();
/// assert_eq!(line, r#""status""#);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Live counters.
    Status,
    /// Live counters as Prometheus text, including the lock meter.
    Metrics,
    /// The lock meter's report as text.
    Locks,
    /// The function profile as text.
    Profile,
    /// Switches the lock meter.
    MeterLocks(bool),
    /// Switches the function profile.
    MeterProfile(bool),
    /// Makes everything durable.
    Sync,
    /// Makes everything durable, and blocks changes until this connection ends or sends [`Command::Thaw`].
    Freeze,
    /// Ends a freeze.
    Thaw,
    /// Takes a snapshot of the image, which lasts until this connection and those that joined it end.
    Snapshot,
    /// Joins the snapshot that another connection has taken.
    JoinSnapshot,
    /// Reads bytes of the snapshot, at most [`MOST_BYTES`].
    Read {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: u32,
    },
    /// Counts the extents of a regular file.
    Fragments {
        /// Its inode number.
        ino: u32,
    },
    /// Moves the next 128 MiB of a regular file into fewer extents, while others use it.
    Defragment {
        /// Its inode number.
        ino: u32,
        /// The generation of that number from [`Fragments`], because another file may have the number by now.
        generation: u32,
        /// Offset of the first byte.
        from: u64,
    },
    /// The size of the volume.
    Size,
    /// Grows the volume, and its file if necessary, while programs use it.
    Grow {
        /// New size in bytes; `None` for all that its device or file has.
        bytes: Option<u64>,
    },
    /// Makes the mount read-only: the image is in the state of a closed one, until [`Command::ReadWrite`].
    ReadOnly,
    /// Makes the mount writable again.
    ReadWrite,
    /// Answers when the mount has ended and the image is closed.
    WaitForEnd,
    /// Tries the calls that a confined server must not be able to make, and returns a line for each, for tests. Only
    /// in builds with debug assertions.
    #[cfg(debug_assertions)]
    Trespass,
}

/// Fragmentation of a file.
///
/// ```
/// let fragments = extant_fuse::control::Fragments { extents: 3, least: 1, blocks: 20, generation: 7 };
/// assert!(fragments.extents > fragments.least);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragments {
    /// Number of its extents.
    pub extents: u64,
    /// Smallest possible number of its extents.
    pub least: u64,
    /// Number of its blocks.
    pub blocks: u64,
    /// The generation of its inode number.
    pub generation: u32,
}

/// The server's answer.
///
/// ```
/// use extant_fuse::control::Reply;
/// assert_eq!(serde_json::from_str::<Reply>(r#""done""#).unwrap(), Reply::Done);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Answer to [`Command::Status`].
    Status(Box<Status>),
    /// A report.
    Text(String),
    /// Answer to [`Command::Snapshot`] and [`Command::JoinSnapshot`]: the size of the image in bytes.
    Snapshot(u64),
    /// Number of bytes that follow the line.
    Bytes(u32),
    /// Answer to [`Command::Size`] and [`Command::Grow`].
    Size {
        /// Blocks of the volume.
        blocks: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// Answer to [`Command::Fragments`].
    Fragments(Fragments),
    /// Answer to [`Command::Defragment`].
    Defragmented {
        /// The offset to continue from; `None` at the end of the file.
        next: Option<u64>,
        /// Blocks that were moved.
        moved: u64,
    },
    /// The command was carried out.
    Done,
    /// The command failed, with the reason.
    Failed(String),
}

/// Returns the directory of the sockets of this user's mounts: below /run for root; for other users below
/// XDG_RUNTIME_DIR or the directory for temporary files.
pub fn directory() -> PathBuf {
    let user = rustix::process::geteuid();
    // Root of a separate user name space has /run, but may not write there.
    if user.is_root() && is_own(Path::new("/run")) {
        return "/run/extant".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(dir) if is_own(&dir) => dir.join("extant"),
        _ => below(&std::env::temp_dir()),
    }
}

/// Returns this user's directory below a directory in which all users make files. If another user takes the first
/// name, on purpose or not, a further name is used.
fn below(shared: &Path) -> PathBuf {
    let name = format!("extant-{}", user_outside());
    let first = shared.join(&name);
    if std::fs::symlink_metadata(&first).is_err() || is_own(&first) {
        return first;
    }
    let further = format!("{name}-");
    let entries = std::fs::read_dir(shared).into_iter().flatten().flatten();
    let mine = entries
        .filter(|entry| entry.file_name().as_bytes().starts_with(further.as_bytes()))
        .map(|entry| entry.path())
        .find(|path| is_own(path));
    // An unpredictable name.
    mine.unwrap_or_else(|| shared.join(format!("{further}{:016x}", RandomState::new().hash_one(0))))
}

/// Returns the number of this user outside of the user name space. Root of a separate name space is an ordinary user
/// to other users, which make files in the same directories.
fn user_outside() -> u32 {
    let user = rustix::process::geteuid().as_raw();
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let outside = map.lines().find_map(|line| {
        let mut fields = line
            .split_whitespace()
            .map(|field| field.parse::<u32>().ok());
        let (inside, outside, count) = (fields.next()??, fields.next()??, fields.next()??);
        let at = user.checked_sub(inside).filter(|at| *at < count)?;
        outside.checked_add(at)
    });
    outside.unwrap_or(user)
}

/// Returns [`directory`], and makes it if necessary, because a server needs it before it confines itself.
pub fn make_directory() -> PathBuf {
    let dir = directory();
    // The server that listens there reports errors of the directory.
    let _ = DirBuilder::new().mode(0o700).create(&dir);
    dir
}

/// Returns whether a path is a directory of this user's, and not a link to one.
fn is_own(dir: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == user)
}

/// Returns the socket of the mount with this device number (major and minor of `st_dev`), which is unique among
/// present mounts.
pub fn socket_of((major, minor): (u32, u32)) -> PathBuf {
    directory().join(format!("{major}:{minor}.sock"))
}

/// Largest number of bytes of a [`Command::Read`].
pub const MOST_BYTES: u32 = 1 << 20;

/// Longest accepted line.
const LONGEST: u64 = 64 << 20;

fn bad(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of another user stands for a directory of another user, which only root can make.
    #[test]
    fn a_taken_name_is_replaced_by_another_that_is_found_again() {
        let shared = tempfile::tempdir().unwrap();
        let first = below(shared.path());
        assert_eq!(
            first,
            shared.path().join(format!("extant-{}", user_outside()))
        );
        std::fs::create_dir(&first).unwrap();
        assert_eq!(below(shared.path()), first);
        std::fs::remove_dir(&first).unwrap();
        std::os::unix::fs::symlink("/", &first).unwrap();
        let second = below(shared.path());
        assert_ne!(second, first);
        std::fs::create_dir(&second).unwrap();
        assert_eq!(below(shared.path()), second);
    }
}

//! Talking to a running mount over a local socket that only its owner can open: status, metrics, the meters
//! switched on and off, sync, freeze, and waiting for its end.
//!
//! A client writes one [`Command`] as a line of JSON and reads one [`Reply`], a line of JSON too. A connection that
//! froze the mount holds it frozen until it ends, so a client that dies leaves nothing frozen. A connection that
//! waits for the end is answered when the last byte is in the image. One that took a snapshot, or joined that of another,
//! reads the image as it was then; the bytes follow the line of the answer.

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
    /// The same as Prometheus text, the lock meter included.
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
    /// Everything durable, and no change until this connection ends or asks for [`Command::Thaw`].
    Freeze,
    /// Changes go on.
    Thaw,
    /// Keeps this moment of the image, until this connection and those that joined it end.
    Snapshot,
    /// Reads the snapshot that another connection has taken, too.
    JoinSnapshot,
    /// Bytes of the snapshot, at most [`MOST_BYTES`].
    Read {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u32,
    },
    /// In how many extents a regular file lies.
    Fragments {
        /// Its inode number.
        ino: u32,
    },
    /// Moves the next 128 MiB of a regular file into fewer extents, while others use it.
    Defragment {
        /// Its inode number.
        ino: u32,
        /// The generation of that number, as [`Fragments`] has it: another file may have the number by now.
        generation: u32,
        /// The byte from which on.
        from: u64,
    },
    /// The size of the volume.
    Size,
    /// Makes the volume larger, and its file longer if it must be, while others use it.
    Grow {
        /// To so many bytes; without it to all that its device or file has.
        bytes: Option<u64>,
    },
    /// The mount becomes read-only: the image is as if it had been closed, until [`Command::ReadWrite`].
    ReadOnly,
    /// The mount may be written again.
    ReadWrite,
    /// Answers when the mount has ended and the image is closed.
    WaitForEnd,
    /// Tries the calls that a confined server must not be able to make, and answers with a line for each, for
    /// tests. Only in builds with debug assertions.
    #[cfg(debug_assertions)]
    Trespass,
}

/// How a file lies.
///
/// ```
/// let fragments = extant_fuse::control::Fragments { extents: 3, least: 1, blocks: 20, generation: 7 };
/// assert!(fragments.extents > fragments.least);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragments {
    /// Its extents.
    pub extents: u64,
    /// The extents that it needs at least.
    pub least: u64,
    /// Its blocks.
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
    /// To [`Command::Status`].
    Status(Box<Status>),
    /// A report.
    Text(String),
    /// To [`Command::Snapshot`] and [`Command::JoinSnapshot`]: the bytes of the image.
    Snapshot(u64),
    /// So many bytes follow the line.
    Bytes(u32),
    /// To [`Command::Size`] and [`Command::Grow`].
    Size {
        /// Blocks of the volume.
        blocks: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// To [`Command::Fragments`].
    Fragments(Fragments),
    /// To [`Command::Defragment`].
    Defragmented {
        /// The byte to go on from; none at the end of the file.
        next: Option<u64>,
        /// Blocks that were moved.
        moved: u64,
    },
    /// The command was carried out.
    Done,
    /// The command failed, with the reason.
    Failed(String),
}

/// The directory of the sockets of this user's mounts: below /run for root, below XDG_RUNTIME_DIR or the directory
/// for temporary files for others.
pub fn directory() -> PathBuf {
    let user = rustix::process::geteuid();
    // Root of a user name space of its own has /run, but may not write there.
    if user.is_root() && is_own(Path::new("/run")) {
        return "/run/extant".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(dir) if is_own(&dir) => dir.join("extant"),
        _ => below(&std::env::temp_dir()),
    }
}

/// This user's directory below one in which all users make files. Whoever takes its first name, on purpose or not,
/// does not keep the user from another.
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
    // A name that nobody guesses.
    mine.unwrap_or_else(|| shared.join(format!("{further}{:016x}", RandomState::new().hash_one(0))))
}

/// The number of this user outside of the user name space: root of a name space of its own is an ordinary user to
/// others, who make files in the same directories.
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

/// [`directory`], made if it is missing: a server makes it before it confines itself.
pub fn make_directory() -> PathBuf {
    let dir = directory();
    // The server that listens there reports what is wrong with the directory.
    let _ = DirBuilder::new().mode(0o700).create(&dir);
    dir
}

/// Returns whether a path is a directory of this user's, and not a link to one.
fn is_own(dir: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    std::fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == user)
}

/// The socket of the mount with this device number (major and minor of `st_dev`), which no two mounts share at a time.
pub fn socket_of((major, minor): (u32, u32)) -> PathBuf {
    directory().join(format!("{major}:{minor}.sock"))
}

/// The most bytes of one [`Command::Read`].
pub const MOST_BYTES: u32 = 1 << 20;

/// Longest line that is taken.
const LONGEST: u64 = 64 << 20;

fn bad(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link of somebody else's stands for a directory of somebody else's, which takes root to make.
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

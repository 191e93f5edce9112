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
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

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
    if user.is_root() && is_own("/run") {
        return "/run/extant".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir).join("extant"),
        _ => std::env::temp_dir().join(format!("extant-{}", user.as_raw())),
    }
}

/// [`directory`], made if it is missing: a server makes it before it confines itself.
pub fn make_directory() -> PathBuf {
    let dir = directory();
    // The server that listens there reports what is wrong with the directory.
    let _ = DirBuilder::new().mode(0o700).create(&dir);
    dir
}

fn is_own(dir: &str) -> bool {
    let owner = std::fs::metadata(dir).map(|m| m.uid());
    owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
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

//! The public interface: open a volume, work on it by path or handle, close it.
//!
//! A [`Dir`](dir::Dir) finds the inode that a path leads to, and a [`File`](file::File) and a [`Node`](node::Node) hold
//! one. All three call the same operations on inodes, which are in the rooms below.

mod acl;
mod canonical;
pub mod control;
pub mod copy;
pub mod dir;
mod dir_contents;
mod dir_names;
pub mod file;
mod inspect;
pub mod node;
mod node_data;
pub mod open;
pub mod open_options;
mod opening;
pub mod read_dir;
pub mod read_files;
pub mod scratch;
mod std_io;
pub mod tree;
pub mod unstable;
pub mod volume;
pub mod watch;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Default permissions of a new file: those that a umask of 022 leaves.
const FILE_MODE: u16 = 0o644;
/// Mode of a new directory.
const DIR_MODE: u16 = 0o755;

/// Converts a path to the bytes that the engine takes.
fn bytes<P: AsRef<Path> + ?Sized>(path: &P) -> &[u8] {
    path.as_ref().as_os_str().as_bytes()
}

/// Returns the permissions, set-id and sticky bits of a mode.
fn mode_bits(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

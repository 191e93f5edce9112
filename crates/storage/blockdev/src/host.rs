//! Calls about files and volumes that Linux has mounted. Other systems, and file systems that do not know a call,
//! refuse it.

use crate::kernel;
use std::fs::File;
use std::io;

/// Mapping of a file on its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// Runs of blocks, each beginning elsewhere than where the last one ended.
    pub count: u64,
    /// Bytes that are mapped.
    pub bytes: u64,
}

/// A range of blocks to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The first block, counted in the file.
    pub first: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// Reads the generation of a file's inode number.
///
/// # Errors
/// The errors of the system.
pub fn generation(file: &File) -> io::Result<u32> {
    kernel::generation(file)
}

/// Sets the generation of a file's inode number.
///
/// # Errors
/// The errors of the system.
pub fn set_generation(file: &File, generation: u32) -> io::Result<()> {
    kernel::set_generation(file, generation)
}

/// Reads the project of a file.
///
/// # Errors
/// The errors of the system.
pub fn project(file: &File) -> io::Result<u32> {
    kernel::project(file)
}

/// Sets the project of a file.
///
/// # Errors
/// The errors of the system.
pub fn set_project(file: &File, project: u32) -> io::Result<()> {
    kernel::set_project(file, project)
}

/// Grows the mounted volume that contains a directory to `blocks` blocks, by the kernel's ext4.
///
/// # Errors
/// The errors of the system.
pub fn grow(dir: &File, blocks: u64) -> io::Result<()> {
    kernel::grow(dir, blocks)
}

/// Sets the label of the mounted volume that contains a directory, by the kernel.
///
/// # Errors
/// The errors of the system; [`io::ErrorKind::InvalidInput`] for a label of more than 255 bytes.
pub fn set_label(dir: &File, label: &[u8]) -> io::Result<()> {
    let mut field = [0; 256];
    let room = field.get_mut(..label.len()).filter(|_| label.len() < 256);
    let room = room.ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(label);
    kernel::set_label(dir, field)
}

/// Sets the UUID of the mounted volume that contains a directory, by the kernel's ext4.
///
/// # Errors
/// The errors of the system.
pub fn set_uuid(dir: &File, uuid: [u8; 16]) -> io::Result<()> {
    kernel::set_uuid(dir, uuid)
}

/// Counts the extents of a file.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("file");
/// std::fs::write(&path, [1; 100_000]).unwrap();
/// match extant_blockdev::host::extents(&std::fs::File::open(&path).unwrap()) {
///     Ok(found) => assert!(found.count >= 1),
///     Err(error) => println!("this file system does not say: {error}"),
/// }
/// ```
///
/// # Errors
/// The errors of the system.
pub fn extents(file: &File) -> io::Result<Extents> {
    kernel::extents(file)
}

/// Exchanges blocks of a file with blocks of a donor that maps the same range, by the kernel's ext4; returns the number
/// of blocks.
///
/// # Errors
/// The errors of the system.
pub fn move_extents(file: &File, donor: &File, range: Move) -> io::Result<u64> {
    kernel::move_extents(file, donor, range)
}

//! Linux' ioctls of files and of mounted volumes that rustix lacks.
#![allow(unsafe_code)] // The number and the argument's type of an ioctl have to be vouched for.

use crate::host::{Extents, Move};
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `FS_IOC_GETVERSION` and `FS_IOC_SETVERSION`: sized as a long, and 32 bits long.
const GET_GENERATION: Opcode = opcode::read::<libc::c_long>(b'v', 1);
const SET_GENERATION: Opcode = opcode::write::<libc::c_long>(b'v', 2);
/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`.
const GET_PROJECT: Opcode = opcode::read::<Project>(b'X', 31);
const SET_PROJECT: Opcode = opcode::write::<Project>(b'X', 32);
/// `EXT4_IOC_RESIZE_FS`.
const GROW: Opcode = opcode::write::<u64>(b'f', 16);
/// `FS_IOC_SETFSLABEL`.
const SET_LABEL: Opcode = opcode::write::<[u8; 256]>(0x94, 50);
/// `EXT4_IOC_SETFSUUID`, sized as the head of its argument.
const SET_UUID: Opcode = opcode::write::<[u32; 2]>(b'f', 44);
/// `FS_IOC_FIEMAP`, sized as the head of its argument.
const MAP: Opcode = opcode::read_write::<[u8; 32]>(b'f', 11);
/// `EXT4_IOC_MOVE_EXT`.
const MOVE: Opcode = opcode::read_write::<MoveExtent>(b'f', 15);

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Project {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    pad: [u8; 8],
}

/// `struct fsuuid` with its bytes.
#[repr(C)]
struct Uuid {
    len: u32,
    flags: u32,
    bytes: [u8; 16],
}

/// Extents that one call tells.
const TOLD: usize = 64;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MapExtent {
    logical: u64,
    physical: u64,
    len: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// The last extent of a file.
const LAST: u32 = 1;

/// `struct fiemap` with room for extents.
#[repr(C)]
struct Map {
    start: u64,
    len: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [MapExtent; TOLD],
}

/// `struct move_extent`.
#[repr(C)]
struct MoveExtent {
    reserved: u32,
    donor: u32,
    start: u64,
    donor_start: u64,
    len: u64,
    moved: u64,
}

pub(crate) fn generation(file: &File) -> io::Result<u32> {
    // SAFETY: the kernel writes 32 bits, which fit into the argument.
    let long = unsafe { ioctl(file, Getter::<GET_GENERATION, u64>::new())? };
    // The first four bytes in the machine's order.
    let [a, b, c, d, ..] = long.to_ne_bytes();
    Ok(u32::from_ne_bytes([a, b, c, d]))
}

pub(crate) fn set_generation(file: &File, generation: u32) -> io::Result<()> {
    let [a, b, c, d] = generation.to_ne_bytes();
    let long = u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0]);
    // SAFETY: the kernel reads 32 bits of the argument.
    unsafe { ioctl(file, Setter::<SET_GENERATION, u64>::new(long))? };
    Ok(())
}

pub(crate) fn project(file: &File) -> io::Result<u32> {
    // SAFETY: by its number this ioctl writes a `struct fsxattr`.
    let found = unsafe { ioctl(file, Getter::<GET_PROJECT, Project>::new())? };
    Ok(found.project)
}

pub(crate) fn set_project(file: &File, project: u32) -> io::Result<()> {
    // SAFETY: by their numbers these ioctls write and read a `struct fsxattr`.
    unsafe {
        let mut found = ioctl(file, Getter::<GET_PROJECT, Project>::new())?;
        found.project = project;
        ioctl(file, Setter::<SET_PROJECT, Project>::new(found))?;
    }
    Ok(())
}

pub(crate) fn grow(dir: &File, blocks: u64) -> io::Result<()> {
    // SAFETY: by its number this ioctl reads 64 bits.
    unsafe { ioctl(dir, Setter::<GROW, u64>::new(blocks))? };
    Ok(())
}

pub(crate) fn set_label(dir: &File, label: [u8; 256]) -> io::Result<()> {
    // SAFETY: by its number this ioctl reads 256 bytes.
    unsafe { ioctl(dir, Setter::<SET_LABEL, [u8; 256]>::new(label))? };
    Ok(())
}

pub(crate) fn set_uuid(dir: &File, bytes: [u8; 16]) -> io::Result<()> {
    let uuid = Uuid {
        len: 16,
        flags: 0,
        bytes,
    };
    // SAFETY: this ioctl reads the head and 16 bytes behind it, the length in the head; the argument holds both.
    unsafe { ioctl(dir, Setter::<SET_UUID, Uuid>::new(uuid))? };
    Ok(())
}

pub(crate) fn extents(file: &File) -> io::Result<Extents> {
    let mut found = Extents::default();
    let (mut start, mut end) = (0, None);
    loop {
        let mut map = Map {
            start,
            len: u64::MAX - start,
            // `FIEMAP_FLAG_SYNC`: delayed allocations get their blocks first.
            flags: 1,
            mapped: 0,
            count: TOLD as u32,
            reserved: 0,
            extents: [MapExtent::default(); TOLD],
        };
        // SAFETY: this ioctl reads the head and writes at most `count` extents behind it; the argument holds both.
        unsafe { ioctl(file, Updater::<MAP, Map>::new(&mut map))? };
        let told = map.extents.get(..map.mapped as usize).unwrap_or_default();
        for extent in told {
            found.count += u64::from(end != Some(extent.physical));
            found.bytes = found.bytes.saturating_add(extent.len);
            end = extent.physical.checked_add(extent.len);
        }
        match told.last() {
            Some(last) if last.flags & LAST == 0 => {
                start = last.logical.saturating_add(last.len);
            }
            _ => return Ok(found),
        }
    }
}

pub(crate) fn move_extents(file: &File, donor: &File, range: Move) -> io::Result<u64> {
    let mut moved = MoveExtent {
        reserved: 0,
        donor: donor.as_raw_fd().cast_unsigned(),
        start: range.first,
        donor_start: range.first,
        len: range.blocks,
        moved: 0,
    };
    // SAFETY: by its number this ioctl reads and writes a `struct move_extent`.
    unsafe { ioctl(file, Updater::<MOVE, MoveExtent>::new(&mut moved))? };
    Ok(moved.moved)
}

//! Changes of files as debugfs makes them, on a volume that is open for writing.

use super::fields::text;
use anyhow::{Context, Result, anyhow, bail, ensure};
use ext4_format::inode::makedev;
use extant::{Fallocate, FileType, OpenOptions, SetAttributes, Timestamp, Volume};
use extant_cli_core::address::os;
use extant_cli_core::format::attr_flags::number;
use extant_cli_core::format::clock;
use extant_cli_core::format::show::show;
use std::ffi::OsStr;
use std::io::{Read, Write};

/// Prints a line. A closed standard output is not a failure of the request.
pub(super) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Returns the attributes of new files: owned by root, with the present time, as in debugfs.
pub(super) fn made(mode: u16) -> Result<SetAttributes> {
    let now = Timestamp::new(clock::stamp()?, 0);
    Ok(SetAttributes {
        mode: Some(mode),
        uid: Some(0),
        gid: Some(0),
        atime: Some(now.into()),
        mtime: Some(now.into()),
        ctime: Some(now),
        ..Default::default()
    })
}

pub(super) fn born(volume: &Volume, path: &[u8], mode: u16) -> Result<()> {
    Ok(volume.set_symlink_attributes(os(path), &made(mode)?)?)
}

pub(super) fn allocated(volume: &Volume, path: &[u8]) -> Result<()> {
    let ino = volume.symlink_metadata(os(path))?.ino();
    say(&format!("Allocated inode: {ino}"));
    Ok(())
}

/// Copies a file of the host with its permissions, or makes an empty file for a character device; on failure removes the new name again.
pub(super) fn write(volume: &Volume, from: &OsStr, to: &[u8]) -> Result<()> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let mut source = std::fs::File::open(from)?;
    let about = source.metadata()?;
    // A device has no size: /dev/null makes an empty file.
    let is_device = about.file_type().is_char_device();
    ensure!(about.is_file() || is_device, "not a regular file");
    let file = volume.create_new_file(os(to));
    let file = file.with_context(|| show(to))?;
    let mut copy = || -> Result<()> {
        let mut piece = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            // A device has no end.
            let count = if is_device {
                0
            } else {
                source.read(&mut piece)?
            };
            let Some(bytes) = piece.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            // Blocks of zeros become holes, as in debugfs.
            if bytes.iter().any(|&byte| byte != 0) {
                file.write_all_at(bytes, at)?;
            }
            at += count as u64;
        }
        file.set_len(at)?;
        Ok(file.set_attributes(&made((about.mode() & 0o7777) as u16)?)?)
    };
    if let Err(error) = copy() {
        // The first error is the one to report.
        let _ = volume.remove_file(os(to));
        return Err(error);
    }
    allocated(volume, to)
}

/// Runs `fallocate PATH START [END]` or `punch PATH START [END]`, in blocks; END defaults to the file's end.
pub(super) fn allocate(volume: &Volume, name: &str, path: &[u8], range: &[&[u8]]) -> Result<()> {
    let block = |word: &&[u8]| number(text(word)?).map(u64::from).map_err(|e| anyhow!(e));
    let size = u64::from(volume.geometry().block_size);
    let file = volume.open_file_with(os(path), &OpenOptions::new().read(true).write(true))?;
    let first = range.first().map_or(Ok(0), block)?;
    let last = match range.get(1) {
        Some(word) => block(word)?,
        None => file.metadata()?.len().div_ceil(size).saturating_sub(1),
    };
    ensure!(first <= last, "the range ends before it begins");
    let how = match name {
        "punch" => Fallocate::PunchHole,
        _ => Fallocate::Allocate { keep_size: true },
    };
    let old = file.metadata()?;
    file.fallocate(how, first * size, (last - first + 1) * size)?;
    // debugfs leaves the times of the file as they are.
    Ok(file.set_attributes(&SetAttributes {
        mtime: Some(old.mtime().into()),
        ctime: Some(old.ctime()),
        ..Default::default()
    })?)
}

/// Runs `mknod PATH p`, or `c` or `b` with two numbers.
pub(super) fn node(volume: &Volume, path: &[u8], kind: &[&[u8]]) -> Result<()> {
    let (kind, rdev) = match kind {
        [b"p"] => (FileType::Fifo, 0),
        [kind @ (b"c" | b"b"), major, minor] => {
            let part = |word: &[u8]| number(text(word)?).map_err(|e| anyhow!(e));
            let (major, minor) = (part(major)?, part(minor)?);
            ensure!(major < 1 << 12 && minor < 1 << 20, "no such device number");
            let kind = match kind {
                [b'c'] => FileType::CharDevice,
                _ => FileType::BlockDevice,
            };
            (kind, makedev(major, minor))
        }
        _ => bail!("write mknod PATH p, or c or b with two numbers"),
    };
    let made = volume.mknod(os(path), kind, 0, rdev);
    made.with_context(|| show(path))?;
    born(volume, path, 0)?;
    allocated(volume, path)
}

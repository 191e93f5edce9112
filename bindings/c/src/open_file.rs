//! Files that are opened by the flags of open(2).

use crate::border::{EINVAL, Fail};
use engine::{Dir, Error, File, OpenOptions};
use rustix::fs::OFlags;
use std::ffi::c_int;
use std::ops::Deref;
use std::path::Path;

/// Flags that change nothing here: no exec and no terminal is involved, opening never blocks, and all sizes are 64 bits long.
const WITHOUT_EFFECT: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOCTTY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::LARGEFILE);

const KNOWN: OFlags = WITHOUT_EFFECT
    .union(OFlags::WRONLY)
    .union(OFlags::RDWR)
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::TRUNC)
    .union(OFlags::APPEND)
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW);

/// An open file or directory, and whether its writes go to the end.
pub struct OpenFile {
    file: File,
    appends: bool,
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

fn refused(text: String) -> Fail {
    Fail::Text(EINVAL, format!("open flags: {text}"))
}

/// Returns whether the flags open for reading and for writing, or an error for flags that are not known.
fn access(flags: OFlags) -> Result<(bool, bool), Fail> {
    // O_SYNC contains O_DSYNC.
    if flags.intersects(OFlags::DSYNC) {
        let text = "O_SYNC and O_DSYNC are not supported: call extant_fsync after a write";
        return Err(refused(text.into()));
    }
    let unknown = flags.difference(KNOWN);
    if !unknown.is_empty() {
        return Err(refused(format!("0{:o} is not supported", unknown.bits())));
    }
    if flags.contains(OFlags::CREATE | OFlags::DIRECTORY) {
        let text = "O_CREAT does not make a directory: use extant_mkdir";
        return Err(refused(text.into()));
    }
    match flags & (OFlags::WRONLY | OFlags::RDWR) {
        OFlags::WRONLY => Ok((false, true)),
        OFlags::RDWR => Ok((true, true)),
        mode if mode.is_empty() => Ok((true, false)),
        _ => Err(refused(
            "O_WRONLY and O_RDWR exclude each other: choose one".into(),
        )),
    }
}

impl OpenFile {
    /// Opens a path with the flags of open(2).
    pub fn open(dir: &Dir, at: &Path, flags: c_int, mode: u32) -> Result<Self, Fail> {
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        let (reads, writes) = access(flags)?;
        let options = OpenOptions::new().no_follow(flags.contains(OFlags::NOFOLLOW));
        if flags.contains(OFlags::DIRECTORY) {
            return Self::directory(dir, at, options, writes || flags.contains(OFlags::TRUNC));
        }
        let creates = flags.contains(OFlags::CREATE);
        let appends = writes && flags.contains(OFlags::APPEND);
        let options = options
            .read(reads)
            .write(writes)
            .append(appends)
            .create(creates)
            .create_new(creates && flags.contains(OFlags::EXCL))
            .truncate(flags.contains(OFlags::TRUNC))
            .mode(mode);
        let file = dir.open_file_with(at, &options)?;
        Ok(Self { file, appends })
    }

    /// Opens a directory to read. With `changes`, for writing or truncating, the call fails whatever the path is, and changes nothing.
    fn directory(dir: &Dir, at: &Path, options: OpenOptions, changes: bool) -> Result<Self, Fail> {
        let file = dir.open_file_with(at, &options.read(true))?;
        if !file.metadata()?.is_dir() {
            return Err(Error::NotDirectory.into());
        }
        if changes {
            return Err(Error::IsDirectory.into());
        }
        let appends = false;
        Ok(Self { file, appends })
    }

    /// Returns whether writes go to the end, whatever their offset.
    pub fn appends(&self) -> bool {
        self.appends
    }
}

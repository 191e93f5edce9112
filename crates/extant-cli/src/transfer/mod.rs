//! Moves trees between the host, images and archives, with all their attributes.
//!
//! [`Side`] is a directory on the host or in an image, with its contents; `copy` moves between two sides with many
//! threads; `archive_read` and `archive_write` move between a side and an archive. [`Rules`] define the attributes to
//! keep or change.

mod archive_files;
mod archive_read;
mod archive_write;
mod copy;
mod copy_steps;
mod host;
mod host_file;
mod image;
mod image_tree;
mod layers;
mod ordered;
mod rules;

pub use archive_read::{Feed, read_archive};
pub use archive_write::{Packing, pack};
pub use copy::Route;
pub use host::HostSide;
pub use image::ImageSide;
pub use image_tree::ImageTree;
pub use rules::{OwnerArgs, Rules};

use crate::advice::advised;
use crate::progress::Progress;
use crate::show::count;
use anyhow::Result;
use extant::{FileType, Timestamp};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Attributes of an inode, on either side.
#[derive(Clone, Debug)]
pub struct Meta {
    pub kind: FileType,
    /// Permissions, set-id and sticky bits.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Device number as made by `ext4_format::inode::makedev`.
    pub rdev: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub links: u64,
    /// Device and inode.
    pub id: (u64, u64),
    /// Whether the file has no holes.
    pub dense: bool,
    /// Flags as chattr sets them, of a file in an image or an archive.
    pub flags: u32,
}

/// Name and value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Treatment of an existing regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// A new file takes its name.
    Replace,
    /// The file is truncated and written.
    Overwrite,
}

/// A directory of a tree, through a handle. Relative paths start there and may have any length. Paths that begin with
/// a slash start at the root of their side.
pub trait Side: Send + Sync {
    /// Formats a path for messages.
    fn show(&self, path: &[u8]) -> String;
    /// Returns advice about a path that does not exist.
    fn missing(&self, _path: &[u8]) -> Option<String> {
        None
    }
    /// Returns the command that makes a directory on this side.
    fn mkdir(&self) -> &'static str {
        "mkdir -p"
    }
    /// Opens a directory as a separate side. Unless `follow`, no symbolic link may be on the way: for paths found by a
    /// walk.
    fn directory(&self, path: &[u8], follow: bool) -> Result<Box<dyn Side>>;
    /// Returns the inode of a name; if `follow`, symbolic links in the last component are followed, too.
    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>>;
    /// Lists the names of the directory, in order, with their types.
    fn list(&self) -> Result<Vec<(Vec<u8>, FileType)>>;
    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>>;
    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>>;
    /// Opens a regular file; if `follow`, symbolic links in the last component are followed.
    fn open(&self, path: &[u8], follow: bool) -> Result<Box<dyn Source>>;

    /// Makes a directory that is at first accessible only to its owner, within `mode`.
    fn make_dir(&self, path: &[u8], mode: u16) -> Result<()>;
    fn make_file(&self, path: &[u8], mode: u16, existing: Existing) -> Result<Box<dyn Sink>>;
    fn make_symlink(&self, target: &[u8], path: &[u8]) -> Result<()>;
    fn make_special(&self, path: &[u8], meta: &Meta) -> Result<()>;
    fn make_link(&self, old: &[u8], new: &[u8]) -> Result<()>;
    /// Removes anything but a directory.
    fn remove(&self, path: &[u8]) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &[u8]) -> Result<()>;
    /// Sets owner, permissions and times as the rules keep them; does not follow symbolic links.
    fn apply(&self, path: &[u8], meta: &Meta, rules: &Rules) -> Result<()>;
    fn set_xattr(&self, path: &[u8], xattr: &Xattr) -> Result<()>;
    /// Adds flags of a file or directory; those that its type or its file system lacks are left out.
    fn add_flags(&self, _path: &[u8], _flags: u32) -> Result<()> {
        Ok(())
    }
}

/// Returns the error for a path that does not exist.
pub fn nowhere(side: &dyn Side, path: &[u8]) -> anyhow::Error {
    let error = format!("{}: no such file or directory", side.show(path));
    match side.missing(path) {
        Some(advice) => advised(error, advice),
        None => anyhow::anyhow!(error),
    }
}

/// A file being read, by any number of threads.
pub trait Source: Send + Sync {
    /// Reads bytes; fewer than requested only at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// Returns the next data range at or after `offset`, start and end.
    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>>;
    fn xattrs(&self) -> Result<Vec<Xattr>>;
}

/// A file being written.
pub trait Sink {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()>;
    fn set_size(&self, size: u64) -> Result<()>;
    fn set_xattr(&self, xattr: &Xattr) -> Result<()>;
    fn apply(&self, meta: &Meta, rules: &Rules) -> Result<()>;
}

/// Counts of moved files.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    pub directories: u64,
    pub files: u64,
    pub symlinks: u64,
    pub specials: u64,
    pub hard_links: u64,
    /// Bytes of data, without holes.
    pub bytes: u64,
    pub warnings: u64,
}

impl Counts {
    /// Formats the counts as one line.
    pub fn line(&self) -> String {
        let Self {
            directories,
            files,
            symlinks,
            specials,
            hard_links,
            bytes,
            warnings,
        } = self;
        let mut line = count(*files, "file", "files");
        line += &format!(", {}", count(*directories, "directory", "directories"));
        for (n, one, many) in [
            (symlinks, "symbolic link", "symbolic links"),
            (
                specials,
                "device, FIFO or socket",
                "devices, FIFOs and sockets",
            ),
            (hard_links, "hard link", "hard links"),
            (warnings, "warning", "warnings"),
        ] {
            if *n > 0 {
                line += &format!(", {}", count(*n, one, many));
            }
        }
        line + &format!(", {} of data", crate::show::human(*bytes))
    }
}

/// Progress of the work, counted from any thread.
pub struct Monitor {
    progress: Progress,
    directories: AtomicU64,
    files: Arc<AtomicU64>,
    symlinks: AtomicU64,
    specials: AtomicU64,
    hard_links: AtomicU64,
    bytes: AtomicU64,
    /// Number of warnings of each kind; only a few of a kind are shown.
    warnings: Mutex<Vec<(String, u64)>>,
}

impl Monitor {
    pub fn new(what: &str) -> Self {
        let zero = || AtomicU64::new(0);
        let files = Arc::new(zero());
        Self {
            progress: Progress::transfer(what, Arc::clone(&files)),
            directories: zero(),
            files,
            symlinks: zero(),
            specials: zero(),
            hard_links: zero(),
            bytes: zero(),
            warnings: Mutex::new(Vec::new()),
        }
    }

    /// Announces the total number of bytes, if it is known.
    pub fn expect(&self, bytes: u64) {
        self.progress.expect(bytes, Arc::clone(&self.files));
    }

    fn made(&self, kind: FileType) {
        let counter = match kind {
            FileType::Directory => &self.directories,
            FileType::Regular => &self.files,
            FileType::Symlink => &self.symlinks,
            _ => &self.specials,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn linked(&self) {
        self.hard_links.fetch_add(1, Ordering::Relaxed);
    }

    fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.progress.add(bytes);
    }

    /// Warns about an attribute or file that was not kept; after a few of a kind only their number is reported.
    fn warn(&self, what: &str, place: &str) {
        const SHOWN: u64 = 3;
        // A panic elsewhere cannot leave the list inconsistent.
        let mut kinds = self
            .warnings
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let times = match kinds.iter_mut().find(|(w, _)| w == what) {
            Some((_, times)) => {
                *times += 1;
                *times
            }
            None => {
                kinds.push((what.to_string(), 1));
                1
            }
        };
        if times <= SHOWN {
            self.progress.say(&format!("warning: {place}: {what}"));
        } else if times == SHOWN + 1 {
            self.progress
                .say(&format!("warning: {what}: more of these are only counted"));
        }
    }

    /// Ends the progress and returns the sums.
    pub fn finish(&self) -> Counts {
        self.progress.done();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let kinds = self
            .warnings
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Counts {
            directories: get(&self.directories),
            files: get(&self.files),
            symlinks: get(&self.symlinks),
            specials: get(&self.specials),
            hard_links: get(&self.hard_links),
            bytes: get(&self.bytes),
            warnings: kinds.iter().map(|(_, n)| n).sum(),
        }
    }
}

/// Joins a directory and a name. Fails if the name would leave the directory, because names of a damaged image are not
/// trusted.
fn below(dir: &[u8], name: &[u8]) -> Result<Vec<u8>> {
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0)
    {
        anyhow::bail!(
            "{}: a name that cannot be one: {:?}",
            crate::show::show(dir),
            crate::show::show(name)
        );
    }
    Ok(crate::address::join(dir, name))
}

/// Records that a directory is entered. A directory of an image has only one name; one of the host may be mounted
/// twice.
pub(crate) fn enter(entered: &mut crate::walk::Entered, dir: &dyn Side) -> Result<()> {
    match dir.meta(b".", true)?.map(|meta| meta.id) {
        Some((0, ino)) => entered.enter(ino),
        _ => Ok(()),
    }
}

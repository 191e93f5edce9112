//! Options for opening a file: the builder that `std::fs` users know, and the flags behind it.

use super::dir::Dir;
use super::file::File;
use crate::base::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::types::credentials::{Credentials, READ, WRITE};
use crate::volume::engine::Engine;
use ext4_format::FileType;
use ext4_format::inode::flags as inode_flags;
use std::path::Path;

bitflags::bitflags! {
    /// Flags for opening a [`Node`](super::Node), as in open(2). Callers of [`Dir`](crate::Dir) use
    /// [`OpenOptions`](crate::OpenOptions).
    ///
    /// ```
    /// use extant::unstable::OpenFlags;
    /// assert!((OpenFlags::READ | OpenFlags::WRITE).contains(OpenFlags::READ));
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// For reading.
        const READ = 1;
        /// For writing.
        const WRITE = 2;
        /// Every write goes to the end.
        const APPEND = 4;
        /// Make it if it does not exist.
        const CREATE = 8;
        /// With `CREATE`: fail if it exists.
        const EXCLUSIVE = 16;
        /// Cut to nothing.
        const TRUNCATE = 32;
        /// Fail on a last symbolic link.
        const NO_FOLLOW = 64;
    }
}

/// Options for opening a file: a builder like `std::fs::OpenOptions`. As with open(2), a file that is opened only for
/// reading may also be made or cut.
///
/// ```
/// # let volume = extant::doc_volume();
/// use extant::{Error, OpenOptions};
/// let log = OpenOptions::new().append(true).create(true).open(&volume, "/log")?;
/// log.write(b"started\n")?;
/// let new = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600);
/// assert!(matches!(volume.open_file_with("/log", &new), Err(Error::Exists)));
/// volume.symlink("/log", "/link")?;
/// let cut = OpenOptions::new().write(true).truncate(true).no_follow(true);
/// assert!(matches!(cut.open(&volume, "/link"), Err(Error::SymlinkLoop)));
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "options open nothing by themselves"]
pub struct OpenOptions {
    flags: OpenFlags,
    mode: u16,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! option {
    ($name:ident, $flag:ident, $doc:literal) => {
        #[doc = $doc]
        pub const fn $name(self, yes: bool) -> Self {
            self.with(OpenFlags::$flag, yes)
        }
    };
}

impl OpenOptions {
    /// Makes options with nothing set. At least one of [`read`](Self::read), [`write`](Self::write) and
    /// [`append`](Self::append) must be set.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// assert!(extant::OpenOptions::new().open(&volume, "/lost+found").is_err());
    /// ```
    pub const fn new() -> Self {
        Self {
            flags: OpenFlags::empty(),
            mode: super::FILE_MODE,
        }
    }

    option!(read, READ, "For reading.");
    option!(write, WRITE, "For writing.");
    option!(
        append,
        APPEND,
        "For writing, and every write goes to the end."
    );
    option!(truncate, TRUNCATE, "The file is cut to nothing.");
    option!(create, CREATE, "The file is made if it does not exist.");
    option!(
        no_follow,
        NO_FOLLOW,
        "A symbolic link at the end of the path is [`Error::SymlinkLoop`], and not followed."
    );

    /// Makes the file, which must not exist. [`create`](Self::create) and [`truncate`](Self::truncate) then have no
    /// meaning.
    pub const fn create_new(self, yes: bool) -> Self {
        self.with(OpenFlags::EXCLUSIVE, yes)
    }

    const fn with(mut self, flags: OpenFlags, yes: bool) -> Self {
        self.flags = if yes {
            self.flags.union(flags)
        } else {
            self.flags.difference(flags)
        };
        self
    }

    /// Permissions of a new file, less the caller's umask. Default: 0o644.
    pub const fn mode(mut self, mode: u32) -> Self {
        self.mode = (mode & 0o7777) as u16;
        self
    }

    /// Opens a file below a directory; the same as [`Dir::open_file_with`].
    ///
    /// # Errors
    /// The errors of [`Dir::open_file_with`].
    pub fn open(&self, dir: &Dir, path: impl AsRef<Path>) -> Result<File> {
        dir.open_file_with(path, self)
    }

    /// Returns the flags and the mode.
    pub(super) fn parts(&self) -> Result<(OpenFlags, u16)> {
        let access = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::APPEND;
        if !self.flags.intersects(access) {
            return Err(Error::Invalid(
                "a file is opened to read, to write or to append",
            ));
        }
        let mut flags = self.flags;
        if flags.contains(OpenFlags::EXCLUSIVE) {
            flags |= OpenFlags::CREATE;
            flags.remove(OpenFlags::TRUNCATE);
        }
        Ok((flags, self.mode))
    }
}

impl From<OpenFlags> for OpenOptions {
    fn from(flags: OpenFlags) -> Self {
        Self::new().with(flags, true)
    }
}

/// Fails unless the caller may open an inode that exists so.
pub(crate) fn check_open(
    engine: &Engine,
    who: &Credentials,
    inode: &Inode,
    flags: OpenFlags,
) -> Result<()> {
    if inode.ftype == FileType::Symlink {
        return Err(Error::SymlinkLoop);
    }
    if flags.contains(OpenFlags::CREATE) && inode.directory().is_some() {
        return Err(Error::IsDirectory);
    }
    let writes = flags.intersects(OpenFlags::WRITE | OpenFlags::APPEND | OpenFlags::TRUNCATE);
    if writes && inode.directory().is_some() {
        return Err(Error::IsDirectory);
    }
    let mut wanted = 0;
    if flags.contains(OpenFlags::READ) {
        wanted |= READ;
    }
    if writes {
        wanted |= WRITE;
    }
    engine.inodes.check_access(who, inode, wanted)?;
    if inode.ftype == FileType::Regular && inode.has_flag(inode_flags::ENCRYPT) {
        return Err(Error::NoKey);
    }
    let appends = flags.contains(OpenFlags::APPEND) && !flags.contains(OpenFlags::TRUNCATE);
    if writes && !appends && inode.has_flag(inode_flags::APPEND) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

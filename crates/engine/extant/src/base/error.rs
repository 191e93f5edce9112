//! The engine's errors: every error names the broken rule and the place, and maps to one errno.

use ext4_format::{BlockNr, FormatError, InodeNr};
use extant_formatter::name::NameError;
use extant_mkfs::MkfsError;
use extant_mmp::MmpError;
use std::io;

/// Result of an engine operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the engine.
///
/// ```
/// use extant::Error;
/// assert_eq!(Error::NotFound.errno(), rustix::io::Errno::NOENT.raw_os_error());
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No entry of that name.
    #[error("no such file or directory")]
    NotFound,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// A component used as a directory is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// The operation does not apply to a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The directory holds names.
    #[error("directory not empty")]
    NotEmpty,
    /// The caller lacks a permission bit.
    #[error("permission denied")]
    PermissionDenied,
    /// Only the owner or root may do this, or the file is immutable.
    #[error("operation not permitted")]
    NotPermitted,
    /// A name longer than 255 bytes, or a path longer than 4096.
    #[error("file name too long")]
    NameTooLong,
    /// An argument has no meaning: which.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// More than 40 symbolic links on the way.
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// No block, inode or index space is left: which.
    #[error("no space left on device: {0}")]
    NoSpace(&'static str),
    /// The file would grow past what its mapping can address.
    #[error("file too large")]
    FileTooLarge,
    /// The link count of the inode is at its limit.
    #[error("too many links")]
    TooManyLinks,
    /// The volume is open read-only: why.
    #[error("read-only file system: {0}")]
    ReadOnly(String),
    /// The extended attribute does not exist.
    #[error("no such attribute")]
    NoAttribute,
    /// The buffer is too small for the answer.
    #[error("result too large for the buffer")]
    Range,
    /// An argument is longer than any system call takes.
    #[error("argument too long")]
    TooBig,
    /// The format or this volume cannot do this: what.
    #[error("operation not supported: {0}")]
    Unsupported(&'static str),
    /// The handle was not opened for this.
    #[error("bad file handle: {0}")]
    BadHandle(&'static str),
    /// Rename or link across volumes.
    #[error("cross-device link")]
    CrossDevice,
    /// The object is in use.
    #[error("device or resource busy: {0}")]
    Busy(&'static str),
    /// Another holder has the volume, by its block of multiple mount protection; the text is the name of the holder.
    #[error("the volume is in use by {0} (multiple mount protection)")]
    InUse(String),
    /// No data or hole after the offset.
    #[error("no such offset")]
    NoSuchOffset,
    /// The bytes on the device break a rule of the format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// An image, or a file with changes of it, could not be opened, made or applied.
    #[error("{context}: {source}")]
    Open {
        /// The operation and the file.
        context: String,
        /// The system's error.
        source: io::Error,
    },
    /// The device failed.
    #[error("I/O error: {context}: {source}")]
    Io {
        /// The operation.
        context: String,
        /// The system's error.
        source: io::Error,
    },
    /// An error of the standard library, such as one of the caller's own files, on its way through `?`.
    #[error(transparent)]
    Std(io::Error),
    /// The volume stopped after an earlier failure.
    #[error("volume stopped: {0}")]
    Stopped(String),
    /// A rule of the engine itself does not hold: the volume has stopped, and its image is as of the last commit.
    #[error("broken rule: {rule}: {found}")]
    Broken {
        /// The rule.
        rule: &'static str,
        /// The finding.
        found: String,
    },
    /// The volume was closed while this handle was open.
    #[error("stale file handle: the volume was closed")]
    Stale,
    /// No inode has this number, or not any more: it was removed, or the number was never used.
    #[error("stale file handle: inode {0} is not in use")]
    StaleInode(u32),
    /// The file is encrypted, and its key is never there.
    #[error("required key not available: the file is encrypted")]
    NoKey,
    /// A new file system could not be made.
    #[error(transparent)]
    Mkfs(Box<MkfsError>),
    /// The work was interrupted by the caller.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Makes the error for a device error while reading or writing a block.
    pub fn block_io(verb: &str, block: BlockNr, source: io::Error) -> Self {
        Self::Io {
            context: format!("{verb} block {block}"),
            source,
        }
    }

    /// Makes the error for a rule broken by an inode.
    pub fn corrupt_inode(what: &'static str, ino: InodeNr) -> Self {
        Self::Format(FormatError::corrupt(what, ext4_format::Where::Inode(ino)))
    }

    /// Returns the errno that a system call would return. [`Error::Open`], [`Error::Std`] and [`Error::Mkfs`] return that
    /// of their source. A device that fails later is `EIO`.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno as E;
        let errno = match self {
            Self::NotFound => E::NOENT,
            Self::Exists => E::EXIST,
            Self::NotDirectory => E::NOTDIR,
            Self::IsDirectory => E::ISDIR,
            Self::NotEmpty => E::NOTEMPTY,
            Self::PermissionDenied => E::ACCESS,
            Self::NotPermitted => E::PERM,
            Self::NameTooLong => E::NAMETOOLONG,
            Self::Invalid(_) => E::INVAL,
            Self::SymlinkLoop => E::LOOP,
            Self::NoSpace(_) => E::NOSPC,
            Self::FileTooLarge => E::FBIG,
            Self::TooManyLinks => E::MLINK,
            Self::ReadOnly(_) => E::ROFS,
            Self::NoAttribute => return crate::base::system::NO_ATTRIBUTE,
            Self::Range => E::RANGE,
            Self::TooBig => E::TOOBIG,
            Self::Unsupported(_) => E::OPNOTSUPP,
            Self::BadHandle(_) => E::BADF,
            Self::CrossDevice => E::XDEV,
            Self::Busy(_) | Self::InUse(_) => E::BUSY,
            Self::NoSuchOffset => E::NXIO,
            Self::Interrupted => E::INTR,
            Self::Stale | Self::StaleInode(_) => E::STALE,
            Self::NoKey => return crate::base::system::NO_KEY,
            Self::Format(FormatError::Corrupt { .. } | FormatError::Checksum { .. }) => {
                return crate::base::system::DAMAGED;
            }
            Self::Format(_) => E::INVAL,
            Self::Mkfs(error) => match &**error {
                MkfsError::TooSmall { .. } | MkfsError::TooFewInodes { .. } => E::NOSPC,
                MkfsError::Io { source, .. } => return blockdev::errno_of(source),
                MkfsError::Interrupted => E::INTR,
                _ => E::INVAL,
            },
            Self::Open { source, .. } | Self::Std(source) => return blockdev::errno_of(source),
            Self::Io { .. } | Self::Stopped(_) | Self::Broken { .. } => E::IO,
        };
        errno.raw_os_error()
    }
}

#[doc(hidden)]
impl From<MmpError> for Error {
    #[cold]
    fn from(error: MmpError) -> Self {
        match error {
            MmpError::InUse { holder } => Self::InUse(holder),
            MmpError::Format(broken) => Self::Format(broken),
            MmpError::Io(source) => Self::Io {
                context: "claim the volume by its block of multiple mount protection".into(),
                source,
            },
        }
    }
}

// The formatter's crate is a part of the engine, but not of its interface, so these conversions are hidden.
#[doc(hidden)]
impl From<extant_formatter::Error> for Error {
    #[cold]
    fn from(error: extant_formatter::Error) -> Self {
        use extant_formatter::Error as E;
        match error {
            E::Format(broken) => Self::Format(broken),
            E::Read { block, source } => Self::block_io("read", block, source),
            E::NoSpace(what) => Self::NoSpace(what),
            E::Unsupported(what) => Self::Unsupported(what),
            // The source of blocks is the engine.
            E::Space(error) => match error.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Self::Io {
                    context: "taking a block".into(),
                    source: io::Error::other(other),
                },
            },
            E::Panicked => Self::Stopped("a thread panicked".into()),
        }
    }
}

#[doc(hidden)]
impl From<NameError> for Error {
    #[cold]
    fn from(error: NameError) -> Self {
        match error {
            NameError::TooLong => Self::NameTooLong,
            NameError::Empty => Self::NotFound,
            NameError::Refused(why) => Self::Invalid(why),
        }
    }
}

// Every operation returns a result with this error, so it stays small.
impl From<MkfsError> for Error {
    fn from(error: MkfsError) -> Self {
        Self::Mkfs(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_formatter::SpaceError;

    /// An error of the engine passes through the formatter as it is: an error "no space" must not become a failure of
    /// the device.
    #[test]
    fn the_formatter_hands_back_the_engines_own_errors() {
        let through =
            |own: Error| Error::from(extant_formatter::Error::from(Box::new(own) as SpaceError));
        assert!(matches!(
            through(Error::NoSpace("blocks")),
            Error::NoSpace("blocks")
        ));
        let damage = Error::corrupt_inode("mode", InodeNr(12));
        assert!(matches!(
            through(damage),
            Error::Format(FormatError::Corrupt { .. })
        ));
        let foreign: SpaceError = "another".into();
        assert!(matches!(
            Error::from(extant_formatter::Error::Space(foreign)),
            Error::Io { .. }
        ));
    }

    /// A block that cannot be read is reported in the same words by the formatter and by the engine.
    #[test]
    fn a_failed_read_names_its_block() {
        let failed = || io::Error::from(io::ErrorKind::TimedOut);
        let by_formatter = extant_formatter::Error::Read {
            block: BlockNr(7),
            source: failed(),
        };
        assert_eq!(
            Error::from(by_formatter).to_string(),
            Error::block_io("read", BlockNr(7), failed()).to_string()
        );
    }
}

//! The traits of `std::io` for files, and conversions between errors and `io::Error`.

use super::file::File;
use crate::base::error::Error;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The kind is that of the errno which a system call would have returned; the error is kept as the cause, to which
/// [`io::Error::downcast`] leads back.
///
/// ```
/// # let volume = extant::doc_volume();
/// fn missing(volume: &extant::Volume) -> std::io::Result<()> {
///     volume.metadata("/none")?;
///     Ok(())
/// }
/// let error = missing(&volume).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// assert!(matches!(error.downcast(), Ok(extant::Error::NotFound)));
/// ```
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io { source, .. } | Error::Open { source, .. } => source.kind(),
            Error::Std(error) => error.kind(),
            _ => io::Error::from_raw_os_error(error.errno()).kind(),
        };
        io::Error::new(kind, error)
    }
}

/// Lets `?` convert errors of the standard library in functions that return [`extant::Result`](crate::Result). An
/// [`io::Error`] that wraps an error of this crate is unwrapped.
///
/// ```
/// # let volume = extant::doc_volume();
/// fn store(volume: &extant::Volume, file: &str) -> extant::Result<()> {
///     let text = std::fs::read(file)?;
///     volume.write("/copy", text)
/// }
/// assert!(matches!(store(&volume, "/none"), Err(extant::Error::Std(_))));
/// let there_and_back = extant::Error::from(std::io::Error::from(extant::Error::NotFound));
/// assert!(matches!(there_and_back, extant::Error::NotFound));
/// ```
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Std)
    }
}

/// At the file position, which all handles of this opening share; as for `std::fs::File`, a shared reference is enough.
///
/// ```
/// # let volume = extant::doc_volume();
/// use std::io::{Read, SeekFrom, Write};
/// let mut file = volume.create_new_file("/file")?;
/// writeln!(file, "{} lines", 1)?;
/// file.seek(SeekFrom::Start(2))?;
/// let mut rest = String::new();
/// file.read_to_string(&mut rest)?;
/// assert_eq!(rest, "lines\n");
/// # Ok::<(), std::io::Error>(())
/// ```
impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Ok(File::read(self, buf)?)
    }
}

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(File::write(self, data)?)
    }

    /// Does nothing, because the handle holds nothing back. [`File::sync_all`] makes data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Ok(File::seek(self, to)?)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Read::read(&mut &*self, buf)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Write::write(&mut &*self, data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Seek::seek(&mut &*self, to)
    }
}

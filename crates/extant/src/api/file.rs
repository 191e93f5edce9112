//! An open file.

use crate::base::error::{Error, Result};
use crate::data::extents::Extent;
use crate::data::fallocate::{Fallocate, Seek};
use crate::data::read_write::Keep;
use crate::incore::inode::Inode;
use crate::inodes::attributes::{Attributes, SetAttributes};
use crate::inodes::open_files::Opened;
use crate::types::credentials::{Credentials, READ, WRITE};
use crate::volume::caller::Caller;
use crate::volume::engine::Engine;
use ext4_format::FileType;
use ext4_format::inode::flags as inode_flags;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

bitflags::bitflags! {
    /// How a file is opened.
    ///
    /// ```
    /// use extant::OpenFlags;
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

/// An open file. It stays usable when its last name goes; its space is freed when it is closed. Closing
/// is dropping.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let file = volume.create("/log", 0o600)?;
/// file.append(b"one ")?;
/// file.append(b"two")?;
/// file.fsync()?;
/// let mut buf = [0; 16];
/// assert_eq!(file.read_at(4, &mut buf)?, 3);
/// # Ok(())
/// # }
/// ```
pub struct File {
    caller: Arc<Caller>,
    inode: Opened,
    flags: OpenFlags,
    /// File position [L9]: set and added to atomically, no lock in seek.
    position: AtomicU64,
}

impl File {
    /// A handle that is counted already.
    pub(crate) fn of(caller: Arc<Caller>, inode: Opened, flags: OpenFlags) -> Self {
        Self {
            caller,
            inode,
            flags,
            position: AtomicU64::new(0),
        }
    }

    fn engine(&self) -> Result<&Engine> {
        self.caller.engine()
    }

    pub(crate) fn parts(&self) -> (&Inode, OpenFlags) {
        (&self.inode, self.flags)
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(crate) fn is_of(&self, engine: &Arc<Engine>) -> bool {
        Arc::ptr_eq(self.caller.any_engine(), engine)
    }

    fn readable(&self) -> Result<()> {
        if self.inode.directory().is_some() {
            return Err(Error::IsDirectory);
        }
        if self.flags.contains(OpenFlags::READ) {
            Ok(())
        } else {
            Err(Error::BadHandle("not open for reading"))
        }
    }

    fn writable(&self) -> Result<()> {
        if !self.flags.intersects(OpenFlags::WRITE | OpenFlags::APPEND) {
            return Err(Error::BadHandle("not open for writing"));
        }
        // An append-only file is refused when it is opened for other writing, not after.
        if self.inode.has_flag(inode_flags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    /// Inode number.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// assert_eq!(volume.stat("/file")?.ino, file.ino());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn ino(&self) -> u32 {
        self.inode.ino.0
    }

    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.write_all_at(0, b"hello, world")?;
    /// let mut buf = [0; 100];
    /// let n = file.read_at(7, &mut buf)?;
    /// assert_eq!(&buf[..n], b"world");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.readable()?;
        let engine = self.engine()?;
        let read = engine.data.read(&self.inode, offset, buf, Keep::Pages)?;
        engine.inodes.accessed(&self.inode);
        Ok(read)
    }

    /// A file without data cannot be written to, not even with an empty buffer.
    fn regular(&self) -> Result<()> {
        match self.inode.ftype {
            FileType::Regular => Ok(()),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Writes `data` at an offset (at the end, if opened to append). Returns how many bytes: fewer than all
    /// if the space ran out, or the largest size was reached, after a part; the next call then fails.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// assert_eq!(file.write_at(1 << 20, b"far out")?, 7);
    /// assert_eq!(file.stat()?.size, (1 << 20) + 7);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSpace` or `FileTooLarge` if not even one byte could be stored.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.writable()?;
        if data.is_empty() {
            return self.regular().map(|()| 0);
        }
        let offset = (!self.flags.contains(OpenFlags::APPEND)).then_some(offset);
        self.engine()?
            .data
            .write(&self.caller.who, &self.inode, offset, data)
            .map(|at| (at.end - at.start) as usize)
    }

    /// Writes all of `data` at an offset. After an error a part may be stored.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/page", 0o600)?;
    /// file.write_all_at(4096, b"all of it")?;
    /// assert_eq!(file.stat()?.size, 4096 + 9);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_all_at(&self, mut offset: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let n = self.write_at(offset, data)?;
            data = &data[n..];
            offset += n as u64;
        }
        Ok(())
    }

    /// Writes at the end, atomically towards other writers. Returns where the bytes stand in the file: as
    /// with [`File::write_at`] they may be fewer than all.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// assert_eq!(file.append(b"one")?, 0..3);
    /// assert_eq!(file.append(b"three")?, 3..8);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn append(&self, data: &[u8]) -> Result<Range<u64>> {
        self.writable()?;
        if data.is_empty() {
            self.regular()?;
            let end = self.inode.size.load(Ordering::Acquire);
            return Ok(end..end);
        }
        self.engine()?
            .data
            .write(&self.caller.who, &self.inode, None, data)
    }

    /// Reads at the file position and moves it.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.write_all_at(0, b"abcdef")?;
    /// let mut buf = [0; 4];
    /// assert_eq!(file.read(&mut buf)?, 4);
    /// assert_eq!(file.read(&mut buf)?, 2);
    /// assert_eq!(&buf[..2], b"ef");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read(&self, buf: &mut [u8]) -> Result<usize> {
        let at = self.position.load(Ordering::Relaxed);
        let n = self.read_at(at, buf)?;
        self.position.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    /// Writes at the file position and moves it past what was stored; see [`File::write_at`].
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.write(b"one ")?;
    /// file.write(b"two")?;
    /// assert_eq!(volume.read_file("/file")?, b"one two");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn write(&self, data: &[u8]) -> Result<usize> {
        if self.flags.contains(OpenFlags::APPEND) {
            let at = self.append(data)?;
            self.position.store(at.end, Ordering::Relaxed);
            return Ok((at.end - at.start) as usize);
        }
        let at = self
            .position
            .fetch_add(data.len() as u64, Ordering::Relaxed);
        let written = self.write_at(at, data);
        let missing = data.len() - written.as_ref().map_or(0, |n| *n);
        if missing > 0 {
            self.position.fetch_sub(missing as u64, Ordering::Relaxed);
        }
        written
    }

    /// Sets the file position.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.write(b"one two")?;
    /// file.set_position(4);
    /// file.write(b"2")?;
    /// assert_eq!(volume.read_file("/file")?, b"one 2wo");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// The file position.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.write(b"seven..")?;
    /// assert_eq!(file.position(), 7);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// Offset of the next data or hole.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, Seek};
    /// let file = volume.create("/file", 0o600)?;
    /// file.write_all_at(1 << 20, b"data")?;
    /// assert_eq!(file.seek(0, Seek::Data)?, 1 << 20);
    /// assert_eq!(file.seek(0, Seek::Hole)?, 0);
    /// assert!(matches!(file.seek(1 << 30, Seek::Data), Err(Error::NoSuchOffset)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.engine()?.data.seek(&self.inode, offset, what)
    }

    /// Sets the size.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.write_all_at(0, b"hello, world")?;
    /// file.truncate(5)?;
    /// file.truncate(1 << 40)?; // the rest is a hole
    /// assert_eq!(file.stat()?.size, 1 << 40);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.writable()?;
        if self.inode.has_flag(inode_flags::APPEND) {
            return Err(Error::NotPermitted);
        }
        self.truncate_unchecked(size)
    }

    pub(crate) fn truncate_unchecked(&self, size: u64) -> Result<()> {
        self.engine()?
            .data
            .truncate(&self.caller.who, &self.inode, size)
    }

    /// Preallocates, punches or zeroes a range.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::Fallocate;
    /// let file = volume.create("/file", 0o600)?;
    /// file.fallocate(Fallocate::Allocate { keep_size: true }, 0, 1 << 20)?;
    /// assert_eq!((file.stat()?.size, file.stat()?.sectors), (0, 2048));
    /// file.write_all_at(0, &[7; 8192])?;
    /// file.fallocate(Fallocate::PunchHole, 0, 4096)?;
    /// let mut byte = [1];
    /// file.read_at(100, &mut byte)?;
    /// assert_eq!(byte, [0]);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn fallocate(&self, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.writable()?;
        let takes_away = !matches!(how, Fallocate::Allocate { .. });
        if takes_away && self.inode.has_flag(inode_flags::APPEND) {
            return Err(Error::NotPermitted);
        }
        self.engine()?
            .data
            .fallocate(&self.caller.who, &self.inode, how, offset, len)
    }

    /// Copies up to `len` bytes from `offset` on to another file of this volume, or another place of this one, inside
    /// the library; holes become holes. Returns how many bytes were copied: fewer than all at the end of this file, or
    /// if the space ran out after a part.
    ///
    /// # Errors
    /// [`Error::Invalid`] for ranges of one file that overlap, [`Error::CrossDevice`] for a file of another volume,
    /// [`Error::BadHandle`] if `to` was opened to append.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// use extant::OpenFlags;
    /// volume.write_file("/a", b"hello, world")?;
    /// let from = volume.open("/a", OpenFlags::READ, 0)?;
    /// let to = volume.create("/b", 0o600)?;
    /// assert_eq!(from.copy_range_to(7, &to, 0, 100)?, 5);
    /// assert_eq!(volume.read_file("/b")?, b"world");
    /// # Ok(())
    /// # }
    /// ```
    pub fn copy_range_to(&self, offset: u64, to: &Self, to_offset: u64, len: u64) -> Result<u64> {
        self.readable()?;
        to.writable()?;
        if to.flags.contains(OpenFlags::APPEND) {
            return Err(Error::BadHandle("open to append"));
        }
        let engine = to.engine()?;
        if !std::ptr::eq(engine, self.engine()?) {
            return Err(Error::CrossDevice);
        }
        let (from, target) = ((self.inode(), offset), (to.inode(), to_offset));
        engine.data.copy_range(&to.caller.who, from, target, len)
    }

    /// The file's extents on the device, in its order; neighbouring blocks are one extent. Data that were not written
    /// back have no place yet.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.write_all_at(8192, &[1; 4096])?;
    /// file.fsync()?;
    /// let extents = file.extents()?;
    /// assert_eq!((extents[0].offset, extents[0].len), (8192, 4096));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn extents(&self) -> Result<Vec<Extent>> {
        self.readable()?;
        self.engine()?.data.extents(&self.inode)
    }

    /// Attributes.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.append(b"data")?;
    /// assert_eq!(file.stat()?.size, 4);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn stat(&self) -> Result<Attributes> {
        Ok(self.engine()?.inodes.attributes(&self.inode))
    }

    /// Changes attributes.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetAttributes;
    /// let file = volume.create("/file", 0o600)?;
    /// file.set_attributes(&SetAttributes { mode: Some(0o400), ..Default::default() })?;
    /// assert_eq!(file.stat()?.mode & 0o777, 0o400);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_attributes(&self, set: &SetAttributes) -> Result<()> {
        self.engine()?
            .data
            .set_attributes(&self.caller.who, &self.inode, set)
    }

    /// Value of an extended attribute.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// let file = volume.create("/file", 0o600)?;
    /// file.set_xattr("user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(file.get_xattr("user.origin")?, b"here");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn get_xattr(&self, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.engine()?
            .inodes
            .get_xattr(&self.caller.who, &self.inode, name.as_ref())
    }

    /// Names of the extended attributes.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// let file = volume.create("/file", 0o600)?;
    /// file.set_xattr("user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(file.list_xattrs()?, [b"user.origin"]);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn list_xattrs(&self) -> Result<Vec<Vec<u8>>> {
        self.engine()?
            .inodes
            .list_xattrs(&self.caller.who, &self.inode)
    }

    /// Sets an extended attribute.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, SetXattr};
    /// let file = volume.create("/file", 0o600)?;
    /// file.set_xattr("user.a", b"1", SetXattr::Create)?;
    /// assert!(matches!(file.set_xattr("user.a", b"2", SetXattr::Create), Err(Error::Exists)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_xattr(
        &self,
        name: impl AsRef<[u8]>,
        value: &[u8],
        how: crate::inodes::xattrs::SetXattr,
    ) -> Result<()> {
        self.engine()?.inodes.set_xattr(
            &self.caller.who,
            &self.inode,
            name.as_ref(),
            Some(value),
            how,
        )
    }

    /// Removes an extended attribute.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// let file = volume.create("/file", 0o600)?;
    /// file.set_xattr("user.a", b"1", SetXattr::Any)?;
    /// file.remove_xattr("user.a")?;
    /// assert!(file.list_xattrs()?.is_empty());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_xattr(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let how = crate::inodes::xattrs::SetXattr::Any;
        self.engine()?
            .inodes
            .set_xattr(&self.caller.who, &self.inode, name.as_ref(), None, how)
    }

    /// Data and metadata are on disk when this returns.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.append(b"not to be lost")?;
    /// file.fsync()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn fsync(&self) -> Result<()> {
        self.engine()?.data.fsync(&self.inode, false)
    }

    /// Data, and the metadata needed to read it, are on disk when this returns.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create("/file", 0o600)?;
    /// file.append(b"not to be lost")?;
    /// file.fdatasync()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn fdatasync(&self) -> Result<()> {
        self.engine()?.data.fsync(&self.inode, true)
    }

    /// Type of the file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::FileType;
    /// let file = volume.create("/file", 0o600)?;
    /// assert_eq!(file.file_type(), FileType::Regular);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn file_type(&self) -> FileType {
        self.inode.ftype
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.caller.any_engine().data.finish_replacing(&self.inode);
        if let Err(e) = self.caller.any_engine().lifecycle.close(&self.inode) {
            tracing::error!(ino = self.inode.ino.0, error = %e, "freeing a removed file at close");
        }
    }
}

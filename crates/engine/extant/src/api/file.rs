//! An open file.

use super::open_options::OpenFlags;
use crate::base::error::{Error, Result};
use crate::data::defragment::Defragmented;
use crate::data::extents::Extent;
use crate::data::fallocate::{Fallocate, Seek};
use crate::data::read_write::Keep;
use crate::incore::inode::Inode;
use crate::inodes::attributes::{Metadata, SetAttributes};
use crate::inodes::open_files::Opened;
use crate::inodes::xattrs::SetXattr;
use crate::types::credentials::Credentials;
use crate::volume::caller::Caller;
use crate::volume::engine::Engine;
use ext4_format::FileType;
use ext4_format::inode::flags as inode_flags;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::SeekFrom;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An open file. It stays usable when its last name is removed, and its space is freed when it is closed. Dropping
/// closes it.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let file = volume.create_new_file("/log")?;
/// file.append(b"one ")?;
/// file.append(b"two")?;
/// file.sync_all()?;
/// let mut buf = [0; 16];
/// assert_eq!(file.read_at(&mut buf, 4)?, 3);
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

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("ino", &self.inode.ino.0)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

const OUT_OF_RANGE: Error = Error::Invalid("a file position before the start, or beyond all");

impl File {
    /// Makes a handle that is counted already.
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

    /// Returns the arguments that every operation on the inode takes.
    pub(super) fn called(&self) -> Result<(&Engine, &Credentials, &Arc<Inode>)> {
        Ok((self.engine()?, &self.caller.who, &self.inode))
    }

    pub(crate) fn parts(&self) -> (&Inode, OpenFlags) {
        (&self.inode, self.flags)
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Returns the block size of the volume; 0 if it is closed.
    pub(super) fn block_size(&self) -> u32 {
        self.engine()
            .map_or(0, |engine| engine.store.geometry.block_size)
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

    /// Returns the inode number.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// assert_eq!(volume.metadata("/file")?.ino(), file.ino());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn ino(&self) -> u32 {
        self.inode.ino.0
    }

    /// Reads at an offset; fewer bytes than asked only at the end of the file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.write_all_at(b"hello, world", 0)?;
    /// let mut buf = [0; 100];
    /// let n = file.read_at(&mut buf, 7)?;
    /// assert_eq!(&buf[..n], b"world");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.readable()?;
        let engine = self.engine()?;
        let read = engine.data.read(&self.inode, offset, buf, Keep::Pages)?;
        engine.inodes.accessed(&self.inode);
        Ok(read)
    }

    /// Fails for a file without data, which cannot be written to, not even with an empty buffer.
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
    /// let file = volume.create_new_file("/file")?;
    /// assert_eq!(file.write_at(b"far out", 1 << 20)?, 7);
    /// assert_eq!(file.metadata()?.len(), (1 << 20) + 7);
    /// # Ok::<(), extant::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NoSpace` or `FileTooLarge` if not even one byte could be stored.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
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
    /// let file = volume.create_new_file("/page")?;
    /// file.write_all_at(b"all of it", 4096)?;
    /// assert_eq!(file.metadata()?.len(), 4096 + 9);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> Result<()> {
        while !data.is_empty() {
            let n = self.write_at(data, offset)?;
            data = &data[n..];
            // A handle that appends takes any offset.
            offset = offset.wrapping_add(n as u64);
        }
        Ok(())
    }

    /// Writes at the end, atomically towards other writers. Returns the range of the stored bytes in the file. As with
    /// [`File::write_at`], it may be shorter than the data.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
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
    /// let file = volume.create_new_file("/file")?;
    /// file.write_all_at(b"abcdef", 0)?;
    /// let mut buf = [0; 4];
    /// assert_eq!(file.read(&mut buf)?, 4);
    /// assert_eq!(file.read(&mut buf)?, 2);
    /// assert_eq!(&buf[..2], b"ef");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read(&self, buf: &mut [u8]) -> Result<usize> {
        let at = self.position.load(Ordering::Relaxed);
        let n = self.read_at(buf, at)?;
        self.position.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }

    /// Writes at the file position and moves it past the stored bytes. See [`File::write_at`].
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.write(b"one ")?;
    /// file.write(b"two")?;
    /// assert_eq!(volume.read("/file")?, b"one two");
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
        let written = self.write_at(data, at);
        let missing = data.len() - written.as_ref().map_or(0, |n| *n);
        if missing > 0 {
            self.position.fetch_sub(missing as u64, Ordering::Relaxed);
        }
        written
    }

    /// Moves the file position, and returns it. A position may be beyond the end, but not before the start.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use std::io::SeekFrom;
    /// let file = volume.create_new_file("/file")?;
    /// file.write(b"one two")?;
    /// assert_eq!(file.seek(SeekFrom::Current(-3))?, 4);
    /// file.write(b"2")?;
    /// assert_eq!(volume.read("/file")?, b"one 2wo");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn seek(&self, to: SeekFrom) -> Result<u64> {
        // The system's offsets are signed.
        let moved = |base: u64, by: i64| {
            base.checked_add_signed(by)
                .filter(|at| i64::try_from(*at).is_ok())
        };
        let (base, by) = match to {
            SeekFrom::Start(at) => (at, 0),
            SeekFrom::End(by) => (self.inode.size.load(Ordering::Acquire), by),
            SeekFrom::Current(by) => {
                // The addition is atomic [L9], so that no relative seek of another thread is lost.
                let before =
                    self.position
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| moved(at, by));
                return before.ok().and_then(|at| moved(at, by)).ok_or(OUT_OF_RANGE);
            }
        };
        let at = moved(base, by).ok_or(OUT_OF_RANGE)?;
        self.position.store(at, Ordering::Relaxed);
        Ok(at)
    }

    /// Returns the file position.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.write(b"seven..")?;
    /// assert_eq!(file.stream_position()?, 7);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn stream_position(&self) -> Result<u64> {
        Ok(self.position.load(Ordering::Relaxed))
    }

    /// Returns the offset of the next data at or after an offset.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::Error;
    /// let file = volume.create_new_file("/file")?;
    /// file.write_all_at(b"data", 1 << 20)?;
    /// assert_eq!(file.seek_data(0)?, 1 << 20);
    /// assert!(matches!(file.seek_data(1 << 30), Err(Error::NoSuchOffset)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.engine()?.data.seek(&self.inode, offset, Seek::Data)
    }

    /// Returns the offset of the next hole at or after an offset. The end of the file counts as a hole.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.write_all_at(&[1; 4096], 0)?;
    /// assert_eq!(file.seek_hole(0)?, 4096);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.engine()?.data.seek(&self.inode, offset, Seek::Hole)
    }

    /// Sets the size.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.write_all_at(b"hello, world", 0)?;
    /// file.set_len(5)?;
    /// file.set_len(1 << 40)?; // the rest is a hole
    /// assert_eq!(file.metadata()?.len(), 1 << 40);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_len(&self, size: u64) -> Result<()> {
        self.writable()?;
        if self.inode.has_flag(inode_flags::APPEND) {
            return Err(Error::NotPermitted);
        }
        self.set_len_unchecked(size)
    }

    pub(crate) fn set_len_unchecked(&self, size: u64) -> Result<()> {
        self.engine()?
            .data
            .truncate(&self.caller.who, &self.inode, size)
    }

    /// Preallocates, punches or zeroes a range.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::Fallocate;
    /// let file = volume.create_new_file("/file")?;
    /// file.fallocate(Fallocate::Allocate { keep_size: true }, 0, 1 << 20)?;
    /// assert_eq!((file.metadata()?.len(), file.metadata()?.blocks()), (0, 2048));
    /// file.write_all_at(&[7; 8192], 0)?;
    /// file.fallocate(Fallocate::PunchHole, 0, 4096)?;
    /// let mut byte = [1];
    /// file.read_at(&mut byte, 100)?;
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
    /// volume.write("/a", b"hello, world")?;
    /// let from = volume.open_file("/a")?;
    /// let to = volume.create_new_file("/b")?;
    /// assert_eq!(from.copy_range_to(7, &to, 0, 100)?, 5);
    /// assert_eq!(volume.read("/b")?, b"world");
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

    /// Moves the file's data into fewer extents, as far as there are free runs for them; other callers go on reading
    /// and writing it. Content, size and times stay, holes stay holes, and blocks that were set aside stay unwritten. A
    /// crash leaves each part of the file at its old or at its new place.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a file without extents, [`Error::NotPermitted`] for one that is immutable or
    /// append-only. Parts that were moved before an error stay moved.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// let files = [volume.create_new_file("/a")?, volume.create_new_file("/b")?];
    /// for n in 0..8 {
    ///     for file in &files {
    ///         file.write_all_at(&[n; 16 << 10], u64::from(n) << 14)?;
    ///         file.sync_all()?;
    ///     }
    /// }
    /// let done = files[0].defragment()?;
    /// assert_eq!((done.after, done.least), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn defragment(&self) -> Result<Defragmented> {
        self.writable()?;
        let engine = self.engine()?;
        engine.data.defragment(&self.caller.who, &self.inode)
    }

    /// Returns the number of extents of the file, as [`File::defragment`] counts them. Nothing is moved.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.write_all_at(&[1; 4096], 8192)?;
    /// file.sync_all()?;
    /// assert_eq!(file.fragmentation()?.before, 1);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn fragmentation(&self) -> Result<Defragmented> {
        self.readable()?;
        self.engine()?.data.fragmentation(&self.inode)
    }

    /// Returns the file's extents on the device, in the file's order. Neighbouring blocks are one extent. Data that
    /// were not written back have no place yet.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.write_all_at(&[1; 4096], 8192)?;
    /// file.sync_all()?;
    /// let extents = file.extents()?;
    /// assert_eq!((extents[0].offset, extents[0].len), (8192, 4096));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn extents(&self) -> Result<Vec<Extent>> {
        self.readable()?;
        self.engine()?.data.extents(&self.inode)
    }

    /// Returns the metadata.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.append(b"data")?;
    /// assert_eq!(file.metadata()?.len(), 4);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn metadata(&self) -> Result<Metadata> {
        Ok(self.engine()?.inodes.attributes(&self.inode))
    }

    /// Changes attributes.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetAttributes;
    /// let file = volume.create_new_file("/file")?;
    /// file.set_attributes(&SetAttributes { mode: Some(0o400), ..Default::default() })?;
    /// assert_eq!(file.metadata()?.mode() & 0o777, 0o400);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_attributes(&self, set: &SetAttributes) -> Result<()> {
        self.engine()?
            .names
            .set_attributes(&self.caller.who, &self.inode, set)
    }

    /// Returns the value of an extended attribute.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// let file = volume.create_new_file("/file")?;
    /// file.set_xattr("user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(file.get_xattr("user.origin")?, b"here");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn get_xattr(&self, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        let (engine, who, inode) = self.called()?;
        engine
            .inodes
            .get_xattr(who, inode, name.as_ref().as_bytes())
    }

    /// Returns the names of the extended attributes.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// let file = volume.create_new_file("/file")?;
    /// file.set_xattr("user.origin", b"here", SetXattr::Any)?;
    /// assert_eq!(file.list_xattrs()?, ["user.origin"]);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn list_xattrs(&self) -> Result<Vec<OsString>> {
        let (engine, who, inode) = self.called()?;
        let names = engine.inodes.list_xattrs(who, inode)?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Sets an extended attribute.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::{Error, SetXattr};
    /// let file = volume.create_new_file("/file")?;
    /// file.set_xattr("user.a", b"1", SetXattr::Create)?;
    /// assert!(matches!(file.set_xattr("user.a", b"2", SetXattr::Create), Err(Error::Exists)));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8], how: SetXattr) -> Result<()> {
        let (engine, who, inode) = self.called()?;
        let name = name.as_ref().as_bytes();
        engine.inodes.set_xattr(who, inode, name, Some(value), how)
    }

    /// Removes an extended attribute.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::SetXattr;
    /// let file = volume.create_new_file("/file")?;
    /// file.set_xattr("user.a", b"1", SetXattr::Any)?;
    /// file.remove_xattr("user.a")?;
    /// assert!(file.list_xattrs()?.is_empty());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let (engine, who, inode) = self.called()?;
        let name = name.as_ref().as_bytes();
        engine
            .inodes
            .set_xattr(who, inode, name, None, SetXattr::Any)
    }

    /// Syncs data and metadata: they are on disk when this returns.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.append(b"not to be lost")?;
    /// file.sync_all()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn sync_all(&self) -> Result<()> {
        self.engine()?.data.fsync(&self.inode, false)
    }

    /// Syncs the data and the metadata needed to read them: they are on disk when this returns.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let file = volume.create_new_file("/file")?;
    /// file.append(b"not to be lost")?;
    /// file.sync_data()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn sync_data(&self) -> Result<()> {
        self.engine()?.data.fsync(&self.inode, true)
    }

    /// Returns the type of the file.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::FileType;
    /// let file = volume.create_new_file("/file")?;
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

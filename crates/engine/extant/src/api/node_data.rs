//! The identity of a node, and its data.

use crate::api::node::Node;
use crate::base::error::{Error, Result};
use crate::data::defragment::Defragmented;
use crate::data::extents::Extent;
use crate::data::fallocate::{Fallocate, Seek};
use crate::data::read_write::Keep;
use crate::types::credentials::Credentials;
use ext4_format::FileType;
use ext4_format::inode::flags as inode_flags;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Node {
    pub(super) fn check_file(&self) -> Result<()> {
        match self.inode.ftype {
            FileType::Directory => Err(Error::IsDirectory),
            _ => Ok(()),
        }
    }

    pub(super) fn check_change(&self) -> Result<()> {
        self.check_file()?;
        if self.inode.has_flag(inode_flags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    /// Reads at an offset; fewer bytes than asked only at the end of the file. The caller's right was checked when
    /// the file was opened.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.write_at(&who, b"hello, world", 0)?;
    /// let mut buf = [0; 5];
    /// file.read_at(&mut buf, 7)?;
    /// assert_eq!(&buf, b"world");
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read(offset, buf, Keep::Pages)
    }

    /// Like [`read_at`](Self::read_at), for a cache above this library that keeps the data itself. Data that are not in
    /// memory are read from the device into `buf` alone, without read-ahead, and are not kept here.
    ///
    /// ```
    /// # fn main() -> Result<(), extant::Error> {
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// volume.write("/file", b"0123456789")?;
    /// let who = extant::Credentials::root();
    /// let file = Node::root(&volume)?.lookup(&who, b"file")?;
    /// let mut data = [0; 4];
    /// assert_eq!(file.read_cached(&mut data, 8)?, 2);
    /// assert_eq!(&data[..2], b"89");
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_cached(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read(offset, buf, Keep::Nothing)
    }

    fn read(&self, offset: u64, buf: &mut [u8], keep: Keep) -> Result<usize> {
        self.check_file()?;
        let engine = self.engine()?;
        let read = engine.data.read(&self.inode, offset, buf, keep)?;
        engine.inodes.accessed(&self.inode);
        Ok(read)
    }

    /// Notes a read that this library did not see, as out of a cache above it: the time of the last access changes by
    /// the volume's rule. [`Node::read_at`], [`Node::read_cached`], [`Node::list`] and [`Node::read_link`] do so
    /// themselves.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.accessed(); // out of a cache; this volume's habit is to take no note
    /// assert_eq!(file.metadata()?.atime(), file.metadata()?.crtime());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn accessed(&self) {
        if let Ok(engine) = self.engine() {
            engine.inodes.accessed(&self.inode);
        }
    }

    /// Writes at an offset; see [`File::write_at`](crate::File::write_at). The caller's right was checked when the
    /// file was opened; the caller's identity decides about set-id bits and root's reserve.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// assert_eq!(file.write_at(&who, b"data", 4096)?, 4);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn write_at(&self, who: &Credentials, data: &[u8], offset: u64) -> Result<usize> {
        self.check_change()?;
        if data.is_empty() {
            return Ok(0);
        }
        self.engine()?
            .data
            .write(who, &self.inode, Some(offset), data)
            .map(|at| (at.end - at.start) as usize)
    }

    /// Writes data from a cache above this library, which has confirmed the writes to programs already. It is not
    /// refused because of the inode's present flags, removes no set-id bits and capabilities, and changes no times. The
    /// cache did so when it was filled, and writes the times back by
    /// [`SetAttributes::ctime`](crate::SetAttributes::ctime). Long pieces go to the device at once, because the cache
    /// keeps them in memory.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// let before = file.metadata()?.mtime();
    /// file.write_cached(b"data", 0)?;
    /// assert_eq!(file.metadata()?.mtime(), before);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn write_cached(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.check_file()?;
        if data.is_empty() {
            return Ok(0);
        }
        self.engine()?.data.write_cached(&self.inode, offset, data)
    }

    /// Writes at the end, atomically towards other writers; see [`File::append`](crate::File::append).
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.append(&who, b"one")?;
    /// assert_eq!(file.append(&who, b"two")?, 3..6);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn append(&self, who: &Credentials, data: &[u8]) -> Result<Range<u64>> {
        self.check_change()?;
        if data.is_empty() {
            let end = self.inode.size.load(Ordering::Acquire);
            return Ok(end..end);
        }
        self.engine()?.data.write(who, &self.inode, None, data)
    }

    /// Sets the size of a file that was opened for writing.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.truncate(&who, 1 << 30)?;
    /// assert_eq!(file.metadata()?.len(), 1 << 30);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn truncate(&self, who: &Credentials, size: u64) -> Result<()> {
        self.check_change()?;
        if self.inode.has_flag(inode_flags::APPEND) {
            return Err(Error::NotPermitted);
        }
        self.engine()?.data.truncate(who, &self.inode, size)
    }

    /// Copies a range to another file of this volume, or another place of this one; see
    /// [`File::copy_range_to`](crate::File::copy_range_to). This file was opened for reading, that one for writing.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.write_at(&who, b"hello, world", 0)?;
    /// let (to, _) = root.create(&who, b"to", 0o600, true)?;
    /// assert_eq!(file.copy_range(&who, 7, &to, 0, 100)?, 5);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn copy_range(
        &self,
        who: &Credentials,
        offset: u64,
        to: &Self,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.check_file()?;
        to.check_change()?;
        if to.inode.has_flag(inode_flags::APPEND) {
            return Err(Error::NotPermitted);
        }
        let engine = self.same_volume(to)?;
        let (from, target) = ((&self.inode, offset), (&to.inode, to_offset));
        engine.data.copy_range(who, from, target, len)
    }

    /// Preallocates, punches or zeroes a range of a file that was opened for writing.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::{Credentials, Fallocate};
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.fallocate(&who, Fallocate::Allocate { keep_size: false }, 0, 1 << 20)?;
    /// assert_eq!(file.metadata()?.len(), 1 << 20);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn fallocate(
        &self,
        who: &Credentials,
        how: Fallocate,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.check_change()?;
        let takes_away = !matches!(how, Fallocate::Allocate { .. });
        if takes_away && self.inode.has_flag(inode_flags::APPEND) {
            return Err(Error::NotPermitted);
        }
        self.engine()?
            .data
            .fallocate(who, &self.inode, how, offset, len)
    }

    /// Returns the offset of the next data or hole.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::{Node, Seek};
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.write_at(&who, b"data", 1 << 20)?;
    /// assert_eq!(file.seek(0, Seek::Data)?, 1 << 20);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn seek(&self, offset: u64, what: Seek) -> Result<u64> {
        self.engine()?.data.seek(&self.inode, offset, what)
    }

    /// Returns the file's extents on the device. See [`File::extents`](crate::File::extents).
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.write_at(&who, &[1; 5000], 0)?;
    /// file.fsync(false)?;
    /// assert_eq!(file.extents()?[0].offset, 0);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn extents(&self) -> Result<Vec<Extent>> {
        self.check_file()?;
        self.engine()?.data.extents(&self.inode)
    }

    /// Moves the next 128 MiB of the file's data from a byte on into fewer extents; see
    /// [`File::defragment`](crate::File::defragment). Returns where to go on, and how many blocks were moved.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let (file, _) = Node::root(&volume)?.create(&who, b"file", 0o600, true)?;
    /// file.write_at(&who, &[1; 5000], 0)?;
    /// let mut at = Some(0);
    /// while let Some(from) = at {
    ///     at = file.defragment_from(&who, from)?.0;
    /// }
    /// assert_eq!(file.fragmentation()?.after, 1);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn defragment_from(&self, who: &Credentials, from: u64) -> Result<(Option<u64>, u64)> {
        self.check_file()?;
        let engine = self.engine()?;
        let bs = u64::from(engine.store.geometry.block_size);
        let first = u32::try_from(from / bs).map_err(|_| Error::NoSuchOffset)?;
        let (next, moved) = engine.data.defragment_from(who, &self.inode, first)?;
        Ok((next.map(|block| u64::from(block) * bs), moved))
    }

    /// Returns the number of extents of the file. See [`File::fragmentation`](crate::File::fragmentation).
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let (file, _) = Node::root(&volume)?.create(&Credentials::root(), b"file", 0o600, true)?;
    /// assert_eq!(file.fragmentation()?.before, 0);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn fragmentation(&self) -> Result<Defragmented> {
        self.check_file()?;
        self.engine()?.data.fragmentation(&self.inode)
    }

    /// Notes that a handle on which the file could be written is closed. If the file was cut to nothing before, the
    /// data written since go to the device (see [`VolumeOptions::auto_da_alloc`](crate::VolumeOptions::auto_da_alloc)).
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// # let who = extant::Credentials::root();
    /// use extant::unstable::Node;
    /// let (file, _) = Node::root(&volume)?.create(&who, b"file", 0o600, true)?;
    /// file.write_at(&who, b"old", 0)?;
    /// file.truncate(&who, 0)?;
    /// file.write_at(&who, b"new", 0)?;
    /// file.finish_writing()?;
    /// # assert_eq!(volume.memory().dirty, 0);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn finish_writing(&self) -> Result<()> {
        self.engine()?.data.finish_replacing(&self.inode);
        Ok(())
    }

    /// Makes data and metadata durable; with `datasync` data, and the metadata needed to read them. For a directory:
    /// its names.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// use extant::Credentials;
    /// let who = Credentials::root();
    /// let root = Node::root(&volume)?;
    /// let (file, _) = root.create(&who, b"file", 0o600, true)?;
    /// file.write_at(&who, b"not to be lost", 0)?;
    /// file.fsync(true)?;
    /// root.fsync(false)?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn fsync(&self, datasync: bool) -> Result<()> {
        self.engine()?.data.fsync(&self.inode, datasync)
    }

    /// Returns true if both are the same inode. Two inodes that had the same number at different times are not.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// use extant::unstable::Node;
    /// let root = Node::root(&volume)?;
    /// assert!(root.is(&root.clone()));
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inode, &other.inode)
    }
}

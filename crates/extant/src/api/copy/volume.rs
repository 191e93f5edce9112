//! The volume's side of a copy.

use super::side::{Data, Meta, Side, Xattr, check_name};
use crate::api::dir::Dir;
use crate::api::file::File;
use crate::api::open_options::OpenOptions;
use crate::api::read_dir::DirEntry;
use crate::base::error::{Error, Result};
use crate::inodes::attributes::SetAttributes;
use crate::inodes::xattrs::SetXattr;
use ext4_format::FileType;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(super) struct VolumeSide {
    dir: Dir,
    top: PathBuf,
}

impl VolumeSide {
    pub(super) fn new(dir: &Dir, top: &Path) -> Self {
        Self {
            dir: dir.clone(),
            top: top.to_path_buf(),
        }
    }
}

impl Side for VolumeSide {
    fn top(&self) -> &Path {
        &self.top
    }

    fn meta(&self, path: &Path) -> Result<Meta> {
        let found = self.dir.symlink_metadata(self.at(path))?;
        Ok(Meta {
            file_type: found.file_type(),
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
            size: found.len(),
            rdev: found.rdev(),
            atime: found.atime(),
            mtime: found.mtime(),
            links: found.nlink().into(),
            id: (0, found.ino().into()),
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<(OsString, FileType)>> {
        let names = self.dir.read_dir(self.at(dir))?;
        let name = |entry: Result<DirEntry>| {
            let entry = entry?;
            check_name(entry.file_name())?;
            Ok((entry.file_name().to_owned(), entry.file_type()))
        };
        names.map(name).collect()
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        self.dir.read_link(self.at(path))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>> {
        let path = self.at(path);
        let names = self.dir.list_xattrs(&path)?.into_iter();
        let with_value = |name: OsString| {
            let value = self.dir.get_xattr(&path, &name)?;
            Ok((name, value))
        };
        names.map(with_value).collect()
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Data>> {
        let options = OpenOptions::new().read(true).no_follow(true);
        Ok(Box::new(options.open(&self.dir, self.at(path))?))
    }

    fn make_dir(&self, path: &Path) -> Result<()> {
        let made = self.dir.create_dir_with_mode(self.at(path), 0o700);
        made.map(drop)
    }

    fn create(&self, path: &Path) -> Result<Box<dyn Data>> {
        Ok(Box::new(self.dir.create_new_file(self.at(path))?))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        self.dir.symlink(target, self.at(path))
    }

    fn special(&self, path: &Path, meta: &Meta) -> Result<bool> {
        let (kind, mode) = (meta.file_type, meta.mode);
        self.dir.mknod(self.at(path), kind, mode, meta.rdev)?;
        Ok(true)
    }

    fn link(&self, old: &Path, new: &Path) -> Result<()> {
        self.dir.hard_link(self.at(old), self.at(new))
    }

    fn keep(&self, path: &Path, meta: &Meta, owners: bool, xattrs: &[Xattr]) -> Result<u64> {
        let path = self.at(path);
        let set = SetAttributes {
            mode: (meta.file_type != FileType::Symlink).then_some((meta.mode & 0o7777) as u16),
            uid: owners.then_some(meta.uid),
            gid: owners.then_some(meta.gid),
            atime: Some(meta.atime.into()),
            mtime: Some(meta.mtime.into()),
            ..Default::default()
        };
        self.dir.set_symlink_attributes(&path, &set)?;
        // Set the extended attributes after the owner, because a change of owner removes capabilities. Neither changes
        // the times set.
        for (name, value) in xattrs {
            self.dir.set_xattr(&path, name, value, SetXattr::Any)?;
        }
        Ok(0)
    }
}

impl Data for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        File::read_at(self, buf, offset)
    }

    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        match self.seek_data(offset) {
            Ok(start) if start < size => Ok(Some((start, self.seek_hole(start)?.min(size)))),
            Ok(_) | Err(Error::NoSuchOffset) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        File::write_all_at(self, data, offset)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        File::set_len(self, len)
    }
}

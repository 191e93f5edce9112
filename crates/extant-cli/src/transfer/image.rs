//! A tree in an image.

use super::{Existing, Meta, Rules, Side, Sink, Source, Xattr};
use crate::address::Address;
use crate::walk::sorted;
use anyhow::Result;
use extant::{
    Attributes, Dir, Error, File, FileType, OpenFlags, Seek, SetAttributes, SetXattr, Volume,
};
use std::path::PathBuf;

/// A tree in an image; paths are those of the image.
pub struct ImageSide {
    root: Dir,
    image: PathBuf,
}

impl ImageSide {
    pub fn new(volume: &Volume, image: impl Into<PathBuf>) -> Self {
        Self {
            root: volume.root(),
            image: image.into(),
        }
    }
}

fn meta(a: &Attributes) -> Meta {
    Meta {
        kind: a.file_type,
        mode: (a.mode & 0o7777) as u16,
        uid: a.uid,
        gid: a.gid,
        size: a.size,
        rdev: a.rdev,
        atime: a.atime,
        mtime: a.mtime,
        links: u64::from(a.links),
        id: (0, u64::from(a.ino)),
        dense: a.sectors.saturating_mul(512) >= a.size,
    }
}

fn changes(meta: &Meta, rules: &Rules) -> Option<SetAttributes> {
    let set = SetAttributes {
        mode: (rules.keep_mode && meta.kind != FileType::Symlink).then_some(meta.mode),
        uid: rules.keep_owner.then_some(meta.uid),
        gid: rules.keep_owner.then_some(meta.gid),
        atime: rules.keep_times.then_some(meta.atime),
        mtime: rules.keep_times.then_some(meta.mtime),
        flags: None,
    };
    (set != SetAttributes::default()).then_some(set)
}

impl Side for ImageSide {
    fn show(&self, path: &[u8]) -> String {
        Address {
            image: self.image.clone(),
            path: path.to_vec(),
        }
        .to_string()
    }

    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        let found = if follow {
            self.root.stat(path)
        } else {
            self.root.lstat(path)
        };
        match found {
            Ok(attributes) => Ok(Some(meta(&attributes))),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn list(&self, path: &[u8]) -> Result<Vec<(Vec<u8>, FileType)>> {
        Ok(sorted(&self.root, path)?
            .into_iter()
            .map(|e| (e.name, e.file_type))
            .collect())
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        Ok(self.root.read_link(path)?)
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        let names = self.root.list_xattrs(path)?;
        names
            .into_iter()
            .map(|name| Ok((name.clone(), self.root.get_xattr(path, &name)?)))
            .collect()
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Source>> {
        Ok(Box::new(ImageFile(self.root.open(
            path,
            OpenFlags::READ,
            0,
        )?)))
    }

    fn make_dir(&self, path: &[u8], mode: u16) -> Result<()> {
        self.root.create_dir(path, mode)?;
        Ok(())
    }

    fn make_file(&self, path: &[u8], mode: u16, existing: Existing) -> Result<Box<dyn Sink>> {
        let flags = OpenFlags::WRITE | OpenFlags::CREATE;
        let file = match existing {
            Existing::Overwrite => self.root.open(path, flags | OpenFlags::TRUNCATE, mode)?,
            Existing::Replace => match self.root.open(path, flags | OpenFlags::EXCLUSIVE, mode) {
                Err(Error::Exists) => {
                    self.root.unlink(path)?;
                    self.root.open(path, flags | OpenFlags::EXCLUSIVE, mode)?
                }
                other => other?,
            },
        };
        Ok(Box::new(ImageFile(file)))
    }

    fn make_symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        Ok(self.root.symlink(target, path)?)
    }

    fn make_special(&self, path: &[u8], meta: &Meta) -> Result<()> {
        Ok(self.root.mknod(path, meta.kind, meta.mode, meta.rdev)?)
    }

    fn make_link(&self, old: &[u8], new: &[u8]) -> Result<()> {
        Ok(self.root.link(old, new)?)
    }

    fn remove(&self, path: &[u8]) -> Result<()> {
        Ok(self.root.unlink(path)?)
    }

    fn apply(&self, path: &[u8], meta: &Meta, rules: &Rules) -> Result<()> {
        match changes(meta, rules) {
            Some(set) => Ok(self.root.lset_attributes(path, &set)?),
            None => Ok(()),
        }
    }

    fn set_xattr(&self, path: &[u8], (name, value): &Xattr) -> Result<()> {
        Ok(self.root.set_xattr(path, name, value, SetXattr::Any)?)
    }
}

struct ImageFile(File);

impl Source for ImageFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.0.read_at(offset, buf)?)
    }

    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        match self.0.seek(offset, Seek::Data) {
            Ok(start) => Ok(Some((start, self.0.seek(start, Seek::Hole)?.min(size)))),
            Err(Error::NoSuchOffset) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

impl Sink for ImageFile {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_at(offset, data)?;
        Ok(())
    }

    fn set_size(&self, size: u64) -> Result<()> {
        Ok(self.0.truncate(size)?)
    }

    fn set_xattr(&self, (name, value): &Xattr) -> Result<()> {
        Ok(self.0.set_xattr(name, value, SetXattr::Any)?)
    }

    fn apply(&self, meta: &Meta, rules: &Rules) -> Result<()> {
        match changes(meta, rules) {
            Some(set) => Ok(self.0.set_attributes(&set)?),
            None => Ok(()),
        }
    }
}

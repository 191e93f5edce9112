//! A tree in an image, through handles of its directories.

use super::{Existing, Meta, Rules, Side, Sink, Source, Xattr};
use crate::address::{Address, bytes, join, os};
use crate::image_place::ImagePlace;
use crate::walk::sorted;
use anyhow::{Result, ensure};
use ext4_format::inode::flags;
use extant::unstable::Node;
use extant::{
    Credentials, Dir, Error, File, FileType, Metadata, OpenOptions, SetAttributes, SetXattr, Volume,
};
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Longer paths are opened in steps: the volume takes up to 4096 bytes, as a kernel does.
const LONG_PATH: usize = 4000;

/// A directory in an image.
pub struct ImageSide {
    dir: Dir,
    image: PathBuf,
    /// The path, for messages.
    path: Vec<u8>,
    /// The inode that "." stands for, if it was named by its number and is not a directory.
    single: Option<Node>,
}

impl ImageSide {
    /// Makes the side of the root.
    pub fn new(volume: &Volume, image: impl Into<PathBuf>) -> Self {
        Self {
            dir: volume.root(),
            image: image.into(),
            path: Vec::new(),
            single: None,
        }
    }

    /// Makes the side at which the path of a place starts.
    pub fn at(place: &ImagePlace) -> Self {
        let single = place.node().cloned();
        Self {
            dir: place.dir.clone(),
            image: place.address.image.clone(),
            path: match place.address.number() {
                Some((ino, _)) => format!("<{ino}>").into_bytes(),
                None => Vec::new(),
            },
            single: single.filter(|node| node.file_type() != FileType::Directory),
        }
    }

    /// Returns the inode that a path stands for, if it was named by its number.
    fn single(&self, path: &[u8]) -> Option<&Node> {
        self.single.as_ref().filter(|_| path == b".")
    }

    /// Returns a directory to start a path at, and a remaining path that is short enough.
    fn place<'p>(&self, path: &'p [u8]) -> Result<(Cow<'_, Dir>, &'p [u8])> {
        let slash = path.iter().rposition(|&b| b == b'/').filter(|&at| at > 0);
        match slash.filter(|_| path.len() > LONG_PATH) {
            None => Ok((Cow::Borrowed(&self.dir), path)),
            Some(at) => Ok((Cow::Owned(step(&self.dir, &path[..at])?), &path[at + 1..])),
        }
    }
}

/// Opens a directory, in steps if its path is long.
fn step(start: &Dir, mut path: &[u8]) -> extant::Result<Dir> {
    let mut at = start.clone();
    while path.len() > LONG_PATH {
        let cut = path[..LONG_PATH].iter().rposition(|&b| b == b'/');
        let cut = cut.filter(|&cut| cut > 0).ok_or(Error::NameTooLong)?;
        at = at.open_dir(os(&path[..cut]))?;
        path = &path[cut + 1..];
    }
    at.open_dir(os(if path.is_empty() { &b"."[..] } else { path }))
}

fn meta(a: &Metadata) -> Meta {
    Meta {
        kind: a.file_type(),
        mode: (a.mode() & 0o7777) as u16,
        uid: a.uid(),
        gid: a.gid(),
        size: a.len(),
        rdev: a.rdev(),
        atime: a.atime(),
        mtime: a.mtime(),
        links: u64::from(a.nlink()),
        id: (0, u64::from(a.ino())),
        dense: a.blocks().saturating_mul(512) >= a.len(),
        flags: a.flags(),
    }
}

fn changes(meta: &Meta, rules: &Rules) -> Option<SetAttributes> {
    let set = SetAttributes {
        mode: (rules.keep_mode && meta.kind != FileType::Symlink).then_some(meta.mode),
        uid: rules.keep_owner.then_some(meta.uid),
        gid: rules.keep_owner.then_some(meta.gid),
        atime: rules.keep_times.then_some(meta.atime.into()),
        mtime: rules.keep_times.then_some(meta.mtime.into()),
        flags: None,
        ..Default::default()
    };
    (set != SetAttributes::default()).then_some(set)
}

impl Side for ImageSide {
    fn show(&self, path: &[u8]) -> String {
        Address {
            image: self.image.clone(),
            path: match path {
                b"." if self.path.is_empty() => b"/".to_vec(),
                b"." => self.path.clone(),
                path if path.starts_with(b"/") => path.to_vec(),
                _ => join(&self.path, path),
            },
        }
        .to_string()
    }

    fn missing(&self, path: &[u8]) -> Option<String> {
        crate::advice::missing(&self.dir, path, |path| self.show(path))
    }

    fn mkdir(&self) -> &'static str {
        "extant mkdir -p"
    }

    fn directory(&self, path: &[u8], _follow: bool) -> Result<Box<dyn Side>> {
        // No other process changes an open image, so no link can have appeared since the walk.
        Ok(Box::new(Self {
            dir: step(&self.dir, path)?,
            image: self.image.clone(),
            path: join(&self.path, path),
            single: None,
        }))
    }

    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        if let Some(node) = self.single(path) {
            return Ok(Some(meta(&node.metadata()?)));
        }
        let place = match self.place(path) {
            Ok(place) => place,
            Err(e) if matches!(e.downcast_ref(), Some(Error::NotFound)) => return Ok(None),
            Err(e) => return Err(e),
        };
        let (dir, path) = place;
        let found = if follow {
            dir.metadata(os(path))
        } else {
            dir.symlink_metadata(os(path))
        };
        match found {
            Ok(attributes) => Ok(Some(meta(&attributes))),
            Err(Error::NotFound) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn list(&self) -> Result<Vec<(Vec<u8>, FileType)>> {
        Ok(sorted(&self.dir, ".")?
            .into_iter()
            .map(|e| (e.file_name().as_bytes().to_vec(), e.file_type()))
            .collect())
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        if let Some(node) = self.single(path) {
            return Ok(node.read_link()?.into());
        }
        let (dir, path) = self.place(path)?;
        Ok(bytes(dir.read_link(os(path))?))
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        if let Some(node) = self.single(path) {
            let who = Credentials::root();
            let value = |name: Vec<u8>| Ok((name.clone(), node.get_xattr(&who, &name)?));
            return node.list_xattrs(&who)?.into_iter().map(value).collect();
        }
        let (dir, path) = self.place(path)?;
        let names = dir.list_xattrs(os(path))?.into_iter();
        names
            .map(|name| Ok((bytes(&name), dir.get_xattr(os(path), &name)?)))
            .collect()
    }

    fn open(&self, path: &[u8], follow: bool) -> Result<Box<dyn Source>> {
        if let Some(node) = self.single(path) {
            let file = self
                .dir
                .open_ino(node.ino(), &OpenOptions::new().read(true))?;
            return Ok(Box::new(ImageFile(file)));
        }
        let (dir, path) = self.place(path)?;
        let options = OpenOptions::new().read(true).no_follow(!follow);
        Ok(Box::new(ImageFile(options.open(&dir, os(path))?)))
    }

    fn make_dir(&self, path: &[u8], mode: u16) -> Result<()> {
        let (dir, path) = self.place(path)?;
        dir.create_dir_with_mode(os(path), mode.into())?;
        Ok(())
    }

    fn make_file(&self, path: &[u8], mode: u16, existing: Existing) -> Result<Box<dyn Sink>> {
        if let Some(node) = self.single(path) {
            ensure!(
                existing == Existing::Overwrite,
                "a new file needs a name, not a number"
            );
            let options = OpenOptions::new().write(true).truncate(true);
            let file = self.dir.open_ino(node.ino(), &options)?;
            return Ok(Box::new(ImageFile(file)));
        }
        let (dir, path) = self.place(path)?;
        let options = OpenOptions::new().write(true).mode(mode.into());
        let new = options.create_new(true);
        let file = match existing {
            Existing::Overwrite => options.create(true).truncate(true).open(&dir, os(path))?,
            Existing::Replace => match new.open(&dir, os(path)) {
                Err(Error::Exists) => {
                    dir.remove_file(os(path))?;
                    new.open(&dir, os(path))?
                }
                other => other?,
            },
        };
        Ok(Box::new(ImageFile(file)))
    }

    fn make_symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        let (dir, path) = self.place(path)?;
        Ok(dir.symlink(os(target), os(path))?)
    }

    fn make_special(&self, path: &[u8], meta: &Meta) -> Result<()> {
        let (dir, path) = self.place(path)?;
        Ok(dir.mknod(os(path), meta.kind, meta.mode.into(), meta.rdev)?)
    }

    fn make_link(&self, old: &[u8], new: &[u8]) -> Result<()> {
        let ((old_dir, old), (new_dir, new)) = (self.place(old)?, self.place(new)?);
        Ok(new_dir.hard_link_from(&old_dir, os(old), os(new))?)
    }

    fn remove(&self, path: &[u8]) -> Result<()> {
        ensure!(
            self.single(path).is_none(),
            "name the file to remove: a number is not enough"
        );
        let (dir, path) = self.place(path)?;
        Ok(dir.remove_file(os(path))?)
    }

    fn remove_dir(&self, path: &[u8]) -> Result<()> {
        let (dir, path) = self.place(path)?;
        Ok(dir.remove_dir(os(path))?)
    }

    fn apply(&self, path: &[u8], meta: &Meta, rules: &Rules) -> Result<()> {
        let Some(set) = changes(meta, rules) else {
            return Ok(());
        };
        let (dir, path) = self.place(path)?;
        Ok(dir.set_symlink_attributes(os(path), &set)?)
    }

    fn add_flags(&self, path: &[u8], added: u32) -> Result<()> {
        // Directories are not empty any more, and projects are not kept.
        let lost = flags::EXTENTS | flags::CASEFOLD | flags::PROJINHERIT;
        let (dir, path) = self.place(path)?;
        let there = dir.symlink_metadata(os(path))?;
        let added = flags::of_type(there.file_type(), added & flags::USER_MODIFIABLE & !lost);
        let set = SetAttributes {
            flags: Some(there.flags() | added),
            ..Default::default()
        };
        Ok(dir.set_symlink_attributes(os(path), &set)?)
    }

    fn set_xattr(&self, path: &[u8], (name, value): &Xattr) -> Result<()> {
        let (dir, path) = self.place(path)?;
        Ok(dir.set_xattr(os(path), os(name), value, SetXattr::Any)?)
    }
}

struct ImageFile(File);

impl Source for ImageFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.0.read_at(buf, offset)?)
    }

    fn next_data(&self, offset: u64, size: u64) -> Result<Option<(u64, u64)>> {
        if offset >= size {
            return Ok(None);
        }
        match self.0.seek_data(offset) {
            Ok(start) => Ok(Some((start, self.0.seek_hole(start)?.min(size)))),
            Err(Error::NoSuchOffset) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn xattrs(&self) -> Result<Vec<Xattr>> {
        let names = self.0.list_xattrs()?.into_iter();
        names
            .map(|name| Ok((bytes(&name), self.0.get_xattr(&name)?)))
            .collect()
    }
}

impl Sink for ImageFile {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_all_at(data, offset)?;
        Ok(())
    }

    fn set_size(&self, size: u64) -> Result<()> {
        Ok(self.0.set_len(size)?)
    }

    fn set_xattr(&self, (name, value): &Xattr) -> Result<()> {
        Ok(self.0.set_xattr(os(name), value, SetXattr::Any)?)
    }

    fn apply(&self, meta: &Meta, rules: &Rules) -> Result<()> {
        match changes(meta, rules) {
            Some(set) => Ok(self.0.set_attributes(&set)?),
            None => Ok(()),
        }
    }
}

//! A tree in a volume, through handles of its directories.

use crate::api::dir::Dir;
use crate::api::file::File;
use crate::api::node::Node;
use crate::api::open_options::OpenOptions;
use crate::base::error::Error;
use crate::inodes::attributes::{Metadata, SetAttributes};
use crate::inodes::xattrs::SetXattr;
use crate::types::credentials::Credentials;
use anyhow::{Result, ensure};
use ext4_format::FileType;
use ext4_format::inode::flags;
use extant_transfer::{Existing, Keep, Meta, Side, SidePath, Sink, Source, Xattr, join, show};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Longer paths are opened in steps: the volume takes up to 4096 bytes, as a kernel does.
const LONG_PATH: usize = 4000;

/// Messages about the paths of a volume.
pub trait PathMessages: Send + Sync {
    /// Formats a path of the volume; a relative one if the side started at an inode number.
    fn show(&self, path: &[u8]) -> String;
    /// Returns advice about a path that does not exist; `shown` formats a path from `dir`.
    fn missing(&self, dir: &Dir, path: &[u8], shown: &dyn Fn(&[u8]) -> String) -> Option<String>;
    /// Returns the command that makes a directory.
    fn mkdir(&self) -> &'static str;
}

/// A directory in a volume, as a side of a copy.
///
/// ```
/// use extant::unstable::{PathMessages, VolumeSide};
/// use extant::Dir;
/// use extant_transfer::Side;
/// use std::sync::Arc;
///
/// struct Messages;
/// impl PathMessages for Messages {
///     fn show(&self, path: &[u8]) -> String {
///         format!("disk.img:{}", path.escape_ascii())
///     }
///     fn missing(&self, _: &Dir, _: &[u8], _: &dyn Fn(&[u8]) -> String) -> Option<String> {
///         None
///     }
///     fn mkdir(&self) -> &'static str {
///         "mkdir -p"
///     }
/// }
///
/// # let volume = extant::doc_volume();
/// let side = VolumeSide::new(&volume.root())
///     .messages(Arc::new(Messages))
///     .at_inode(None, b"/".to_vec());
/// assert_eq!(side.show(b"file"), "disk.img:/file");
/// # Ok::<(), extant::Error>(())
/// ```
pub struct VolumeSide {
    dir: Dir,
    /// The path, for messages.
    path: Vec<u8>,
    messages: Option<Arc<dyn PathMessages>>,
    /// The inode that "." stands for, if it was named by its number and is not a directory.
    single: Option<Node>,
}

impl VolumeSide {
    /// Makes the side whose paths start at a directory.
    pub fn new(dir: &Dir) -> Self {
        Self {
            dir: dir.clone(),
            path: Vec::new(),
            messages: None,
            single: None,
        }
    }

    /// Sets how messages show paths.
    pub fn messages(mut self, messages: Arc<dyn PathMessages>) -> Self {
        self.messages = Some(messages);
        self
    }

    /// Makes "." the name of an inode, which messages show as `path`.
    pub fn at_inode(mut self, node: Option<Node>, path: Vec<u8>) -> Self {
        self.single = node.filter(|node| node.file_type() != FileType::Directory);
        self.path = path;
        self
    }

    /// Returns the inode that a path stands for, if it was named by its number.
    fn single(&self, path: &[u8]) -> Option<&Node> {
        self.single.as_ref().filter(|_| path == b".")
    }

    /// Returns a directory to start a path at, and a remaining path that is short enough.
    fn start<'p>(&self, path: &'p [u8]) -> Result<(Cow<'_, Dir>, &'p [u8])> {
        let slash = path.iter().rposition(|&b| b == b'/').filter(|&at| at > 0);
        match slash.filter(|_| path.len() > LONG_PATH) {
            None => Ok((Cow::Borrowed(&self.dir), path)),
            Some(at) => Ok((Cow::Owned(step(&self.dir, &path[..at])?), &path[at + 1..])),
        }
    }
}

/// Opens a directory, in steps if its path is long.
fn step(start: &Dir, mut path: &[u8]) -> crate::base::error::Result<Dir> {
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

fn os(path: &[u8]) -> &OsStr {
    OsStr::from_bytes(path)
}

fn bytes(name: OsString) -> Vec<u8> {
    name.into_vec()
}

/// Sets attributes by calls for inode attributes and for an extended attribute. The owner comes first if there are extended
/// attributes, because a change of owner removes capabilities, and permissions may deny the change of attributes.
fn keep_in_order(
    keep: &Keep<'_>,
    set: impl Fn(&SetAttributes) -> crate::base::error::Result<()>,
    set_xattr: impl Fn(&Xattr) -> crate::base::error::Result<()>,
) -> Result<()> {
    let Keep { meta, rules, .. } = keep;
    let owner = SetAttributes {
        uid: rules.keep_owner.then_some(meta.uid),
        gid: rules.keep_owner.then_some(meta.gid),
        ..Default::default()
    };
    let mut all = SetAttributes {
        mode: (rules.keep_mode && meta.kind != FileType::Symlink).then_some(meta.mode),
        atime: rules.keep_times.then_some(meta.atime.into()),
        mtime: rules.keep_times.then_some(meta.mtime.into()),
        ..Default::default()
    };
    if keep.xattrs.is_empty() {
        (all.uid, all.gid) = (owner.uid, owner.gid);
    } else if rules.keep_owner {
        set(&owner)?;
    }
    keep.xattrs.iter().try_for_each(set_xattr)?;
    if all != SetAttributes::default() {
        set(&all)?;
    }
    Ok(())
}

impl Side for VolumeSide {
    fn place(&self, path: &[u8]) -> SidePath {
        let path = match path {
            b"." if self.path.is_empty() => b"/".to_vec(),
            b"." => self.path.clone(),
            path if path.starts_with(b"/") => path.to_vec(),
            _ => join(&self.path, path),
        };
        let shown = self.messages.as_ref();
        let shown = shown.map_or_else(|| show(&path), |messages| messages.show(&path));
        SidePath::new(shown, &path)
    }

    fn missing(&self, path: &[u8]) -> Option<String> {
        let messages = self.messages.as_ref()?;
        messages.missing(&self.dir, path, &|path| self.show(path))
    }

    fn mkdir(&self) -> &'static str {
        let messages = self.messages.as_ref();
        messages.map_or("mkdir -p", |messages| messages.mkdir())
    }

    fn directory(&self, path: &[u8], _follow: bool) -> Result<Box<dyn Side>> {
        // No other process changes an open image, so no link can have appeared since the walk.
        Ok(Box::new(Self {
            dir: step(&self.dir, path)?,
            path: join(&self.path, path),
            messages: self.messages.clone(),
            single: None,
        }))
    }

    fn meta(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        if let Some(node) = self.single(path) {
            return Ok(Some(meta(&node.metadata()?)));
        }
        let place = match self.start(path) {
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
        let names = self.dir.read_dir(".")?;
        let mut names = names
            .map(|entry| {
                let entry = entry?;
                Ok((entry.file_name().as_bytes().to_vec(), entry.file_type()))
            })
            .collect::<Result<Vec<_>>>()?;
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(names)
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        if let Some(node) = self.single(path) {
            return Ok(node.read_link()?.into());
        }
        let (dir, path) = self.start(path)?;
        Ok(bytes(dir.read_link(os(path))?.into()))
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        if let Some(node) = self.single(path) {
            let who = Credentials::root();
            let value = |name: Vec<u8>| Ok((name.clone(), node.get_xattr(&who, &name)?));
            return node.list_xattrs(&who)?.into_iter().map(value).collect();
        }
        let (dir, path) = self.start(path)?;
        let names = dir.list_xattrs(os(path))?.into_iter();
        names
            .map(|name| {
                let value = dir.get_xattr(os(path), &name)?;
                Ok((bytes(name), value))
            })
            .collect()
    }

    fn open(&self, path: &[u8], follow: bool) -> Result<Box<dyn Source>> {
        if let Some(node) = self.single(path) {
            let file = self
                .dir
                .open_ino(node.ino(), &OpenOptions::new().read(true))?;
            return Ok(Box::new(VolumeFile(file)));
        }
        let (dir, path) = self.start(path)?;
        let options = OpenOptions::new().read(true).no_follow(!follow);
        Ok(Box::new(VolumeFile(options.open(&dir, os(path))?)))
    }

    fn make_dir(&self, path: &[u8], mode: u16) -> Result<()> {
        let (dir, path) = self.start(path)?;
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
            return Ok(Box::new(VolumeFile(file)));
        }
        let (dir, path) = self.start(path)?;
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
        Ok(Box::new(VolumeFile(file)))
    }

    fn make_symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        let (dir, path) = self.start(path)?;
        Ok(dir.symlink(os(target), os(path))?)
    }

    fn make_special(&self, path: &[u8], meta: &Meta) -> Result<()> {
        let (dir, path) = self.start(path)?;
        Ok(dir.mknod(os(path), meta.kind, meta.mode.into(), meta.rdev)?)
    }

    fn make_link(&self, old: &[u8], new: &[u8]) -> Result<()> {
        let ((old_dir, old), (new_dir, new)) = (self.start(old)?, self.start(new)?);
        Ok(new_dir.hard_link_from(&old_dir, os(old), os(new))?)
    }

    fn remove(&self, path: &[u8]) -> Result<()> {
        ensure!(
            self.single(path).is_none(),
            "name the file to remove: a number is not enough"
        );
        let (dir, path) = self.start(path)?;
        Ok(dir.remove_file(os(path))?)
    }

    fn remove_dir(&self, path: &[u8]) -> Result<()> {
        let (dir, path) = self.start(path)?;
        Ok(dir.remove_dir(os(path))?)
    }

    fn keep(&self, path: &[u8], keep: &mut Keep<'_>) -> Result<()> {
        let (dir, path) = self.start(path)?;
        keep_in_order(
            keep,
            |set| dir.set_symlink_attributes(os(path), set),
            |(name, value)| dir.set_xattr(os(path), os(name), value, SetXattr::Any),
        )
    }

    fn add_flags(&self, path: &[u8], added: u32) -> Result<()> {
        // Directories are not empty any more, and projects are not kept.
        let lost = flags::EXTENTS | flags::CASEFOLD | flags::PROJINHERIT;
        let (dir, path) = self.start(path)?;
        let there = dir.symlink_metadata(os(path))?;
        let added = flags::of_type(there.file_type(), added & flags::USER_MODIFIABLE & !lost);
        let set = SetAttributes {
            flags: Some(there.flags() | added),
            ..Default::default()
        };
        Ok(dir.set_symlink_attributes(os(path), &set)?)
    }
}

struct VolumeFile(File);

impl Source for VolumeFile {
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
            .map(|name| {
                let value = self.0.get_xattr(&name)?;
                Ok((bytes(name), value))
            })
            .collect()
    }
}

impl Sink for VolumeFile {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.0.write_all_at(data, offset)?;
        Ok(())
    }

    fn hole(&self) -> Option<usize> {
        usize::try_from(self.0.block_size()).ok()
    }

    fn set_size(&self, size: u64) -> Result<()> {
        Ok(self.0.set_len(size)?)
    }

    fn keep(&self, keep: &mut Keep<'_>) -> Result<()> {
        keep_in_order(
            keep,
            |set| self.0.set_attributes(set),
            |(name, value)| self.0.set_xattr(os(name), value, SetXattr::Any),
        )
    }
}

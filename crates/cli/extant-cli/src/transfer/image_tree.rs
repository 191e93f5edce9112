//! The tree of an image as the source of a new file system.

use anyhow::{Context, Result};
use ext4_format::inode::{dev_major, dev_minor};
use extant::mkfs::{ArchiveKind, ArchiveMember, ReadTree, SourceError};
use extant::{Dir, FileType, OpenOptions, Volume};
use extant_cli_core::address::walk::{self, Met, Order};
use extant_cli_core::address::{bytes, os};
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::images;
use extant_terminal::interrupt::Interrupted;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// An image that is opened read-only. Files are identified by their inode numbers.
pub struct ImageTree {
    volume: Volume,
    image: PathBuf,
}

impl ImageTree {
    pub fn open(image: &Path) -> Result<Self> {
        Ok(Self {
            volume: images::read(image)?,
            image: image.into(),
        })
    }

    /// Converts an error of the image into an error of its reader.
    fn error(&self, e: &anyhow::Error) -> SourceError {
        match e.downcast_ref::<Interrupted>() {
            Some(_) => SourceError::Interrupted,
            None => SourceError::Source {
                path: self.image.shown(),
                what: extant_terminal::output::one_line(e),
            },
        }
    }
}

/// Returns the member that a name in the image leads to.
fn member(dir: &Dir, name: &[u8], path: &[u8]) -> Result<(ArchiveMember, u32, bool)> {
    let meta = dir.symlink_metadata(os(name))?;
    let kind = match meta.file_type() {
        FileType::Regular => ArchiveKind::File {
            size: meta.len(),
            stretches: stretches(dir, name, meta.len())?,
        },
        FileType::Directory => ArchiveKind::Directory,
        FileType::Symlink => ArchiveKind::Symlink(bytes(dir.read_link(os(name))?)),
        FileType::CharDevice => {
            ArchiveKind::CharDevice(dev_major(meta.rdev()), dev_minor(meta.rdev()))
        }
        FileType::BlockDevice => {
            ArchiveKind::BlockDevice(dev_major(meta.rdev()), dev_minor(meta.rdev()))
        }
        FileType::Fifo => ArchiveKind::Fifo,
        FileType::Socket => ArchiveKind::Socket,
    };
    let mut member = ArchiveMember::new(path, kind, (meta.mode() & 0o7777) as u16);
    (member.uid, member.gid) = (meta.uid(), meta.gid());
    member.flags = meta.flags();
    member.project = meta.project();
    (member.atime, member.mtime, member.ctime) = (meta.atime(), meta.mtime(), meta.ctime());
    for attribute in dir.list_xattrs(os(name))? {
        let value = dir.get_xattr(os(name), &attribute)?;
        member.xattrs.push((bytes(&attribute), value));
    }
    Ok((member, meta.ino(), meta.nlink() > 1))
}

/// Returns the ranges of a file that are not holes, starts and lengths.
fn stretches(dir: &Dir, name: &[u8], size: u64) -> Result<Vec<(u64, u64)>> {
    let file = OpenOptions::new()
        .read(true)
        .no_follow(true)
        .open(dir, os(name))?;
    let (mut found, mut at) = (Vec::new(), 0);
    while at < size {
        let start = match file.seek_data(at) {
            Ok(start) => start,
            Err(extant::Error::NoSuchOffset) => break,
            Err(e) => return Err(e.into()),
        };
        at = file.seek_hole(start)?.min(size);
        found.push((start, at.saturating_sub(start)));
    }
    Ok(found)
}

impl ReadTree for ImageTree {
    fn members(
        &self,
        enter: &mut dyn FnMut(ArchiveMember, u32) -> Result<(), SourceError>,
    ) -> Result<(), SourceError> {
        let root = self.volume.root();
        let mut first_names: HashMap<u32, Vec<u8>> = HashMap::new();
        let top = Met {
            parent: &root,
            name: b".",
            path: b"/",
            kind: FileType::Directory,
            depth: 0,
        };
        // An error of `enter` is returned unchanged, not as an error of the image.
        let mut refused = None;
        let mut give = |member, ino| {
            enter(member, ino).map_err(|e| {
                refused = Some(e);
                anyhow::anyhow!("refused")
            })
        };
        let mut meet = |met: &Met<'_>| {
            let (mut member, ino, linked) = member(met.parent, met.name, met.path)?;
            if linked && met.kind != FileType::Directory {
                match first_names.get(&ino) {
                    Some(first) => member.kind = ArchiveKind::HardLink(first.clone()),
                    None => drop(first_names.insert(ino, met.path.to_vec())),
                }
            }
            give(member, ino)?;
            Ok(true)
        };
        let walked = meet(&top).and_then(|_| walk::walk(&root, b"/", Order::Before, &mut meet));
        match (refused, walked) {
            (Some(e), _) => Err(e),
            (None, Err(e)) => Err(self.error(&e)),
            (None, Ok(())) => Ok(()),
        }
    }

    fn read_at(&self, file: u32, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let mut read = || -> Result<()> {
            let opened = self
                .volume
                .root()
                .open_ino(file, &OpenOptions::new().read(true))?;
            let mut done = 0;
            while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
                match opened.read_at(rest, offset + done as u64)? {
                    0 => anyhow::bail!("ends early"),
                    n => done += n,
                }
            }
            Ok(())
        };
        read()
            .with_context(|| format!("<{file}>"))
            .map_err(|e| self.error(&e))
    }
}

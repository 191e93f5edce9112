//! Images of SquashFS 4.0 as a source, by the public documentation of the format. Everything in an image may be
//! wrong: all places and sizes are checked before they are used, a directory is entered once, and no more than a few
//! blocks are in memory at a time.
//!
//! | file | what |
//! |---|---|
//! | `superblock` | the superblock |
//! | `codec`, `cache` | decompressing blocks, and keeping a few |
//! | `metadata` | blocks of metadata as a sequence of bytes |
//! | `inode`, `directory`, `xattrs` | what is in them |
//! | `data` | the data of files |

mod cache;
mod codec;
mod compressor;
mod data;
#[cfg_attr(not(feature = "compression"), path = "no_decoder.rs")]
mod decoder;
mod directory;
mod inode;
mod metadata;
mod superblock;
mod xattrs;

pub(crate) use superblock::is_squashfs;

use crate::archive_member::{ArchiveKind, ArchiveMember};
use crate::error::{Result, SourceError};
use crate::read_tree::ReadTree;
use blockdev::BlockDevice;
use cache::Cache;
use codec::Codec;
use data::{FileData, MOST_BLOCKS};
use directory::Entry;
use ext4_format::inode::{dev_major, dev_minor};
use ext4_format::timestamp::Timestamp;
use inode::{Body, Inode, Listing};
use parking_lot::RwLock;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use superblock::Superblock;

/// Metadata blocks that are kept, of 8 KiB each.
const KEPT_METADATA: usize = 1024;
/// Bytes of blocks of data that are kept.
const KEPT_DATA: usize = 32 << 20;
/// Directories below each other.
const MOST_DEPTH: usize = 2048;

/// A SquashFS image of version 4.0, compressed with gzip, xz, zstd, lz4 or lzo, as a tree to be read. Extended attributes, hard
/// links, devices and holes are kept; of times it has only those of the last change, in seconds.
///
/// ```no_run
/// use extant_sources::blockdev::{Access, FileDevice};
/// use extant_sources::{SourceError, SquashTree, read_tree};
/// let device = FileDevice::open("disk.img", Access::ReadOnly).unwrap();
/// let tree = SquashTree::open("disk.img", device)?;
/// read_tree(&tree, None, |member, _| {
///     println!("{}", String::from_utf8_lossy(&member.path));
///     Ok::<(), SourceError>(())
/// })?;
/// # Ok::<(), SourceError>(())
/// ```
pub struct SquashTree {
    image: Image,
    files: RwLock<Vec<Arc<FileData>>>,
}

/// An image: its device and its parsed structures.
struct Image {
    name: String,
    device: Box<dyn BlockDevice>,
    sb: Superblock,
    codec: Codec,
    metadata: Cache<u64, metadata::Block>,
    blocks: Cache<data::Stored, Vec<u8>>,
    /// Owners and groups.
    ids: Vec<u32>,
    xattrs: Option<xattrs::Table>,
}

impl Image {
    /// Reads stored bytes, which must be inside of the image.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let end = at.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.sb.len) {
            return Err(self.error(at, "a place outside of the image"));
        }
        let read = self.device.read_at(at, buf);
        read.map_err(|e| SourceError::io(format!("reading {} at byte {at}", self.name), e))
    }

    /// Creates an error for a broken rule.
    fn error(&self, offset: u64, what: impl Into<String>) -> SourceError {
        broken(&self.name, offset, what)
    }
}

fn broken(name: &str, offset: u64, what: impl Into<String>) -> SourceError {
    SourceError::Archive {
        archive: name.into(),
        offset,
        what: what.into(),
    }
}

impl SquashTree {
    /// Opens an image; the name is for messages.
    ///
    /// # Errors
    /// [`SourceError::Archive`] for bytes that are not a valid image, with the place in it; [`SourceError::Io`].
    pub fn open(name: impl Into<String>, device: impl BlockDevice + 'static) -> Result<Self> {
        let name = name.into();
        let mut raw = [0; superblock::LEN];
        if device.len() < raw.len() as u64 {
            return Err(broken(&name, 0, "the image is cut off in its superblock"));
        }
        let read = device.read_at(0, &mut raw);
        read.map_err(|e| SourceError::io(format!("reading {name}"), e))?;
        let sb = Superblock::parse(&raw, device.len());
        let sb = sb.map_err(|(offset, what)| broken(&name, offset, what))?;
        let mut image = Image {
            name,
            device: Box::new(device),
            codec: Codec::new(sb.compressor),
            metadata: Cache::new(KEPT_METADATA),
            blocks: Cache::new(KEPT_DATA / sb.block_size as usize),
            ids: Vec::new(),
            xattrs: None,
            sb,
        };
        let ids = 0..u32::from(image.sb.ids);
        let id = |index| {
            image
                .entry(image.sb.id_table, index)
                .map(u32::from_le_bytes)
        };
        image.ids = ids.map(id).collect::<Result<_>>()?;
        if let Some(at) = image.sb.xattr_table {
            image.xattrs = Some(xattrs::Table::read(&image, at)?);
        }
        Ok(Self {
            image,
            files: RwLock::default(),
        })
    }
}

/// A directory whose names are still to be read.
struct Waiting {
    listing: Listing,
    path: Vec<u8>,
    depth: usize,
}

/// State of a walk of the tree.
#[derive(Default)]
struct Walk {
    waiting: Vec<Waiting>,
    /// Inode numbers of visited directories.
    directories: HashSet<u32>,
    /// Inodes with several names, by number: where they are, and the first name.
    linked: HashMap<u32, (u64, Vec<u8>)>,
    listings: directory::Read,
    /// Blocks of files.
    blocks: u64,
}

impl SquashTree {
    /// Returns the member of a name, and its number if it is a file.
    fn member(
        &self,
        walk: &mut Walk,
        entry: &Entry,
        path: Vec<u8>,
        depth: usize,
    ) -> Result<(ArchiveMember, u32)> {
        let image = &self.image;
        let (inode, mut at) = image.inode(entry.inode)?;
        if (inode.number, inode.kind) != (entry.number, entry.kind) {
            let what = "its directory says another number or type";
            return Err(at.error(format!("inode {}: {what}", inode.number)));
        }
        let is_directory = matches!(inode.body, Body::Directory(_));
        if inode.links > 1 && !is_directory {
            match walk.linked.get(&inode.number) {
                Some((known, _)) if *known != entry.inode => {
                    let what = format!("inode {}, which is somewhere else, too", inode.number);
                    return Err(at.error(what));
                }
                Some((_, first)) => {
                    let link = ArchiveKind::HardLink(first.clone());
                    return Ok((ArchiveMember::new(path, link, inode.mode), 0));
                }
                None => drop(
                    walk.linked
                        .insert(inode.number, (entry.inode, path.clone())),
                ),
            }
        }
        let mut file = 0;
        let Inode { mode, number, .. } = inode;
        let kind = match inode.body {
            Body::Directory(listing) => {
                if !walk.directories.insert(number) {
                    let what = "a directory in two places, or below itself";
                    return Err(at.error(format!("inode {number}: {what}")));
                }
                if depth > MOST_DEPTH {
                    let what = format!("inode {number}: more than {MOST_DEPTH} directories deep");
                    return Err(at.error(what));
                }
                let path = path.clone();
                walk.waiting.push(Waiting {
                    listing,
                    path,
                    depth,
                });
                ArchiveKind::Directory
            }
            Body::File(body) => {
                let data = image.file_data(body, number, &mut at, MOST_BLOCKS - walk.blocks)?;
                walk.blocks = (walk.blocks + data.count()).min(MOST_BLOCKS);
                let stretches = data.stretches(image.sb.block_size);
                let mut files = self.files.write();
                file = u32::try_from(files.len()).map_err(|_| at.error("more than 2^32 files"))?;
                files.push(Arc::new(data));
                let size = body.size;
                ArchiveKind::File { size, stretches }
            }
            Body::Symlink(target) => ArchiveKind::Symlink(target),
            Body::BlockDevice(dev) => ArchiveKind::BlockDevice(dev_major(dev), dev_minor(dev)),
            Body::CharDevice(dev) => ArchiveKind::CharDevice(dev_major(dev), dev_minor(dev)),
            Body::Fifo => ArchiveKind::Fifo,
            Body::Socket => ArchiveKind::Socket,
        };
        let mut member = ArchiveMember::new(path, kind, mode);
        (member.uid, member.gid) = (inode.uid, inode.gid);
        let time = Timestamp::new(inode.mtime.into(), 0);
        (member.atime, member.mtime, member.ctime) = (time, time, time);
        if let Some(set) = inode.xattrs {
            member.xattrs = image.xattrs(set)?;
        }
        Ok((member, file))
    }
}

impl ReadTree for SquashTree {
    fn members(&self, enter: &mut dyn FnMut(ArchiveMember, u32) -> Result<()>) -> Result<()> {
        let image = &self.image;
        let (root, at) = image.inode(image.sb.root)?;
        if !matches!(root.body, Body::Directory(_)) {
            return Err(at.error("the root is not a directory"));
        }
        let root = Entry {
            name: Vec::new(),
            inode: image.sb.root,
            number: root.number,
            kind: root.kind,
        };
        let walk = &mut Walk::default();
        let (member, file) = self.member(walk, &root, b"/".to_vec(), 0)?;
        enter(member, file)?;
        while let Some(dir) = walk.waiting.pop() {
            let first = walk.waiting.len();
            for entry in image.entries(dir.listing, &mut walk.listings)? {
                let path = [&dir.path[..], &entry.name].concat();
                let (member, file) = self.member(walk, &entry, path, dir.depth + 1)?;
                enter(member, file)?;
            }
            // Names below are visited in the order of the directories.
            walk.waiting[first..].reverse(); // at most one was removed
            for below in &mut walk.waiting[first..] {
                below.path.push(b'/');
            }
        }
        Ok(())
    }

    fn read_at(&self, file: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let data = self.files.read().get(file as usize).cloned();
        match data {
            Some(data) => self.image.read_file(&data, offset, buf),
            None => Err(self.image.error(0, "a file that is not there")),
        }
    }
}

//! The content of the image, in memory: flat arrays, about 200 bytes per file, no file data.
//!
//! A source builds a [`Draft`] of directories in any order; [`Draft::freeze`] turns it into a [`Tree`], whose names
//! are in the order of the new volume's directory hash. That is the order of the index and of readdir, so inodes and
//! data are laid out in it too: a program that reads a directory and then its files reads the device forwards.

use super::error::{MkfsError, Result};
use ext4_format::FileType;
use ext4_format::checksum::crc32c;
use ext4_format::fold::Comparison;
use ext4_format::hash::DirHasher;
use ext4_format::timestamp::Timestamp;
use ext4_format::xattr::XattrSet;
use extant_sources::parts::show;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;

/// Index into [`Tree::inodes`] of the root directory.
pub(super) const ROOT: u32 = 0;

pub(super) use extant_sources::parts::Segment;

/// The content of an inode.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Index into [`Tree::dirs`].
    Directory(u32),
    /// The position of the data in the source (a name of the tree, or an offset in the archive), and the ranges that
    /// are not holes (`None`: the file has no hole).
    File {
        origin: u64,
        map: Option<Box<[Segment]>>,
    },
    Symlink(Box<[u8]>),
    /// Device, FIFO, socket.
    Special,
}

/// An inode to be.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    /// Type and permissions.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Names that lead here; of a directory 2 and one for each subdirectory. Counted by `freeze`.
    pub links: u32,
    /// 0, or which set of the pool and one.
    pub xattrs: u32,
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Flags as chattr sets them, as far as the type has them.
    pub flags: u32,
    /// Project, kept on volumes with the feature `project`.
    pub project: u32,
    pub body: Body,
}

impl Inode {
    /// Creates a directory that no source described.
    pub fn directory(mode: u16, time: Timestamp, dir: u32) -> Self {
        Self {
            mode: FileType::Directory.mode_bits() | mode & 0o7777,
            uid: 0,
            gid: 0,
            rdev: 0,
            links: 0,
            xattrs: 0,
            size: 0,
            atime: time,
            mtime: time,
            ctime: time,
            flags: 0,
            project: 0,
            body: Body::Directory(dir),
        }
    }

    pub fn file_type(&self) -> FileType {
        // Sources make modes of known types only.
        FileType::from_mode(self.mode).unwrap_or(FileType::Regular)
    }
}

/// Distinct sets of extended attributes. Most files have no attributes, and most others share a few sets.
#[derive(Default)]
pub(super) struct XattrPool(Mutex<PoolInner>);

#[derive(Default)]
struct PoolInner {
    sets: Vec<XattrSet>,
    ids: HashMap<Vec<u8>, u32>,
}

impl XattrPool {
    /// Returns the number of a set: 0 for an empty one.
    pub fn intern(&self, set: XattrSet) -> u32 {
        if set.is_empty() {
            return 0;
        }
        let mut key = Vec::new();
        for (name, value) in set.iter() {
            key.extend_from_slice(name);
            key.push(0);
            key.extend_from_slice(&(value.len() as u64).to_le_bytes());
            key.extend_from_slice(value);
        }
        let mut pool = self.0.lock();
        let fresh = pool.sets.len() as u32 + 1; // fewer sets than inodes, which are 32 bits
        let id = *pool.ids.entry(key).or_insert(fresh);
        if id == fresh {
            pool.sets.push(set);
        }
        id
    }

    /// Returns the set of a number.
    pub fn get(&self, id: u32) -> Option<XattrSet> {
        let place = (id as usize).checked_sub(1)?;
        self.0.lock().sets.get(place).cloned()
    }

    pub fn into_sets(self) -> Vec<XattrSet> {
        self.0.into_inner().sets
    }
}

/// A directory of a draft.
pub(super) struct DraftDir {
    /// Its inode.
    pub inode: u32,
    /// Names and inodes; each name once.
    pub names: Vec<(Box<[u8]>, u32)>,
}

/// A tree as a source leaves it. `inodes[0]` is the root, and `dirs[0]` its names.
pub(super) struct Draft {
    pub inodes: Vec<Inode>,
    pub dirs: Vec<DraftDir>,
    pub xattrs: XattrPool,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    at: u32,
    len: u8,
    pub inode: u32,
    /// Major hash; 0 without `dir_index`.
    pub hash: u32,
}

impl Name {
    /// Returns the number of bytes of the name.
    pub fn len(&self) -> usize {
        self.len.into()
    }
}

/// A directory.
pub(super) struct Dir {
    /// Its inode.
    pub inode: u32,
    /// The directory it is in; the root is in itself.
    pub parent: u32,
    /// Its name there; meaningless for the root.
    pub name: u32,
    pub names: Range<u32>,
}

/// A finished tree.
pub(super) struct Tree {
    pub inodes: Vec<Inode>,
    pub dirs: Vec<Dir>,
    pub names: Vec<Name>,
    pub xattrs: Vec<XattrSet>,
    arena: Vec<u8>,
}

impl Draft {
    /// Creates a tree with only a root.
    pub fn empty(root_mode: u16, time: Timestamp) -> Self {
        Self {
            inodes: vec![Inode::directory(root_mode, time, 0)],
            dirs: vec![DraftDir {
                inode: ROOT,
                names: Vec::new(),
            }],
            xattrs: XattrPool::default(),
        }
    }

    /// Returns a checksum of names and attributes, which differs between two trees, without their data.
    pub fn digest(&self) -> u32 {
        let mut sum = !0;
        for inode in &self.inodes {
            let numbers = [
                u64::from(inode.mode),
                u64::from(inode.uid),
                u64::from(inode.gid),
                inode.size,
                inode.mtime.secs().cast_unsigned(),
            ];
            for number in numbers {
                sum = crc32c(sum, &number.to_le_bytes());
            }
        }
        let names = self.dirs.iter().flat_map(|dir| &dir.names);
        names.fold(sum, |sum, (name, inode)| {
            crc32c(crc32c(sum, name), &inode.to_le_bytes())
        })
    }

    /// Orders names, counts links, finds parents. Directories that fold case have the order of folded names, by `comparison`.
    pub fn freeze(self, hasher: Option<DirHasher>, comparison: Comparison) -> Result<Tree> {
        let Self {
            mut inodes,
            dirs: drafts,
            xattrs,
        } = self;
        let mut tree = Tree {
            dirs: Vec::with_capacity(drafts.len()),
            names: Vec::with_capacity(inodes.len()),
            xattrs: xattrs.into_sets(),
            inodes: Vec::new(),
            arena: Vec::new(),
        };
        for inode in &mut inodes {
            inode.links = 0;
        }
        for draft in drafts {
            let folding = inodes.get(draft.inode as usize).map_or(0, |i| i.flags);
            let hasher = hasher.map(|h| h.comparing(comparison.within(folding)));
            let mut names: Vec<_> = draft
                .names
                .into_iter()
                .map(|(name, inode)| {
                    (
                        hasher.as_ref().map_or((0, 0), |h| h.hash(&name)),
                        name,
                        inode,
                    )
                })
                .collect();
            names.sort_unstable();
            let first = tree.names.len() as u32;
            for ((hash, _), name, inode) in names {
                let at = u32::try_from(tree.arena.len()).map_err(|_| too_many_names())?;
                let len = u8::try_from(name.len())
                    .map_err(|_| MkfsError::source(show(&name), "name longer than 255 bytes"))?;
                tree.arena.extend_from_slice(&name);
                tree.names.push(Name {
                    at,
                    len,
                    inode,
                    hash,
                });
                if let Some(i) = inodes.get_mut(inode as usize) {
                    i.links += 1;
                }
            }
            let end = u32::try_from(tree.names.len()).map_err(|_| too_many_names())?;
            tree.dirs.push(Dir {
                inode: draft.inode,
                parent: 0,
                name: 0,
                names: first..end,
            });
        }
        tree.inodes = inodes;
        tree.link_directories();
        Ok(tree)
    }
}

fn too_many_names() -> MkfsError {
    MkfsError::source("source", "more than 4 GiB of names")
}

impl Tree {
    /// Sets the parents of directories and counts their links.
    fn link_directories(&mut self) {
        for d in 0..self.dirs.len() {
            let (own, names) = (self.dirs[d].inode as usize, self.dirs[d].names.clone());
            let mut subdirs = 0;
            for n in names {
                let child = self.names[n as usize].inode as usize;
                if let Body::Directory(c) = self.inodes[child].body {
                    let dir = &mut self.dirs[c as usize];
                    (dir.parent, dir.name) = (d as u32, n);
                    self.inodes[child].links += 1; // "."
                    subdirs += 1;
                }
            }
            self.inodes[own].links += subdirs;
        }
        self.inodes[ROOT as usize].links += 2;
    }

    /// Returns the bytes of a name.
    pub fn name(&self, name: &Name) -> &[u8] {
        let at = name.at as usize;
        &self.arena[at..at + usize::from(name.len)] // as written by freeze
    }

    /// Returns the names of a directory.
    pub fn names_of(&self, dir: u32) -> &[Name] {
        let range = &self.dirs[dir as usize].names;
        &self.names[range.start as usize..range.end as usize]
    }

    /// Returns the inode of a directory's name.
    pub fn find(&self, dir: u32, name: &[u8]) -> Option<u32> {
        let found = self.names_of(dir).iter().find(|n| self.name(n) == name);
        found.map(|n| n.inode)
    }

    /// Returns the path of a directory from the root: components, outermost first.
    pub fn path_of(&self, mut dir: u32) -> Vec<&[u8]> {
        let mut path = Vec::new();
        while dir != 0 {
            let d = &self.dirs[dir as usize];
            path.push(self.name(&self.names[d.name as usize]));
            dir = d.parent;
        }
        path.reverse();
        path
    }

    /// Returns a path that leads to an inode with this set of extended attributes, for messages.
    pub fn show_with_xattrs(&self, set: u32) -> String {
        let found = self.inodes.iter().position(|inode| inode.xattrs == set);
        // Every set is of an inode, and inodes are counted in 32 bits.
        self.show(found.unwrap_or(0) as u32)
    }

    /// Returns a path that leads to an inode, for messages. Slow: it searches.
    pub fn show(&self, inode: u32) -> String {
        for (d, _) in self.dirs.iter().enumerate() {
            for n in self.names_of(d as u32) {
                if n.inode == inode {
                    let mut path = self.path_of(d as u32);
                    path.push(self.name(n));
                    return show(&path.join(&b'/'));
                }
            }
        }
        "/".into()
    }
}

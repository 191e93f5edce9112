//! The visible state of a tree, through the kernel and through this engine.

use crate::common::data_ranges;
use extant::{Dir, FileType, Timestamp};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The visible state of one name, on both sides.
#[derive(Debug, PartialEq)]
pub struct Entry {
    pub ino: u64,
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u64,
    pub size: u64,
    pub sectors: u64,
    pub rdev: u32,
    pub atime: (i64, u32),
    pub mtime: (i64, u32),
    pub ctime: (i64, u32),
    pub content: Vec<u8>,
    /// Data in a file, by seeking.
    pub data: Vec<(u64, u64)>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub type Tree = BTreeMap<PathBuf, Entry>;

pub fn kernel_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0u8; 65_536];
    let n = rustix::fs::llistxattr(path, &mut names).unwrap();
    names[..n]
        .split(|&b| b == 0)
        .filter(|n| !n.is_empty())
        .map(|name| {
            let mut value = vec![0u8; 65_536];
            let n = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value).unwrap();
            (name.to_vec(), value[..n].to_vec())
        })
        .collect()
}

pub fn kernel_tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let name = path.strip_prefix(root).unwrap().to_path_buf();
        if name == Path::new("lost+found") {
            continue;
        }
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let mut data = Vec::new();
        let content = if meta.is_file() {
            data = data_ranges(&std::fs::File::open(&path).unwrap());
            std::fs::read(&path).unwrap()
        } else if meta.is_symlink() {
            std::fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else {
            Vec::new()
        };
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        let (major, minor) = (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        );
        let entry = Entry {
            ino: meta.ino(),
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            links: meta.nlink(),
            size: meta.size(),
            sectors: meta.blocks(),
            rdev: ext4_format::inode::makedev(major, minor),
            atime: (meta.atime(), meta.atime_nsec() as u32),
            mtime: (meta.mtime(), meta.mtime_nsec() as u32),
            ctime: (meta.ctime(), meta.ctime_nsec() as u32),
            content,
            data,
            xattrs: kernel_xattrs(&path),
        };
        tree.insert(name, entry);
    }
    tree
}

pub fn our_data(volume: &Dir, path: &Path, size: u64) -> Vec<(u64, u64)> {
    let file = volume.open_file(from_root(path)).unwrap();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let Ok(from) = file.seek_data(at) else {
            break;
        };
        at = file.seek_hole(from).unwrap();
        parts.push((from, at));
    }
    parts
}

/// A path of the tree, in the volume.
pub fn from_root(path: &Path) -> PathBuf {
    Path::new("/").join(path)
}

pub fn our_tree(volume: &Dir) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        if path == Path::new("lost+found") {
            continue;
        }
        let at = from_root(&path);
        let meta = volume.symlink_metadata(&at).unwrap();
        let (mut content, mut data) = (Vec::new(), Vec::new());
        match meta.file_type() {
            FileType::Regular => {
                content = volume.read(&at).unwrap();
                data = our_data(volume, &path, meta.len());
            }
            FileType::Symlink => {
                content = volume
                    .read_link(&at)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes();
            }
            FileType::Directory => {
                todo.extend(
                    volume
                        .read_dir(&at)
                        .unwrap()
                        .map(|entry| path.join(entry.unwrap().file_name())),
                );
            }
            _ => {}
        }
        let time = |t: Timestamp| (t.secs(), t.nanos());
        let entry = Entry {
            ino: meta.ino().into(),
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            links: meta.nlink().into(),
            size: meta.len(),
            sectors: meta.blocks(),
            rdev: meta.rdev(),
            atime: time(meta.atime()),
            mtime: time(meta.mtime()),
            ctime: time(meta.ctime()),
            content,
            data,
            xattrs: volume
                .list_xattrs(&at)
                .unwrap()
                .into_iter()
                .map(|n| (n.as_bytes().to_vec(), volume.get_xattr(&at, &n).unwrap()))
                .collect(),
        };
        tree.insert(path, entry);
    }
    tree
}

#[track_caller]
pub fn same(ours: &Tree, theirs: &Tree, what: &str) {
    let names = |t: &Tree| t.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(ours), names(theirs), "{what}: names");
    for (path, a) in ours {
        let b = &theirs[path];
        assert!(
            a.content == b.content,
            "{what}: {path:?}: contents of {} and {} bytes differ",
            a.content.len(),
            b.content.len()
        );
        assert_eq!(a, b, "{what}: {path:?}");
    }
}

//! Everything stat, readlink, attributes and data say of a tree, to be compared exactly.

use rustix::fs::{SeekFrom, lgetxattr, llistxattr};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub mode: u32,
    pub owner: (u32, u32),
    pub rdev: u64,
    pub links: u64,
    /// The first path that leads to the same inode.
    pub same_as: PathBuf,
    pub size: u64,
    /// atime, mtime, ctime.
    pub times: [(i64, i64); 3],
    pub target: Option<PathBuf>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The data of a regular file, and its ranges of blocks of 4 KiB that are not holes.
    pub data: Option<(Blocks, Segments)>,
}

/// Blocks of 4 KiB that are not zeros.
pub type Blocks = BTreeMap<u64, Vec<u8>>;
pub type Segments = Vec<(u64, u64)>;
pub type Snapshot = BTreeMap<PathBuf, Entry>;

pub fn snapshot(root: &Path) -> Snapshot {
    let (mut all, mut first) = (Snapshot::new(), HashMap::new());
    visit(root, Path::new(""), &mut all, &mut first);
    all
}

fn visit(root: &Path, path: &Path, all: &mut Snapshot, first: &mut HashMap<u64, PathBuf>) {
    let full = root.join(path);
    let m = fs::symlink_metadata(&full).unwrap();
    let t = m.file_type();
    let special = t.is_block_device() || t.is_char_device();
    all.insert(
        path.into(),
        Entry {
            mode: m.mode(),
            owner: (m.uid(), m.gid()),
            rdev: if special { m.rdev() } else { 0 },
            links: m.nlink(),
            same_as: first.entry(m.ino()).or_insert(path.into()).clone(),
            size: if t.is_dir() { 0 } else { m.size() },
            times: [
                (m.atime(), m.atime_nsec()),
                (m.mtime(), m.mtime_nsec()),
                (m.ctime(), m.ctime_nsec()),
            ],
            target: t.is_symlink().then(|| fs::read_link(&full).unwrap()),
            xattrs: xattrs(&full),
            data: t.is_file().then(|| {
                let segments = segments(&full, m.size());
                (blocks(&full, &segments), segments)
            }),
        },
    );
    if t.is_dir() {
        let mut names: Vec<_> = fs::read_dir(&full)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        for name in names {
            visit(root, &path.join(name), all, first);
        }
    }
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut list = vec![0; 65_536];
    let Ok(n) = llistxattr(path, &mut list[..]) else {
        return BTreeMap::new();
    };
    let names = list[..n].split(|b| *b == 0).filter(|n| !n.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 65_536];
            let n = lgetxattr(path, name, &mut value[..]).unwrap();
            (name.to_vec(), value[..n].to_vec())
        })
        .collect()
}

fn segments(path: &Path, size: u64) -> Segments {
    let file = fs::File::open(path).unwrap();
    let (mut list, mut at) = (Vec::new(), 0);
    while at < size {
        let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) else {
            break;
        };
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        list.push((start / 4096, at.div_ceil(4096)));
    }
    list
}

fn blocks(path: &Path, segments: &Segments) -> Blocks {
    let mut file = fs::File::open(path).unwrap();
    let mut blocks = Blocks::new();
    for &(start, end) in segments {
        file.seek(io::SeekFrom::Start(start * 4096)).unwrap();
        let mut data = Vec::new();
        let len = (end - start) * 4096;
        (&mut file).take(len).read_to_end(&mut data).unwrap();
        let found = (start..).zip(data.chunks(4096));
        blocks.extend(
            found
                .filter(|(_, b)| !blockdev::is_zero(b))
                .map(|(at, b)| (at, b.to_vec())),
        );
    }
    blocks
}

/// Asserts that both trees are equal except `lost+found` and the differences that `forgive` removes.
pub fn assert_equal(mut source: Snapshot, mut image: Snapshot, forgive: impl Fn(&mut Entry)) {
    image.remove(Path::new("lost+found"));
    source.remove(Path::new("lost+found"));
    if let Some(root) = image.get_mut(Path::new("")) {
        root.links -= 1;
    }
    source.values_mut().chain(image.values_mut()).for_each(|e| {
        if e.mode & 0o170_000 == 0o040_000 {
            // File systems count them differently (tmpfs, overlay).
            e.links = 0;
        }
        forgive(e);
    });
    let names = |s: &Snapshot| s.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&source), names(&image));
    for (path, ours) in &image {
        let theirs = &source[path];
        let brief = |e: &Entry| Entry {
            data: None,
            ..e.clone()
        };
        assert_eq!(brief(theirs), brief(ours), "{}", path.display());
        assert!(theirs.data == ours.data, "data of {}", path.display());
    }
}

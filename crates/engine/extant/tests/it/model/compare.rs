//! Contents, holes and the whole tree, against the reference.

use crate::common::list;
use crate::reference::{Id, Model, NodeKind};
use extant::{Error, File, FileType, Volume};
use std::collections::BTreeMap;

pub fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    let n = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(n, bytes.len(), "a read ends only at the end of the file");
    bytes
}

#[track_caller]
pub fn same_bytes(found: &[u8], expected: &[u8], what: &str) {
    if found != expected {
        let at = found.iter().zip(expected).position(|(a, b)| a != b);
        panic!(
            "{what}: lengths {} and {} expected, first difference at {at:?}",
            found.len(),
            expected.len()
        );
    }
}

/// Checks that data and holes alternate over the whole file, and that every byte that is not zero is data.
pub fn check_seek(file: &File, data: &[u8], from: u64) {
    let size = data.len() as u64;
    let mut at = from;
    while at < size {
        let next = match file.seek_data(at) {
            Ok(next) => next,
            Err(Error::NoSuchOffset) => size,
            Err(e) => panic!("seek data from {at}: {e}"),
        };
        assert!(
            next >= at && next <= size,
            "data after {at} at {next} of {size}"
        );
        let zeros = data[at as usize..next as usize].iter().all(|&b| b == 0);
        assert!(zeros, "what lies from {at} to {next} is no hole");
        if next == size {
            break;
        }
        let hole = file.seek_hole(next).expect("the end of the file is a hole");
        assert!(
            hole > next && hole <= size,
            "hole after {next} at {hole} of {size}"
        );
        at = hole;
    }
    assert!(matches!(file.seek_data(size), Err(Error::NoSuchOffset)));
    assert!(matches!(file.seek_hole(size), Err(Error::NoSuchOffset)));
}

/// Checks that the whole tree agrees: names, contents, attributes.
pub fn compare(volume: &Volume, model: &Model) {
    let mut inos: BTreeMap<Id, u32> = BTreeMap::new();
    for (path, id) in model.paths() {
        let node = &model.nodes[id];
        let at = if path.is_empty() { "/" } else { &path };
        let found = volume
            .symlink_metadata(at)
            .unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(found.file_type(), node.file_type(), "{at}: type");
        assert_eq!(
            found.mode() as u16 & 0o7777,
            node.mode,
            "{at}: mode is {:o}, not {:o}",
            found.mode() & 0o7777,
            node.mode
        );
        assert_eq!(
            (found.uid(), found.gid()),
            (node.uid, node.gid),
            "{at}: owner"
        );
        assert_eq!(found.nlink(), node.links, "{at}: links");
        assert_eq!(
            *inos.entry(id).or_insert(found.ino()),
            found.ino(),
            "{at}: hard links lead to one inode"
        );
        for (kind, time, expected) in [
            ("atime", found.atime(), node.atime),
            ("mtime", found.mtime(), node.mtime),
        ] {
            if let Some(expected) = expected {
                assert_eq!((time.secs(), time.nanos()), expected, "{at}: {kind}");
            }
        }
        match &node.kind {
            NodeKind::Dir { names, .. } => {
                let mut listed = list(volume, at).unwrap();
                listed.retain(|e| !(path.is_empty() && e.name == b"lost+found"));
                listed.sort_by(|a, b| a.name.cmp(&b.name));
                let shown: Vec<_> = listed
                    .iter()
                    .map(|e| (String::from_utf8_lossy(&e.name).into_owned(), e.file_type))
                    .collect();
                let expected: Vec<_> = names
                    .iter()
                    .map(|(n, &id)| (n.clone(), model.nodes[id].file_type()))
                    .collect();
                assert_eq!(shown, expected, "{at}: names");
                assert_eq!(
                    found.len() % u64::from(volume.geometry().block_size),
                    0,
                    "{at}: size of a directory"
                );
            }
            NodeKind::File(data) => {
                assert_eq!(found.len(), data.len() as u64, "{at}: size");
                let file = volume.open_file(at).unwrap();
                same_bytes(&read_all(&file), data, at);
                check_seek(&file, data, 0);
            }
            NodeKind::Symlink(target) => {
                let shown = volume.read_link(at).unwrap();
                assert_eq!(shown.to_str(), Some(&**target), "{at}: target");
                assert_eq!(found.len(), target.len() as u64, "{at}: size");
            }
            NodeKind::Special(file_type, rdev) => {
                let device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
                assert_eq!(
                    found.rdev(),
                    if device { *rdev } else { 0 },
                    "{at}: device number"
                );
            }
        }
        let mut listed = volume.list_xattrs(at).unwrap();
        listed.sort();
        let expected: Vec<_> = node.xattrs.keys().map(std::ffi::OsString::from).collect();
        assert_eq!(listed, expected, "{at}: attributes");
        for (name, value) in &node.xattrs {
            assert_eq!(&volume.get_xattr(at, name).unwrap(), value, "{at}: {name}");
        }
    }
    assert_eq!(
        inos.values()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        inos.len(),
        "different files have different inodes"
    );
}

//! Compares the whole tree with the reference, while no thread changes it.

use crate::common::list;
use crate::linearizable::calls::Seen;
use crate::linearizable::spec;
use crate::reference::{Id, Model, NodeKind};
use extant::{File, FileType, Volume};
use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Eq)]
pub struct Object {
    pub seen: Seen,
    mtime: (i64, u32),
    data: Option<Vec<u8>>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

/// Every path, the root's is empty.
pub type Tree = BTreeMap<String, Object>;

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    let n = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(n, bytes.len());
    bytes
}

pub fn observe(volume: &Volume) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![String::new()];
    while let Some(path) = todo.pop() {
        let at = if path.is_empty() { "/" } else { &path };
        let attributes = volume.symlink_metadata(at).unwrap();
        if attributes.file_type() == FileType::Directory {
            for entry in list(volume, at).unwrap() {
                let child = format!("{path}/{}", String::from_utf8(entry.name).unwrap());
                if child != "/lost+found" {
                    todo.push(child);
                }
            }
        }
        let data = (attributes.file_type() == FileType::Regular)
            .then(|| content(&volume.open_file(at).unwrap()));
        let names = volume.list_xattrs(at).unwrap();
        let xattrs = names.into_iter().map(|name| {
            let value = volume.get_xattr(at, &name).unwrap();
            (name.into_string().unwrap(), value)
        });
        let object = Object {
            seen: Seen::of(&attributes),
            mtime: (attributes.mtime().secs(), attributes.mtime().nanos()),
            data,
            xattrs: xattrs.collect(),
        };
        assert!(
            tree.insert(path, object).is_none(),
            "a name is listed twice"
        );
    }
    tree
}

/// Makes the reference hold this tree, with the numbers that it does not know yet.
pub fn agree(model: &mut Model, tree: &Tree) -> Result<(), String> {
    let paths = model.paths();
    let mut users: BTreeMap<u32, Id> = BTreeMap::new();
    for (path, id) in &paths {
        let Some(object) = tree.get(path) else {
            return Err(format!("{path} is missing"));
        };
        let ino = object.seen.ino;
        if *model.node(*id).ino.get_or_insert(ino) != ino {
            return Err(format!("{path} is another inode"));
        }
        if *users.entry(ino).or_insert(*id) != *id {
            return Err(format!("{path} has the inode of another file"));
        }
        let node = &model.nodes[*id];
        let expected = Object {
            seen: spec::seen(model, *id),
            mtime: node.mtime.unwrap_or(object.mtime),
            data: match &node.kind {
                NodeKind::File(data) => Some(data.clone()),
                _ => None,
            },
            xattrs: node.xattrs.clone(),
        };
        if expected != *object {
            return Err(format!("{path} is {object:?}, not {expected:?}"));
        }
    }
    match tree
        .keys()
        .find(|p| !paths.iter().any(|(path, _)| path == *p))
    {
        Some(more) => Err(format!("{more} should not be")),
        None => Ok(()),
    }
}

/// Attributes and content through open handles, of files with and without names.
pub fn through_handles(files: &[(File, Id)]) -> Vec<(Id, Seen, Vec<u8>)> {
    files
        .iter()
        .map(|(file, id)| (*id, Seen::of(&file.metadata().unwrap()), content(file)))
        .collect()
}

/// Compares the states found through handles with the reference.
pub fn agree_through_handles(model: &Model, found: &[(Id, Seen, Vec<u8>)]) -> Result<(), String> {
    for (id, seen, data) in found {
        if spec::seen(model, *id) != *seen || model.data(*id) != Some(data) {
            return Err(format!("through a handle: {seen:?}, {} bytes", data.len()));
        }
    }
    Ok(())
}

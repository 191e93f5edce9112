//! The reference: a POSIX tree in plain collections, as root sees it on Linux.
#![allow(dead_code, reason = "each test uses a part of it")]

mod attributes;
mod files;
mod names;

use extant::FileType;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The result of a call: its answer, or the errno.
pub type Answer<T> = Result<T, i32>;

pub fn err<T>(errno: Errno) -> Answer<T> {
    Err(errno.raw_os_error())
}

/// Position of an inode in the reference.
pub type Id = usize;
pub const ROOT: Id = 0;

pub type AclEntry = (u16, u16, u32);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeKind {
    Dir {
        names: BTreeMap<String, Id>,
        parent: Id,
    },
    File(Vec<u8>),
    Symlink(String),
    Special(FileType, u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub kind: NodeKind,
    /// The number of the real inode, once a call has returned it.
    pub ino: Option<u32>,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    /// Times that were set and not overtaken by a change.
    pub atime: Option<(i64, u32)>,
    pub mtime: Option<(i64, u32)>,
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

impl Node {
    /// Keeps a place free for a node that may be added.
    pub fn unused() -> Self {
        Self {
            kind: NodeKind::Special(FileType::Fifo, 0),
            ino: None,
            mode: 0,
            uid: 0,
            gid: 0,
            links: 0,
            atime: None,
            mtime: None,
            xattrs: BTreeMap::new(),
        }
    }

    pub fn file_type(&self) -> FileType {
        match &self.kind {
            NodeKind::Dir { .. } => FileType::Directory,
            NodeKind::File(_) => FileType::Regular,
            NodeKind::Symlink(_) => FileType::Symlink,
            NodeKind::Special(t, _) => *t,
        }
    }
}

/// A model that is cheap to clone, because equal parts are shared.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: Vec<Rc<Node>>,
    /// The place of the next node, if not the end.
    pub next: Option<Id>,
    /// Files with extents: without them nothing is preallocated.
    pub extents: bool,
    /// Ranges removed from files and inserted must consist of whole blocks of this size.
    pub block_size: u64,
    /// Seconds only, to 2038.
    pub short_times: bool,
}

pub const ACCESS: &str = "system.posix_acl_access";
pub const DEFAULT: &str = "system.posix_acl_default";

impl Model {
    pub fn new(extents: bool, short_times: bool) -> Self {
        let root = Node {
            kind: NodeKind::Dir {
                names: BTreeMap::new(),
                parent: ROOT,
            },
            ino: None,
            mode: 0o755,
            uid: 0,
            gid: 0,
            // lost+found exists, but is not modelled.
            links: 3,
            atime: None,
            mtime: None,
            xattrs: BTreeMap::new(),
        };
        Self {
            nodes: vec![Rc::new(root)],
            next: None,
            extents,
            block_size: 4096,
            short_times,
        }
    }

    pub fn names(&self, id: Id) -> Option<&BTreeMap<String, Id>> {
        match &self.nodes[id].kind {
            NodeKind::Dir { names, .. } => Some(names),
            _ => None,
        }
    }

    pub fn node(&mut self, id: Id) -> &mut Node {
        Rc::make_mut(&mut self.nodes[id])
    }

    fn names_mut(&mut self, id: Id) -> &mut BTreeMap<String, Id> {
        let node = self.node(id);
        node.mtime = None;
        match &mut node.kind {
            NodeKind::Dir { names, .. } => names,
            _ => unreachable!("asked only of directories"),
        }
    }

    fn is_dir(&self, id: Id) -> bool {
        self.names(id).is_some()
    }

    /// All paths of the tree, none through a symbolic link.
    pub fn paths(&self) -> Vec<(String, Id)> {
        let mut all = vec![(String::new(), ROOT)];
        let mut at = 0;
        while at < all.len() {
            let (path, id) = all[at].clone();
            if let Some(names) = self.names(id) {
                all.extend(names.iter().map(|(n, &i)| (format!("{path}/{n}"), i)));
            }
            at += 1;
        }
        all
    }

    /// Returns the same tree without nodes that no name leads to.
    pub fn compact(&self) -> Self {
        let mut order: Vec<Id> = self.paths().into_iter().map(|(_, id)| id).collect();
        // The root stays the first.
        order.sort_unstable();
        order.dedup();
        let place: BTreeMap<Id, Id> = order.iter().enumerate().map(|(n, &id)| (id, n)).collect();
        let moved = |&id: &Id| {
            let mut node = Node::clone(&self.nodes[id]);
            if let NodeKind::Dir { names, parent } = &mut node.kind {
                *parent = place[parent];
                names.values_mut().for_each(|id| *id = place[id]);
            }
            Rc::new(node)
        };
        Self {
            nodes: order.iter().map(moved).collect(),
            ..self.clone()
        }
    }

    pub fn walk(&self, path: &str, follow: bool) -> Answer<Id> {
        let mut links = 0;
        self.walk_from(ROOT, path, follow, &mut links)
    }

    fn walk_from(&self, start: Id, path: &str, follow: bool, links: &mut u32) -> Answer<Id> {
        let mut at = if path.starts_with('/') { ROOT } else { start };
        let parts: Vec<_> = path.split('/').filter(|p| !p.is_empty()).collect();
        for (i, part) in parts.iter().enumerate() {
            let NodeKind::Dir { names, parent } = &self.nodes[at].kind else {
                return err(Errno::NOTDIR);
            };
            let next = match *part {
                "." => at,
                ".." => *parent,
                _ if part.len() > 255 => return err(Errno::NAMETOOLONG),
                _ => match names.get(*part) {
                    Some(&id) => id,
                    None => return err(Errno::NOENT),
                },
            };
            at = match &self.nodes[next].kind {
                NodeKind::Symlink(target) if follow || i + 1 < parts.len() => {
                    *links += 1;
                    if *links > 40 {
                        return err(Errno::LOOP);
                    }
                    self.walk_from(at, target, true, links)?
                }
                _ => next,
            };
        }
        Ok(at)
    }

    /// Directory and last name of a path.
    fn split<'a>(&self, path: &'a str) -> Answer<(Id, &'a str)> {
        let (head, last) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.walk(&format!("/{head}"), true)?;
        if !self.is_dir(dir) {
            return err(Errno::NOTDIR);
        }
        if last.len() > 255 {
            return err(Errno::NAMETOOLONG);
        }
        Ok((dir, last))
    }

    fn lookup(&self, dir: Id, name: &str) -> Option<Id> {
        self.names(dir).and_then(|n| n.get(name)).copied()
    }

    /// Walks a single component of a path.
    pub fn lookup_at(&self, dir: Id, name: &str) -> Answer<Id> {
        match self.names(dir) {
            None => err(Errno::NOTDIR),
            Some(_) if name.len() > 255 => err(Errno::NAMETOOLONG),
            Some(names) => names.get(name).copied().ok_or(Errno::NOENT.raw_os_error()),
        }
    }
}

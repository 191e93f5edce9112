//! The reference: a POSIX tree in plain collections, as root sees it on Linux.
#![allow(dead_code, reason = "each test uses a part of it")]

use extant::{Fallocate, FileType, RenameMode, SetXattr};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The result of a call: what it answers, or the errno.
pub type Answer<T> = Result<T, i32>;

pub fn err<T>(errno: Errno) -> Answer<T> {
    Err(errno.raw_os_error())
}

/// Position of an inode in the reference.
pub type Id = usize;
pub const ROOT: Id = 0;

pub type AclEntry = (u16, u16, u32);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
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
    pub kind: Kind,
    /// The number of the real inode, once something has told it.
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
    /// Keeps a place free for a node that may come.
    pub fn unused() -> Self {
        Self {
            kind: Kind::Special(FileType::Fifo, 0),
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
            Kind::Dir { .. } => FileType::Directory,
            Kind::File(_) => FileType::Regular,
            Kind::Symlink(_) => FileType::Symlink,
            Kind::Special(t, _) => *t,
        }
    }
}

/// Cheap to clone: what is the same is shared.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: Vec<Rc<Node>>,
    /// Where the next node goes, if it must not be the end.
    pub next: Option<Id>,
    /// Files with extents: without them nothing is preallocated.
    pub extents: bool,
    /// Seconds only, to 2038.
    pub short_times: bool,
}

pub const ACCESS: &str = "system.posix_acl_access";
pub const DEFAULT: &str = "system.posix_acl_default";

pub fn encode_acl(acl: &[AclEntry]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in acl {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

pub fn decode_acl(bytes: &[u8]) -> Vec<AclEntry> {
    bytes[4..]
        .chunks_exact(8)
        .map(|c| {
            let short = |i| u16::from_le_bytes([c[i], c[i + 1]]);
            (
                short(0),
                short(2),
                u32::from_le_bytes([c[4], c[5], c[6], c[7]]),
            )
        })
        .collect()
}

const USER_OBJ: u16 = 1;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 16;
const OTHER: u16 = 32;

fn perm(acl: &[AclEntry], tag: u16) -> Option<u16> {
    acl.iter().find(|e| e.0 == tag).map(|e| e.1)
}

/// The class that the group bits of the mode stand for: the mask if there is one.
fn group_class(acl: &[AclEntry]) -> u16 {
    if perm(acl, MASK).is_some() {
        MASK
    } else {
        GROUP_OBJ
    }
}

fn acl_mode(acl: &[AclEntry]) -> u16 {
    let bits = |tag| perm(acl, tag).unwrap_or(0);
    bits(USER_OBJ) << 6 | bits(group_class(acl)) << 3 | bits(OTHER)
}

fn is_minimal(acl: &[AclEntry]) -> bool {
    acl.iter()
        .all(|e| [USER_OBJ, GROUP_OBJ, OTHER].contains(&e.0))
}

/// chmod (`and` false) or creation (`and` true) applied to an ACL.
fn apply_mode(acl: &mut [AclEntry], mode: u16, and: bool) {
    let class = group_class(acl);
    for e in acl {
        let bits = match e.0 {
            USER_OBJ => mode >> 6,
            OTHER => mode,
            tag if tag == class => mode >> 3,
            _ => continue,
        } & 7;
        e.1 = if and { e.1 & bits } else { bits };
    }
}

impl Model {
    pub fn new(extents: bool, short_times: bool) -> Self {
        let root = Node {
            kind: Kind::Dir {
                names: BTreeMap::new(),
                parent: ROOT,
            },
            ino: None,
            mode: 0o755,
            uid: 0,
            gid: 0,
            // lost+found is there, but not modelled.
            links: 3,
            atime: None,
            mtime: None,
            xattrs: BTreeMap::new(),
        };
        Self {
            nodes: vec![Rc::new(root)],
            next: None,
            extents,
            short_times,
        }
    }

    pub fn names(&self, id: Id) -> Option<&BTreeMap<String, Id>> {
        match &self.nodes[id].kind {
            Kind::Dir { names, .. } => Some(names),
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
            Kind::Dir { names, .. } => names,
            _ => unreachable!("asked only of directories"),
        }
    }

    pub fn data(&self, id: Id) -> Option<&Vec<u8>> {
        match &self.nodes[id].kind {
            Kind::File(data) => Some(data),
            _ => None,
        }
    }

    fn data_mut(&mut self, id: Id) -> Option<&mut Vec<u8>> {
        let node = self.node(id);
        node.mtime = None;
        match &mut node.kind {
            Kind::File(data) => Some(data),
            _ => None,
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

    /// The same tree without nodes that no name leads to.
    pub fn compact(&self) -> Self {
        let mut order: Vec<Id> = self.paths().into_iter().map(|(_, id)| id).collect();
        // The root stays the first.
        order.sort_unstable();
        order.dedup();
        let place: BTreeMap<Id, Id> = order.iter().enumerate().map(|(n, &id)| (id, n)).collect();
        let moved = |&id: &Id| {
            let mut node = Node::clone(&self.nodes[id]);
            if let Kind::Dir { names, parent } = &mut node.kind {
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
            let Kind::Dir { names, parent } = &self.nodes[at].kind else {
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
                Kind::Symlink(target) if follow || i + 1 < parts.len() => {
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

    fn add(&mut self, dir: Id, name: &str, kind: Kind, mode: u16) -> Id {
        let parent = &self.nodes[dir];
        let set_gid = parent.mode & 0o2000 != 0;
        let gid = if set_gid { parent.gid } else { 0 };
        let is_dir = matches!(kind, Kind::Dir { .. });
        let mut mode = mode | if set_gid && is_dir { 0o2000 } else { 0 };
        let mut xattrs = BTreeMap::new();
        if let (Some(default), false) =
            (parent.xattrs.get(DEFAULT), matches!(kind, Kind::Symlink(_)))
        {
            let mut access = decode_acl(default);
            apply_mode(&mut access, mode, true);
            mode = mode & !0o777 | acl_mode(&access);
            if is_dir {
                xattrs.insert(DEFAULT.to_string(), default.clone());
            }
            if !is_minimal(&access) {
                xattrs.insert(ACCESS.to_string(), encode_acl(&access));
            }
        }
        let links = if is_dir { 2 } else { 1 };
        let node = Rc::new(Node {
            kind,
            ino: None,
            mode,
            uid: 0,
            gid,
            links,
            atime: None,
            mtime: None,
            xattrs,
        });
        let id = self.next.take().unwrap_or(self.nodes.len());
        match self.nodes.get_mut(id) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        if is_dir {
            self.node(dir).links += 1;
        }
        self.names_mut(dir).insert(name.to_string(), id);
        id
    }

    /// One component of a walk.
    pub fn lookup_at(&self, dir: Id, name: &str) -> Answer<Id> {
        match self.names(dir) {
            None => err(Errno::NOTDIR),
            Some(_) if name.len() > 255 => err(Errno::NAMETOOLONG),
            Some(names) => names.get(name).copied().ok_or(Errno::NOENT.raw_os_error()),
        }
    }

    /// A directory that was removed takes no names.
    fn takes_names(&self, dir: Id) -> Answer<()> {
        if !self.is_dir(dir) {
            return err(Errno::NOTDIR);
        }
        if self.nodes[dir].links == 0 {
            return err(Errno::NOENT);
        }
        Ok(())
    }

    /// Makes an inode under a name that must be free.
    pub fn make(&mut self, path: &str, kind: Kind, mode: u16) -> Answer<Id> {
        let (dir, name) = self.split(path)?;
        self.make_at(dir, name, kind, mode)
    }

    pub fn make_at(&mut self, dir: Id, name: &str, kind: Kind, mode: u16) -> Answer<Id> {
        self.takes_names(dir)?;
        if self.lookup(dir, name).is_some() {
            return err(Errno::EXIST);
        }
        let kind = match kind {
            Kind::Dir { names, .. } => Kind::Dir { names, parent: dir },
            other => other,
        };
        Ok(self.add(dir, name, kind, mode))
    }

    /// open(2) of a file for writing; `create` and `exclusive` as the flags say.
    pub fn open(
        &mut self,
        path: &str,
        create: bool,
        exclusive: bool,
        cut: bool,
        mode: u16,
    ) -> Answer<Id> {
        let mut path = path.to_string();
        if create {
            for _ in 0..=40 {
                let (dir, name) = self.split(&path)?;
                if name.is_empty() {
                    // A link to the root leads here.
                    return err(Errno::ISDIR);
                }
                match self.lookup(dir, name) {
                    Some(_) if exclusive => return err(Errno::EXIST),
                    None => return Ok(self.add(dir, name, Kind::File(Vec::new()), mode)),
                    Some(id) => match &self.nodes[id].kind {
                        Kind::Symlink(target) => {
                            let base = path.rsplit_once('/').map_or("", |(head, _)| head);
                            path = if target.starts_with('/') {
                                target.clone()
                            } else {
                                format!("{base}/{target}")
                            };
                        }
                        Kind::Dir { .. } => return err(Errno::ISDIR),
                        _ => return Ok(self.cut(id, cut)),
                    },
                }
            }
            return err(Errno::LOOP);
        }
        let id = self.walk(&path, true)?;
        if self.is_dir(id) {
            return err(Errno::ISDIR);
        }
        Ok(self.cut(id, cut))
    }

    fn cut(&mut self, id: Id, cut: bool) -> Id {
        if cut && let Some(data) = self.data_mut(id) {
            data.clear();
        }
        id
    }

    pub fn write(&mut self, id: Id, at: u64, bytes: &[u8]) -> Answer<()> {
        let Some(data) = self.data_mut(id) else {
            return err(Errno::INVAL);
        };
        let (at, end) = (at as usize, at as usize + bytes.len());
        if !bytes.is_empty() {
            data.resize(data.len().max(end), 0);
            data[at..end].copy_from_slice(bytes);
        }
        Ok(())
    }

    pub fn truncate(&mut self, id: Id, size: u64) -> Answer<()> {
        match self.data_mut(id) {
            Some(data) => {
                data.resize(size as usize, 0);
                Ok(())
            }
            None => err(Errno::INVAL),
        }
    }

    pub fn fallocate(&mut self, id: Id, how: Fallocate, at: u64, len: u64) -> Answer<()> {
        let extents = self.extents;
        let Some(data) = self.data_mut(id) else {
            return err(Errno::INVAL);
        };
        if len == 0 {
            return err(Errno::INVAL);
        }
        if !extents && how != Fallocate::PunchHole {
            return err(Errno::OPNOTSUPP);
        }
        let (at, end) = (at as usize, (at + len) as usize);
        let (zero, keep) = match how {
            Fallocate::Allocate { keep_size } => (false, keep_size),
            Fallocate::PunchHole => (true, true),
            Fallocate::ZeroRange { keep_size } => (true, keep_size),
        };
        if zero && at < data.len() {
            let upto = end.min(data.len());
            data[at..upto].fill(0);
        }
        if !keep && end > data.len() {
            data.resize(end, 0);
        }
        Ok(())
    }

    pub fn link(&mut self, old: &str, new: &str) -> Answer<()> {
        let id = self.walk(old, false)?;
        let (dir, name) = self.split(new)?;
        self.link_at(id, dir, name)
    }

    pub fn link_at(&mut self, id: Id, dir: Id, name: &str) -> Answer<()> {
        self.takes_names(dir)?;
        if self.lookup(dir, name).is_some() {
            return err(Errno::EXIST);
        }
        if self.is_dir(id) {
            return err(Errno::PERM);
        }
        if self.nodes[id].links == 0 {
            return err(Errno::NOENT);
        }
        self.node(id).links += 1;
        self.names_mut(dir).insert(name.to_string(), id);
        Ok(())
    }

    pub fn unlink(&mut self, path: &str) -> Answer<()> {
        let (dir, name) = self.split(path)?;
        self.unlink_at(dir, name)
    }

    pub fn unlink_at(&mut self, dir: Id, name: &str) -> Answer<()> {
        let id = self.lookup_at(dir, name)?;
        if self.is_dir(id) {
            return err(Errno::ISDIR);
        }
        self.node(id).links -= 1;
        self.names_mut(dir).remove(name);
        Ok(())
    }

    pub fn rmdir(&mut self, path: &str) -> Answer<()> {
        let (dir, name) = self.split(path)?;
        self.rmdir_at(dir, name)
    }

    pub fn rmdir_at(&mut self, dir: Id, name: &str) -> Answer<()> {
        let id = self.lookup_at(dir, name)?;
        match self.names(id) {
            None => return err(Errno::NOTDIR),
            Some(names) if !names.is_empty() => return err(Errno::NOTEMPTY),
            Some(_) => {}
        }
        self.node(id).links = 0;
        self.node(dir).links -= 1;
        self.names_mut(dir).remove(name);
        Ok(())
    }

    /// `above` is `below` or one of the directories above it.
    fn is_above(&self, above: Id, mut below: Id) -> bool {
        loop {
            if above == below {
                return true;
            }
            match &self.nodes[below].kind {
                Kind::Dir { parent, .. } if below != ROOT => below = *parent,
                _ => return false,
            }
        }
    }

    fn reparent(&mut self, id: Id, from: Id, to: Id) {
        if let Kind::Dir { parent, .. } = &mut self.node(id).kind {
            *parent = to;
            self.node(from).links -= 1;
            self.node(to).links += 1;
        }
    }

    pub fn rename(&mut self, old: &str, new: &str, mode: RenameMode) -> Answer<()> {
        let old = self.split(old)?;
        let new = self.split(new)?;
        self.rename_at(old, new, mode)
    }

    pub fn rename_at(
        &mut self,
        (from, old_name): (Id, &str),
        (to, new_name): (Id, &str),
        mode: RenameMode,
    ) -> Answer<()> {
        let source = self.lookup_at(from, old_name)?;
        self.takes_names(to)?;
        let target = self.lookup(to, new_name);
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return err(Errno::EXIST),
            (RenameMode::Exchange, None) => return err(Errno::NOENT),
            _ => {}
        }
        if self.is_dir(source) && self.is_above(source, to) {
            return err(Errno::INVAL);
        }
        if let Some(target) = target {
            if self.is_dir(target) && self.is_above(target, from) {
                return err(if mode == RenameMode::Exchange {
                    Errno::INVAL
                } else {
                    Errno::NOTEMPTY
                });
            }
            if target == source {
                return Ok(());
            }
            if mode == RenameMode::Replace {
                match (self.is_dir(source), self.names(target)) {
                    (true, None) => return err(Errno::NOTDIR),
                    (false, Some(_)) => return err(Errno::ISDIR),
                    (true, Some(names)) if !names.is_empty() => return err(Errno::NOTEMPTY),
                    _ => {}
                }
            }
        }
        self.reparent(source, from, to);
        self.names_mut(from).remove(old_name);
        self.names_mut(to).insert(new_name.to_string(), source);
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) => {
                self.reparent(target, to, from);
                self.names_mut(from).insert(old_name.to_string(), target);
            }
            (_, Some(target)) if self.is_dir(target) => {
                self.node(target).links = 0;
                self.node(to).links -= 1;
            }
            (_, Some(target)) => self.node(target).links -= 1,
            _ => {}
        }
        Ok(())
    }

    pub fn chmod(&mut self, id: Id, mode: u16) {
        let node = self.node(id);
        node.mode = mode;
        if let Some(bytes) = node.xattrs.get_mut(ACCESS) {
            let mut acl = decode_acl(bytes);
            apply_mode(&mut acl, mode, false);
            *bytes = encode_acl(&acl);
        }
    }

    pub fn chown(&mut self, id: Id, uid: u32, gid: u32) {
        let node = self.node(id);
        (node.uid, node.gid) = (uid, gid);
        if !matches!(node.kind, Kind::Dir { .. }) {
            // By root, as all that the model does: a member of every group.
            node.mode &= if node.mode & 0o010 != 0 {
                !0o6000
            } else {
                !0o4000
            };
        }
    }

    pub fn set_times(&mut self, id: Id, atime: (i64, u32), mtime: (i64, u32)) {
        let stored = |(secs, nanos): (i64, u32)| {
            if self.short_times {
                (secs, 0)
            } else {
                (secs, nanos)
            }
        };
        let (atime, mtime) = (Some(stored(atime)), Some(stored(mtime)));
        let node = self.node(id);
        (node.atime, node.mtime) = (atime, mtime);
    }

    /// Only for files and directories may users have attributes of their own.
    fn may_have(&self, id: Id, name: &str) -> bool {
        !name.starts_with("user.")
            || matches!(self.nodes[id].kind, Kind::Dir { .. } | Kind::File(_))
    }

    pub fn set_xattr(&mut self, id: Id, name: &str, value: &[u8], how: SetXattr) -> Answer<()> {
        if !self.may_have(id, name) {
            return err(Errno::PERM);
        }
        let node = self.node(id);
        match (how, node.xattrs.contains_key(name)) {
            (SetXattr::Create, true) => return err(Errno::EXIST),
            (SetXattr::Replace, false) => return err(Errno::NODATA),
            _ => {}
        }
        node.xattrs.insert(name.to_string(), value.to_vec());
        Ok(())
    }

    pub fn remove_xattr(&mut self, id: Id, name: &str) -> Answer<()> {
        if !self.may_have(id, name) {
            return err(Errno::PERM);
        }
        match self.node(id).xattrs.remove(name) {
            Some(_) => Ok(()),
            None => err(Errno::NODATA),
        }
    }

    pub fn set_acl(&mut self, id: Id, default: bool, acl: &[AclEntry]) -> Answer<()> {
        let node = self.node(id);
        match &node.kind {
            Kind::Symlink(_) => return err(Errno::OPNOTSUPP),
            Kind::Dir { .. } => {}
            _ if default => return err(Errno::ACCESS),
            _ => {}
        }
        if default {
            node.xattrs.insert(DEFAULT.into(), encode_acl(acl));
            return Ok(());
        }
        node.mode = node.mode & !0o777 | acl_mode(acl);
        if is_minimal(acl) {
            node.xattrs.remove(ACCESS);
        } else {
            node.xattrs.insert(ACCESS.into(), encode_acl(acl));
        }
        Ok(())
    }

    /// Bytes that the attributes take at least.
    pub fn xattr_bytes(&self, id: Id) -> usize {
        self.nodes[id]
            .xattrs
            .iter()
            .map(|(n, v)| n.len() + v.len().next_multiple_of(4) + 20)
            .sum()
    }
}

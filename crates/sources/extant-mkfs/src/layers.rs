//! Members of archives, and whole trees, become one tree: later ones replace earlier ones, missing parents are
//! made, hard links find their targets. If there are several sources, each is a layer over those before, and its
//! white-outs (`.wh.NAME`, `.wh..wh..opq`) remove names of lower layers.

use super::error::{MkfsError, Result};
use super::source_attributes::AttributeRules;
use super::tree::{Body, Draft, DraftDir, Inode, ROOT, XattrPool};
use ext4_format::FileType;
use ext4_format::dir_entry;
use ext4_format::inode::{flags, makedev};
use ext4_format::timestamp::Timestamp;
use extant_sources::WhiteOut;
use extant_sources::parts::show;
use extant_sources::parts::{Member, MemberKind, RawXattrs};
use std::collections::BTreeMap;

/// The most symbolic links on the way to a member.
const MAX_LINKS: u32 = 40;

/// Flags that a new file system keeps: those that do not depend on the storage of a file. Flags of missing features
/// are removed later.
pub(super) const KEPT_FLAGS: u32 = flags::SECRM
    | flags::UNRM
    | flags::COMPR
    | flags::SYNC
    | flags::IMMUTABLE
    | flags::APPEND
    | flags::NODUMP
    | flags::NOATIME
    | flags::JOURNAL_DATA
    | flags::NOTAIL
    | flags::DIRSYNC
    | flags::TOPDIR
    | flags::PROJINHERIT
    | flags::CASEFOLD;

/// Returns the flags of a member that the new file system keeps. Encrypted names do not fold case, and are not
/// decrypted here.
const fn kept_flags(member: u32) -> u32 {
    match member & flags::ENCRYPT {
        0 => member & KEPT_FLAGS,
        _ => member & KEPT_FLAGS & !flags::CASEFOLD,
    }
}

/// A name in a directory.
#[derive(Clone, Copy)]
struct Entry {
    inode: u32,
    /// The last layer that described it.
    layer: u32,
}

struct Dir {
    inode: u32,
    parent: u32,
    names: BTreeMap<Box<[u8]>, Entry>,
}

/// A tree under construction.
pub(super) struct Layers {
    inodes: Vec<Inode>,
    dirs: Vec<Dir>,
    layer: u32,
    white_outs: bool,
    /// Attributes of directories that no member describes.
    implied: Timestamp,
    /// The last parent and its directory; forgotten when that may no longer be true.
    last: Option<(Vec<u8>, u32)>,
}

impl Layers {
    pub fn new(white_outs: bool, implied: Timestamp) -> Self {
        Self {
            inodes: vec![Inode::directory(0o755, implied, 0)],
            dirs: vec![Dir {
                inode: ROOT,
                parent: 0,
                names: BTreeMap::new(),
            }],
            layer: 0,
            white_outs,
            implied,
            last: None,
        }
    }

    /// Starts the next layer.
    pub fn next_layer(&mut self) {
        self.layer += 1;
    }

    /// Enters a member.
    pub fn enter(&mut self, member: Member, attribute_rules: &AttributeRules<'_>) -> Result<()> {
        let path = member.path.clone();
        let bad = |what: &str| MkfsError::source(show(&path), what);
        let mut parts = components(&path).ok_or_else(|| bad("a path with \"..\""))?;
        let Some(name) = parts.pop() else {
            if member.kind != MemberKind::Directory {
                return Err(bad("the root is not a directory"));
            }
            let inode = self.inode_of(member, attribute_rules)?;
            self.inodes[ROOT as usize] = Inode {
                body: Body::Directory(0),
                ..inode
            };
            return Ok(());
        };
        dir_entry::check_name(name).map_err(|e| bad(&e.to_string()))?;
        let parent = self.parent(&path, &parts)?;
        if self.white_out(parent, name) {
            return Ok(());
        }
        if let MemberKind::HardLink(target) = &member.kind {
            let inode = self.target(target).map_err(|what| bad(&what))?;
            self.put(parent, name, inode);
            return Ok(());
        }
        let inode = self.inode_of(member, attribute_rules)?;
        self.add(parent, name, inode).map(drop)
    }

    /// Enters a complete tree as a layer over the previous ones. `origin` returns the place of a file's data by its
    /// directory's number and its name there.
    pub fn enter_tree(
        &mut self,
        inodes: Vec<Inode>,
        mut dirs: Vec<DraftDir>,
        mut origin: impl FnMut(u32, &[u8]) -> Result<u64>,
    ) -> Result<()> {
        self.last = None;
        let mut inodes: Vec<Option<Inode>> = inodes.into_iter().map(Some).collect();
        // Numbers here of inodes there.
        let mut numbers: Vec<Option<u32>> = vec![None; inodes.len()];
        if let Some(root) = inodes.get_mut(ROOT as usize).and_then(Option::take) {
            self.inodes[ROOT as usize] = Inode {
                body: Body::Directory(0),
                ..root
            };
        }
        let mut stack = vec![(0u32, 0u32)];
        while let Some((there, here)) = stack.pop() {
            let names = std::mem::take(&mut dirs[there as usize].names); // a number out of the tree
            for (name, inode) in names {
                if self.white_out(here, &name) {
                    continue;
                }
                let i = inode as usize; // of the same tree
                let Some(mut inode) = inodes[i].take() else {
                    // A further name of an inode that was met before; directories have one name.
                    if let Some(known) = numbers[i] {
                        self.put(here, &name, known);
                    }
                    continue;
                };
                let below = match &mut inode.body {
                    Body::Directory(below) => Some(*below),
                    Body::File { origin: at, .. } => {
                        *at = origin(there, &name)?;
                        None
                    }
                    _ => None,
                };
                let (number, dir) = self.add(here, &name, inode)?;
                numbers[i] = Some(number);
                stack.extend(below.zip(dir));
            }
        }
        Ok(())
    }

    /// Puts something new into a directory; a directory that is there already is one with it: attributes
    /// are new, names stay. Returns its number, and of a directory the number as one.
    fn add(&mut self, parent: u32, name: &[u8], mut inode: Inode) -> Result<(u32, Option<u32>)> {
        let mut dir = None;
        if inode.file_type() == FileType::Directory {
            let old = self.dirs[parent as usize].names.get(name).copied();
            let known = old.and_then(|e| match self.inodes[e.inode as usize].body {
                Body::Directory(d) => Some((e.inode, d)),
                _ => None,
            });
            if let Some((number, d)) = known {
                inode.body = Body::Directory(d);
                self.inodes[number as usize] = inode;
                self.stamp(parent, name);
                return Ok((number, Some(d)));
            }
            let new = self.add_dir(parent);
            inode.body = Body::Directory(new);
            dir = Some(new);
        }
        let number = self.add_inode(inode)?;
        self.put(parent, name, number);
        Ok((number, dir))
    }

    fn add_inode(&mut self, inode: Inode) -> Result<u32> {
        let number = u32::try_from(self.inodes.len())
            .map_err(|_| MkfsError::Options("more than 2^32 members".into()))?;
        if let Body::Directory(d) = inode.body {
            self.dirs[d as usize].inode = number; // made by add_dir
        }
        self.inodes.push(inode);
        Ok(number)
    }

    fn add_dir(&mut self, parent: u32) -> u32 {
        self.dirs.push(Dir {
            inode: 0,
            parent,
            names: BTreeMap::new(),
        });
        self.dirs.len() as u32 - 1 // not more than inodes
    }

    /// Puts a name into a directory, and replaces an existing one.
    fn put(&mut self, dir: u32, name: &[u8], inode: u32) {
        let entry = Entry {
            inode,
            layer: self.layer,
        };
        // The replaced inode may have been on a remembered path.
        if self.dirs[dir as usize]
            .names
            .insert(name.into(), entry)
            .is_some()
        {
            self.last = None;
        }
    }

    fn stamp(&mut self, dir: u32, name: &[u8]) {
        if let Some(e) = self.dirs[dir as usize].names.get_mut(name) {
            e.layer = self.layer;
        }
    }

    /// Returns the directory that a member's parents lead to. Missing ones are made; symbolic links are followed
    /// inside the tree, as extracting would.
    fn parent(&mut self, path: &[u8], parts: &[&[u8]]) -> Result<u32> {
        let key = parts.join(&b'/');
        if let Some((last, dir)) = &self.last
            && *last == key
        {
            return Ok(*dir);
        }
        let mut links = 0;
        let dir = self
            .walk(0, parts, &mut links, true)
            .map_err(|what| MkfsError::source(show(path), what))?;
        self.last = Some((key, dir));
        Ok(dir)
    }

    /// Follows components from a directory; creates missing directories if `make` is set.
    fn walk(
        &mut self,
        mut dir: u32,
        parts: &[&[u8]],
        links: &mut u32,
        make: bool,
    ) -> Result<u32, String> {
        for &part in parts {
            if part == b".." {
                dir = self.dirs[dir as usize].parent;
                continue;
            }
            let known = self.dirs[dir as usize].names.get(part).copied();
            let Some(entry) = known else {
                if !make {
                    return Err(format!("{} does not exist", show(part)));
                }
                dir_entry::check_name(part).map_err(|e| e.to_string())?;
                let new = self.add_dir(dir);
                let inode = Inode::directory(0o755, self.implied, new);
                let number = self.add_inode(inode).map_err(|e| e.to_string())?;
                self.put(dir, part, number);
                dir = new;
                continue;
            };
            dir = match &self.inodes[entry.inode as usize].body {
                Body::Directory(d) => {
                    let d = *d;
                    if make {
                        self.stamp(dir, part);
                    }
                    d
                }
                Body::Symlink(target) => {
                    *links += 1;
                    if *links > MAX_LINKS {
                        return Err("too many symbolic links on the way".into());
                    }
                    let target = target.clone();
                    let from = if target.starts_with(b"/") { 0 } else { dir };
                    let parts: Vec<&[u8]> = target
                        .split(|b| *b == b'/')
                        .filter(|p| !p.is_empty() && *p != b".")
                        .collect();
                    self.walk(from, &parts, links, make)?
                }
                _ => return Err(format!("{} on the way is not a directory", show(part))),
            };
        }
        Ok(dir)
    }

    /// Returns the inode at a path, if it exists; the last name is not followed.
    pub(super) fn inode_at(&mut self, path: &[u8]) -> Result<Option<u32>, String> {
        let mut parts = components(path).ok_or("a path with \"..\"")?;
        let Some(name) = parts.pop() else {
            return Ok(Some(ROOT));
        };
        let Ok(dir) = self.walk(0, &parts, &mut 0, false) else {
            return Ok(None);
        };
        let entry = self.dirs[dir as usize].names.get(name);
        Ok(entry.map(|e| e.inode))
    }

    /// Returns the directory of an inode, if it is a directory.
    pub(super) fn directory_of(&self, inode: u32) -> Option<u32> {
        match self.inodes[inode as usize].body {
            Body::Directory(dir) => Some(dir),
            _ => None,
        }
    }

    pub(super) fn inode_mut(&mut self, inode: u32) -> &mut Inode {
        &mut self.inodes[inode as usize] // a number of this tree
    }

    /// Returns the inodes that a directory's names lead to.
    pub(super) fn inodes_in(&self, dir: u32) -> Vec<u32> {
        let names = self.dirs[dir as usize].names.values();
        names.map(|e| e.inode).collect()
    }

    /// Returns the time of files that no source describes.
    pub(super) fn implied(&self) -> Timestamp {
        self.implied
    }

    /// Returns the inode that a hard link's target names.
    fn target(&mut self, target: &[u8]) -> Result<u32, String> {
        let what = |e: &str| format!("hard link to {}: {e}", show(target));
        let mut parts = components(target).ok_or_else(|| what("a path with \"..\""))?;
        let name = parts.pop().ok_or_else(|| what("no name"))?;
        let dir = self.walk(0, &parts, &mut 0, false).map_err(|e| what(&e))?;
        let entry = self.dirs[dir as usize].names.get(name);
        let inode = entry.ok_or_else(|| what("it does not exist"))?.inode;
        match self.inodes[inode as usize].body {
            Body::Directory(_) => Err(what("it is a directory")),
            _ => Ok(inode),
        }
    }

    /// Takes a name, or for an opaque directory all names, of lower layers away, if the name asks for that.
    fn white_out(&mut self, parent: u32, name: &[u8]) -> bool {
        let Some(asked) = WhiteOut::of(name).filter(|_| self.white_outs) else {
            return false;
        };
        self.last = None;
        match asked {
            WhiteOut::Bookkeeping => {}
            WhiteOut::Opaque => self.prune(parent),
            WhiteOut::Name(hidden) => {
                match self.dirs[parent as usize].names.get(hidden).copied() {
                    Some(e) if e.layer < self.layer => {
                        self.dirs[parent as usize].names.remove(hidden);
                    }
                    // The directory was recreated in this layer: names below it may still belong to lower ones.
                    Some(e) => {
                        if let Body::Directory(d) = self.inodes[e.inode as usize].body {
                            self.prune(d);
                        }
                    }
                    None => {}
                }
            }
        }
        true
    }

    /// Removes all names of lower layers below a directory.
    fn prune(&mut self, dir: u32) {
        let mut stack = vec![dir];
        while let Some(d) = stack.pop() {
            let layer = self.layer;
            let names = &mut self.dirs[d as usize].names;
            names.retain(|_, e| e.layer >= layer);
            for e in names.values() {
                if let Body::Directory(sub) = self.inodes[e.inode as usize].body {
                    stack.push(sub);
                }
            }
        }
    }

    fn inode_of(&self, member: Member, attribute_rules: &AttributeRules<'_>) -> Result<Inode> {
        let (ftype, rdev, size, body) = match member.kind {
            MemberKind::File { size, origin, map } => {
                (FileType::Regular, 0, size, Body::File { origin, map })
            }
            MemberKind::Symlink(target) => {
                if target.is_empty() {
                    return Err(MkfsError::source(
                        show(&member.path),
                        "symbolic link to nothing",
                    ));
                }
                (
                    FileType::Symlink,
                    0,
                    target.len() as u64,
                    Body::Symlink(target.into()),
                )
            }
            MemberKind::CharDevice(a, b) => (FileType::CharDevice, makedev(a, b), 0, Body::Special),
            MemberKind::BlockDevice(a, b) => {
                (FileType::BlockDevice, makedev(a, b), 0, Body::Special)
            }
            MemberKind::Fifo => (FileType::Fifo, 0, 0, Body::Special),
            MemberKind::Socket => (FileType::Socket, 0, 0, Body::Special),
            MemberKind::Directory | MemberKind::HardLink(_) => {
                (FileType::Directory, 0, 0, Body::Special)
            }
        };
        let perm = if ftype == FileType::Symlink {
            0o777
        } else {
            member.mode
        };
        let mut inode = Inode {
            mode: ftype.mode_bits() | perm,
            uid: member.uid,
            gid: member.gid,
            rdev,
            links: 0,
            xattrs: 0,
            size,
            atime: member.atime,
            mtime: member.mtime,
            ctime: member.ctime,
            flags: flags::of_type(ftype, kept_flags(member.flags)),
            project: member.project,
            body,
        };
        warn(
            &member.path,
            &member.malformed,
            member.unresolved_acl,
            attribute_rules,
        );
        if let Some(kind) = member.unknown_type {
            let kind = char::from(kind).escape_default();
            attribute_rules.monitor.warn(format!(
                "{}: type {kind} is not known, taken for a file",
                show(&member.path)
            ));
        }
        let xattrs: RawXattrs = member.xattrs;
        attribute_rules.apply(&mut inode, &xattrs, &member.path)?;
        Ok(inode)
    }

    /// Returns the tree of reachable inodes, in the order of names.
    pub fn finish(self, pool: XattrPool) -> Draft {
        let Self { inodes, dirs, .. } = self;
        let mut inodes: Vec<Option<Inode>> = inodes.into_iter().map(Some).collect();
        let mut new_numbers = vec![u32::MAX; inodes.len()];
        let mut draft = Draft {
            inodes: Vec::with_capacity(inodes.len()),
            dirs: Vec::with_capacity(dirs.len()),
            xattrs: pool,
        };
        let mut dirs: Vec<_> = dirs.into_iter().map(|d| d.names).collect();
        draft.inodes.extend(inodes[ROOT as usize].take());
        new_numbers[ROOT as usize] = 0;
        draft.dirs.push(DraftDir {
            inode: 0,
            names: Vec::new(),
        });
        let mut stack = vec![(0, 0)];
        while let Some((old, new)) = stack.pop() {
            let names = std::mem::take(&mut dirs[old]);
            let mut list = Vec::with_capacity(names.len());
            for (name, entry) in names {
                let i = entry.inode as usize;
                if let Some(mut inode) = inodes[i].take() {
                    new_numbers[i] = draft.inodes.len() as u32; // not more than there were
                    if let Body::Directory(d) = &mut inode.body {
                        let here = draft.dirs.len();
                        stack.push((*d as usize, here));
                        *d = here as u32;
                        draft.dirs.push(DraftDir {
                            inode: new_numbers[i],
                            names: Vec::new(),
                        });
                    }
                    draft.inodes.push(inode);
                }
                list.push((name, new_numbers[i]));
            }
            draft.dirs[new].names = list;
        }
        draft
    }
}

/// Warns of attributes that are not kept.
fn warn(
    path: &[u8],
    malformed: &[Vec<u8>],
    unresolved_acl: bool,
    attribute_rules: &AttributeRules<'_>,
) {
    if !attribute_rules.options.xattrs {
        return;
    }
    let (path, monitor) = (show(path), attribute_rules.monitor);
    for name in malformed {
        let name = show(name);
        monitor.warn(format!("{path}: {name} is malformed and is not kept"));
    }
    if unresolved_acl {
        let text = "an ACL names users or groups without their numbers and is not kept";
        monitor.warn(format!("{path}: {text}"));
    }
}

/// Returns the parts of a path, without empty ones and dots; `None` for a path with "..".
fn components(path: &[u8]) -> Option<Vec<&[u8]>> {
    let parts = path.split(|b| *b == b'/');
    let parts = parts.filter(|p| !p.is_empty() && *p != b".");
    parts.map(|p| (p != b"..").then_some(p)).collect()
}

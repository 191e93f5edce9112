//! An empty file system in memory. It does as little work per request as a file system can, so that a measurement
//! shows only the cost of kernel and transport.

mod node;
mod pages;

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::answer::Answer;
use crate::attr::{Attr, Entry, Opened, StatFs, Time};
use crate::handler::{Handler, InitFlags, KernelOffer, Wants};
use crate::notify::Notifier;
use crate::request::{Operation, Request, SetAttr, SetTime};
use node::{Content, Directory, Named, Node, NodeState, Nodes, lock_all};
use pages::Pages;

/// Lifetime of cached data. Only the kernel makes changes, so it may cache everything.
const TTL: Duration = Duration::from_secs(1 << 20);

const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const REGULAR: u32 = 0o100_000;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

/// An empty file system in memory. Requests on different files share no lock.
///
/// It has files, directories, links and times; no extended attributes, and the kernel checks permissions if it is
/// mounted with `default_permissions`. Its contents are lost when it is unmounted.
///
/// ```
/// use fuse_server::{Answer, Handler, MemoryFs, Operation, Request};
///
/// let fs = MemoryFs::new();
/// let mut buffer = [0; 512];
/// let operation = Operation::Mkdir { name: b"dir", mode: 0o755, umask: 0 };
/// let request = Request { unique: 1, node: 1, uid: 0, gid: 0, pid: 0, operation };
/// fs.handle(&request, &mut Answer::new(&mut buffer))?;
/// # Ok::<(), fuse_server::Errno>(())
/// ```
#[derive(Debug)]
pub struct MemoryFs {
    nodes: Nodes,
}

impl Default for MemoryFs {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryFs {
    /// Returns a file system with an empty root.
    pub fn new() -> Self {
        Self {
            nodes: Nodes::new(),
        }
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
        let parent = self.nodes.get(parent)?;
        let found = parent
            .state
            .lock()
            .directory()?
            .find(name)
            .map(|named| Arc::clone(&named.node));
        let Some(node) = found else {
            return Ok(Entry::negative(TTL));
        };
        Ok(looked_up(&node))
    }

    fn make(
        &self,
        request: &Request<'_>,
        name: &[u8],
        mode: u32,
        rdev: u32,
        target: &[u8],
    ) -> Result<Entry, Errno> {
        let parent = self.nodes.get(request.node)?;
        let mut state = parent.state.lock();
        let node = self.new_node(request, mode, rdev, target, state.attr.ino);
        let named = Named {
            node: Arc::clone(&node),
            kind: (mode & TYPE) >> 12,
        };
        state.directory()?.add(name, named)?;
        if state.attr.nlink == 0 {
            return Err(Errno::NOENT);
        }
        state.attr.nlink += u32::from(mode & TYPE == DIRECTORY);
        state.changed();
        drop(state);
        let entry = looked_up(&node);
        self.nodes.add(node);
        Ok(entry)
    }

    fn new_node(
        &self,
        request: &Request<'_>,
        mode: u32,
        rdev: u32,
        target: &[u8],
        parent: u64,
    ) -> Arc<Node> {
        let now = Time::now();
        let (content, nlink, size) = match mode & TYPE {
            DIRECTORY => (Content::Directory(Directory::new(parent)), 2, 0),
            LINK => (Content::Link(target.into()), 1, target.len() as u64),
            _ => (Content::File(Pages::default()), 1, 0),
        };
        let attr = Attr {
            size,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            mode,
            nlink,
            uid: request.uid,
            gid: request.gid,
            rdev,
            blksize: 4096,
            ..Attr::default()
        };
        self.nodes.make(attr, content)
    }

    fn unlink(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let parent = self.nodes.get(parent)?;
        let mut state = parent.state.lock();
        let named = state.directory()?.find(name).ok_or(Errno::NOENT)?;
        if named.kind == DIRECTORY >> 12 {
            return Err(Errno::ISDIR);
        }
        let named = state.directory()?.remove(name).ok_or(Errno::NOENT)?;
        state.changed();
        drop(state);
        self.drop_name(&named.node, 1);
        Ok(())
    }

    /// Removes `names` names of a node; without names, and unknown to the kernel, the node is freed.
    fn drop_name(&self, node: &Arc<Node>, names: u32) {
        let mut state = node.state.lock();
        state.attr.nlink = state.attr.nlink.saturating_sub(names);
        state.attr.ctime = Time::now();
        if state.attr.nlink == 0 && state.lookups == 0 {
            drop(state);
            self.nodes.remove(node.id);
        }
    }

    fn rmdir(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        let parent = self.nodes.get(parent)?;
        let child = parent
            .state
            .lock()
            .directory()?
            .find(name)
            .ok_or(Errno::NOENT)?
            .node
            .clone();
        let mut locked = lock_all([&parent, &child]);
        let [Some(dir), Some(victim)] = &mut locked else {
            return Err(Errno::INVAL);
        };
        if !dir
            .directory()?
            .find(name)
            .is_some_and(|named| Arc::ptr_eq(&named.node, &child))
        {
            return Err(Errno::NOENT);
        }
        if !victim.directory()?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        dir.directory()?.remove(name);
        dir.attr.nlink -= 1;
        dir.changed();
        drop(locked);
        self.drop_name(&child, 2);
        Ok(())
    }

    fn rename(
        &self,
        from: u64,
        name: &[u8],
        to: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE) != 0 {
            return Err(Errno::INVAL);
        }
        let (from, to) = (self.nodes.get(from)?, self.nodes.get(to)?);
        // The kernel locks both directories, so their names do not change meanwhile.
        let find = |dir: &Node, name: &[u8]| -> Result<Option<Named>, Errno> {
            Ok(dir.state.lock().directory()?.find(name).cloned())
        };
        let moved = find(&from, name)?.ok_or(Errno::NOENT)?;
        let there = find(&to, new_name)?;
        match &there {
            Some(_) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EXIST),
            None if flags & RENAME_EXCHANGE != 0 => return Err(Errno::NOENT),
            Some(there) if Arc::ptr_eq(&there.node, &moved.node) => return Ok(()),
            Some(there) if flags & RENAME_EXCHANGE == 0 => {
                if let Content::Directory(victim) = &there.node.state.lock().content
                    && !victim.is_empty()
                {
                    return Err(Errno::NOTEMPTY);
                }
            }
            _ => {}
        }
        let is_directory = |named: &Named| named.kind == DIRECTORY >> 12;
        let directories_in = u32::from(is_directory(&moved));
        let directories_out = u32::from(there.as_ref().is_some_and(is_directory));
        let back = (flags & RENAME_EXCHANGE != 0)
            .then(|| there.clone())
            .flatten();

        let mut locked = lock_all([&from, &to]);
        let [Some(dir), other] = &mut locked else {
            return Err(Errno::INVAL);
        };
        dir.directory()?.remove(name);
        dir.attr.nlink -= directories_in;
        if let Some(back) = &back {
            dir.directory()?.add(name, back.clone())?;
            dir.attr.nlink += directories_out;
        }
        dir.changed();
        let dir = other.as_mut().unwrap_or(dir);
        dir.directory()?.remove(new_name);
        dir.directory()?.add(new_name, moved.clone())?;
        dir.attr.nlink = dir.attr.nlink + directories_in - directories_out;
        dir.changed();
        drop(locked);

        for (node, parent) in [(Some(&moved), &to), (back.as_ref(), &from)] {
            let Some(named) = node else { continue };
            let mut state = named.node.state.lock();
            state.attr.ctime = Time::now();
            if let Content::Directory(directory) = &mut state.content {
                directory.parent = parent.id;
            }
        }
        if let (Some(victim), None) = (there, back) {
            self.drop_name(&victim.node, 1 + directories_out);
        }
        Ok(())
    }

    fn link(&self, parent: u64, target: u64, name: &[u8]) -> Result<Entry, Errno> {
        let (parent, node) = (self.nodes.get(parent)?, self.nodes.get(target)?);
        let kind = {
            let mut state = node.state.lock();
            if state.attr.nlink == 0 {
                return Err(Errno::NOENT);
            }
            state.attr.nlink += 1;
            state.attr.ctime = Time::now();
            (state.attr.mode & TYPE) >> 12
        };
        let mut dir = parent.state.lock();
        let added = dir.directory().and_then(|directory| {
            directory.add(
                name,
                Named {
                    node: node.clone(),
                    kind,
                },
            )
        });
        if let Err(error) = added {
            drop(dir);
            self.drop_name(&node, 1);
            return Err(error);
        }
        dir.changed();
        drop(dir);
        Ok(looked_up(&node))
    }

    fn forget(&self, node: u64, lookups: u64) {
        let Ok(node) = self.nodes.get(node) else {
            return;
        };
        let mut state = node.state.lock();
        state.lookups = state.lookups.saturating_sub(lookups);
        if state.attr.nlink == 0 && state.lookups == 0 {
            drop(state);
            self.nodes.remove(node.id);
        }
    }

    fn list(
        &self,
        node: u64,
        offset: u64,
        size: u32,
        plus: bool,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let node = self.nodes.get(node)?;
        let mut state = node.state.lock();
        let directory = state.directory()?;
        let mut listing = answer.directory(size);
        let mut push = |ino: u64, next: u64, named: Option<&Named>, kind: u32, name: &[u8]| {
            if !plus {
                return listing.push(ino, next, kind, name);
            }
            let Some(named) = named else {
                let attr = Attr {
                    ino,
                    ..Attr::default()
                };
                return listing.push_plus(
                    &Entry {
                        attr,
                        ..Entry::default()
                    },
                    next,
                    kind,
                    name,
                );
            };
            let mut state = named.node.state.lock();
            let fits = listing.push_plus(&entry(&state), next, kind, name);
            state.lookups += u64::from(fits);
            fits
        };
        let dots = [(1, node.id, &b"."[..]), (2, directory.parent, &b".."[..])];
        for (position, ino, name) in dots {
            if offset < position && !push(ino, position, None, DIRECTORY >> 12, name) {
                return Ok(());
            }
        }
        for (position, name, named) in directory.after(offset) {
            if !push(named.node.id, position, Some(named), named.kind, name) {
                break;
            }
        }
        Ok(())
    }

    fn read(
        &self,
        node: u64,
        offset: u64,
        size: u32,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let node = self.nodes.get(node)?;
        let state = node.state.lock();
        let Content::File(pages) = &state.content else {
            return Err(Errno::INVAL);
        };
        let left = state.attr.size.saturating_sub(offset);
        let size = usize::try_from(left).map_or(size as usize, |left| left.min(size as usize));
        answer.fill(size, |room| {
            pages.read(offset, room);
            Ok(room.len())
        })
    }

    fn write(
        &self,
        node: u64,
        offset: u64,
        data: &[u8],
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let node = self.nodes.get(node)?;
        let mut state = node.state.lock();
        let state = &mut *state;
        let Content::File(pages) = &mut state.content else {
            return Err(Errno::INVAL);
        };
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        pages.write(offset, data);
        state.attr.blocks = pages.blocks();
        state.attr.size = state.attr.size.max(end);
        state.changed();
        answer.written(data.len() as u32);
        Ok(())
    }
}

/// Returns an entry, and counts a lookup of the node by the kernel.
fn looked_up(node: &Node) -> Entry {
    let mut state = node.state.lock();
    state.lookups += 1;
    entry(&state)
}

fn entry(state: &NodeState) -> Entry {
    Entry {
        node: state.attr.ino,
        generation: 0,
        attr: state.attr,
        entry_ttl: TTL,
        attr_ttl: TTL,
    }
}

fn set_attr(state: &mut NodeState, set: &SetAttr) -> Result<(), Errno> {
    let now = Time::now();
    let time = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::At(time) => time,
    };
    if let Some(size) = set.size {
        let Content::File(pages) = &mut state.content else {
            return Err(Errno::INVAL);
        };
        pages.cut(size);
        state.attr.blocks = pages.blocks();
        state.attr.size = size;
        state.attr.mtime = now;
    }
    let attr = &mut state.attr;
    attr.mode = set
        .mode
        .map_or(attr.mode, |mode| attr.mode & TYPE | mode & !TYPE);
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    attr.atime = set.atime.map_or(attr.atime, time);
    attr.mtime = set.mtime.map_or(attr.mtime, time);
    attr.ctime = set.ctime.unwrap_or(now);
    Ok(())
}

/// The reported space, which is always enough.
const SPACE: StatFs = StatFs {
    blocks: 1 << 30,
    free: 1 << 30,
    available: 1 << 30,
    files: 1 << 30,
    free_files: 1 << 30,
    block_size: 4096,
    fragment_size: 4096,
    name_length: 255,
};

impl Handler for MemoryFs {
    fn init(&self, _: &KernelOffer, _: Notifier) -> Wants {
        let flags = InitFlags::ASYNC_READ
            | InitFlags::PARALLEL_DIROPS
            | InitFlags::DO_READDIRPLUS
            | InitFlags::READDIRPLUS_AUTO
            | InitFlags::WRITEBACK_CACHE
            | InitFlags::NO_OPEN_SUPPORT
            | InitFlags::NO_OPENDIR_SUPPORT
            | InitFlags::CACHE_SYMLINKS
            | InitFlags::EXPLICIT_INVAL_DATA;
        Wants {
            flags,
            ..Wants::default()
        }
    }

    fn handle(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let node = request.node;
        match request.operation {
            Operation::Lookup { name } => answer.entry(&self.lookup(node, name)?),
            Operation::Forget { lookups } => self.forget(node, lookups),
            Operation::BatchForget(forgets) => {
                forgets.for_each(|(node, lookups)| self.forget(node, lookups))
            }
            Operation::GetAttr { .. } => answer.attr(&self.nodes.get(node)?.state.lock().attr, TTL),
            Operation::Statx { .. } => {
                answer.statx(&self.nodes.get(node)?.state.lock().attr, TTL, 0, 0)
            }
            Operation::SetAttr(set) => {
                let node = self.nodes.get(node)?;
                let mut state = node.state.lock();
                set_attr(&mut state, &set)?;
                answer.attr(&state.attr, TTL);
            }
            Operation::ReadLink => match &self.nodes.get(node)?.state.lock().content {
                Content::Link(target) => answer.bytes(target),
                _ => return Err(Errno::INVAL),
            },
            Operation::Symlink { name, target } => {
                answer.entry(&self.make(request, name, LINK | 0o777, 0, target)?);
            }
            Operation::Mknod {
                name, mode, rdev, ..
            } => answer.entry(&self.make(request, name, mode, rdev, &[])?),
            Operation::Mkdir { name, mode, .. } => {
                answer.entry(&self.make(request, name, mode & !TYPE | DIRECTORY, 0, &[])?);
            }
            Operation::Create { name, mode, .. } => {
                let entry = self.make(request, name, mode & !TYPE | REGULAR, 0, &[])?;
                answer.created(&entry, Opened::default());
            }
            Operation::Tmpfile { mode, .. } => {
                let made = self.new_node(request, mode & !TYPE | REGULAR, 0, &[], node);
                made.state.lock().attr.nlink = 0;
                let entry = looked_up(&made);
                self.nodes.add(made);
                answer.created(&entry, Opened::default());
            }
            Operation::Unlink { name } => self.unlink(node, name)?,
            Operation::Rmdir { name } => self.rmdir(node, name)?,
            Operation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                self.rename(node, name, new_parent, new_name, flags)?;
            }
            Operation::Link { target, name } => answer.entry(&self.link(node, target, name)?),
            Operation::Read { offset, size, .. } => self.read(node, offset, size, answer)?,
            Operation::Write { offset, data, .. } => self.write(node, offset, data, answer)?,
            Operation::ReadDir { offset, size, .. } => {
                self.list(node, offset, size, false, answer)?
            }
            Operation::ReadDirPlus { offset, size, .. } => {
                self.list(node, offset, size, true, answer)?
            }
            Operation::Fsync { .. }
            | Operation::FsyncDir { .. }
            | Operation::SyncFs
            | Operation::Release { .. }
            | Operation::ReleaseDir { .. } => {}
            Operation::StatFs => answer.statfs(&SPACE),
            // Includes Open and OpenDir: the kernel opens without requests from then on.
            _ => return Err(Errno::NOSYS),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

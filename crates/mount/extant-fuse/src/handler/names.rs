//! Lookup, creation, renaming and removal of names.

use super::{BRIEFLY, Filesystem};
use crate::nodes::{HeldNode, ino_of};
use extant::unstable::{MakeNode, Node, OpenFlags};
use extant::{Credentials, FileType, RenameMode};
use fuse_server::{Answer, Entry, Errno, Opened, OpenedFlags};
use rustix::fs::{OFlags, RenameFlags};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Returns the bits of a mode that are permissions.
fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

pub(super) fn open_flags(flags: u32) -> OpenFlags {
    let flags = OFlags::from_bits_retain(flags);
    let mut open = match flags & OFlags::RWMODE {
        OFlags::RDONLY => OpenFlags::READ,
        OFlags::WRONLY => OpenFlags::WRITE,
        // Mode 3 allows neither, but Linux checks it like both.
        _ => OpenFlags::READ | OpenFlags::WRITE,
    };
    if flags.contains(OFlags::APPEND) {
        open |= OpenFlags::APPEND;
    }
    if flags.contains(OFlags::TRUNC) {
        open |= OpenFlags::TRUNCATE;
    }
    open
}

/// Returns the type of the file that mknod makes, and its device number if it has one.
fn special(mode: u32, rdev: u32) -> Result<MakeNode<'static>, Errno> {
    Ok(match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::RegularFile => MakeNode::File,
        rustix::fs::FileType::CharacterDevice => MakeNode::Special(FileType::CharDevice, rdev),
        rustix::fs::FileType::BlockDevice => MakeNode::Special(FileType::BlockDevice, rdev),
        rustix::fs::FileType::Fifo => MakeNode::Special(FileType::Fifo, 0),
        rustix::fs::FileType::Socket => MakeNode::Special(FileType::Socket, 0),
        _ => return Err(Errno::INVAL),
    })
}

/// Handle of a file opened only for reading. A handle contains no other information beyond the node number.
pub(super) const READS: u64 = 0;
/// Handle of a file opened for writing.
pub(super) const WRITES: u64 = 1;

/// Returns the kernel's rights over an open file: it keeps cached pages, because only the kernel changes the file, and
/// direct writes need not wait for each other.
fn opened(flags: u32) -> Opened {
    let writes = open_flags(flags).contains(OpenFlags::WRITE);
    Opened {
        handle: if writes { WRITES } else { READS },
        flags: OpenedFlags::KEEP_CACHE | OpenedFlags::PARALLEL_DIRECT_WRITES,
    }
}

impl Filesystem {
    /// Answers with an inode for a name in `dir`, and counts one more lookup by the kernel.
    fn tell(&self, dir: &Node, node: Node, answer: &mut Answer<'_>) -> Result<(), Errno> {
        let mut entry = self.entry(dir, &node)?;
        let held = self.shared.nodes.tell(node);
        if held.writers.load(Relaxed) > 0 {
            entry.attr_ttl = Duration::ZERO;
        }
        answer.entry(&entry);
        Ok(())
    }

    /// Returns the inode in which a name is looked up. For a program that opens a file by its number (NFS,
    /// open_by_handle_at) the kernel asks for "." and ".." of inodes that it does not know, or has forgotten.
    pub(super) fn known(&self, node: u64, name: &[u8]) -> Result<Arc<HeldNode>, Errno> {
        match self.shared.nodes.get(node) {
            Err(Errno::STALE) if matches!(name, b"." | b"..") => {
                let ino = ino_of(node).ok_or(Errno::STALE)?;
                // The error is ESTALE if the file was removed. The kernel compares the generation of the answer.
                self.tried(Node::of_number(&self.shared.volume, ino))
                    .map(HeldNode::new)
            }
            known => known,
        }
    }

    pub(super) fn lookup(
        &self,
        dir: &HeldNode,
        who: &Credentials,
        name: &[u8],
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        if name == b"." {
            // An inode of any type, because a program with a file handle needs no name. The kernel asks for inodes
            // that it does not hold, so a removed inode is about to be forgotten.
            if self.tried(dir.node.metadata())?.nlink() == 0 {
                return Err(Errno::STALE);
            }
            return self.tell(&dir.node, dir.node.clone(), answer);
        }
        match dir.node.lookup(who, name) {
            Ok(node) => self.tell(&dir.node, node, answer),
            // The kernel may also cache the absence of the name.
            Err(extant::Error::NotFound) => {
                answer.entry(&Entry::negative(Self::name_lifetime(&dir.node)));
                Ok(())
            }
            Err(e) => self.tried(Err(e)),
        }
    }

    pub(super) fn make(
        &self,
        dir: &HeldNode,
        who: &Credentials,
        (name, what, mode): (&[u8], MakeNode<'_>, u32),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let node = self.tried(dir.node.make(who, name, what, permissions(mode)))?;
        self.tell(&dir.node, node, answer)
    }

    pub(super) fn mknod(
        &self,
        dir: &HeldNode,
        who: &Credentials,
        (name, mode, rdev): (&[u8], u32, u32),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        self.make(dir, who, (name, special(mode, rdev)?, mode), answer)
    }

    /// Answers with an open file: counts a lookup, and a writer if the file is open for writing.
    fn tell_open(
        &self,
        dir: &Node,
        node: Node,
        flags: u32,
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let mut entry = self.entry(dir, &node)?;
        let held = self.shared.nodes.tell(node);
        if open_flags(flags).contains(OpenFlags::WRITE) {
            held.writers.fetch_add(1, Relaxed);
            held.told.store(0, Relaxed);
            entry.attr_ttl = BRIEFLY;
        }
        answer.created(&entry, opened(flags));
        Ok(())
    }

    pub(super) fn create(
        &self,
        dir: &HeldNode,
        who: &Credentials,
        (name, mode, flags, kill_suidgid): (&[u8], u32, u32, bool),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let exclusive = flags & OFlags::EXCL.bits() != 0;
        let made = dir.node.create(who, name, permissions(mode), exclusive);
        let (node, made) = self.tried(made)?;
        if !made {
            self.prepare_open(&node, who, flags, kill_suidgid)?;
        }
        self.tell_open(&dir.node, node, flags, answer)
    }

    pub(super) fn tmpfile(
        &self,
        dir: &HeldNode,
        who: &Credentials,
        (mode, flags): (u32, u32),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let node = self.tried(dir.node.make_unnamed(who, permissions(mode)))?;
        self.tell_open(&dir.node, node, flags, answer)
    }

    /// Checks that a file may be opened with these flags, and truncates it if requested.
    fn prepare_open(
        &self,
        node: &Node,
        who: &Credentials,
        flags: u32,
        kill_suidgid: bool,
    ) -> Result<(), Errno> {
        let flags = open_flags(flags);
        self.tried(node.check_open(who, flags))?;
        if flags.contains(OpenFlags::TRUNCATE) {
            if kill_suidgid {
                self.strip_privileges(node, who)?;
            }
            self.tried(node.truncate(&self.changing_data(who), 0))?;
        }
        Ok(())
    }

    pub(super) fn open(
        &self,
        (number, held): (u64, &HeldNode),
        who: &Credentials,
        (flags, kill_suidgid): (u32, bool),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        if self.opens_unasked && flags & (OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC).bits() == 0
        {
            // The kernel needs no handle to read a directory that only the kernel changes, and does not send the
            // request again.
            return Err(Errno::NOSYS);
        }
        self.prepare_open(&held.node, who, flags, kill_suidgid)?;
        if open_flags(flags).contains(OpenFlags::WRITE) {
            held.writers.fetch_add(1, Relaxed);
            held.told.store(0, Relaxed);
            if self.is_short_of_space() {
                // Data that do not fit are reported at the first write that can know of them.
                self.have_it_ask(number);
            }
        }
        answer.opened(opened(flags));
        Ok(())
    }

    pub(super) fn link(
        &self,
        dir: &HeldNode,
        who: &Credentials,
        (target, name): (u64, &[u8]),
        answer: &mut Answer<'_>,
    ) -> Result<(), Errno> {
        let held = self.shared.nodes.get(target)?;
        self.tried(held.node.link(who, &dir.node, name))?;
        self.tell(&dir.node, held.node.clone(), answer)
    }

    pub(super) fn rename(
        &self,
        dir: &HeldNode,
        who: &Credentials,
        (name, new_parent, new_name): (&[u8], u64, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        let no_replace = flags.contains(RenameFlags::NOREPLACE);
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        let mode = match (flags.contains(RenameFlags::EXCHANGE), no_replace, whiteout) {
            (false, false, false) => RenameMode::Replace,
            (false, true, false) => RenameMode::NoReplace,
            (false, false, true) => RenameMode::Whiteout,
            (false, true, true) => RenameMode::WhiteoutNoReplace,
            (true, false, false) => RenameMode::Exchange,
            (true, ..) => return Err(Errno::INVAL),
        };
        let to = self.shared.nodes.get(new_parent)?;
        self.tried(dir.node.rename(who, name, &to.node, new_name, mode))
    }
}

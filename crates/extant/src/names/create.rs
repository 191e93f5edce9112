//! New names: create, mkdir, mknod, symlink, link.

use crate::base::error::{Error, Result};
use crate::base::now;
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use crate::incore::directory::{Change, Directory};
use crate::incore::inode::FAST_SYMLINK_MAX;
use crate::incore::inode::{Content, Inode, InodeState, StateGuard, Symlink};
use crate::inodes::new::New;
use crate::log::{Commit, Cost};
use crate::names::Names;
use crate::types::credentials::{Credentials, EXECUTE, WRITE};
use crate::types::dentry::Dentry;
use crate::types::extent_map::Run;
use crate::types::item::{InodeEvent, MiscEvent};
use crate::types::name::Name;
use ext4_format::inode::flags;
use ext4_format::{FileType, InodeNr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// How to make it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// Permission bits.
    pub mode: u16,
    /// A name that is taken is [`Error::Exists`], else it is found.
    pub exclusive: bool,
    /// The inode counts one more handle before anybody else can take its name away.
    pub open: bool,
}

/// The right to add a subdirectory.
#[derive(Default)]
struct LinkRight<'a> {
    /// Near the limit, or beyond it, operations that add go one at a time.
    state: Option<StateGuard<'a>>,
    /// It is one more than can be counted.
    beyond: bool,
}

impl LinkRight<'_> {
    /// The stamp that a commit by this right must exceed.
    fn stamp(&self, names: &Directory) -> u64 {
        let state = self.state.as_ref();
        state.map_or(0, |state| state.stamp.max(names.last_stamp()))
    }
}

impl Names {
    /// Makes an inode under a name that is free, or finds the one the name leads to; the flag says
    /// whether it was made.
    pub(crate) fn create(
        &self,
        who: &Credentials,
        parent: &Arc<Inode>,
        name: &[u8],
        what: &New<'_>,
        how: How,
    ) -> Result<(Arc<Inode>, bool)> {
        let _span = lockmeter::span!("create");
        let How {
            mode,
            exclusive,
            open,
        } = how;
        let name = match Name::new(name) {
            Err(Error::Invalid(_)) if name == b"." || name == b".." => return Err(Error::Exists),
            other => other?,
        };
        let names = self.names(parent)?;
        let hash = self.store.hash(name.as_bytes());
        if let Err(denied) = self.inodes.permit(who, parent, WRITE | EXECUTE) {
            // Opening what exists needs no write permission on the directory.
            let bucket = names.table.lock(hash);
            return match bucket.find(hash, name.as_bytes()) {
                Some(_) if exclusive => Err(Error::Exists),
                Some(entry) => self.found(entry.ino, open),
                None => Err(denied),
            };
        }
        let ftype = what.ftype();
        let is_dir = ftype == FileType::Directory;
        let (mode, xattrs) = self.inodes.inherited_acls(who, parent, ftype, mode)?;
        let data = match what {
            New::Symlink(target) => self.place_symlink(who, parent, target)?,
            _ => None,
        };
        let cost = match what {
            New::Directory => Cost::DIRECTORY,
            _ => Cost::NAME,
        };
        let cost = if xattrs.is_some() {
            cost.and(Cost::XATTR)
        } else {
            cost
        };
        let undo_data = |e: Error| {
            self.free_data(data);
            e
        };
        let begun = match is_dir || xattrs.is_some() {
            true => self.commit.begin(who, cost),
            false => self.begin_adding(who, parent, (name.as_bytes(), hash), cost),
        };
        let tx = begun.map_err(undo_data)?;
        let mut pushed = false;
        let (mut bucket, _room, allocated) = loop {
            let (bucket, room) = self
                .lock_to_add(parent, names, hash, name.as_bytes())
                .map_err(undo_data)?;
            if names.is_dead() {
                return Err(undo_data(Error::NotFound));
            }
            if let Some(entry) = bucket.find(hash, name.as_bytes()) {
                let found = if exclusive {
                    Err(Error::Exists)
                } else {
                    self.found(entry.ino, open)
                };
                drop(bucket);
                self.free_data(data);
                return found;
            }
            if what.is_device() && !who.is_unbound() {
                return Err(undo_data(Error::NotPermitted));
            }
            match self.space.inodes.allocate(parent.ino, is_dir, &*self.space) {
                Ok(allocated) => break (bucket, room, allocated),
                // Numbers freed by operations that are not durable yet are free again after a push. The push is
                // waited for with the bucket unlocked: a frozen volume lets none through, and its names must be
                // found.
                Err(Error::NoSpace(_)) if !pushed => {
                    let held = planted::is(Fault::WaitsLocked).then_some((bucket, room));
                    schedule::reached(Point::NoInode);
                    self.commit.push_and_release().map_err(undo_data)?;
                    drop(held);
                    pushed = true;
                }
                Err(e) => return Err(undo_data(e)),
            }
        };
        let ino = allocated.ino;
        let time = now();
        let core = self.inodes.new_core(who, parent, what, mode, time);
        let content = match what {
            New::File => Content::File(OnceLock::new()),
            New::Directory => {
                let dir = Directory::new(parent.ino, None);
                dir.size
                    .store(u64::from(self.store.geometry.block_size), Ordering::Relaxed);
                Content::Directory(Box::new(dir))
            }
            New::Symlink(target) => Content::Symlink(Box::new(Symlink {
                target: OnceLock::from(Box::from(*target)),
                block: data,
            })),
            New::Special(..) => Content::Special,
        };
        let mut inode = Inode::new(ino, ftype, core, content);
        inode.newborn(u32::from(open), xattrs.clone());
        let entry = Dentry {
            hash,
            ino,
            ftype,
            name,
        };
        let mut right = LinkRight::default();
        if is_dir {
            match self.room_for_subdirectory(parent, names) {
                Ok(found) => right = found,
                Err(e) => {
                    self.space.inodes.undo(allocated);
                    return Err(undo_data(e));
                }
            }
        }
        let seen = bucket
            .stamp
            .max(names.core_stamp.load(Ordering::Relaxed))
            .max(allocated.after);
        let seen = seen.max(right.stamp(names));
        tx.commit(seen, |c| {
            c.inode(ino, InodeEvent::Init, core);
            match what {
                New::Directory => c.misc(ino, MiscEvent::DirInit { parent: parent.ino }),
                New::Symlink(target) if data.is_none() => {
                    c.misc(ino, MiscEvent::SymlinkTarget(Box::from(*target)));
                }
                _ => {}
            }
            if let Some(run) = data {
                c.map_run(ino, run, true);
            }
            if let Some(set) = &xattrs {
                c.misc(ino, MiscEvent::Xattrs(Arc::clone(set)));
            }
            let links = i8::from(is_dir);
            c.log_name(parent.ino, &mut bucket.stamp, &entry, (false, links), time);
            names.note(Change { names: 1, links }, time, c.stamp);
            parent.logged_in(c.context);
            self.stop_counting_links(parent, &mut right, c);
            inode.born_in(c);
            if let Some(dir) = inode.directory() {
                dir.core_stamp.store(c.stamp, Ordering::Relaxed);
            }
        });
        drop(right);
        if let Some(run) = data {
            self.data.count_added(&inode, &[run]);
        }
        let inode = Arc::new(inode);
        self.inodes.adopt(&inode);
        self.watch.tell_created(parent, entry.name.as_bytes(), ino);
        bucket.add(entry);
        let long = names.table.is_long(&bucket);
        drop(bucket);
        if long {
            names.grow();
        }
        Ok((inode, true))
    }

    /// The inode of a name whose bucket is locked, so that it cannot leave before it is opened.
    fn found(&self, ino: InodeNr, open: bool) -> Result<(Arc<Inode>, bool)> {
        let inode = self.inodes.named_inode(ino)?;
        if open {
            self.lifecycle.opened(&inode)?;
        }
        Ok((inode, false))
    }

    /// Makes another name for an inode.
    pub(crate) fn link(
        &self,
        who: &Credentials,
        inode: &Arc<Inode>,
        parent: &Arc<Inode>,
        name: &[u8],
    ) -> Result<()> {
        let _span = lockmeter::span!("link");
        let name = match Name::new(name) {
            Err(Error::Invalid(_)) if name == b"." || name == b".." => return Err(Error::Exists),
            other => other?,
        };
        let names = self.names(parent)?;
        let hash = self.store.hash(name.as_bytes());
        let tx = self.begin_adding(who, parent, (name.as_bytes(), hash), Cost::NAME)?;
        let (mut bucket, _room) = self.lock_to_add(parent, names, hash, name.as_bytes())?;
        if names.is_dead() {
            return Err(Error::NotFound);
        }
        if bucket.find(hash, name.as_bytes()).is_some() {
            return Err(Error::Exists);
        }
        self.inodes.permit(who, parent, WRITE | EXECUTE)?;
        if inode.directory().is_some() {
            return Err(Error::NotPermitted);
        }
        // A file without a name may be cut in steps, which rely on its being an orphan.
        let unnamed = inode.state.lock().unnamed;
        let file = inode.touched_file().filter(|_| unnamed);
        let _no_steps = file.map(|f| f.map.write());
        let mut state = inode.state.lock();
        if state.core.flags & (flags::IMMUTABLE | flags::APPEND) != 0 {
            return Err(Error::NotPermitted);
        }
        if state.freed || state.core.links == 0 && !state.unnamed {
            return Err(Error::NotFound);
        }
        if state.core.links >= ext4_format::inode::LINK_MAX {
            return Err(Error::TooManyLinks);
        }
        let time = now();
        let entry = Dentry {
            hash,
            ino: inode.ino,
            ftype: inode.ftype,
            name,
        };
        let seen = bucket
            .stamp
            .max(names.core_stamp.load(Ordering::Relaxed))
            .max(state.stamp);
        tx.commit(seen, |c| {
            state.core.links += 1;
            if std::mem::take(&mut state.unnamed) {
                state.orphan = false;
                c.misc(inode.ino, MiscEvent::OrphanRemove);
            }
            state.core.ctime = time;
            state.stamp = c.stamp;
            c.inode(inode.ino, InodeEvent::Update, state.disk_core());
            c.log_name(parent.ino, &mut bucket.stamp, &entry, (false, 0), time);
            names.note(Change { names: 1, links: 0 }, time, c.stamp);
            inode.logged_in(c.context);
            parent.logged_in(c.context);
        });
        self.watch
            .tell_created(parent, entry.name.as_bytes(), inode.ino);
        drop(state);
        bucket.add(entry);
        let long = names.table.is_long(&bucket);
        drop(bucket);
        if long {
            names.grow();
        }
        Ok(())
    }

    /// A long target is data: it goes to the device before the transaction that names its block.
    fn place_symlink(
        &self,
        who: &Credentials,
        parent: &Inode,
        target: &[u8],
    ) -> Result<Option<Run>> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() >= (self.store.geometry.block_size as usize).min(4096) {
            return Err(Error::NameTooLong);
        }
        if target.contains(&0) {
            return Err(Error::Invalid("a symbolic link's target holds a NUL byte"));
        }
        if target.len() <= FAST_SYMLINK_MAX {
            return Ok(None);
        }
        let _pass = self.store.gate.enter();
        self.store.check_writable()?;
        if !self.commit.take_space(who, 1)? {
            return Err(self.store.no_space("no block left for a symbolic link"));
        }
        let goal = self.space.goal_of(parent.ino);
        let placed = self.space.allocate_block(goal).and_then(|block| {
            let mut bytes = vec![0; self.store.geometry.block_size as usize];
            bytes[..target.len()].copy_from_slice(target);
            let run = Run {
                logical: 0,
                len: 1,
                physical: block,
                unwritten: false,
            };
            self.store
                .device
                .write_at(block.offset(self.store.geometry.block_size), &bytes)
                .map(|()| run)
                .map_err(|e| Error::block_io("write", block, e))
        });
        match placed {
            Ok(run) => Ok(Some(run)),
            Err(e) => {
                self.space.counts.give(1);
                Err(e)
            }
        }
    }

    fn free_data(&self, data: Option<Run>) {
        if let Some(run) = data
            && self.space.mark_free(run.physical, run.len).is_ok()
        {
            self.space.counts.give(u64::from(run.len));
        }
    }

    /// The right to add one subdirectory, with the name's bucket locked. Far from the limit of links nothing is taken for
    /// it.
    fn room_for_subdirectory<'a>(
        &self,
        dir: &'a Inode,
        names: &Directory,
    ) -> Result<LinkRight<'a>> {
        if names.has_room_for_directories() {
            return Ok(LinkRight::default());
        }
        let state = dir.state.lock();
        let beyond = self.is_beyond_links(names, &state)?;
        Ok(LinkRight {
            state: Some(state),
            beyond,
        })
    }

    /// Whether one more subdirectory of a directory, whose core is locked, exceeds the link count: with `dir_nlink`
    /// it stops being counted, else that is an error.
    pub(super) fn is_beyond_links(&self, names: &Directory, state: &InodeState) -> Result<bool> {
        match names.is_full_of_directories(state.core.links) {
            true if !self.store.geometry.features.has_dir_nlink() => Err(Error::TooManyLinks),
            beyond => Ok(beyond),
        }
    }

    fn stop_counting_links(&self, dir: &Inode, right: &mut LinkRight<'_>, c: &mut Commit<'_>) {
        if let (Some(state), true) = (&mut right.state, right.beyond) {
            self.log_uncounted(dir, state, c);
        }
    }

    /// Logs that a directory's subdirectories are not counted any more.
    pub(super) fn log_uncounted(&self, dir: &Inode, state: &mut InodeState, c: &mut Commit<'_>) {
        if let Some(names) = dir.directory() {
            names.stop_counting();
        }
        state.core.links = 1;
        self.inodes.log_core(dir, state, c);
    }
}

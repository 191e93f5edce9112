//! Removing names: unlink and rmdir.

use crate::base::error::{Error, Result};
use crate::base::now;
use crate::incore::directory::{Change, Directory};
use crate::incore::file::FileMap;
use crate::incore::inode::{Inode, InodeState};
use crate::incore::name_table::BucketGuard;
use crate::log::Commit;
use crate::names::Names;
use crate::types::credentials::{Credentials, EXECUTE, WRITE};
use ext4_format::inode::flags;
use extant_formatter::extent_map::Run;
use extant_formatter::item::{InodeEvent, MiscEvent, NameEvent};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The fate of an inode that lost its last name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Other names lead to it.
    Linked,
    /// Freed in the same transaction.
    Freed,
    /// Open, or too large for one transaction: on the orphan list; `true` if it is not open.
    Orphan(bool),
}

/// A directory marked as removed; it lives again if the operation ends before its commit. Dropped with all buckets of
/// the directory locked.
pub(super) struct Killed<'a>(Option<&'a Directory>);

impl<'a> Killed<'a> {
    /// Marks a directory in `parent` as removed. No state of an inode is locked.
    pub(super) fn kill(
        parent: &Inode,
        dir: &'a Directory,
        buckets: &[BucketGuard<'_>],
    ) -> Result<Self> {
        let generation = parent.state.read().core.generation;
        dir.note_last_parent(parent.ino, generation);
        if dir.kill_if_empty(buckets) {
            Ok(Self(Some(dir)))
        } else {
            Err(Error::NotEmpty)
        }
    }

    /// Keeps the removal, which is logged.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Killed<'_> {
    fn drop(&mut self) {
        if let Some(dir) = self.0 {
            dir.revive();
        }
    }
}

impl Names {
    /// Removes the name of anything but a directory.
    pub(crate) fn unlink(&self, who: &Credentials, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
        let _span = lockmeter::span!("unlink");
        let names = self.names(parent)?;
        check_removable(name)?;
        self.permit_taking(who, parent, name)?;
        let hash = self.hash_in(parent, name);
        let near = names.table.prefetch(hash);
        // A removal allocates nothing, because it must work on a full volume.
        let tx = self.commit.begin_core()?;
        let mut bucket = names.table.lock_prefetched(&near);
        bucket.prefetch_last();
        let Some((place, ino)) = bucket.locate(hash, name) else {
            return Err(Error::NotFound);
        };
        let inode = self.inodes.named_inode(ino)?;
        self.inodes.permit_removal(who, parent, &inode)?;
        self.permit_change(parent, &inode)?;
        if inode.directory().is_some() {
            return Err(Error::IsDirectory);
        }
        let mut map = inode.file_with_data().map(|f| f.map.write());
        let (may_die, runs) = if map.is_none() && self.lifecycle.is_ready_to_free(&inode) {
            (true, Vec::new())
        } else {
            self.prepare_loss(&inode, map.as_deref_mut())?
        };
        let mut state = inode.state.lock();
        // A thread that uses the data now has the file open.
        let may_free = may_die
            && (runs.is_empty() || self.data.in_one_step(&inode, &runs))
            && (map.is_some() || inode.touched_file().is_none());
        let time = now();
        let seen = bucket
            .stamp
            .max(names.core_stamp.load(Ordering::Relaxed))
            .max(state.stamp);
        let Some(entry) = bucket.remove_at(place) else {
            return Err(Error::NotFound);
        };
        let fate = tx.commit(
            seen,
            #[inline(always)]
            |c| {
                let what = (NameEvent::Removed, 0);
                c.log_name(parent.ino, &mut bucket.stamp, entry, what, time);
                let gone = Change {
                    names: -1,
                    links: 0,
                };
                names.note(gone, time, c.stamp);
                parent.logged_in(c.context);
                state.core.ctime = time;
                self.log_link_lost(&inode, &mut state, may_free, c, |state, c| {
                    let map = map.as_deref_mut();
                    self.lifecycle
                        .log_free(&inode, state, map, (&runs, time), c);
                })
            },
        );
        self.watch.tell_removed(parent, name, &inode);
        drop(state);
        drop(map);
        drop(bucket);
        self.after_link_lost(&inode, fate)
    }

    /// Prepares an inode for the loss of a name. The flag is true if the inode may be freed, and the runs are the
    /// blocks freed with it.
    #[inline(never)]
    fn prepare_loss(&self, inode: &Inode, map: Option<&mut FileMap>) -> Result<(bool, Vec<Run>)> {
        let last = inode.state.lock().core.links <= 1;
        let may_die = last && inode.handles.count() == 0;
        let runs = match (last, may_die) {
            (_, true) => self.lifecycle.prepare_free(inode, map)?,
            (true, false) => self.lifecycle.prepare_death(inode)?,
            _ => Vec::new(),
        };
        Ok((may_die, runs))
    }

    /// Logs one link less; frees the inode by `free` if that was the last and `may_free`.
    #[inline(always)]
    pub(super) fn log_link_lost(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        may_free: bool,
        c: &mut Commit<'_>,
        free: impl FnOnce(&mut InodeState, &mut Commit<'_>),
    ) -> Fate {
        state.core.links = state.core.links.saturating_sub(1);
        let fate = if state.core.links > 0 {
            Fate::Linked
        } else {
            self.inodes.gather_opens(inode, state);
            let is_open = inode.handles.unname() != 0;
            if may_free && !is_open {
                free(state, c);
                return Fate::Freed;
            }
            Fate::Orphan(!is_open)
        };
        if matches!(fate, Fate::Orphan(_)) {
            state.orphan = true;
            c.misc(inode.ino, MiscEvent::OrphanAdd);
        }
        state.stamp = c.stamp;
        c.inode(inode.ino, InodeEvent::Update, state.disk_core());
        inode.logged_in(c.context);
        fate
    }

    /// Does the work that remains with no lock held.
    #[inline(always)]
    pub(super) fn after_link_lost(&self, inode: &Arc<Inode>, fate: Fate) -> Result<()> {
        crate::base::jitter::point();
        match fate {
            Fate::Freed => {
                self.lifecycle.forget(inode);
                Ok(())
            }
            Fate::Orphan(true) => self.lifecycle.reap(inode),
            Fate::Linked | Fate::Orphan(false) => Ok(()),
        }
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, who: &Credentials, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
        let _span = lockmeter::span!("rmdir");
        match name {
            // A look-up of the name would find the directory itself.
            b"" => return Err(Error::NotFound),
            b"." => return Err(Error::Invalid("\".\" cannot be removed")),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        let names = self.names(parent)?;
        self.permit_taking(who, parent, name)?;
        let mut gone = None;
        loop {
            let hash = self.hash_in(parent, name);
            // Look up the victim first, unlocked, because its number decides which buckets to lock first.
            let victim = self.lookup(parent, name)?;
            if victim.is_gone() {
                crate::names::rename::refuse_second(&mut gone, &victim)?;
            }
            self.inodes.permit_removal(who, parent, &victim)?;
            self.permit_change(parent, &victim)?;
            let inside = self.names(&victim)?;
            self.lifecycle.prepare_free(&victim, None)?;
            let tx = self.commit.begin_core()?;
            let early = (victim.ino < parent.ino).then(|| inside.table.lock_all());
            let mut bucket = names.table.lock(hash);
            let all = early.unwrap_or_else(|| inside.table.lock_all());
            // Comparing the number is not enough: it may belong to a newer directory of the same name.
            let leads = bucket.find(hash, name).is_some_and(|e| e.ino == victim.ino);
            if !leads || victim.is_gone() {
                continue;
            }
            let killed = Killed::kill(parent, inside, &all)?;
            let mut state = victim.state.lock();
            let time = now();
            let Some(entry) = bucket.remove(hash, name) else {
                continue;
            };
            let seen = bucket
                .stamp
                .max(names.core_stamp.load(Ordering::Relaxed))
                .max(state.stamp)
                .max(inside.core_stamp.load(Ordering::Relaxed))
                .max(inside.last_stamp());
            let fate = tx.commit(seen, |c| {
                let what = (NameEvent::Removed, -1);
                c.log_name(parent.ino, &mut bucket.stamp, entry, what, time);
                let gone = Change {
                    names: -1,
                    links: -1,
                };
                names.note(gone, time, c.stamp);
                parent.logged_in(c.context);
                state.core.links = 1;
                state.core.ctime = time;
                self.log_link_lost(&victim, &mut state, true, c, |state, c| {
                    self.lifecycle
                        .log_free(&victim, state, None, (&[], time), c);
                })
            });
            killed.keep();
            self.watch.tell_removed(parent, name, &victim);
            drop(state);
            drop((all, bucket));
            return self.after_link_lost(&victim, fate);
        }
    }

    /// Fails unless the caller may remove names from a directory. A caller that may search the directory gets
    /// `NotFound` first if the name does not exist.
    #[inline]
    fn permit_taking(&self, who: &Credentials, parent: &Arc<Inode>, name: &[u8]) -> Result<()> {
        match self.inodes.permit(who, parent, WRITE | EXECUTE) {
            Ok(()) => Ok(()),
            Err(denied) => self.search_only(who, parent, name, denied),
        }
    }

    #[cold]
    #[inline(never)]
    fn search_only(
        &self,
        who: &Credentials,
        parent: &Arc<Inode>,
        name: &[u8],
        denied: Error,
    ) -> Result<()> {
        self.inodes.permit(who, parent, EXECUTE)?;
        self.lookup(parent, name)?;
        Err(denied)
    }

    /// Checks the immutable and append-only flags, which forbid removing names.
    #[inline]
    pub(super) fn permit_change(&self, dir: &Inode, victim: &Inode) -> Result<()> {
        let bound = |i: &Inode| i.has_flag(flags::IMMUTABLE | flags::APPEND);
        if bound(dir) || bound(victim) {
            Err(Error::NotPermitted)
        } else {
            Ok(())
        }
    }
}

fn check_removable(name: &[u8]) -> Result<()> {
    match name {
        b"." | b".." => Err(Error::IsDirectory),
        _ if name.len() > extant_formatter::name::NAME_MAX => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

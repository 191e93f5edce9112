//! The locked part of a rename: its locks and their order, and the items it logs.

use crate::base::error::{Error, Result};
use crate::base::now;
use crate::incore::bucket::Bucket;
use crate::incore::directory::{Change, Directory};
use crate::incore::file::FileMap;
use crate::incore::inode::{Inode, InodeState, StateGuard};
use crate::incore::name_table::BucketGuard;
use crate::log::transaction::Transaction;
use crate::log::{Commit, Cost};
use crate::names::Names;
use crate::names::index_room::Room;
use crate::names::remove::{Fate, Killed};
use crate::names::rename::RenameMode;
use crate::names::whiteout::Whiteout;
use crate::types::credentials::Credentials;
use crate::types::dentry::{Dentry, NameHash};
use crate::watch::watchers::WatchEvent;
use ext4_format::fold::Comparison;
use ext4_format::timestamp::Timestamp;
use ext4_format::{FileType, InodeNr};
use extant_formatter::extent_map::Run;
use extant_formatter::item::{MiscEvent, NameEvent, Stamp};
use extant_formatter::name::Name;
use std::sync::Arc;
use std::sync::atomic::Ordering;
/// The old or the new name of a rename.
pub(super) struct Side<'a> {
    pub dir: &'a Arc<Inode>,
    pub names: &'a Directory,
    pub hash: NameHash,
    pub name: &'a [u8],
    /// Comparison of names in the directory when the hash was made.
    pub compared: Comparison,
}

/// The buckets a rename holds: of the two names (one guard if they share a bucket), and all of a
/// directory that is replaced.
pub(super) struct HeldBuckets<'a> {
    pub old: BucketGuard<'a>,
    new: Option<BucketGuard<'a>>,
    replaced: Vec<BucketGuard<'a>>,
}

impl<'a> HeldBuckets<'a> {
    pub fn new_bucket(&mut self) -> &mut Bucket {
        match &mut self.new {
            Some(bucket) => bucket,
            None => &mut self.old,
        }
    }

    fn stamp(&self) -> u64 {
        self.old.stamp.max(self.new.as_ref().map_or(0, |b| b.stamp))
    }

    /// Locks in the order of directory numbers.
    pub fn lock(
        old: &Side<'a>,
        new: &Side<'a>,
        replaced: Option<(InodeNr, &'a Directory)>,
    ) -> Self {
        let mut all = Vec::new();
        let early = |n: InodeNr| replaced.filter(|(r, _)| *r < n);
        if old.dir.ino == new.dir.ino {
            if let Some((_, r)) = early(old.dir.ino) {
                all = r.table.lock_all();
            }
            let (a, b) = old.names.table.lock_both(old.hash, new.hash);
            if let (Some((_, r)), true) = (replaced, all.is_empty()) {
                all = r.table.lock_all();
            }
            return Self {
                old: a,
                new: b,
                replaced: all,
            };
        }
        let old_first = old.dir.ino < new.dir.ino;
        let (low, high) = if old_first { (old, new) } else { (new, old) };
        if let Some((_, r)) = early(low.dir.ino) {
            all = r.table.lock_all();
        }
        let a = low.names.table.lock(low.hash);
        if let (Some((_, r)), true) = (early(high.dir.ino), all.is_empty()) {
            all = r.table.lock_all();
        }
        let b = high.names.table.lock(high.hash);
        if let (Some((_, r)), true) = (replaced, all.is_empty()) {
            all = r.table.lock_all();
        }
        let (old_guard, new_guard) = if old_first { (a, b) } else { (b, a) };
        Self {
            old: old_guard,
            new: Some(new_guard),
            replaced: all,
        }
    }
}

/// The states of up to four inodes, locked in the order of their numbers.
struct States<'a> {
    held: Vec<(InodeNr, StateGuard<'a>)>,
}

impl<'a> States<'a> {
    fn lock(mut inodes: Vec<&'a Arc<Inode>>) -> Self {
        inodes.sort_by_key(|i| i.ino);
        inodes.dedup_by_key(|i| i.ino);
        Self {
            held: inodes
                .into_iter()
                .map(|i| (i.ino, i.state.lock()))
                .collect(),
        }
    }

    /// Returns the state of an inode that was among those locked.
    fn of(&mut self, inode: &Inode) -> Option<&mut InodeState> {
        self.held
            .iter_mut()
            .find(|(i, _)| *i == inode.ino)
            .map(|(_, s)| &mut **s)
    }

    fn stamp(&self) -> u64 {
        self.held.iter().map(|(_, s)| s.stamp).max().unwrap_or(0)
    }
}

/// The names and inodes of a rename.
pub(super) struct Move<'a> {
    pub who: &'a Credentials,
    pub old: &'a Side<'a>,
    pub new: &'a Side<'a>,
    pub source: &'a Arc<Inode>,
    pub target: Option<&'a Arc<Inode>>,
    pub mode: RenameMode,
}

impl<'a> Move<'a> {
    /// Returns true if the rename crosses from one directory to another.
    fn crosses(&self) -> bool {
        self.old.dir.ino != self.new.dir.ino
    }

    fn exchanges(&self) -> bool {
        self.mode == RenameMode::Exchange
    }

    /// Returns the inode that loses its name.
    fn replaced(&self) -> Option<&'a Arc<Inode>> {
        self.target.filter(|_| !self.exchanges())
    }

    /// Returns the number of directories moved into each of the two, less those moved out of it.
    fn links(&self) -> [i8; 2] {
        let source = i8::from(is_dir(self.source));
        let target = i8::from(self.target.is_some_and(|t| is_dir(t)));
        let comes_back = if self.exchanges() { target } else { 0 };
        [comes_back - source, source - target]
    }

    /// Returns true if the number of directories changes in one of the two. Only then their own cores change: a rename
    /// of a file does not disturb them, nor other threads that work there.
    fn recounts(&self) -> bool {
        is_dir(self.source) && self.crosses()
            || self
                .target
                .is_some_and(|t| is_dir(t) && (self.crosses() || !self.exchanges()))
    }

    /// Locks the states of all inodes whose cores change.
    fn lock_states(&self) -> States<'a> {
        let parents = [self.old.dir, self.new.dir].into_iter();
        let parents = parents.filter(|_| self.recounts());
        States::lock(
            [self.source]
                .into_iter()
                .chain(self.target)
                .chain(parents)
                .collect(),
        )
    }

    /// Returns the greatest stamp of the directories and of the names below the moved directory.
    fn stamp(&self) -> Stamp {
        let core = |side: &Side<'_>| side.names.core_stamp.load(Ordering::Relaxed);
        let parents = if self.recounts() {
            self.old.names.last_stamp().max(self.new.names.last_stamp())
        } else {
            0
        };
        core(self.old)
            .max(core(self.new))
            .max(parents)
            .max(last_stamp(self.source))
            .max(self.target.map_or(0, |t| last_stamp(t)))
    }
}

/// The inode that loses its name, ready to be freed.
#[derive(Default)]
struct Victim {
    /// The name was its last, and no handle has the inode open.
    may_die: bool,
    runs: Vec<Run>,
}

/// Result of a rename.
pub(super) struct Outcome {
    pub fate: Fate,
    pub victim: Option<Arc<Inode>>,
    /// The new name's bucket is long.
    pub long: bool,
}

/// The locks and resources of a rename, for its commit.
struct Moving<'a, 'm> {
    engine: &'a Names,
    m: &'m Move<'m>,
    // The fields are unlocked in this order.
    states: States<'m>,
    map: Option<&'a mut FileMap>,
    held: HeldBuckets<'m>,
    whiteout: Option<Whiteout<'a>>,
    victim: Victim,
    /// Whether each of the two directories stops counting its subdirectories.
    beyond: [bool; 2],
    time: Timestamp,
}

impl Names {
    /// Renames if both names still lead to the inodes looked up; otherwise does nothing and returns `None`.
    pub(super) fn rename_once(&self, m: &Move<'_>, new_name: &Name) -> Result<Option<Outcome>> {
        let replaced_dir = match m.replaced() {
            Some(t) if is_dir(t) => Some((t.ino, self.names(t)?)),
            _ => None,
        };
        let whiteout = if m.mode.leaves_whiteout() {
            Some(self.prepare_whiteout(m.who, m.old.dir)?)
        } else {
            None
        };
        let tx = self.begin_move(m, whiteout.as_ref().is_some_and(Whiteout::has_xattrs))?;
        let room = match m.target {
            None => self.room_to_add(m.new.dir, m.new.names, m.new.hash, m.new.name)?,
            Some(_) => Room::PLENTY,
        };
        let mut held = HeldBuckets::lock(m.old, m.new, replaced_dir);
        if m.new.names.is_dead() {
            return Err(Error::NotFound);
        }
        if !lead(&mut held, m.old, m.new, (m.source, m.target))
            || m.target.is_none() && room.is_missing(m.new.names)
            || held.new_bucket().compared != m.new.compared
        {
            return Ok(None);
        }
        let killed = replaced_dir
            .map(|(_, names)| Killed::kill(m.new.dir, names, &held.replaced))
            .transpose()?;
        let mut map = m.replaced().and_then(|t| t.file()).map(|f| f.map.write());
        let victim = self.prepare_victim(m.replaced(), map.as_deref_mut())?;
        let mut states = m.lock_states();
        let beyond = self.beyond_links(m, &mut states)?;
        let seen = held
            .stamp()
            .max(states.stamp())
            .max(m.stamp())
            .max(whiteout.as_ref().map_or(0, Whiteout::after))
            .max(replaced_dir.map_or(0, |(_, d)| d.core_stamp.load(Ordering::Relaxed)));
        if is_dir(m.source) || m.target.is_some_and(|t| is_dir(t)) {
            m.old.names.note_move();
            m.new.names.note_move();
        }
        let mut moving = Moving {
            engine: self,
            m,
            states,
            map: map.as_deref_mut(),
            held,
            whiteout,
            victim,
            beyond,
            time: now(),
        };
        let (fate, whited) = tx.commit(seen, |c| moving.log(new_name, c));
        if let Some(killed) = killed {
            killed.keep();
        }
        self.tell_renamed(m);
        if let Some(inode) = &whited {
            self.watch.tell_created(m.old.dir, m.old.name, inode.ino);
        }
        Ok(Some(Outcome {
            fate,
            victim: m.replaced().cloned(),
            long: m.new.names.table.is_long(moving.held.new_bucket()),
        }))
    }

    fn begin_move(&self, m: &Move<'_>, with_xattrs: bool) -> Result<Transaction<'_>> {
        let cost = if with_xattrs {
            Cost::XATTR
        } else {
            Cost { meta_blocks: 0 }
        };
        match m.target {
            // The names exist already: their entries are changed in place.
            Some(_) => self.commit.begin(m.who, cost),
            None if with_xattrs => self.commit.begin(m.who, cost.and(Cost::NAME.times(2))),
            None => {
                let name = (m.new.name, m.new.hash);
                self.begin_adding(m.who, m.new.dir, name, Cost::NAME.times(2))
            }
        }
    }

    /// Prepares freeing the inode that loses its name. Its directory and its mapping are locked.
    fn prepare_victim(
        &self,
        replaced: Option<&Arc<Inode>>,
        map: Option<&mut FileMap>,
    ) -> Result<Victim> {
        let last = replaced.filter(|t| is_dir(t) || t.state.lock().core.links <= 1);
        let Some(inode) = last else {
            return Ok(Victim::default());
        };
        let may_die = inode.handles.count() == 0;
        let runs = if may_die {
            self.lifecycle.prepare_free(inode, map)?
        } else {
            self.lifecycle.prepare_death(inode)?
        };
        Ok(Victim { may_die, runs })
    }

    /// Returns, for each of the two directories, whether it gets more subdirectories than it can count.
    fn beyond_links(&self, m: &Move<'_>, states: &mut States<'_>) -> Result<[bool; 2]> {
        let mut beyond = [false; 2];
        if m.crosses() {
            let sides = [m.old, m.new].into_iter().zip(m.links()).zip(&mut beyond);
            for ((side, _), beyond) in sides.filter(|((_, more), _)| *more > 0) {
                if let Some(state) = states.of(side.dir) {
                    *beyond = self.is_beyond_links(side.names, state)?;
                }
            }
        }
        Ok(beyond)
    }

    fn tell_renamed(&self, m: &Move<'_>) {
        let event = |from: &Side<'_>, to: &Side<'_>, inode: &Inode| WatchEvent::Renamed {
            from_dir: from.dir.ino.0,
            from: from.name.to_vec(),
            to_dir: to.dir.ino.0,
            to: to.name.to_vec(),
            ino: inode.ino.0,
        };
        let (old, new) = (m.old, m.new);
        self.watch
            .tell(&[old.dir, new.dir, m.source], || event(old, new, m.source));
        if let Some(target) = m.target.filter(|_| m.exchanges()) {
            self.watch
                .tell(&[old.dir, new.dir, target], || event(new, old, target));
        }
    }
}

impl Moving<'_, '_> {
    /// Logs the rename. Returns what became of the inode that lost its name, and the whiteout if one was left.
    fn log(&mut self, new_name: &Name, c: &mut Commit<'_>) -> (Fate, Option<Arc<Inode>>) {
        let m = self.m;
        if m.crosses() {
            log_parent(m.source, m.new.dir, c);
            if let Some(target) = m.target.filter(|_| m.exchanges()) {
                log_parent(target, m.old.dir, c);
            }
        }
        let (old_gone, whited) = self.log_old_name(c);
        self.log_new_name(new_name, c);
        self.note_names(old_gone, c.stamp);
        let fate = self.log_cores(c);
        (fate, whited)
    }

    /// Logs the new target of the old name, or its removal. The flag is true if the name is removed.
    fn log_old_name(&mut self, c: &mut Commit<'_>) -> (bool, Option<Arc<Inode>>) {
        let (m, time) = (self.m, self.time);
        let (hash, name) = (m.old.hash, m.old.name);
        let mut whited = None;
        let mut gone = false;
        let entry = if let Some(target) = m.target.filter(|_| m.exchanges()) {
            self.held.old.find(hash, name).map(|found| Dentry {
                ino: target.ino,
                ftype: target.ftype,
                ..found.clone()
            })
        } else if let Some(whiteout) = self.whiteout.take() {
            self.held.old.find(hash, name).cloned().map(|found| {
                let (inode, entry) = whiteout.log(m.who, m.old.dir, found, time, c);
                whited = Some(inode);
                entry
            })
        } else {
            let removed = self.held.old.remove(hash, name);
            gone = removed.is_some();
            removed
        };
        if let Some(entry) = entry {
            let event = if gone {
                NameEvent::Removed
            } else {
                NameEvent::Set
            };
            let what = (event, m.links()[0]);
            if !gone {
                self.held.old.set(entry.clone());
            }
            c.log_name(m.old.dir.ino, &mut self.held.old.stamp, entry, what, time);
        }
        (gone, whited)
    }

    fn log_new_name(&mut self, new_name: &Name, c: &mut Commit<'_>) {
        let m = self.m;
        let bucket = self.held.new_bucket();
        // An existing name keeps its spelling.
        let there = if bucket.compared.folds() {
            bucket.find(m.new.hash, m.new.name)
        } else {
            None
        };
        let event = match m.target {
            Some(_) => NameEvent::Set,
            None => NameEvent::Added,
        };
        let entry = Dentry {
            hash: m.new.hash,
            ino: m.source.ino,
            ftype: m.source.ftype,
            name: there.map_or(new_name, |found| &found.name).clone(),
        };
        let replaced = m.target.map_or(InodeNr(0), |target| target.ino);
        c.log_name_over(
            m.new.dir.ino,
            &mut bucket.stamp,
            (entry.clone(), replaced),
            (event, m.links()[1]),
            self.time,
        );
        bucket.set(entry);
    }

    /// Counts the names added and removed.
    fn note_names(&self, old_gone: bool, stamp: Stamp) {
        let m = self.m;
        let [old_links, new_links] = m.links();
        let left = Change {
            names: -i64::from(old_gone),
            links: old_links,
        };
        let come = Change {
            names: i64::from(m.target.is_none()),
            links: new_links,
        };
        if m.crosses() {
            m.old.names.note(left, self.time, stamp);
            m.new.names.note(come, self.time, stamp);
        } else {
            // In one step, so that no reader counts only one of the changes.
            m.new.names.note(left.and(come), self.time, stamp);
        }
    }

    /// Logs the cores of the inodes and directories. Returns the fate of the inode that lost its name.
    fn log_cores(&mut self, c: &mut Commit<'_>) -> Fate {
        let (m, engine, time) = (self.m, self.engine, self.time);
        if let Some(state) = self.states.of(m.source) {
            state.core.ctime = time;
            engine.inodes.log_core(m.source, state, c);
        }
        let mut fate = Fate::Linked;
        if let Some(target) = m.target
            && let Some(state) = self.states.of(target)
        {
            state.core.ctime = self.time;
            if m.exchanges() {
                engine.inodes.log_core(target, state, c);
            } else {
                if is_dir(target) {
                    state.core.links = 1;
                }
                let Victim { may_die, runs } = &self.victim;
                let may_free = *may_die && engine.data.in_one_step(target, runs);
                let map = self.map.as_deref_mut();
                fate = engine.log_link_lost(target, state, may_free, c, |state, c| {
                    engine
                        .lifecycle
                        .log_free(target, state, map, (runs, time), c);
                });
            }
        }
        for (dir, beyond) in [m.old.dir, m.new.dir].into_iter().zip(self.beyond) {
            dir.logged_in(c.context);
            if let (Some(state), true) = (self.states.of(dir), beyond) {
                engine.log_uncounted(dir, state, c);
            }
        }
        fate
    }
}

/// Logs, and shows, that a directory has another parent.
fn log_parent(moved: &Inode, parent: &Inode, c: &mut Commit<'_>) {
    if let Some(names) = moved.directory() {
        c.misc(moved.ino, MiscEvent::DirParent { parent: parent.ino });
        names.parent.store(parent.ino.0, Ordering::Release);
    }
}

/// Returns true if both names, now locked, still lead to the inodes that were looked up unlocked.
pub(super) fn lead(
    held: &mut HeldBuckets<'_>,
    old: &Side<'_>,
    new: &Side<'_>,
    (source, target): (&Arc<Inode>, Option<&Arc<Inode>>),
) -> bool {
    let leads = |b: &Bucket, s: &Side<'_>| b.find(s.hash, s.name).map(|e| e.ino);
    // Comparing the number is not enough: the inode may have been freed, and its number be used by another file of the
    // same name.
    leads(&held.old, old) == Some(source.ino)
        && leads(held.new_bucket(), new) == target.map(|t| t.ino)
        && !source.is_gone()
        && target.is_none_or(|t| !t.is_gone())
}

pub(super) fn is_dir(inode: &Inode) -> bool {
    inode.ftype == FileType::Directory
}

/// Returns the largest stamp of a name of a directory.
pub(super) fn last_stamp(inode: &Inode) -> u64 {
    inode.directory().map_or(0, Directory::last_stamp)
}

//! Rename: one transaction over up to three directories and four inodes.

use crate::base::error::{Error, Result};
use crate::base::now;
use crate::incore::bucket::Bucket;
use crate::incore::directory::{Change, Directory};
use crate::incore::inode::{Inode, InodeState, StateGuard};
use crate::incore::name_table::BucketGuard;
use crate::log::Cost;
use crate::names::Names;
use crate::names::index_room::Room;
use crate::names::remove::Fate;
use crate::names::whiteout::Whiteout;
use crate::types::credentials::{Credentials, EXECUTE, WRITE};
use crate::types::dentry::{Dentry, NameHash};
use crate::types::item::MiscEvent;
use crate::types::name::Name;
use crate::watch::watchers::WatchEvent;
use ext4_format::{FileType, InodeNr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The treatment of an existing new name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it, as POSIX says.
    #[default]
    Replace,
    /// Fail with [`Error::Exists`].
    NoReplace,
    /// Swap the two names.
    Exchange,
    /// Replace it, and leave a whiteout, a character device of number 0:0, at the old name.
    Whiteout,
    /// Leave a whiteout, but fail with [`Error::Exists`] if the new name is taken.
    WhiteoutNoReplace,
}

impl RenameMode {
    fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::WhiteoutNoReplace)
    }
}

/// One side of a rename.
struct Side<'a> {
    dir: &'a Arc<Inode>,
    names: &'a Directory,
    hash: NameHash,
    name: &'a [u8],
}

/// The buckets a rename holds: of the two names (one guard if they share a bucket), and all of a
/// directory that is replaced.
struct Held<'a> {
    old: BucketGuard<'a>,
    new: Option<BucketGuard<'a>>,
    replaced: Vec<BucketGuard<'a>>,
}

impl<'a> Held<'a> {
    fn new_bucket(&mut self) -> &mut Bucket {
        match &mut self.new {
            Some(bucket) => bucket,
            None => &mut self.old,
        }
    }

    fn stamp(&self) -> u64 {
        self.old.stamp.max(self.new.as_ref().map_or(0, |b| b.stamp))
    }

    /// Locks in the order of directory numbers.
    fn lock(old: &Side<'a>, new: &Side<'a>, replaced: Option<(InodeNr, &'a Directory)>) -> Self {
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

    /// The state of an inode that was among those locked.
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

impl Names {
    /// Gives the inode at `(old_dir, old_name)` the name `(new_dir, new_name)`.
    pub(crate) fn rename(
        &self,
        who: &Credentials,
        (old_dir, old_name): (&Arc<Inode>, &[u8]),
        (new_dir, new_name): (&Arc<Inode>, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let _span = lockmeter::span!("rename");
        for name in [old_name, new_name] {
            if name == b"." || name == b".." {
                return Err(Error::Busy("\".\" and \"..\" cannot be renamed"));
            }
        }
        let checked = Name::new(new_name)?;
        let old = Side {
            dir: old_dir,
            names: self.names(old_dir)?,
            hash: self.store.hash(old_name),
            name: old_name,
        };
        let new = Side {
            dir: new_dir,
            names: self.names(new_dir)?,
            hash: self.store.hash(new_name),
            name: new_name,
        };
        // Looking it up would find the directory itself.
        if old_name.is_empty() {
            return Err(Error::NotFound);
        }
        let mut gone: Option<Arc<Inode>> = None;
        loop {
            let source = self.lookup(old_dir, old_name)?;
            let target = match self.lookup(new_dir, new_name) {
                Ok(inode) => Some(inode),
                Err(Error::NotFound) => None,
                Err(e) => return Err(e),
            };
            let mut found = [Some(&source), target.as_ref()].into_iter().flatten();
            if let Some(removed) = found.find(|inode| inode.is_gone()) {
                refuse_second(&mut gone, removed)?;
            }
            // The order of the directories must hold until the move, or its refusal, is done.
            let crosses = old_dir.ino != new_dir.ino;
            let dirs = is_dir(&source) || target.as_ref().is_some_and(|t| is_dir(t));
            let _one_mover = (crosses && dirs).then(|| self.rename.lock());
            let inodes = (&source, target.as_ref());
            let checked_now = self.check_rename(who, &old, &new, &source, inodes.1, mode);
            // Two names of one file: POSIX says to do nothing.
            let same = target.as_ref().is_some_and(|t| t.ino == source.ino);
            if checked_now.is_err() || same {
                // The two names were looked up one after the other; the answer must be one of a moment.
                if lead(&mut Held::lock(&old, &new, None), &old, &new, inodes) {
                    return checked_now;
                }
                continue;
            }
            if mode == RenameMode::Replace && inodes.1.is_some_and(|t| !is_dir(t)) {
                self.data.write_replacement(&source);
            }
            match self.rename_once(who, &old, &new, &checked, inodes, mode)? {
                Some(Outcome { fate, victim, long }) => {
                    if long {
                        new.names.grow();
                    }
                    return match victim {
                        Some(victim) => self.after_link_lost(&victim, fate),
                        None => Ok(()),
                    };
                }
                None => continue,
            }
        }
    }

    fn check_rename(
        &self,
        who: &Credentials,
        old: &Side<'_>,
        new: &Side<'_>,
        source: &Arc<Inode>,
        target: Option<&Arc<Inode>>,
        mode: RenameMode,
    ) -> Result<()> {
        match (mode, target) {
            (RenameMode::NoReplace | RenameMode::WhiteoutNoReplace, Some(_)) => {
                return Err(Error::Exists);
            }
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => {}
        }
        let invalid = || Error::Invalid("a directory cannot move below itself");
        if source.directory().is_some() {
            self.refuse_loop(source, new.dir, invalid)?;
        }
        if let Some(target) = target.filter(|t| t.directory().is_some()) {
            // A directory that holds the source, however deep, is not empty.
            let above = || {
                if mode == RenameMode::Exchange {
                    invalid()
                } else {
                    Error::NotEmpty
                }
            };
            self.refuse_loop(target, old.dir, above)?;
        }
        if target.is_some_and(|t| t.ino == source.ino) {
            return Ok(());
        }
        self.inodes.permit(who, old.dir, WRITE | EXECUTE)?;
        self.inodes.permit_removal(who, old.dir, source)?;
        self.permit_change(old.dir, source)?;
        self.inodes.permit(who, new.dir, WRITE | EXECUTE)?;
        if old.dir.ino != new.dir.ino {
            // A directory that moves changes inside: its "..".
            let swapped = target.filter(|_| mode == RenameMode::Exchange);
            for moved in swapped.into_iter().chain([source]).filter(|i| is_dir(i)) {
                self.inodes.permit(who, moved, WRITE)?;
            }
        }
        if let Some(target) = target {
            self.inodes.permit_removal(who, new.dir, target)?;
            self.permit_change(new.dir, target)?;
            if mode != RenameMode::Exchange {
                match (source.directory().is_some(), target.directory().is_some()) {
                    (true, false) => return Err(Error::NotDirectory),
                    (false, true) => return Err(Error::IsDirectory),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Fails if `into` is `moved` or lies below it.
    fn refuse_loop(
        &self,
        moved: &Inode,
        into: &Arc<Inode>,
        refusal: impl Fn() -> Error,
    ) -> Result<()> {
        let mut at = Arc::clone(into);
        let mut steps = 0u32;
        while at.ino != InodeNr::ROOT {
            if at.ino == moved.ino {
                return Err(refusal());
            }
            let parent = self.parent_of(&at)?;
            steps += 1;
            if parent == at.ino || steps > self.store.geometry.inodes_count {
                return Err(Error::corrupt_inode("chain of parent directories", at.ino));
            }
            at = self.inodes.inode(parent)?;
        }
        if moved.ino == InodeNr::ROOT {
            return Err(Error::Busy("the root directory cannot be renamed"));
        }
        Ok(())
    }

    fn rename_once(
        &self,
        who: &Credentials,
        old: &Side<'_>,
        new: &Side<'_>,
        new_name: &Name,
        (source, target): (&Arc<Inode>, Option<&Arc<Inode>>),
        mode: RenameMode,
    ) -> Result<Option<Outcome>> {
        let replaced_dir = match target {
            Some(t) if mode != RenameMode::Exchange && t.directory().is_some() => {
                Some((t.ino, self.names(t)?))
            }
            _ => None,
        };
        let mut whiteout = match mode.leaves_whiteout() {
            true => Some(self.prepare_whiteout(who, old.dir)?),
            false => None,
        };
        let with_xattrs = whiteout.as_ref().is_some_and(Whiteout::has_xattrs);
        let cost = match with_xattrs {
            true => Cost::XATTR,
            false => Cost { meta_blocks: 0 },
        };
        let tx = match target {
            // The names are there: their entries are changed where they are.
            Some(_) => self.commit.begin(who, cost)?,
            None if with_xattrs => self.commit.begin(who, cost.and(Cost::NAME.times(2)))?,
            None => {
                let name = (new.name, new.hash);
                self.begin_adding(who, new.dir, name, Cost::NAME.times(2))?
            }
        };
        let room = match target {
            None => self.room_to_add(new.dir, new.names, new.hash, new.name)?,
            Some(_) => Room::PLENTY,
        };
        let mut held = Held::lock(old, new, replaced_dir);
        if new.names.is_dead() {
            return Err(Error::NotFound);
        }
        if !lead(&mut held, old, new, (source, target)) {
            return Ok(None);
        }
        if target.is_none() && room.is_missing(new.names) {
            return Ok(None);
        }
        if let (Some((_, names)), Some(_)) = (replaced_dir, target)
            && !names.kill_if_empty(&held.replaced)
        {
            return Err(Error::NotEmpty);
        }
        let replaced = target.filter(|_| mode != RenameMode::Exchange);
        let mut map = replaced.and_then(|t| t.file()).map(|f| f.map.write());
        let last = replaced.filter(|t| is_dir(t) || t.state.lock().core.links <= 1);
        let may_die = last.is_some_and(|t| t.opens.load(Ordering::Acquire) == 0);
        let runs = match last.map(|t| match may_die {
            true => self.lifecycle.prepare_free(t, map.as_deref_mut()),
            false => self.lifecycle.prepare_death(t),
        }) {
            None => Vec::new(),
            Some(Ok(runs)) => runs,
            Some(Err(e)) => {
                if let Some((_, names)) = replaced_dir {
                    names.revive();
                }
                return Err(e);
            }
        };
        let crosses = old.dir.ino != new.dir.ino;
        // The directories' own cores change only with the number of directories in them. A file that is renamed
        // leaves them alone, and others that work there.
        let recounts = is_dir(source) && crosses
            || target.is_some_and(|t| is_dir(t) && (crosses || mode != RenameMode::Exchange));
        let parents = [old.dir, new.dir].into_iter().filter(|_| recounts);
        let mut states = States::lock([source].into_iter().chain(target).chain(parents).collect());
        let parents_stamp = if recounts {
            old.names.last_stamp().max(new.names.last_stamp())
        } else {
            0
        };
        // Directories that come to each of the names, less those that leave it.
        let source_dir = i8::from(is_dir(source));
        let target_dir = i8::from(target.is_some_and(|t| is_dir(t)));
        let comes_back = if mode == RenameMode::Exchange {
            target_dir
        } else {
            0
        };
        let links = [comes_back - source_dir, source_dir - target_dir];
        let mut beyond = [false; 2];
        if crosses {
            let sides = [old, new].into_iter().zip(links).zip(&mut beyond);
            for ((side, _), beyond) in sides.filter(|((_, more), _)| *more > 0) {
                let Some(state) = states.of(side.dir) else {
                    continue;
                };
                match self.is_beyond_links(side.names, state) {
                    Ok(is) => *beyond = is,
                    Err(e) => {
                        if let Some((_, names)) = replaced_dir {
                            names.revive();
                        }
                        return Err(e);
                    }
                }
            }
        }
        let [old_links, new_links] = links;
        let time = now();
        let seen = held
            .stamp()
            .max(states.stamp())
            .max(old.names.core_stamp.load(Ordering::Relaxed))
            .max(new.names.core_stamp.load(Ordering::Relaxed))
            .max(parents_stamp)
            .max(whiteout.as_ref().map_or(0, Whiteout::after))
            .max(replaced_dir.map_or(0, |(_, d)| d.core_stamp.load(Ordering::Relaxed)))
            .max(last_stamp(source))
            .max(target.map_or(0, |t| last_stamp(t)));
        let source_entry = Dentry {
            hash: new.hash,
            ino: source.ino,
            ftype: source.ftype,
            name: new_name.clone(),
        };
        if is_dir(source) || target.is_some_and(|t| is_dir(t)) {
            old.names.note_move();
            new.names.note_move();
        }
        let mut fate = Fate::Linked;
        let mut whited = None;
        let mut old_names = 0;
        tx.commit(seen, |c| {
            if crosses && is_dir(source) {
                c.misc(
                    source.ino,
                    MiscEvent::DirParent {
                        parent: new.dir.ino,
                    },
                );
                set_parent(source, new.dir.ino);
            }
            // The new entry of the old name, or its old one.
            let entry = match (mode, target) {
                (RenameMode::Exchange, Some(target)) => {
                    if crosses && is_dir(target) {
                        c.misc(
                            target.ino,
                            MiscEvent::DirParent {
                                parent: old.dir.ino,
                            },
                        );
                        set_parent(target, old.dir.ino);
                    }
                    let found = held.old.find(old.hash, old.name);
                    found.map(|found| Dentry {
                        ino: target.ino,
                        ftype: target.ftype,
                        ..found.clone()
                    })
                }
                _ => {
                    let white = whiteout.take().and_then(|w| {
                        let at = held.old.find(old.hash, old.name)?.clone();
                        w.log(who, old.dir, at, time, c)
                    });
                    match white {
                        Some((inode, entry)) => {
                            whited = Some(inode);
                            Some(entry)
                        }
                        None => {
                            let gone = held.old.remove(old.hash, old.name);
                            old_names = -i64::from(gone.is_some());
                            gone
                        }
                    }
                }
            };
            if let Some(entry) = entry {
                let gone = old_names < 0;
                let what = (gone, old_links);
                c.log_name(old.dir.ino, &mut held.old.stamp, &entry, what, time);
                if !gone {
                    held.old.set(entry);
                }
            }
            let bucket = held.new_bucket();
            c.log_name(
                new.dir.ino,
                &mut bucket.stamp,
                &source_entry,
                (false, new_links),
                time,
            );
            bucket.set(source_entry);
            let left = Change {
                names: old_names,
                links: old_links,
            };
            let come = Change {
                names: i64::from(target.is_none()),
                links: new_links,
            };
            if old.dir.ino == new.dir.ino {
                // In one step, so that no reader counts only one of the changes.
                new.names.note(left.and(come), time, c.stamp);
            } else {
                old.names.note(left, time, c.stamp);
                new.names.note(come, time, c.stamp);
            }
            if let Some(state) = states.of(source) {
                state.core.ctime = time;
                self.inodes.log_core(source, state, c);
            }
            if let (Some(target), Some(state)) = (target, target.and_then(|t| states.of(t))) {
                state.core.ctime = time;
                if mode == RenameMode::Exchange {
                    self.inodes.log_core(target, state, c);
                } else {
                    if is_dir(target) {
                        state.core.links = 1;
                    }
                    fate = self.log_link_lost(
                        target,
                        state,
                        may_die && self.data.in_one_step(target, &runs),
                        c,
                        |state, c| {
                            self.lifecycle
                                .log_free(target, state, map.as_deref_mut(), &runs, c);
                        },
                    );
                }
            }
            for (dir, beyond) in [old.dir, new.dir].into_iter().zip(beyond) {
                dir.logged_in(c.context);
                if let (Some(state), true) = (states.of(dir), beyond) {
                    self.log_uncounted(dir, state, c);
                }
            }
        });
        if let Some(inode) = &whited {
            // While the names are locked, so that no look-up misses it.
            self.inodes.adopt(inode);
        }
        self.tell_renamed(mode, old, new, (source, target));
        if let Some(inode) = &whited {
            self.watch.tell_created(old.dir, old.name, inode.ino);
        }
        let long = new.names.table.is_long(held.new_bucket());
        Ok(Some(Outcome {
            fate,
            victim: replaced.cloned(),
            long,
        }))
    }
}

impl Names {
    fn tell_renamed(
        &self,
        mode: RenameMode,
        old: &Side<'_>,
        new: &Side<'_>,
        moved: (&Inode, Option<&Arc<Inode>>),
    ) {
        let event = |from: &Side<'_>, to: &Side<'_>, inode: &Inode| WatchEvent::Renamed {
            from_dir: from.dir.ino.0,
            from: from.name.to_vec(),
            to_dir: to.dir.ino.0,
            to: to.name.to_vec(),
            ino: inode.ino.0,
        };
        let (source, target) = moved;
        self.watch
            .tell(&[old.dir, new.dir, source], || event(old, new, source));
        if let Some(target) = target.filter(|_| mode == RenameMode::Exchange) {
            self.watch
                .tell(&[old.dir, new.dir, target], || event(new, old, target));
        }
    }
}

struct Outcome {
    fate: Fate,
    victim: Option<Arc<Inode>>,
    long: bool,
}

/// Whether both names, now locked, still lead to what was looked up unlocked.
fn lead(
    held: &mut Held<'_>,
    old: &Side<'_>,
    new: &Side<'_>,
    (source, target): (&Arc<Inode>, Option<&Arc<Inode>>),
) -> bool {
    let leads = |b: &Bucket, s: &Side<'_>| b.find(s.hash, s.name).map(|e| e.ino);
    // The number alone does not tell: it may have been freed, and be that of another file of the same name.
    leads(&held.old, old) == Some(source.ino)
        && leads(held.new_bucket(), new) == target.map(|t| t.ino)
        && !source.is_gone()
        && target.is_none_or(|t| !t.is_gone())
}

/// A name may lead to an inode that was removed a moment ago, and then leads elsewhere or nowhere at the next
/// look-up. An inode that is found again has more names than links, by the disk.
pub(super) fn refuse_second(before: &mut Option<Arc<Inode>>, gone: &Arc<Inode>) -> Result<()> {
    match before.replace(Arc::clone(gone)) {
        Some(before) if Arc::ptr_eq(&before, gone) => {
            Err(Error::corrupt_inode("count of links", gone.ino))
        }
        _ => Ok(()),
    }
}

fn is_dir(inode: &Inode) -> bool {
    inode.ftype == FileType::Directory
}

/// Largest stamp of a name of a directory.
fn last_stamp(inode: &Inode) -> u64 {
    inode.directory().map_or(0, Directory::last_stamp)
}

fn set_parent(dir: &Inode, parent: InodeNr) {
    if let Some(names) = dir.directory() {
        names.parent.store(parent.0, Ordering::Release);
    }
}

//! Directories that a slot has walked through: tasks that work below one directory walk the same first parts of their
//! paths, and write no common word doing so.
//!
//! Looking a name up takes its bucket's lock and the inode's place in the index, and counts one more use of the inode.
//! So every task would write the root and the directories near it. Therefore each slot remembers the directories that
//! its walks passed, and counts its uses at a separate reference. A walk that is answered from here only reads lines
//! that other slots write.
//!
//! An entry is valid as long as the child has not been removed, and no name of a directory was moved away from the
//! parent or replaced ([`Directory::moves`](crate::incore::directory::Directory::moves), changed with the bucket
//! locked). Parent and child are known by their objects, which cannot be reused while they are remembered.

use crate::base::locks::{self, Mutex};
use crate::incore::inode::Inode;
use crate::inodes::path_cache::{CachedPath, LONGEST, PathCache, hash, names_of};
use percpu::PerSlot;
use std::iter::Peekable;
use std::ops::Deref;
use std::sync::Arc;

/// Initial number of directories that a slot remembers, a power of two.
const PLACES: usize = 64;
/// Largest number of directories that a slot remembers.
const MOST_PLACES: usize = 4096;

/// A slot's reference. Its users count here, not at the inode.
pub(crate) struct SlotsOwn(pub(crate) Arc<Inode>);

/// An inode that a walk has reached.
pub(crate) enum At<'a> {
    /// The start of the walk.
    Start(&'a Arc<Inode>),
    /// Found by a lookup.
    Found(Arc<Inode>),
    /// Remembered by the slot: a use of the slot's own reference.
    Remembered(Arc<SlotsOwn>),
}

impl At<'_> {
    /// Converts to a counted reference.
    pub(crate) fn into_arc(self) -> Arc<Inode> {
        Arc::clone(&self)
    }
}

impl Deref for At<'_> {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        match self {
            At::Start(inode) => inode,
            At::Found(inode) => inode,
            At::Remembered(own) => &own.0,
        }
    }
}

pub(crate) struct Step {
    pub(crate) parent: Arc<Inode>,
    pub(crate) hash: u32,
    pub(crate) moves: u64,
    pub(crate) name: Box<[u8]>,
    pub(crate) child: Arc<SlotsOwn>,
}

#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) root: Option<Arc<SlotsOwn>>,
    /// A step is in the place that its hash names, or nowhere.
    steps: Vec<Option<Step>>,
    /// Steps that were displaced by others since the last growth.
    displaced: usize,
    paths: PathCache,
}

impl Memory {
    fn place(&self, hash: u32) -> usize {
        hash as usize & self.steps.len().wrapping_sub(1)
    }

    /// Returns the directory that a name of this one leads to, if the step is remembered and still holds.
    fn find(&self, parent: &Arc<Inode>, name: &[u8]) -> Option<&Arc<SlotsOwn>> {
        let moves = parent.directory()?.moves().count();
        let place = self.place(step_hash(parent, name));
        let step = self.steps.get(place)?.as_ref()?;
        let holds = Arc::ptr_eq(&step.parent, parent)
            && step.moves == moves
            && *step.name == *name
            && step.child.0.directory().is_some_and(|d| !d.is_dead());
        holds.then_some(&step.child)
    }

    /// Returns the directory at which the slot begins to walk: a given one, or the root.
    fn start<'a>(&'a self, from: Option<&'a Arc<Inode>>) -> Option<&'a Arc<Inode>> {
        match from {
            Some(from) => Some(from),
            None => Some(&self.root.as_ref()?.0),
        }
    }

    /// Makes the cached path through the directories of a path, all of which are remembered as steps.
    fn cached(&self, from: Option<&Arc<Inode>>, path: &[u8]) -> Option<CachedPath> {
        let start = self.start(from)?;
        let (mut at, mut leads_to) = (start, None);
        let mut parents = Vec::new();
        for name in names_of(path) {
            // The moves are counted before the step is found valid, so that a move between the two makes the cached path
            // invalid.
            let moves = at.directory()?.moves();
            parents.push((moves.clone(), moves.count()));
            let child = self.find(at, name)?;
            (at, leads_to) = (&child.0, Some(child));
        }
        Some(CachedPath {
            start: Arc::clone(start),
            path: path.into(),
            parents: parents.into(),
            child: Arc::clone(leads_to?),
        })
    }

    /// Puts a step into its place; returns the previous one.
    fn put(&mut self, step: Step) -> Option<Step> {
        if self.steps.is_empty() {
            self.steps.resize_with(PLACES, || None);
        } else if self.displaced > self.steps.len() && self.steps.len() < MOST_PLACES {
            let twice = self.steps.len() * 2;
            let old = std::mem::take(&mut self.steps);
            self.steps.resize_with(twice, || None);
            self.displaced = 0;
            for step in old.into_iter().flatten() {
                // Each place has become two, so the place of this step is free.
                let place = self.place(step.hash);
                self.steps[place] = Some(step);
            }
        }
        let place = self.place(step.hash);
        let old = self.steps[place].replace(step);
        self.displaced += usize::from(old.is_some());
        old
    }
}

/// The directories that the slots remember.
#[derive(Default)]
pub(crate) struct WalkCache {
    pub(crate) slots: PerSlot<Mutex<Memory, locks::WalkCache>>,
}

pub(crate) fn step_hash(parent: &Inode, name: &[u8]) -> u32 {
    let seed = parent.ino.0.wrapping_mul(0x9E37_79B1);
    let hash = name
        .iter()
        .fold(seed, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    hash ^ hash >> 16
}

impl WalkCache {
    /// Forgets everything, so that directories without other references can leave memory.
    pub(crate) fn clear(&self) {
        for slot in self.slots.iter() {
            // Dropped after the lock is released.
            let old = std::mem::take(&mut *slot.lock());
            drop(old);
        }
    }

    pub(crate) fn find(&self, parent: &Arc<Inode>, name: &[u8]) -> Option<Arc<SlotsOwn>> {
        let memory = self.slots.local().lock();
        memory.find(parent, name).map(Arc::clone)
    }

    /// Returns the directory that a path leads to, from a directory or the root, if the slot has passed it several
    /// times. Permissions are not checked.
    pub(crate) fn passed(&self, from: Option<&Arc<Inode>>, path: &[u8]) -> Option<Arc<SlotsOwn>> {
        let memory = self.slots.local().lock();
        let start = memory.start(from)?;
        memory.paths.find(start, path).map(Arc::clone)
    }

    /// Notes that a walk along a path of directories reached its end by steps that the slot remembers.
    pub(crate) fn note_path(&self, from: Option<&Arc<Inode>>, path: &[u8]) {
        if path.len() > LONGEST {
            return;
        }
        let mut memory = self.slots.local().lock();
        let asked = memory.start(from).map(|start| hash(start, path));
        let Some(place) = asked.and_then(|hash| memory.paths.place_for(hash)) else {
            return;
        };
        let cached = memory.cached(from, path);
        // Dropped after the lock is released.
        let old = cached.and_then(|cached| memory.paths.put(place, cached));
        drop(memory);
        drop(old);
    }

    /// Walks the part of a path that the slot remembers, from a directory or the root, with its lock taken once and one
    /// use counted. Removes the passed names from the path. The last name is left unless it must be a directory's.
    /// Permissions are not asked for.
    pub(crate) fn ahead<'p>(
        &self,
        from: Option<&Arc<Inode>>,
        path: &mut Peekable<impl Iterator<Item = &'p [u8]> + Clone>,
        must_be_dir: bool,
    ) -> Option<Arc<SlotsOwn>> {
        let memory = self.slots.local().lock();
        let mut own = match from {
            Some(_) => None,
            None => Some(memory.root.as_ref()?),
        };
        loop {
            let parent = own.map_or(from, |own| Some(&own.0))?;
            let mut rest = path.clone();
            let next = rest
                .next()
                .filter(|_| must_be_dir || rest.peek().is_some())
                .and_then(|name| memory.find(parent, name));
            let Some(next) = next else {
                return own.map(Arc::clone);
            };
            (own, *path) = (Some(next), rest);
        }
    }

    pub(crate) fn remember(&self, step: Step) {
        // Dropped after the lock is released.
        let old = self.slots.local().lock().put(step);
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_PLACES, PLACES};
    use crate::{Error, RenameMode, Volume};

    /// Walks the same path from several slots, so that all of them remember it.
    fn everywhere(volume: &Volume, path: &str) -> Vec<bool> {
        std::thread::scope(|scope| {
            let tasks: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| match volume.metadata(path) {
                        Ok(_) => true,
                        Err(Error::NotFound) => false,
                        Err(other) => panic!("{path}: {other}"),
                    })
                })
                .collect();
            tasks.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn what_is_remembered_ends_with_the_name() {
        let volume = crate::doc_volume();
        volume.create_dir("/a").unwrap();
        volume.create_dir("/a/b").unwrap();
        volume.create_new_file("/a/b/f").unwrap();
        for _ in 0..2 {
            assert_eq!(everywhere(&volume, "/a/b/f"), [true; 3]);
        }
        // The directory is moved away, and another one made in its place.
        volume.rename("/a/b", "/a/c").unwrap();
        assert_eq!(everywhere(&volume, "/a/b/f"), [false; 3]);
        assert_eq!(everywhere(&volume, "/a/c/f"), [true; 3]);
        volume.create_dir("/a/b").unwrap();
        assert_eq!(everywhere(&volume, "/a/b/f"), [false; 3]);
        // The directories are swapped.
        volume
            .rename_with("/a/b", "/a/c", RenameMode::Exchange)
            .unwrap();
        assert_eq!(everywhere(&volume, "/a/b/f"), [true; 3]);
        assert_eq!(everywhere(&volume, "/a/c/f"), [false; 3]);
        // The directory is removed and made again, with the same number or another, and replaced.
        volume.remove_dir("/a/c").unwrap();
        assert_eq!(everywhere(&volume, "/a/c/"), [false; 3]);
        let again = volume.create_dir("/a/c").unwrap();
        again.create_new_file("g").unwrap();
        assert_eq!(everywhere(&volume, "/a/c/g"), [true; 3]);
        volume.create_dir("/d").unwrap();
        assert_eq!(everywhere(&volume, "/d/g"), [false; 3]);
        volume.rename("/a/c", "/d").unwrap();
        assert_eq!(everywhere(&volume, "/d/g"), [true; 3]);
        assert_eq!(everywhere(&volume, "/a/c/g"), [false; 3]);
    }

    /// Returns the number of the directory that a path leads to, by handles: no step of the way is remembered.
    fn by_steps(volume: &Volume, names: &[&str]) -> Option<u32> {
        let mut at = volume.root();
        for name in names {
            at = at.open_dir(name).ok()?;
        }
        Some(at.ino())
    }

    #[test]
    fn cached_paths_lead_where_steps_lead() {
        let volume = crate::doc_volume();
        let names = ["a", "b"];
        let paths: Vec<Vec<&str>> = (0..14)
            .map(|n: u32| {
                let length = (n + 2).ilog2();
                (0..length)
                    .map(|bit| names[((n + 2) >> bit & 1) as usize])
                    .collect()
            })
            .collect();
        let mut random = 88_172_645_463_325_252_u64;
        let mut draw = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 20) as usize % below
        };
        let (mut there, mut moved) = (0, 0);
        for _ in 0..3000 {
            let (one, other) = (draw(paths.len()), draw(paths.len()));
            let (one, other) = (paths[one].join("/"), paths[other].join("/"));
            // Most of these calls fail: no parent, not empty, or one directory below the other.
            match draw(6) {
                0 => drop(volume.remove_dir(&one)),
                1 => moved += usize::from(volume.rename(&one, &other).is_ok()),
                2 => {
                    let swap = volume.rename_with(&one, &other, RenameMode::Exchange);
                    moved += usize::from(swap.is_ok());
                }
                _ => drop(volume.create_dir(&one)),
            }
            for path in &paths {
                let expected = by_steps(&volume, path);
                there += usize::from(expected.is_some());
                for _ in 0..3 {
                    let found = volume.metadata(format!("{}/", path.join("/")));
                    assert_eq!(found.ok().map(|found| found.ino()), expected, "{path:?}");
                }
            }
        }
        let slots = volume.guard_engine().inodes.walks.slots.iter();
        let paths: usize = slots.map(|slot| slot.lock().paths.count()).sum();
        assert!(
            paths >= 6 && there > 9000 && moved > 100,
            "{paths} {there} {moved}"
        );
    }

    #[test]
    fn more_directories_get_more_places() {
        let volume = crate::doc_volume();
        let walks = &volume.guard_engine().inodes.walks;
        let places = || walks.slots.iter().map(|s| s.lock().steps.len()).max();
        for n in 0..400 {
            volume.create_dir(format!("/d{n}")).unwrap();
            volume.create_new_file(format!("/d{n}/f{n}")).unwrap();
        }
        assert!(places() >= Some(PLACES), "{:?}", places());
        for _ in 0..4 {
            for n in 0..400 {
                assert!(volume.metadata(format!("/d{n}/f{n}")).is_ok());
                assert!(volume.metadata(format!("/d{n}/f{}", n + 1)).is_err());
            }
        }
        let grown = places();
        assert!(
            grown > Some(PLACES) && grown <= Some(MOST_PLACES),
            "{grown:?}"
        );
        volume.rename("/d7", "/d9/d").unwrap();
        assert!(volume.metadata("/d7/f7").is_err() && volume.metadata("/d9/d/f7").is_ok());
        volume.drop_caches();
        assert_eq!(places(), Some(0));
    }

    #[test]
    fn permission_is_asked_at_every_walk() {
        let volume = crate::doc_volume();
        volume.create_dir("/a").unwrap();
        volume.create_new_file("/a/f").unwrap();
        let other = volume.as_user(crate::Credentials::new(7, 7, &[]));
        assert!(other.metadata("/a/f").is_ok());
        let closed = crate::SetAttributes {
            mode: Some(0o700),
            ..Default::default()
        };
        volume.set_attributes("/a", &closed).unwrap();
        assert!(matches!(
            other.metadata("/a/f"),
            Err(Error::PermissionDenied)
        ));
    }

    #[test]
    fn dropping_caches_forgets() {
        let volume = crate::doc_volume();
        volume.create_dir("/a").unwrap();
        volume.create_new_file("/a/f").unwrap();
        assert_eq!(everywhere(&volume, "/a/f"), [true; 3]);
        volume.sync().unwrap();
        volume.drop_caches();
        let left = volume.guard_engine().inodes.in_core.len();
        // The root, which the volume's handle holds.
        assert!(left <= 1, "{left} inodes");
        assert_eq!(everywhere(&volume, "/a/f"), [true; 3]);
    }
}

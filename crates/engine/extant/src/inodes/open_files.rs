//! Files that several slots open. Each slot remembers the files that it opened lately, with a separate reference and a
//! separate count of their handles. So opening and closing such a file writes no line that another slot writes.
//!
//! The number of a file's handles is then the inode's count ([`Inode::handles`]) plus the counts of the slots. The
//! number must be exact when the last name is removed, and when the possibly last handle of a preallocating file is
//! closed. For that the slots' counts are first *gathered*: moved into the inode's, and the slots forget the file. Both
//! gathering and remembering are done with the inode's state locked. So a thread that has the state locked and has
//! gathered sees every handle.
//!
//! Lock order: bucket, inode state, slot.

use crate::base::locks::{self, Mutex};
use crate::incore::inode::{Inode, InodeState};
use crate::inodes::Inodes;
use ext4_format::{FileType, InodeNr};
use percpu::PerSlot;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Files that a slot remembers.
const PLACES: usize = 64;
/// Number of times that another file must ask for a place before it replaces the file there.
const PATIENCE: u8 = 16;
/// Set in a slot's count after it was gathered, so that handles count at the inode.
const GATHERED: u32 = 1 << 31;

/// A slot's reference to a file, and the number of its handles.
pub(crate) struct SlotsOwn {
    pub(crate) inode: Arc<Inode>,
    opens: AtomicU32,
}

impl SlotsOwn {
    /// Counts one handle more, or less; returns the handles left, or `None` if the count has been gathered.
    pub(crate) fn count(&self, change: i32) -> Option<u32> {
        let step = |n: u32| (n & GATHERED == 0).then(|| n.wrapping_add_signed(change));
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.opens.fetch_update(set, fetch, step).ok()?;
        Some(before.wrapping_add_signed(change))
    }
}

/// A counted use of an inode by an open file.
pub(crate) enum Opened {
    /// The handle counts at the inode.
    There(Arc<Inode>),
    /// The handle counts at the slot that opened it.
    BySlot(Arc<SlotsOwn>),
}

impl Deref for Opened {
    type Target = Arc<Inode>;

    fn deref(&self) -> &Arc<Inode> {
        match self {
            Self::There(inode) => inode,
            Self::BySlot(own) => &own.inode,
        }
    }
}

#[derive(Default)]
struct OpenPlace {
    file: Option<Arc<SlotsOwn>>,
    /// Number of times that another file asked for the place since this one was used.
    idle: u8,
}

struct OpenPlaces([OpenPlace; PLACES]);

impl Default for OpenPlaces {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OpenPlace::default()))
    }
}

impl OpenPlaces {
    fn of(&mut self, ino: InodeNr) -> &mut OpenPlace {
        &mut self.0[ino.0 as usize % PLACES]
    }
}

/// The files that the slots remember.
#[derive(Default)]
pub(crate) struct OpenFiles {
    /// Some slot remembers a file; without that no slot is looked at.
    some: AtomicBool,
    slots: PerSlot<Mutex<OpenPlaces, locks::OpenFiles>>,
}

impl OpenFiles {
    /// Returns true if a slot may remember a file.
    pub(crate) fn has_some(&self) -> bool {
        self.some.load(Ordering::Relaxed)
    }

    /// Names the field at an address, for [`Engine::what_is_at`](crate::volume::Engine::what_is_at).
    pub(crate) fn what_is_at(&self, address: usize) -> Option<String> {
        let inside =
            |slot: &Mutex<OpenPlaces, _>| crate::base::address::within(slot, address).is_some();
        let found = self.slots.iter().any(inside);
        found.then(|| "open files of a slot".into())
    }
}

impl Inodes {
    /// Opens the inode that a name of a directory leads to, if this slot remembers it.
    pub(crate) fn open_remembered(&self, dir: &Inode, name: &[u8]) -> Option<Opened> {
        let names = dir.directory().filter(|names| names.is_complete())?;
        let compared = self.store.comparison(dir.flags());
        let hash = self.store.hash_by(compared, name);
        // Held, so that the name still leads to the inode when the handle is counted.
        let bucket = names.table.read(hash);
        let entry = bucket.find(hash, name)?;
        if entry.ftype != FileType::Regular {
            return None;
        }
        let mut places = self.open_files.slots.local().lock();
        let place = places.of(entry.ino);
        let own = place.file.as_ref()?;
        if own.inode.ino != entry.ino {
            place.idle = place.idle.saturating_add(1);
            return None;
        }
        place.idle = 0;
        own.count(1)?;
        Some(Opened::BySlot(Arc::clone(own)))
    }

    /// Takes a handle that counts at the inode. If several slots open the file, this handle and later ones count at
    /// this slot.
    pub(crate) fn remember_open(&self, inode: Arc<Inode>) -> Opened {
        if !inode.file_with_data().is_some_and(|f| f.openers.note()) {
            return Opened::There(inode);
        }
        let slot = self.open_files.slots.local();
        let there = {
            let mut places = slot.lock();
            let place = places.of(inode.ino);
            match &place.file {
                Some(there) if Arc::ptr_eq(&there.inode, &inode) => return Opened::There(inode),
                Some(_) if place.idle < PATIENCE => return Opened::There(inode),
                there => there.as_ref().map(|there| Arc::clone(&there.inode)),
            }
        };
        if let Some(there) = there {
            self.gather_opens(&there, &there.state.lock());
        }
        let state = inode.state.lock();
        if state.freed || state.core.links == 0 {
            return Opened::There(Arc::clone(&inode));
        }
        let mut places = slot.lock();
        let place = places.of(inode.ino);
        if place.file.is_some() {
            // Another thread of the slot was faster.
            return Opened::There(Arc::clone(&inode));
        }
        let own = Arc::new(SlotsOwn {
            inode: Arc::clone(&inode),
            opens: AtomicU32::new(1),
        });
        (place.file, place.idle) = (Some(Arc::clone(&own)), 0);
        inode.by_slots.store(true, Ordering::Relaxed);
        if !self.open_files.has_some() {
            self.open_files.some.store(true, Ordering::Relaxed);
        }
        // The slot counts the handle, which was not the last of the inode.
        inode.handles.close();
        Opened::BySlot(own)
    }

    /// Moves the slots' counts of an inode's handles to the inode, whose state is locked exclusively: while it stays
    /// locked, [`Inode::handles`] is exact.
    #[inline]
    pub(crate) fn gather_opens(&self, inode: &Inode, _locked: &InodeState) {
        if inode.by_slots.load(Ordering::Relaxed) {
            self.gather_opens_of_slots(inode);
        }
    }

    #[cold]
    #[inline(never)]
    fn gather_opens_of_slots(&self, inode: &Inode) {
        inode.by_slots.store(false, Ordering::Relaxed);
        for slot in self.open_files.slots.iter() {
            let mut places = slot.lock();
            let place = places.of(inode.ino);
            let is_of = |own: &mut Arc<SlotsOwn>| std::ptr::eq(&*own.inode, inode);
            if let Some(own) = place.file.take_if(is_of) {
                let handles = own.opens.fetch_or(GATHERED, Ordering::AcqRel);
                inode.handles.add(handles);
                drop(places);
                // Not the last reference to the inode, because the caller has one.
                drop(own);
            }
        }
    }

    /// Returns true if an inode seems to have a handle, for callers that need no certainty.
    pub(crate) fn is_open(&self, inode: &Inode) -> bool {
        let has_some = |slot: &Mutex<OpenPlaces, locks::OpenFiles>| {
            let mut places = slot.lock();
            let own = places.of(inode.ino).file.as_ref();
            own.is_some_and(|own| {
                std::ptr::eq(&*own.inode, inode) && own.opens.load(Ordering::Relaxed) > 0
            })
        };
        inode.handles.count() > 0
            || inode.by_slots.load(Ordering::Relaxed) && self.open_files.slots.iter().any(has_some)
    }

    /// Makes all slots forget the files they remember, so that closed ones can leave memory.
    pub(crate) fn forget_open_files(&self) {
        for slot in self.open_files.slots.iter() {
            let remembered: Vec<Arc<Inode>> = {
                let places = slot.lock();
                let files = places.0.iter().filter_map(|place| place.file.as_ref());
                files.map(|own| Arc::clone(&own.inode)).collect()
            };
            for inode in remembered {
                self.gather_opens(&inode, &inode.state.lock());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{OpenOptions, Volume};
    use percpu::slot::{self, SlotId};

    const BOTH: OpenOptions = OpenOptions::new().read(true).write(true);

    /// Runs `f` in a thread of another slot. A new thread gets the least used slot, so threads that wait make it choose
    /// another one.
    fn in_another_slot<T: Send>(mine: SlotId, f: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|s| {
            let other = s.spawn(move || {
                if slot::current() == mine {
                    in_another_slot(mine, f)
                } else {
                    f()
                }
            });
            other.join().unwrap()
        })
    }

    /// Opens and closes a file from two slots alternately, so that both remember it. Returns a handle of each.
    fn from_two_slots(volume: &Volume, path: &str) -> [crate::File; 2] {
        let open = || volume.open_file_with(path, &BOTH).unwrap();
        let mine = slot::current();
        for _ in 0..4 {
            drop(open());
            in_another_slot(mine, || drop(open()));
        }
        [open(), in_another_slot(mine, open)]
    }

    fn counts(file: &crate::File) -> (u32, bool) {
        let inode = file.inode();
        (
            inode.handles.count(),
            inode.by_slots.load(std::sync::atomic::Ordering::Relaxed),
        )
    }

    #[test]
    fn a_removed_file_lives_as_long_as_any_slot_has_it_open() {
        let volume = crate::doc_volume();
        let free = || {
            volume.sync().unwrap();
            volume.statfs().unwrap().free_inodes
        };
        let before = free();
        for how in 0..3 {
            volume.write("/f", [7; 10_000]).unwrap();
            let [a, b] = from_two_slots(&volume, "/f");
            assert_eq!(counts(&a), (0, true), "both count by their slots");
            match how {
                0 => volume.remove_file("/f").unwrap(),
                1 => {
                    volume.write("/g", b"").unwrap();
                    volume.rename("/g", "/f").unwrap();
                    volume.remove_file("/f").unwrap();
                }
                _ => {
                    // The slots have forgotten the file, and no look-up finds it.
                    volume.drop_caches();
                    assert_eq!(counts(&a), (2, false));
                    volume.remove_file("/f").unwrap();
                }
            }
            assert_eq!(counts(&a), (2, false));
            assert!(volume.open_file_with("/f", &BOTH).is_err());
            assert_eq!(free(), before - 1);
            drop(a);
            assert_eq!(free(), before - 1);
            let mut buf = [0; 4];
            assert_eq!(b.read_at(&mut buf, 9_998).unwrap(), 2);
            std::thread::scope(|s| s.spawn(|| drop(b)).join().unwrap());
            assert_eq!(free(), before);
        }
    }

    #[test]
    fn the_last_handle_of_any_slot_gives_back_what_is_set_aside() {
        let volume = crate::doc_volume();
        // Too large for the blocks that the slot sets aside for small files.
        volume.write("/f", [1; 20 * 4096]).unwrap();
        let [a, b] = from_two_slots(&volume, "/f");
        for _ in 0..3 {
            a.append(&[1; 4096]).unwrap();
            a.sync_all().unwrap();
        }
        let aside = || volume.guard_engine().space.counts.aside();
        assert!(aside() > 0);
        drop(a);
        assert!(aside() > 0, "another slot has it open");
        drop(b);
        assert_eq!(aside(), 0);
    }

    #[test]
    fn opening_and_removing_race() {
        let volume = crate::doc_volume();
        std::thread::scope(|s| {
            for t in 0..4 {
                let volume = volume.clone();
                s.spawn(move || {
                    for n in 0..2_000 {
                        if (n + t) % 97 == 0 {
                            let _ = volume.remove_file("/f");
                        }
                        match volume.open_file_with("/f", &BOTH.create(true)) {
                            Ok(file) => drop(file.write_at(b"there", 0)),
                            Err(e) => panic!("{e}"),
                        }
                        let _ = volume.open_file_with("/f", &BOTH);
                    }
                });
            }
        });
        let _ = volume.remove_file("/f");
        let engine = volume.guard_engine();
        let open = engine
            .inodes
            .in_core
            .iter()
            .filter(|inode| inode.ftype == crate::FileType::Regular)
            .count();
        assert_eq!(open, 0, "every file is freed");
    }
}

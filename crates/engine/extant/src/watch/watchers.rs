//! Watchers, their subjects, and the events on their way to them.
//!
//! An operation reports its event while it holds the locks of the names or the inode, so that events of one name or
//! inode arrive in their order. Without a watcher a report costs one read of a flag that is never written.

use crate::base::locks::{self, Condvar, Mutex, RwLock};
use crate::incore::inode::Inode;
use crate::store::Store;
use ext4_format::InodeNr;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Events kept for a watcher that does not fetch them.
const MOST: usize = 1 << 14;

/// An event. Inodes are given by number.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// use extant::WatchEvent;
/// let watch = volume.watch_volume();
/// let file = volume.create_new_file("/a")?;
/// let event = watch.try_next().expect("somebody made a file");
/// assert_eq!(event, WatchEvent::Created { dir: 2, name: b"a".to_vec(), ino: file.ino() });
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A name was made, for a new inode or as a further link.
    Created {
        /// Directory of the name.
        dir: u32,
        /// The name.
        name: Vec<u8>,
        /// Inode that the name leads to.
        ino: u32,
    },
    /// A name was removed.
    Removed {
        /// Directory of the name.
        dir: u32,
        /// The name.
        name: Vec<u8>,
        /// Inode that the name led to.
        ino: u32,
    },
    /// A name moved; the inode at its new place lost that name.
    Renamed {
        /// Directory of the old name.
        from_dir: u32,
        /// The old name.
        from: Vec<u8>,
        /// Directory of the new name.
        to_dir: u32,
        /// The new name.
        to: Vec<u8>,
        /// Inode that the name leads to.
        ino: u32,
    },
    /// Data of a file changed, or its size. One event may stand for several changes.
    Written {
        /// The file.
        ino: u32,
    },
    /// Mode, owner, times, flags or extended attributes were set. One event may stand for several changes.
    Attributes {
        /// The inode.
        ino: u32,
    },
    /// Events were lost because the watcher did not fetch earlier ones.
    Lost,
    /// The volume was closed; no event follows.
    Unmounted,
}

/// Events of one watcher.
#[derive(Default)]
pub(crate) struct Events {
    queue: Mutex<VecDeque<WatchEvent>, locks::Watch>,
    came: Condvar,
}

impl Events {
    fn push(&self, event: &WatchEvent) {
        let mut queue = self.queue.lock();
        let last = queue.back();
        let repeats = matches!(
            event,
            WatchEvent::Written { .. } | WatchEvent::Attributes { .. }
        ) && last == Some(event);
        let end = *event == WatchEvent::Unmounted;
        if last == Some(&WatchEvent::Unmounted) || repeats {
            return;
        }
        if queue.len() < MOST || end {
            queue.push_back(event.clone());
        } else if last != Some(&WatchEvent::Lost) {
            queue.push_back(WatchEvent::Lost);
        }
        self.came.notify_all();
    }

    /// Returns the next event. Waits for it until the given time, or for ever.
    pub fn next(&self, until: Option<Instant>) -> Option<WatchEvent> {
        let mut queue = self.queue.lock();
        loop {
            // The last event stays for later calls.
            if queue.front() == Some(&WatchEvent::Unmounted) {
                return Some(WatchEvent::Unmounted);
            }
            if let Some(event) = queue.pop_front() {
                return Some(event);
            }
            match until {
                None => self.came.wait(&mut queue),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left == Duration::ZERO {
                        return None;
                    }
                    self.came.wait_for(&mut queue, left);
                }
            }
        }
    }
}

#[derive(Default)]
struct Watching {
    volume: Vec<Arc<Events>>,
    inodes: HashMap<InodeNr, Vec<Arc<Events>>>,
}

/// The watchers of a volume.
pub(crate) struct Watchers {
    store: Arc<Store>,
    /// The whole volume is watched.
    all: AtomicBool,
    watching: RwLock<Watching, locks::Watchers>,
}

impl Watchers {
    /// Makes the watchers of a new volume: none.
    pub(crate) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            all: AtomicBool::new(false),
            watching: RwLock::default(),
        }
    }

    /// Returns true if an event that concerns these inodes has a watcher.
    #[inline(always)]
    fn interested(&self, inodes: &[&Inode]) -> bool {
        self.all.load(Ordering::Relaxed) || inodes.iter().any(|i| i.watched.load(Ordering::Relaxed))
    }

    fn deliver(&self, inodes: &[&Inode], event: &WatchEvent) {
        let watching = self.watching.read();
        for events in &watching.volume {
            events.push(event);
        }
        for (i, inode) in inodes.iter().enumerate() {
            let told = inodes[..i].iter().any(|before| before.ino == inode.ino);
            for events in watching.inodes.get(&inode.ino).into_iter().flatten() {
                if !told {
                    events.push(event);
                }
            }
        }
    }
}

impl Watchers {
    /// Notifies watchers of these inodes, and of the volume. `event` is called if there are any.
    #[inline(always)]
    pub(crate) fn tell(&self, inodes: &[&Inode], event: impl FnOnce() -> WatchEvent) {
        if self.interested(inodes) {
            self.deliver_new(inodes, event);
        }
    }

    #[cold]
    #[inline(never)]
    fn deliver_new(&self, inodes: &[&Inode], event: impl FnOnce() -> WatchEvent) {
        self.deliver(inodes, &event());
    }

    /// Reports that a name of `dir` was made.
    #[inline]
    pub(crate) fn tell_created(&self, dir: &Inode, name: &[u8], ino: InodeNr) {
        self.tell(&[dir], || WatchEvent::Created {
            dir: dir.ino.0,
            name: name.to_vec(),
            ino: ino.0,
        });
    }

    /// Reports that a name of `dir` was removed.
    #[inline]
    pub(crate) fn tell_removed(&self, dir: &Inode, name: &[u8], inode: &Inode) {
        self.tell(&[dir, inode], || WatchEvent::Removed {
            dir: dir.ino.0,
            name: name.to_vec(),
            ino: inode.ino.0,
        });
    }

    /// Reports that the data or size of a file changed.
    #[inline]
    pub(crate) fn tell_written(&self, inode: &Inode) {
        self.tell(&[inode], || WatchEvent::Written { ino: inode.ino.0 });
    }

    /// Attributes of an inode were set.
    #[inline]
    pub(crate) fn tell_attributes(&self, inode: &Inode) {
        self.tell(&[inode], || WatchEvent::Attributes { ino: inode.ino.0 });
    }

    /// Begins to watch an inode, or the whole volume.
    pub(crate) fn watch(&self, inode: Option<&Inode>) -> Arc<Events> {
        let events = Arc::new(Events::default());
        let mut watching = self.watching.write();
        match inode {
            Some(inode) => {
                let list = watching.inodes.entry(inode.ino).or_default();
                list.push(Arc::clone(&events));
                inode.watched.store(true, Ordering::Relaxed);
            }
            None => {
                watching.volume.push(Arc::clone(&events));
                self.all.store(true, Ordering::Relaxed);
            }
        }
        drop(watching);
        // Check the volume after the watcher is registered, because a thread that ends the volume sets the flag first
        // and then notifies the watchers.
        if self.store.check_here().is_err() {
            events.push(&WatchEvent::Unmounted);
        }
        events
    }

    /// Ends a watch.
    pub(crate) fn unwatch(&self, inode: Option<&Inode>, events: &Arc<Events>) {
        let mut watching = self.watching.write();
        let others = |x: &Arc<Events>| !Arc::ptr_eq(x, events);
        match inode {
            Some(inode) => {
                if let Some(list) = watching.inodes.get_mut(&inode.ino) {
                    list.retain(others);
                    if list.is_empty() {
                        watching.inodes.remove(&inode.ino);
                        inode.watched.store(false, Ordering::Relaxed);
                    }
                }
            }
            None => {
                watching.volume.retain(others);
                let some = !watching.volume.is_empty();
                self.all.store(some, Ordering::Relaxed);
            }
        }
    }

    /// Notifies watchers of the volume that it is gone. Watchers of an inode are notified by the walk over all inodes
    /// in core [P3].
    pub(crate) fn tell_unmounted(&self, inode: Option<&Inode>) {
        let watching = self.watching.read();
        let told = match inode {
            None => Some(&watching.volume),
            Some(inode) if inode.watched.load(Ordering::Relaxed) => watching.inodes.get(&inode.ino),
            Some(_) => None,
        };
        for events in told.into_iter().flatten() {
            events.push(&WatchEvent::Unmounted);
        }
    }
}

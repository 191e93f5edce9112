//! An observer of every inode in core, as quotas need it (mechanism P3). A walk over the per-slot lists reports each
//! inode that is in core already, and later each inode is reported when it enters and leaves core.
//!
//! An inode is put on its list, and reported to the observer, under the lock of that list. So a walk that begins after
//! the observer was set meets every inode that entered unreported, and a walk that begins after the observer was
//! removed meets every inode that was reported. A flag in the inode is set once it was reported.

use crate::base::locks::{self, RwLock};
use crate::incore::inode::Inode;
use crate::inodes::Inodes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An inode as an [`InodeObserver`] sees it.
///
/// ```
/// let inode = extant::unstable::InodeInCore { ino: 12, uid: 1000, gid: 1000, sectors: 8 };
/// assert_eq!(inode.sectors * 512, 4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeInCore {
    /// Inode number.
    pub ino: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Sectors of 512 bytes it holds.
    pub sectors: u64,
}

/// Receives every inode in core: once when it enters, or is there already when the observer is set, and once when it
/// leaves, or the observer is removed. Calls are made with a lock held, so they must be short and must not use the
/// volume. Calls for different inodes may overlap. If a number is freed and taken again at once, the call for the new
/// inode may come before the last call for the old one.
///
/// ```
/// use extant::unstable::{InodeInCore, InodeObserver};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
///
/// #[derive(Default)]
/// struct Count(AtomicI64);
/// impl InodeObserver for Count {
///     fn comes(&self, _: &InodeInCore) { self.0.fetch_add(1, Relaxed); }
///     fn goes(&self, _: &InodeInCore) { self.0.fetch_sub(1, Relaxed); }
/// }
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let count = Arc::new(Count::default());
/// assert!(volume.observe_inodes(count.clone()));
/// let before = count.0.load(Relaxed);
/// volume.create_new_file("/new")?;
/// assert_eq!(count.0.load(Relaxed), before + 1);
/// volume.stop_observing();
/// assert_eq!(count.0.load(Relaxed), 0);
/// # Ok(())
/// # }
/// ```
pub trait InodeObserver: Send + Sync {
    /// Reports an inode that entered core.
    fn comes(&self, inode: &InodeInCore);
    /// Reports an inode that left core.
    fn goes(&self, inode: &InodeInCore);
}

/// The observer of a volume.
#[derive(Default)]
pub(crate) struct Observed {
    /// An observer is set; without one no lock is taken.
    some: AtomicBool,
    observer: RwLock<Option<Arc<dyn InodeObserver>>, locks::Observer>,
}

impl Inode {
    fn in_core(&self) -> InodeInCore {
        let (uid, gid, _) = self.owner_and_mode();
        InodeInCore {
            ino: self.ino.0,
            uid,
            gid,
            sectors: u64::try_from(self.sectors.load(Ordering::Relaxed)).unwrap_or(0),
        }
    }
}

impl Inodes {
    /// Puts an inode that entered core on the list of its slot, and reports it to the observer.
    #[inline(always)]
    pub(super) fn enlist(&self, inode: &Arc<Inode>) -> percpu::Position {
        let slot = percpu::slot::current();
        self.in_core
            .add_then_on(slot, Arc::clone(inode), |position| {
                inode.set_list_position(Some(position));
                if self.observed.some.load(Ordering::Relaxed) {
                    self.show_new(inode);
                }
            })
    }

    #[cold]
    #[inline(never)]
    fn show_new(&self, inode: &Inode) {
        if let Some(observer) = &*self.observed.observer.read() {
            show(&**observer, inode);
        }
    }

    #[cold]
    #[inline(never)]
    fn hide_old(&self, inode: &Inode) {
        if let Some(observer) = &*self.observed.observer.read() {
            hide(&**observer, inode);
        }
    }

    /// Takes an inode that leaves memory off its list.
    #[inline]
    pub(crate) fn delist(&self, inode: &Arc<Inode>) {
        let Some(position) = inode.list_position() else {
            return;
        };
        self.in_core.remove_if(position, |there| {
            // Another thread may have been faster, and another inode may be at this position by now.
            if !Arc::ptr_eq(there, inode) {
                return false;
            }
            inode.set_list_position(None);
            if inode.observed.load(Ordering::Relaxed) {
                self.hide_old(inode);
            }
            true
        });
    }

    /// Sets the observer and shows it every inode in core; false if there is one.
    pub(crate) fn observe(&self, observer: Arc<dyn InodeObserver>) -> bool {
        let mut place = self.observed.observer.write();
        if place.is_some() {
            return false;
        }
        *place = Some(Arc::clone(&observer));
        drop(place);
        self.observed.some.store(true, Ordering::Relaxed);
        for inode in self.in_core.iter() {
            if let Some(observer) = &*self.observed.observer.read() {
                let Some(position) = inode.list_position() else {
                    continue;
                };
                show(&**observer, &inode);
                // The inode may have left since the walk met it. A thread that removes it from its list from here on
                // sees that it was reported. A thread that removed it before has finished by now.
                self.in_core.wait(position);
                if inode.list_position().is_none() {
                    hide(&**observer, &inode);
                }
            }
        }
        true
    }

    /// Takes the observer away, from every inode in core.
    pub(crate) fn stop_observing(&self) {
        self.observed.some.store(false, Ordering::Relaxed);
        for inode in self.in_core.iter() {
            if let Some(observer) = &*self.observed.observer.read() {
                hide(&**observer, &inode);
            }
        }
        *self.observed.observer.write() = None;
    }
}

fn show(observer: &dyn InodeObserver, inode: &Inode) {
    if !inode.observed.swap(true, Ordering::AcqRel) {
        observer.comes(&inode.in_core());
    }
}

fn hide(observer: &dyn InodeObserver, inode: &Inode) {
    if inode.observed.swap(false, Ordering::AcqRel) {
        observer.goes(&inode.in_core());
    }
}

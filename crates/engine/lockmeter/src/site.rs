//! Call sites and their counts. Each thread counts in cells that only it writes. A snapshot adds up the cells of all
//! threads, and those of threads that have ended.

use crate::class::Class;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::Location;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// log2 classes of nanoseconds: the last one holds everything from a second up.
pub(crate) const CLASSES: usize = 32;
/// Holders that a cell remembers.
const HOLDERS: usize = 4;
/// Call sites that a thread finds without a search.
const CACHED: usize = 128;

/// A counter that one thread writes and others read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    #[inline]
    fn max(&self, n: u64) {
        if n > self.0.load(Ordering::Relaxed) {
            self.0.store(n, Ordering::Relaxed);
        }
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts of one thread at one call site.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    pub site: u16,
    pub acquisitions: Count,
    pub contentions: Count,
    pub failed_tries: Count,
    pub hand_overs: Count,
    pub objects_known: Count,
    pub different_objects: Count,
    pub wait_ns: Count,
    pub wait_cpu_ns: Count,
    pub wait_max_ns: Count,
    pub hold_samples: Count,
    pub hold_ns: Count,
    pub hold_max_ns: Count,
    pub wait_log2: [Count; CLASSES],
    pub hold_log2: [Count; CLASSES],
    /// Site in the upper sixteen bits, times waited for it below.
    pub holders: [Count; HOLDERS],
}

fn log2_class(ns: u64) -> usize {
    ((u64::BITS - ns.leading_zeros()) as usize).min(CLASSES - 1)
}

impl Cell {
    /// Counts an acquisition that waited for `ns`, of which its thread ran for `cpu_ns`; `holder` is the call site
    /// that held the lock then, 0 if unknown.
    #[cold]
    pub fn waited(&self, ns: u64, cpu_ns: u64, holder: u16) {
        self.contentions.add(1);
        self.wait_ns.add(ns);
        self.wait_cpu_ns.add(cpu_ns);
        self.wait_max_ns.max(ns);
        self.wait_log2[log2_class(ns)].add(1);
        if holder == 0 {
            return;
        }
        let of = |c: &Count| (c.get() >> 48) as u16;
        let known = self.holders.iter().find(|c| of(c) == holder);
        match known.or_else(|| self.holders.iter().find(|c| c.get() == 0)) {
            Some(count) if count.get() == 0 => count.add(u64::from(holder) << 48 | 1),
            Some(count) => count.add(1),
            // The holder with the lowest count loses its place over time.
            None => {
                if let Some(least) = self.holders.iter().min_by_key(|c| c.get() << 16 >> 16) {
                    let left = (least.get() << 16 >> 16).saturating_sub(1);
                    let next = if left == 0 { 0 } else { least.get() - 1 };
                    least.0.store(next, Ordering::Relaxed);
                }
            }
        }
    }

    /// Counts a wait or a failed try by whether the holder wanted another object, if that is known.
    #[cold]
    pub fn met(&self, differs: Option<bool>) {
        if let Some(differs) = differs {
            self.objects_known.add(1);
            self.different_objects.add(u64::from(differs));
        }
    }

    /// Counts a hold of this length.
    pub fn held(&self, ns: u64) {
        self.hold_samples.add(1);
        self.hold_ns.add(ns);
        self.hold_max_ns.max(ns);
        self.hold_log2[log2_class(ns)].add(1);
    }

    /// Adds the counts of another cell of the same site.
    pub fn absorb(&self, other: &Cell) {
        for (a, b) in [
            (&self.acquisitions, &other.acquisitions),
            (&self.contentions, &other.contentions),
            (&self.failed_tries, &other.failed_tries),
            (&self.hand_overs, &other.hand_overs),
            (&self.objects_known, &other.objects_known),
            (&self.different_objects, &other.different_objects),
            (&self.wait_ns, &other.wait_ns),
            (&self.wait_cpu_ns, &other.wait_cpu_ns),
            (&self.hold_samples, &other.hold_samples),
            (&self.hold_ns, &other.hold_ns),
        ] {
            a.add(b.get());
        }
        self.wait_max_ns.max(other.wait_max_ns.get());
        self.hold_max_ns.max(other.hold_max_ns.get());
        let histograms = self.wait_log2.iter().zip(&other.wait_log2);
        let histograms = histograms.chain(self.hold_log2.iter().zip(&other.hold_log2));
        histograms.for_each(|(a, b)| a.add(b.get()));
    }
}

/// A place in the source where locks of a class are taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub class: &'static Class,
    pub place: &'static Location<'static>,
}

/// Every site, and the cells of all threads.
#[derive(Default)]
pub(crate) struct Registry {
    /// Site `n` has number `n + 1`. The number 0 means no site.
    pub sites: Vec<Site>,
    numbers: HashMap<(usize, &'static Location<'static>), u16>,
    pub live: Vec<Arc<Cell>>,
    /// Cells of threads that have ended, by site.
    pub ended: HashMap<u16, Arc<Cell>>,
    /// Holders seen by threads that have ended: (site, holder) to the number of waits.
    pub ended_holders: HashMap<(u16, u16), u64>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

/// Runs `f` on the registry.
pub(crate) fn with_registry<R>(f: impl FnOnce(&mut Registry) -> R) -> R {
    let mut guard: MutexGuard<'_, Option<Registry>> =
        REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    f(guard.get_or_insert_default())
}

impl Registry {
    /// Returns the number of a site, or `None` past 65,535 sites, which are not metered.
    fn number(&mut self, site: Site) -> Option<u16> {
        let key = (std::ptr::from_ref(site.class).addr(), site.place);
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        let number = u16::try_from(self.sites.len() + 1).ok()?;
        self.sites.push(site);
        self.numbers.insert(key, number);
        Some(number)
    }

    /// Makes a cell for one more thread at a site.
    fn cell(&mut self, site: Site) -> Option<Arc<Cell>> {
        let cell = Arc::new(Cell {
            site: self.number(site)?,
            ..Cell::default()
        });
        self.live.push(Arc::clone(&cell));
        Some(cell)
    }
}

/// Parts a holder word into the site and the number of waits for it.
pub(crate) fn holder_of(word: u64) -> Option<(u16, u64)> {
    (word != 0).then_some(((word >> 48) as u16, word << 16 >> 16))
}

/// A thread's own cells.
struct Own {
    thread: u16,
    cached: [Option<(usize, usize, Arc<Cell>)>; CACHED],
    all: HashMap<(usize, usize), Arc<Cell>>,
}

static THREADS: AtomicU16 = AtomicU16::new(0);

impl Own {
    fn new() -> Self {
        Self {
            // Thread numbers repeat after 65,535 threads. A hand-over between two threads of one number is missed
            // then.
            thread: THREADS.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            cached: [const { None }; CACHED],
            all: HashMap::new(),
        }
    }

    #[cold]
    fn find(&mut self, site: Site, key: (usize, usize), slot: usize) -> Option<()> {
        let cell = match self.all.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(with_registry(|registry| registry.cell(site))?),
        };
        self.cached[slot] = Some((key.0, key.1, Arc::clone(cell)));
        Some(())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let cells = std::mem::take(&mut self.all);
        self.cached = [const { None }; CACHED];
        with_registry(|registry| {
            for cell in cells.into_values() {
                registry.live.retain(|c| !Arc::ptr_eq(c, &cell));
                registry
                    .ended
                    .entry(cell.site)
                    .or_insert_with(|| {
                        Arc::new(Cell {
                            site: cell.site,
                            ..Cell::default()
                        })
                    })
                    .absorb(&cell);
                for (holder, times) in cell.holders.iter().filter_map(|c| holder_of(c.get())) {
                    *registry
                        .ended_holders
                        .entry((cell.site, holder))
                        .or_default() += times;
                }
            }
        });
    }
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::new(Own::new());
}

/// Runs `f` on the calling thread's cell of a site, with the thread's number. Returns `None` while the thread ends, or
/// if a lock is taken from within the meter.
#[inline]
pub(crate) fn with_cell<R>(site: Site, f: impl FnOnce(&Arc<Cell>, u16) -> R) -> Option<R> {
    OWN.try_with(|own| {
        let mut own = own.try_borrow_mut().ok()?;
        let key = (
            std::ptr::from_ref(site.place).addr(),
            std::ptr::from_ref(site.class).addr(),
        );
        // Locations are 24 bytes apart, or more.
        let slot = ((key.0 >> 3) ^ (key.1 >> 3)) % CACHED;
        let hit = own.cached[slot].as_ref().is_some_and(|c| (c.0, c.1) == key);
        if !hit {
            own.find(site, key, slot)?;
        }
        let thread = own.thread;
        own.cached[slot]
            .as_ref()
            .map(|(_, _, cell)| f(cell, thread))
    })
    .ok()
    .flatten()
}

//! All counts at one moment.

use crate::site::{CLASSES, Cell, holder_of, with_registry};
use crate::switch::metered_ns;
use serde::Serialize;
use std::collections::BTreeMap;

/// Counts of one call site, or of all call sites of a class.
///
/// ```
/// let none = lockmeter::Stats::default();
/// assert_eq!((none.contention(), none.hold_mean_ns()), (0.0, 0.0));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    /// Times the lock was taken.
    pub acquisitions: u64,
    /// Acquisitions that had to wait.
    pub contentions: u64,
    /// Tries (`try_lock` and the like) that found the lock taken.
    pub failed_tries: u64,
    /// Acquisitions after which the lock had another owner than before.
    pub hand_overs: u64,
    /// Waits and failed tries of which it is known what waiter and holder wanted ([`wanting`](crate::wanting)).
    pub objects_known: u64,
    /// Of these, those in which they wanted different objects: they met only because one lock protects both.
    pub different_objects: u64,
    /// Nanoseconds waited, all together.
    pub wait_ns: u64,
    /// Nanoseconds of CPU that the waits took, for spinning and for going to sleep: time that other threads could
    /// have used. 0 where the system does not tell (elsewhere than Linux).
    pub wait_cpu_ns: u64,
    /// The longest wait, since the process began.
    pub wait_max_ns: u64,
    /// Acquisitions whose hold was measured.
    pub hold_samples: u64,
    /// Nanoseconds held in the sampled acquisitions.
    pub hold_ns: u64,
    /// The longest hold that was measured, since the process began.
    pub hold_max_ns: u64,
    /// Waits by length: entry `n` counts waits of `[2^(n-1), 2^n)` ns, the last entry all longer ones.
    pub wait_log2: Vec<u64>,
    /// Holds by length, likewise.
    pub hold_log2: Vec<u64>,
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

impl Stats {
    /// Returns the share of the acquisitions that had to wait, 0 to 1.
    pub fn contention(&self) -> f64 {
        ratio(self.contentions, self.acquisitions)
    }

    /// Returns the share of the waits and failed tries in which the holder wanted another object, 0 to 1, or `None` if
    /// both objects were never known.
    ///
    /// ```
    /// assert_eq!(lockmeter::Stats::default().different(), None);
    /// ```
    pub fn different(&self) -> Option<f64> {
        (self.objects_known > 0).then(|| ratio(self.different_objects, self.objects_known))
    }

    /// Returns the mean hold in nanoseconds.
    pub fn hold_mean_ns(&self) -> f64 {
        ratio(self.hold_ns, self.hold_samples)
    }

    /// Returns the mean wait of the acquisitions that waited, in nanoseconds.
    pub fn wait_mean_ns(&self) -> f64 {
        ratio(self.wait_ns, self.contentions)
    }

    /// Nanoseconds held in all acquisitions, extrapolated from the samples.
    pub fn hold_total_ns(&self) -> f64 {
        self.hold_mean_ns() * self.acquisitions as f64
    }

    /// Returns the sorting key: time waited, then time held.
    fn cost(&self) -> (u64, u64) {
        (self.wait_ns, self.hold_total_ns() as u64)
    }

    fn add(&mut self, other: &Self) {
        self.acquisitions += other.acquisitions;
        self.contentions += other.contentions;
        self.failed_tries += other.failed_tries;
        self.hand_overs += other.hand_overs;
        self.objects_known += other.objects_known;
        self.different_objects += other.different_objects;
        self.wait_ns += other.wait_ns;
        self.wait_cpu_ns += other.wait_cpu_ns;
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
        self.hold_samples += other.hold_samples;
        self.hold_ns += other.hold_ns;
        self.hold_max_ns = self.hold_max_ns.max(other.hold_max_ns);
        for (a, b) in [
            (&mut self.wait_log2, &other.wait_log2),
            (&mut self.hold_log2, &other.hold_log2),
        ] {
            a.resize(CLASSES, 0);
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        }
    }

    fn less(&self, before: &Self) -> Self {
        let less = |a: u64, b: u64| a.saturating_sub(b);
        let each = |a: &[u64], b: &[u64]| {
            let b = b.iter().copied().chain(std::iter::repeat(0));
            a.iter().zip(b).map(|(a, b)| less(*a, b)).collect()
        };
        Self {
            acquisitions: less(self.acquisitions, before.acquisitions),
            contentions: less(self.contentions, before.contentions),
            failed_tries: less(self.failed_tries, before.failed_tries),
            hand_overs: less(self.hand_overs, before.hand_overs),
            objects_known: less(self.objects_known, before.objects_known),
            different_objects: less(self.different_objects, before.different_objects),
            wait_ns: less(self.wait_ns, before.wait_ns),
            wait_cpu_ns: less(self.wait_cpu_ns, before.wait_cpu_ns),
            hold_samples: less(self.hold_samples, before.hold_samples),
            hold_ns: less(self.hold_ns, before.hold_ns),
            wait_log2: each(&self.wait_log2, &before.wait_log2),
            hold_log2: each(&self.hold_log2, &before.hold_log2),
            ..self.clone()
        }
    }

    fn is_empty(&self) -> bool {
        self.acquisitions == 0 && self.failed_tries == 0
    }

    fn of(cell: &Cell) -> Self {
        Self {
            acquisitions: cell.acquisitions.get(),
            contentions: cell.contentions.get(),
            failed_tries: cell.failed_tries.get(),
            hand_overs: cell.hand_overs.get(),
            objects_known: cell.objects_known.get(),
            different_objects: cell.different_objects.get(),
            wait_ns: cell.wait_ns.get(),
            wait_cpu_ns: cell.wait_cpu_ns.get(),
            wait_max_ns: cell.wait_max_ns.get(),
            hold_samples: cell.hold_samples.get(),
            hold_ns: cell.hold_ns.get(),
            hold_max_ns: cell.hold_max_ns.get(),
            wait_log2: cell.wait_log2.iter().map(|c| c.get()).collect(),
            hold_log2: cell.hold_log2.iter().map(|c| c.get()).collect(),
        }
    }
}

/// A call site that held the lock when another call site had to wait for it.
///
/// ```
/// lockmeter::lock_class!(Turn = "turn");
/// let turn: lockmeter::Mutex<(), Turn> = lockmeter::Mutex::new(());
/// lockmeter::set_on(true);
/// let held = turn.lock();
/// std::thread::scope(|s| {
///     s.spawn(|| drop(turn.lock()));
///     std::thread::sleep(std::time::Duration::from_millis(20));
///     drop(held);
/// });
/// let seen = lockmeter::Snapshot::take();
/// let waiter = seen.class("turn").unwrap().sites.iter().find(|s| s.stats.contentions > 0);
/// assert_eq!(waiter.unwrap().holders[0].times, 1);
/// # lockmeter::set_on(false);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// `file:line:column`.
    pub place: String,
    /// Waits for it, as far as remembered.
    pub times: u64,
}

/// A call site.
///
/// ```
/// lockmeter::lock_class!(Two = "two places");
/// let lock: lockmeter::Mutex<(), Two> = lockmeter::Mutex::new(());
/// lockmeter::set_on(true);
/// drop(lock.lock());
/// drop(lock.lock());
/// let seen = lockmeter::Snapshot::take();
/// assert_eq!(seen.class("two places").unwrap().sites.len(), 2);
/// # lockmeter::set_on(false);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteStats {
    /// `file:line:column`.
    pub place: String,
    /// The counts of this call site.
    pub stats: Stats,
    /// Call sites for which this one waited, the most frequent first.
    pub holders: Vec<Holder>,
}

/// A class with its call sites.
///
/// ```
/// lockmeter::lock_class!(One = "one class");
/// let lock: lockmeter::SpinLock<u8, One> = lockmeter::SpinLock::new(1);
/// lockmeter::set_on(true);
/// assert_eq!(*lock.lock(), 1);
/// let class = lockmeter::Snapshot::take().class("one class").cloned().unwrap();
/// assert_eq!(class.total, class.sites[0].stats);
/// # lockmeter::set_on(false);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassStats {
    /// Name of the class.
    pub name: String,
    /// All sites together.
    pub total: Stats,
    /// The call sites, the costliest first.
    pub sites: Vec<SiteStats>,
}

/// All counts of the process at one moment, the costliest class first. Displayed it is the report, serialized the
/// JSON.
///
/// ```
/// lockmeter::lock_class!(Inode = "inode");
/// let inode: lockmeter::RwLock<u32, Inode> = lockmeter::RwLock::new(0);
/// lockmeter::set_on(true);
/// let before = lockmeter::Snapshot::take();
/// for _ in 0..10 {
///     *inode.write() += 1;
/// }
/// let seen = lockmeter::Snapshot::take().since(&before);
/// assert_eq!(seen.class("inode").unwrap().total.acquisitions, 10);
/// # lockmeter::set_on(false);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Nanoseconds for which the meter was on.
    pub metered_ns: u64,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// Classes that were used.
    pub classes: Vec<ClassStats>,
}

impl Snapshot {
    /// Adds up the counts of all threads. Threads that run meanwhile may be one acquisition ahead.
    pub fn take() -> Self {
        type Sites = BTreeMap<String, (Stats, BTreeMap<String, u64>)>;
        let mut classes: BTreeMap<&str, Sites> = BTreeMap::new();
        with_registry(|registry| {
            let name = |site: u16| {
                let site = registry.sites.get(usize::from(site).checked_sub(1)?)?;
                let p = site.place;
                let place = format!("{}:{}:{}", p.file(), p.line(), p.column());
                Some((site.class.name(), place))
            };
            for cell in registry.live.iter().chain(registry.ended.values()) {
                let Some((class, place)) = name(cell.site) else {
                    continue;
                };
                let site = classes.entry(class).or_default().entry(place).or_default();
                site.0.add(&Stats::of(cell));
                for (holder, times) in cell.holders.iter().filter_map(|c| holder_of(c.get())) {
                    if let Some((_, place)) = name(holder) {
                        *site.1.entry(place).or_default() += times;
                    }
                }
            }
            for (&(site, holder), times) in &registry.ended_holders {
                if let (Some((class, place)), Some((_, holder))) = (name(site), name(holder)) {
                    let site = classes.entry(class).or_default().entry(place).or_default();
                    *site.1.entry(holder).or_default() += times;
                }
            }
        });
        let classes = classes.into_iter().map(|(name, sites)| {
            let sites = sites
                .into_iter()
                .map(|(place, (stats, holders))| SiteStats {
                    place,
                    stats,
                    holders: holders
                        .into_iter()
                        .map(|(place, times)| Holder { place, times })
                        .collect(),
                });
            (name.to_string(), sites.collect())
        });
        Self::of(metered_ns(), classes)
    }

    fn of(metered_ns: u64, classes: impl Iterator<Item = (String, Vec<SiteStats>)>) -> Self {
        let by_cost = |a: &Stats, b: &Stats| b.cost().cmp(&a.cost());
        let mut classes: Vec<_> = classes
            .map(|(name, mut sites)| {
                let mut total = Stats::default();
                sites.retain(|s| !s.stats.is_empty());
                sites.iter().for_each(|s| total.add(&s.stats));
                sites.sort_by(|a, b| by_cost(&a.stats, &b.stats));
                for site in &mut sites {
                    site.holders.sort_by_key(|h| std::cmp::Reverse(h.times));
                }
                ClassStats { name, total, sites }
            })
            .filter(|c| !c.total.is_empty())
            .collect();
        classes.sort_by(|a, b| by_cost(&a.total, &b.total));
        Self {
            metered_ns,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            classes,
        }
    }

    /// Subtracts an earlier snapshot from this one. Maxima cannot be subtracted: they stay those since the process
    /// began.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let classes = self.classes.iter().map(|class| {
            let old = before.class(&class.name);
            let sites = class.sites.iter().map(|site| {
                let old = old.and_then(|c| c.sites.iter().find(|s| s.place == site.place));
                let Some(old) = old else {
                    return site.clone();
                };
                let holders = site.holders.iter().map(|h| {
                    let was = old.holders.iter().find(|o| o.place == h.place);
                    Holder {
                        place: h.place.clone(),
                        times: h.times.saturating_sub(was.map_or(0, |o| o.times)),
                    }
                });
                SiteStats {
                    place: site.place.clone(),
                    stats: site.stats.less(&old.stats),
                    holders: holders.filter(|h| h.times > 0).collect(),
                }
            });
            (class.name.clone(), sites.collect())
        });
        Self::of(self.metered_ns.saturating_sub(before.metered_ns), classes)
    }

    /// Returns the `most` costliest classes, without their call sites.
    #[must_use]
    pub fn summary(&self, most: usize) -> Self {
        let classes = self.classes.iter().take(most).map(|c| ClassStats {
            sites: Vec::new(),
            ..c.clone()
        });
        Self {
            classes: classes.collect(),
            ..*self
        }
    }

    /// Returns a class by its name, if any lock of it was used.
    pub fn class(&self, name: &str) -> Option<&ClassStats> {
        self.classes.iter().find(|c| c.name == name)
    }

    /// Returns the share of the metered span's CPU time that was lost to these waits, 0 to 1. A thread that sleeps
    /// until it has the lock leaves its processor to others, so its sleep does not count.
    pub fn wait_share(&self, stats: &Stats) -> f64 {
        ratio(
            stats.wait_cpu_ns,
            self.metered_ns.saturating_mul(self.cpus as u64),
        )
    }

    /// Returns the share of the metered span in which a lock of these stats was held; above 1 for classes of many
    /// locks.
    pub fn utilisation(&self, stats: &Stats) -> f64 {
        if self.metered_ns == 0 {
            0.0
        } else {
            stats.hold_total_ns() / self.metered_ns as f64
        }
    }
}

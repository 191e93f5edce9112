//! Many seeds over one image, with limits of time and memory.

use crate::common::*;
use crate::image::{metadata, open_as, populate};
use crate::map::Map;
use crate::mutate::{Targets, mutate};
use crate::operations::{change, remove_all, walk};
use blockdev::MemDevice;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest time of a seed.
const PATIENCE: Duration = Duration::from_secs(60);
/// An image kept by a failure, to reproduce it, because a new image would have other times.
const BASE: &str = "EXTANT_BASE";
/// The memory limit for all seeds that run at the same time; each copies little of its image.
const MEMORY: u64 = 2 << 30;

pub struct Campaign<'a> {
    pub name: &'a str,
    pub args: &'a [&'a str],
    /// The journal holds transactions to replay.
    pub dirty: bool,
    /// Checksums are repaired, for all but a few seeds.
    pub sealed: bool,
}

/// The image and its known structures.
struct Base {
    device: Arc<MemDevice>,
    map: Map,
    block: usize,
}

impl Base {
    fn new(args: &[&str], dirty: bool) -> Self {
        let device = match std::env::var_os(BASE) {
            Some(path) => Arc::new(load_image(path)),
            None => populate(args, dirty),
        };
        let replayed = Arc::new(device.snapshot());
        let v = open_as(&replayed, false).unwrap();
        let block = v.geometry().block_size as usize;
        v.close().unwrap();
        let map = Map::new(&device, &replayed);
        Self { device, map, block }
    }
}

fn attack(base: &Base, targets: &Targets<'_>, sealed: bool, seed: u64) {
    let mut rng = Rng::new(seed);
    let device = Arc::new(base.device.snapshot());
    let touched = mutate(&device, targets, &mut rng);
    if sealed && rng.below(16) != 0 {
        base.map.seal(&device, &touched);
    }
    if let Ok(v) = open_as(&Arc::new(device.snapshot()), true) {
        walk(&v);
        let _ = v.close();
    }
    if let Ok(v) = open_as(&device, false) {
        let files = if rng.below(2) == 0 {
            walk(&v)
        } else {
            vec!["/d0/f3".into(), "/d1".into(), "/deep".into(), "/big".into()]
        };
        change(&v, &files, &mut rng);
        if rng.below(4) == 0 {
            remove_all(&v, &files);
        }
        let _ = v.close();
        if let Ok(v) = open_as(&device, false) {
            let _ = v.close();
        }
    }
}

impl Campaign<'_> {
    /// Runs the seeds on some threads, with a watchdog.
    pub fn run(&self, short: u64, long: u64) {
        needs::tools!("mke2fs");
        bound_memory();
        let base = Base::new(self.args, self.dirty);
        let others = metadata(&base.device, base.block);
        let targets = Targets::new(&base.map, base.block, others);
        let Range { start, end } = seeds(0, short, long);
        let next = AtomicU64::new(start);
        let workers = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .min(8);
        let running: Vec<Mutex<Option<(u64, Instant)>>> =
            (0..workers).map(|_| Mutex::new(None)).collect();
        let failures = Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for mine in &running {
                let (next, failures, base, targets) = (&next, &failures, &base, &targets);
                s.spawn(move || {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= end {
                            return;
                        }
                        *mine.lock().unwrap() = Some((seed, Instant::now()));
                        let run = || attack(base, targets, self.sealed, seed);
                        if catch_unwind(AssertUnwindSafe(run)).is_err() {
                            failures.lock().unwrap().push(seed);
                        }
                        *mine.lock().unwrap() = None;
                    }
                });
            }
            while next.load(Ordering::Relaxed) < end
                || running.iter().any(|r| r.lock().unwrap().is_some())
            {
                std::thread::sleep(Duration::from_millis(20));
                self.watch(&running, &base);
            }
        });
        let failures = failures.into_inner().unwrap();
        assert!(
            failures.is_empty(),
            "{}: panics; {}",
            self.name,
            self.again(&base, &failures)
        );
    }

    /// Instructions to reproduce a failure.
    fn again(&self, base: &Base, seeds: &[u64]) -> String {
        let path = format!(
            "{}/hostile-{}.image",
            env!("CARGO_TARGET_TMPDIR"),
            self.name
        );
        write_image(&base.device, path.as_ref());
        format!("repeat one of {seeds:?} with EXTANT_SEED=n {BASE}={path}")
    }

    /// Ends the process when a seed hangs or memory runs out: its thread cannot be ended alone, and
    /// the scope would wait for it.
    fn watch(&self, running: &[Mutex<Option<(u64, Instant)>>], base: &Base) {
        let now: Vec<(u64, Instant)> = running.iter().filter_map(|r| *r.lock().unwrap()).collect();
        for (seed, since) in &now {
            if since.elapsed() > PATIENCE {
                end(&format!(
                    "{}: hangs; {}",
                    self.name,
                    self.again(base, &[*seed])
                ));
            }
        }
        let resident = resident();
        if resident > MEMORY {
            let seeds: Vec<u64> = now.iter().map(|(seed, _)| *seed).collect();
            end(&format!(
                "{}: {resident} bytes of memory; {}",
                self.name,
                self.again(base, &seeds)
            ));
        }
    }

    /// Sealing unbroken blocks changes nothing.
    pub fn sealing_is_right(&self) {
        needs::tools!("mke2fs");
        let base = Base::new(self.args, self.dirty);
        let device = base.device.snapshot();
        // A block of which the log holds a newer image may never have been written to its home.
        let all: BTreeSet<u64> = base
            .map
            .blocks
            .keys()
            .copied()
            .filter(|nr| !base.map.newest.contains_key(nr))
            .collect();
        base.map.seal(&device, &all);
        let (before, after) = (base.device.to_bytes().unwrap(), device.to_bytes().unwrap());
        for nr in all {
            let range = nr as usize * base.block..(nr as usize + 1) * base.block;
            assert!(
                before[range.clone()] == after[range],
                "{}: block {nr}, {:?}",
                self.name,
                base.map.blocks[&nr]
            );
        }
        assert!(before == after, "{}: what is not on the map", self.name);
    }
}

/// Ends the process with a message that the test harness does not keep to itself.
fn end(why: &str) -> ! {
    let _ = writeln!(std::io::stderr(), "{why}");
    std::process::exit(101)
}

/// An allocation as large as a broken size fails at once.
fn bound_memory() {
    let limit = Rlimit {
        current: Some(8 * MEMORY),
        maximum: getrlimit(Resource::As).maximum,
    };
    setrlimit(Resource::As, limit).expect("a limit below the one there is");
}

/// Returns the bytes of memory that this process holds.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

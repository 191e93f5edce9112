//! A demonstration load: threads that create, write, read, rename and remove files on a volume in memory.

use anyhow::{Context, Result, anyhow};
use blockdev::MemDevice;
use extant::mkfs::{self, MkfsOptions};
use extant::{RenameMode, Volume, VolumeOptions};
use extant_fuse::RequestCount;
use extant_fuse::control::Status;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Size of the volume.
const SIZE: u64 = 512 << 20;
/// Files of each thread at a time.
const FILES: usize = 500;
/// Files between two rests of a thread, because a demonstration should not load the machine.
const ROUND: usize = 50;
const REST: Duration = Duration::from_millis(5);

const KINDS: [&str; 7] = [
    "create", "write", "read", "getattr", "rename", "unlink", "fsync",
];

#[derive(Default)]
struct Cell {
    operations: AtomicU64,
    ns: AtomicU64,
    bytes: AtomicU64,
}

/// The counts of a thread, on separate cache lines.
#[derive(Default)]
#[repr(align(128))]
struct TaskPart([Cell; KINDS.len()]);

impl TaskPart {
    fn count(
        &self,
        kind: usize,
        bytes: u64,
        work: impl FnOnce() -> extant::Result<()>,
    ) -> extant::Result<()> {
        let since = Instant::now();
        let done = work();
        if let Some(cell) = self.0.get(kind) {
            let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            cell.operations.fetch_add(1, Relaxed);
            cell.ns.fetch_add(ns, Relaxed);
            cell.bytes.fetch_add(bytes, Relaxed);
        }
        done
    }
}

struct Shared {
    volume: Volume,
    parts: Vec<TaskPart>,
    stop: AtomicBool,
    failed: Mutex<Option<String>>,
}

/// Running threads, which end when this is dropped.
pub struct Demo {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    since: Instant,
}

impl Demo {
    /// Makes the volume and starts the threads.
    pub fn start() -> Result<Self> {
        let device = Arc::new(MemDevice::new(SIZE));
        let options = MkfsOptions {
            size: Some(SIZE),
            label: "demo".into(),
            zeroed_device: true,
            ..MkfsOptions::default()
        };
        mkfs::format(&*device, &options).context("make a volume in memory")?;
        let volume = VolumeOptions::new()
            .commit_interval(Duration::from_secs(1))
            .open_device(device)?;
        let count = thread::available_parallelism().map_or(2, |n| n.get() * 2);
        let demo = Self {
            shared: Arc::new(Shared {
                volume,
                parts: (0..count).map(|_| TaskPart::default()).collect(),
                stop: AtomicBool::new(false),
                failed: Mutex::default(),
            }),
            threads: Vec::new(),
            since: Instant::now(),
        };
        (0..count).try_fold(demo, |mut demo, task| {
            let shared = Arc::clone(&demo.shared);
            let worker = thread::Builder::new().name("demo".into());
            let started = worker
                .spawn(move || shared.work(task))
                .context("cannot start a thread")?;
            demo.threads.push(started);
            Ok(demo)
        })
    }

    /// Returns the present counters.
    pub fn status(&self) -> Result<Status> {
        if let Some(why) = &*self.shared.failed() {
            return Err(anyhow!("the demonstration failed: {why}"));
        }
        let status = Status::of(&self.shared.volume)?;
        let requests = KINDS.iter().enumerate().map(|(kind, name)| {
            let cells = self.shared.parts.iter().filter_map(|part| part.0.get(kind));
            let mut sum = RequestCount {
                kind: (*name).into(),
                ..RequestCount::default()
            };
            for cell in cells {
                sum.requests += cell.operations.load(Relaxed);
                sum.total_us += cell.ns.load(Relaxed) as f64 / 1000.0;
                sum.bytes += cell.bytes.load(Relaxed);
            }
            sum
        });
        Ok(Status {
            image: "a volume in memory".into(),
            transport: "in process".into(),
            uptime_seconds: self.since.elapsed().as_secs_f64(),
            requests: requests.collect(),
            ..status
        })
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported it.
            let _ = thread.join();
        }
        // The volume is in memory and no longer needed.
        let _ = self.shared.volume.clone().close();
    }
}

impl Shared {
    fn failed(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.failed
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn work(&self, task: usize) {
        let Some(part) = self.parts.get(task) else {
            return;
        };
        if let Err(e) = self.turns(task, part) {
            *self.failed() = Some(e.to_string());
        }
    }

    /// Runs a thread: each file lives for a while, half of them in a directory that all threads share.
    fn turns(&self, task: usize, part: &TaskPart) -> extant::Result<()> {
        let volume = self.volume.clone();
        let own = volume.create_dir(format!("/thread{task}"))?;
        match volume.create_dir("/shared") {
            Ok(_) | Err(extant::Error::Exists) => {}
            Err(e) => return Err(e),
        }
        let shared = volume.open_dir("/shared")?;
        let data = vec![0x5a; 4096];
        let mut buffer = vec![0; 4096];
        for n in 0.. {
            if self.stop.load(Relaxed) {
                return Ok(());
            }
            let dir = if n % 2 == 0 { &own } else { &shared };
            let (name, renamed) = (format!("{task}.{n}"), format!("{task}.{n}.renamed"));
            let mut file = None;
            part.count(0, 0, || {
                file = Some(dir.create_new_file(&name)?);
                Ok(())
            })?;
            if let Some(file) = &file {
                part.count(1, 4096, || file.write_all_at(&data, 0))?;
                part.count(2, 4096, || file.read_at(&mut buffer, 0).map(drop))?;
                if n % 200 == 0 {
                    part.count(6, 0, || file.sync_all())?;
                }
            }
            drop(file);
            part.count(3, 0, || dir.metadata(&name).map(drop))?;
            part.count(4, 0, || {
                dir.rename_with(&name, &renamed, RenameMode::NoReplace)
            })?;
            if let Some(old) = usize::checked_sub(n, FILES) {
                let old = format!("{task}.{old}.renamed");
                part.count(5, 0, || dir.remove_file(&old))?;
            }
            if n % ROUND == 0 {
                thread::sleep(REST);
            }
        }
        Ok(())
    }
}

//! Worker processes, and the process that watches them.

use crate::bases::{self, KINDS};
use crate::image::metadata;
use crate::images::mutant::Mutant;
use crate::mutate::Targets;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time limit for all steps of a mutant.
const PATIENCE: Duration = Duration::from_secs(20);
/// Memory of a worker, in bytes.
const MEMORY: u64 = 1 << 30;
/// The share of a worker: directory, first seed, end, step.
const SHARE: &str = "EXTANT_IMAGES_SHARE";
/// Bases kept by an earlier run, because new ones have other times.
const BASES: &str = "EXTANT_BASES";

/// The part of the seeds that one worker takes.
pub struct WorkShare {
    dir: PathBuf,
    seeds: Range<u64>,
    step: usize,
}

/// The message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

impl WorkShare {
    /// Returns the share if this process is a worker.
    pub fn of_this_process() -> Option<Self> {
        let share = std::env::var(SHARE).ok()?;
        let mut parts = share.split('\n');
        let dir = parts.next()?.into();
        let mut number = || parts.next()?.parse::<u64>().ok();
        Some(Self {
            dir,
            seeds: number()?..number()?,
            step: number()? as usize,
        })
    }

    pub fn run(self) {
        let limit = Rlimit {
            current: Some(8 * MEMORY),
            maximum: getrlimit(Resource::As).maximum,
        };
        setrlimit(Resource::As, limit).expect("a limit below the one there is");
        std::panic::set_hook(Box::new(|info| {
            if let Ok(mut panic) = PANIC.lock() {
                *panic = info.to_string();
            }
        }));
        let scratch = self.dir.join(format!("worker{}", std::process::id()));
        let bases = bases::load_all(&self.dir);
        let targets: Vec<_> = bases
            .iter()
            .map(|b| Targets::new(&b.map, b.block, metadata(&b.device, b.block)))
            .collect();
        for seed in self.seeds.clone().step_by(self.step) {
            say("begin", seed, "");
            let n = (seed % KINDS.len() as u64) as usize;
            let mut mutant = Mutant::new(&bases[n], &targets[n], seed);
            let done = catch_unwind(AssertUnwindSafe(|| mutant.run(&scratch)));
            let found = match done {
                Ok(Ok(())) => continue,
                Ok(Err(finding)) => finding,
                Err(_) => PANIC.lock().map_or_else(|_| String::new(), |p| p.clone()),
            };
            // The mutant in its initial state.
            let kept = kept(seed);
            Mutant::new(&bases[n], &targets[n], seed).save(&kept);
            let what = format!("{}: {found}\nkept: {}", KINDS[n].name, kept.display());
            say("finding", seed, &what);
        }
        say("end", 0, "");
    }
}

fn kept(seed: u64) -> PathBuf {
    format!("{}/mutant-{seed}.img", env!("CARGO_TARGET_TMPDIR")).into()
}

fn say(what: &str, seed: u64, text: &str) {
    let mut out = std::io::stdout().lock();
    let text = text.replace('\n', "\u{1}");
    writeln!(out, "@{what} {seed} {text}")
        .and_then(|()| out.flush())
        .expect("somebody listens");
}

/// Runs these seeds in one process per CPU, and fails if any process has a finding.
pub fn run(seeds: Range<u64>) {
    let start = Instant::now();
    let own = needs::memory_dir();
    let given = std::env::var_os(BASES).map(PathBuf::from);
    let dir = given.clone().unwrap_or_else(|| own.path().into());
    if given.is_none() {
        bases::make(&dir);
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let findings = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for worker in 0..workers {
            let (dir, findings) = (&dir, &findings);
            let mine = seeds.start + worker as u64..seeds.end;
            s.spawn(move || {
                let mut mine = mine;
                while let Some(next) = watch(dir, mine.clone(), workers, findings) {
                    mine.start = next;
                }
            });
        }
    });
    let findings = findings.into_inner().expect("no watcher panics");
    let count = seeds.end - seeds.start;
    eprintln!(
        "{count} mutants (seeds {seeds:?}) of {} bases in {:.0?}: {} findings",
        KINDS.len(),
        start.elapsed(),
        findings.len()
    );
    if !findings.is_empty() {
        let dir = given.unwrap_or_else(|| own.keep());
        panic!(
            "{}\n{} findings; repeat one with EXTANT_SEED=n {BASES}={}",
            findings.join("\n"),
            findings.len(),
            dir.display()
        );
    }
}

/// Runs one worker until it ends or must be killed; returns the seed at which to continue.
fn watch(dir: &Path, seeds: Range<u64>, step: usize, findings: &Mutex<Vec<String>>) -> Option<u64> {
    if seeds.is_empty() {
        return None;
    }
    let share = format!("{}\n{}\n{}\n{step}", dir.display(), seeds.start, seeds.end);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["images::mutants", "--exact", "--nocapture"])
        .env(SHARE, share)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a worker starts");
    let lines = listen(child.stdout.take().expect("its output"));
    let found = |seed: u64, what: &str| {
        let text = format!("seed {seed}: {}", what.replace('\u{1}', "\n"));
        eprintln!("{text}");
        findings.lock().expect("no watcher panics").push(text);
    };
    let (mut now, mut since) = (None, Instant::now());
    let why = loop {
        match lines.recv_timeout(Duration::from_millis(100)) {
            Ok(line) => {
                let mut parts = line.splitn(3, ' ');
                let what = parts.next();
                let seed = parts.next().and_then(|n| n.parse().ok());
                match (what, seed) {
                    (Some("@begin"), Some(seed)) => (now, since) = (Some(seed), Instant::now()),
                    (Some("@finding"), Some(seed)) => found(seed, parts.next().unwrap_or("")),
                    (Some("@end"), _) => {
                        let _ = child.wait();
                        return None;
                    }
                    _ => {}
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = child
                    .wait()
                    .map_or_else(|e| e.to_string(), |s| s.to_string());
                break format!("the worker ended: {status}");
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if now.is_some() && since.elapsed() > PATIENCE {
            break format!("no end after {PATIENCE:?}");
        }
        if let Some(bytes) = Some(resident(&child)).filter(|&bytes| bytes > MEMORY) {
            break format!("{bytes} bytes of memory");
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    let seed = now.unwrap_or(seeds.start);
    found(seed, &why);
    Some(seed + step as u64)
}

fn listen(out: ChildStdout) -> Receiver<String> {
    let (give, take) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if give.send(line).is_err() {
                break;
            }
        }
    });
    take
}

/// Returns the resident memory of a process in bytes.
fn resident(child: &Child) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", child.id())).unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

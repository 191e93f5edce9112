//! A session: mounts an image, lets programs work in it for a while, and then simulates a power failure at many
//! moments.

use crate::it::common::{self, Rng, mem_image};
use crate::it::judge::model::Task;
use crate::it::judge::program::{self, Mark, Plan, Run};
use crate::it::judge::verdict::{self, Order, Progress, Promises};
use crate::it::programs::mount::Mounted;
use crate::it::programs::mounted_target::ByCalls;
use crate::it::programs::sqlite::{self, Commits, Journal};
use crate::it::programs::witness::Witness;
use crate::it::programs::works::{self, Story, Work, Worker};
use blockdev::{BlockDevice, Crash, MemDevice, TimedReplay};
use extant::VolumeOptions;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// The programs of a session, besides two databases and the tasks of a random program.
const WORKS: [Work; 7] = [
    Work::Append,
    Work::Append,
    Work::Overwrite,
    Work::Overwrite,
    Work::Overwrite,
    Work::Replace,
    Work::Replace,
];

/// Duration of the recorded work, which is limited because the record is kept in memory.
const RECORDED: Duration = Duration::from_millis(900);

/// Duration of further work in long runs, in which only the fsyncs are judged.
const UNRECORDED: Duration = Duration::from_secs(8);

/// Counts of the judgements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub sessions: u64,
    pub fsyncs: u64,
    pub uncovered: u64,
    pub commits: u64,
    pub cuts: u64,
    pub databases: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} sessions, {} acknowledged fsyncs, {} of them without a flush, {} commits of SQLite; {} cuts, \
             {} databases looked at after one",
            self.sessions, self.fsyncs, self.uncovered, self.commits, self.cuts, self.databases
        )
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.fsyncs += other.fsyncs;
        self.uncovered += other.uncovered;
        self.commits += other.commits;
        self.cuts += other.cuts;
        self.databases += other.databases;
    }
}

/// The record of a session.
pub struct Session {
    seed: u64,
    base: MemDevice,
    stories: Vec<Story>,
    commits: Vec<Commits>,
    run: Run,
    marks: Vec<(u64, Mark)>,
    /// The tick up to which the record is complete.
    whole: u64,
}

const JOURNALS: [Journal; 2] = [Journal::Delete, Journal::Wal];

impl Session {
    /// Runs a session and judges it.
    pub fn run(seed: u64) -> Counts {
        let (session, witness) = Self::work(seed);
        let mut counts = Counts {
            sessions: 1,
            fsyncs: session.stories.iter().map(|s| s.fsyncs).sum(),
            uncovered: session
                .stories
                .iter()
                .map(|s| s.uncovered.len() as u64)
                .sum(),
            commits: session.commits.iter().map(|c| c.len() as u64).sum(),
            ..Counts::default()
        };
        let uncovered = session.stories.iter().flat_map(|s| &s.uncovered);
        for told in uncovered.take(3) {
            eprintln!("seed {seed}: {told}");
        }
        session.cut(&witness, &mut counts);
        counts
    }

    fn work(seed: u64) -> (Self, Arc<Witness>) {
        static BASE: OnceLock<MemDevice> = OnceLock::new();
        let made = || mem_image("96M", &["-t", "ext4", "-J", "size=8"]).snapshot();
        let base = BASE.get_or_init(made).snapshot();
        // Flushes take long in some sessions.
        let flush = Duration::from_micros([0, 60, 200, 1000][seed as usize % 4]);
        let witness = Arc::new(Witness::new(base.snapshot(), flush));
        let dir = tempfile::tempdir().unwrap();
        let mounted = Mounted::new(Arc::clone(&witness) as Arc<dyn BlockDevice>, dir.path());
        let stop = AtomicBool::new(false);
        let mut whole = 0;
        let marks = Mutex::new(Vec::new());
        let (stories, commits, run) = std::thread::scope(|s| {
            let _stops = common::Ends(&stop);
            let (witness, stop, marks, mounted) = (&*witness, &stop, &marks, &mounted);
            let workers: Vec<_> = WORKS
                .iter()
                .zip(1..)
                .map(|(&work, program)| {
                    let dir = mounted.dir();
                    let worker = Worker {
                        witness,
                        dir,
                        stop,
                        program,
                        seed,
                    };
                    s.spawn(move || worker.run(work))
                })
                .collect();
            let databases = JOURNALS.map(|journal| {
                s.spawn(move || sqlite::insert(witness, mounted.dir(), journal, stop))
            });
            let random = s.spawn(move || random_program(mounted, witness, seed, marks));
            std::thread::sleep(RECORDED);
            whole = witness.device.tick();
            witness.device.stop_recording();
            if common::torture() {
                std::thread::sleep(UNRECORDED);
            }
            stop.store(true, Ordering::Relaxed);
            (
                workers.into_iter().map(|w| w.join().unwrap()).collect(),
                databases.into_iter().map(|d| d.join().unwrap()).collect(),
                random.join().unwrap(),
            )
        });
        mounted.unmount();
        let session = Self {
            seed,
            base,
            stories,
            commits,
            run,
            marks: marks.into_inner().unwrap(),
            whole,
        };
        (session, witness)
    }

    /// Simulates power failures at random moments, in several ways at each.
    fn cut(&self, witness: &Witness, counts: &mut Counts) {
        let mut rng = Rng::new(self.seed);
        let mut places: Vec<u64> = (0..if common::torture() { 24 } else { 8 })
            .map(|_| rng.below(self.whole))
            .collect();
        places.sort_unstable();
        let mut replay = TimedReplay::new(witness.device.take(), &self.base);
        for at in places {
            let (durable, pending) = replay.cut(at).unwrap();
            let mut replayer = pending.replay(&durable);
            replayer.advance_to(usize::MAX).unwrap();
            let seed = rng.next();
            let torn = replayer.crash(&Crash::new(seed)).unwrap();
            let ways = [
                ("nothing lost", replayer.image()),
                ("all lost that may be", durable.snapshot()),
                ("some lost or torn", torn),
            ];
            for (way, image) in ways {
                counts.cuts += 1;
                let looks = rng.below(3) == 0;
                counts.databases += if looks { 2 } else { 0 };
                self.judge(image, at, looks).unwrap_or_else(|e| {
                    panic!("seed {}, cut at {at}, {way} (by {seed}): {e}", self.seed)
                });
            }
        }
    }

    fn judge(&self, image: MemDevice, at: u64, looks: bool) -> Result<(), String> {
        let device = Arc::new(image);
        let volume = VolumeOptions::new()
            .background(false)
            .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
            .map_err(|e| format!("does not open: {e}"))?;
        for ((&work, story), program) in WORKS.iter().zip(&self.stories).zip(1..) {
            works::judge(&volume, work, program, story, at)?;
        }
        self.judge_random(&volume, at)?;
        if looks {
            for (journal, commits) in JOURNALS.into_iter().zip(&self.commits) {
                sqlite::judge(&volume, journal, commits, at)?;
            }
        }
        volume.close().map_err(|e| format!("does not close: {e}"))?;
        common::assert_clean(&device, "recovered");
        Ok(())
    }

    fn judge_random(&self, volume: &extant::Volume, at: u64) -> Result<(), String> {
        let mut progress = Progress::new(TASKS);
        let before = self.marks.iter().take_while(|(tick, _)| *tick < at);
        for (_, mark) in before {
            progress.pass(&self.run, *mark);
        }
        let found = (0..TASKS)
            .map(|task| verdict::find(volume, task))
            .collect::<Result<Vec<_>, _>>();
        match found {
            Ok(found) => verdict::judge(&self.run, &progress, &found, PROMISES),
            // Cut before the directories were made.
            Err(_) if self.marks.first().is_none_or(|(tick, _)| *tick > at) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Tasks of the random program.
const TASKS: usize = 2;

/// The kernel caches the writes of programs.
const PROMISES: Promises = Promises {
    block: 4096,
    order: Order::Done,
    appended_bytes: false,
};

fn random_program(
    mounted: &Mounted,
    witness: &Witness,
    seed: u64,
    marks: &Mutex<Vec<(u64, Mark)>>,
) -> Run {
    use crate::it::judge::target::Target;
    let target = ByCalls(mounted);
    for task in 0..TASKS {
        target.make_dir(&program::dir(task));
    }
    target.sync();
    let plan = Plan {
        seed,
        tasks: TASKS,
        ops: 120,
        join_every: 10,
        block: 4096,
        longest: 48 << 10,
        syncs: false,
    };
    let tasks = vec![Task::starting(&Default::default()); TASKS];
    let mark = |mark: Mark| {
        // The order of the list is that of its ticks.
        let mut marks = marks.lock().unwrap_or_else(|e| e.into_inner());
        let tick = witness.device.tick();
        marks.push((tick, mark));
    };
    // Stamps of program 0, which has several files: its fsyncs are judged by the contents after a power failure.
    program::run(&target, &plan, tasks, &AtomicU32::new(1), &mark)
}

//! Campaigns. A program runs over a recorded device, the power is cut again and again, and the recovered images are
//! judged. The next round begins with one of the cut images: its recovery is recorded and cut, too.

use super::lies;
use super::model::Task;
use super::program::{self, Mark, Plan, Run};
use super::stamp;
use super::verdict::{self, Order, Progress, Promises};
use crate::common::{self, Rng, mem_image};
use blockdev::{
    BlockDevice, Crash, Event, Fate, Log, MemDevice, RecordingDevice, Replayer, SlowDevice,
};
use extant::{Volume, VolumeOptions};
use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A kind of campaign.
#[derive(Clone, Copy, Debug)]
pub struct CampaignKind {
    pub name: &'static str,
    pub size: &'static str,
    pub mke2fs: &'static [&'static str],
    /// Bytes of a block.
    pub block: u64,
    pub tasks: usize,
    /// Operations of each task in a round.
    pub ops: u32,
    /// Most blocks of a transaction in the log.
    pub in_parts: Option<u64>,
    /// Number of rounds: cuts that are survived one after the other.
    pub rounds: u32,
    /// Places of a round at which the power is cut in several ways.
    pub cuts: usize,
    /// Additional time of a flush in microseconds, so that contexts wait for each other.
    pub flush: u64,
    /// The target of the programs.
    pub over: Over,
}

/// Runs a program over an open volume, in one way or another.
pub type Over = fn(&Volume, &Plan, Vec<Task>, &AtomicU32, &(dyn Fn(Mark) + Sync)) -> Run;

/// Over the library.
pub fn over_the_library(
    volume: &Volume,
    plan: &Plan,
    tasks: Vec<Task>,
    writes: &AtomicU32,
    mark: &(dyn Fn(Mark) + Sync),
) -> Run {
    program::run(volume, plan, tasks, writes, mark)
}

/// Counts of the judged images.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub programs: u64,
    /// Cuts in all.
    pub cuts: u64,
    /// Of these, cuts in work that continued after one earlier cut.
    pub second: u64,
    /// Of these, cuts in work that continued after two or more.
    pub third: u64,
    /// Of these, cuts during a recovery.
    pub in_recovery: u64,
    /// Of these, cuts that lost a commit block and kept blocks written with it.
    pub lost_commits: u64,
    /// Cuts after a flush that falsely reported success.
    pub lies: u64,
    /// Of these, the ones that opening the volume noticed.
    pub noticed: u64,
    /// Images that e2fsck judged.
    pub checked: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} programs, {} cuts: {} of them second ones, {} third ones, {} in a recovery, {} of a commit block alone; \
             {} after a flush that was a lie, {} of which were noticed; e2fsck saw {}",
            self.programs,
            self.cuts,
            self.second,
            self.third,
            self.in_recovery,
            self.lost_commits,
            self.lies,
            self.noticed,
            self.checked
        )
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.programs += other.programs;
        self.cuts += other.cuts;
        self.second += other.second;
        self.third += other.third;
        self.in_recovery += other.in_recovery;
        self.lost_commits += other.lost_commits;
        self.lies += other.lies;
        self.noticed += other.noticed;
        self.checked += other.checked;
    }
}

impl CampaignKind {
    /// The options for opening volumes of such a campaign.
    fn options(&self) -> VolumeOptions {
        let options = VolumeOptions::new().background(false);
        match self.in_parts {
            Some(blocks) => options.most_log_blocks(blocks),
            None => options,
        }
    }

    /// The image that all campaigns of this kind begin with, and the blocks of its journal.
    pub fn base(&self) -> (MemDevice, Arc<BTreeSet<u64>>) {
        type Volumes = HashMap<&'static str, (MemDevice, Arc<BTreeSet<u64>>)>;
        static MADE: Mutex<Option<Volumes>> = Mutex::new(None);
        let mut made = MADE.lock().unwrap_or_else(|e| e.into_inner());
        let made = made.get_or_insert_default();
        let (image, journal) = made.entry(self.name).or_insert_with(|| {
            let device = mem_image(self.size, self.mke2fs);
            let volume = common::open(&device);
            for task in 0..self.tasks {
                volume.create_dir(program::dir(task)).unwrap();
            }
            fill_free_blocks(&volume);
            volume.close().unwrap();
            let journal = lies::journal_blocks(&device);
            (device.snapshot(), Arc::new(journal))
        });
        (image.snapshot(), Arc::clone(journal))
    }

    fn promises(&self) -> Promises {
        let order = match (self.in_parts, self.tasks) {
            (None, _) | (_, 1) => Order::Done,
            _ => Order::Tasks,
        };
        Promises {
            block: self.block,
            order,
            appended_bytes: order == Order::Done,
        }
    }

    fn plan(&self, seed: u64) -> Plan {
        Plan {
            seed,
            tasks: self.tasks,
            ops: self.ops,
            join_every: 7,
            block: self.block,
            longest: 12 * self.block,
            syncs: true,
        }
    }
}

/// Leaves a stamp that no program writes in every free block. A file that shows this stamp shows data that it never
/// had.
fn fill_free_blocks(volume: &Volume) {
    let file = volume.create_new_file("/fill").unwrap();
    let cells = (1 << 20) / stamp::CELL;
    let foreign = stamp::fill(u32::MAX, 0..cells);
    let mut at = 0;
    while file.write_all_at(&foreign, at).is_ok() {
        at += foreign.len() as u64;
    }
    // Also fill the rest that is shorter than a piece.
    let size = file.metadata().unwrap().len();
    let _ = file.write_all_at(&foreign, size);
    let _ = file.sync_all();
    drop(file);
    volume.remove_file("/fill").unwrap();
    volume.sync().unwrap();
}

/// A recorded round.
pub struct Round {
    pub base: MemDevice,
    pub log: Log,
    pub run: Run,
}

/// Runs one campaign from a seed. The error describes the finding and its place.
pub fn campaign(kind: &CampaignKind, seed: u64) -> Result<Counts, String> {
    let mut counts = Counts {
        programs: 1,
        ..Counts::default()
    };
    let mut rng = Rng::new(seed);
    let writes = AtomicU32::new(1);
    let (mut base, _) = kind.base();
    for round in 0..kind.rounds {
        let at = |what: String| format!("{}, seed {seed}, round {round}: {what}", kind.name);
        let recorded = record(kind, base, rng.next(), &writes).map_err(at)?;
        let next = cut(kind, &recorded, round, &mut rng, &mut counts);
        let lied = lies::judge(kind, &recorded, &mut rng, &mut counts);
        lied.map_err(|e| format!("{}, seed {seed}, round {round}, {e}", kind.name))?;
        base = next.map_err(|e| format!("{}, seed {seed}, round {round}, {e}", kind.name))?;
    }
    Ok(counts)
}

/// The message of a panic.
fn panicked(payload: Box<dyn std::any::Any + Send>) -> String {
    let text = payload.downcast_ref::<String>().cloned();
    let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()));
    format!("panic: {}", text.unwrap_or_default())
}

fn record(
    kind: &CampaignKind,
    base: MemDevice,
    seed: u64,
    writes: &AtomicU32,
) -> Result<Round, String> {
    let recording = RecordingDevice::new(base.snapshot());
    let device = Arc::new(SlowDevice::new(
        recording,
        Duration::from_micros(kind.flush),
    ));
    let dynamic: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let volume = kind
        .options()
        .open_device(dynamic)
        .map_err(|e| format!("does not open: {e}"))?;
    let tasks: Vec<Task> = (0..kind.tasks)
        .map(|task| Task::starting(&verdict::find_whole(&volume, task)))
        .collect();
    let mark = |mark: Mark| device.inner().mark(mark.to_bits());
    let plan = kind.plan(seed);
    let worked = catch_unwind(AssertUnwindSafe(|| {
        (kind.over)(&volume, &plan, tasks, writes, &mark)
    }));
    let run = worked.map_err(panicked)?;
    // Most rounds end in the middle of work, some with the volume closed.
    if seed.is_multiple_of(3) {
        volume.close().map_err(|e| format!("does not close: {e}"))?;
        return Ok(Round {
            base,
            log: device.inner().take_log(),
            run,
        });
    }
    let log = device.inner().take_log();
    drop(volume);
    Ok(Round { base, log, run })
}

/// Cuts a round at many places. Returns the image from which the next round begins.
fn cut(
    kind: &CampaignKind,
    round: &Round,
    number: u32,
    rng: &mut Rng,
    counts: &mut Counts,
) -> Result<MemDevice, String> {
    let events = round.log.events();
    let is_mark = |e: &Event| matches!(e, Event::Mark(_));
    let recovery = events.iter().position(is_mark).unwrap_or(events.len());
    let mut places: Vec<usize> = (0..kind.cuts)
        .map(|_| rng.below(events.len() as u64 + 1) as usize)
        .collect();
    if number > 0 {
        // Every write of the recovery.
        places.extend(0..=recovery);
    }
    places.sort_unstable();
    places.dedup();
    let goes_on = rng.below(places.len() as u64) as usize;
    let mut next = None;
    let mut replayer = round.log.replay(&round.base);
    let mut progress = Progress::new(round.run.tasks.len());
    for (nth, &place) in places.iter().enumerate() {
        while replayer.position() < place {
            let event = replayer.step().map_err(|e| e.to_string())?;
            if let Some(Event::Mark(bits)) = event {
                progress.pass(&round.run, Mark::of_bits(*bits));
            }
        }
        for (what, image) in images(&replayer, rng)? {
            counts.cuts += 1;
            counts.lost_commits += u64::from(what.starts_with(COMMIT));
            counts.second += u64::from(number == 1);
            counts.third += u64::from(number > 1);
            counts.in_recovery += u64::from(number > 0 && place <= recovery);
            let fsck = rng.below(if common::torture() { 8 } else { 24 }) == 0;
            counts.checked += u64::from(fsck);
            judge(kind, round, &progress, &image, fsck)
                .map_err(|e| format!("cut after event {place} of {}, {what}: {e}", events.len()))?;
            if nth == goes_on {
                next = Some(image);
            }
        }
    }
    next.ok_or_else(|| "nothing was cut".into())
}

/// Returns the images that a cut at this place may leave, a few of each kind.
fn images(replayer: &Replayer<'_>, rng: &mut Rng) -> Result<Vec<(String, MemDevice)>, String> {
    let mut images = vec![("nothing lost".to_string(), replayer.image())];
    let pending = replayer.pending().len() as u64;
    if pending == 0 {
        return Ok(images);
    }
    images.push(("all lost that may be".into(), replayer.durable()));
    let seed = rng.next();
    let io = |e: std::io::Error| e.to_string();
    let torn = replayer.crash(&Crash::new(seed)).map_err(io)?;
    images.push((format!("some lost or torn by seed {seed}"), torn));
    // Keeps all blocks but one, or one block alone.
    let chosen = rng.below(pending) as usize;
    let position = replayer.pending().nth(chosen).map_or(0, |(p, _)| p);
    let block = rng.next();
    for (what, of_it, others) in [
        ("lost", Fate::Without(block), Fate::Kept),
        ("kept", Fate::Only(block), Fate::Lost),
    ] {
        let fate = |p: usize, _: &Event| if p == position { of_it } else { others };
        let image = replayer.crash_with(fate).map_err(io)?;
        images.push((
            format!("one block of event {position} {what}, by {block}"),
            image,
        ));
    }
    let commits: Vec<usize> = replayer
        .pending()
        .filter(|(_, event)| is_commit(event))
        .map(|(position, _)| position)
        .collect();
    if pending > 1 && !commits.is_empty() {
        let lost = commits[rng.below(commits.len() as u64) as usize];
        let fate = |p: usize, _: &Event| if p == lost { Fate::Lost } else { Fate::Kept };
        let image = replayer.crash_with(fate).map_err(io)?;
        images.push((format!("{COMMIT} {lost} lost"), image));
    }
    Ok(images)
}

/// Name of cuts that lose a commit block.
const COMMIT: &str = "only commit block";

/// A commit block of jbd2: its magic number and its type.
fn is_commit(event: &Event) -> bool {
    match event {
        Event::Write { data, .. } => data.starts_with(&[0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2]),
        _ => false,
    }
}

fn judge(
    kind: &CampaignKind,
    round: &Round,
    progress: &Progress,
    image: &MemDevice,
    fsck: bool,
) -> Result<(), String> {
    let device = Arc::new(image.snapshot());
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let volume = VolumeOptions::new()
            .background(false)
            .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
            .map_err(|e| format!("does not open: {e}"))?;
        let found = (0..round.run.tasks.len())
            .map(|task| verdict::find(&volume, task))
            .collect::<Result<Vec<_>, _>>()?;
        verdict::judge(&round.run, progress, &found, kind.promises())?;
        volume.close().map_err(|e| format!("does not close: {e}"))?;
        if fsck {
            common::assert_clean(&device, "recovered");
        }
        Ok(())
    }));
    judged.map_err(panicked)?
}

/// Runs campaigns of several kinds, one after the other, until the seeds are used up. Fails with the first finding.
/// With EXTANT_SURVEY set it shows each finding, continues, and fails at the end.
pub fn run(kinds: &[CampaignKind], seeds: std::ops::Range<u64>) {
    let survey = std::env::var_os("EXTANT_SURVEY").is_some();
    let (mut all, mut findings) = (Counts::default(), 0);
    let first = seeds.start;
    let number = seeds.end - first;
    for seed in seeds {
        for kind in kinds {
            match campaign(kind, seed) {
                Ok(counts) => all += counts,
                Err(e) if survey => {
                    findings += 1;
                    eprintln!("{e}\n");
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
    eprintln!(
        "{} kinds, seeds from {first}, {number} of each: {all}",
        kinds.len()
    );
    assert_eq!(findings, 0, "findings");
}

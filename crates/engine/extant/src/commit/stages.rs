//! The stages of a push, and the time that pushes spend in each. They show why a commit took long.

use super::statistics::{PushCounts, PushTimes};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A stage of a push. All stages of a push together are its time in
/// [`LogState::push_times`](crate::LogState::push_times).
///
/// ```
/// let names = extant::PushStage::ALL.map(|stage| stage.name());
/// assert_eq!(names.join(" "), "home gather sort format wait log flush");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PushStage {
    /// The log was half full: images of earlier contexts are written home, and the log is emptied.
    Home,
    /// The context is closed, which waits for commits in progress, and the lists of its slots are gathered.
    Gather,
    /// The items are brought into order.
    Sort,
    /// The items become images of metadata blocks.
    Format,
    /// An earlier push is still writing into the log, or is making its context durable.
    Wait,
    /// The images are written into the log.
    Log,
    /// Flush, commit blocks, flush.
    Flush,
}

impl PushStage {
    /// All of them, in their order.
    pub const ALL: [Self; 7] = [
        Self::Home,
        Self::Gather,
        Self::Sort,
        Self::Format,
        Self::Wait,
        Self::Log,
        Self::Flush,
    ];

    /// Returns the stage's name, one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Gather => "gather",
            Self::Sort => "sort",
            Self::Format => "format",
            Self::Wait => "wait",
            Self::Log => "log",
            Self::Flush => "flush",
        }
    }
}

/// Times that pushes spent in one of their stages.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// volume.create_new_file("/file")?;
/// volume.sync()?;
/// let log = volume.log_state();
/// for stage in &log.stages {
///     println!("{}: {:?} at most", stage.stage.name(), stage.times.quantile(1.0));
///     assert_eq!(stage.times.count(), log.push_times.count());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageTimes {
    /// The stage.
    pub stage: PushStage,
    /// The time of each push in it, 0 for a push that skipped the stage.
    pub times: PushTimes,
    /// The time of all pushes in it.
    pub total: Duration,
}

/// The stages of one push while it is under way.
pub(super) struct PushWatch {
    begun: Instant,
    last: Instant,
    spent: [Duration; PushStage::ALL.len()],
}

impl PushWatch {
    /// Starts the watch of a push.
    pub fn start() -> Self {
        let now = Instant::now();
        Self {
            begun: now,
            last: now,
            spent: Default::default(),
        }
    }

    /// Ends a stage, and adds the time since the last call to it.
    pub fn ends(&mut self, stage: PushStage) {
        let now = Instant::now();
        self.spent[stage as usize] += now.saturating_duration_since(self.last);
        self.last = now;
    }

    /// Moves a part of the time of one stage to another.
    pub fn moves(&mut self, time: Duration, from: PushStage, to: PushStage) {
        let time = time.min(self.spent[from as usize]);
        self.spent[from as usize] -= time;
        self.spent[to as usize] += time;
    }
}

/// The times of all pushes, as a whole and by stage.
#[derive(Default)]
pub(super) struct PushTotals {
    whole: PushCounts,
    stages: [(PushCounts, AtomicU64); PushStage::ALL.len()],
}

impl PushTotals {
    /// Adds the times of a push that has ended.
    pub fn add(&self, watch: &PushWatch) {
        self.whole
            .add(watch.last.saturating_duration_since(watch.begun));
        for ((counts, total), spent) in self.stages.iter().zip(watch.spent) {
            counts.add(spent);
            let ns = u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX);
            total.fetch_add(ns, Ordering::Relaxed);
        }
    }

    /// Returns the times until now: of whole pushes, and of their stages.
    pub fn read(&self) -> (PushTimes, Vec<StageTimes>) {
        let stages = PushStage::ALL.iter().zip(&self.stages);
        let stages = stages.map(|(&stage, (counts, total))| StageTimes {
            stage,
            times: counts.read(),
            total: Duration::from_nanos(total.load(Ordering::Relaxed)),
        });
        (self.whole.read(), stages.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_to_the_push() {
        let totals = PushTotals::default();
        let mut watch = PushWatch::start();
        std::thread::sleep(Duration::from_millis(2));
        watch.ends(PushStage::Format);
        watch.moves(Duration::from_millis(1), PushStage::Format, PushStage::Sort);
        // No more than the stage's time can be moved.
        watch.moves(Duration::from_secs(9), PushStage::Home, PushStage::Log);
        std::thread::sleep(Duration::from_millis(1));
        watch.ends(PushStage::Flush);
        totals.add(&watch);
        let (whole, stages) = totals.read();
        assert!(whole.quantile(1.0) >= Duration::from_millis(3));
        let of = |wanted: PushStage| stages.iter().find(|s| s.stage == wanted).unwrap();
        assert_eq!(of(PushStage::Sort).total, Duration::from_millis(1));
        assert!(of(PushStage::Format).total >= Duration::from_millis(1));
        assert_eq!(of(PushStage::Log).total, Duration::ZERO);
        let sum: Duration = stages.iter().map(|s| s.total).sum();
        assert_eq!(sum, watch.last - watch.begun);
        assert!(stages.iter().all(|s| s.times.count() == 1));
    }

    /// A device whose flushes are slow shows in the stage of flushes, not elsewhere.
    #[test]
    fn a_slow_flush_is_seen_in_its_stage() {
        let device = std::sync::Arc::new(SlowFlush(blockdev::MemDevice::new(8 << 20)));
        let options = crate::mkfs::MkfsOptions {
            size: Some(8 << 20),
            ..Default::default()
        };
        crate::mkfs::format(&*device, &options).unwrap();
        let volume = crate::VolumeOptions::new()
            .background(false)
            .open_device(device)
            .unwrap();
        volume.create_new_file("/a").unwrap();
        volume.sync().unwrap();
        let stages = volume.log_state().stages;
        let of = |wanted: PushStage| stages.iter().find(|s| s.stage == wanted).unwrap();
        assert!(of(PushStage::Flush).total >= 2 * SLOW, "{stages:?}");
        let rest = stages.iter().filter(|s| s.stage != PushStage::Flush);
        // The first push marks the volume as open, which flushes, too.
        let rest: Duration = rest.map(|s| s.total).sum();
        assert!(rest < 2 * SLOW + Duration::from_secs(1), "{stages:?}");
    }

    const SLOW: Duration = Duration::from_millis(20);

    struct SlowFlush(blockdev::MemDevice);

    impl blockdev::BlockDevice for SlowFlush {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_only(&self) -> bool {
            self.0.read_only()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
            self.0.write_at(offset, buf)
        }
        fn flush(&self) -> std::io::Result<()> {
            std::thread::sleep(SLOW);
            self.0.flush()
        }
    }
}

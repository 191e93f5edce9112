//! Figures of a volume's log, and of its searches for blocks, since it was opened, and its present contents.

use super::stages::{PushTotals, PushWatch, StageTimes};
use crate::space::contention::SearchCounts;
use ext4_format::jbd2::FastPiece;
use extant_formatter::Output;
use extant_formatter::item::ItemList;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Figures of a volume's log, and of its searches for blocks, since it was opened, which only grow. Commits that are
/// not pushed yet do not count.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let before = volume.statistics();
/// volume.create_new_file("/file")?;
/// volume.remove_file("/file")?;
/// volume.sync()?;
/// let after = volume.statistics();
/// assert_eq!(after.commits - before.commits, 2);
/// assert_eq!(after.pushes - before.pushes, 1);
/// assert!(after.log_bytes > before.log_bytes);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Transactions that were pushed.
    pub commits: u64,
    /// Pushes that had anything to format.
    pub pushes: u64,
    /// Flushes of the device that were begun.
    pub flushes: u64,
    /// Fast commits, each of which has made a context durable before it was formatted.
    pub fast_commits: u64,
    /// Bytes written to the journal's log, and to its area for fast commits.
    pub log_bytes: u64,
    /// Time spent on bringing the items of contexts into order.
    pub sort_time: Duration,
    /// The searches for blocks.
    pub search: SearchCounts,
}

/// The statistics while they grow. Only pushes write them.
#[derive(Default)]
pub(crate) struct Totals {
    commits: AtomicU64,
    fast_commits: AtomicU64,
    log_blocks: AtomicU64,
    /// Bytes of fast commits.
    fast_bytes: AtomicU64,
    sort_ns: AtomicU64,
    /// Blocks of the log in use.
    used_blocks: AtomicU64,
    pushes: PushTotals,
}

/// Pushes by the class of their time.
pub(super) struct PushCounts([AtomicU64; CLASSES]);

impl Default for PushCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl PushCounts {
    /// Counts a push that took this long.
    pub fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.0.get(class(us)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts at this moment.
    pub fn read(&self) -> PushTimes {
        let counts = self.0.iter().map(|n| n.load(Ordering::Relaxed));
        let mut counts: Vec<u64> = counts.collect();
        let last = counts.iter().rposition(|&n| n > 0);
        counts.truncate(last.map_or(0, |last| last + 1));
        PushTimes(counts)
    }
}

/// Classes for each doubling of the time, so that a class is at most an eighth wide.
const STEPS: u32 = 8;
/// Classes of times: exact up to [`STEPS`] microseconds, and up to more than an hour.
const CLASSES: usize = (STEPS * 31) as usize;

/// Returns the class of a time in microseconds.
fn class(us: u64) -> usize {
    let bits = STEPS.ilog2();
    let class = match us.checked_ilog2() {
        None => 0,
        Some(log) if log < bits => us,
        Some(log) => {
            let octave = u64::from(log - bits);
            // The leading one bit is dropped. The bits after it give the step in the octave.
            (octave + 1) * u64::from(STEPS) + (us >> octave) - u64::from(STEPS)
        }
    };
    usize::try_from(class).map_or(CLASSES - 1, |c| c.min(CLASSES - 1))
}

/// Returns the longest time of a class, in microseconds.
fn longest(class: usize) -> u64 {
    let steps = STEPS as usize;
    match class.checked_sub(steps) {
        None => class as u64,
        Some(rest) => {
            let octave = (rest / steps) as u32;
            let lead = (steps + rest % steps + 1) as u64;
            (lead << octave) - 1
        }
    }
}

/// Times of pushes, each from its begin until its context is durable.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// let before = volume.log_state().push_times;
/// volume.create_new_file("/file")?;
/// volume.sync()?;
/// let pushes = volume.log_state().push_times.since(&before);
/// assert!(pushes.count() >= 1);
/// assert!(pushes.quantile(0.5) <= pushes.quantile(1.0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushTimes(Vec<u64>);

impl PushTimes {
    /// Makes times from counts in the form of [`PushTimes::counts`].
    pub fn new(mut counts: Vec<u64>) -> Self {
        counts.truncate(CLASSES);
        Self(counts)
    }

    /// Pushes by the class of their time, as far as there were any.
    pub fn counts(&self) -> &[u64] {
        &self.0
    }

    /// Returns the pushes since an earlier snapshot.
    pub fn since(&self, before: &Self) -> Self {
        let before = before.0.iter().copied().chain(std::iter::repeat(0));
        let counts = self.0.iter().zip(before);
        Self(counts.map(|(now, then)| now.saturating_sub(then)).collect())
    }

    /// Returns the number of pushes.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the time that this share of the pushes did not exceed, at most an eighth too long. For 1.0 that is the
    /// longest time.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.count() as f64 * share).ceil().max(1.0);
        let mut seen = 0.0;
        let class = self.0.iter().position(|&n| {
            seen += n as f64;
            n > 0 && seen >= rank
        });
        Duration::from_micros(class.map_or(0, longest))
    }
}

/// The log's contents at one moment.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// volume.create_new_file("/file")?;
/// let pending: u64 = volume.log_state().slots.iter().map(|slot| slot.transactions).sum();
/// assert_eq!(pending, 1);
/// volume.sync()?;
/// let log = volume.log_state();
/// assert!(log.used_blocks > 0 && log.used_blocks < log.blocks);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogState {
    /// Blocks of the journal's log; 0 without a journal.
    pub blocks: u64,
    /// Blocks whose images have not been written home.
    pub used_blocks: u64,
    /// The part of each slot.
    pub slots: Vec<SlotState>,
    /// Times of the pushes since the volume was opened.
    pub push_times: PushTimes,
    /// Times that pushes spent in each of their stages, in the order of the stages.
    pub stages: Vec<StageTimes>,
}

/// The committed and not yet formatted items of a slot.
///
/// ```
/// # let volume = extant::doc_volume();
/// let slots: Vec<extant::SlotState> = volume.log_state().slots;
/// assert!(slots.iter().all(|slot| slot.transactions == 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotState {
    /// Threads that use the slot.
    pub threads: u64,
    /// Transactions in its lists.
    pub transactions: u64,
    /// Log items in them.
    pub items: u64,
}

impl SlotState {
    /// Returns the state of a slot with these lists.
    pub(crate) fn of(lists: &[ItemList; 2]) -> Self {
        let sum = |of: fn(&ItemList) -> u64| lists.iter().map(of).fold(0, u64::saturating_add);
        Self {
            threads: 0,
            transactions: sum(|list| list.commits),
            items: sum(|list| list.len() as u64),
        }
    }
}

impl Totals {
    /// Notes that a context of this number of commits was formatted.
    pub fn formatted(&self, commits: u64, parts: &[Output]) {
        let sorted: Duration = parts.iter().map(|p| p.sorting).sum();
        let ns = u64::try_from(sorted.as_nanos()).unwrap_or(u64::MAX);
        self.commits.fetch_add(commits, Ordering::Relaxed);
        self.sort_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Counts `blocks` that go to the log, which has `used` in use then.
    pub fn logged(&self, blocks: u32, used: u32) {
        self.log_blocks.fetch_add(blocks.into(), Ordering::Relaxed);
        self.used_blocks.store(used.into(), Ordering::Relaxed);
    }

    /// Counts a fast commit that writes these pieces of its area.
    pub fn committed_fast(&self, pieces: &[FastPiece]) {
        let bytes = pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
        self.fast_commits.fetch_add(1, Ordering::Relaxed);
        self.fast_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that the log is empty.
    pub fn emptied(&self) {
        self.used_blocks.store(0, Ordering::Relaxed);
    }

    /// Adds a push that has ended.
    pub(super) fn pushed(&self, watch: &PushWatch) {
        self.pushes.add(watch);
    }

    /// Returns the number of log blocks in use, and the times of pushes and their stages.
    pub fn log(&self) -> (u64, PushTimes, Vec<StageTimes>) {
        let (pushes, stages) = self.pushes.read();
        (self.used_blocks.load(Ordering::Relaxed), pushes, stages)
    }

    /// Returns the figures at this moment.
    pub fn read(
        &self,
        pushes: u64,
        flushes: u64,
        block_size: u32,
        search: SearchCounts,
    ) -> Statistics {
        let blocks = self.log_blocks.load(Ordering::Relaxed);
        let fast = self.fast_bytes.load(Ordering::Relaxed);
        Statistics {
            commits: self.commits.load(Ordering::Relaxed),
            pushes,
            flushes,
            fast_commits: self.fast_commits.load(Ordering::Relaxed),
            log_bytes: blocks
                .saturating_mul(block_size.into())
                .saturating_add(fast),
            sort_time: Duration::from_nanos(self.sort_ns.load(Ordering::Relaxed)),
            search,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_times_are_an_eighth_wide() {
        let mut last = 0;
        for us in (0..100_000).chain((17..32).map(|log| (1 << log) + 12_345)) {
            let at = class(us);
            assert!(at >= last && at < CLASSES, "{us}");
            last = at;
            let most = longest(at);
            assert!(most >= us && most <= us + us / 8, "{us}: up to {most}");
            assert!(at == 0 || longest(at - 1) < us, "{us}");
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn quantiles_are_of_what_was_counted() {
        let counts = PushCounts::default();
        let none = counts.read();
        assert_eq!((none.count(), none.quantile(0.99)), (0, Duration::ZERO));
        for us in 1..=1000 {
            counts.add(Duration::from_micros(us));
        }
        let times = counts.read();
        assert_eq!(times.count(), 1000);
        for (share, us) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let found = times.quantile(share).as_micros();
            assert!((us..=us + us / 8).contains(&found), "{share}: {found}");
        }
        counts.add(Duration::from_secs(1));
        let late = counts.read().since(&times);
        assert_eq!(late.count(), 1);
        assert!(late.quantile(0.5) >= Duration::from_secs(1));
        let again = PushTimes::new(late.counts().to_vec());
        assert_eq!(again, late);
    }
}

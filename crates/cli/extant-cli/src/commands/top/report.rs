//! Rates: the events between two samples of the counters.

use super::source::Sample;
use extant::PushTimes;
use extant_fuse::RequestCount;
use extant_fuse::control::{LockStatus, MemoryStatus, SpaceStatus, StageStatus};
use serde::Serialize;

/// The events of an interval.
#[derive(Debug, Serialize)]
pub struct Report {
    pub image: String,
    pub transport: String,
    pub uptime_seconds: f64,
    pub interval_seconds: f64,
    pub read_only: Option<String>,
    pub frozen: bool,
    pub troubles: u64,
    pub last_trouble: Option<String>,
    pub requests_per_second: f64,
    /// Kinds of requests with at least one request since the mount.
    pub requests: Vec<RequestRate>,
    pub log: LogRate,
    pub pushes: Pushes,
    pub memory: MemoryStatus,
    pub space: SpaceStatus,
    pub slots: Vec<SlotRate>,
    pub locks_metered: bool,
    /// Classes of locks that were taken, by the time waited.
    pub locks: Vec<LockRate>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RequestRate {
    pub kind: String,
    pub per_second: f64,
    pub failed_per_second: f64,
    pub bytes_per_second: f64,
    /// Mean time of the requests of the interval.
    pub mean_us: f64,
    /// Number since the mount.
    pub count: u64,
}

#[derive(Debug, Serialize)]
pub struct LogRate {
    pub blocks: u64,
    pub used_blocks: u64,
    pub commits_per_second: f64,
    pub bytes_per_second: f64,
}

/// Pushes, and the durations of those that ended since the watching began.
#[derive(Debug, Serialize)]
pub struct Pushes {
    pub per_second: f64,
    pub counted: u64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    /// Stages of the pushes, in order.
    pub stages: Vec<StagePart>,
}

/// The time of the pushes in a stage.
#[derive(Debug, Serialize)]
pub struct StagePart {
    pub name: String,
    pub p50_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
}

/// Returns the median, the 99th percentile and the maximum, in microseconds.
fn spread(times: &PushTimes) -> [u64; 3] {
    let us = |share| u64::try_from(times.quantile(share).as_micros()).unwrap_or(u64::MAX);
    [0.5, 0.99, 1.0].map(us)
}

/// Returns the stages of the pushes since the first sample.
fn stages(first: &[StageStatus], after: &[StageStatus]) -> Vec<StagePart> {
    let times = |stage: &StageStatus| PushTimes::new(stage.times.clone());
    let parts = after.iter().map(|stage| {
        let before = first.iter().find(|s| s.name == stage.name);
        let since = times(stage).since(&before.map(times).unwrap_or_default());
        let [p50_us, p99_us, max_us] = spread(&since);
        StagePart {
            name: stage.name.clone(),
            p50_us,
            p99_us,
            max_us,
        }
    });
    parts.collect()
}

#[derive(Clone, Debug, Serialize)]
pub struct SlotRate {
    pub slot: usize,
    pub threads: u64,
    pub requests_per_second: f64,
    /// Transactions and log items in the slot's lists.
    pub transactions: u64,
    pub items: u64,
}

#[derive(Debug, Serialize)]
pub struct LockRate {
    pub name: String,
    pub taken_per_second: f64,
    pub waits_per_second: f64,
    /// Time that threads waited, in milliseconds per second.
    pub waited_ms_per_second: f64,
}

impl Report {
    /// Computes the events between two samples; pushes are counted from the first sample on.
    pub fn between(first: &Sample, before: &Sample, after: &Sample) -> Self {
        let interval = after.at.saturating_duration_since(before.at).as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / interval.max(1e-9);
        let (old, new) = (&before.status, &after.status);
        let none = RequestCount::default();
        let requests = new.requests.iter().map(|r| {
            let was = old
                .requests
                .iter()
                .find(|o| o.kind == r.kind)
                .unwrap_or(&none);
            request(r, was, &rate)
        });
        let requests: Vec<_> = requests.collect();
        let slots = new.slots.iter().enumerate().map(|(nr, slot)| SlotRate {
            slot: nr,
            threads: slot.threads,
            requests_per_second: rate(slot.requests, old.slots.get(nr).map_or(0, |s| s.requests)),
            transactions: slot.transactions,
            items: slot.items,
        });
        let times = |s: &Sample| PushTimes::new(s.status.push_times.clone());
        let times = times(after).since(&times(first));
        let [p50_us, p99_us, max_us] = spread(&times);
        Self {
            image: new.image.clone(),
            transport: new.transport.clone(),
            uptime_seconds: new.uptime_seconds,
            interval_seconds: interval,
            read_only: new.read_only.clone(),
            frozen: new.frozen,
            troubles: new.troubles,
            last_trouble: new.last_trouble.clone(),
            requests_per_second: requests.iter().map(|r| r.per_second).sum(),
            requests,
            log: LogRate {
                blocks: new.log.blocks,
                used_blocks: new.log.used_blocks,
                commits_per_second: rate(new.log.commits, old.log.commits),
                bytes_per_second: rate(new.log.bytes, old.log.bytes),
            },
            pushes: Pushes {
                per_second: rate(new.log.pushes, old.log.pushes),
                counted: times.count(),
                p50_us,
                p99_us,
                max_us,
                stages: stages(&first.status.push_stages, &new.push_stages),
            },
            memory: new.memory,
            space: new.space,
            slots: slots.collect(),
            locks_metered: new.locks_metered,
            locks: locks(&new.locks, &old.locks, &rate),
        }
    }
}

fn request(new: &RequestCount, old: &RequestCount, rate: &dyn Fn(u64, u64) -> f64) -> RequestRate {
    let count = new.requests.saturating_sub(old.requests);
    let us = (new.total_us - old.total_us).max(0.0);
    RequestRate {
        kind: new.kind.clone(),
        per_second: rate(new.requests, old.requests),
        failed_per_second: rate(new.failures, old.failures),
        bytes_per_second: rate(new.bytes, old.bytes),
        mean_us: us / count.max(1) as f64,
        count: new.requests,
    }
}

fn locks(new: &[LockStatus], old: &[LockStatus], rate: &dyn Fn(u64, u64) -> f64) -> Vec<LockRate> {
    let none = LockStatus::default();
    let mut rates: Vec<LockRate> = new
        .iter()
        .map(|lock| {
            let was = old.iter().find(|o| o.name == lock.name).unwrap_or(&none);
            LockRate {
                name: lock.name.clone(),
                taken_per_second: rate(lock.acquisitions, was.acquisitions),
                waits_per_second: rate(lock.contentions, was.contentions),
                waited_ms_per_second: rate(lock.wait_ns, was.wait_ns) / 1e6,
            }
        })
        .filter(|lock| lock.taken_per_second > 0.0)
        .collect();
    let cost = |l: &LockRate| (l.waited_ms_per_second, l.taken_per_second);
    rates.sort_by(|a, b| {
        cost(b)
            .partial_cmp(&cost(a))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_fuse::control::{SlotStatus, Status};
    use std::time::{Duration, Instant};

    #[test]
    fn rates_are_differences_over_time() {
        let request = |requests, total_us| RequestCount {
            kind: "lookup".into(),
            requests,
            total_us,
            ..RequestCount::default()
        };
        let lock = |name: &str, acquisitions, wait_ns| LockStatus {
            name: name.into(),
            acquisitions,
            wait_ns,
            ..LockStatus::default()
        };
        let at = Instant::now();
        let before = Sample {
            at,
            status: Status {
                requests: vec![request(100, 1000.0)],
                locks: vec![lock("idle", 5, 5), lock("cheap", 10, 0)],
                push_times: vec![7],
                ..Status::default()
            },
        };
        let slot = SlotStatus {
            requests: 50,
            ..SlotStatus::default()
        };
        let after = Sample {
            at: at + Duration::from_secs(2),
            status: Status {
                requests: vec![request(300, 4000.0)],
                locks: vec![
                    lock("idle", 5, 5),
                    lock("cheap", 30, 0),
                    lock("dear", 1, 4_000_000),
                ],
                slots: vec![slot],
                push_times: vec![7, 0, 3],
                push_stages: vec![StageStatus {
                    name: "flush".into(),
                    times: vec![8, 2],
                    total_ns: 2000,
                }],
                ..Status::default()
            },
        };
        let r = Report::between(&before, &before, &after);
        assert_eq!(r.requests_per_second.round(), 100.0);
        assert_eq!(r.requests[0].mean_us.round(), 15.0);
        assert_eq!(r.slots[0].requests_per_second.round(), 25.0);
        assert_eq!(
            (r.pushes.counted, r.pushes.p50_us, r.pushes.max_us),
            (3, 2, 2)
        );
        let flush = &r.pushes.stages[0];
        assert_eq!((flush.p50_us, flush.max_us), (0, 1));
        let names: Vec<_> = r.locks.iter().map(|l| l.name.as_str()).collect();
        assert_eq!(
            names,
            ["dear", "cheap"],
            "the most awaited first, idle ones left out"
        );
        assert_eq!(r.locks[0].waited_ms_per_second.round(), 2.0);
        // A restarted server counts from zero: no rate may become negative.
        let r = Report::between(&after, &after, &before);
        assert_eq!((r.requests_per_second, r.pushes.counted), (0.0, 0));
    }
}

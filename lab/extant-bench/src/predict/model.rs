//! A closed queueing network from measured figures.
//!
//! A core is a customer that runs one operation after another. The part of an operation that needs no other core is a
//! delay; every part that only one core can run at a time is a station:
//! - each class of locks that several cores share, with the demand acquisitions × hold; a class that belongs to a slot,
//!   or to an object that only one task uses, is not a station;
//! - each cache line that the conflict test found shared, with the demand of one transfer per touch.
//!
//! Assumptions:
//! - the instances of a class (block groups, shards) are chosen with equal chance;
//! - taking a lock that another core had last moves its line, [`Costs::line_ns`], while the lock is held;
//! - service times are exponential, as in exact Mean Value Analysis. Holds vary less, so real waits are shorter than
//!   the computed ones;
//! - memory bandwidth, shared caches and clock rates do not change with the number of cores that work;
//! - every task has its own core, and its own directory or file.

use super::measure::{Lasting, Measured};
use super::mva::{Point, Station, solve};
use serde::Serialize;

/// The assumptions about the machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Nanoseconds to fetch a line that another core wrote.
    pub line_ns: f64,
    /// Number of block groups over which the tasks' files are spread.
    pub groups: f64,
}

/// A line that the conflict test found shared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharedLine {
    /// The place in the code.
    pub place: String,
    /// Share of an operation's runs in which the line is touched, 0 to 1.
    pub share: f64,
}

/// Returns the number of instances of a class that tasks in separate directories share; `None` if each has its own.
fn shared(class: &str, costs: Costs) -> Option<f64> {
    match class {
        "directory bucket"
        | "directory loading"
        | "inode state"
        | "inode index chunk"
        | "file map"
        | "preallocation of a file"
        | "preallocation of a slot"
        | "page index"
        | "pages coming in"
        | "page"
        | "open files of a slot"
        | "commit list of a slot"
        | "list of a slot"
        | "dirty inodes of a slot"
        | "inode stretches of a slot"
        | "walk cache of a slot" => None,
        "block group" => Some(costs.groups),
        // Every other class counts as one shared instance: the worst case.
        _ => Some(1.0),
    }
}

/// Number of instances at which cores never meet.
const APART: f64 = 1e9;

/// Returns the stations for `cores` cores.
pub fn stations(
    measured: &Measured,
    lines: &[SharedLine],
    costs: Costs,
    cores: u32,
) -> Vec<Station> {
    // The probability that another core had the line last.
    let moved = 1.0 - 1.0 / f64::from(cores.max(1));
    let locks = measured.locks.iter().filter_map(|lock| {
        let (instances, moved, lines) = match lock.shares {
            Some(shares) => {
                let (instances, cores) = (shares.instances?, f64::from(cores.max(1)));
                let lines = shares.lines + shares.lines_each_core * (cores - 1.0);
                if cores <= instances {
                    // Each core has a separate instance, and does not wait.
                    (APART, 0.0, lines)
                } else {
                    // The probability that another core of those that share an instance had it last.
                    (instances, 1.0 - instances / cores, lines)
                }
            }
            None => (shared(&lock.class, costs)?, moved, 0.0),
        };
        // The lock's own line, and the lines that are touched while it is held.
        let each = lock.hold_ns + moved * costs.line_ns * (1.0 + lines);
        Some(Station::new(&lock.class, lock.per_op * each, instances))
    });
    let lines = lines
        .iter()
        .map(|line| Station::new(&line.place, line.share * moved * costs.line_ns, 1.0));
    locks.chain(lines).filter(|s| s.demand_ns > 0.0).collect()
}

/// Returns the throughput of a workload on this many cores.
pub fn predict(measured: &Measured, lines: &[SharedLine], costs: Costs, cores: u32) -> Point {
    let stations = stations(measured, lines, costs, cores);
    // Time with locks held is part of the operation's time; on one core it contains no transfers.
    let held: f64 = self::stations(measured, &[], costs, 1)
        .iter()
        .map(|s| s.demand_ns)
        .sum();
    let alone = (1e9 / measured.one - held).max(0.0);
    solve(alone, &stations, cores)
}

/// Returns a predicted rate with the costs of pushes, in operations per second. Times in which all cores work
/// alternate with pushes, in which all cores take part and one of them does the serial part. A push concurrent with
/// operations costs the same.
pub fn lasting(pushes: &Lasting, point: &Point) -> f64 {
    let serial = pushes.serial_ns();
    let side_by_side = (pushes.sync_one_ns - serial) / f64::from(point.cores.max(1));
    1e9 / (1e9 / point.per_second + serial + side_by_side)
}

#[cfg(test)]
mod tests {
    use super::super::measure::LockUse;
    use super::*;
    use crate::before::Pair;

    const COSTS: Costs = Costs {
        line_ns: 50.0,
        groups: 64.0,
    };

    fn measured(locks: &[(&str, f64, f64)]) -> Measured {
        Measured {
            name: "mdtest-create".into(),
            before: false,
            cpu_ns: 500.0,
            one: 2e6,
            two: 4e6,
            lasting: None,
            locks: locks
                .iter()
                .map(|&(class, per_op, hold_ns)| LockUse {
                    class: class.into(),
                    per_op,
                    hold_ns,
                    shares: None,
                })
                .collect(),
        }
    }

    #[test]
    fn one_core_makes_what_was_measured() {
        let m = measured(&[
            ("counter pool", 0.01, 100.0),
            ("one lock per volume", 1.0, 480.0),
        ]);
        let lines = [SharedLine {
            place: "x".into(),
            share: 1.0,
        }];
        assert!((predict(&m, &lines, COSTS, 1).per_second / 2e6 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_lasts_is_bound_by_what_one_thread_pushes() {
        let pushes = |sync_two_ns| Lasting {
            sync_one_ns: 500.0,
            sync_two_ns,
            two: 0.0,
            two_tasks_on_one: 0.0,
        };
        let at = |sync, cores| lasting(&pushes(sync), &predict(&measured(&[]), &[], COSTS, cores));
        // Half a microsecond of work and half of pushing: half the rate.
        assert!((at(250.0, 1) / 1e6 - 1.0).abs() < 1e-9);
        assert!((at(250.0, 256) / 256e6 - 1.0).abs() < 1e-9);
        // A fifth of a push is serial.
        let far = at(300.0, 256);
        assert!(far < 1e9 / 100.0 && far > 0.9 * 1e9 / 100.0, "{far}");
    }

    #[test]
    fn own_locks_scale_and_one_lock_does_not() {
        let own = measured(&[
            ("directory bucket", 2.0, 200.0),
            ("commit list of a slot", 1.0, 90.0),
        ]);
        assert!((predict(&own, &[], COSTS, 256).per_second / 512e6 - 1.0).abs() < 1e-9);
        let one = measured(&[("one lock per volume", 1.0, 480.0)]);
        let far = predict(&one, &[], COSTS, 256);
        assert!(far.per_second < 2e6 && far.busiest > 0.99);
        let groups = measured(&[("block group", 1.0, 480.0)]);
        assert!(predict(&groups, &[], COSTS, 256).per_second > 30.0 * far.per_second);
    }

    #[test]
    fn lines_touched_under_a_lock_lengthen_it() {
        let [after, before] = Pair::named("commit-list").unwrap().algorithms();
        let with = |shares| {
            let mut m = measured(&[("any", 1.0, 20.0)]);
            m.locks[0].shares = Some(shares);
            predict(&m, &[], COSTS, 65).per_second
        };
        assert!((with(after.shares) / (65.0 * 2e6) - 1.0).abs() < 1e-9);
        // The lock's own line, the list's end, and the counts of 64 other slots, eight at a time.
        let hold = 20.0 + 64.0 / 65.0 * 50.0 * (1.0 + 1.0 + 8.0);
        assert!((with(before.shares) * hold / 1e9 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn locks_that_cores_are_spread_over_are_shared_when_there_are_more_cores() {
        let [after, _] = Pair::named("group-goals").unwrap().algorithms();
        let mut m = measured(&[("any", 1.0, 100.0)]);
        m.locks[0].shares = Some(after.shares);
        let at = |cores| predict(&m, &[], COSTS, cores).per_second / 2e6 / f64::from(cores);
        assert!((at(1) - 1.0).abs() < 1e-6 && (at(16) - 1.0).abs() < 1e-6);
        assert!(at(17) < 0.99 && at(256) < at(32));
    }

    #[test]
    fn a_shared_line_bounds() {
        let lines = [SharedLine {
            place: "counts".into(),
            share: 1.0,
        }];
        let point = predict(&measured(&[]), &lines, COSTS, 256);
        // The line moves at most once at a time.
        assert!(point.per_second <= 1e9 / (50.0 * 255.0 / 256.0) + 1.0);
        assert_eq!(point.bottleneck.as_deref(), Some("counts"));
    }
}

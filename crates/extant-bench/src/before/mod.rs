//! The algorithms that the mechanisms of this engine replace, each built from the same crates as its replacement, and
//! run beside it. They live here only.
//!
//! Locks of the "before" side are spin locks, as those in the kernel were; they yield to other threads after some
//! turns, since user threads may be preempted while they hold one.
//!
//! | name | before | after |
//! |---|---|---|
//! | `inode-search` (I1) | a free bit is found without the lock, the group locked, the bit tested again | one atomic test-and-set, each task in its own stretch of the group |
//! | `group-lock` (B1) | all wait for the lock of the group at one shared goal | busy groups are skipped in all passes but the last, goals are spread |
//! | `inode-list` (P1) | one list, one lock | a list and a lock per slot |
//! | `inode-list-walks` (P2) | and walks that hold it throughout | and walks that hold one for 32 elements |
//! | `commit-list` (C1, C3) | one list under one lock, the counters of used space summed at each commit | a list per slot, nothing summed |

mod commit_list;
mod group_lock;
mod inode_list;
mod inode_search;

use crate::runner::{Contender, Shape, Task, Tasks};
use anyhow::Result;
use serde::Serialize;

/// Makes the tasks of a round.
type Make = fn(&Shape) -> Result<Tasks>;

/// A pair of algorithms.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Its name.
    pub name: &'static str,
    /// The comparison, in a few words.
    pub about: &'static str,
    /// The algorithm before, in a few words.
    pub before_is: &'static str,
    /// Tasks, and operations of a round, if they are part of the definition.
    pub size: Option<(usize, u64)>,
    after: Make,
    before: Make,
    after_shares: Sharing,
    before_shares: Sharing,
}

/// The state that cores share in an algorithm, beside the words of its locks: a lock meter does not see it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sharing {
    /// How many locks there are: cores are spread over them, and one more core than locks is the first that shares one.
    /// `None` if each core has its own.
    pub instances: Option<f64>,
    /// Lines written by another core that are fetched while the lock is held.
    pub lines: f64,
    /// And for each further core.
    pub lines_each_core: f64,
    /// A line that all write without a lock, and how often an operation does.
    pub line: Option<(&'static str, f64)>,
}

impl Sharing {
    const NOTHING: Self = Self {
        instances: None,
        lines: 0.0,
        lines_each_core: 0.0,
        line: None,
    };

    /// One lock for all cores.
    const fn one(lines: f64) -> Self {
        Self {
            instances: Some(1.0),
            lines,
            ..Self::NOTHING
        }
    }
}

/// A core fetches that many lines at once.
const AT_ONCE: f64 = 8.0;

/// A thousand threads, each with so many inodes that it is not their start that is measured.
const MANY: Option<(usize, u64)> = Some((1000, 4_000_000));

/// All pairs.
pub const PAIRS: [Pair; 5] = [
    Pair {
        name: "inode-search",
        about: "take a free inode bit: found, locked and tested again, or one test-and-set",
        before_is: "find without the lock, lock, test again",
        size: None,
        after: inode_search::after,
        before: inode_search::before,
        after_shares: Sharing {
            line: Some(("next stretch", 1.0 / inode_search::STRETCH as f64)),
            ..Sharing::NOTHING
        },
        // The word of the bitmap, and the count.
        before_shares: Sharing::one(2.0),
    },
    Pair {
        name: "group-lock",
        about: "allocate blocks: wait for the group of one shared goal, or skip busy groups",
        before_is: "wait for the group of one goal",
        size: None,
        after: group_lock::after,
        before: group_lock::before,
        after_shares: Sharing {
            instances: Some(group_lock::SPREAD as f64),
            lines: 1.0,
            ..Sharing::NOTHING
        },
        // The goal, and the word of the bitmap.
        before_shares: Sharing::one(2.0),
    },
    Pair {
        name: "inode-list",
        about: "bring inodes in core, then drop all at once: one list, or one per slot",
        before_is: "one list, one lock",
        size: MANY,
        after: inode_list::after,
        before: inode_list::before,
        after_shares: Sharing::NOTHING,
        // A neighbour of an inode that comes, both of one that goes.
        before_shares: Sharing::one(1.5),
    },
    Pair {
        name: "inode-list-walks",
        about: "the same while one task in a hundred walks over all inodes",
        before_is: "one list, one lock, held by walks",
        size: MANY,
        after: inode_list::after_with_walks,
        before: inode_list::before_with_walks,
        after_shares: Sharing::NOTHING,
        before_shares: Sharing::one(1.5),
    },
    Pair {
        name: "commit-list",
        about: "commit items: one list and summed counters, or a list per slot",
        before_is: "one list under one lock, counters summed",
        size: None,
        after: commit_list::after,
        before: commit_list::before,
        after_shares: Sharing::NOTHING,
        // The end of the list; and the counts of all other slots are summed.
        before_shares: Sharing {
            lines_each_core: 1.0 / AT_ONCE,
            ..Sharing::one(1.0)
        },
    },
];

/// One algorithm of a pair.
pub struct Algorithm {
    name: &'static str,
    make: Make,
    /// What its cores share.
    pub shares: Sharing,
}

impl Pair {
    /// The pair of this name.
    ///
    /// ```
    /// assert!(extant_bench::before::Pair::named("inode-list").is_some());
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        PAIRS.into_iter().find(|pair| pair.name == name)
    }

    /// The engine's algorithm, and the one that it replaces.
    pub fn algorithms(&self) -> [Algorithm; 2] {
        let algorithm = |name, make, shares| Algorithm { name, make, shares };
        [
            algorithm("after", self.after, self.after_shares),
            algorithm("before", self.before, self.before_shares),
        ]
    }
}

impl Contender for Algorithm {
    fn name(&self) -> String {
        self.name.into()
    }

    fn prepare(&self, shape: &Shape) -> Result<Tasks> {
        (self.make)(shape)
    }
}

fn tasks<T: Task + 'static>(shape: &Shape, make: impl Fn(usize) -> T) -> Result<Tasks> {
    crate::workload::tasks(shape, |task| Ok(make(task)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner;

    #[test]
    fn both_of_each_pair_do_the_same_work() {
        for pair in PAIRS {
            let shape = Shape {
                tasks: 4,
                seconds: 30.0,
                files: 3000,
                rounds: 1,
            };
            let [after, before] = pair.algorithms();
            let reports = runner::run(pair.name, &[&after, &before], shape, || Ok(())).unwrap();
            let ops: Vec<u64> = reports.iter().map(|r| r.rounds[0].ops).collect();
            assert!(ops[0] > 0 && ops[0] == ops[1], "{}: {ops:?}", pair.name);
            // A task whose time is over leaves, and the others do not wait for it.
            let short = Shape {
                seconds: 0.001,
                tasks: 20,
                ..shape
            };
            runner::run(pair.name, &[&after, &before], short, || Ok(())).unwrap();
        }
    }
}

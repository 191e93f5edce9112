//! The algorithms that the mechanisms of this engine replace, each built from the same crates as its replacement, and
//! compared in the same run. They exist only here.
//!
//! Locks of the "before" side are spin locks, like those in the kernel. They yield to other threads after some
//! attempts, because user threads may be preempted while they hold a lock.
//!
//! | name | before | after | images |
//! |---|---|---|---|
//! | `inode-search` (I1) | a free bit is found, its group locked, and the bit tested again | the bit is set by one atomic test-and-set | the same bits |
//! | `inode-stretches` (I1) | all take the first free bit | each takes bits of a separate stretch | equal number of bits |
//! | `group-lock` (B1) | all wait for the lock of the group at one shared goal | groups with a busy lock are skipped in all passes but the last | equal number of blocks |
//! | `group-goals` (B4) | busy groups are skipped, one goal for all | busy groups are skipped, goals are spread | equal number of blocks |
//! | `inode-list` (P1) | one list, one lock | a list and a lock per slot | none |
//! | `inode-list-walks` (P2) | with walks that hold the lock throughout | with walks that hold a lock for 32 elements | none |
//! | `commit-list` (C1, C3) | one list under one lock, used space summed at each commit | a list per slot, items counted in batches | the same items, sorted |
//!
//! Each pair differs only as its row says; tests assert that both leave the images of the last column.

mod commit_list;
mod group_lock;
mod inode_list;
mod inode_search;

use crate::runner::{Contender, Shape, Task, Tasks};
use anyhow::Result;
use serde::Serialize;

/// Function that makes the tasks of a round.
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
    /// Number of tasks, and operations per round, if the definition fixes them.
    pub size: Option<(usize, u64)>,
    after: Make,
    before: Make,
    after_shares: Sharing,
    before_shares: Sharing,
}

/// The state that cores share in an algorithm, except the words of its locks, because a lock meter does not see this
/// state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sharing {
    /// Number of locks. Cores are spread over them, so that sharing starts at one more core than locks. `None` if each
    /// core has a separate lock.
    pub instances: Option<f64>,
    /// Lines written by other cores that are fetched while the lock is held.
    pub lines: f64,
    /// Additional lines for each further core.
    pub lines_each_core: f64,
    /// A line that all cores write without a lock, and the number of writes per operation.
    pub line: Option<(&'static str, f64)>,
}

impl Sharing {
    const NOTHING: Self = Self {
        instances: None,
        lines: 0.0,
        lines_each_core: 0.0,
        line: None,
    };

    /// Returns the sharing of one lock for all cores.
    const fn one(lines: f64) -> Self {
        Self {
            instances: Some(1.0),
            lines,
            ..Self::NOTHING
        }
    }
}

/// Number of lines that a core fetches at once.
const AT_ONCE: f64 = 8.0;

/// A thousand threads, each with enough inodes that the start of threads does not dominate the result.
const MANY: Option<(usize, u64)> = Some((1000, 4_000_000));

/// All pairs.
pub const PAIRS: [Pair; 7] = [
    Pair {
        name: "inode-search",
        about: "take a free inode bit that was found: by lock and test, or by test-and-set",
        before_is: "lock the group, test again",
        size: None,
        after: inode_search::after,
        before: inode_search::before,
        // The count is on the line of another word; each operation writes both.
        after_shares: Sharing {
            line: Some(("word of the bitmap, and count", 2.0)),
            ..Sharing::NOTHING
        },
        // Lines of the bitmap word and of the count.
        before_shares: Sharing::one(2.0),
    },
    Pair {
        name: "inode-stretches",
        about: "take inode bits by test-and-set: all the first one, or each of its own stretch",
        before_is: "all take the first free bit",
        size: None,
        after: inode_search::in_stretches,
        before: inode_search::after,
        // The count of the group, and rarely the next stretch.
        after_shares: Sharing {
            line: Some(("count of the group", 1.0)),
            ..Sharing::NOTHING
        },
        before_shares: Sharing {
            line: Some(("word of the bitmap, and count", 2.0)),
            ..Sharing::NOTHING
        },
    },
    Pair {
        name: "group-lock",
        about: "allocate blocks at one shared goal: wait for the lock of its group, or skip busy groups",
        before_is: "wait for the group",
        size: None,
        after: group_lock::skipping,
        before: group_lock::waiting,
        after_shares: Sharing {
            instances: Some(group_lock::GROUPS as f64),
            ..Sharing::one(2.0)
        },
        // Lines of the goal and of the bitmap word.
        before_shares: Sharing::one(2.0),
    },
    Pair {
        name: "group-goals",
        about: "allocate blocks, skipping busy groups: one shared goal, or goals spread over the groups",
        before_is: "one goal for all",
        size: None,
        after: group_lock::skipping_and_spread,
        before: group_lock::skipping,
        after_shares: Sharing {
            instances: Some(group_lock::SPREAD as f64),
            ..Sharing::one(1.0)
        },
        before_shares: Sharing {
            instances: Some(group_lock::GROUPS as f64),
            ..Sharing::one(2.0)
        },
    },
    Pair {
        name: "inode-list",
        about: "bring inodes in core, then drop all at once: one list, or one per slot",
        before_is: "one list, one lock",
        size: MANY,
        after: inode_list::after,
        before: inode_list::before,
        after_shares: Sharing::NOTHING,
        // An added inode touches one neighbour, a removed one touches both.
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

/// An algorithm of a pair.
pub struct Algorithm {
    name: &'static str,
    make: Make,
    /// State that its cores share.
    pub shares: Sharing,
}

impl Pair {
    /// Returns the pair of this name.
    ///
    /// ```
    /// assert!(extant_bench::before::Pair::named("inode-list").is_some());
    /// ```
    pub fn named(name: &str) -> Option<Self> {
        PAIRS.into_iter().find(|pair| pair.name == name)
    }

    /// Returns the engine's algorithm, and the algorithm that it replaces.
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

    /// Runs all tasks to their ends, concurrently.
    pub fn run_all(tasks: Tasks) {
        std::thread::scope(|s| {
            for mut task in tasks {
                s.spawn(move || while task.op().unwrap() {});
            }
        });
    }

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

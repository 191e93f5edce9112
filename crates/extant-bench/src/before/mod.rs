//! How it was done before: the algorithms that the mechanisms of this engine replace, each built from the same
//! crates as what replaces it, and run beside it. They live here only.
//!
//! Locks of the "before" side are spin locks, as those in the kernel were; they yield to other threads after some
//! turns, since user threads may be preempted while they hold one.
//!
//! | name | before | after |
//! |---|---|---|
//! | `inode-search` [I1] | a free bit is found without the lock, the group locked, the bit tested again | one atomic test-and-set, each task in its own stretch of the group |
//! | `group-lock` [B1] | all wait for the lock of the group at one shared goal | busy groups are skipped in all passes but the last, goals are spread |
//! | `inode-list` [P1] | one list, one lock | a list and a lock per slot |
//! | `commit-list` [C1, C3] | one list under one lock, the counters of used space summed at each commit | a list per slot, nothing summed |

mod commit_list;
mod group_lock;
mod inode_list;
mod inode_search;

use crate::runner::{Contender, Shape, Task, Tasks};
use anyhow::Result;

/// Makes the tasks of a round.
type Make = fn(&Shape) -> Result<Tasks>;

/// A pair of algorithms.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Its name.
    pub name: &'static str,
    /// What is compared.
    pub about: &'static str,
    /// Threads that its author measured it with, if they are part of the definition.
    pub tasks: Option<usize>,
    after: Make,
    before: Make,
}

/// All of them.
pub const PAIRS: [Pair; 4] = [
    Pair {
        name: "inode-search",
        about: "take a free inode bit: found, locked and tested again, or one test-and-set",
        tasks: None,
        after: inode_search::after,
        before: inode_search::before,
    },
    Pair {
        name: "group-lock",
        about: "allocate blocks: wait for the group of one shared goal, or skip busy groups",
        tasks: None,
        after: group_lock::after,
        before: group_lock::before,
    },
    Pair {
        name: "inode-list",
        about: "add inodes to the list of all, then take them off: one lock, or one per slot",
        tasks: Some(1000),
        after: inode_list::after,
        before: inode_list::before,
    },
    Pair {
        name: "commit-list",
        about: "commit items: one list and summed counters, or a list per slot",
        tasks: None,
        after: commit_list::after,
        before: commit_list::before,
    },
];

/// One algorithm of a pair.
pub struct Algorithm {
    name: &'static str,
    make: Make,
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

    /// What this engine does, and what it replaces.
    pub fn algorithms(&self) -> [Algorithm; 2] {
        let algorithm = |name, make| Algorithm { name, make };
        [
            algorithm("after", self.after),
            algorithm("before", self.before),
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
            // One whose time is over leaves, and no other waits for it.
            let short = Shape {
                seconds: 0.001,
                tasks: 20,
                ..shape
            };
            runner::run(pair.name, &[&after, &before], short, || Ok(())).unwrap();
        }
    }
}

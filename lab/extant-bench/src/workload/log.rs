//! Workloads of the log: commits and fsync.

use super::{Workload, tasks};
use crate::names::Names;
use crate::runner::{Shape, Task, Tasks};
use crate::target::{Open, TaskDir};
use anyhow::Result;

/// Each task creates a file in its own directory, changes its mode and removes it: three transactions, each of which
/// is one operation.
pub struct Commits;

/// Each task creates files in its own directory, writes 4 KiB into each and makes it durable, which is one operation.
pub struct Fsync;

struct Small {
    dir: Box<dyn TaskDir>,
    next: Next,
}

enum Next {
    Create,
    SetMode,
    Unlink,
}

impl Task for Small {
    fn op(&mut self) -> Result<bool> {
        self.next = match self.next {
            Next::Create => {
                self.dir.create("file")?;
                Next::SetMode
            }
            Next::SetMode => {
                self.dir.set_mode("file", 0o600)?;
                Next::Unlink
            }
            Next::Unlink => {
                self.dir.unlink("file")?;
                Next::Create
            }
        };
        Ok(true)
    }
}

impl Workload for Commits {
    fn name(&self) -> &'static str {
        "commits"
    }

    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        tasks(shape, |task| {
            Ok(Small {
                dir: base.make_dir(&format!("task.{task}"))?,
                next: Next::Create,
            })
        })
    }

    fn counts(&self) -> bool {
        true
    }
}

struct Durable {
    dir: Box<dyn TaskDir>,
    names: Names,
    block: Box<[u8; 4096]>,
    left: u64,
}

impl Task for Durable {
    fn op(&mut self) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(false);
        };
        self.left = left;
        let file = self.dir.open(self.names.next(), Open::Create)?;
        file.write_at(0, &self.block[..])?;
        file.fsync()?;
        Ok(true)
    }
}

impl Workload for Fsync {
    fn name(&self) -> &'static str {
        "fsync"
    }

    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        tasks(shape, |task| {
            Ok(Durable {
                dir: base.make_dir(&format!("task.{task}"))?,
                names: Names::new("file", task),
                block: Box::new([b'x'; 4096]),
                left: shape.files,
            })
        })
    }

    fn counts(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::both;

    #[test]
    fn what_the_log_did_is_counted() {
        let shape = Shape {
            tasks: 2,
            seconds: 0.05,
            files: 30,
            rounds: 1,
        };
        let commits = both(&Commits, shape);
        let round = &commits[0].rounds[0];
        // Each operation is a transaction; the set-up of the round is committed earlier.
        assert!(round.counts["commits"] >= round.ops as f64, "{round:?}");
        assert!(commits[1].counts.is_empty());
        let fsync = both(&Fsync, shape);
        let round = &fsync[0].rounds[0];
        assert!(round.ops <= 60 && round.counts["pushes"] > 0.0, "{round:?}");
        assert!(round.counts["log bytes"] >= 4096.0 * round.counts["pushes"]);
    }
}

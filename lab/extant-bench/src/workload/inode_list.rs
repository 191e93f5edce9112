//! inode-list: many tasks bring a batch of inodes each in core, then all are dropped at once.

use super::{OnTarget, Workload, tasks};
use crate::names::Names;
use crate::runner::{Contender, Counts, Shape, Task, Tasks};
use crate::target::{Target, TaskDir};
use anyhow::Result;

/// Files in a directory for each task; one operation stats all of them.
struct Files;

struct Stat {
    dir: Box<dyn TaskDir>,
    names: Names,
    left: u64,
}

impl Task for Stat {
    fn op(&mut self) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(false);
        };
        self.left = left;
        self.dir.stat(self.names.next())?;
        Ok(true)
    }
}

impl Workload for Files {
    fn name(&self) -> &'static str {
        NAME
    }

    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        tasks(shape, |task| {
            let dir = base.make_dir(&format!("task.{task}"))?;
            let mut names = Names::new("file", task);
            (0..shape.files).try_for_each(|_| dir.create(names.next()))?;
            Ok(Stat {
                dir,
                names: Names::new("file", task),
                left: shape.files,
            })
        })
    }
}

/// Name of the workload.
pub const NAME: &str = "inode-list";

/// The workload over a target. Dropping the inodes is timed separately.
pub struct InodeList<'a> {
    target: &'a dyn Target,
    files: OnTarget<'a>,
}

impl<'a> InodeList<'a> {
    /// Returns the workload over a target.
    pub fn new(target: &'a dyn Target) -> Self {
        let files = OnTarget::new(target, &Files);
        Self { target, files }
    }
}

impl Contender for InodeList<'_> {
    fn name(&self) -> String {
        self.files.name()
    }

    fn prepare(&self, shape: &Shape) -> Result<Tasks> {
        let tasks = self.files.prepare(shape)?;
        self.target.drop_caches()?;
        Ok(tasks)
    }

    fn finish(&self, tasks: &mut Tasks) -> Result<()> {
        tasks.clear();
        self.target.drop_caches()
    }

    fn finishes(&self) -> &'static str {
        "drop"
    }

    fn clean(&self) -> Result<()> {
        self.files.clean()
    }

    fn other_cpu(&self) -> f64 {
        self.files.other_cpu()
    }

    fn counts(&self) -> Counts {
        Counts::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner;
    use crate::target::LibTarget;

    #[test]
    fn every_inode_is_brought_in_once() {
        let target = LibTarget::new(crate::workload::tests::volume(64));
        let shape = Shape {
            tasks: 20,
            seconds: 60.0,
            files: 10,
            rounds: 1,
        };
        let list = InodeList::new(&target);
        let reports = runner::run(NAME, &[&list], shape, || Ok(())).unwrap();
        assert_eq!(reports[0].rounds[0].ops, 200);
        assert_eq!(reports[0].finishes, "drop");
    }
}

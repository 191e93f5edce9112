//! Workloads that repeat one operation, one file per family, and their adapter to targets.

pub mod fxmark;
pub mod inode_list;
pub mod log;
pub mod small;

use crate::runner::{Contender, Counts, Shape, Task, Tasks};
use crate::target::{Target, TaskDir, empty};
use anyhow::Result;
use std::cell::Cell;

/// A workload: the preparation of its files, and the repeated operation.
pub trait Workload {
    /// Returns its name in other benchmark suites.
    fn name(&self) -> &'static str;
    /// Makes the files of the tasks, below an empty directory, and the tasks.
    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks>;
    /// Returns whether the counts of the log matter.
    fn counts(&self) -> bool {
        false
    }
}

/// A workload over a target.
pub struct OnTarget<'a> {
    target: &'a dyn Target,
    workload: &'a dyn Workload,
    /// The directory of the current round.
    place: String,
    made: Cell<bool>,
}

impl<'a> OnTarget<'a> {
    /// Returns a workload over a target.
    pub fn new(target: &'a dyn Target, workload: &'a dyn Workload) -> Self {
        let process = std::process::id();
        Self {
            target,
            workload,
            place: format!("{}.{process}", workload.name()),
            made: Cell::new(false),
        }
    }
}

impl Contender for OnTarget<'_> {
    fn name(&self) -> String {
        self.target.name()
    }

    fn prepare(&self, shape: &Shape) -> Result<Tasks> {
        let base = self.target.make_dir(&self.place)?;
        self.made.set(true);
        let tasks = self.workload.prepare(&*base, shape)?;
        self.target.sync()?;
        Ok(tasks)
    }

    fn finish(&self, _tasks: &mut Tasks) -> Result<()> {
        self.target.sync()
    }

    fn clean(&self) -> Result<()> {
        if !self.made.replace(false) {
            return Ok(());
        }
        // Remove the directory instead of keeping it, because a failed round may have left no handle.
        let base = self.target.open_dir(&self.place)?;
        empty(&*base)?;
        drop(base);
        self.target.remove_dir(&self.place)?;
        self.target.sync()
    }

    fn other_cpu(&self) -> f64 {
        self.target.other_cpu()
    }

    fn counts(&self) -> Counts {
        if self.workload.counts() {
            self.target.counts()
        } else {
            Counts::new()
        }
    }
}

/// Makes a task for each number.
pub(crate) fn tasks<T: Task + 'static>(
    shape: &Shape,
    make: impl Fn(usize) -> Result<T>,
) -> Result<Tasks> {
    (0..shape.tasks)
        .map(|task| Ok(Box::new(make(task)?) as Box<dyn Task>))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::runner::{self, Report};
    use crate::target::{LibTarget, PathTarget};
    use blockdev::MemDevice;
    use extant::mkfs::{self, MkfsOptions};
    use std::sync::Arc;

    /// Returns an empty volume in memory.
    pub(crate) fn volume(mib: u64) -> extant::Volume {
        let device = Arc::new(MemDevice::new(mib << 20));
        let options = MkfsOptions {
            size: Some(mib << 20),
            zeroed_device: true,
            ..MkfsOptions::default()
        };
        mkfs::format(&*device, &options).unwrap();
        extant::VolumeOptions::new().open_device(device).unwrap()
    }

    /// Runs a workload over a volume and over a path, which are empty afterwards.
    pub(crate) fn both(workload: &dyn Workload, shape: Shape) -> Vec<Report> {
        // In memory if possible, because every round syncs.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.unwrap();
        let (lib, path) = (LibTarget::new(volume(64)), PathTarget::new(dir.path()));
        let lib_run = OnTarget::new(&lib, workload);
        let path_run = OnTarget::new(&path, workload);
        let reports = runner::run(workload.name(), &[&lib_run, &path_run], shape, || Ok(()));
        let reports = reports.unwrap_or_else(|e| panic!("{}: {e:#}", workload.name()));
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
        let mut left = lib.0.read_dir("/").unwrap();
        assert!(left.all(|e| e.unwrap().file_name() == "lost+found"));
        reports
    }
}

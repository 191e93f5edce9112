//! The machine's own limit: tasks that share no volume.

use super::{LibTarget, Target, TaskDir, is_missing};
use crate::runner::Counts;
use anyhow::{Context, Result, anyhow};
use extant::Volume;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Volumes in this process. Successive directories are in successive volumes, so that tasks with separate directories
/// share only the machine. No engine can gain more from a second processor than these tasks do.
pub struct Apart {
    volumes: Vec<LibTarget>,
    turn: AtomicUsize,
}

impl Apart {
    /// Combines these volumes, of which there must be at least one.
    ///
    /// # Errors
    /// `volumes` is empty.
    pub fn new(volumes: Vec<Volume>) -> Result<Self> {
        anyhow::ensure!(!volumes.is_empty(), "no volume");
        Ok(Self {
            volumes: volumes.into_iter().map(LibTarget::new).collect(),
            turn: AtomicUsize::new(0),
        })
    }

    /// Calls the volume that has the path.
    fn where_it_is<T>(&self, path: &str, f: impl Fn(&LibTarget) -> Result<T>) -> Result<T> {
        let mut answers = self.volumes.iter().map(f);
        answers
            .find(|answer| !answer.as_ref().is_err_and(is_missing))
            .unwrap_or_else(|| Err(extant::Error::NotFound).with_context(|| path.to_string()))
    }
}

impl Target for Apart {
    fn name(&self) -> String {
        format!("{} volumes", self.volumes.len())
    }

    fn make_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        if path.contains('/') {
            return self.where_it_is(path, |volume| volume.make_dir(path));
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.volumes[turn % self.volumes.len()].make_dir(path)
    }

    fn open_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        self.where_it_is(path, |volume| volume.open_dir(path))
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        self.where_it_is(path, |volume| volume.remove_dir(path))
    }

    fn sync(&self) -> Result<()> {
        std::thread::scope(|s| {
            let all: Vec<_> = self.volumes.iter().map(|v| s.spawn(|| v.sync())).collect();
            // Join all threads, even if one fails.
            let all: Vec<_> = all.into_iter().map(|t| t.join()).collect();
            all.into_iter()
                .try_for_each(|synced| synced.map_err(|_| anyhow!("sync panicked"))?)
        })
    }

    fn drop_caches(&self) -> Result<()> {
        self.volumes.iter().try_for_each(Target::drop_caches)
    }

    fn counts(&self) -> Counts {
        let mut sum = Counts::new();
        for (name, count) in self.volumes.iter().flat_map(Target::counts) {
            *sum.entry(name).or_insert(0.0) += count;
        }
        sum
    }
}

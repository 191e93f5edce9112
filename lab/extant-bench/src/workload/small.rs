//! fallocate2, open1 and unlink2, as will-it-scale defines them.

use super::{Workload, tasks};
use crate::runner::{Shape, Task, Tasks};
use crate::target::{Open, TaskDir, TaskFile};
use anyhow::Result;

/// Each task preallocates its own unnamed file in steps of 8 KiB; at 1 MiB the file is truncated. One operation is one
/// fallocate.
pub struct Fallocate2;

/// Like [`Fallocate2`], alternating between two files. The log cancels an allocation and its free only if both are the
/// last change of their slot, and here they never are: the difference from [`Fallocate2`] is the gain from canceling.
pub struct Fallocate2InTurn;

/// Like [`Fallocate2`], from the end of the file to its start, so that blocks reserved for growing files do not help.
/// Each operation searches a group for its blocks and takes the group's lock, as each operation did in the kernel that
/// the author of B1 measured.
pub struct Fallocate2Search;

/// Each task opens and closes its own file.
pub struct Open1;

/// Each task creates, closes and removes a file in its own directory.
pub struct Unlink2;

const STEP: u64 = 8 << 10;
const WHOLE: u64 = 1 << 20;

struct Grow {
    file: Box<dyn TaskFile>,
    at: u64,
}

impl Task for Grow {
    fn op(&mut self) -> Result<bool> {
        if self.at == WHOLE {
            self.file.truncate(0)?;
            self.at = 0;
        }
        self.file.fallocate(self.at, STEP)?;
        self.at += STEP;
        Ok(true)
    }
}

impl Workload for Fallocate2 {
    fn name(&self) -> &'static str {
        "fallocate2"
    }

    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        tasks(shape, |task| {
            let name = format!("file.{task}");
            let file = base.open(&name, Open::Create)?;
            base.unlink(&name)?;
            Ok(Grow { file, at: 0 })
        })
    }
}

fn unnamed(base: &dyn TaskDir, name: &str) -> Result<Box<dyn TaskFile>> {
    let file = base.open(name, Open::Create)?;
    base.unlink(name)?;
    Ok(file)
}

struct InTurn {
    files: [Grow; 2],
    second: bool,
}

impl Task for InTurn {
    fn op(&mut self) -> Result<bool> {
        self.second = !self.second;
        self.files[usize::from(self.second)].op()
    }
}

impl Workload for Fallocate2InTurn {
    fn name(&self) -> &'static str {
        "fallocate2-in-turn"
    }

    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        tasks(shape, |task| {
            let grow = |nr| -> Result<Grow> {
                let file = unnamed(base, &format!("file.{task}.{nr}"))?;
                Ok(Grow { file, at: 0 })
            };
            Ok(InTurn {
                files: [grow(0)?, grow(1)?],
                second: false,
            })
        })
    }
}

struct Backwards(Grow);

impl Task for Backwards {
    fn op(&mut self) -> Result<bool> {
        if self.0.at == 0 {
            self.0.file.truncate(0)?;
            self.0.at = WHOLE;
        }
        // Every other 8 KiB, so that no run continues the one before it.
        self.0.at -= 2 * STEP;
        self.0.file.fallocate(self.0.at, STEP)?;
        Ok(true)
    }
}

impl Workload for Fallocate2Search {
    fn name(&self) -> &'static str {
        "fallocate2-search"
    }

    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        tasks(shape, |task| {
            let file = unnamed(base, &format!("file.{task}"))?;
            Ok(Backwards(Grow { file, at: 0 }))
        })
    }
}

struct OpenClose {
    dir: Box<dyn TaskDir>,
    name: String,
}

impl Task for OpenClose {
    fn op(&mut self) -> Result<bool> {
        self.dir.open_close(&self.name)?;
        Ok(true)
    }
}

impl Workload for Open1 {
    fn name(&self) -> &'static str {
        "open1"
    }

    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        tasks(shape, |task| {
            let name = format!("file.{task}");
            base.create(&name)?;
            let dir = base.again()?;
            Ok(OpenClose { dir, name })
        })
    }
}

struct CreateUnlink(Box<dyn TaskDir>);

impl Task for CreateUnlink {
    fn op(&mut self) -> Result<bool> {
        self.0.create("file")?;
        self.0.unlink("file")?;
        Ok(true)
    }
}

impl Workload for Unlink2 {
    fn name(&self) -> &'static str {
        "unlink2"
    }

    fn prepare(&self, base: &dyn TaskDir, shape: &Shape) -> Result<Tasks> {
        tasks(shape, |task| {
            Ok(CreateUnlink(base.make_dir(&format!("task.{task}"))?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::tests::both;

    #[test]
    fn they_run_over_a_volume_and_a_path() {
        let shape = Shape {
            tasks: 2,
            seconds: 0.02,
            files: 10,
            rounds: 2,
        };
        let all: [&dyn Workload; 3] = [&Fallocate2, &Open1, &Unlink2];
        for workload in all {
            let reports = both(workload, shape);
            assert_eq!(reports[0].target, "extant (in process)");
            assert!(reports.iter().all(|r| r.ops > 0.0 && r.rounds.len() == 2));
        }
    }
}

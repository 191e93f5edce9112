//! Fragmentation of files on an aging volume: tasks fill the volume with files of many sizes, several files at a time,
//! piece by piece. Then they repeatedly remove some files and write others. At the end the extents of all files are
//! counted. The sequence depends only on the seed, so that all peers get the same work.

use crate::target::{Open, Target, TaskDir, TaskFile};
use anyhow::{Context, Result};
use serde::Serialize;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AgeParams {
    /// Number of tasks, each with a separate directory.
    pub tasks: usize,
    /// Total bytes of the files when the volume is fullest.
    pub bytes: u64,
    /// How often a third of the files is replaced.
    pub turns: usize,
    /// Seed for sizes, pieces and removals.
    pub seed: u64,
}

/// The files of one target after a run.
#[derive(Clone, Debug, Serialize)]
pub struct AgeReport {
    /// The target.
    pub target: String,
    /// The parameters.
    pub params: AgeParams,
    /// Number of files at the end.
    pub files: u64,
    /// Total extents of these files.
    pub extents: u64,
    /// Number of files with more than one extent.
    pub in_pieces: u64,
    /// Wall time in seconds, including sync.
    pub wall: f64,
}

impl AgeReport {
    /// Returns the mean extents per file.
    pub fn mean(&self) -> f64 {
        self.extents as f64 / self.files.max(1) as f64
    }
}

/// Number of files that a task writes at the same time.
const OPEN: usize = 4;
/// Directory of the work.
const DIR: &str = "age";

/// Pseudorandom numbers (Marsaglia's xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n.max(1)
    }

    /// Returns a size from 4 KiB to 4 MiB, every power of two equally often.
    fn size(&mut self) -> u64 {
        let class = 4096 << self.below(10);
        class + self.below(class)
    }
}

struct Task {
    dir: Box<dyn TaskDir>,
    random: Random,
    /// Names and sizes.
    files: Vec<(String, u64)>,
    bytes: u64,
    made: u64,
}

/// A file being written.
struct Growing {
    file: Box<dyn TaskFile>,
    at: u64,
    size: u64,
}

impl Task {
    /// Writes several files at a time until the task has `bytes` bytes.
    fn fill(&mut self, bytes: u64, data: &[u8]) -> Result<()> {
        let mut growing: Vec<Growing> = Vec::new();
        loop {
            while growing.len() < OPEN && self.bytes < bytes {
                let size = self.random.size().min(bytes - self.bytes).max(4096);
                let name = format!("f{}", self.made);
                self.made += 1;
                let file = self.dir.open(&name, Open::Create)?;
                growing.push(Growing { file, at: 0, size });
                self.files.push((name, size));
                self.bytes += size;
            }
            if growing.is_empty() {
                return Ok(());
            }
            let i = self.random.below(growing.len() as u64) as usize;
            let piece = 4096 * (1 + self.random.below(16));
            let g = &mut growing[i];
            let piece = piece.min(g.size - g.at);
            g.file.write_at(g.at, &data[..piece as usize])?;
            g.at += piece;
            // Sync a file now and then.
            if self.random.below(24) == 0 {
                g.file.fsync()?;
            }
            if g.at == g.size {
                growing.swap_remove(i);
            }
        }
    }

    /// Removes a third of the files.
    fn thin(&mut self) -> Result<()> {
        for _ in 0..self.files.len() / 3 {
            let i = self.random.below(self.files.len() as u64) as usize;
            let (name, size) = self.files.swap_remove(i);
            self.dir.unlink(&name)?;
            self.bytes -= size;
        }
        Ok(())
    }
}

/// Ages one target and counts the extents.
pub fn run(target: &dyn Target, params: AgeParams) -> Result<AgeReport> {
    let root = target.make_dir(DIR)?;
    let start = std::time::Instant::now();
    let mut tasks = Vec::new();
    for t in 0..params.tasks {
        tasks.push(Task {
            dir: root.make_dir(&format!("t{t}"))?,
            random: Random(params.seed.wrapping_mul(31).wrapping_add(t as u64 + 1) | 1),
            files: Vec::new(),
            bytes: 0,
            made: 0,
        });
    }
    let share = params.bytes / params.tasks.max(1) as u64;
    let data = vec![0x5A; 64 << 10];
    for turn in 0..=params.turns {
        std::thread::scope(|s| {
            let workers: Vec<_> = tasks
                .iter_mut()
                .map(|task| {
                    let data = &data;
                    s.spawn(move || {
                        if turn > 0 {
                            task.thin()?;
                        }
                        task.fill(share, data)
                    })
                })
                .collect();
            workers
                .into_iter()
                .try_for_each(|w| w.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
        })?;
        target.sync()?;
    }
    let wall = start.elapsed().as_secs_f64();
    let mut report = AgeReport {
        target: target.name(),
        params,
        files: 0,
        extents: 0,
        in_pieces: 0,
        wall,
    };
    for (t, task) in tasks.iter().enumerate() {
        let names: Vec<String> = task
            .files
            .iter()
            .map(|(name, _)| format!("{DIR}/t{t}/{name}"))
            .collect();
        for extents in target.extents(&names).context("count extents")? {
            report.files += 1;
            report.extents += extents;
            report.in_pieces += u64::from(extents > 1);
        }
    }
    drop(tasks);
    crate::target::empty(&*root)?;
    drop(root);
    target.remove_dir(DIR)?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::LibTarget;

    #[test]
    fn files_are_counted_and_gone_afterwards() {
        let size = 64 << 20;
        let device = std::sync::Arc::new(blockdev::MemDevice::new(size));
        let options = extant::mkfs::MkfsOptions {
            size: Some(size),
            zeroed_device: true,
            ..Default::default()
        };
        extant::mkfs::format(&*device, &options).unwrap();
        let volume = extant::VolumeOptions::new().open_device(device).unwrap();
        let target = LibTarget::new(volume.clone());
        let params = AgeParams {
            tasks: 2,
            bytes: 32 << 20,
            turns: 2,
            seed: 1,
        };
        let report = run(&target, params).unwrap();
        assert!(
            report.files > 10 && report.extents >= report.files,
            "{report:?}"
        );
        assert!(report.mean() < 4.0, "{report:?}");
        assert!(!volume.exists("/age").unwrap());
    }
}

//! mount: the use of a mounted file system by programs, over several targets in turn: names and data, in the kernel's
//! cache and not, whole trees. Each client works in a directory of its own.

mod data;
mod names;
mod rows;
mod source;

pub use rows::{Row, Unit};
pub use source::Source;

use crate::child;
use crate::runner::{self, Contender, Report, Shape, Task, Tasks};
use crate::target::{PathTarget, Target};
use anyhow::{Context, Result};
use serde::Serialize;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A directory of a mounted file system.
pub trait MountTarget: Target {
    /// Returns the directory.
    fn dir(&self) -> &Path;
    /// Makes sure that it is mounted: it may have failed before.
    fn ready(&self) -> Result<()> {
        Ok(())
    }
    /// Afterwards neither the kernel nor a server has anything of it in memory.
    fn make_cold(&self) -> Result<()>;
    /// Makes the kernel forget every name in it that no process uses.
    fn forget_names(&self) -> Result<()> {
        // Linux drops the names of a file system whose options change. Helpers of mount(8) are left out.
        let mut mount = Command::new("mount");
        mount.args(["-i", "-o", "remount"]).arg(self.dir());
        child::run(&mut mount).map(drop)
    }
}

impl MountTarget for PathTarget {
    fn dir(&self) -> &Path {
        self.root()
    }

    fn make_cold(&self) -> Result<()> {
        self.drop_caches()
    }
}

/// The input of the rows.
#[derive(Clone, Debug)]
pub struct Material {
    /// Files of all clients, in the rows on names.
    pub files: u64,
    /// Bytes of each client's file, in the rows on data.
    pub file_size: u64,
    /// The tree of the rows on trees; only these need it.
    pub source: Option<Source>,
}

/// CPU of programs that were run, in nanoseconds.
type Spent = Arc<AtomicU64>;

/// A row over a place.
struct OnPlace<'a> {
    place: &'a dyn MountTarget,
    row: Row,
    with: &'a Material,
    /// The directory of the work.
    name: String,
    /// The files that rounds work on exist, and rounds leave them as they are.
    kept: Cell<bool>,
    spent: Spent,
}

impl<'a> OnPlace<'a> {
    fn new(place: &'a dyn MountTarget, row: Row, with: &'a Material) -> Self {
        Self {
            place,
            row,
            with,
            name: format!("{}.{}", row.name(), std::process::id()),
            kept: Cell::new(false),
            spent: Spent::default(),
        }
    }

    fn base(&self) -> PathBuf {
        self.place.dir().join(&self.name)
    }

    fn task(&self, dir: &Path, number: usize, shape: &Shape) -> Result<Box<dyn Task>> {
        let files = shape.files;
        let size = self.with.file_size;
        Ok(match self.row {
            Row::Create
            | Row::Unlink
            | Row::Stat
            | Row::Getattr
            | Row::Lookup
            | Row::StatCold
            | Row::Open
            | Row::Readdir => names::task(self.row, dir, files)?,
            Row::Untar | Row::GitStatus | Row::GitStatusCold => {
                let source = self.with.source.as_ref().context("no tree was made")?;
                source.task(self.row, dir, &self.spent)?
            }
            _ => data::task(self.row, dir, size, number)?,
        })
    }

    fn fill(&self, dir: &Path, shape: &Shape) -> Result<()> {
        match self.row {
            Row::Unlink
            | Row::Stat
            | Row::Getattr
            | Row::Lookup
            | Row::StatCold
            | Row::Open
            | Row::Readdir => names::fill(dir, shape.files),
            Row::GitStatus | Row::GitStatusCold => {
                let source = self.with.source.as_ref().context("no tree was made")?;
                source.fill(dir)
            }
            Row::Create | Row::Untar | Row::StreamWrite | Row::Fsync => Ok(()),
            _ => data::fill(dir, self.with.file_size),
        }
    }

    fn remove(&self) -> Result<()> {
        self.place.ready()?;
        let base = self.base();
        if !base.exists() {
            return Ok(());
        }
        std::fs::remove_dir_all(&base).with_context(|| base.display().to_string())?;
        self.place.sync()
    }
}

impl Contender for OnPlace<'_> {
    fn name(&self) -> String {
        self.place.name()
    }

    fn prepare(&self, shape: &Shape) -> Result<Tasks> {
        self.place.ready()?;
        let base = self.base();
        let dirs: Vec<_> = (0..shape.tasks)
            .map(|n| base.join(format!("client{n}")))
            .collect();
        if !self.kept.get() {
            let told = || base.display().to_string();
            std::fs::create_dir(&base).with_context(told)?;
            for dir in &dirs {
                std::fs::create_dir(dir).with_context(told)?;
                self.fill(dir, shape).with_context(told)?;
            }
            self.place.sync()?;
            self.kept.set(self.row.keeps());
        }
        if self.row.is_cold() {
            self.place.make_cold().context("make it cold")?;
        }
        if self.row == Row::Lookup {
            self.place.forget_names().context("forget the names")?;
        }
        let task = |(number, dir): (usize, &PathBuf)| self.task(dir, number, shape);
        dirs.iter().enumerate().map(task).collect()
    }

    fn finish(&self, _: &mut Tasks) -> Result<()> {
        self.place.sync()
    }

    fn clean(&self) -> Result<()> {
        if self.kept.get() {
            return Ok(());
        }
        self.remove()
    }

    fn other_cpu(&self) -> f64 {
        self.place.other_cpu() + self.spent.load(Relaxed) as f64 / 1e9
    }
}

/// One target in one row.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// In operations, with every round.
    #[serde(flatten)]
    pub report: Report,
    /// The unit of the figure.
    pub unit: Unit,
    /// Median of the rounds, in its unit.
    pub figure: f64,
    /// How many times as fast it is as these.
    pub times: Times,
}

/// How many times as fast something is as others, where both were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Times as fast as the floor of its transport.
    pub floor: Option<f64>,
    /// Times as fast as the kernel's ext4.
    pub kernel: Option<f64>,
    /// Times as fast as fuse2fs.
    pub fuse2fs: Option<f64>,
}

impl Times {
    fn of(report: &Report, all: &[Report]) -> Self {
        let to = |name: &str| {
            let peer = all.iter().find(|r| r.target == name)?;
            let both = !std::ptr::eq(peer, report) && report.ops > 0.0 && peer.ops > 0.0;
            both.then(|| report.ops / peer.ops)
        };
        let transport = report.target.strip_prefix("mount:");
        Self {
            floor: transport.and_then(|transport| to(&format!("floor:{transport}"))),
            kernel: to("kernel ext4"),
            fuse2fs: to("fuse2fs"),
        }
    }
}

/// Runs a row over all targets, which take turns. A target that cannot do it is left out, with the reason. After the
/// time `within` no further round begins, but for the first that counts.
pub fn run(
    row: Row,
    places: &[&dyn MountTarget],
    with: &Material,
    shape: Shape,
    within: Duration,
    between: impl FnMut() -> Result<()>,
) -> Result<Vec<Measured>> {
    let on: Vec<_> = places.iter().map(|p| OnPlace::new(*p, row, with)).collect();
    let contenders: Vec<&dyn Contender> = on.iter().map(|c| c as &dyn Contender).collect();
    let shape = Shape {
        files: with.files.div_ceil(shape.tasks.max(1) as u64),
        ..shape
    };
    let reports = runner::run_equals(row.name(), &contenders, shape, within, between);
    let remove = |c: &OnPlace<'_>| c.kept.get().then(|| c.remove()).transpose();
    let removed: Vec<_> = on.iter().map(remove).collect();
    let reports = reports?;
    // For a failed target its report has the reason.
    for (report, removed) in reports.iter().zip(removed) {
        if report.failed.is_none() {
            removed?;
        }
    }
    let times: Vec<_> = reports.iter().map(|r| Times::of(r, &reports)).collect();
    let unit = row.unit();
    Ok(reports
        .into_iter()
        .zip(times)
        .map(|(report, times)| Measured {
            unit,
            figure: unit.figure(&report, with.file_size),
            report,
            times,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        tasks: 2,
        seconds: 0.02,
        files: 1,
        rounds: 1,
    };

    fn place() -> tempfile::TempDir {
        // In memory if the machine has such a place: every round syncs.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        dir.unwrap()
    }

    /// A directory that cannot be made cold any better than it is.
    struct Warm(PathTarget);

    impl Target for Warm {
        fn name(&self) -> String {
            self.0.name()
        }
        fn make_dir(&self, path: &str) -> Result<Box<dyn crate::target::TaskDir>> {
            self.0.make_dir(path)
        }
        fn open_dir(&self, path: &str) -> Result<Box<dyn crate::target::TaskDir>> {
            self.0.open_dir(path)
        }
        fn remove_dir(&self, path: &str) -> Result<()> {
            self.0.remove_dir(path)
        }
        fn sync(&self) -> Result<()> {
            self.0.sync()
        }
        fn drop_caches(&self) -> Result<()> {
            Ok(())
        }
    }

    impl MountTarget for Warm {
        fn dir(&self) -> &Path {
            self.0.root()
        }
        fn make_cold(&self) -> Result<()> {
            Ok(())
        }
        fn forget_names(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_row_runs_in_a_directory_and_leaves_nothing() {
        let (dir, other, scratch) = (place(), place(), tempfile::tempdir().unwrap());
        let with = Material {
            files: 40,
            file_size: 1 << 20,
            source: Some(Source::make(scratch.path(), None, 30).unwrap()),
        };
        let warm = Warm(PathTarget::named(dir.path(), "mount:uring".into()));
        let peer = Warm(PathTarget::named(other.path(), "kernel ext4".into()));
        for row in Row::ALL {
            let needs_git = matches!(row, Row::GitStatus | Row::GitStatusCold);
            if needs_git && !with.source.as_ref().unwrap().has_repository() {
                continue;
            }
            let all = run(row, &[&warm, &peer], &with, SHAPE, Duration::MAX, || Ok(())).unwrap();
            for m in &all {
                // A file system in memory may know no direct access.
                let may_fail = matches!(row, Row::ReadDirect | Row::WriteDirect);
                assert!(may_fail || m.report.failed.is_none(), "{m:?}");
                assert!(may_fail || m.figure > 0.0, "{m:?}");
            }
            let direct = matches!(row, Row::ReadDirect | Row::WriteDirect);
            assert!(direct || all[0].times.kernel.is_some());
            assert_eq!(all[0].times.floor, None);
            for dir in [&dir, &other] {
                assert_eq!(dir.path().read_dir().unwrap().count(), 0, "{row:?}");
            }
        }
    }

    #[test]
    fn each_is_compared_with_the_floor_of_its_transport() {
        let (dir, with) = (
            place(),
            Material {
                files: 4,
                file_size: 4096,
                source: None,
            },
        );
        let names = ["mount:uring", "floor:classic", "floor:uring", "fuse2fs"];
        let all = names.map(|name| Warm(PathTarget::named(dir.path(), name.into())));
        let places = all.each_ref().map(|p| p as &dyn MountTarget);
        let found = run(Row::Create, &places, &with, SHAPE, Duration::MAX, || Ok(())).unwrap();
        let ratio = found[0].report.ops / found[2].report.ops;
        assert_eq!(found[0].times.floor, Some(ratio));
        assert!(found[0].times.fuse2fs.is_some() && found[0].times.kernel.is_none());
        assert!(found[1].times.floor.is_none());
        // Without a tree the rows that need one say so.
        let none = run(Row::Untar, &places, &with, SHAPE, Duration::MAX, || Ok(())).unwrap();
        let why = none[0].report.failed.as_deref();
        assert_eq!(why, Some("no tree was made"));
    }
}

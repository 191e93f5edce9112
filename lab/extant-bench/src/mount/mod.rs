//! mount: use of a mounted file system by programs, over several alternating targets: names and data, cached by the
//! kernel and not, whole trees. Each client works in a separate directory.

mod data;
mod names;
mod rows;
mod source;
mod sqlite;

pub use rows::{Row, Unit};
pub use source::Source;
pub use sqlite::is_installed as has_sqlite;

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
    /// Ensures that the target is mounted, because it may have failed before.
    fn ready(&self) -> Result<()> {
        Ok(())
    }
    /// Drops everything that the kernel and a server have cached of it.
    fn make_cold(&self) -> Result<()>;
    /// Makes the kernel drop every unused name in it from its cache.
    fn forget_names(&self) -> Result<()> {
        // Linux drops the names of a file system on a remount with options. `-i` skips helpers of mount(8).
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

/// CPU time of the programs that were run, in nanoseconds.
type Spent = Arc<AtomicU64>;

/// A row over a target.
struct OnPlace<'a> {
    place: &'a dyn MountTarget,
    row: Row,
    with: &'a Material,
    /// The directory of the work.
    name: String,
    /// Whether the files for the rounds exist, and rounds leave them unchanged.
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
            Row::SqliteWal | Row::SqliteDelete => sqlite::task(self.row, dir)?,
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
            Row::Create
            | Row::Untar
            | Row::StreamWrite
            | Row::Fsync
            | Row::SqliteWal
            | Row::SqliteDelete => Ok(()),
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

/// Results of a target in a row.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Report in operations, with every round.
    #[serde(flatten)]
    pub report: Report,
    /// The unit of the figure.
    pub unit: Unit,
    /// Median of the rounds, in this unit.
    pub figure: f64,
    /// Ratios to these targets.
    pub times: Times,
}

/// Speed relative to others, where both were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// Relative to the floor of its transport.
    pub floor: Option<f64>,
    /// Relative to the kernel's ext4.
    pub kernel: Option<f64>,
    /// Relative to fuse2fs.
    pub fuse2fs: Option<f64>,
}

impl Times {
    fn of(report: &Report, all: &[Report]) -> Self {
        let to = |name: &str| {
            let peer = all.iter().find(|r| r.target == name)?;
            let both = !std::ptr::eq(peer, report) && report.ops > 0.0 && peer.ops > 0.0;
            both.then(|| report.ops / peer.ops)
        };
        // The name of the transport comes before the features of the image.
        let transport = report.target.strip_prefix("mount:");
        let transport = transport.and_then(|rest| rest.split(',').next());
        Self {
            floor: transport.and_then(|transport| to(&format!("floor:{transport}"))),
            kernel: to("kernel ext4"),
            fuse2fs: to("fuse2fs"),
        }
    }
}

/// Runs a row over all targets, which alternate. A target that fails is skipped, with the reason. After the time
/// `within` no further round begins, except for the first counted one.
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
    // The report of a failed target contains the reason.
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
        // In memory if possible, because every round syncs.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        dir.unwrap()
    }

    /// A directory whose caches cannot be dropped.
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
            if row.needs_sqlite() && !has_sqlite() {
                continue;
            }
            let all = run(row, &[&warm, &peer], &with, SHAPE, Duration::MAX, || Ok(())).unwrap();
            for m in &all {
                // A file system in memory may not support direct I/O.
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
        // Without a tree, the rows that need one report that.
        let none = run(Row::Untar, &places, &with, SHAPE, Duration::MAX, || Ok(())).unwrap();
        let why = none[0].report.failed.as_deref();
        assert_eq!(why, Some("no tree was made"));
    }
}

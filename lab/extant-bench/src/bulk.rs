//! bulk: a whole tree is moved into a new image, or out of an image. Each method is a separate program, run as a child
//! process, and peers alternate with it round by round.

use crate::child;
use crate::stats::{Elapsed, Stopwatch, median};
use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Direction of the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// A directory becomes one file: an image, or an archive.
    In,
    /// A file becomes a directory, or another file.
    Out,
}

/// The result of a program.
#[derive(Clone, Debug)]
pub enum Output {
    /// One file.
    File(PathBuf),
    /// A tree.
    Directory(PathBuf),
}

impl Output {
    /// Returns the path of the output.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Directory(path) => path,
        }
    }
}

/// Preparations of a run, which are not timed.
pub type Prepare<'a> = Box<dyn Fn() -> Result<()> + 'a>;

/// A method of moving the tree.
pub struct Mover<'a> {
    /// Name in the report.
    pub name: String,
    /// Direction of the move.
    pub direction: Direction,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The result of the program.
    pub output: Output,
    /// Set-up.
    pub prepare: Prepare<'a>,
    /// Number of rounds in which the method takes part.
    pub rounds: usize,
    /// Whether the method runs in the warm-up round.
    pub warm_up: bool,
    /// Parses the seconds that the program itself spent on making its result durable from its standard output. These
    /// count as sync, not as work.
    pub own_sync: fn(&[u8]) -> f64,
}

/// The content of the tree.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Moved {
    /// Number of names of all kinds, including directories.
    pub names: u64,
    /// Bytes of file data.
    pub bytes: u64,
}

/// A run of a method.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Round {
    /// Time of the program, without making the result durable.
    pub run: Elapsed,
    /// Seconds of making the result durable, by the program and after it.
    pub sync: f64,
    /// Peak memory of the program, in bytes.
    pub peak: u64,
}

/// Medians of all rounds of a method.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the method.
    pub name: String,
    /// Direction of the move.
    pub direction: Direction,
    /// Seconds of a run.
    pub seconds: f64,
    /// Seconds of making its result durable.
    pub sync_seconds: f64,
    /// Names per second.
    pub files: f64,
    /// Names per second, sync included.
    pub files_synced: f64,
    /// Bytes of file data per second.
    pub bytes: f64,
    /// Bytes of file data per second, sync included.
    pub bytes_synced: f64,
    /// CPU time per name in nanoseconds.
    pub cpu_ns: f64,
    /// Peak memory in bytes, over all rounds.
    pub peak: u64,
    /// Every round.
    pub rounds: Vec<Round>,
}

impl Report {
    fn of(mover: &Mover<'_>, moved: Moved, rounds: Vec<Round>) -> Self {
        let (names, bytes) = (moved.names as f64, moved.bytes as f64);
        let med = |f: &dyn Fn(&Round) -> f64| median(&mut rounds.iter().map(f).collect::<Vec<_>>());
        Self {
            name: mover.name.clone(),
            direction: mover.direction,
            seconds: med(&|r| r.run.wall),
            sync_seconds: med(&|r| r.sync),
            files: med(&|r| names / r.run.wall),
            files_synced: med(&|r| names / (r.run.wall + r.sync)),
            bytes: med(&|r| bytes / r.run.wall),
            bytes_synced: med(&|r| bytes / (r.run.wall + r.sync)),
            cpu_ns: med(&|r| r.run.cpu / names.max(1.0) * 1e9),
            peak: rounds.iter().map(|r| r.peak).max().unwrap_or(0),
            rounds,
        }
    }
}

/// Makes an output durable: a file by fsync, a tree by syncfs of its file system.
fn sync(output: &Output) -> Result<()> {
    let open = |path: &PathBuf, flags| {
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| path.display().to_string())
    };
    match output {
        Output::File(path) => rustix::fs::fsync(open(path, OFlags::RDONLY)?).context("fsync"),
        Output::Directory(path) => {
            rustix::fs::syncfs(open(path, OFlags::RDONLY | OFlags::DIRECTORY)?).context("syncfs")
        }
    }
}

fn round(mover: &Mover<'_>) -> Result<Round> {
    (mover.prepare)()?;
    let (program, arguments) = mover.command.split_first().context("a program to run")?;
    let ran =
        child::run(Command::new(program).args(arguments)).with_context(|| mover.name.clone())?;
    let watch = Stopwatch::start();
    sync(&mover.output)?;
    let own = (mover.own_sync)(&ran.stdout).clamp(0.0, ran.elapsed.wall);
    Ok(Round {
        run: Elapsed {
            wall: ran.elapsed.wall - own,
            ..ran.elapsed
        },
        sync: own + watch.elapsed().wall,
        peak: ran.peak,
    })
}

/// Runs all methods alternately, after a warm-up round. `between` is called before every run with the name of the next
/// method; if it fails, the benchmark ends.
pub fn run(
    movers: &[Mover<'_>],
    moved: Moved,
    mut between: impl FnMut(&str) -> Result<()>,
) -> Result<Vec<Report>> {
    let mut rounds = vec![Vec::new(); movers.len()];
    let last = movers.iter().map(|m| m.rounds).max().unwrap_or(0);
    for number in 0..=last {
        for (mover, done) in movers.iter().zip(&mut rounds) {
            if number > mover.rounds || (number == 0 && !mover.warm_up) {
                continue;
            }
            between(&mover.name)?;
            let one = round(mover)?;
            if number > 0 {
                done.push(one);
            }
        }
    }
    Ok(movers
        .iter()
        .zip(rounds)
        .map(|(mover, rounds)| Report::of(mover, moved, rounds))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn rounds_alternate_and_peers_may_have_fewer() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("out");
        let prepared = Cell::new(0);
        let mover = |name: &str, rounds, warm_up| Mover {
            name: name.into(),
            direction: Direction::In,
            command: vec!["cp".into(), "/dev/null".into(), file.clone().into()],
            output: Output::File(file.clone()),
            prepare: Box::new(|| {
                prepared.set(prepared.get() + 1);
                Ok(())
            }),
            rounds,
            warm_up,
            own_sync: |_| 1e9,
        };
        let movers = [mover("ours", 3, true), mover("peer", 1, false)];
        let moved = Moved {
            names: 10,
            bytes: 1000,
        };
        let mut order = Vec::new();
        let reports = run(&movers, moved, |name| {
            order.push(name.to_string());
            Ok(())
        })
        .unwrap();
        assert_eq!(order, ["ours", "ours", "peer", "ours", "ours"]);
        assert_eq!(prepared.get(), 5);
        assert_eq!((reports[0].rounds.len(), reports[1].rounds.len()), (3, 1));
        // The program reported that all of the time was sync; the rest is zero, not negative.
        let round = reports[0].rounds[0];
        assert!(round.run.wall == 0.0 && round.sync > 0.0 && round.peak > 0);
        assert!(
            (reports[1].files_synced * 100.0 - reports[1].bytes_synced).abs()
                < 1e-6 * reports[1].bytes_synced
        );
    }

    #[test]
    fn a_program_that_fails_ends_the_run() {
        let mover = Mover {
            name: "broken".into(),
            direction: Direction::Out,
            command: vec!["false".into()],
            output: Output::Directory("/".into()),
            prepare: Box::new(|| Ok(())),
            rounds: 1,
            warm_up: false,
            own_sync: |_| 0.0,
        };
        let error = run(&[mover], Moved::default(), |_| Ok(())).unwrap_err();
        assert!(format!("{error:#}").starts_with("broken: false: "));
    }
}

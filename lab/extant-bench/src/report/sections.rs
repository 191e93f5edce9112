//! The sections of a report: their commands, and the form of their results.

use super::figures::{Aged, Bulk, Checked, Dbench, Grown, Mdtest, Mounted, Repeated};
use super::{Params, markdown, plots, shown};
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The form of a command's JSON.
#[derive(Clone, Copy, Debug)]
enum SectionKind {
    /// Workloads that repeat an operation, with the plotted figure.
    Repeated {
        over_tasks: bool,
        costs: bool,
    },
    Mdtest,
    Grow,
    Age,
    Check,
    Bulk,
    Dbench,
    Mounts,
}

/// A part of the report.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// The content in one sentence.
    pub about: &'static str,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The program's name in the report.
    called: &'static str,
    kind: SectionKind,
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).context("the figures of the benchmark")
}

impl Section {
    /// Returns the command, as one would type it.
    pub fn shown(&self) -> String {
        let args = self.args.iter().map(|a| a.to_string_lossy().into_owned());
        format!("{} {}", self.called, args.collect::<Vec<_>>().join(" "))
    }

    /// Renders the output as tables and plots.
    pub(super) fn render(&self, json: &[u8], dir: &Path) -> Result<String> {
        match self.kind {
            SectionKind::Mdtest => Ok(markdown::mdtest(&parse::<Vec<Mdtest>>(json)?)),
            SectionKind::Grow => Ok(markdown::grown(&parse::<Vec<Grown>>(json)?)),
            SectionKind::Age => Ok(markdown::aged(&parse::<Vec<Aged>>(json)?)),
            SectionKind::Check => Ok(markdown::checked(&parse::<Vec<Checked>>(json)?)),
            SectionKind::Bulk => Ok(markdown::bulk(&parse::<Bulk>(json)?)),
            SectionKind::Dbench => Ok(markdown::dbench(&parse::<Vec<Dbench>>(json)?)),
            SectionKind::Mounts => Ok(markdown::mounts(&parse::<Vec<Mounted>>(json)?)),
            SectionKind::Repeated { over_tasks, costs } => {
                let all: Vec<Repeated> = parse(json)?;
                let mut text = markdown::repeated(&all);
                if over_tasks {
                    text += &self.over_tasks(&all, dir)?;
                }
                if costs {
                    let (path, line) = shown(dir, "fxmark-cpu", "CPU of an operation");
                    let tasks = all.first().map_or(1, |r| r.shape.tasks);
                    plots::costs(&path, tasks, &all)?;
                    text += &line;
                }
                Ok(text)
            }
        }
    }

    fn over_tasks(&self, all: &[Repeated], dir: &Path) -> Result<String> {
        let mut names: Vec<&str> = all.iter().map(|r| r.workload.as_str()).collect();
        names.dedup();
        let mut text = String::new();
        for name in names {
            // Titles distinguish sections that plot the same workload.
            let file = format!("{}-{name}", self.title.split(' ').next().unwrap_or("plot"));
            let (path, line) = shown(dir, &file, &format!("{name} over tasks"));
            plots::throughput(&path, name, all)?;
            text += &line;
            let tasks = all
                .iter()
                .find(|r| r.workload == name)
                .map_or(1, |r| r.shape.tasks);
            let (path, line) = shown(dir, &format!("{file}-latency"), &format!("{name}: latency"));
            plots::latencies(&path, name, tasks, all)?;
            text += &line;
        }
        Ok(text)
    }
}

/// Sizes and durations of runs, short or in full.
#[derive(Clone, Copy)]
struct Lengths {
    seconds: &'static str,
    iterations: &'static str,
    /// Numbers of tasks in curves.
    curve: &'static str,
    files: &'static str,
}

const QUICK: Lengths = Lengths {
    seconds: "0.25",
    iterations: "3",
    curve: "1,2,8,64",
    files: "20000",
};
/// The full report takes less than half an hour.
const FULL: Lengths = Lengths {
    seconds: "0.5",
    iterations: "5",
    curve: "1,2,8,64",
    files: "100000",
};

/// The sections gathered so far.
struct Gather<'a> {
    params: &'a Params,
    lengths: Lengths,
    all: Vec<Section>,
}

impl Gather<'_> {
    fn add(&mut self, title: &'static str, about: &'static str, kind: SectionKind, command: &str) {
        let mut line = String::from(command);
        let against = match (self.params.mounts, kind) {
            (
                true,
                SectionKind::Repeated { .. }
                | SectionKind::Mdtest
                | SectionKind::Dbench
                | SectionKind::Age,
            ) if !command.contains("--against") && !command.contains("before") => {
                " --against kernel"
            }
            _ => "",
        };
        line += against;
        self.all.push(Section {
            title,
            about,
            program: self.params.program.clone(),
            args: line.split(' ').map(OsString::from).collect(),
            called: "extant-bench",
            kind,
        });
    }

    fn repeat(
        &mut self,
        title: &'static str,
        about: &'static str,
        kind: SectionKind,
        command: &str,
    ) {
        let Lengths {
            seconds,
            iterations,
            files,
            ..
        } = self.lengths;
        let command =
            format!("{command} --seconds {seconds} --iterations {iterations} --files {files}");
        self.add(title, about, kind, &command);
    }
}

/// Options of the benchmark of mounts, short or in full: maximum rounds, seconds per round, and seconds in total.
const MOUNTS_QUICK: &str = "--files 2000 --file-size 8M --seconds 0.1 --iterations 3 --within 5";
const MOUNTS: &str = "--files 10000 --file-size 64M --seconds 0.5 --iterations 5 --within 40";

impl Gather<'_> {
    /// Adds all rows, over all available transports, each with its floor.
    fn mounts(&mut self, uring: bool) {
        let (targets, floors) = if uring {
            (
                "--target mount:uring --target mount:classic",
                "floor:uring floor:classic",
            )
        } else {
            ("--target mount:classic", "floor:classic")
        };
        let size = if self.params.quick {
            MOUNTS_QUICK
        } else {
            MOUNTS
        };
        let command =
            format!("mount {targets} --against {floors} kernel fuse2fs --clients 2 {size}");
        let about = "Names, data and trees of a mounted image over both transports, each beside its floor: files in \
            memory, served in the same way.";
        self.add("mount", about, SectionKind::Mounts, &command);
    }
}

const PLAIN: SectionKind = SectionKind::Repeated {
    over_tasks: false,
    costs: false,
};
const OVER_TASKS: SectionKind = SectionKind::Repeated {
    over_tasks: true,
    costs: false,
};
const COSTS: SectionKind = SectionKind::Repeated {
    over_tasks: false,
    costs: true,
};

impl Gather<'_> {
    /// Adds creations and removals of files.
    fn mdtest(&mut self) {
        let Lengths {
            files, iterations, ..
        } = self.lengths;
        let mdtest = |more: &str| {
            format!(
                "mdtest --files {files} --iterations {iterations} --size 8G --journal 1024 {more}"
            )
        };
        self.add(
            "mdtest, 1 task",
            "Empty files are made and removed.",
            SectionKind::Mdtest,
            &mdtest("--tasks 1"),
        );
        self.add(
            "mdtest, 2 tasks",
            "In directories of their own.",
            SectionKind::Mdtest,
            &mdtest("--tasks 2"),
        );
        let shared = mdtest("--tasks 2 --shared");
        self.add(
            "mdtest, one directory",
            "Both tasks in one directory.",
            SectionKind::Mdtest,
            &shared,
        );
    }

    /// Adds workloads of one repeated operation.
    fn small(&mut self) {
        let Lengths { curve, .. } = self.lengths;
        for (title, about) in [
            ("fallocate2", "8 KiB at a time into files without a name."),
            ("open1", "Opening and closing files of one's own."),
            ("unlink2", "Making and removing a file."),
        ] {
            self.repeat(
                title,
                about,
                OVER_TASKS,
                &format!("{title} --tasks {curve}"),
            );
        }
        if self.params.mounts {
            let about = "The same with fuse2fs, which serves one request at a time.";
            let command = "unlink2 --tasks 1,2 --against kernel fuse2fs";
            self.repeat("fuse2fs", about, PLAIN, command);
        }
    }

    /// Adds FxMark's rows.
    fn fxmark(&mut self) {
        let Lengths { curve, .. } = self.lengths;
        self.repeat(
            "fxmark",
            "All rows of FxMark: D or M for data or metadata, R or W for reading or writing, L, M or H for sharing.",
            COSTS,
            "fxmark --tasks 1,2",
        );
        let rows = "fxmark MWCL MWCM MRPM DWOM DRBH";
        self.repeat(
            "FxMark over tasks",
            "Some of them with more tasks than CPUs.",
            OVER_TASKS,
            &format!("{rows} --tasks {curve}"),
        );
    }

    /// Adds the log, and inodes in core.
    fn log(&mut self) {
        let Lengths {
            files, iterations, ..
        } = self.lengths;
        self.repeat(
            "commits",
            "Small transactions, and what the log did.",
            OVER_TASKS,
            "commits --tasks 1,2,16",
        );
        self.repeat(
            "fsync",
            "Files made durable one by one.",
            OVER_TASKS,
            "fsync --tasks 1,2,16",
        );
        if self.params.mounts {
            self.repeat(
                "fsync, fast commits",
                "The same with fast commits, here and in the kernel.",
                COSTS,
                "fsync --tasks 1,2,16 --target lib:fast --against lib kernel kernel:fast",
            );
        }
        let list = format!("inode-list --tasks 1000 --files {files} --iterations {iterations}");
        self.add(
            "inode-list",
            "Inodes brought in core, then all dropped.",
            PLAIN,
            &list,
        );
    }

    /// Adds dbench, if its loadfile exists.
    fn dbench(&mut self) {
        let Lengths { iterations, .. } = self.lengths;
        if let Some(loadfile) = &self.params.loadfile {
            let loadfile = loadfile.display();
            let rounds = if self.params.quick { "1" } else { iterations };
            let load = format!("dbench {loadfile} --clients 2 --iterations {rounds}");
            self.add(
                "dbench",
                "Everything fits in memory.",
                SectionKind::Dbench,
                &load,
            );
            let about = "The cache holds a tenth of the data. Without a peer: the kernel's cache is the machine's.";
            let small = format!("{load} --cache 5M --against before:one-lock");
            self.add("dbench, small cache", about, SectionKind::Dbench, &small);
        }
    }

    /// Adds the algorithms that the engine replaces.
    fn before(&mut self) {
        let about = "The algorithms that the engine's replace, beside them.";
        self.repeat("before", about, PLAIN, "before --tasks 1,2,16");
        let about = "A volume behind one lock, beside one without.";
        let command = "unlink2 --tasks 1,2,16 --against before:one-lock";
        self.repeat("one lock", about, PLAIN, command);
    }

    /// Adds whole trees.
    fn bulk(&mut self) {
        let (files, rounds) = if self.params.quick {
            ("2000", "2")
        } else {
            ("50000", "5")
        };
        let bulk =
            format!("bulk --files {files} --dirs 2 --size 6 --iterations {rounds} --against tar");
        self.add(
            "bulk",
            "A tree of small files into an image and out of it.",
            SectionKind::Bulk,
            &bulk,
        );
    }

    /// Adds other libraries, if their program exists.
    fn peers(&mut self) {
        if let Some(peers) = &self.params.peers {
            let Lengths {
                seconds,
                iterations,
                ..
            } = self.lengths;
            let args = ["--seconds", seconds, "--iterations", iterations];
            self.all.push(Section {
                title: "library peers",
                about: "Other libraries over an image in this process, one task.",
                program: peers.clone(),
                args: args.map(OsString::from).into(),
                called: "extant-peers",
                kind: PLAIN,
            });
        }
    }
}

impl Gather<'_> {
    /// Adds longer benchmarks: larger trees, and programs that need minutes for them.
    fn long(&mut self) {
        let files = self.sized("--files 30000 --iterations 5", "--files 500 --iterations 2");
        let mdtest = format!("mdtest --tasks 48 --size 8G --journal 4096 {files}");
        let about = "48 tasks of 30,000 files, with a journal of 4 GiB.";
        self.add("mdtest, 48 tasks", about, SectionKind::Mdtest, &mdtest);
        self.large();
        self.trees();
        if self.params.mounts {
            let rounds = self.sized(MOUNTS, MOUNTS_QUICK);
            let row = "mount create unlink stat --target mount:classic --clients 1";
            let sandbox = format!("{row} --against unconfined:classic {rounds}");
            let about = "A mount, and one whose server has no sandbox.";
            self.add("mount, sandbox", about, SectionKind::Mounts, &sandbox);
        }
    }

    fn sized(&self, full: &'static str, quick: &'static str) -> &'static str {
        if self.params.quick { quick } else { full }
    }

    /// Adds a large directory, and an aged volume.
    fn large(&mut self) {
        let names = self.sized(
            "--names 1000000 --step 100000 --size 8G --iterations 5",
            "--names 20000 --step 2000 --size 4G",
        );
        let grow = format!("grow {names} --journal 1024");
        let about = "Names are made in one directory, and each step of them is made durable.";
        self.add("a growing directory", about, SectionKind::Grow, &grow);
        let age = self.sized("age", "age --bytes 64M --turns 2");
        let about = "Files are made and removed until the volume is old.";
        self.add("an aged volume", about, SectionKind::Age, age);
    }

    /// Adds trees moved into images, and their check.
    fn trees(&mut self) {
        let small = format!(
            "bulk --dirs 2 --size 6 --against mke2fs --against tar --rounds-peer 1 {}",
            self.sized("--files 50000 --iterations 5", "--files 500 --iterations 2")
        );
        let about = "A tree of small files in memory; peers take part in one round, for which mke2fs needs minutes.";
        self.add("bulk, small files", about, SectionKind::Bulk, &small);
        let system = format!(
            "bulk --dir /var/tmp --against mke2fs --against tar {}",
            self.sized(
                "--from /usr/share --iterations 5",
                "--from /usr/include --iterations 2 --rounds-peer 1"
            )
        );
        let about = "The system's own files, to a disk.";
        self.add("bulk, a system", about, SectionKind::Bulk, &system);
        let memory = self.sized(
            "bulk --against tar --from /usr/share --iterations 5",
            "bulk --against tar --from /usr/include --iterations 2",
        );
        let about = "The same files, into memory.";
        self.add("bulk, a system in memory", about, SectionKind::Bulk, memory);
        self.checks();
    }

    /// Adds checks of images, compared with e2fsck.
    fn checks(&mut self) {
        for (title, about, full, quick) in [
            (
                "check",
                "An image of empty files is checked, in memory.",
                "check",
                "check --dirs 30 --files 30 --size 1G --iterations 2",
            ),
            (
                "check, one directory",
                "The same of one directory.",
                "check --dirs 1 --files 1000000",
                "check --dirs 1 --files 1000 --size 1G --iterations 2",
            ),
            (
                "check, large files",
                "An image of large files, whose blocks are set aside.",
                "check --dirs 100 --files 100 --file-size 100M --size 1100G",
                "check --dirs 2 --files 10 --file-size 100M --size 4G --iterations 2",
            ),
            (
                "check, on a disk",
                "An image of empty files on a disk, of which the system holds nothing; and its metadata read once in order.",
                "check --cold --dir /var/tmp",
                "check --cold --dir /var/tmp --dirs 30 --files 30 --size 1G --iterations 2",
            ),
        ] {
            self.add(title, about, SectionKind::Check, self.sized(full, quick));
        }
    }
}

/// Returns all sections.
pub fn sections(params: &Params) -> Vec<Section> {
    let mut g = Gather {
        params,
        lengths: if params.quick { QUICK } else { FULL },
        all: Vec::new(),
    };
    if params.long {
        g.long();
        return g.all;
    }
    g.mdtest();
    g.small();
    if params.mounts {
        g.mounts(params.uring);
    }
    g.fxmark();
    g.log();
    g.dbench();
    g.before();
    g.bulk();
    g.peers();
    g.all
}

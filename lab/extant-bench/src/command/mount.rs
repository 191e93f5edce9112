//! `extant-bench mount`.

use crate::command::peers::{self, Image, Mounted, Peer};
use crate::command::setup::scratch;
use crate::mount::{self, Material, Measured, MountTarget, Row, Source, Unit};
use crate::runner::Shape;
use crate::table::duration;
use crate::target::{PathTarget, Target, TaskDir};
use anyhow::{Context, Result, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use extant_terminal::interrupt;
use extant_terminal::numbers::rate;
use extant_terminal::numbers::size;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use fuse_server::Transport;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Measure the use of a mounted file system by programs: names, data, whole trees
///
/// Each client is a thread in a separate directory. All mounts use images in memory made by mke2fs. Targets alternate,
/// round by round; results are medians of all rounds but the first. They are compared with the floor of the transport
/// (files in memory that are served in the same way: only kernel and transport), the kernel's ext4, and fuse2fs.
/// Before a cold row, a target is remounted; for a PATH, the kernel's caches are dropped.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  extant-bench mount --against floor:uring floor:classic kernel fuse2fs
  extant-bench mount create unlink fsync --target mount:uring --against floor:uring --clients 2
  extant-bench mount untar git-status --tree ~/src/linux --against kernel")]
pub struct MountArgs {
    /// Rows to run [default: all]
    #[arg(value_name = "ROW", value_parser = rows())]
    rows: Vec<Row>,
    /// Targets to measure: mount:uring, mount:classic, fast:uring and fast:classic (mounts with fast commits),
    /// unconfined:uring and unconfined:classic (without their sandbox), floor:uring, floor:classic, kernel,
    /// kernel:fast, fuse2fs (all as root), or a directory of a mounted file system
    /// [default: mount over each transport that the kernel has]
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<PathBuf>,
    /// Targets to compare with: a further TARGET, or several
    #[arg(long, value_name = "TARGET", num_args = 1..)]
    against: Vec<PathBuf>,
    /// Number of clients, each with a pinned thread; several numbers are run in order
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    clients: Vec<usize>,
    /// Files per round of all clients, in rows on names; also files of the generated tree
    #[arg(long, default_value_t = 10_000)]
    files: u64,
    /// Size of each client's file, in rows on data
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    file_size: u64,
    /// Longest time of a round in seconds; files and trees are always completed
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Largest number of rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Seconds after which a row starts no further round; every target has at least one counted round
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    within: f64,
    /// Tree for untar and git-status [default: a generated tree of at most 3,000 small files]
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Size of the generated images
    #[arg(long, default_value = "2G", value_parser = size)]
    size: u64,
    /// Print as JSON, with every round
    #[arg(long)]
    json: bool,
}

fn rows() -> impl TypedValueParser<Value = Row> {
    let values = Row::ALL.map(|row| PossibleValue::new(row.name()).help(row.about()));
    // The parser accepts only names of rows.
    PossibleValuesParser::new(values).map(|name| Row::named(&name).unwrap_or(Row::Create))
}

/// Number of files of a generated tree.
const TREE_FILES: u64 = 3000;

/// A mounted peer, as a target.
struct Peered {
    target: PathTarget,
    mounted: Mutex<Mounted>,
}

impl Peered {
    fn mounted(&self) -> MutexGuard<'_, Mounted> {
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target for Peered {
    fn name(&self) -> String {
        self.target.name()
    }
    fn make_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        self.target.make_dir(path)
    }
    fn open_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        self.target.open_dir(path)
    }
    fn remove_dir(&self, path: &str) -> Result<()> {
        self.target.remove_dir(path)
    }
    fn sync(&self) -> Result<()> {
        self.target.sync()
    }
    fn drop_caches(&self) -> Result<()> {
        self.make_cold()
    }
    fn other_cpu(&self) -> f64 {
        self.mounted().cpu()
    }
}

impl MountTarget for Peered {
    fn dir(&self) -> &Path {
        self.target.root()
    }

    fn ready(&self) -> Result<()> {
        self.mounted().ready()
    }

    fn make_cold(&self) -> Result<()> {
        self.mounted().remount()
    }
}

/// A target, as named on the command line.
enum Named {
    Peer(Peer),
    Path(PathBuf),
}

/// Mounted targets.
#[derive(Default)]
struct Places {
    peers: Vec<Peered>,
    paths: Vec<PathTarget>,
    /// Kinds and indexes of the targets, in the order of the command line.
    order: Vec<(bool, usize)>,
}

impl Places {
    fn all(&self) -> Vec<&dyn MountTarget> {
        let place = |&(peer, at): &(bool, usize)| -> &dyn MountTarget {
            if peer {
                &self.peers[at]
            } else {
                &self.paths[at]
            }
        };
        self.order.iter().map(place).collect()
    }

    fn close(self) -> Result<()> {
        self.peers.into_iter().try_for_each(|p| {
            let mounted = p.mounted.into_inner();
            mounted.unwrap_or_else(PoisonError::into_inner).unmount()
        })
    }
}

impl MountArgs {
    fn named(&self) -> Result<Vec<Named>> {
        let mut names = self.targets.clone();
        if names.is_empty() {
            if peers::has_uring() {
                names.push(Peer::Mount(Transport::Uring).name().into());
            }
            names.push(Peer::Mount(Transport::Classic).name().into());
        }
        names.extend(self.against.iter().cloned());
        let twice = (1..names.len()).find(|&n| names[..n].contains(&names[n]));
        if let Some(n) = twice {
            anyhow::bail!("{} is one target: name it once", names[n].display());
        }
        names
            .into_iter()
            .map(|name| match Peer::of(name.as_os_str()) {
                Some(peer) => Ok(Named::Peer(peer)),
                None => {
                    ensure!(name.is_dir(), "{}: not a directory", name.display());
                    Ok(Named::Path(name))
                }
            })
            .collect()
    }

    fn open(&self, named: Vec<Named>, scratch: &Path) -> Result<Places> {
        let clients = self.clients.iter().max().copied().unwrap_or(1) as u64;
        // Includes the files of the trees, and spare inodes.
        let inodes = self.files + clients * 4 * self.files.max(TREE_FILES) + 10_000;
        let inodes = u32::try_from(inodes).context("too many files for one image")?;
        let mut places = Places::default();
        for named in named {
            match named {
                Named::Peer(peer) => {
                    let file = peer.name().replace(':', "-");
                    let image = Image {
                        path: scratch.join(format!("{file}.img")),
                        size: self.size,
                        journal: None,
                        inodes,
                    };
                    let mounted = Mounted::new(peer, &image, &scratch.join(&file))?;
                    places.order.push((true, places.peers.len()));
                    places.peers.push(Peered {
                        target: mounted.target(),
                        mounted: Mutex::new(mounted),
                    });
                }
                Named::Path(path) => {
                    places.order.push((false, places.paths.len()));
                    places.paths.push(PathTarget::new(&path));
                }
            }
        }
        Ok(places)
    }

    fn material(&self, rows: &[Row], scratch: &Path) -> Result<Material> {
        let source = if rows.iter().any(|row| row.needs_source().0) {
            let files = self.files.min(TREE_FILES) as usize;
            let at = scratch.join("source");
            std::fs::create_dir(&at).with_context(|| at.display().to_string())?;
            Some(Source::make(&at, self.tree.as_deref(), files).context("a source tree")?)
        } else {
            None
        };
        Ok(Material {
            files: self.files,
            file_size: self.file_size,
            source,
        })
    }
}

pub fn run(args: &MountArgs) -> Result<()> {
    ensure!(
        args.clients.iter().all(|&n| n > 0) && args.files > 0 && args.iterations > 0,
        "clients, files and iterations begin at 1"
    );
    ensure!(args.file_size >= 4096, "a file of data has a page at least");
    let within = Duration::try_from_secs_f64(args.within).context("--within is a time")?;
    let named = args.named()?;
    if named.iter().any(|n| matches!(n, Named::Peer(_))) {
        peers::own_mounts()?;
    }
    let scratch = scratch()?;
    let mut rows = match args.rows.as_slice() {
        [] => Row::ALL.to_vec(),
        some => some.to_vec(),
    };
    let with = args.material(&rows, scratch.path())?;
    if with.source.as_ref().is_some_and(|s| !s.has_repository()) {
        output::complain(format_args!("git is not installed: no git-status"));
        rows.retain(|row| !row.needs_source().1);
    }
    if rows.iter().any(|row| row.needs_sqlite()) && !mount::has_sqlite() {
        output::complain(format_args!("sqlite3 is not installed: no rows of SQLite"));
        rows.retain(|row| !row.needs_sqlite());
    }
    let places = args.open(named, scratch.path())?;
    let measured = args.measure(&rows, &places.all(), &with, within);
    let closed = places.close();
    let measured = measured?;
    closed?;
    if args.json {
        output::json(&measured)?;
    }
    Ok(())
}

impl MountArgs {
    fn measure(
        &self,
        rows: &[Row],
        places: &[&dyn MountTarget],
        with: &Material,
        within: Duration,
    ) -> Result<Vec<Measured>> {
        let rounds = rows.len() * self.clients.len() * places.len() * (self.iterations + 1);
        let progress = Progress::up_to("rounds", rounds as u64);
        let mut all = Vec::new();
        // Print each row as soon as it is known, because all rows take long.
        let table = (!self.json).then(|| Table::of(rows, places));
        if let Some(table) = &table {
            progress.around(|| table.head(self, with))?;
        }
        for &row in rows {
            for &tasks in &self.clients {
                let shape = Shape {
                    tasks,
                    seconds: self.seconds,
                    files: self.files,
                    rounds: self.iterations,
                };
                let between = || {
                    progress.add(1);
                    interrupt::check()
                };
                let measured = mount::run(row, places, with, shape, within, between)?;
                if let Some(table) = &table {
                    progress.around(|| table.lines(&measured))?;
                }
                all.extend(measured);
            }
        }
        progress.done();
        Ok(all)
    }
}

/// Returns a figure with its unit.
fn figure(m: &Measured) -> String {
    match m.unit {
        Unit::PerSecond => format!("{}/s", rate(m.figure)),
        Unit::NamesPerSecond => format!("{} names/s", rate(m.figure)),
        Unit::MegabytesPerSecond => format!("{:.0} MB/s", m.figure),
        Unit::Seconds => duration(m.figure * 1e9),
    }
}

/// Widths of the columns of names.
struct Table {
    row: usize,
    target: usize,
}

impl Table {
    fn of(rows: &[Row], places: &[&dyn MountTarget]) -> Self {
        let row = rows.iter().map(|row| row.name().len()).max();
        let target = places
            .iter()
            .map(|place| place.name().chars().count())
            .max();
        Self {
            row: row.unwrap_or(0).max(3),
            target: target.unwrap_or(0).max(6),
        }
    }

    fn head(&self, args: &MountArgs, with: &Material) -> Result<()> {
        let mut out = output::stdout();
        let (seconds, rounds) = (args.seconds, args.iterations);
        write!(
            out,
            "mount: {} files, files of {} bytes; {seconds} s a round at most, medians of up to {rounds} rounds",
            with.files, with.file_size
        )?;
        match &with.source {
            Some(source) => writeln!(out, "; a tree of {} names", source.names())?,
            None => writeln!(out)?,
        }
        let Self { row, target } = *self;
        write!(
            out,
            "{:row$} {:>7}  {:target$} {:>15}",
            "row", "clients", "target", "figure"
        )?;
        for head in ["sync", "CPU", "p50", "p99", "floor", "kernel", "fuse2fs"] {
            write!(out, " {head:>8}")?;
        }
        writeln!(out)?;
        Ok(out.flush()?)
    }

    fn lines(&self, all: &[Measured]) -> Result<()> {
        let mut out = output::stdout();
        let Self { row, target } = *self;
        for m in all {
            let r = &m.report;
            write!(
                out,
                "{:row$} {:>7}  {:target$}",
                r.workload, r.shape.tasks, r.target
            )?;
            if let Some(why) = &r.failed {
                writeln!(out, " not measured: {why}")?;
                continue;
            }
            write!(out, " {:>15}", figure(m))?;
            let times =
                |times: Option<f64>| times.map_or_else(|| "-".into(), |t| format!("{t:.2}×"));
            let cells = [
                duration(r.finish_seconds * 1e9),
                duration(r.cpu_ns),
                duration(r.latency.p50 as f64),
                duration(r.latency.p99 as f64),
                times(m.times.floor),
                times(m.times.kernel),
                times(m.times.fuse2fs),
            ];
            cells.iter().try_for_each(|c| write!(out, " {c:>8}"))?;
            writeln!(out)?;
        }
        Ok(out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: MountArgs,
    }

    fn parsed(line: &[&str]) -> Result<MountArgs, clap::Error> {
        let line = ["mount"].iter().chain(line);
        Line::try_parse_from(line).map(|line| line.args)
    }

    #[test]
    fn rows_and_targets_are_chosen() {
        let args = parsed(&["create", "stat-cold", "--target", "mount:uring"]).unwrap();
        assert_eq!(args.rows, [Row::Create, Row::StatCold]);
        let named = args.named().unwrap();
        let uring = Peer::Mount(Transport::Uring);
        assert!(matches!(named[..], [Named::Peer(peer)] if peer == uring));
        assert!(parsed(&["stat cold"]).is_err());

        let both = parsed(&["--target", "/", "--against", "floor:classic", "kernel"]).unwrap();
        let named = both.named().unwrap();
        assert!(matches!(&named[0], Named::Path(p) if p == Path::new("/")));
        assert!(matches!(named[2], Named::Peer(Peer::Kernel)));
        assert!(parsed(&["--within", "x"]).is_err());
        let twice = parsed(&["--target", "kernel", "--against", "kernel"]).unwrap();
        let error = twice.named().err().unwrap().to_string();
        assert!(error.contains("name it once"), "{error}");
        let none = parsed(&["--target", "/no/such/place"]).unwrap();
        assert!(none.named().is_err());

        // Without targets, the mount itself is measured over the available transports.
        let own = parsed(&[]).unwrap().named().unwrap();
        let is_mount = |n: &Named| matches!(n, Named::Peer(Peer::Mount(_)));
        assert!(!own.is_empty() && own.iter().all(is_mount));
    }
}

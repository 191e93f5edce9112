//! `extant-bench bulk`.

use crate::bulk::{self, Direction, Moved, Mover, Output, Report};
use crate::child;
use crate::command::setup::scratch_in;
use crate::tree::Shape;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use extant_terminal::interrupt;
use extant_terminal::numbers::size;
use extant_terminal::numbers::{human, rate};
use extant_terminal::output;
use extant_terminal::progress::Progress;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Move a whole tree into an image and out of it
///
/// The tree is moved into a new image (mkfs --from), into an existing image (import), out to a directory and out to a
/// tar archive (export). Each run is a separate process; the time to make its result durable is reported separately.
/// Peers alternate with it, round by round: mke2fs -d, and tar c and tar x. Results are medians of all rounds but the
/// first. mke2fs makes its image durable itself, so its run includes that time.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant-bench bulk --from /usr --dir /var/tmp --against mke2fs --against tar\n  \
    extant-bench bulk --files 50000 --dirs 2 --size 6 --against mke2fs --rounds-peer 1"
)]
pub struct BulkArgs {
    /// Tree to move [default: a generated tree]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["files", "dirs", "size"])]
    from: Option<PathBuf>,
    /// Number of files in each directory of the generated tree
    #[arg(long, default_value_t = 50_000)]
    files: usize,
    /// Number of directories of the generated tree
    #[arg(long, default_value_t = 2)]
    dirs: usize,
    /// Size in bytes of each file of the generated tree
    #[arg(long, default_value = "100", value_parser = size)]
    size: u64,
    /// Programs to compare with; may be repeated
    #[arg(long, value_enum, value_name = "PEER")]
    against: Vec<Peer>,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    iterations: usize,
    /// Number of rounds in which peers take part [default: all]
    #[arg(long, value_name = "N")]
    rounds_peer: Option<usize>,
    /// Directory for temporary images, archives and trees [default: in memory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of the images [default: one and a half times the size of the tree, and some spare space]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    image_size: Option<u64>,
    /// Threads per run of extant [0: the number of CPUs]
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Print as JSON, with every round
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// mke2fs -d, of e2fsprogs
    Mke2fs,
    /// tar c, and tar x of its archive
    Tar,
}

/// The parameters of the run, as in its JSON.
#[derive(Serialize)]
struct Facts<'a> {
    tree: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<Shape>,
    #[serde(flatten)]
    moved: Moved,
    image_size: u64,
    dir: String,
    iterations: usize,
    reports: &'a [Report],
}

/// Returns the first line that a peer prints about itself; an error if the peer is not installed.
fn version(program: &str, flag: &str, peer: &str) -> Result<String> {
    let said = Command::new(program).arg(flag).output();
    let said = said.with_context(|| format!("--against {peer}: {program} cannot be run"))?;
    let text = [said.stdout, said.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().next().unwrap_or_default().trim().to_string())
}

/// Paths of all temporary files, in one directory.
struct Places {
    tree: PathBuf,
    made: PathBuf,
    filled: PathBuf,
    peer: PathBuf,
    out: PathBuf,
    archive: PathBuf,
    peer_out: PathBuf,
    peer_archive: PathBuf,
}

impl Places {
    fn in_directory(work: &Path, from: Option<&Path>) -> Self {
        let at = |name: &str| work.join(name);
        Self {
            tree: from.map_or_else(|| at("tree"), Path::to_path_buf),
            made: at("made.img"),
            filled: at("filled.img"),
            peer: at("peer.img"),
            out: at("out"),
            archive: at("out.tar"),
            peer_out: at("peer-out"),
            peer_archive: at("peer.tar"),
        }
    }
}

fn args<const N: usize>(list: [&dyn AsRef<OsStr>; N]) -> Vec<OsString> {
    list.iter().map(|a| a.as_ref().to_os_string()).collect()
}

/// Removes a file or a tree, if it exists, and waits until the file system has written everything.
fn clear(path: &Path) -> Result<()> {
    let gone = match path.symlink_metadata() {
        Ok(m) if m.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => Ok(()),
    };
    gone.with_context(|| path.display().to_string())?;
    let dir = path
        .parent()
        .context("a place in the directory of the run")?;
    let fd = std::fs::File::open(dir).with_context(|| dir.display().to_string())?;
    Ok(rustix::fs::syncfs(&fd)?)
}

/// Returns a number from the JSON of an extant command.
fn number(said: &[u8], key: &str) -> Option<f64> {
    let value: serde_json::Value = serde_json::from_slice(said).ok()?;
    value.get(key)?.as_f64()
}

fn own_sync(said: &[u8]) -> f64 {
    number(said, "sync_seconds").unwrap_or(0.0)
}

/// Size of the tree as an image, measured by making an image and importing it into another.
struct Measured {
    moved: Moved,
    image_size: u64,
    inodes: u64,
}

fn measure(a: &BulkArgs, exe: &Path, p: &Places) -> Result<Measured> {
    let run = |list: Vec<OsString>| child::run(Command::new(exe).args(list));
    let made = run(args([&"mkfs", &"--json", &p.made, &"--from", &p.tree]))?.stdout;
    let of = |key: &str| {
        let n = number(&made, key).with_context(|| format!("mkfs --json says no {key}"));
        n.map(|n| n as u64)
    };
    let used = of("blocks")?.saturating_sub(of("free_blocks")?) * of("block_size")?;
    let inodes = of("inodes")?.saturating_sub(of("free_inodes")?);
    // An import reserves blocks for every directory that it changes, so leave room for that, in a sparse file.
    let room = used / 2 + inodes * 8192 + (512 << 20);
    let names = ["directories", "files", "symlinks", "specials", "hard_links"];
    let names = names.into_iter().map(of).sum::<Result<u64>>()?;
    let packed = run(args([&"export", &"--json", &p.made, &p.archive]))?.stdout;
    let bytes = number(&packed, "bytes").context("export --json says no bytes")?;
    Ok(Measured {
        moved: Moved {
            names,
            bytes: bytes as u64,
        },
        image_size: a
            .image_size
            .unwrap_or((used + room).next_multiple_of(1 << 20)),
        inodes: inodes + inodes / 5 + 1000,
    })
}

/// All methods of moving the tree of a run.
struct Ways<'a> {
    args: &'a BulkArgs,
    exe: &'a Path,
    places: &'a Places,
    image_size: u64,
    inodes: String,
}

impl<'a> Ways<'a> {
    /// Returns a method that uses an extant command.
    fn ours(
        &self,
        name: &str,
        direction: Direction,
        mut command: Vec<OsString>,
        output: Output,
    ) -> Mover<'a> {
        let (path, exe) = (output.path().to_path_buf(), self.exe);
        let is_import = name.ends_with("import");
        let (size, inodes) = (self.image_size.to_string(), self.inodes.clone());
        let prepare = move || {
            clear(&path)?;
            if is_import {
                let list = args([&"mkfs", &path, &"--size", &size, &"-N", &inodes]);
                child::run(Command::new(exe).args(list))?;
                let fd = std::fs::File::open(&path)?;
                rustix::fs::fsync(&fd)?;
            }
            Ok(())
        };
        let threads = self.args.threads.to_string();
        command.insert(0, exe.into());
        command.extend(args([&"--json", &"--threads", &threads]));
        Mover {
            name: name.into(),
            direction,
            command,
            output,
            prepare: Box::new(prepare),
            rounds: self.args.iterations,
            warm_up: true,
            own_sync,
        }
    }

    /// Returns a run of another program.
    fn peer(
        &self,
        name: String,
        direction: Direction,
        command: Vec<OsString>,
        output: Output,
    ) -> Mover<'a> {
        let place = output.path().to_path_buf();
        let is_dir = matches!(output, Output::Directory(_));
        let prepare = move || {
            clear(&place)?;
            if is_dir {
                std::fs::create_dir(&place)?;
            }
            Ok(())
        };
        let rounds = self.args.rounds_peer.unwrap_or(self.args.iterations);
        Mover {
            name,
            direction,
            command,
            output,
            prepare: Box::new(prepare),
            rounds: rounds.min(self.args.iterations),
            warm_up: false,
            own_sync: |_| 0.0,
        }
    }

    /// Returns a peer that packs the tree.
    fn peer_in(&self, (which, version): &(Peer, String)) -> Mover<'a> {
        let (p, kib) = (self.places, format!("{}k", self.image_size >> 10));
        let (name, command, file) = match which {
            Peer::Mke2fs => (
                format!("mke2fs -d ({version})"),
                args([
                    &"mke2fs",
                    &"-q",
                    &"-F",
                    &"-t",
                    &"ext4",
                    &"-N",
                    &self.inodes,
                    &"-d",
                    &p.tree,
                    &p.peer,
                    &kib,
                ]),
                &p.peer,
            ),
            Peer::Tar => (
                format!("tar c ({version})"),
                args([&"tar", &"-c", &"-f", &p.peer_archive, &"-C", &p.tree, &"."]),
                &p.peer_archive,
            ),
        };
        self.peer(name, Direction::In, command, Output::File(file.clone()))
    }

    /// Returns all methods, first into an image, then out of it.
    fn all(&self, peers: &[(Peer, String)]) -> Vec<Mover<'a>> {
        let (p, size) = (self.places, self.image_size.to_string());
        let file = |path: &PathBuf| Output::File(path.clone());
        let dir = |path: &PathBuf| Output::Directory(path.clone());
        let ours = |name, direction, command, output| self.ours(name, direction, command, output);
        let mkfs = args([
            &"mkfs",
            &p.made,
            &"--from",
            &p.tree,
            &"--size",
            &size,
            &"-N",
            &self.inodes,
        ]);
        let import = args([&"import", &p.filled, &p.tree]);
        let mut list = vec![
            ours("extant mkfs --from", Direction::In, mkfs, file(&p.made)),
            ours("extant import", Direction::In, import, file(&p.filled)),
        ];
        list.extend(peers.iter().map(|peer| self.peer_in(peer)));
        let to_dir = args([&"export", &p.made, &p.out]);
        let to_tar = args([&"export", &p.made, &p.archive]);
        let out = Direction::Out;
        list.push(ours("extant export DIR", out, to_dir, dir(&p.out)));
        list.push(ours("extant export TAR", out, to_tar, file(&p.archive)));
        if let Some((_, version)) = peers.iter().find(|(which, _)| *which == Peer::Tar) {
            let command = args([&"tar", &"-x", &"-f", &p.peer_archive, &"-C", &p.peer_out]);
            let name = format!("tar x ({version})");
            list.push(self.peer(name, out, command, dir(&p.peer_out)));
        }
        list
    }
}

/// Returns the requested peers, each once, with their versions.
fn peers(a: &BulkArgs) -> Result<Vec<(Peer, String)>> {
    let mut peers = Vec::new();
    for peer in &a.against {
        if peers.iter().any(|(p, _)| p == peer) {
            continue;
        }
        peers.push((
            *peer,
            match peer {
                Peer::Mke2fs => short(&version("mke2fs", "-V", "mke2fs")?),
                Peer::Tar => short(&version("tar", "--version", "tar")?),
            },
        ));
    }
    Ok(peers)
}

/// Fails if the tree does not exist, or contains the directory for images.
fn check_tree(from: &Path, work: &Path) -> Result<()> {
    let real = from.canonicalize();
    let real = real.with_context(|| from.display().to_string())?;
    ensure!(real.is_dir(), "{}: not a directory", from.display());
    let inside = work.canonicalize()?.starts_with(&real);
    ensure!(
        !inside,
        "{}: the place to work in lies inside the tree: name another with --dir",
        work.display()
    );
    Ok(())
}

pub fn run(a: &BulkArgs) -> Result<()> {
    ensure!(
        a.iterations > 0 && a.rounds_peer != Some(0),
        "rounds begin at 1"
    );
    ensure!(
        a.files > 0 && a.dirs > 0,
        "files and directories begin at 1"
    );
    let peers = peers(a)?;
    let work = scratch_in(a.dir.as_deref())?;
    let p = Places::in_directory(work.path(), a.from.as_deref());
    if let Some(from) = &a.from {
        check_tree(from, work.path())?;
    }
    let shape = a.from.is_none().then_some(Shape {
        dirs: a.dirs,
        files: a.files,
        size: a.size,
    });
    let exe = crate::command::setup::extant()?;
    let progress = Progress::count("runs");
    let measure_all = || -> Result<_> {
        if let Some(shape) = shape {
            std::fs::create_dir(&p.tree).with_context(|| p.tree.display().to_string())?;
            shape.make(&p.tree, interrupt::check)?;
        }
        interrupt::check()?;
        let m = measure(a, &exe, &p)?;
        let ways = Ways {
            args: a,
            exe: &exe,
            places: &p,
            image_size: m.image_size,
            inodes: m.inodes.to_string(),
        };
        let list = ways.all(&peers);
        let reports = bulk::run(&list, m.moved, |_| {
            progress.add(1);
            interrupt::check()
        })?;
        drop(list);
        Ok((m, reports))
    };
    let measured = measure_all();
    progress.done();
    // A child that was interrupted together with this process reports that in its own words.
    let (m, reports) = match measured {
        Err(e) => {
            interrupt::check()?;
            return Err(e);
        }
        Ok(done) => done,
    };
    let facts = Facts {
        tree: match &a.from {
            Some(from) => from.display().to_string(),
            None => format!(
                "{} directories of {} files of {} bytes",
                a.dirs, a.files, a.size
            ),
        },
        shape,
        moved: m.moved,
        image_size: m.image_size,
        dir: work
            .path()
            .parent()
            .unwrap_or(work.path())
            .display()
            .to_string(),
        iterations: a.iterations,
        reports: &reports,
    };
    if a.json {
        output::json(&facts)
    } else {
        table(&facts)
    }
}

/// The compared pairs: programs that do equal work.
const PAIRS: [(&str, &str); 6] = [
    ("extant mkfs --from", "mke2fs -d"),
    ("extant import", "mke2fs -d"),
    ("extant mkfs --from", "tar c"),
    ("extant import", "tar c"),
    ("extant export TAR", "tar c"),
    ("extant export DIR", "tar x"),
];

/// Extracts the number from a version text: `mke2fs 1.47.2 (1-Jan-2025)` is 1.47.2.
fn short(version: &str) -> String {
    let number = |w: &&str| w.starts_with(|c: char| c.is_ascii_digit());
    let found = version.split_whitespace().find(number);
    found.unwrap_or("of no known version").to_string()
}

fn table(facts: &Facts<'_>) -> Result<()> {
    let mut out = output::stdout();
    writeln!(
        out,
        "bulk: {}: {} names, {} of data; in {}, median of {} rounds",
        facts.tree,
        facts.moved.names,
        human(facts.moved.bytes),
        facts.dir,
        facts.iterations
    )?;
    let reports = facts.reports;
    let width = reports.iter().map(|r| r.name.chars().count()).max();
    let width = width.unwrap_or(0);
    let head = [
        "seconds", "sync s", "files/s", "synced/s", "MB/s", "synced", "CPU ns", "peak",
    ];
    for (direction, title) in [(Direction::In, "in"), (Direction::Out, "out")] {
        write!(out, "{title:width$}")?;
        head.iter().try_for_each(|h| write!(out, " {h:>9}"))?;
        writeln!(out)?;
        for r in reports.iter().filter(|r| r.direction == direction) {
            let cells = [
                format!("{:.2}", r.seconds),
                format!("{:.2}", r.sync_seconds),
                rate(r.files),
                rate(r.files_synced),
                format!("{:.1}", r.bytes / 1e6),
                format!("{:.1}", r.bytes_synced / 1e6),
                format!("{:.0}", r.cpu_ns),
                human(r.peak),
            ];
            write!(out, "{:width$}", r.name)?;
            cells.iter().try_for_each(|c| write!(out, " {c:>9}"))?;
            let few = if r.rounds.len() < facts.iterations {
                format!("  ({} of the rounds)", r.rounds.len())
            } else {
                String::new()
            };
            writeln!(out, "{few}")?;
        }
    }
    for (own, peer) in PAIRS {
        let find = |name| reports.iter().find(|r| r.name.starts_with(name));
        let (Some(own), Some(peer)) = (find(own), find(peer)) else {
            continue;
        };
        let times = |a: f64, b: f64| {
            if b > 0.0 {
                format!("{:.1}×", a / b)
            } else {
                "-".into()
            }
        };
        writeln!(
            out,
            "{} against {}: {}, synced {}, CPU {}",
            own.name,
            peer.name,
            times(peer.seconds, own.seconds),
            times(
                peer.seconds + peer.sync_seconds,
                own.seconds + own.sync_seconds
            ),
            times(peer.cpu_ns, own.cpu_ns)
        )?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert_eq!(short("mke2fs 1.47.2 (1-Jan-2025)"), "1.47.2");
        assert_eq!(short("tar (GNU tar) 1.35"), "1.35");
        assert_eq!(short(""), "of no known version");
    }

    #[test]
    fn a_peer_that_is_not_there_is_named() {
        let e = version("extant-no-such-peer", "-V", "mke2fs").unwrap_err();
        let text = format!("{e:#}");
        assert!(
            text.starts_with("--against mke2fs: extant-no-such-peer cannot be run"),
            "{text}"
        );
    }
}

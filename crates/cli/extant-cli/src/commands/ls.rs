//! `extant ls`.

use anyhow::{Context, Result};
use ext4_format::inode::{dev_major, dev_minor};
use extant::{Dir, FileType, Metadata};
use extant_cli_core::address::Rooted;
use extant_cli_core::address::advice::about;
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::patterns::{NoMatch, expand};
use extant_cli_core::address::walk::{Order, sorted, walk_past_errors};
use extant_cli_core::address::{bytes, join, os};
use extant_cli_core::format::show::{self, JsonPath};
use extant_cli_core::format::times;
use extant_cli_core::image::images::Images;
use extant_terminal::output;
use serde::Serialize;
use std::cmp::Reverse;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// List directories of an image
#[derive(clap::Args, Debug)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:\n  extant ls -l disk.img:/etc\n  extant ls -R disk.img"
)]
pub struct Args {
    /// Files and directories; a bare IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Rooted>,
    /// Show mode, links, owner, size and time
    #[arg(short)]
    long: bool,
    /// Include names that begin with a dot
    #[arg(short, long, visible_short_alias = 'A')]
    all: bool,
    /// With -l, show sizes in powers of 1024: 1.5G
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Show inode numbers
    #[arg(short, long)]
    inode: bool,
    /// List directories themselves, not their contents
    #[arg(short, long)]
    directory: bool,
    /// Sort by modification time, the latest first
    #[arg(short = 't', conflicts_with = "by_size")]
    by_time: bool,
    /// Sort by size, the largest first
    #[arg(short = 'S')]
    by_size: bool,
    /// Append a slash to the names of directories
    #[arg(short = 'p')]
    slashes: bool,
    /// Reverse the order
    #[arg(short, long)]
    reverse: bool,
    /// List one name per line, which is always the case
    #[arg(short = '1')]
    _one: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// A name, as shown in JSON.
#[derive(Serialize)]
pub struct Listed {
    /// Path in the image.
    #[serde(flatten)]
    pub path: JsonPath,
    #[serde(flatten)]
    pub facts: Facts,
}

/// The attributes of an inode.
#[derive(Serialize)]
pub struct Facts {
    pub ino: u32,
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Permission bits, in octal.
    pub mode: String,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Space held, in bytes.
    pub allocated: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<(u32, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<String>,
    pub atime: String,
    pub mtime: String,
    pub ctime: String,
    pub crtime: String,
}

/// Collects the attributes of an inode, and reads its target if it is a symbolic link.
pub fn facts(a: &Metadata, read_link: impl FnOnce() -> extant::Result<Vec<u8>>) -> Result<Facts> {
    let target = if a.file_type() == FileType::Symlink {
        Some(read_link()?)
    } else {
        None
    };
    let target = target.as_deref();
    let device = matches!(a.file_type(), FileType::CharDevice | FileType::BlockDevice);
    Ok(Facts {
        ino: a.ino(),
        kind: a.file_type().name(),
        mode: format!("{:04o}", a.mode() & 0o7777),
        links: a.nlink(),
        uid: a.uid(),
        gid: a.gid(),
        size: a.len(),
        allocated: a.blocks().saturating_mul(512),
        device: device.then(|| (dev_major(a.rdev()), dev_minor(a.rdev()))),
        target: target.map(show::exact),
        target_bytes: target.and_then(show::base64_if_odd),
        atime: times::utc(a.atime()),
        mtime: times::utc(a.mtime()),
        ctime: times::utc(a.ctime()),
        crtime: times::utc(a.crtime()),
    })
}

/// Names to show together.
#[derive(Default)]
struct List {
    rows: Vec<Row>,
    /// Whether a name could not be read, which was reported.
    failed: bool,
}

/// A name as shown, its attributes, and the target of a symbolic link.
struct Row {
    name: Vec<u8>,
    /// `None` if the attributes could not be read.
    facts: Option<(Metadata, Option<Vec<u8>>)>,
}

impl List {
    fn add(
        &mut self,
        a: Metadata,
        shown: &[u8],
        read_link: impl FnOnce() -> extant::Result<Vec<u8>>,
    ) -> Result<()> {
        let target = if a.file_type() == FileType::Symlink {
            Some(read_link()?)
        } else {
            None
        };
        self.rows.push(Row {
            name: shown.to_vec(),
            facts: Some((a, target)),
        });
        Ok(())
    }

    fn print(&self, args: &Args, out: &mut impl Write) -> Result<()> {
        let column = |f: &dyn Fn(&Metadata) -> String| -> Vec<String> {
            let cell = |row: &Row| row.facts.as_ref().map_or("?".into(), |(a, _)| f(a));
            let cells: Vec<String> = self.rows.iter().map(cell).collect();
            let width = cells.iter().map(String::len).max().unwrap_or(0);
            cells.iter().map(|cell| format!("{cell:>width$}")).collect()
        };
        let numbers = column(&|a| a.ino().to_string());
        let columns = [
            column(&|a| a.nlink().to_string()),
            column(&|a| a.uid().to_string()),
            column(&|a| a.gid().to_string()),
            column(&|a| size(a, args.human)),
        ];
        for (n, Row { name, facts }) in self.rows.iter().enumerate() {
            if args.inode {
                write!(out, "{} ", numbers[n])?; // as many as rows
            }
            let (a, target) = match facts {
                Some((a, target)) => (Some(a), target.as_ref()),
                None => (None, None),
            };
            if args.long {
                let mode = a.map_or("??????????".into(), |a| show::mode(a.file_type(), a.mode()));
                let [links, uid, gid, size] = columns.each_ref().map(|column| &column[n]);
                let time = a.map_or("?".into(), |a| times::local(a.mtime()));
                write!(out, "{mode} {links} {uid} {gid} {size} {time} ")?;
            }
            write!(out, "{}", show::name(name))?;
            if args.slashes && a.is_some_and(Metadata::is_dir) {
                write!(out, "/")?;
            }
            match target {
                Some(target) if args.long => writeln!(out, " -> {}", show::name(target))?,
                _ => writeln!(out)?,
            }
        }
        if self.failed {
            Err(output::told())
        } else {
            Ok(())
        }
    }
}

fn size(a: &Metadata, in_short: bool) -> String {
    match a.file_type() {
        FileType::CharDevice | FileType::BlockDevice => {
            format!("{}, {}", dev_major(a.rdev()), dev_minor(a.rdev()))
        }
        _ if in_short => show::human(a.len()),
        _ => a.len().to_string(),
    }
}

/// Collects the names in a directory. `path` is the directory's path for messages.
fn list(args: &Args, dir: &Dir, path: &[u8]) -> Result<List> {
    let mut list = List::default();
    for entry in sorted(dir, ".")? {
        let name = entry.file_name();
        if !args.all && name.as_bytes().starts_with(b".") {
            continue;
        }
        let looked = dir.symlink_metadata(name).map_err(anyhow::Error::from);
        let added =
            looked.and_then(|a| list.add(a, name.as_bytes(), || dir.read_link(name).map(bytes)));
        if let Err(error) = added {
            let place = show::show(&join(path, name.as_bytes()));
            output::complain(format_args!("{place}: {}", output::one_line(&error)));
            list.failed = true;
            list.rows.push(Row {
                name: name.as_bytes().to_vec(),
                facts: None,
            });
        }
    }
    // The names are sorted already, and a stable sort keeps that order among equals.
    let by = |row: &Row, key: &dyn Fn(&Metadata) -> i128| row.facts.as_ref().map(|(a, _)| key(a));
    if args.by_time {
        let time = |a: &Metadata| {
            let mtime = a.mtime();
            i128::from(mtime.secs()) << 32 | i128::from(mtime.nanos())
        };
        list.rows.sort_by_key(|row| Reverse(by(row, &time)));
    }
    if args.by_size {
        let size = |a: &Metadata| a.len().into();
        list.rows.sort_by_key(|row| Reverse(by(row, &size)));
    }
    if args.reverse {
        list.rows.reverse();
    }
    Ok(list)
}

pub fn run(args: &Args) -> Result<()> {
    let mut out = output::stdout();
    let mut found = Vec::new();
    let mut first = true;
    let done = Images::with(false, |images| {
        let mut addresses = Vec::new();
        let expanded = output::each(&args.paths, |Rooted(address)| {
            let volume = images.get(&address.image)?;
            addresses.extend(expand(&volume, address, NoMatch::Fails)?);
            Ok(())
        });
        let many = args.paths.len().max(addresses.len()) > 1 || args.recursive;
        let done = output::each(&addresses, |address| {
            let volume = images.get(&address.image)?;
            let mut show = || -> Result<()> {
                let place = ImagePlace::of(&volume, address)?;
                if args.json {
                    let done = collect(args, &place, &mut found);
                    return done.map_err(|e| about(&place, e));
                }
                let mut title = |path: &[u8], out: &mut dyn Write| -> Result<()> {
                    if many {
                        let gap = if std::mem::take(&mut first) { "" } else { "\n" };
                        writeln!(out, "{gap}{}:", address.at(path))?;
                    }
                    Ok(())
                };
                let done = print(args, &place, &mut out, &mut title);
                done.map_err(|e| about(&place, e))
            };
            show().with_context(|| address.to_string())
        });
        done.and(expanded)
    });
    output::end(done, out, args.json, &found)
}

/// A function that prints the line above the names of a directory.
type Title<'a> = dyn FnMut(&[u8], &mut dyn Write) -> Result<()> + 'a;

/// Prints a file or directory; `title` prints the line above a directory's names.
fn print(
    args: &Args,
    place: &ImagePlace,
    mut out: &mut dyn Write,
    title: &mut Title<'_>,
) -> Result<()> {
    let address = &place.address;
    let a = place.attributes(false)?;
    if args.directory || a.file_type() != FileType::Directory {
        let mut one = List::default();
        one.add(a, &address.as_written(), || place.read_link())?;
        return one.print(args, &mut out);
    }
    let top = place.open_dir()?;
    title(&address.path, out)?;
    let mut done = list(args, &top, &address.path)?.print(args, &mut out);
    if args.recursive {
        let walked = walk_past_errors(&top, &address.path, Order::Before, |met| {
            let hidden = met.name.starts_with(b".") && !args.all;
            if met.kind == FileType::Directory && !hidden {
                title(met.path, out)?;
                let listed = list(args, &met.parent.open_dir(os(met.name))?, met.path)?;
                done = listed
                    .print(args, &mut out)
                    .and(std::mem::replace(&mut done, Ok(())));
            }
            Ok(!hidden)
        });
        done = walked.and(done);
    }
    done
}

fn collect(args: &Args, place: &ImagePlace, found: &mut Vec<Listed>) -> Result<()> {
    let path = &place.address.path;
    let a = place.attributes(false)?;
    if args.directory || a.file_type() != FileType::Directory {
        found.push(Listed {
            path: path[..].into(),
            facts: facts(&a, || place.read_link())?,
        });
        return Ok(());
    }
    walk_past_errors(&place.open_dir()?, path, Order::Before, |met| {
        if met.name.starts_with(b".") && !args.all {
            return Ok(false);
        }
        let a = met.parent.symlink_metadata(os(met.name))?;
        found.push(Listed {
            path: met.path.into(),
            facts: facts(&a, || met.parent.read_link(os(met.name)).map(bytes))?,
        });
        Ok(args.recursive)
    })
}

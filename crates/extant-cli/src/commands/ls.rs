//! `extant ls`.

use crate::address::{Rooted, join};
use crate::images::Images;
use crate::output;
use crate::show::{self, show};
use crate::times;
use crate::walk::{Order, sorted, walk};
use anyhow::{Context, Result};
use ext4_format::inode::{dev_major, dev_minor};
use extant::{Attributes, Dir, FileType, Volume};
use serde::Serialize;
use std::io::Write;

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
    /// With mode, links, owner, size and time
    #[arg(short)]
    long: bool,
    /// Names that begin with a dot too
    #[arg(short, visible_short_alias = 'A')]
    all: bool,
    /// With -l, sizes in powers of 1024: 1.5G
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Directories below too
    #[arg(short = 'R')]
    recursive: bool,
    /// With inode numbers
    #[arg(short)]
    inode: bool,
    /// The directory itself, not what is in it
    #[arg(short)]
    directory: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// One name, as JSON shows it.
#[derive(Serialize)]
pub struct Listed {
    /// Path in the image; bytes that are not UTF-8 are escaped.
    pub path: String,
    #[serde(flatten)]
    pub facts: Facts,
}

/// What an inode says.
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
    pub atime: String,
    pub mtime: String,
    pub ctime: String,
    pub crtime: String,
}

/// The facts about a name.
pub fn facts(dir: &Dir, name: &[u8], a: &Attributes) -> Result<Facts> {
    let target = if a.file_type == FileType::Symlink {
        Some(show(&dir.read_link(name)?))
    } else {
        None
    };
    let device = matches!(a.file_type, FileType::CharDevice | FileType::BlockDevice);
    Ok(Facts {
        ino: a.ino,
        kind: show::type_name(a.file_type),
        mode: format!("{:04o}", a.mode & 0o7777),
        links: a.links,
        uid: a.uid,
        gid: a.gid,
        size: a.size,
        allocated: a.sectors.saturating_mul(512),
        device: device.then(|| (dev_major(a.rdev), dev_minor(a.rdev))),
        target,
        atime: times::utc(a.atime),
        mtime: times::utc(a.mtime),
        ctime: times::utc(a.ctime),
        crtime: times::utc(a.crtime),
    })
}

/// Names to be shown together.
struct List {
    rows: Vec<(Vec<u8>, Attributes, Option<Vec<u8>>)>,
}

impl List {
    fn add(&mut self, dir: &Dir, path: &[u8], shown: &[u8]) -> Result<()> {
        let a = dir.lstat(path)?;
        let target = if a.file_type == FileType::Symlink {
            Some(dir.read_link(path)?)
        } else {
            None
        };
        self.rows.push((shown.to_vec(), a, target));
        Ok(())
    }

    fn print(&self, args: &Args, out: &mut impl Write) -> Result<()> {
        let width = |f: &dyn Fn(&Attributes) -> String| {
            self.rows.iter().map(|r| f(&r.1).len()).max().unwrap_or(0)
        };
        let (ino, links) = (
            width(&|a| a.ino.to_string()),
            width(&|a| a.links.to_string()),
        );
        let (uid, gid, sizes) = (
            width(&|a| a.uid.to_string()),
            width(&|a| a.gid.to_string()),
            width(&|a| size(a, args.human)),
        );
        for (name, a, target) in &self.rows {
            if args.inode {
                write!(out, "{:>ino$} ", a.ino)?;
            }
            if args.long {
                let mode = show::mode(a.file_type, a.mode);
                let size = size(a, args.human);
                let time = times::local(a.mtime);
                write!(
                    out,
                    "{mode} {:>links$} {:>uid$} {:>gid$} {size:>sizes$} {time} ",
                    a.links, a.uid, a.gid
                )?;
            }
            write!(out, "{}", show(name))?;
            match target {
                Some(target) if args.long => writeln!(out, " -> {}", show(target))?,
                _ => writeln!(out)?,
            }
        }
        Ok(())
    }
}

fn size(a: &Attributes, in_short: bool) -> String {
    match a.file_type {
        FileType::CharDevice | FileType::BlockDevice => {
            format!("{}, {}", dev_major(a.rdev), dev_minor(a.rdev))
        }
        _ if in_short => show::human(a.size),
        _ => a.size.to_string(),
    }
}

fn list(args: &Args, dir: &Dir, path: &[u8]) -> Result<List> {
    let mut list = List { rows: Vec::new() };
    for entry in sorted(dir, path)? {
        if args.all || !entry.name.starts_with(b".") {
            list.add(dir, &join(path, &entry.name), &entry.name)?;
        }
    }
    Ok(list)
}

pub fn run(args: &Args) -> Result<()> {
    let mut out = output::stdout();
    let mut found = Vec::new();
    let many = args.paths.len() > 1 || args.recursive;
    let mut first = true;
    let done = Images::with(false, |images| {
        output::each(&args.paths, |Rooted(address)| {
            let volume = images.get(&address.image)?;
            let mut show = || -> Result<()> {
                if args.json {
                    return collect(args, &volume, &address.path, &mut found);
                }
                let a = volume.lstat(&address.path)?;
                if args.directory || a.file_type != FileType::Directory {
                    let mut one = List { rows: Vec::new() };
                    one.add(&volume, &address.path, address.to_string().as_bytes())?;
                    return one.print(args, &mut out);
                }
                let mut directory = |path: &[u8], out: &mut dyn Write| -> Result<()> {
                    if many {
                        let gap = if std::mem::take(&mut first) { "" } else { "\n" };
                        writeln!(out, "{gap}{}:", address.at(path))?;
                    }
                    let mut out = out;
                    list(args, &volume, path)?.print(args, &mut out)
                };
                directory(&address.path, &mut out)?;
                if args.recursive {
                    let top = volume.open_dir(&address.path)?;
                    walk(&top, &address.path, Order::Before, |met| {
                        let hidden = met.name.starts_with(b".") && !args.all;
                        if met.kind == FileType::Directory && !hidden {
                            directory(met.path, &mut out)?;
                        }
                        Ok(!hidden)
                    })?;
                }
                Ok(())
            };
            show().with_context(|| address.to_string())
        })
    });
    output::end(done, out, args.json, &found)
}

fn collect(args: &Args, volume: &Volume, path: &[u8], found: &mut Vec<Listed>) -> Result<()> {
    let a = volume.lstat(path)?;
    let mut add = |dir: &Dir, name: &[u8], path: &[u8]| -> Result<()> {
        let a = dir.lstat(name)?;
        found.push(Listed {
            path: show(path),
            facts: facts(dir, name, &a)?,
        });
        Ok(())
    };
    if args.directory || a.file_type != FileType::Directory {
        return add(volume, path, path);
    }
    walk(&volume.open_dir(path)?, path, Order::Before, |met| {
        if met.name.starts_with(b".") && !args.all {
            return Ok(false);
        }
        add(met.parent, met.name, met.path)?;
        Ok(args.recursive)
    })
}

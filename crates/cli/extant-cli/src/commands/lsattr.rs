//! `extant lsattr`.

use anyhow::Result;
use extant::{FileType, Metadata};
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::walk::{Order, walk};
use extant_cli_core::address::{Address, os};
use extant_cli_core::format::attr_flags::columns;
use extant_cli_core::format::show::{JsonPath, name};
use extant_cli_core::image::images::Images;
use extant_terminal::output;
use serde::Serialize;
use std::io::Write;

/// List the flags of files in an image
///
/// The columns are those of lsattr; extant chattr describes the letters. The project comes before the generation, and
/// both come before the flags.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant lsattr disk.img:/etc\n  extant lsattr -d disk.img:/etc\n  extant lsattr -pR disk.img:/srv"
)]
pub struct Args {
    /// Files, or directories to list
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// List directories themselves
    #[arg(short, long)]
    directory: bool,
    /// List directories recursively
    #[arg(short = 'R', long, conflicts_with = "directory")]
    recursive: bool,
    /// Include names that begin with a dot
    #[arg(short, long)]
    all: bool,
    /// Show the project number
    #[arg(short, long)]
    project: bool,
    /// Show the generation of the inode number
    #[arg(short = 'v', long)]
    generation: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    path: JsonPath,
    flags: u32,
    letters: String,
    project: u32,
    generation: u32,
}

pub fn run(args: &Args) -> Result<()> {
    let mut out = output::stdout();
    let mut found = Vec::new();
    let mut add = |path: &[u8], a: &Metadata| -> Result<()> {
        let listed = Listed {
            path: path.into(),
            flags: a.flags(),
            letters: columns(a.flags()),
            project: a.project(),
            generation: a.generation(),
        };
        if args.json {
            found.push(listed);
            return Ok(());
        }
        if args.project {
            write!(out, "{:5} ", listed.project)?;
        }
        if args.generation {
            write!(out, "{:<10} ", listed.generation)?;
        }
        Ok(writeln!(out, "{} {}", listed.letters, name(path))?)
    };
    let done = Images::each(false, &args.paths, NoMatch::Fails, |place| {
        let a = place.attributes(true)?;
        if a.file_type() != FileType::Directory || args.directory {
            return add(&place.address.path, &a);
        }
        walk(
            &place.open_dir()?,
            &place.address.path,
            Order::Before,
            |met| {
                if met.name.starts_with(b".") && !args.all {
                    return Ok(false);
                }
                if matches!(met.kind, FileType::Regular | FileType::Directory) {
                    add(met.path, &met.parent.metadata(os(met.name))?)?;
                }
                Ok(args.recursive)
            },
        )
    });
    output::end(done, out, args.json, &found)
}

//! `extant lsattr`.

use crate::address::{Address, os};
use crate::attr_flags::columns;
use crate::images::Images;
use crate::output;
use crate::patterns::NoMatch;
use crate::show::show;
use crate::walk::{Order, walk};
use anyhow::Result;
use extant::FileType;
use serde::Serialize;
use std::io::Write;

/// List the flags of files in an image
///
/// Immutable, append-only and others: the columns are those of lsattr; extant chattr says what the letters mean.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant lsattr disk.img:/etc\n  extant lsattr -d disk.img:/etc"
)]
pub struct Args {
    /// Files, and directories for what is in them
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Address>,
    /// Directories themselves
    #[arg(short, long)]
    directory: bool,
    /// What is below directories too
    #[arg(short = 'R', long, conflicts_with = "directory")]
    recursive: bool,
    /// Names that begin with a dot too
    #[arg(short, long)]
    all: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed {
    path: String,
    flags: u32,
    letters: String,
}

pub fn run(args: &Args) -> Result<()> {
    let mut out = output::stdout();
    let mut found = Vec::new();
    let mut add = |path: &[u8], set: u32| -> Result<()> {
        let (path, letters) = (show(path), columns(set));
        if args.json {
            found.push(Listed {
                path,
                flags: set,
                letters,
            });
            return Ok(());
        }
        Ok(writeln!(out, "{letters} {path}")?)
    };
    let done = Images::each(false, &args.paths, NoMatch::Fails, |place| {
        let a = place.attributes(true)?;
        if a.file_type() != FileType::Directory || args.directory {
            return add(&place.address.path, a.flags());
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
                    add(met.path, met.parent.metadata(os(met.name))?.flags())?;
                }
                Ok(args.recursive)
            },
        )
    });
    output::end(done, out, args.json, &found)
}

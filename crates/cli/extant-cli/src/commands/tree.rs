//! `extant tree`.

use super::ls::{Listed, facts};
use anyhow::Result;
use extant::{Dir, FileType};
use extant_cli_core::address::image_place::ImagePlace;
use extant_cli_core::address::patterns::NoMatch;
use extant_cli_core::address::walk::{Order, walk_past_errors};
use extant_cli_core::address::{Address, Rooted};
use extant_cli_core::address::{bytes, os};
use extant_cli_core::format::show::{count, name};
use extant_cli_core::image::images::Images;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::io::Write;

/// Show directory trees of images
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant tree -L 2 disk.img:/etc")]
pub struct Args {
    /// Directories to show; a bare IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    paths: Vec<Rooted>,
    /// Descend at most this many levels
    #[arg(short = 'L', value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(1..))]
    levels: Option<u32>,
    /// Include names that begin with a dot
    #[arg(short)]
    all: bool,
    /// List only directories
    #[arg(short)]
    directories: bool,
    /// Print as JSON, in a flat list
    #[arg(long)]
    json: bool,
}

/// The result of a listing.
#[derive(Default)]
struct TreeOptions {
    directories: u64,
    files: u64,
    /// The entries for JSON.
    list: Vec<Listed>,
}

pub fn run(args: &Args) -> Result<()> {
    let mut out = output::stdout();
    let mut shown = TreeOptions::default();
    let addresses: Vec<Address> = args.paths.iter().map(|Rooted(a)| a.clone()).collect();
    let done = Images::each(false, &addresses, NoMatch::Fails, |place| {
        let top = place.open_dir()?;
        if args.json {
            collect(args, place, &top, &mut shown.list)
        } else {
            tree(args, place, &top, &mut shown, &mut out)
        }
    });
    if !args.json && (done.is_ok() || shown.directories + shown.files > 0) {
        writeln!(
            out,
            "\n{}, {}",
            count(shown.directories, "directory", "directories"),
            count(shown.files, "file", "files")
        )?;
    }
    output::end(done, out, args.json, &shown.list)
}

impl Args {
    fn wants(&self, name: &[u8], kind: FileType) -> bool {
        (self.all || !name.starts_with(b".")) && (!self.directories || kind == FileType::Directory)
    }

    fn deepest(&self) -> usize {
        self.levels.map_or(usize::MAX, |n| n as usize)
    }
}

fn collect(args: &Args, place: &ImagePlace, top: &Dir, list: &mut Vec<Listed>) -> Result<()> {
    walk_past_errors(top, &place.address.path, Order::Before, |met| {
        if !args.wants(met.name, met.kind) {
            return Ok(false);
        }
        let a = met.parent.symlink_metadata(os(met.name))?;
        list.push(Listed {
            path: met.path.into(),
            facts: facts(&a, || met.parent.read_link(os(met.name)).map(bytes))?,
        });
        Ok(met.depth < args.deepest())
    })
}

fn tree(
    args: &Args,
    place: &ImagePlace,
    top: &Dir,
    shown: &mut TreeOptions,
    out: &mut impl Write,
) -> Result<()> {
    let mut rows: Vec<(usize, String)> = Vec::new();
    let mut directories = 0;
    let progress = Progress::count("look");
    let walked = walk_past_errors(top, &place.address.path, Order::Before, |met| {
        if !args.wants(met.name, met.kind) {
            return Ok(false);
        }
        let mut line = name(met.name);
        if met.kind == FileType::Symlink {
            line = format!(
                "{line} -> {}",
                name(&bytes(met.parent.read_link(os(met.name))?))
            );
        }
        directories += u64::from(met.kind == FileType::Directory);
        rows.push((met.depth, line));
        progress.add(1);
        Ok(met.depth < args.deepest())
    });
    progress.done();
    shown.directories += directories;
    shown.files += rows.len() as u64 - directories;
    writeln!(out, "{}", place.address)?;
    draw(out, &rows)?;
    walked
}

fn draw(out: &mut impl Write, rows: &[(usize, String)]) -> Result<()> {
    // Computed from the end: whether the same directory has a later name, by depth.
    let mut later: Vec<bool> = Vec::new();
    let mut last = vec![false; rows.len()];
    for (is_last, (depth, _)) in last.iter_mut().zip(rows).rev() {
        later.resize(depth + 1, false);
        *is_last = !std::mem::replace(&mut later[*depth], true);
    }
    // The pieces to the left of a name, one per parent directory.
    let mut rails: Vec<&str> = Vec::new();
    for ((depth, line), last) in rows.iter().zip(last) {
        rails.truncate(depth.saturating_sub(1));
        let (branch, rail) = if last {
            ("└── ", "    ")
        } else {
            ("├── ", "│   ")
        };
        writeln!(out, "{}{branch}{line}", rails.concat())?;
        rails.push(rail);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches() {
        let rows =
            [(1, "a"), (2, "b"), (3, "c"), (2, "d"), (1, "e")].map(|(d, n)| (d, n.to_string()));
        let mut out = Vec::new();
        draw(&mut out, &rows).unwrap();
        let want = "├── a\n│   ├── b\n│   │   └── c\n│   └── d\n└── e\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }
}

//! `extant tree`.

use super::ls::{Listed, facts};
use crate::address::Rooted;
use crate::images;
use crate::output;
use crate::show::{count, show};
use crate::walk::{Order, walk};
use anyhow::{Context, Result};
use extant::FileType;
use std::io::Write;

/// Show a directory tree of an image
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant tree -L 2 disk.img:/etc")]
pub struct Args {
    /// Directory; a bare IMAGE is its root
    #[arg(value_name = "IMAGE:/PATH")]
    path: Rooted,
    /// Go no deeper than this
    #[arg(short = 'L', value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(1..))]
    levels: Option<u32>,
    /// Names that begin with a dot too
    #[arg(short)]
    all: bool,
    /// Directories only
    #[arg(short)]
    directories: bool,
    /// As JSON, a flat list
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let Rooted(address) = &args.path;
    let volume = images::read(&address.image)?;
    let top = volume
        .open_dir(&address.path)
        .with_context(|| address.to_string())?;
    let deepest = args.levels.map_or(usize::MAX, |n| n as usize);
    let wanted = |name: &[u8], kind| {
        (args.all || !name.starts_with(b".")) && (!args.directories || kind == FileType::Directory)
    };
    if args.json {
        let mut found = Vec::new();
        walk(&top, &address.path, Order::Before, |met| {
            if !wanted(met.name, met.kind) {
                return Ok(false);
            }
            let a = met.parent.lstat(met.name)?;
            found.push(Listed {
                path: show(met.path),
                facts: facts(met.parent, met.name, &a)?,
            });
            Ok(met.depth < deepest)
        })?;
        return output::json(&found);
    }
    let mut rows: Vec<(usize, String)> = Vec::new();
    let mut directories = 0;
    walk(&top, &address.path, Order::Before, |met| {
        if !wanted(met.name, met.kind) {
            return Ok(false);
        }
        let mut line = show(met.name);
        if met.kind == FileType::Symlink {
            line = format!("{line} -> {}", show(&met.parent.read_link(met.name)?));
        }
        directories += usize::from(met.kind == FileType::Directory);
        rows.push((met.depth, line));
        Ok(met.depth < deepest)
    })?;
    let mut out = output::stdout();
    writeln!(out, "{address}")?;
    draw(&mut out, &rows)?;
    writeln!(
        out,
        "\n{}, {}",
        count(directories as u64, "directory", "directories"),
        count((rows.len() - directories) as u64, "file", "files")
    )?;
    Ok(out.flush()?)
}

fn draw(out: &mut impl Write, rows: &[(usize, String)]) -> Result<()> {
    // From the end: whether a name of the same directory comes later, by depth.
    let mut later: Vec<bool> = Vec::new();
    let mut last = vec![false; rows.len()];
    for (is_last, (depth, _)) in last.iter_mut().zip(rows).rev() {
        later.resize(depth + 1, false);
        *is_last = !std::mem::replace(&mut later[*depth], true);
    }
    // What stands left of a name: one piece for each directory on the way.
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

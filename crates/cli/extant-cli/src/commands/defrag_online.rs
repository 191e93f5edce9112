//! `extant defrag` of files on a mount.

use anyhow::{Result, bail};
use extant_cli_core::format::show::{HostPath, ShowPath, count};
use extant_cli_core::mounts::online_files::{Met, MountedPath};
use extant_fuse::control::Fragments;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use serde::Serialize;
use std::io::Write;

/// Number of files listed, those with the most extents first.
const LISTED: usize = 10;

/// Sums over files.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counted {
    files: u64,
    blocks: u64,
    extents: u64,
    least: u64,
    fragmented: u64,
}

impl Counted {
    fn add(&mut self, found: &Fragments) {
        self.files += 1;
        self.blocks += found.blocks;
        self.extents += found.extents;
        self.least += found.least;
        self.fragmented += u64::from(found.extents > found.least);
    }
}

#[derive(Serialize)]
struct Defragmented {
    path: HostPath,
    mount: HostPath,
    before: Counted,
    after: Option<Counted>,
    moved_files: u64,
    moved_blocks: u64,
    failed: u64,
}

pub fn run(mut place: MountedPath, dry_run: bool, json: bool) -> Result<()> {
    let mut all = place.all()?;
    all.retain(|met| met.meta.is_file());
    let (mut before, mut after) = (Counted::default(), Counted::default());
    let (mut moved_files, mut moved_blocks, mut failed) = (0, 0, 0);
    let mut worst: Vec<(Fragments, &Met)> = Vec::new();
    let progress = Progress::wait(&format!("{}: moving files", place.path.shown()));
    for file in &all {
        // The file may have been removed, or may have no extents.
        let Ok(found) = place.fragments(file) else {
            failed += 1;
            continue;
        };
        before.add(&found);
        if found.extents > found.least {
            worst.push((found, file));
        }
        if !dry_run {
            let moved = if found.extents > found.least {
                place.defragment(file, &found)
            } else {
                Ok(0)
            };
            match moved {
                Ok(0) => {}
                Ok(moved) => (moved_files, moved_blocks) = (moved_files + 1, moved_blocks + moved),
                Err(error) => {
                    failed += 1;
                    output::complain(format!("{error:#}"));
                }
            }
            after.add(&place.fragments(file).unwrap_or(found));
        }
    }
    progress.done();
    worst.sort_by_key(|(found, _)| std::cmp::Reverse(found.extents));
    let done = Defragmented {
        path: HostPath::from(place.path.as_path()),
        mount: HostPath::from(place.mount()),
        before,
        after: (!dry_run).then_some(after),
        moved_files,
        moved_blocks,
        failed,
    };
    if json {
        output::json(&done)?
    } else {
        tell(&done, &worst)?
    }
    match failed {
        0 => Ok(()),
        n => bail!("{} left as before", count(n, "file was", "files were")),
    }
}

fn tell(done: &Defragmented, worst: &[(Fragments, &Met)]) -> Result<()> {
    let mut out = output::stdout();
    let path = &done.path;
    match &done.after {
        None => {
            writeln!(out, "{path}: {}", line(&done.before))?;
            for (found, file) in worst.iter().take(LISTED) {
                let (blocks, extents) = (
                    count(found.blocks, "block", "blocks"),
                    count(found.extents, "extent", "extents"),
                );
                let (name, least) = (file.path.shown(), found.least);
                writeln!(out, "  {name}: {blocks} in {extents}, at least {least}")?;
            }
        }
        Some(after) => {
            let files = count(done.moved_files, "file", "files");
            writeln!(out, "{path}: {files} moved")?;
            writeln!(
                out,
                "before: {}\nafter:  {}",
                line(&done.before),
                line(after)
            )?;
        }
    }
    Ok(out.flush()?)
}

fn line(found: &Counted) -> String {
    let (files, extents) = (
        count(found.files, "file", "files"),
        count(found.extents, "extent", "extents"),
    );
    let (least, fragmented) = (found.least, found.fragmented);
    format!("{files} in {extents}, at least {least}; {fragmented} of them fragmented")
}

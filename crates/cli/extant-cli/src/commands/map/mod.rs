//! `extant map`.

mod palette;
mod png;
mod svg;
mod terminal;

use crate::survey::{Counts, Fragmentation, FreeRuns, Layout, Survey, Use};
use anyhow::{Context, Result, bail};
use extant::Volume;
use extant_cli_core::address::Rooted;
use extant_cli_core::format::show::{HostPath, ShowPath, count};
use extant_cli_core::image::images;
use extant_terminal::progress::Progress;
use extant_terminal::{interrupt, output};
use palette::{Palette, USES};
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::path::PathBuf;

/// Show the use of an image's blocks as a picture
///
/// Each cell stands for the same number of blocks, and shows the most frequent use of its used blocks. A cell is
/// lighter, or its letter small, if less than half of its blocks are in use. With --by file the largest files have
/// their own colours. The sums, the fragmentation of files, and the lengths of the free runs follow. The image is
/// opened read-only: its journal is taken into account, but nothing is written.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant map disk.img\n  extant map --svg map.svg disk.img\n  extant map --by file --png map.png disk.img\n  extant map --json disk.img"
)]
pub struct Args {
    /// The image
    image: Rooted,
    /// Write the picture to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write the picture to this file, as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Colour by the use of blocks, or by the largest files
    #[arg(long, value_enum, default_value_t = By::Use)]
    by: By,
    /// Cells per row [default: the width of the terminal]
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=512))]
    width: Option<u32>,
    /// Print as JSON, with the counts of every group
    #[arg(long)]
    json: bool,
}

/// The meaning of the colours in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    /// Uses of blocks
    Use,
    /// The eight files with the most blocks, and all others
    File,
}

/// The data shown of an image.
struct Shown<'a> {
    image: HostPath,
    volume: &'a Volume,
    survey: Survey,
    palette: Palette,
    /// Path, inode and blocks of each of the largest files, if they are shown.
    largest: Option<Vec<LargeFile>>,
}

/// Entry of one of the largest files.
#[derive(serde::Serialize)]
struct LargeFile {
    path: String,
    inode: u32,
    blocks: u64,
}

/// Returns the colours by file, and the files.
fn by_file(volume: &Volume, survey: &Survey) -> (Palette, Vec<LargeFile>) {
    let inodes = survey.largest();
    let owned = survey.owned(volume, &inodes);
    let names = palette::names(volume, &inodes);
    let palette = Palette::by_file(survey, &owned, &names);
    let files = names.into_iter().zip(inodes).zip(owned.totals());
    let files = files.map(|((path, inode), blocks)| LargeFile {
        path,
        inode,
        blocks,
    });
    (palette, files.collect())
}

pub fn run(args: &Args) -> Result<()> {
    let image = &args.image.0.image;
    let volume = images::read(image)?;
    let geometry = volume.geometry();
    let drawn = args.svg.is_some() || args.png.is_some();
    let layout = if drawn {
        Layout::picture(geometry, args.width.unwrap_or(svg::COLUMNS), svg::ROWS)
    } else {
        let columns = args.width.unwrap_or_else(terminal::columns);
        Layout::picture(geometry, columns, terminal::ROWS)
    };
    let progress = Progress::up_to("groups", geometry.groups.into());
    let survey = Survey::of(&volume, layout, || {
        progress.add(1);
        interrupt::check()
    });
    progress.done();
    let survey = survey?;
    let (palette, largest) = match args.by {
        By::Use => (Palette::by_use(&survey), None),
        By::File => {
            let (palette, files) = by_file(&volume, &survey);
            (palette, Some(files))
        }
    };
    let shown = Shown {
        image: HostPath::from(&**image),
        volume: &volume,
        survey,
        palette,
        largest,
    };
    if let Some(file) = &args.svg {
        std::fs::write(file, svg::draw(&shown)).with_context(|| file.shown())?;
    }
    if let Some(file) = &args.png {
        let drawing = png::draw(&shown)?;
        std::fs::write(file, drawing).with_context(|| file.shown())?;
    }
    if args.json {
        output::json(&shown)?;
    } else if !drawn {
        terminal::print(&shown)?;
    }
    if let Some(first) = &shown.survey.first_damage {
        let n = shown.survey.damaged;
        let parts = count(n, "part", "parts");
        bail!(
            "{}: {parts} of it cannot be read, the first: {first}",
            shown.image
        );
    }
    Ok(())
}

impl Shown<'_> {
    /// Returns the image's name and size in one line.
    fn title(&self) -> String {
        let geometry = self.volume.geometry();
        let name = self.image.path().file_name();
        let name = name.map_or_else(|| self.image.to_string(), ShowPath::shown);
        let groups = count(geometry.groups.into(), "group", "groups");
        format!(
            "{}: {} blocks of {} bytes in {groups}",
            name, geometry.blocks_count, geometry.block_size,
        )
    }

    /// Formats the fragmentation of files and free space.
    fn fragmentation(&self) -> String {
        let Fragmentation {
            files,
            fragmented,
            extents,
            worst_inode,
            worst_extents,
        } = self.survey.fragmentation;
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let mut text = format!(
            "{files} files with blocks, {fragmented} ({:.1}%) of them in more than one piece; {:.2} pieces for each",
            share(fragmented, files),
            extents as f64 / files.max(1) as f64
        );
        if worst_extents > 1 {
            text += &format!(", {worst_extents} for inode {worst_inode}");
        }
        text
    }
}

/// A group as JSON.
struct Group<'a> {
    number: usize,
    counts: &'a Counts,
}

fn by_use<M: SerializeMap>(map: &mut M, of: impl Fn(Use) -> u64) -> Result<(), M::Error> {
    USES.iter()
        .try_for_each(|l| map.serialize_entry(l.key, &of(l.what)))
}

impl Serialize for Group<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("group", &self.number)?;
        by_use(&mut map, |u| self.counts.get(u))?;
        map.end()
    }
}

/// Groups, serialized one by one, because there may be a million.
struct Groups<'a>(&'a Survey);

impl Serialize for Groups<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let groups = self.0.groups.iter().enumerate();
        serializer.collect_seq(groups.map(|(number, counts)| Group { number, counts }))
    }
}

struct Totals<'a>(&'a Survey);

impl Serialize for Totals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        by_use(&mut map, |u| self.0.groups.total(u))?;
        map.end()
    }
}

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let geometry = self.volume.geometry();
        let runs: &[FreeRuns] = self.survey.free_runs();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("image", &self.image)?;
        map.serialize_entry("block_size", &geometry.block_size)?;
        map.serialize_entry("blocks", &geometry.blocks_count)?;
        map.serialize_entry("blocks_per_group", &geometry.blocks_per_group)?;
        map.serialize_entry("total", &Totals(&self.survey))?;
        if let Some(files) = &self.largest {
            map.serialize_entry("largest_files", files)?;
        }
        map.serialize_entry("fragmentation", &self.survey.fragmentation)?;
        map.serialize_entry("free_runs", runs)?;
        map.serialize_entry("damaged", &self.survey.damaged)?;
        map.serialize_entry("first_damage", &self.survey.first_damage)?;
        map.serialize_entry("groups", &Groups(&self.survey))?;
        map.end()
    }
}

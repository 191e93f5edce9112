//! `extant diff`.

mod blocks;
mod structures;
mod tree;

use anyhow::Result;
use extant_cli_core::address::Rooted;
use extant_cli_core::format::show::{JsonPath, count};
use extant_terminal::output;
use serde::Serialize;
use std::io::Write;

/// Exit code: the images differ.
const DIFFERENT: u8 = 1;
/// Exit code: the images could not be compared.
const FAILED: u8 = 2;

/// Compare two images, or an image and a directory
///
/// By default the trees are compared: names in only one tree, and for names in both the type, permissions, owner,
/// size, content, target, device number and extended attributes. A line begins with - for a name only in the first
/// tree, + for a name only in the second, and ~ for a difference. A path restricts the comparison to the tree below
/// it.
///
/// The exit code is that of diff: 0 for no difference, 1 for differences, 2 if something went wrong.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant diff old.img new.img\n  extant diff --times old.img:/etc new.img:/etc\n  extant diff --blocks old.img new.img\n  extant diff root.img rootfs/"
)]
pub struct Args {
    /// Image, directory or file in it, or directory of the host
    a: Rooted,
    /// Image or directory to compare with
    b: Rooted,
    /// Compare modification times, too
    #[arg(long)]
    times: bool,
    /// Compare superblocks and group descriptors field by field instead of trees
    #[arg(long, conflicts_with_all = ["blocks", "times"])]
    metadata: bool,
    /// Compare blocks instead of trees, and show the owners of differing blocks in each image
    #[arg(long, conflicts_with = "times")]
    blocks: bool,
    /// Print nothing; only the exit code reports differences
    #[arg(short, long)]
    quiet: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A difference.
#[derive(Serialize)]
struct Difference {
    /// The path, structure or blocks that differ.
    place: String,
    /// The path, if the place is one.
    #[serde(flatten)]
    path: Option<JsonPath>,
    change: Change,
    /// For a place in both: the fields that differ.
    fields: Vec<Field>,
}

#[derive(Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Change {
    Removed,
    Added,
    Changed,
}

#[derive(Serialize)]
struct Field {
    name: String,
    a: String,
    b: String,
}

impl Difference {
    /// Returns the difference for a place in only one of the two.
    fn only(place: String, change: Change) -> Self {
        let fields = Vec::new();
        Self {
            place,
            path: None,
            change,
            fields,
        }
    }

    /// Returns the difference for a place in both, if any field differs.
    fn changed(place: String, fields: Vec<Field>) -> Option<Self> {
        let change = Change::Changed;
        (!fields.is_empty()).then_some(Self {
            place,
            path: None,
            change,
            fields,
        })
    }

    /// Returns the difference with the path of its place.
    fn of(mut self, path: &[u8]) -> Self {
        self.path = Some(path.into());
        self
    }
}

/// Adds a field that differs.
fn note<T: PartialEq>(
    fields: &mut Vec<Field>,
    name: &str,
    a: T,
    b: T,
    text: impl Fn(&T) -> String,
) {
    if a != b {
        let name = name.to_owned();
        let (a, b) = (text(&a), text(&b));
        fields.push(Field { name, a, b });
    }
}

/// Collects differences: prints them at once, or keeps them for JSON.
struct Sink {
    shown: bool,
    json: bool,
    count: u64,
    kept: Vec<Difference>,
    out: std::io::BufWriter<output::Stdout>,
}

impl Sink {
    fn add(&mut self, difference: Difference) -> Result<()> {
        self.count += 1;
        if self.json {
            self.kept.push(difference);
            return Ok(());
        }
        if !self.shown {
            return Ok(());
        }
        let sign = match difference.change {
            Change::Removed => '-',
            Change::Added => '+',
            Change::Changed => '~',
        };
        let fields = difference.fields.iter().map(|field| {
            if field.a.is_empty() {
                format!("{} {}", field.name, field.b)
            } else {
                format!("{} {} -> {}", field.name, field.a, field.b)
            }
        });
        let fields = fields.collect::<Vec<_>>().join(", ");
        let colon = if fields.is_empty() { "" } else { ": " };
        writeln!(self.out, "{sign} {}{colon}{fields}", difference.place)?;
        Ok(())
    }
}

pub fn run(args: &Args) -> Result<()> {
    let mut sink = Sink {
        shown: !args.quiet,
        json: args.json,
        count: 0,
        kept: Vec::new(),
        out: output::stdout(),
    };
    let compared = if args.metadata {
        structures::compare(&args.a.0.image, &args.b.0.image, &mut sink)
    } else if args.blocks {
        blocks::compare(&args.a.0.image, &args.b.0.image, &mut sink)
    } else {
        tree::compare(args, &mut sink)
    };
    compared.map_err(|error| output::report_as(error, FAILED))?;
    sink.out.flush()?;
    drop(sink.out);
    if args.json {
        output::json(&sink.kept)?;
    }
    if sink.count == 0 {
        return Ok(());
    }
    if !args.json && !args.quiet {
        output::summary(&count(sink.count, "difference", "differences"))?;
    }
    Err(output::exit_with(DIFFERENT))
}

//! `extant-bench before`.

use crate::before::{PAIRS, Pair};
use crate::command::repeat::ShapeArgs;
use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use extant_terminal::progress::Progress;

/// Compare the algorithms that this engine's mechanisms replace with their replacements
///
/// Each is built from the same crates, and run in the same rounds. The other benchmarks also accept a volume behind
/// one lock as a target: before:one-lock.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant-bench before --tasks 1,2,48\n  \
    extant-bench before inode-list-walks --tasks 1000 --files 4000000 --seconds 60\n  \
    extant-bench unlink2 --against before:one-lock")]
pub struct BeforeArgs {
    /// Pairs to run [default: all, with 1000 tasks and 4,000,000 inodes for the inode lists]
    #[arg(value_name = "NAME", value_parser = pairs())]
    names: Vec<Pair>,
    #[command(flatten)]
    shape: ShapeArgs,
}

fn pairs() -> impl TypedValueParser<Value = Pair> {
    let values = PAIRS.map(|pair| PossibleValue::new(pair.name).help(pair.about));
    // The parser accepts only names of pairs.
    PossibleValuesParser::new(values).map(|name| Pair::named(&name).unwrap_or(PAIRS[0]))
}

pub fn run(args: &BeforeArgs) -> Result<()> {
    let (pairs, all) = match args.names.as_slice() {
        [] => (&PAIRS[..], true),
        some => (some, false),
    };
    let progress = Progress::count("rounds");
    let mut reports = Ok(Vec::new());
    for pair in pairs {
        let shape = match pair.size {
            Some((tasks, ops)) if all => args.shape.with_size(tasks, ops),
            _ => args.shape.clone(),
        };
        let [after, before] = pair.algorithms();
        reports = reports.and_then(|mut all: Vec<_>| {
            all.extend(shape.run(pair.name, &[&after, &before], &progress)?);
            Ok::<_, anyhow::Error>(all)
        });
    }
    progress.done();
    args.shape.show(&reports?)
}

//! `extant-bench before`.

use crate::progress::Progress;
use crate::repeat::ShapeArgs;
use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use extant_bench::before::{PAIRS, Pair};

/// The algorithms that this engine's mechanisms replace, beside those that replace them
///
/// Each is built from the same crates, and run in the same rounds. A volume behind one lock is a target of its
/// own of the other benchmarks: before:one-lock.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant-bench before --tasks 1,2,48\n  \
    extant-bench before inode-list-walks --tasks 1000 --files 4000000 --seconds 60\n  \
    extant-bench unlink2 --against before:one-lock")]
pub struct BeforeArgs {
    /// Which of them; without any all, those of inode lists with 1000 tasks and 4,000,000 inodes
    #[arg(value_name = "NAME", value_parser = pairs())]
    names: Vec<Pair>,
    #[command(flatten)]
    shape: ShapeArgs,
}

fn pairs() -> impl TypedValueParser<Value = Pair> {
    let values = PAIRS.map(|pair| PossibleValue::new(pair.name).help(pair.about));
    // Only names of pairs come this far.
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

//! `extant-bench fxmark`.

use crate::command::repeat::{self, RepeatArgs};
use crate::workload::Workload;
use crate::workload::fxmark::{ROWS, Row};
use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// The microbenchmarks of FxMark: names and data, unshared, shared, and shared by all
///
/// The first letter is D for data or M for metadata, the second R or W for reading or writing, the last L, M or H for
/// low, medium or high sharing.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant-bench fxmark --against kernel\n  \
    extant-bench fxmark MWCL MWCM --tasks 1,2,4 --against /mnt/ext4")]
pub struct FxmarkArgs {
    /// Rows to run [default: all]
    #[arg(value_name = "ROW", value_parser = rows(), ignore_case = true)]
    rows: Vec<Row>,
    #[command(flatten)]
    repeat: RepeatArgs,
}

fn rows() -> impl TypedValueParser<Value = Row> {
    let values = ROWS.map(|row| PossibleValue::new(row.name()).help(row.about()));
    // The parser accepts only names of rows.
    PossibleValuesParser::new(values).map(|name| Row::named(&name).unwrap_or(ROWS[0]))
}

pub fn run(args: &FxmarkArgs) -> Result<()> {
    let rows = match args.rows.as_slice() {
        [] => &ROWS[..],
        some => some,
    };
    let workloads: Vec<&dyn Workload> = rows.iter().map(|row| row as &dyn Workload).collect();
    repeat::run(&args.repeat, &workloads)
}

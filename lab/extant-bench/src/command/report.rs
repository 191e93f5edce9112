//! `extant-bench report`.

use crate::command::peers;
use crate::report::{self, Params};
use anyhow::{Result, ensure};
use extant_terminal::interrupt;
use extant_terminal::output;
use extant_terminal::progress::Progress;
use std::path::{Path, PathBuf};

/// Run all benchmarks and write a report with tables and plots
///
/// Every benchmark is run as a separate command, which the report shows. As root, the kernel's ext4 and fuse2fs take
/// part. The full report takes about half an hour, --quick about eight minutes.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant-bench report --quick --out /tmp/report")]
pub struct ReportArgs {
    /// Directory for REPORT.md and its plots
    #[arg(
        long,
        value_name = "DIR",
        default_value = "docs/bench",
        default_value_if("long", "true", "docs/bench/long")
    )]
    out: PathBuf,
    /// Run few and short rounds
    #[arg(long)]
    quick: bool,
    /// Run the benchmarks of larger trees instead, which take longer
    #[arg(long)]
    long: bool,
    /// Loadfile of dbench [default: that of Debian's package, if installed]
    #[arg(long, value_name = "LOADFILE")]
    dbench: Option<PathBuf>,
    /// Program that runs library peers
    #[arg(long, value_name = "PROGRAM")]
    peers: Option<PathBuf>,
}

/// The loadfile of Debian's package dbench.
const LOADFILE: &str = "/usr/share/dbench/client.txt";

pub fn run(args: &ReportArgs) -> Result<()> {
    for named in args.dbench.iter().chain(&args.peers) {
        ensure!(named.exists(), "{}: not there", named.display());
    }
    let packaged = || Path::new(LOADFILE).exists().then(|| LOADFILE.into());
    let params = Params {
        program: crate::command::setup::this_program()?,
        dir: args.out.clone(),
        quick: args.quick,
        long: args.long,
        mounts: peers::can_mount(),
        uring: peers::has_uring(),
        loadfile: args.dbench.clone().or_else(packaged),
        peers: args.peers.clone(),
    };
    let sections = report::sections(&params).len();
    let progress = Progress::up_to("benchmarks", sections as u64);
    let failed = report::write(&params, |title| {
        interrupt::check()?;
        output::summary(title)?;
        progress.add(1);
        Ok(())
    });
    progress.done();
    let failed = failed?;
    ensure!(
        failed.is_empty(),
        "these failed, as the report says: {}",
        failed.join("; ")
    );
    output::summary(&args.out.join("REPORT.md").display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cli;
    use clap::Parser;

    #[test]
    fn every_benchmark_of_a_report_is_a_command() {
        let forms = [false, true].map(|long| [(long, false, false), (long, true, true)]);
        for (long, quick, mounts) in forms.into_iter().flatten() {
            let params = Params {
                program: "extant-bench".into(),
                dir: "out".into(),
                quick,
                long,
                mounts,
                uring: mounts,
                loadfile: Some(LOADFILE.into()),
                peers: None,
            };
            for section in report::sections(&params) {
                let line = section.args.iter().cloned();
                let line = std::iter::once("extant-bench".into()).chain(line);
                if let Err(error) = Cli::try_parse_from(line) {
                    panic!("{}: {error}", section.shown());
                }
            }
        }
    }
}

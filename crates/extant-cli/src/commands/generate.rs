//! `extant completions`, `extant man`: made from the same definition as the parser.

use crate::args::Cli;
use crate::streams;
use anyhow::{Context, Result, ensure};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;
use std::path::PathBuf;

/// Print completions for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant completions bash > /etc/bash_completion.d/extant")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Write man pages, one for each subcommand
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant man /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Where they go
    dir: PathBuf,
}

pub fn completions(args: &CompletionsArgs) -> Result<()> {
    // Into memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "extant", &mut script);
    let mut out = crate::output::stdout();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

pub fn man(args: &ManArgs) -> Result<()> {
    let context = || args.dir.display().to_string();
    ensure!(
        !streams::is_stream(&args.dir),
        "-: the pages are several files: name a directory"
    );
    ensure!(
        args.dir.is_dir() || !args.dir.exists(),
        "{}: not a directory: the pages are files in one",
        args.dir.display()
    );
    std::fs::create_dir_all(&args.dir).with_context(context)?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), &args.dir)
        .with_context(context)
}

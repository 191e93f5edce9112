//! `extant-bench figures`.

use crate::report::quoted::{self, Figures};
use anyhow::{Context, Result, ensure};
use extant_terminal::output;
use std::path::{Path, PathBuf};

/// Update the figures that documents quote from the report
///
/// A document quotes a figure as `<!--=KEY-->figure<!--/-->`; the key selects the row of report.json.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant-bench figures README.md docs")]
pub struct FiguresArgs {
    /// Documents, and directories with documents
    #[arg(required = true, value_name = "FILE|DIR")]
    documents: Vec<PathBuf>,
    /// Report with the figures; the tables of pages next to it count, too
    #[arg(long, value_name = "FILE", default_value = "docs/bench/report.json")]
    report: PathBuf,
    /// Change nothing, and fail if a figure differs
    #[arg(long)]
    check: bool,
}

/// Finds the Markdown files at and below a path.
fn documents(path: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        found.push(path.into());
        return Ok(());
    }
    let told = || path.display().to_string();
    for entry in path.read_dir().with_context(told)? {
        let path = entry.with_context(told)?.path();
        if path.is_dir() || path.extension().is_some_and(|e| e == "md") {
            documents(&path, found)?;
        }
    }
    Ok(())
}

pub fn run(args: &FiguresArgs) -> Result<()> {
    let told = |path: &Path| path.display().to_string();
    let figures = Figures::read(&args.report)?;
    let mut files = Vec::new();
    for path in &args.documents {
        documents(path, &mut files)?;
    }
    let (mut all, mut changed) = (0, Vec::new());
    for path in files {
        let text = std::fs::read_to_string(&path).with_context(|| told(&path))?;
        let (filled, count) = quoted::fill(&text, &figures).with_context(|| told(&path))?;
        all += count;
        if filled != text {
            if !args.check {
                std::fs::write(&path, filled).with_context(|| told(&path))?;
            }
            changed.push(told(&path));
        }
    }
    ensure!(
        !args.check || changed.is_empty(),
        "figures that are not the report's, in {}",
        changed.join(", ")
    );
    output::summary(&format!("{all} figures; files changed: {}", changed.len()))
}

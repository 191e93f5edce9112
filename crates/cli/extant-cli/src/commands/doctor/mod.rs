//! `extant doctor`: reports which features work on this machine, and the command that fixes the others.

mod fuse;
mod resources;
mod storage;
mod users;

use crate::host::system::{Lack, System};
use anyhow::Result;
use extant_terminal::output;
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Report which features work here, and how to fix the others
///
/// Checks what mounting, `extant shell` and images need of the system. The only change is a file of a few KiB, which
/// is made and removed in the current directory and in TMPDIR. The exit code is 0 if all required features work, and 1
/// otherwise. Features for root and optional features are not required.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant doctor\n  extant doctor --json")]
pub struct Args {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The state of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum FindingState {
    /// The feature works.
    Works,
    /// The feature fails, so that users without root lack it.
    Missing,
    /// The feature fails, but its dependants have a fallback, or need root anyway.
    Optional,
}

/// A finding.
#[derive(Debug, Serialize)]
struct Finding {
    /// The examined feature.
    name: &'static str,
    /// The commands that depend on it.
    needed_for: &'static str,
    state: FindingState,
    /// The result in words.
    found: String,
    /// The command that fixes it.
    remedy: Option<String>,
}

impl Finding {
    /// Makes a finding without which `needed_for` fails.
    fn needed(name: &'static str, needed_for: &'static str, looked: Result<String, Lack>) -> Self {
        Self::new(name, needed_for, FindingState::Missing, looked)
    }

    /// Makes a finding without which `needed_for` still works, or which needs root.
    fn optional(
        name: &'static str,
        needed_for: &'static str,
        looked: Result<String, Lack>,
    ) -> Self {
        Self::new(name, needed_for, FindingState::Optional, looked)
    }

    fn new(
        name: &'static str,
        needed_for: &'static str,
        otherwise: FindingState,
        looked: Result<String, Lack>,
    ) -> Self {
        let (state, found, remedy) = match looked {
            Ok(found) => (FindingState::Works, found, None),
            Err(lack) => (otherwise, lack.what, lack.remedy),
        };
        Self {
            name,
            needed_for,
            state,
            found,
            remedy,
        }
    }
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// Whether every feature works that needs no root.
    works: bool,
    findings: Vec<Finding>,
}

pub fn run(args: &Args) -> Result<()> {
    let system = System::here();
    let findings: Vec<_> = fuse::findings(&system)
        .into_iter()
        .chain(users::findings(&system))
        .chain(storage::findings(&system))
        .chain(resources::findings(&system))
        .collect();
    let works = findings.iter().all(|f| f.state != FindingState::Missing);
    if args.json {
        output::json(&Report {
            version: env!("CARGO_PKG_VERSION"),
            works,
            findings,
        })?;
    } else {
        print(&findings)?;
    }
    // The missing features have been reported.
    if works { Ok(()) } else { Err(output::told()) }
}

fn print(findings: &[Finding]) -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut out = output::stdout();
    for f in findings {
        let (word, code) = match f.state {
            FindingState::Works => ("works", 32),
            FindingState::Missing => ("missing", 31),
            FindingState::Optional => ("optional", 33),
        };
        let word = if colour {
            format!("\x1b[{code}m{word:8}\x1b[0m")
        } else {
            format!("{word:8}")
        };
        writeln!(out, "{word}  {:20}  {}", f.name, f.found)?;
        if f.state != FindingState::Works {
            writeln!(out, "{:32}for {}", "", f.needed_for)?;
        }
        if let Some(remedy) = &f.remedy {
            writeln!(out, "{:32}$ {remedy}", "")?;
        }
    }
    Ok(out.flush()?)
}

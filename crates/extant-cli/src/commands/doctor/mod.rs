//! `extant doctor`: what of this command works on this machine, and the line to type for what does not.

mod fuse;
mod resources;
mod storage;
mod users;

use crate::output;
use crate::system::{Lack, System};
use anyhow::Result;
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Say what works on this machine, and the remedy for what does not
///
/// Looks at what mounting, `extant shell` and images need of the system; nothing is changed but for a file of a few KiB that is
/// made and removed in the current directory and in TMPDIR. The exit code is 0 when everything works that needs no root,
/// also if what is marked as optional is missing; else it is 1.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant doctor\n  extant doctor --json")]
pub struct Args {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// How something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum FindingState {
    /// It works.
    Works,
    /// It does not work, and users without root could do more if it did.
    Missing,
    /// It does not work, and its dependants do without it, or need root anyway.
    Optional,
}

/// One finding.
#[derive(Debug, Serialize)]
struct Finding {
    /// The examined thing.
    name: &'static str,
    /// Its dependants.
    needed_for: &'static str,
    state: FindingState,
    /// The result in words.
    found: String,
    /// The line to type.
    remedy: Option<String>,
}

impl Finding {
    /// Something without which `needed_for` fails.
    fn needed(name: &'static str, needed_for: &'static str, looked: Result<String, Lack>) -> Self {
        Self::new(name, needed_for, FindingState::Missing, looked)
    }

    /// Something without which `needed_for` goes on, or which takes root.
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
    /// Whether everything works that needs no root.
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
    // The missing things have been reported.
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
        let word = match colour {
            true => format!("\x1b[{code}m{word:8}\x1b[0m"),
            false => format!("{word:8}"),
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

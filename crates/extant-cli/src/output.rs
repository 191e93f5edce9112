//! What goes to standard output and standard error, and with which exit code.

use crate::interrupt::Interrupted;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;

/// Standard output, buffered.
pub fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(1 << 16, io::stdout().lock())
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = stdout();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// What was done, in one line on standard error, for people only: quiet when that is not a terminal.
pub fn summary(line: &str) -> Result<()> {
    if io::stderr().is_terminal() {
        writeln!(io::stderr(), "{line}")?;
    }
    Ok(())
}

/// One line on standard error.
pub fn complain(what: impl fmt::Display) {
    // Where to complain that complaining failed?
    let _ = writeln!(io::stderr(), "extant: {what}");
}

/// Errors that were already told, one line each.
#[derive(Debug)]
struct Told;

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("some operands failed")
    }
}

impl std::error::Error for Told {}

/// Runs each operand even if an earlier one failed, as coreutils do; the failures are told at once.
pub fn each<T>(
    operands: impl IntoIterator<Item = T>,
    mut work: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut failed = false;
    for operand in operands {
        crate::interrupt::check()?;
        match work(operand) {
            Ok(()) => {}
            Err(e) if silent(&e) || e.chain().any(|e| e.is::<Interrupted>()) => return Err(e),
            Err(e) => {
                complain(format_args!("{e:#}"));
                failed = true;
            }
        }
    }
    if failed { Err(Told.into()) } else { Ok(()) }
}

/// The reader of standard output went away.
fn silent(error: &anyhow::Error) -> bool {
    let broken = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|e| {
        e.downcast_ref::<io::Error>().is_some_and(broken)
            || e.downcast_ref::<serde_json::Error>()
                .is_some_and(|e| e.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}

/// Tells an error in one line and gives the exit code: 130 interrupted, 141 broken pipe, else 1.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if silent(error) {
        return ExitCode::from(141);
    }
    if error.chain().any(|e| e.is::<Interrupted>()) {
        // Where it stopped is of no interest.
        complain(Interrupted);
        return ExitCode::from(130);
    }
    if !error.is::<Told>() {
        complain(format_args!("{error:#}"));
    }
    ExitCode::FAILURE
}

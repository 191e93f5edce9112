//! Standard output, standard error and exit codes.

use crate::interrupted::Interrupted;
use anyhow::Result;
use extant_transfer::show;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// The command that writes messages: its name, and its advice for an error.
struct Speaker {
    name: &'static str,
    advice: fn(&anyhow::Error) -> Option<&'static str>,
}

static SPEAKER: OnceLock<Speaker> = OnceLock::new();

fn speaker() -> &'static Speaker {
    SPEAKER.get_or_init(|| Speaker {
        name: "extant",
        advice: |_| None,
    })
}

/// Sets the name of the program in messages, and the advice for errors. Only the first call counts.
pub fn speak_as(name: &'static str, advice: fn(&anyhow::Error) -> Option<&'static str>) {
    SPEAKER.get_or_init(|| Speaker { name, advice });
}

/// Name of standard output in messages.
pub const STDOUT: &str = "standard output";

/// Returns standard output, buffered.
pub fn stdout() -> BufWriter<Stdout> {
    BufWriter::with_capacity(1 << 16, Stdout(io::stdout().lock()))
}

/// Standard output, whose errors name it.
pub struct Stdout(StdoutLock<'static>);

/// Returns an error of a writer with its name.
pub fn named(name: impl fmt::Display, e: io::Error) -> io::Error {
    match e.kind() {
        // The caller handles both kinds: it does not report the first, and retries after the other.
        io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted => e,
        kind => io::Error::new(kind, format!("{name}: {e}")),
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|e| named(STDOUT, e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|e| named(STDOUT, e))
    }
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut out = stdout();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// Ends the output: entries were printed to `out` as they were found, or are printed as JSON now. Of two errors the
/// error of the work is reported.
pub fn end(
    done: Result<()>,
    mut out: impl Write,
    as_json: bool,
    found: &impl Serialize,
) -> Result<()> {
    if as_json {
        return done.and(json(found));
    }
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}

/// Reports the result in one line on standard error, for people: silent when that is not a terminal.
pub fn summary(line: &str) -> Result<()> {
    if io::stderr().is_terminal() {
        writeln!(io::stderr(), "{}", plain(line))?;
    }
    Ok(())
}

/// Asks a question that only a person can answer with yes; without a terminal the answer is no.
pub fn ask(question: &str) -> Result<bool> {
    if !can_ask() {
        return Ok(false);
    }
    write!(io::stderr(), "{} (y/N) ", plain(question))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// An answer to one of several questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Yes to this question.
    Yes,
    /// No to this question.
    No,
    /// Yes to this question and to all that follow.
    All,
    /// No more questions.
    Quit,
}

/// Returns whether questions can be asked.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks one of several questions. Without a terminal the answer is no.
pub fn ask_one_of(question: &str) -> Result<Answer> {
    if !can_ask() {
        return Ok(Answer::No);
    }
    loop {
        write!(io::stderr(), "{} (y/n/a/q) ", plain(question))?;
        let mut answer = String::new();
        if io::stdin().read_line(&mut answer)? == 0 {
            return Ok(Answer::Quit);
        }
        return Ok(match answer.trim() {
            "y" | "Y" | "yes" => Answer::Yes,
            "" | "n" | "N" | "no" => Answer::No,
            "a" | "A" | "all" => Answer::All,
            "q" | "Q" | "quit" => Answer::Quit,
            _ => {
                writeln!(
                    io::stderr(),
                    "y: yes; n: no; a: yes to all; q: write nothing"
                )?;
                continue;
            }
        });
    }
}

/// Writes an error to standard error: `error: ...`. Another program than `extant` writes its name instead of `error`, as e2fsprogs do.
pub fn complain(what: impl fmt::Display) {
    say("error", "", what);
}

/// Writes a warning to standard error: `warning: ...`.
pub fn warn(what: impl fmt::Display) {
    say("warning", "warning: ", what);
}

/// Writes a note to standard error: `note: ...`.
pub fn note(what: impl fmt::Display) {
    say("note", "", what);
}

/// Writes a line to standard error, with the kind of message or with the name of the program and `more`.
fn say(kind: &str, more: &str, what: impl fmt::Display) {
    // An error of standard error cannot be reported.
    let _ = match speaker().name {
        "extant" => writeln!(io::stderr(), "{kind}: {}", plain(what)),
        name => writeln!(io::stderr(), "{name}: {more}{}", plain(what)),
    };
}

/// Formats a message without characters that a terminal obeys: names of files are part of it. A message may have
/// several lines.
fn plain(what: impl fmt::Display) -> String {
    let lines = what.to_string();
    let lines: Vec<_> = lines
        .split('\n')
        .map(|line| show(line.as_bytes()))
        .collect();
    lines.join("\n")
}

/// Error after messages that were already printed, one line each.
#[derive(Debug)]
struct ReportedError;

impl fmt::Display for ReportedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("some operands failed")
    }
}

impl std::error::Error for ReportedError {}

/// Returns the error for a part that has already reported its own error.
pub fn told() -> anyhow::Error {
    ReportedError.into()
}

/// An exit code other than 1, of a program that has told why.
#[derive(Debug)]
struct ExitWith(u8);

impl fmt::Display for ExitWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {}", self.0)
    }
}

impl std::error::Error for ExitWith {}

/// Returns an error that [`report`] does not print, but for which it ends the program with this exit code.
pub fn exit_with(code: u8) -> anyhow::Error {
    ExitWith(code).into()
}

/// Prints an error, and returns an error that ends the program with this exit code. A silent error and an interrupt
/// are returned unchanged.
pub fn report_as(error: anyhow::Error, code: u8) -> anyhow::Error {
    if silent(&error) || is_interrupt(&error) {
        return error;
    }
    complain(with_advice(&error));
    exit_with(code)
}

/// Runs each operand even if an earlier one failed, as coreutils do; failures are reported at once.
pub fn each<T>(
    operands: impl IntoIterator<Item = T>,
    mut work: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut failed = false;
    for operand in operands {
        crate::interrupted::check()?;
        match work(operand) {
            Ok(()) => {}
            Err(e) if silent(&e) || is_interrupt(&e) => return Err(e),
            // The messages for several files of this operand were printed.
            Err(e) if e.is::<ReportedError>() => failed = true,
            Err(e) => {
                complain(with_advice(&e));
                failed = true;
            }
        }
    }
    if failed {
        Err(ReportedError.into())
    } else {
        Ok(())
    }
}

/// Returns whether work failed because the user asked to stop.
fn is_interrupt(error: &anyhow::Error) -> bool {
    // A device passes the error on as text.
    let says = || one_line(error).contains(&Interrupted.to_string());
    let is_asked = crate::interrupted::check().is_err();
    error.chain().any(|e| e.is::<Interrupted>()) || (is_asked && says())
}

/// Returns whether the reader of standard output closed it.
pub fn silent(error: &anyhow::Error) -> bool {
    let broken = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|e| {
        e.downcast_ref::<io::Error>().is_some_and(broken)
            || e.downcast_ref::<serde_json::Error>()
                .is_some_and(|e| e.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}

/// Exit code of a program that ends because the reader of its standard output has closed it, as after SIGPIPE.
pub const CLOSED_PIPE: u8 = 141;

/// Prints an error in one line and returns the exit code: 130 interrupted, 141 broken pipe, that of [`exit_with`],
/// else 1.
pub fn report(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(report_code(error))
}

/// Like [`report`], with the exit code as a number.
pub fn report_code(error: &anyhow::Error) -> u8 {
    if silent(error) {
        return CLOSED_PIPE;
    }
    if is_interrupt(error) {
        // The point of interruption does not matter.
        complain(Interrupted);
        return 130;
    }
    if let Some(ExitWith(code)) = error.downcast_ref() {
        return *code;
    }
    if !error.is::<ReportedError>() {
        complain(with_advice(error));
    }
    1
}

/// Formats an error and its causes in one line. Repeated causes and the numbers of the system's errors are left out,
/// because their text is in the line already.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = without_numbers(&cause.to_string());
        // A cause may begin with the name of its context.
        if line.is_empty() || text.starts_with(&format!("{line}: ")) {
            line = text;
        } else if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
    }
    line
}

/// Formats an error in one line, with advice for errors of its kind.
fn with_advice(error: &anyhow::Error) -> String {
    let line = one_line(error);
    match (speaker().advice)(error) {
        Some(advice) => format!("{line}: {advice}"),
        None => line,
    }
}

/// Removes the parentheses from text such as `No such file or directory (os error 2)`.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => out += rest,
            _ => out += &format!(" (os error {part}"),
        }
    }
    out
}

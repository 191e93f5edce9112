//! The names under which scripts and mount(8) call this program: those of e2fsprogs (the crate `extant_e2fsprogs`), and
//! `mount.extant` or `mount.fuse.extant`, for which the program is `extant mount`. A name that the program does not have is
//! refused.

use crate::command_line::{help, usage};
use crate::commands::{self, Command, mkfs, mount, tune};
use anyhow::{Result, anyhow, bail};
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::io_timeout;
use extant_e2fsprogs::{Answer, Extant, Program, Refusal};
use extant_terminal::{interrupt, output};
use std::env;
use std::ffi::{OsStr, OsString};
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::exit;
use std::sync::Once;

/// Names of helpers of mount(8).
const MOUNT: [&str; 3] = ["mount.extant", "mount.fuse.extant", "mount.fuseblk.extant"];

/// The commands that the programs of e2fsprogs run.
const EXTANT: Extant = Extant {
    run,
    tune_options: |words| match parse(words)? {
        Command::Tune(args) => tune::options(&args),
        _ => bail!("not a command line of extant tune"),
    },
    planned: |words| match parse(words)? {
        Command::Mkfs(args) => mkfs::planned(&args),
        _ => bail!("not a command line of extant mkfs"),
    },
};

/// Returns the name of a helper of mount(8), if a path calls one.
fn helper(program: &OsStr) -> Option<&'static str> {
    let base = Path::new(program).file_name()?;
    MOUNT.into_iter().find(|name| base == *name)
}

/// Returns the name that prefixes error messages.
pub fn speaker() -> &'static str {
    let program = env::args_os().next().unwrap_or_default();
    let tool = || Program::called_by(&program).map(Program::name);
    helper(&program).or_else(tool).unwrap_or("extant")
}

/// Returns the command line as if it were given to `extant`. Exits if the call needs no command of `extant`, or is
/// refused.
pub fn args() -> Vec<OsString> {
    let mut args = env::args_os();
    let program = args.next().unwrap_or_else(|| "extant".into());
    if helper(&program).is_some() {
        return mount::from_helper(args);
    }
    let called = Program::called_by(&program);
    // These programs have no option for the time, and ask servers before the command line of `extant` is known.
    if called.is_some()
        && let Err(why) = io_timeout::set(None)
    {
        output::complain(output::one_line(&why));
        exit(wrong_usage(&program).into())
    }
    let answered = match (called, unknown(&program)) {
        (Some(tool), _) => tool.answer(args, EXTANT),
        (None, Some(refusal)) => Err(refusal),
        (None, None) => return iter::once(program).chain(args).collect(),
    };
    match answered {
        Ok(Answer::Words(words)) => match parse(words.clone()) {
            Ok(_) => with_name(words),
            // A value that a command does not accept ends the program with its code for a wrong call.
            Err(error) => {
                output::complain(output::one_line(&error));
                exit(wrong_usage(&program).into())
            }
        },
        Ok(Answer::Done(code)) => exit(code.into()),
        Err(Refusal(line, code)) => {
            output::complain(line);
            exit(code.into())
        }
    }
}

/// Returns the refusal of a call by a name of another program. A name that begins with `extant`, such as that of a static program or
/// of a release, is one of this program.
fn unknown(program: &OsStr) -> Option<Refusal> {
    let base = Path::new(program).file_name()?;
    if base.as_bytes().starts_with(b"extant") {
        return None;
    }
    let names: Vec<&str> = Program::names().chain(MOUNT).collect();
    let (shown, names) = (base.shown(), names.join(", "));
    let line = format!("{shown}: not a name of this program: call it extant, {names}");
    Some(Refusal(line, wrong_usage(program)))
}

/// Returns the exit code of a wrong call. Code 1 of a program that checks volumes stands for a volume that was mended.
fn wrong_usage(program: &OsStr) -> u8 {
    let base = Path::new(program).file_name().unwrap_or_default();
    if base.as_bytes().windows(4).any(|part| part == b"fsck") {
        extant_e2fsprogs::WRONG_USAGE
    } else {
        1
    }
}

fn with_name(words: Vec<OsString>) -> Vec<OsString> {
    iter::once("extant".into()).chain(words).collect()
}

/// Parses a command line without the name of this program. Messages name the options of the called program.
fn parse(words: Vec<OsString>) -> Result<Command> {
    let words = with_name(words);
    let parsed = help::parse(&words).map_err(|error| anyhow!(usage::mistake(&error, &words)));
    let (args, _) = parsed?;
    Ok(args.command)
}

/// Runs a command of this program as part of an answer.
fn run(words: Vec<OsString>) -> Result<()> {
    static SIGNALS: Once = Once::new();
    let mut installed = Ok(());
    SIGNALS.call_once(|| installed = interrupt::install());
    installed?;
    commands::run(parse(words)?)
}

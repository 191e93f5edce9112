//! The names under which scripts and mount(8) call this program. Under `mount.extant` or `mount.fuse.extant` it is
//! `extant mount`; under the names of e2fsprogs it takes their options, says the same by its own, and ends with their exit
//! codes. An option that has no counterpart is refused by name: a script that relies on it must not go on.

mod config;
mod debugfs;
mod debugfs_fields;
mod debugfs_write;
mod e2fsck;
mod e4defrag;
mod fuse2fs;
mod getopt;
mod listing;
mod listing_groups;
mod mke2fs;
mod resize2fs;
mod tune2fs;

use crate::args::Cli;
use clap::FromArgMatches;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::exit;

/// What a call under another name comes to.
enum Answer {
    /// A command line of this program, without its name.
    Words(Vec<OsString>),
    /// All is done: the exit code.
    Done(u8),
}

/// Why a call is refused: a line, and the exit code.
struct Refusal(String, u8);

type Answered = Result<Answer, Refusal>;

/// A name of this program.
struct Name {
    name: &'static str,
    answer: fn(&'static str, Vec<OsString>) -> Answered,
}

const fn name(name: &'static str, answer: fn(&'static str, Vec<OsString>) -> Answered) -> Name {
    Name { name, answer }
}

const NAMES: &[Name] = &[
    name("mount.extant", mount),
    name("mount.fuse.extant", mount),
    name("mount.fuseblk.extant", mount),
    name("mke2fs", mke2fs::answer),
    name("mkfs.ext2", mke2fs::answer),
    name("mkfs.ext3", mke2fs::answer),
    name("mkfs.ext4", mke2fs::answer),
    name("e2fsck", e2fsck::answer),
    name("fsck.ext2", e2fsck::answer),
    name("fsck.ext3", e2fsck::answer),
    name("fsck.ext4", e2fsck::answer),
    name("tune2fs", tune2fs::tune2fs),
    name("dumpe2fs", tune2fs::dumpe2fs),
    name("e2label", tune2fs::e2label),
    name("lsattr", same),
    name("chattr", same),
    name("resize2fs", resize2fs::answer),
    name("e4defrag", e4defrag::answer),
    name("debugfs", debugfs::answer),
    name("fuse2fs", fuse2fs::answer),
];

fn mount(_: &'static str, args: Vec<OsString>) -> Answered {
    let words = crate::commands::mount::from_helper(args.into_iter());
    Ok(Answer::Words(words.into_iter().skip(1).collect()))
}

/// The command of the same name, whose files are `IMAGE:/PATH`.
fn same(name: &'static str, args: Vec<OsString>) -> Answered {
    let words = std::iter::once(name.into()).chain(args);
    Ok(Answer::Words(words.collect()))
}

/// The name that this program was called by.
fn called_by(program: &OsStr) -> Option<&'static Name> {
    let base = Path::new(program).file_name()?;
    NAMES.iter().find(|known| base == known.name)
}

/// The name that errors begin with.
pub fn speaker() -> &'static str {
    let program = std::env::args_os().next();
    let called = program.as_deref().and_then(called_by);
    called.map_or("extant", |called| called.name)
}

/// The command line, as if it were given to `extant`. A call that needs no command of `extant`, or is refused, ends here.
pub fn args() -> impl Iterator<Item = OsString> {
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_else(|| "extant".into());
    let all: Vec<OsString> = match called_by(&program) {
        None => std::iter::once(program).chain(args).collect(),
        Some(called) => match (called.answer)(called.name, args.collect()) {
            Ok(Answer::Words(words)) => std::iter::once("extant".into()).chain(words).collect(),
            Ok(Answer::Done(code)) => exit(code.into()),
            Err(Refusal(line, code)) => {
                extant_terminal::output::complain(line);
                exit(code.into())
            }
        },
    };
    all.into_iter()
}

/// Runs a command of this program as a part of an answer, by a command line as that of [`Answer::Words`].
fn run(words: Vec<OsString>) -> anyhow::Result<()> {
    let words: Vec<OsString> = std::iter::once("extant".into()).chain(words).collect();
    let parsed = crate::help::command().try_get_matches_from(&words);
    let parsed = parsed.and_then(|found| Cli::from_arg_matches(&found));
    let args = parsed.map_err(|error| anyhow::anyhow!(crate::usage::line(&error, &words)))?;
    crate::commands::run(args.command)
}

/// The version that scripts ask for, on standard error as e2fsprogs says it.
fn version(name: &str) -> Answered {
    eprintln!(
        "{name} of extant {}, by the options of e2fsprogs 1.47",
        env!("CARGO_PKG_VERSION")
    );
    Ok(Answer::Done(0))
}

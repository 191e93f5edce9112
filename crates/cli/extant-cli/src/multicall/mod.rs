//! The names under which scripts and mount(8) call this program. Under `mount.extant` or `mount.fuse.extant` the
//! program is `extant mount`. Under the names of e2fsprogs, the program accepts their options, translates them into
//! its own, and returns their exit codes. An unsupported option is refused by name, so that a script that relies on
//! the option stops.

mod attributes;
mod config;
mod debugfs;
mod e2fsck;
mod e2undo;
mod e4defrag;
mod fuse2fs;
mod getopt;
mod in_use;
mod listing;
mod listing_groups;
mod mke2fs;
mod mke2fs_options;
mod mmp_block;
mod resize2fs;
mod tune2fs;

use crate::command_line::args::Cli;
use clap::FromArgMatches;
use ext4_format::features::Incompat;
use extant_cli_core::image::undo_log;
use extant_terminal::output::{complain, one_line, report_code, warn};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::exit;
use std::sync::Once;

/// The answer to a call under another name.
enum Answer {
    /// A command line of this program, without its name.
    Words(Vec<OsString>),
    /// The work is done: the exit code.
    Done(u8),
}

/// Refusal of a call: a line, and the exit code.
struct Refusal(String, u8);

type Answered = Result<Answer, Refusal>;

/// Exit code of most tools when they refuse a call.
const REFUSED: u8 = 1;

fn refuse(line: impl Into<String>) -> Refusal {
    Refusal(line.into(), REFUSED)
}

impl From<String> for Refusal {
    fn from(line: String) -> Self {
        refuse(line)
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        refuse(one_line(&error))
    }
}

/// Prints the answer of a tool.
fn print(answer: impl AsRef<[u8]>) -> Answered {
    let written = std::io::stdout().write_all(answer.as_ref());
    written.map_err(|error| format!("standard output: {error}"))?;
    Ok(Answer::Done(0))
}

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
    name("lsattr", attributes::lsattr),
    name("chattr", attributes::chattr),
    name("resize2fs", resize2fs::answer),
    name("e4defrag", e4defrag::answer),
    name("debugfs", debugfs::answer),
    name("e2undo", e2undo::answer),
    name("fuse2fs", fuse2fs::answer),
];

fn mount(_: &'static str, args: Vec<OsString>) -> Answered {
    let words = crate::commands::mount::from_helper(args.into_iter());
    Ok(Answer::Words(words.into_iter().skip(1).collect()))
}

/// Returns the name that this program was called by.
fn called_by(program: &OsStr) -> Option<&'static Name> {
    let base = Path::new(program).file_name()?;
    NAMES.iter().find(|known| base == known.name)
}

/// Returns the name that prefixes error messages.
pub fn speaker() -> &'static str {
    let program = std::env::args_os().next();
    let called = program.as_deref().and_then(called_by);
    called.map_or("extant", |called| called.name)
}

/// Returns the command line as if it were given to `extant`. Exits if the call needs no command of `extant`, or is
/// refused.
pub fn args() -> impl Iterator<Item = OsString> {
    let mut args = std::env::args_os();
    let program = args.next().unwrap_or_else(|| "extant".into());
    let all: Vec<OsString> = match called_by(&program) {
        None => std::iter::once(program).chain(args).collect(),
        Some(called) => match (called.answer)(called.name, args.collect()) {
            Ok(Answer::Words(words)) => std::iter::once("extant".into()).chain(words).collect(),
            Ok(Answer::Done(code)) => exit(code.into()),
            Err(Refusal(line, code)) => {
                complain(line);
                exit(code.into())
            }
        },
    };
    all.into_iter()
}

/// Runs a command of this program as part of an answer; its command line is like that of [`Answer::Words`].
fn run(words: Vec<OsString>) -> anyhow::Result<()> {
    static SIGNALS: Once = Once::new();
    let mut installed = Ok(());
    SIGNALS.call_once(|| installed = extant_terminal::interrupt::install());
    installed?;
    let words: Vec<OsString> = std::iter::once("extant".into()).chain(words).collect();
    let parsed = crate::command_line::help::command().try_get_matches_from(&words);
    let parsed = parsed.and_then(|found| Cli::from_arg_matches(&found));
    let args = parsed
        .map_err(|error| anyhow::anyhow!(crate::command_line::usage::line(&error, &words)))?;
    crate::commands::run(args.command)
}

/// Failure of an answer whose changes go to an undo file.
enum Failure {
    /// The command has printed the reason.
    Reported(u8),
    Refused(Refusal),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Refused(error.into())
    }
}

/// Gives an answer whose changes of an image go to the undo file of `-z`.
fn with_undo(image: &OsStr, undo: Option<&OsStr>, answer: impl FnOnce() -> Answered) -> Answered {
    with_undo_of(image, undo, 0, answer)
}

/// Like [`with_undo`], for a program whose exit codes up to `most` stand for success.
fn with_undo_of(
    image: &OsStr,
    undo: Option<&OsStr>,
    most: u8,
    answer: impl FnOnce() -> Answered,
) -> Answered {
    let Some(undo) = undo else {
        return answer();
    };
    let changed = undo_log::change(Path::new(image), Some(Path::new(undo)), || {
        let code = match answer().map_err(Failure::Refused)? {
            // The changes of these words belong to the undo file.
            Answer::Words(words) => match code_of(words) {
                0 => return Ok(0),
                code => return Err(Failure::Reported(code)),
            },
            Answer::Done(code) => code,
        };
        if code <= most {
            Ok(code)
        } else {
            Err(Failure::Reported(code))
        }
    });
    match changed {
        Ok(code) | Err(Failure::Reported(code)) => Ok(Answer::Done(code)),
        Err(Failure::Refused(refusal)) => Err(refusal),
    }
}

/// Runs a command like [`run`], and returns its exit code.
fn code_of(words: Vec<OsString>) -> u8 {
    run(words).map_or_else(|error| report_code(&error), |()| 0)
}

/// Cuts a label to the 16 bytes of a superblock, with a warning.
fn label(said: &OsStr) -> OsString {
    const MOST: usize = 16;
    let bytes = said.as_bytes();
    let fits = OsStr::from_bytes(bytes.get(..MOST).unwrap_or(bytes)).to_owned();
    if bytes.len() > MOST {
        let shown = fits.display();
        warn(format_args!(
            "the label is cut off after 16 bytes: '{shown}'"
        ));
    }
    fits
}

/// Resolves `UUID=`, `LABEL=`, `PARTUUID=` and `PARTLABEL=` to a device, with the links of udev. Other words are
/// returned unchanged.
fn device(word: &OsStr) -> OsString {
    device_in(Path::new("/dev/disk"), word)
}

fn device_in(links: &Path, word: &OsStr) -> OsString {
    let named = |word: &str| {
        let (key, value) = word.split_once('=')?;
        let by = match key {
            "UUID" => "by-uuid",
            "LABEL" => "by-label",
            "PARTUUID" => "by-partuuid",
            "PARTLABEL" => "by-partlabel",
            _ => return None,
        };
        links.join(by).join(value).canonicalize().ok()
    };
    let found = word.to_str().and_then(named);
    found.map_or_else(|| word.to_owned(), OsString::from)
}

/// Replays the journal of an image that was not unmounted, and deletes its orphans; returns whether anything was done.
/// The next step reports an unreadable superblock.
fn replay(image: &Path) -> anyhow::Result<bool> {
    let sb = listing::superblock_of(image);
    let pending = sb.is_ok_and(|sb| {
        let recovers = sb.feature_incompat.get() & Incompat::NEEDS_RECOVERY.bits() != 0;
        recovers || sb.last_orphan.get() != 0
    });
    if pending {
        extant_cli_core::image::images::change(image, |_| Ok(()))?;
    }
    Ok(pending)
}

/// Returns the version of the emulated e2fsprogs, in the words of its tools: scripts parse the number.
fn release(name: &str) -> String {
    let tool = match name {
        "mkfs.ext2" | "mkfs.ext3" | "mkfs.ext4" => "mke2fs",
        "fsck.ext2" | "fsck.ext3" | "fsck.ext4" => "e2fsck",
        other => other,
    };
    format!("{tool} 1.47.0 (5-Feb-2023)")
}

/// Prints the version on standard error, as e2fsprogs does.
fn version(name: &str) -> Answered {
    let ours = env!("CARGO_PKG_VERSION");
    eprintln!(
        "{}\n\tUsing extant {ours}, by the options of e2fsprogs 1.47.0",
        release(name)
    );
    Ok(Answer::Done(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Refusals that depend on values or combinations, and not only on letters.
    const OTHERS: [&str; 5] = [
        "mke2fs -O bigalloc",
        "mke2fs -O journal_dev",
        "mke2fs -J device=",
        "tune2fs -J device=",
        "tune2fs -s 0",
    ];

    /// Returns everything that the names refuse.
    fn refused() -> BTreeSet<String> {
        let letters = [
            ("mke2fs", mke2fs::WITHOUT),
            ("e2fsck", e2fsck::WITHOUT),
            ("dumpe2fs", tune2fs::DUMPE2FS_WITHOUT),
            ("debugfs", debugfs::WITHOUT),
        ];
        let mut all: BTreeSet<String> = OTHERS.map(str::to_owned).into();
        for (tool, table) in letters {
            all.extend(table.iter().map(|(letter, _)| format!("{tool} -{letter}")));
        }
        let extended = mke2fs_options::EXTENDED_WITHOUT.iter();
        all.extend(extended.map(|option| format!("mke2fs -E {option}")));
        let requests = debugfs::write::WITHOUT.iter().flat_map(|(names, _)| *names);
        let whole = requests.filter(|name| name.len() > 3 && name.contains('_'));
        all.extend(whole.map(|name| format!("debugfs {name}")));
        all
    }

    #[test]
    fn devices_are_found_by_label_and_uuid() {
        let dir = tempfile::tempdir().unwrap();
        let links = dir.path().join("by-label");
        std::fs::create_dir(&links).unwrap();
        std::fs::write(dir.path().join("sda1"), "").unwrap();
        std::os::unix::fs::symlink("../sda1", links.join("data")).unwrap();
        let found = |word: &str| device_in(dir.path(), word.as_ref());
        assert!(Path::new(&found("LABEL=data")).ends_with("sda1"));
        for word in ["LABEL=none", "UUID=data", "data", "X=data"] {
            assert_eq!(found(word), word);
        }
    }

    #[test]
    fn what_is_refused_stands_in_the_document() {
        let document = include_str!("../../../../../docs/how-to/e2fsprogs.md");
        let table = document.split("| not there | because |").nth(1).unwrap();
        let rows = table
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        let first = rows.map(|row| row.split('|').nth(1).unwrap());
        let spans = first.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        let documented: BTreeSet<String> = spans.map(str::to_owned).collect();
        assert_eq!(documented, refused());
    }
}

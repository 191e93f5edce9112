//! A call of a program: its options, its answer, and the commands of `extant` that the answer runs.

use crate::getopt::ParsedOptions;
use crate::refusal::Refusal;
use extant::mkfs::Prepared;
use extant_cli_core::image::undo_log;
use extant_terminal::output::{STDOUT, named, report_code, silent, warn};
use extant_tune::TuneOptions;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Commands of `extant` that the programs run by their command lines, which do not contain the name `extant`. The
/// program `extant` passes them as functions: it uses this crate, so this crate cannot use its commands, and the
/// options of the commands are definitions for clap that stay with the help of `extant`.
#[derive(Clone, Copy, Debug)]
pub struct Extant {
    /// Runs a command line.
    pub run: fn(Vec<OsString>) -> anyhow::Result<()>,
    /// Returns the changes that a command line of `extant tune` asks for.
    pub tune_options: fn(Vec<OsString>) -> anyhow::Result<TuneOptions>,
    /// Plans the file system that a command line of `extant mkfs` makes.
    pub planned: fn(Vec<OsString>) -> anyhow::Result<Prepared>,
}

/// The answer to a call under another name.
#[derive(Debug)]
pub enum Answer {
    /// A command line of `extant`, without its name.
    Words(Vec<OsString>),
    /// The work is done: the exit code.
    Done(u8),
}

/// Result of a call.
pub type Answered = Result<Answer, Refusal>;

/// Prints the answer of a tool.
pub fn print(answer: impl AsRef<[u8]>) -> Answered {
    let done = write(answer.as_ref());
    Ok(Answer::Done(done.map_or_else(|e| report_code(&e), |()| 0)))
}

/// Writes to standard output.
pub fn write(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let done = out.write_all(bytes).and_then(|()| out.flush());
    Ok(done.map_err(|error| named(STDOUT, error))?)
}

/// Like [`write`], for a command that changes an image. If the reader has closed the pipe, the change must not stop.
pub fn write_beside(bytes: &[u8]) -> anyhow::Result<()> {
    write(bytes).or_else(|error| if silent(&error) { Ok(()) } else { Err(error) })
}

/// Writes a line to standard error. An error of standard error cannot be reported.
pub fn aside(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A call of a program.
pub struct Called {
    /// Name that the program was called by.
    pub name: &'static str,
    pub taken: ParsedOptions,
    pub extant: Extant,
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

impl Called {
    /// Runs a command of `extant`, and returns its exit code.
    pub fn code_of(&self, words: Vec<OsString>) -> u8 {
        (self.extant.run)(words).map_or_else(|error| report_code(&error), |()| 0)
    }

    /// Gives an answer whose changes of an image go to the undo file of `-z`.
    pub fn with_undo(
        &self,
        image: &OsStr,
        undo: Option<&OsStr>,
        answer: impl FnOnce() -> Answered,
    ) -> Answered {
        self.with_undo_of(image, undo, 0, answer)
    }

    /// Like [`Self::with_undo`], for a program whose exit codes up to `most` stand for success.
    pub fn with_undo_of(
        &self,
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
                Answer::Words(words) => match self.code_of(words) {
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

    /// Prints the version on standard error, as e2fsprogs does.
    pub fn version(&self) -> Answered {
        let ours = env!("CARGO_PKG_VERSION");
        let release = release(self.name);
        aside(format_args!(
            "{release}\n\tUsing extant {ours}, by the options of e2fsprogs 1.47.0"
        ));
        Ok(Answer::Done(0))
    }
}

/// Returns the version of the emulated e2fsprogs, in the words of its tools: scripts parse the number.
pub fn release(name: &str) -> String {
    let tool = match name {
        "mkfs.ext2" | "mkfs.ext3" | "mkfs.ext4" => "mke2fs",
        "fsck.ext2" | "fsck.ext3" | "fsck.ext4" => "e2fsck",
        other => other,
    };
    format!("{tool} 1.47.0 (5-Feb-2023)")
}

/// Cuts a label to the 16 bytes of a superblock, with a warning.
pub fn label(said: &OsStr) -> OsString {
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
pub fn device(word: &OsStr) -> OsString {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

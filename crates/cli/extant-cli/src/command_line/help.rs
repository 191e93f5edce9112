//! The layout of help: a description, examples, then usage and options. Subcommands are grouped by the phases of an
//! image's life.

use crate::command_line::args::Cli;
use clap::builder::StyledStr;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use extant_terminal::help::{arranged, headed, heading};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;

/// Headings, and the subcommands below each, in order. Other subcommands come last.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Make, fill and export images",
        &["mkfs", "disk", "import", "export"],
    ),
    (
        "Read images",
        &[
            "ls", "tree", "cat", "stat", "lsattr", "getfattr", "df", "info", "map", "check",
            "inspect", "diff",
        ],
    ),
    (
        "Change files and sizes",
        &[
            "cp", "mv", "rm", "mkdir", "ln", "touch", "chmod", "chown", "chattr", "setfattr",
            "resize",
        ],
    ),
    ("Repair images", &["repair", "undo", "rescue"]),
    ("Change properties and layout", &["tune", "trim", "defrag"]),
    ("Copy only the blocks that differ", &["push", "pull"]),
    (
        "Mount images, also without root",
        &[
            "mount", "umount", "shell", "status", "sync", "apply", "doctor",
        ],
    ),
    ("Measure", &["top"]),
    ("For the shell", &["completions", "man", "help"]),
];

/// The heading of subcommands without a group.
const OTHERS: &str = "More";

/// Examples for a newcomer.
pub const EXAMPLES: &str = "Examples:
  extant mkfs disk.img --from tree --size 1G
  extant ls -l disk.img:/etc
  extant cp hosts disk.img:/etc/
  extant cp -a disk.img:/home backup/
  extant mount disk.img ~/mnt
  extant umount ~/mnt";

/// Parses a command line. Returns the values of the arguments by their names, too.
pub fn parse(words: &[OsString]) -> Result<(Cli, ArgMatches), clap::Error> {
    let matches = command().try_get_matches_from(words)?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

/// Returns whether a word is an option of all commands whose value is the next word.
pub fn takes_next_word(word: &OsStr) -> bool {
    let name = word.to_str().and_then(|word| word.strip_prefix("--"));
    let takes = |arg: &Arg| arg.get_long() == name && arg.get_action().takes_values();
    name.is_some() && Cli::command().get_arguments().any(takes)
}

/// Returns the definition of the command line, with all help texts laid out.
pub fn command() -> Command {
    let all = Cli::command().after_help(EXAMPLES);
    let groups = groups(&all);
    let all = arranged(all);
    let template = format!(
        "{{about}}\n\n{}{{usage-heading}} {{usage}}\n\n{groups}{}\n{{options}}\n\n\
         extant COMMAND --help shows examples and all details of a command.",
        headed(EXAMPLES, &all),
        heading("Options", &all),
    );
    all.after_help(StyledStr::new())
        .help_template(StyledStr::from(template))
}

/// Formats the subcommands under their headings.
fn groups(all: &Command) -> String {
    let shown: Vec<&Command> = all.get_subcommands().filter(|c| !c.is_hide_set()).collect();
    let width = shown.iter().map(|c| c.get_name().len()).max().unwrap_or(0);
    let literal = all.get_styles().get_literal();
    let mut text = String::new();
    let mut group = |title: &str, members: &mut dyn Iterator<Item = &&Command>| {
        let mut lines = String::new();
        for command in members {
            let (name, about) = (command.get_name(), command.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let (on, off) = (literal.render(), literal.render_reset());
            // Writing to a string does not fail.
            let _ = writeln!(lines, "  {on}{name:width$}{off}  {about}");
        }
        if !lines.is_empty() {
            let _ = writeln!(text, "{}\n{lines}", heading(title, all));
        }
    };
    for (title, names) in GROUPS {
        let find = |name: &&str| shown.iter().find(|c| c.get_name() == *name);
        group(title, &mut names.iter().filter_map(find));
    }
    let grouped = |c: &&&Command| {
        !GROUPS
            .iter()
            .any(|(_, names)| names.contains(&c.get_name()))
    };
    group(OTHERS, &mut shown.iter().filter(grouped));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of the list fits a terminal of 80 columns.
    #[test]
    fn the_list_is_not_wrapped() {
        for line in plain(&groups(&Cli::command())).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    /// Returns a text without escape sequences.
    fn plain(text: &str) -> String {
        let mut parts = text.split('\x1b');
        let first = parts.next().unwrap_or_default().to_string();
        parts.fold(first, |all, part| {
            all + part.split_once('m').map_or("", |(_, rest)| rest)
        })
    }

    #[test]
    fn every_subcommand_is_in_one_group() {
        let mut names: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        for command in Cli::command()
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
        {
            let times = names.iter().filter(|n| **n == command.get_name()).count();
            assert_eq!(times, 1, "{}", command.get_name());
        }
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}

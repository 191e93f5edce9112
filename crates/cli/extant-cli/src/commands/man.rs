//! `extant man`: pages generated from the definition of the parser, with the usual sections.

use crate::command_line::args::Cli;
use crate::command_line::help::EXAMPLES;
use anyhow::{Context, Result, ensure};
use clap::CommandFactory;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use extant_cli_core::address::is_stream;
use extant_cli_core::format::show::ShowPath;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Write man pages, one for each subcommand
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant man /usr/local/share/man/man1")]
pub struct Args {
    /// Directory for the pages
    dir: PathBuf,
}

/// Exit codes of commands whose description does not define them.
const EXIT: &str =
    "0 if all went well, 1 if something failed, 2 for wrong usage, 130 after an interrupt.";

/// Pages of other programs for the same work.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (&["mkfs", "disk"], "mke2fs(8)"),
    (&["check", "repair", "undo"], "e2fsck(8)"),
    (&["tune"], "tune2fs(8)"),
    (&["resize"], "resize2fs(8)"),
    (&["inspect", "rescue"], "debugfs(8)"),
    (&["info"], "dumpe2fs(8)"),
    (&["mount", "shell", "umount"], "mount(8), fuse(4)"),
    (&["chattr", "lsattr"], "chattr(1), lsattr(1)"),
    (&["getfattr", "setfattr"], "getfattr(1), setfattr(1)"),
    (&["defrag"], "e4defrag(8)"),
    (&["trim"], "fstrim(8)"),
];

pub fn run(args: &Args) -> Result<()> {
    let context = || args.dir.shown();
    ensure!(
        !is_stream(&args.dir),
        "-: the pages are several files: name a directory"
    );
    ensure!(
        args.dir.is_dir() || !args.dir.exists(),
        "{}: not a directory: the pages are files in one",
        args.dir.shown()
    );
    std::fs::create_dir_all(&args.dir).with_context(context)?;
    let cli = Cli::command().after_help(EXAMPLES);
    let mut cli = cli.disable_help_subcommand(true);
    cli.build();
    for command in cli.get_subcommands().filter(|c| !c.is_hide_set()) {
        write(command, &args.dir).with_context(context)?;
    }
    write(&cli, &args.dir).with_context(context)
}

/// Writes the page of one command.
fn write(command: &clap::Command, dir: &Path) -> io::Result<()> {
    let man = Man::new(command.clone());
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    let description = description(command);
    let said = |paragraph: &&String| paragraph.starts_with("The exit code is");
    let exit = description.iter().find(said);
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    section(&mut out, "SYNOPSIS", [usage])?;
    let rest = description.iter().filter(|p| !said(p));
    section(&mut out, "DESCRIPTION", rest)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    examples(command, &mut out)?;
    section(&mut out, "EXIT STATUS", [exit.map_or(EXIT, String::as_str)])?;
    let name = command.get_name();
    let other = ELSEWHERE.iter().find(|(names, _)| names.contains(&name));
    let own = if command.has_subcommands() {
        "extant COMMAND --help"
    } else {
        "extant(1)"
    };
    let more = other.map(|(_, pages)| format!("{own}, {pages}"));
    section(&mut out, "SEE ALSO", [more.as_deref().unwrap_or(own)])?;
    std::fs::File::create(dir.join(man.get_filename()))?.write_all(&out)
}

/// Returns the paragraphs of a command's description.
fn description(command: &clap::Command) -> Vec<String> {
    let long = command.get_long_about().or(command.get_about());
    let text = long.map(ToString::to_string).unwrap_or_default();
    text.split("\n\n").map(str::to_owned).collect()
}

fn section<'t, T: AsRef<str> + 't>(
    out: &mut impl Write,
    title: &str,
    paragraphs: impl IntoIterator<Item = T>,
) -> io::Result<()> {
    let mut roff = Roff::default();
    roff.control("SH", [title]);
    for (n, paragraph) in paragraphs.into_iter().enumerate() {
        if n > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(paragraph.as_ref())]);
    }
    roff.to_writer(out)
}

/// Writes the examples, each on its line, and the other text after the options in the help.
fn examples(command: &clap::Command, out: &mut impl Write) -> io::Result<()> {
    let after = command.get_after_help().map(ToString::to_string);
    for block in after.unwrap_or_default().split("\n\n") {
        let (title, lines) = match block.split_once(":\n") {
            Some((title, lines)) if title.starts_with("Example") => ("EXAMPLES", lines),
            Some((title, lines)) => (title, lines),
            None => ("NOTES", block),
        };
        if lines.trim().is_empty() {
            continue;
        }
        let mut roff = Roff::default();
        roff.control("SH", [title.to_uppercase().as_str()]);
        roff.control("nf", []);
        for line in lines.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        roff.to_writer(out)?;
    }
    Ok(())
}

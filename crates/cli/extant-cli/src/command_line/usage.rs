//! Errors of the command line, in one line: the command, the mistake, and the right form.

use crate::command_line::help::takes_next_word;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use extant_cli_core::address::Location;
use extant_cli_core::format::show::show;
use std::error::Error;
use std::ffi::OsString;
use std::path::Path;

/// Returns whether clap's "error" is the help or the version, on request.
pub fn is_asked_for(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// Returns the exit code for an error of the command line: 2, or for a check that of fsck.
pub fn exit_code(words: &[OsString]) -> i32 {
    match command(words).as_ref() {
        "check" | "repair" => 16,
        _ => 2,
    }
}

/// Formats an error of the command line in one line.
pub fn line(error: &clap::Error, words: &[OsString]) -> String {
    let command = command(words);
    let of = |kind| error.get(kind).map(text);
    let (argument, value) = (of(ContextKind::InvalidArg), of(ContextKind::InvalidValue));
    let argument = argument.unwrap_or_default();
    let shown = |text: &str| shown_word(words, text);
    let usage = of(ContextKind::Usage).unwrap_or_default();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let write = if usage.is_empty() {
        format!("see extant {command} --help")
    } else {
        format!("write {usage}")
    };
    let at = if command.is_empty() {
        String::new()
    } else {
        format!("{command}: ")
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let name = of(ContextKind::InvalidSubcommand).unwrap_or_default();
            let similar = of(ContextKind::SuggestedSubcommand);
            let instead = match similar.filter(|s| !s.is_empty()) {
                // The user omitted the command.
                _ if names_image(&name) => format!("write extant ls {}", shown(&name)),
                Some(similar) => format!("is {similar} meant?"),
                None => format!("see extant {command} --help").replace("  ", " "),
            };
            format!("{at}{}: no such command: {instead}", shown(&name))
        }
        ErrorKind::MissingRequiredArgument => format!("{at}{argument} is missing: {write}"),
        ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            format!("{at}missing arguments: {write}")
        }
        ErrorKind::UnknownArgument => {
            let similar = of(ContextKind::SuggestedArg).filter(|s| !s.is_empty());
            let instead = match (meant(&command, &argument), similar) {
                (Some(instead), _) => instead,
                (None, Some(similar)) => format!("is {similar} meant?"),
                (None, None) if argument.starts_with('-') => {
                    format!("see extant {command} --help").replace("  ", " ")
                }
                (None, None) => write,
            };
            let what = if argument.starts_with('-') {
                "no such option"
            } else {
                "unexpected argument"
            };
            format!("{at}{}: {what}: {instead}", shown(&argument))
        }
        ErrorKind::ValueValidation | ErrorKind::InvalidValue => {
            let value = shown(&value.unwrap_or_default());
            let valid = of(ContextKind::ValidValue).unwrap_or_default();
            let why = match (error.source(), value.is_empty()) {
                (Some(why), _) => why.to_string(),
                (None, true) => format!("a value is missing: {write}"),
                (None, false) => format!("use {valid}"),
            };
            // Messages that begin with the value do not repeat it; positional arguments need no name.
            let option = argument.split(' ').next().filter(|a| a.starts_with('-'));
            let option = option.map(|o| format!("{o} ")).unwrap_or_default();
            if value.is_empty() && !option.is_empty() {
                format!("{at}{}: {why}", option.trim_end())
            } else if why.starts_with(&value) {
                format!("{at}{option}{why}")
            } else {
                format!("{at}{option}{value}: {why}")
            }
        }
        _ => {
            let told = error.to_string();
            let first = told.lines().next().unwrap_or_default();
            let first = first.trim_start_matches("error: ").trim_end_matches('.');
            format!("{at}{first}: {write}")
        }
    }
}

/// Returns a word of the command line, escaped. clap reports it as text.
fn shown_word(words: &[OsString], text: &str) -> String {
    let bytes = words.iter().map(|word| word.as_encoded_bytes());
    // The value of an option may follow a `=`.
    let values = bytes.flat_map(|word| {
        let value = word
            .iter()
            .position(|&b| b == b'=')
            .map(|at| &word[at + 1..]);
        [Some(word), value].into_iter().flatten()
    });
    let text = text.as_bytes();
    let same = |word: &&[u8]| String::from_utf8_lossy(word).as_bytes() == text;
    show(values.into_iter().find(same).unwrap_or(text))
}

/// Formats an error of a command line that stands for a call by another name: only the mistake, with the letters of
/// options, which are those of the other name.
pub fn mistake(error: &clap::Error, words: &[OsString]) -> String {
    let command = command(words);
    let whole = line(error, words);
    let whole = whole
        .strip_prefix(&format!("{command}: "))
        .unwrap_or(&whole);
    let forms = [": write extant ", ": see extant "];
    let end = forms.iter().filter_map(|form| whole.find(form)).min();
    let mut told = end
        .and_then(|end| whole.get(..end))
        .unwrap_or(whole)
        .to_owned();
    let mut all = crate::command_line::help::command();
    // Options have the names of their values only after that.
    all.build();
    let options = all.find_subcommand(&command).into_iter();
    for option in options.flat_map(clap::Command::get_arguments) {
        if let (Some(letter), Some(long)) = (option.get_short(), option.get_long()) {
            told = told.replace(&option.to_string(), &format!("-{letter}"));
            told = told.replace(&format!("--{long} "), &format!("-{letter} "));
        }
    }
    told
}

/// Returns whether a word is an image, or a path in one.
pub fn names_image(word: &str) -> bool {
    match Location::from(OsString::from(word)) {
        Location::Image(address) => address.image.is_file(),
        Location::Host(path) => path.is_file(),
    }
}

/// Returns how an argument is written that other programs, or other commands, take in this way.
fn meant(command: &str, argument: &str) -> Option<String> {
    let size = || extant_terminal::numbers::size(argument).is_ok();
    match (command, argument) {
        ("mkfs", "-d") => Some("write --from DIR".into()),
        ("mkfs", "-v") => Some("leave it out".into()),
        ("mkfs", size_of) if size() => Some(format!("write --size {size_of}")),
        ("mkfs", source) if Path::new(source).exists() => {
            Some(format!("write --from {}", show(source.as_bytes())))
        }
        ("rescue", dir) if !dir.starts_with('-') => Some(format!("write --to {dir}")),
        _ => None,
    }
}

/// Returns the words that name the subcommand.
fn command(words: &[OsString]) -> String {
    let mut command = crate::command_line::help::command();
    let mut names: Vec<String> = Vec::new();
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        if names.is_empty() && takes_next_word(word) {
            words.next();
            continue;
        }
        let Some(found) = word
            .to_str()
            .and_then(|w| command.find_subcommand(w))
            .cloned()
        else {
            // Global options may come first.
            if names.is_empty() && word.as_encoded_bytes().starts_with(b"-") {
                continue;
            }
            break;
        };
        names.push(found.get_name().to_string());
        command = found;
    }
    names.join(" ")
}

fn text(value: &ContextValue) -> String {
    match value {
        ContextValue::String(text) => text.clone(),
        ContextValue::Strings(texts) => texts.join(", "),
        ContextValue::StyledStr(text) => text.to_string(),
        ContextValue::StyledStrs(texts) => texts
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
        other => other.to_string(),
    }
}

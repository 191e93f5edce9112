//! The layout of help: what a command is, examples, then usage and options.

use clap::Command;
use clap::builder::StyledStr;

/// A heading as clap styles its own.
pub fn heading(text: &str, command: &Command) -> String {
    let style = command.get_styles().get_header();
    format!("{}{text}:{}", style.render(), style.render_reset())
}

/// Examples with a styled heading.
pub fn headed(examples: &str, command: &Command) -> String {
    match examples.split_once(":\n") {
        Some((title, lines)) => format!("{}\n{lines}\n\n", heading(title, command)),
        None => String::new(),
    }
}

/// Lays out the help of a command and its subcommands: the examples move from the end to the start.
pub fn arranged(command: Command) -> Command {
    let command = command.mut_subcommands(arranged);
    let after = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let (examples, rest) = after.split_once("\n\n").unwrap_or((&after, ""));
    if !examples.starts_with("Example") {
        return command;
    }
    let template = format!(
        "{{about}}\n\n{}{{usage-heading}} {{usage}}\n\n{{all-args}}{{after-help}}",
        headed(examples, &command)
    );
    let rest = rest.to_string();
    command
        .after_help(rest)
        .help_template(StyledStr::from(template))
}

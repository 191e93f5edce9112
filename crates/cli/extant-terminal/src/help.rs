//! The layout of help: a description of the command, examples, then usage and options.

use clap::Command;
use clap::builder::StyledStr;

/// Formats a heading in the style of clap.
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

/// Lays out the help of a command: moves the examples from the end to the place after the first line of the description. The help
/// of a subcommand is laid out when the subcommand is parsed.
pub fn arranged(command: Command) -> Command {
    let command = command.mut_subcommands(|subcommand| subcommand.defer(arranged));
    let after = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let (examples, rest) = after.split_once("\n\n").unwrap_or((&after, ""));
    if !examples.starts_with("Example") {
        return command;
    }
    let about = command.get_about().map(ToString::to_string);
    let about = about.unwrap_or_default();
    let long = command.get_long_about().map(ToString::to_string);
    let more = long.as_deref().and_then(|long| long.strip_prefix(&about));
    let more = more.unwrap_or_default().trim().to_owned();
    let template = format!(
        "{about}\n\n{}{{before-help}}{{usage-heading}} {{usage}}\n\n{{all-args}}{{after-help}}",
        headed(examples, &command)
    );
    let rest = rest.to_string();
    let command = if more.is_empty() {
        command
    } else {
        command.before_long_help(more)
    };
    command
        .after_help(rest)
        .help_template(StyledStr::from(template))
}

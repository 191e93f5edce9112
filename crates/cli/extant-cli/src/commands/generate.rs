//! `extant completions`: generated from the definition of the parser.

use crate::command_line::args::Cli;
use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Print completions for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant completions bash > /etc/bash_completion.d/extant")]
pub struct CompletionsArgs {
    /// Shell to generate for
    shell: Shell,
}

pub fn completions(args: &CompletionsArgs) -> Result<()> {
    // Generate in memory first, because the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "extant", &mut script);
    let mut out = extant_terminal::output::stdout();
    out.write_all(with_paths(args.shell, String::from_utf8(script)?).as_bytes())?;
    Ok(out.flush()?)
}

/// Adds the completion of paths inside images.
fn with_paths(shell: Shell, mut script: String) -> String {
    let (paths, begin) = match shell {
        Shell::Bash => (include_str!("completions.bash"), "_extant() {\n"),
        Shell::Zsh => (include_str!("completions.zsh"), "_extant() {\n"),
        Shell::Fish => return script + include_str!("completions.fish"),
        _ => return script,
    };
    if let Some(at) = script.find(begin) {
        script.insert_str(at + begin.len(), "    _extant_in_image && return 0\n");
        script.insert_str(at, &format!("{}\n", paths.trim_start()));
    }
    script
}

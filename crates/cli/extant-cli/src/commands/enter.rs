//! The step of `extant shell` between its mount and the command: runs this program again, which enters the image with
//! system calls and executes the command. The step is a separate process, because a process has only one root
//! directory.

use anyhow::{Context, Result};
use extant_cli_core::format::show::ShowPath;
use rustix::process::Signal;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Enter an image and run a command there
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub struct Args {
    /// Make this the root directory
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Command to run
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The directories with programs of a root file system.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Variables of the caller's environment that have a meaning in any root file system.
const KEPT: [&str; 10] = [
    "TERM",
    "COLORTERM",
    "LANG",
    "LC_ALL",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SOURCE_DATE_EPOCH",
    "DEBIAN_FRONTEND",
    "TZ",
];

/// Returns the arguments with which this program runs itself for this step.
pub fn arguments(root: Option<&Path>, command: &[OsString]) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["enter-image".into()];
    if let Some(root) = root {
        words.extend(["--root".into(), root.into()]);
    }
    words.push("--".into());
    words.extend_from_slice(command);
    words
}

pub fn run(args: &Args) -> Result<()> {
    // If the server dies, the image is gone, so the command must end, too.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("tie the command to its server")?;
    // clap guarantees at least one word.
    let (program, words) = args.command.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(words);
    if let Some(root) = &args.root {
        rustix::process::chroot(root).with_context(|| root.shown())?;
        std::env::set_current_dir("/").context("the image's root directory")?;
        command.env_clear();
        command.envs([
            ("PATH", PATH),
            ("HOME", "/root"),
            ("USER", "root"),
            ("LOGNAME", "root"),
            ("SHELL", "/bin/sh"),
            ("TERM", "dumb"),
        ]);
        command.envs(KEPT.iter().filter_map(|k| Some((k, std::env::var_os(k)?))));
    }
    let error = command.exec();
    // Exit codes as in shells: 127 not found, 126 found and not executable.
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    extant_terminal::output::complain(format_args!("{}: {error}", program.to_string_lossy()));
    std::process::exit(code)
}

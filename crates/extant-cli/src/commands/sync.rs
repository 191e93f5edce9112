//! `extant sync`.

use crate::mounted::Mounted;
use anyhow::{Context, Result, bail};
use extant_fuse::control::{Client, Command};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process;

/// Make everything on a mount durable, and hold it still while a command runs
///
/// Without a command, everything written so far is in the image when this returns. With one, no change
/// reaches the image while the command runs: it can copy the image, and the copy is clean.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant sync /mnt\n  extant sync /mnt -- cp --sparse=always disk.img backup.img"
)]
pub struct Args {
    /// Directory that an image is mounted on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Command to run while nothing changes
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<()> {
    let mounted = Mounted::at(&args.dir)?;
    let mut client = mounted.client()?;
    // First what the kernel holds back.
    let dir = rustix::fs::open(
        mounted.dir(),
        OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    dir.and_then(|dir| rustix::fs::syncfs(&dir))
        .with_context(|| mounted.name())?;
    match args.command.split_first() {
        None => client
            .ask(Command::Sync)
            .map(drop)
            .with_context(|| mounted.name()),
        Some((program, rest)) => frozen(&mounted, &mut client, program, rest),
    }
}

fn frozen(
    mounted: &Mounted,
    client: &mut Client,
    program: &OsString,
    rest: &[OsString],
) -> Result<()> {
    client
        .ask(Command::Freeze)
        .with_context(|| format!("{}: freeze", mounted.name()))?;
    let status = process::Command::new(program).args(rest).status();
    let thawed = client
        .ask(Command::Thaw)
        .with_context(|| format!("{}: thaw", mounted.name()));
    let status = status.with_context(|| program.to_string_lossy().into_owned())?;
    thawed?;
    if !status.success() {
        match status.signal() {
            Some(signal) => bail!("{}: ended by signal {signal}", program.to_string_lossy()),
            None => bail!("{}: {status}", program.to_string_lossy()),
        }
    }
    Ok(())
}

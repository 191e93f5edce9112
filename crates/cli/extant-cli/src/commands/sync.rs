//! `extant sync`.

use anyhow::{Context, Result, bail};
use extant_cli_core::mounts::mounted::Mounted;
use extant_fuse::control::{Client, Command};
use extant_terminal::progress::Progress;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process;
use std::time::{Duration, Instant};

/// Make a mount durable, or freeze it while a command runs
///
/// Without a command, everything written so far is in the image when this returns. With a command, no change reaches
/// the image while the command runs, so that the command can make a clean copy of the image.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant sync /mnt\n  extant sync /mnt -- cp --sparse=always disk.img backup.img"
)]
pub struct Args {
    /// Directory that an image is mounted on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Command to run while the mount is frozen
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<()> {
    let mounted = Mounted::at(&args.dir)?;
    if !args.command.is_empty() {
        release_inherited_files(&mounted)?;
    }
    let mut client = mounted.client()?;
    let progress = Progress::wait(&format!("{}: writing", mounted.name()));
    // First flush the kernel's dirty pages.
    let dir = rustix::fs::open(
        mounted.dir(),
        OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    dir.and_then(|dir| rustix::fs::syncfs(&dir))
        .with_context(|| mounted.name())?;
    wait_for_write_back(&mounted, &mut client).with_context(|| mounted.name())?;
    match args.command.split_first() {
        None => client
            .ask(Command::Sync)
            .map(drop)
            .with_context(|| mounted.name()),
        Some((program, rest)) => {
            progress.done();
            frozen(&mounted, &mut client, program, rest)
        }
    }
}

/// Releases the files of the mount that this process inherited. To close one, the kernel writes its dirty pages back, which waits for
/// the end of the freeze. So a COMMAND that has such a file open might never end, and neither would the freeze.
fn release_inherited_files(mounted: &Mounted) -> Result<()> {
    let device = mounted.dir().metadata().with_context(|| mounted.name())?;
    let device = device.dev();
    for (number, name) in [
        (0, "standard input"),
        (1, "standard output"),
        (2, "standard error"),
    ] {
        let file = std::fs::metadata(format!("/proc/self/fd/{number}"));
        if file.is_ok_and(|file| file.is_file() && file.dev() == device) {
            bail!(
                "{}: {name} is a file of this mount, which is frozen while the command runs: redirect it to a file elsewhere",
                mounted.name()
            );
        }
    }
    let others = fuse_server::close_on_exec_of(device).context("/proc/self/fd")?;
    if others == 0 {
        return Ok(());
    }
    // Runs this program again, without these descriptors.
    let mut words = std::env::args_os();
    let mut again = process::Command::new("/proc/self/exe");
    if let Some(name) = words.next() {
        again.arg0(name);
    }
    Err(again.args(words).exec()).context("/proc/self/exe")
}

/// Longest time to retry while other programs keep a mount busy.
const BUSY: Duration = Duration::from_secs(10);
/// If the number of pending requests is unknown, a pause of this length in write requests counts as their end.
const QUIET: Duration = Duration::from_millis(50);

/// Waits until the kernel's write-back requests are completed. For a mount of a file syncfs(2) does not wait for them
/// itself, though all of them have been issued when it returns.
fn wait_for_write_back(mounted: &Mounted, client: &mut Client) -> Result<()> {
    let until = Instant::now() + BUSY;
    let mut last = None;
    while Instant::now() < until {
        match mounted.waiting() {
            Some(0) => return Ok(()),
            Some(_) => std::thread::sleep(Duration::from_millis(1)),
            None => {
                let requests = client.status()?.requests;
                let writes = requests.iter().find(|r| r.kind == "write");
                let now = writes.map_or(0, |w| w.requests);
                if last.replace(now) == Some(now) {
                    return Ok(());
                }
                std::thread::sleep(QUIET);
            }
        }
    }
    extant_terminal::output::warn(format_args!(
        "{}: others keep it busy: what they write just now may come after this sync",
        mounted.name()
    ));
    Ok(())
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

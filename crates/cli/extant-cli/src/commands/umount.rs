//! `extant umount`.

use anyhow::{Context, Result};
use extant_cli_core::address::schemes::is_remote;
use extant_cli_core::messages::advised::advised;
use extant_cli_core::mounts::holders;
use extant_cli_core::mounts::mounted::Mounted;
use extant_fuse::control::Command;
use extant_terminal::progress::Progress;
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Unmount an image, and return when its last byte is written
///
/// umount(8) and fusermount3 unmount too, but return while the server may still write.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant umount /mnt")]
pub struct Args {
    /// Directory that an image is mounted on, or the image
    #[arg(value_name = "DIR|IMAGE")]
    dir: PathBuf,
    /// Detach the mount now even if it is in use, and wait until its last use ends
    #[arg(short, long)]
    lazy: bool,
}

/// Returns the mount on a directory, or that of an image.
fn mount_of(place: &Path) -> Result<Mounted> {
    if place.is_file()
        && let Some(mounted) = Mounted::of_image(place)
    {
        return Ok(mounted);
    }
    Mounted::at(place)
}

/// Returns the error of an unmount, with the processes that use the mount.
fn told(mounted: &Mounted, error: io::Error) -> anyhow::Error {
    let name = mounted.name();
    match holders::of(mounted.dir()) {
        Some(holders) => advised(
            format_args!("{name}: busy: {holders}"),
            "end them, or umount -l detaches it now",
        ),
        None if error.kind() == io::ErrorKind::ResourceBusy => advised(
            format_args!("{name}: busy, by a process that is not seen from here"),
            format_args!("as root fuser -vm {name} names it, and umount -l detaches it now"),
        ),
        None => anyhow::Error::new(error).context(name),
    }
}

/// Time that the server of a mount has to finish the requests of programs. Its last writes have a separate limit.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the server of a mount that has been unmounted to stop its waits, if it has not ended after a while.
fn stop_waits_later(process: Option<u32>) {
    let process = process.and_then(|process| i32::try_from(process).ok());
    let Some(process) = process.and_then(Pid::from_raw) else {
        return;
    };
    let stop = move || {
        std::thread::sleep(PATIENCE);
        // The server of another user ends when its own time is over.
        let _ = kill_process(process, Signal::TERM);
    };
    // Without a thread, the server's waits end by themselves.
    let _ = std::thread::Builder::new().spawn(stop);
}

pub fn run(args: &Args) -> Result<()> {
    let mounted = mount_of(&args.dir)?;
    // Connect before unmounting, because afterwards the server may end at any moment. The server of another user is
    // not queried.
    let mut server = mounted.client().ok();
    let mut process = None;
    if let Some(server) = &mut server {
        // The reply confirms that the server has accepted this client, and will notify the client before it ends.
        let status = server.status().and_then(|status| {
            server.send(Command::WaitForEnd)?;
            Ok(status)
        });
        process = Some(status.with_context(|| mounted.name())?.process);
    }
    let unmounted = if args.lazy {
        fuse_server::detach(mounted.dir())
    } else {
        fuse_server::unmount(mounted.dir())
    };
    if let Err(error) = unmounted {
        return Err(told(&mounted, error));
    }
    if mounted.is_elsewhere() {
        return Ok(());
    }
    match server {
        Some(mut server) => {
            // Programs may use a detached mount for as long as they like, and their requests are not stopped.
            if !args.lazy && is_remote(Path::new(&mounted.image())) {
                stop_waits_later(process);
            }
            let progress = Progress::wait(&format!("{}: writing", mounted.image()));
            let ended = server.receive();
            progress.done();
            ended.with_context(|| format!("{}: closing", mounted.image()))?;
        }
        None => extant_terminal::output::warn(format_args!(
            "{}: unmounted; its server could not be asked, and may still write",
            mounted.name()
        )),
    }
    Ok(())
}

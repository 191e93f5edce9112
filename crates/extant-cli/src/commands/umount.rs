//! `extant umount`.

use crate::mounted::Mounted;
use crate::progress::Progress;
use anyhow::{Context, Result};
use extant_fuse::control::Command;
use std::path::PathBuf;

/// Unmount an image, and return when its last byte is written
///
/// umount(8) and fusermount3 unmount too, but return while the server may still write.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  extant umount /mnt")]
pub struct Args {
    /// Directory that an image is mounted on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Detach it now, though it is in use, and wait until it is not any more
    #[arg(short, long)]
    lazy: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let mounted = Mounted::at(&args.dir)?;
    // Connects before unmounting: afterwards the server may end at any moment. The server of another user is not
    // asked.
    let mut server = mounted.client().ok();
    if let Some(server) = &mut server {
        // Its answer says that it has taken this client on, and will not end without a word.
        server
            .status()
            .and_then(|_| server.send(Command::WaitForEnd))
            .with_context(|| mounted.name())?;
    }
    if args.lazy {
        fuse_server::detach(mounted.dir())
    } else {
        fuse_server::unmount(mounted.dir())
    }
    .with_context(|| mounted.name())?;
    if mounted.is_elsewhere() {
        return Ok(());
    }
    match server {
        Some(mut server) => {
            let progress = Progress::wait(&format!("{}: writing", mounted.image()));
            let ended = server.receive();
            progress.done();
            ended.with_context(|| format!("{}: closing", mounted.image()))?;
        }
        None => crate::output::complain(format_args!(
            "{}: unmounted; its server could not be asked, and may still write",
            mounted.name()
        )),
    }
    Ok(())
}

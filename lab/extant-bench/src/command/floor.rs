//! The floor of a mount: files in memory, served as `extant mount` serves an image, so that the result measures only
//! kernel and transport. `extant-bench` starts the floor as a separate process.

use anyhow::{Context, Result};
use extant_fuse::MountOptions;
use extant_terminal::interrupt;
use extant_terminal::output;
use fuse_server::Transport;
use fuse_server::{
    Answer, Errno, Handler, KernelOffer, MemoryFs, Notifier, Opened, OpenedFlags, Operation,
    Request, Session, SetAttr, Wants,
};
use rustix::fs::OFlags;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Serve files in memory on a directory; again for every line on standard input, until its end
#[derive(clap::Args, Debug)]
#[command(
    hide = true,
    after_help = "Example:\n  extant-bench floor /mnt --transport classic"
)]
pub struct FloorArgs {
    /// Directory to mount the files on
    dir: PathBuf,
    /// Transport of the kernel's requests
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
}

pub fn run(args: &FloorArgs) -> Result<()> {
    let told = || args.dir.display().to_string();
    let dir = args.dir.canonicalize().with_context(told)?;
    let floor = Arc::new(Floor {
        memory: MemoryFs::new(),
        wants: MountOptions::default().wants(),
    });
    let at = dir.clone();
    interrupt::on_signal(move || {
        if fuse_server::unmount(&at).is_err()
            && let Err(e) = fuse_server::detach(&at)
        {
            output::complain(format_args!("{}: {e}", at.display()));
        }
    })?;
    let mut again = std::io::stdin().lock().lines();
    loop {
        serve(&floor, &dir, args.transport).with_context(told)?;
        interrupt::check()?;
        match again.next() {
            Some(line) => line.context("standard input")?,
            None => return Ok(()),
        };
    }
}

/// Serves until the directory is unmounted. The files are kept.
fn serve(floor: &Arc<Floor>, dir: &Path, transport: Transport) -> Result<()> {
    let options = fuse_server::MountOptions {
        subtype: Some("floor".into()),
        ..MountOptions::default().for_kernel("floor")
    };
    let connection = fuse_server::mount(dir, &options)?;
    let handler: Arc<dyn Handler> = Arc::clone(floor) as _;
    Session::new(connection, handler, transport, 0)?.run()?;
    Ok(())
}

/// Files in memory that receive the same requests as those of an image: they are opened, and they might have extended
/// attributes.
struct Floor {
    memory: MemoryFs,
    wants: Wants,
}

/// The reply of a mount.
const OPENED: Opened = Opened {
    handle: 0,
    flags: OpenedFlags::KEEP_CACHE.union(OpenedFlags::PARALLEL_DIRECT_WRITES),
};

impl Floor {
    fn cut(&self, request: &Request<'_>) -> Result<(), Errno> {
        let cut = Operation::SetAttr(SetAttr {
            size: Some(0),
            ..SetAttr::default()
        });
        let request = Request {
            operation: cut,
            ..*request
        };
        let mut unseen = [0; 256];
        self.memory.handle(&request, &mut Answer::new(&mut unseen))
    }

    fn masked(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Option<Result<(), Errno>> {
        let operation = match request.operation {
            Operation::Create {
                name,
                mode,
                umask,
                flags,
                kill_suidgid,
            } => Operation::Create {
                name,
                mode: mode & !umask,
                umask,
                flags,
                kill_suidgid,
            },
            Operation::Mkdir { name, mode, umask } => Operation::Mkdir {
                name,
                mode: mode & !umask,
                umask,
            },
            _ => return None,
        };
        let request = Request {
            operation,
            ..*request
        };
        Some(self.memory.handle(&request, answer))
    }
}

impl Handler for Floor {
    fn init(&self, _: &KernelOffer, _: Notifier) -> Wants {
        self.wants
    }

    fn handle(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Result<(), Errno> {
        match request.operation {
            Operation::Open { flags, .. } => {
                if flags & OFlags::TRUNC.bits() != 0 {
                    self.cut(request)?;
                }
                answer.opened(OPENED);
                Ok(())
            }
            Operation::GetXattr { .. } => Err(Errno::NODATA),
            Operation::SetXattr { .. } | Operation::RemoveXattr { .. } => Err(Errno::OPNOTSUPP),
            _ => self
                .masked(request, answer)
                .unwrap_or_else(|| self.memory.handle(request, answer)),
        }
    }
}

//! `extant shell`: a command inside an image, without root.

use crate::serving::{Serving, TransportArg, mount_options};
use anyhow::{Context, Result, bail, ensure};
use extant::scratch::Changes;
use extant_fuse::MountOptions;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;

/// Run a shell or a command with an image mounted, as root of a world of its own
///
/// The command runs in a user and mount name space of its own, in which you are root and the image is mounted on its
/// working directory: nobody else sees the mount, and it is gone when the command ends. Files it makes belong to root
/// inside the image. Needs no privilege, but a kernel that lets users make user name spaces.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  extant shell disk.img\n  extant shell disk.img -- tar xpf /tmp/rootfs.tar\n  \
                  extant shell --chroot rootfs.img -- apt-get install -y hello"
)]
pub struct Args {
    /// Image file or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Options of the mount, as for `extant mount`
    #[arg(short, value_name = "OPTIONS")]
    o: Vec<String>,
    /// Make the image the root directory of the command, with /proc, /dev and /sys in it as far as they can be had
    #[arg(long)]
    chroot: bool,
    /// Map all the user and group numbers that /etc/subuid and /etc/subgid give you, not only root
    #[arg(long)]
    map_auto: bool,
    /// Leave the image as it is: changes are thrown away
    #[arg(long)]
    scratch: bool,
    /// How requests come from the kernel
    #[arg(long, value_enum, default_value_t = TransportArg::Classic)]
    transport: TransportArg,
    /// The command; a shell if there is none
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Set inside the name spaces.
const INSIDE: &str = "EXTANT_SHELL_INSIDE";

pub fn run(args: &Args) -> Result<()> {
    if std::env::var_os(INSIDE).is_none() {
        ensure!(
            args.image.exists(),
            "{}: no such file or directory",
            args.image.display()
        );
        return Err(enter(args));
    }
    let status = inside(args)?;
    // As a shell says it.
    let code = status.code().or(status.signal().map(|s| 128 + s));
    std::process::exit(code.unwrap_or(1))
}

/// Runs this program anew in name spaces of its own; returns only if that fails.
fn enter(args: &Args) -> anyhow::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return anyhow::Error::new(error).context("this program's own path"),
    };
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private"]);
    // Root needs no user name space to mount, and keeps its devices without one.
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
        if args.map_auto {
            unshare.arg("--map-auto");
        }
    }
    let error = unshare
        .arg("--")
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    anyhow::Error::new(error).context("unshare (of util-linux) cannot be run")
}

fn inside(args: &Args) -> Result<ExitStatus> {
    let options = mount_options(&args.o)?;
    let place = tempfile::tempdir()
        .context("a directory to mount on")?
        .keep();
    let ran = mounted_on(&place, args, options);
    // Without what is in it: should it still be mounted, that is the image.
    let _ = std::fs::remove_dir(&place);
    ran
}

/// Mounts the image and runs the command in it.
fn mounted_on(place: &Path, args: &Args, options: MountOptions) -> Result<ExitStatus> {
    let serving = Serving {
        image: args.image.clone(),
        dir: place.into(),
        options,
        transport: args.transport,
        threads: 0,
        scratch: args.scratch.then_some(Changes::ThrownAway),
    };
    crate::interrupt::leave_to_child()?;
    let ready = serving.start()?;
    let dir = ready.dir().to_path_buf();
    let server = thread::Builder::new()
        .name("serve".into())
        .spawn(move || ready.serve())
        .context("a thread for the server")?;
    let ran = command(args, &dir);
    // What the command left running keeps it busy: it is detached then, and served until that ends.
    if fuse_server::unmount(&dir).is_err() {
        fuse_server::detach(&dir).with_context(|| dir.display().to_string())?;
    }
    match server.join() {
        Ok(served) => served?,
        Err(_) => bail!("the server failed"),
    }
    ran
}

/// Runs the command inside the image.
fn command(args: &Args, dir: &Path) -> Result<ExitStatus> {
    let shell = || std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let words = match args.command.as_slice() {
        [] if args.chroot => vec!["/bin/sh".into()],
        [] => vec![shell()],
        words => words.to_vec(),
    };
    let mut command = if args.chroot {
        for (from, to) in [("/proc", "proc"), ("/dev", "dev"), ("/sys", "sys")] {
            bind(from, &dir.join(to));
        }
        let mut command = Command::new("chroot");
        command.arg(dir).args(&words);
        command
    } else {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    };
    command.current_dir(dir).env_remove(INSIDE);
    let status = command.status();
    if args.chroot {
        for to in ["proc", "dev", "sys"] {
            unbind(&dir.join(to));
        }
    }
    status.with_context(|| words[0].to_string_lossy().into_owned())
}

/// Shows a directory of the system inside the image, if it has a place for it. What is not there, programs do
/// without.
fn bind(from: &str, to: &Path) {
    if to.is_dir() {
        run_quietly("mount", ["--rbind".as_ref(), from.as_ref(), to.as_os_str()]);
    }
}

fn unbind(at: &Path) {
    run_quietly("umount", ["-R".as_ref(), "-l".as_ref(), at.as_os_str()]);
}

fn run_quietly<const N: usize>(program: &str, args: [&OsStr; N]) {
    // It fails where nothing was bound, which is no fault.
    let _ = Command::new(program)
        .args(args)
        .stderr(std::process::Stdio::null())
        .status();
}

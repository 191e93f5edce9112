//! `extant shell`: a command inside an image, without root.

use crate::commands::{enter, mount};
use crate::host::name_spaces;
use crate::host::system::{Lack, System};
use crate::mount::serving::mount_options;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use extant_cli_core::address::schemes;
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::{io_timeout, overlaid, store};
use fuse_server::Transport;
use rustix::mount::{UnmountFlags, mount_bind, mount_bind_recursive, unmount};
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Run a shell or a command with an image mounted, as its root
///
/// The command runs in its own user and mount name spaces, in which you are root and the image is mounted on its
/// working directory. No other process sees the mount, and the mount ends with the command. Files that the command
/// makes belong to root inside the image. The shell needs no privilege, but the kernel must let users make user name
/// spaces. If /etc/subuid and /etc/subgid give you user and group numbers, all of them are available inside; package
/// managers need them. The exit status is that of the command.
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
    /// Make the image the root directory of the command, with this system's /proc, /dev, /sys and resolv.conf wherever
    /// the image has these paths, and with a suitable environment
    #[arg(long)]
    chroot: bool,
    /// Fail unless all user and group numbers of /etc/subuid and /etc/subgid are available
    #[arg(long)]
    map_auto: bool,
    /// Leave the image unchanged: discard changes
    #[arg(long, conflicts_with = "overlay_file")]
    scratch: bool,
    /// Transport of the kernel's requests
    #[arg(long, value_enum, default_value_t = Transport::Classic)]
    transport: Transport,
    /// Do not confine the server of the mount, as for `extant mount`
    #[arg(long)]
    no_sandbox: bool,
    /// Command to run [default: a shell]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Set inside the name spaces.
const INSIDE: &str = "EXTANT_SHELL_INSIDE";

pub fn run(args: &Args) -> Result<()> {
    if std::env::var_os(INSIDE).is_none() {
        ensure!(
            schemes::is_remote(&args.image) || store::file(&args.image).exists(),
            "{}: no such file or directory",
            args.image.shown()
        );
        return Err(enter(args));
    }
    let status = inside(args)?;
    // Exit codes as in shells.
    let code = status.code().or(status.signal().map(|s| 128 + s));
    std::process::exit(code.unwrap_or(1))
}

/// Runs this program again in new name spaces; returns only on failure.
fn enter(args: &Args) -> anyhow::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return anyhow::Error::new(error).context("this program's own path"),
    };
    let mut unshare = Command::new("unshare");
    // A mount that ends outside ends inside, too. Otherwise the shell would keep its device in use.
    unshare.args(["--mount", "--propagation", "slave"]);
    // Root needs no user name space to mount, and keeps its devices without one.
    if !rustix::process::geteuid().is_root() {
        if let Err(why) = user_name_spaces() {
            return why;
        }
        unshare.args(["--user", "--map-root-user"]);
        match subordinate_ids() {
            Ok(()) => {
                unshare.arg("--map-auto");
            }
            Err(why) if args.map_auto => return why,
            // A package manager would fail at the first file of another owner, so report the problem first.
            Err(why) if args.chroot => {
                extant_terminal::output::warn(format_args!("only root is there inside: {why:#}"));
            }
            Err(_) => {}
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

/// Returns whether users may make user name spaces here; if not, the advice. Tested first, because with `--map-auto`
/// unshare would leave a process behind that waits for ever.
fn user_name_spaces() -> Result<()> {
    let may = name_spaces::look(&System::here()).map_err(told);
    may.map(drop)
        .context("you may make no user name space here")
}

/// Returns whether the caller has user and group numbers to map; if not, the advice.
fn subordinate_ids() -> Result<()> {
    System::here().subordinate_ids().map_err(told)
}

fn told(lack: Lack) -> anyhow::Error {
    let remedy = lack.remedy.map(|line| format!(": run `{line}`"));
    anyhow::anyhow!("{}{}", lack.what, remedy.unwrap_or_default())
}

fn inside(args: &Args) -> Result<ExitStatus> {
    // Report errors in the options before anything is mounted.
    mount_options(&args.o)?;
    let place = tempfile::tempdir()
        .context("a directory to mount on")?
        .keep();
    let ran = mounted_on(&place, args);
    // Not recursively: if the image should still be mounted, its files are there.
    let _ = std::fs::remove_dir(&place);
    ran
}

/// Returns the arguments with which `extant mount` serves the image on a directory.
fn words(place: &Path, args: &Args) -> Vec<OsString> {
    let transport = match args.transport.to_possible_value() {
        Some(value) => format!("--transport={}", value.get_name()),
        None => String::new(),
    };
    let mut words: Vec<OsString> = vec!["mount".into(), "--attached".into(), transport.into()];
    words.extend(args.o.iter().map(|list| format!("-o{list}").into()));
    if args.scratch {
        words.push("--scratch".into());
    }
    if let Some(overlay) = overlaid::file(&args.image) {
        words.extend(["--overlay".into(), overlay.into()]);
    }
    if let Some(time) = io_timeout::text() {
        words.extend(["--io-timeout".into(), time.clone()]);
    }
    if args.no_sandbox {
        words.push("--no-sandbox".into());
    }
    words.extend(["--".into(), args.image.clone().into(), place.into()]);
    words
}

/// Mounts the image and runs the command in it.
fn mounted_on(place: &Path, args: &Args) -> Result<ExitStatus> {
    extant_terminal::interrupt::leave_to_child()?;
    let server = mount::server(&args.image, words(place, args).into_iter())?;
    let mut server = mount::start(server)?;
    let dir = place.canonicalize().with_context(|| place.shown())?;
    let ran = command(args, &dir);
    // Processes that the command left running keep the mount busy: detach it then, and serve until they end.
    if fuse_server::unmount(&dir).is_err() {
        fuse_server::detach(&dir).with_context(|| dir.shown())?;
    }
    let status = server.wait().context("the server")?;
    if !status.success() {
        return Err(mount::failed(status));
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
    let shown = if args.chroot {
        show_system(dir)
    } else {
        Vec::new()
    };
    let program = std::env::current_exe().context("this program's own path")?;
    let status = Command::new(program)
        .args(enter::arguments(args.chroot.then_some(dir), &words))
        .current_dir(dir)
        .env_remove(INSIDE)
        .status();
    for place in shown.iter().rev() {
        // Processes that still use the mount keep it until they end; no other process finds it any more.
        let _ = unmount(place, UnmountFlags::DETACH);
    }
    status.with_context(|| words[0].to_string_lossy().into_owned())
}

/// Mounts the parts of the running system that programs expect inside an image: /proc, /dev, /sys and the addresses of
/// name servers, each where the image has a path for it. Returns these paths; failures are ignored.
fn show_system(dir: &Path) -> Vec<PathBuf> {
    let mut shown = Vec::new();
    for (from, to) in [("/proc", "proc"), ("/dev", "dev"), ("/sys", "sys")] {
        let place = dir.join(to);
        if is_plain(&place, |kind| kind.is_dir()) && mount_bind_recursive(from, &place).is_ok() {
            shown.push(place);
        }
    }
    let servers = dir.join("etc/resolv.conf");
    if is_plain(&dir.join("etc"), |kind| kind.is_dir())
        && is_plain(&servers, |kind| kind.is_file())
        && mount_bind("/etc/resolv.conf", &servers).is_ok()
    {
        shown.push(servers);
    }
    shown
}

/// Returns whether this path of the image has the given type and is not a link, which would lead out of the image.
fn is_plain(path: &Path, kind: impl Fn(std::fs::FileType) -> bool) -> bool {
    path.symlink_metadata()
        .is_ok_and(|meta| kind(meta.file_type()))
}

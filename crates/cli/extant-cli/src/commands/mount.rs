//! `extant mount`.

use crate::command_line::help::takes_next_word;
use crate::host::own_words;
use crate::mount::keeper;
use crate::mount::serving::{Serving, mount_options};
use anyhow::{Context, Result, anyhow, ensure};
use extant::scratch::Changes;
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::advice::no_disk;
use extant_cli_core::image::{overlaid, store};
use extant_cli_core::mounts::mounted::Mounted;
use extant_fuse::MountOptions;
use extant_terminal::numbers::size;
use extant_terminal::output;
use fuse_server::Transport;
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Mount an image on a directory, as root or not
///
/// Programs then use the image like any other file system. Unmount it with `extant umount`, which returns when the
/// last byte is in the image. Mounting needs /dev/fuse, and without root also fusermount3 of the package fuse3. With
/// `make install`, `mount -t extant` and /etc/fstab work too.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:
  extant mount disk.img /mnt
  extant mount -o ro,noatime disk.img ~/mnt
  extant mount --scratch release.img ~/mnt
  extant mount --scratch --keep changes.overlay release.img ~/mnt

Options of -o:
  ro, rw                  for reading only, or writing too: what is write-protected is refused then
  remount                 with ro or rw: changes what is mounted already
  allow_other             others than you may use it (without root: user_allow_other in
                          /etc/fuse.conf)
  noatime, relatime, strictatime, lazytime
                          how access times are kept
  nosuid, nodev, noexec   as for any mount; set-id bits and devices count only if root mounts
  cache=SIZE              memory for data in the server (default: a quarter of the machine's)
  commit=SECONDS          time between timed commits (default: 5)
  noauto_da_alloc         data of what replaces a file are not written before it does
  mb_optimize_scan=0|1    groups with free blocks are found one after the other, or by lists
                          (default: 1)
  sync, dirsync           changes wait until they are durable: all, or those of names
  writethrough            writes go to the server at once: a full image fails the write, not
                          the close
  errors=continue|remount-ro|shutdown
                          where the image is damaged: go on without what is damaged, no more
                          changes, or nothing any more (default: what the image asks for)
  offset=BYTES, sizelimit=BYTES
                          the image is that part of its file; IMAGE@p1 is its first partition
  noload                  read-only, without what the image's journal holds
  default_permissions     always so

docs/mount.md has a table of all options of ext4 and of FUSE.")]
pub struct Args {
    /// Image file or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Directory to mount it on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Options, separated by commas; see below
    #[arg(short, value_name = "OPTIONS")]
    o: Vec<String>,
    /// Stay in the foreground, log to the terminal, unmount at ^C
    #[arg(short, long)]
    foreground: bool,
    /// Leave the image unchanged: changes go to a temporary file that is discarded
    #[arg(long)]
    scratch: bool,
    /// With --scratch: keep the changes in this file; if the file exists, continue with its changes. See `extant
    /// apply`
    #[arg(long, value_name = "FILE", requires = "scratch")]
    keep: Option<PathBuf>,
    /// Transport of the kernel's requests
    #[arg(long, value_enum, default_value_t)]
    transport: Transport,
    /// Minimum number of threads that serve; more start when all of them wait [default: the number of CPUs]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = store::threads_given)]
    threads: usize,
    /// Do not confine the server. By default it drops all privileges that it does not need, so that it can no longer
    /// open files, connect or run programs
    #[arg(long)]
    no_sandbox: bool,
    /// File that exists as long as the image is mounted
    #[arg(long, hide = true, value_name = "FILE")]
    lock_file: Option<PathBuf>,
    /// Used by mount(8)
    #[arg(long, hide = true)]
    helper: bool,
    /// Used by `extant mount` for the server in the background: reports on standard output when it serves
    #[arg(long, hide = true)]
    serve: bool,
    /// Used by `extant shell`: ends with the shell, and reports errors to it
    #[arg(long, hide = true, requires = "serve")]
    attached: bool,
    /// Used internally: the process has no descriptors of its caller
    #[arg(long, hide = true)]
    alone: bool,
}

/// The message of the server in the background when it serves.
const SERVES: &str = "serves";

pub fn run(args: &Args) -> Result<()> {
    let has_overlay = overlaid::is_overlaid(&args.image);
    let args = &args.placed()?;
    ensure!(
        has_overlay == overlaid::is_overlaid(&args.image),
        "-o offset= and sizelimit= with --overlay: write IMAGE@offset=BYTES,size=BYTES instead"
    );
    let options = mount_options(&args.o)?;
    if options.remount {
        return super::remount::run(&args.dir, &options);
    }
    // Programs that open the image would end after the exec, and nothing would wait for them.
    if args.foreground && !args.alone {
        return Err(alone(args));
    }
    let read_only = options.read_only;
    // A confined server can examine nothing but the image.
    no_disk(&args.image)?;
    let serving = args.serving(options)?;
    if args.serve {
        return serve_in_background(&serving, args.attached);
    }
    if !args.foreground
        && !args.scratch
        && !overlaid::is_overlaid(&args.image)
        && rustix::process::geteuid().is_root()
        && let Some(mounted) = Mounted::of_image(&args.image)
    {
        return show_again(&mounted, &args.dir, read_only);
    }
    if args.foreground {
        let ready = serving.start()?;
        ready.unmount_on_signal()?;
        output::summary(&format!("{} is mounted", ready.dir().shown()))?;
        crate::mount::service::ready();
        return ready.serve();
    }
    // Errors are reported on standard error.
    start(server(&args.image, own_words::after_name())?).map(drop)
}

/// Mounts an already mounted image on another directory as well. Both directories show the same files, like a file
/// system that Linux mounts twice.
fn show_again(mounted: &Mounted, dir: &Path, read_only: bool) -> Result<()> {
    let name = || dir.shown();
    let (image, first) = (mounted.image(), mounted.name());
    let now_read_only = mounted.mount_options().split(',').any(|o| o == "ro");
    ensure!(
        now_read_only == read_only,
        "{image}: mounted on {first} {}: a second mount cannot differ: extant mount -o remount,{} {first}",
        if now_read_only {
            "for reading only"
        } else {
            "for writing"
        },
        if read_only { "ro" } else { "rw" },
    );
    let dir = dir.canonicalize().with_context(name)?;
    ensure!(
        !mounted.shows(&dir),
        "{}: {image} is mounted here already",
        dir.shown()
    );
    rustix::mount::mount_bind(mounted.dir(), &dir).with_context(name)?;
    output::summary(&format!(
        "{image}: mounted on {first} already; {} shows the same",
        dir.shown()
    ))
}

impl Args {
    /// Removes `offset=` and `sizelimit=`, which mount(8) has for loop devices, from the options: the image is that
    /// part of the file.
    fn placed(&self) -> Result<Self> {
        let mut placed = self.clone();
        let (mut offset, mut limit) = (None, None);
        for list in &mut placed.o {
            let mut kept = Vec::new();
            for option in list.split(',') {
                let slot = match option.split_once('=') {
                    Some(("offset", bytes)) => Some((&mut offset, bytes)),
                    Some(("sizelimit", bytes)) => Some((&mut limit, bytes)),
                    _ => None,
                };
                match slot {
                    Some((slot, bytes)) => {
                        *slot = Some(size(bytes).with_context(|| format!("-o {option}"))?);
                    }
                    None => kept.push(option),
                }
            }
            *list = kept.join(",");
        }
        placed.o.retain(|list| !list.is_empty());
        if offset.is_some() || limit.is_some() {
            let mut image = placed.image.into_os_string();
            image.push(format!("@offset={}", offset.unwrap_or(0)));
            if let Some(limit) = limit {
                image.push(format!(",size={limit}"));
            }
            placed.image = image.into();
        }
        Ok(placed)
    }

    fn serving(&self, mut options: MountOptions) -> Result<Serving<'_>> {
        if self.helper {
            // mount(8) adds "rw" if the user gave no option.
            options.read_write = false;
        }
        let scratch = match (self.scratch, &self.keep) {
            (false, _) => None,
            (true, None) => Some(Changes::ThrownAway),
            (true, Some(file)) => Some(Changes::KeptIn(file)),
        };
        ensure!(
            !(scratch.is_some() && options.read_only),
            "--scratch is for changes: omit -o ro"
        );
        ensure!(
            !(scratch.is_some() && overlaid::is_overlaid(&self.image)),
            "--overlay FILE keeps the changes in a file: omit --scratch"
        );
        Ok(Serving {
            image: self.image.clone(),
            dir: self.dir.clone(),
            options,
            transport: self.transport,
            threads: self.threads,
            scratch,
            words: &self.o,
            sandbox: !self.no_sandbox,
            lock_file: self.lock_file.as_deref(),
        })
    }
}

/// Returns a command that runs this program again, with these words and one more for `mount`. Closes the caller's
/// descriptors except the standard ones, unless one of them is the image.
fn anew(image: &Path, words: impl Iterator<Item = OsString>, more: &str) -> Result<Command> {
    let given = ["/dev/fd/", "/proc/self/fd/"];
    if !given.iter().any(|dir| image.starts_with(dir)) {
        fuse_server::close_on_exec();
    }
    let program = std::env::current_exe().context("this program's own path")?;
    let mut command = Command::new(program);
    let (mut said, mut is_value) = (false, false);
    for word in words {
        // Words before `mount` are options of `extant` and their values; later words may follow a "--".
        let mount = word == "mount" && !is_value;
        is_value = !is_value && takes_next_word(&word);
        command.arg(word);
        if mount && !std::mem::replace(&mut said, true) {
            command.arg(more);
        }
    }
    Ok(command)
}

/// Replaces this process by a new run of this program that serves in the foreground; returns only on failure.
fn alone(args: &Args) -> anyhow::Error {
    match anew(&args.image, own_words::after_name(), "--alone") {
        Ok(mut command) => anyhow::Error::new(command.exec()).context("exec"),
        Err(error) => error,
    }
}

/// Returns the command of a mount's server, not started yet.
pub fn server(image: &Path, words: impl Iterator<Item = OsString>) -> Result<Command> {
    anew(image, words, "--serve")
}

/// Starts the server, and waits until it serves.
pub fn start(mut server: Command) -> Result<Child> {
    let mut server = server
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the server")?;
    let out = server.stdout.take().context("the server's output")?;
    let mut line = String::new();
    BufReader::new(out)
        .read_line(&mut line)
        .context("the server's output")?;
    if line.trim_end() == SERVES {
        return Ok(server);
    }
    Err(failed(server.wait().context("the server")?))
}

/// Returns the error for a server that exited with this status and has already reported the cause.
pub fn failed(status: ExitStatus) -> anyhow::Error {
    match status.code() {
        Some(1) => output::told(),
        _ => anyhow!("the server: {status}"),
    }
}

fn serve_in_background(serving: &Serving<'_>, attached: bool) -> Result<()> {
    if attached {
        // End with the shell, because no other process would unmount the image.
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
            .context("tie the server to the shell")?;
    }
    let ready = serving.start()?;
    ready.unmount_on_signal()?;
    // Leave the terminal, whose signals and hangup do not concern the server, and the current directory.
    rustix::process::setsid().context("setsid")?;
    std::env::set_current_dir("/").context("/")?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .context("/dev/null")?;
    let mut out = std::io::stdout();
    writeln!(out, "{SERVES}").and_then(|()| out.flush())?;
    rustix::stdio::dup2_stdout(&null)?;
    if !attached {
        rustix::stdio::dup2_stderr(&null)?;
    }
    ready.serve()
}

/// Converts a call by `mount(8)`, `mount.extant SOURCE DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]`, into
/// arguments of `extant mount`.
pub fn from_helper(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = vec!["extant".into(), "mount".into(), "--helper".into()];
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.to_str() {
            // Sloppy options, no mtab, and verbose have no effect.
            Some("-s" | "-n" | "-v" | "-sn" | "-nv" | "-snv") => {}
            Some("-t" | "-N") => {
                args.next();
            }
            // The caller of mount(8) gave this option; the "rw" that mount(8) always adds is different.
            Some("-w" | "--rw") => out.retain(|arg| arg != "--helper"),
            Some("-r" | "--ro") => out.extend(["-o".into(), "ro".into()]),
            _ => out.push(arg),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_of_mount_takes_its_words() {
        let words = ["disk.img", "/mnt", "-n", "-t", "extant", "-o", "rw,noatime"];
        let args = from_helper(words.iter().map(OsString::from));
        let want = [
            "extant",
            "mount",
            "--helper",
            "disk.img",
            "/mnt",
            "-o",
            "rw,noatime",
        ];
        assert_eq!(args, want.map(OsString::from));
    }
}

/// Mount for a confined server
#[derive(clap::Args, Debug)]
#[command(hide = true)]
pub struct KeepArgs {
    #[arg(short, value_name = "OPTIONS")]
    o: Vec<String>,
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn keep(args: &KeepArgs) -> Result<()> {
    let serving = Serving {
        image: args.image.clone(),
        dir: args.dir.clone(),
        options: mount_options(&args.o)?,
        transport: Transport::Auto,
        threads: 0,
        scratch: None,
        words: &args.o,
        sandbox: false,
        lock_file: None,
    };
    keeper::run(|how| serving.mount_here(how))
}

//! Peers that are mounted for a run, and unmounted after it in every case: the kernel's ext4, fuse2fs, this engine's
//! own mount, and the floor of that mount.
//!
//! Peers are mounted in a separate mount namespace of this process. When the process ends for any reason, the
//! namespace ends, and with it the mounts and the loop devices. Servers are then asked to unmount and end. A server
//! over io_uring must never be killed while it is the last process of the namespace, because the kernel would wait for
//! it for ever.

use crate::child;
use crate::target::{PathTarget, cpu_of};
use anyhow::{Context, Result, anyhow, bail, ensure};
use fuse_server::Transport;
use rustix::fs::FlockOperation;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Set in a process with a separate mount namespace.
const OWN_MOUNTS: &str = "EXTANT_BENCH_OWN_MOUNTS";

/// A file system that can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The kernel's ext4 on a loop device.
    Kernel,
    /// The kernel's ext4 with fast commits.
    KernelFast,
    /// fuse2fs of e2fsprogs.
    Fuse2fs,
    /// `extant mount`.
    Mount(Transport),
    /// `extant mount` of an image with fast commits.
    Fast(Transport),
    /// `extant mount --no-sandbox`.
    Unconfined(Transport),
    /// Files in memory, served in the same way.
    Floor(Transport),
}

impl Peer {
    /// Returns the peer of this name.
    pub fn of(name: &OsStr) -> Option<Self> {
        use Transport::{Classic, Uring};
        let all = [
            Self::Kernel,
            Self::KernelFast,
            Self::Fuse2fs,
            Self::Mount(Uring),
            Self::Mount(Classic),
            Self::Fast(Uring),
            Self::Fast(Classic),
            Self::Unconfined(Uring),
            Self::Unconfined(Classic),
            Self::Floor(Uring),
            Self::Floor(Classic),
        ];
        all.into_iter().find(|peer| OsStr::new(peer.name()) == name)
    }

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::KernelFast => "kernel:fast",
            Self::Fuse2fs => "fuse2fs",
            Self::Mount(Transport::Classic) => "mount:classic",
            Self::Mount(_) => "mount:uring",
            Self::Fast(Transport::Classic) => "fast:classic",
            Self::Fast(_) => "fast:uring",
            Self::Unconfined(Transport::Classic) => "unconfined:classic",
            Self::Unconfined(_) => "unconfined:uring",
            Self::Floor(Transport::Classic) => "floor:classic",
            Self::Floor(_) => "floor:uring",
        }
    }

    fn shown(self) -> &'static str {
        match self {
            Self::Kernel => "kernel ext4",
            Self::KernelFast => "kernel ext4, fast commits",
            Self::Fast(Transport::Classic) => "mount:classic, fast commits",
            Self::Fast(_) => "mount:uring, fast commits",
            other => other.name(),
        }
    }

    fn transport(self) -> Option<Transport> {
        match self {
            Self::Mount(transport)
            | Self::Fast(transport)
            | Self::Unconfined(transport)
            | Self::Floor(transport) => Some(transport),
            Self::Kernel | Self::KernelFast | Self::Fuse2fs => None,
        }
    }

    /// Returns the server's command line.
    fn server(self, image: &Path, at: &Path) -> Result<Vec<OsString>> {
        let transport = match self.transport() {
            Some(Transport::Classic) => "classic",
            _ => "uring",
        };
        let (words, program): (&[&str], OsString) = match self {
            Self::Mount(_) | Self::Fast(_) => (
                &["mount", "--foreground", "--transport", transport],
                crate::command::setup::extant()?.into(),
            ),
            Self::Unconfined(_) => (
                &[
                    "mount",
                    "--foreground",
                    "--no-sandbox",
                    "--transport",
                    transport,
                ],
                crate::command::setup::extant()?.into(),
            ),
            Self::Floor(_) => (
                &["floor", "--transport", transport],
                crate::command::setup::this_program()?.into(),
            ),
            Self::Kernel | Self::KernelFast | Self::Fuse2fs => (&["-f"], "fuse2fs".into()),
        };
        let mut line = vec![program];
        line.extend(words.iter().map(OsString::from));
        if !matches!(self, Self::Floor(_)) {
            line.push(image.into());
        }
        line.push(at.into());
        Ok(line)
    }
}

/// Returns whether the kernel has FUSE over io_uring and it can be switched on.
pub fn has_uring() -> bool {
    can_mount() && Path::new(SWITCH).exists()
}

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Runs `f` with FUSE over io_uring enabled. The setting is global, so its users must alternate.
fn with_uring<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let told = || format!("{SWITCH}: FUSE over io_uring (Linux 6.14) cannot be switched on");
    let switch = File::open(SWITCH).with_context(told)?;
    rustix::fs::flock(&switch, FlockOperation::LockExclusive).with_context(told)?;
    let before = std::fs::read_to_string(SWITCH).with_context(told)?;
    if before.trim() == "Y" {
        return f();
    }
    std::fs::write(SWITCH, "Y").with_context(told)?;
    let done = f();
    std::fs::write(SWITCH, before.trim()).with_context(told)?;
    done
}

/// The image of a peer.
pub struct Image {
    /// Path of the image.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Journal size in MiB, if not the default of mke2fs.
    pub journal: Option<u64>,
    /// Number of inodes.
    pub inodes: u32,
}

/// Returns whether this process may mount.
pub fn can_mount() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs this program again in a separate mount namespace, unless it already has one.
pub fn own_mounts() -> Result<()> {
    if std::env::var_os(OWN_MOUNTS).is_some() {
        return Ok(());
    }
    ensure!(
        can_mount(),
        "kernel, fuse2fs, mount and floor are mounted, which takes root: \
         run it as root, or mount a file system and name its directory"
    );
    // Mounts of the system stay visible; ours are invisible outside of the namespace.
    let error = Command::new("unshare")
        .args(["--mount", "--propagation", "slave", "--"])
        .arg(crate::command::setup::this_program()?)
        .args(std::env::args_os().skip(1))
        .env(OWN_MOUNTS, "1")
        .exec();
    Err(error).context("unshare (of util-linux) cannot be run")
}

fn run<const N: usize>(program: &str, args: [&OsStr; N]) -> Result<()> {
    child::run(Command::new(program).args(args)).map(drop)
}

fn format(peer: Peer, image: &Image) -> Result<()> {
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096"]);
    command.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    command.arg("-N").arg(image.inodes.to_string());
    if matches!(peer, Peer::KernelFast | Peer::Fast(_)) {
        command.args(["-O", "fast_commit"]);
    }
    if let Some(mib) = image.journal {
        command.arg("-J").arg(format!("size={mib}"));
    }
    let blocks = (image.size / 4096).to_string();
    child::run(command.arg(&image.path).arg(blocks)).map(drop)
}

/// A mounted peer; dropping it unmounts the peer.
pub struct Mounted {
    peer: Peer,
    image: PathBuf,
    at: PathBuf,
    mounted: bool,
    server: Option<Server>,
}

/// A server of a peer.
struct Server {
    process: Child,
    /// Standard error of the server.
    said: File,
}

/// Time limit for a server to mount, or to end after an unmount.
const PATIENCE: Duration = Duration::from_secs(20);

impl Server {
    fn start(line: &[OsString], signal: &str) -> Result<Self> {
        let said = tempfile::tempfile().context("a temporary file")?;
        let process = Command::new("setpriv")
            .args(["--pdeathsig", signal])
            .args(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(said.try_clone().context("a temporary file")?)
            // A separate process group, so that a signal does not interrupt the server before this process unmounts.
            .process_group(0)
            .spawn()
            .context("setpriv (of util-linux) cannot be run")?;
        Ok(Self { process, said })
    }

    /// Returns the last line that the server wrote on standard error.
    fn last_words(&mut self) -> String {
        let mut text = String::new();
        // Read errors count as an empty text.
        let _ = self.said.rewind();
        let _ = self.said.read_to_string(&mut text);
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("is it installed?").into()
    }

    /// Returns whether the server ends without a kill.
    fn ends(&mut self) -> Result<bool> {
        // End of input makes the floor exit instead of mounting again.
        drop(self.process.stdin.take());
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if self.process.try_wait()?.is_some() {
                return Ok(true);
            }
            sleep(Duration::from_millis(1));
        }
        Ok(false)
    }
}

impl Mounted {
    /// Makes an image and mounts it.
    pub fn new(peer: Peer, image: &Image, at: &Path) -> Result<Self> {
        let told = || format!("{} as a peer", peer.name());
        if !matches!(peer, Peer::Floor(_)) {
            format(peer, image).with_context(told)?;
        }
        std::fs::create_dir(at).with_context(|| at.display().to_string())?;
        let mut mount = Self {
            peer,
            image: image.path.clone(),
            at: at.into(),
            mounted: false,
            server: None,
        };
        mount.mount().with_context(told)?;
        Ok(mount)
    }

    fn mount(&mut self) -> Result<()> {
        match self.peer.transport() {
            Some(Transport::Classic) => self.serve(),
            Some(_) => with_uring(|| self.serve()),
            None if self.peer == Peer::Fuse2fs => self.serve(),
            None => {
                let (image, at) = (self.image.as_os_str(), self.at.as_os_str());
                let options = OsStr::new("loop,noatime");
                run("mount", [OsStr::new("-o"), options, image, at])?;
                self.mounted = true;
                Ok(())
            }
        }
    }

    /// Starts the server, which ends with this process, and waits until it serves. A floor that has served before is
    /// asked to serve again, because its files are in its memory.
    fn serve(&mut self) -> Result<()> {
        let before = self.at.metadata()?.dev();
        let server = match &mut self.server {
            Some(server) => {
                let again = server.process.stdin.as_mut();
                writeln!(again.context("the floor's input")?).context("the floor")?;
                server
            }
            none => {
                let line = self.peer.server(&self.image, &self.at)?;
                let signal = match self.peer {
                    Peer::Fuse2fs => "KILL",
                    _ => "TERM",
                };
                none.insert(Server::start(&line, signal)?)
            }
        };
        let start = Instant::now();
        while self.at.metadata().map_or(before, |m| m.dev()) == before {
            if let Some(status) = server.process.try_wait()? {
                bail!("{}: {status}: {}", self.peer.name(), server.last_words());
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "{} does not mount",
                self.peer.name()
            );
            sleep(Duration::from_millis(1));
        }
        self.mounted = true;
        Ok(())
    }

    /// Returns the target.
    pub fn target(&self) -> PathTarget {
        let target = PathTarget::named(&self.at, self.peer.shown().into());
        match &self.server {
            Some(server) => target.served_by(server.process.id()),
            None => target,
        }
    }

    /// Returns the CPU time of its server in seconds.
    pub fn cpu(&self) -> f64 {
        let server = self.server.as_ref();
        server.map_or(0.0, |server| cpu_of(server.process.id()))
    }

    /// Mounts the peer if it is not mounted, for example after a failure.
    pub fn ready(&mut self) -> Result<()> {
        if self.mounted {
            Ok(())
        } else {
            self.mount().with_context(|| self.peer.name())
        }
    }

    /// Unmounts and mounts again, so that no cache holds any of its data.
    pub fn remount(&mut self) -> Result<()> {
        let peer = self.peer.name();
        let told = || format!("{peer} is to be mounted again");
        match self.peer {
            Peer::Floor(_) => {
                self.detach(false).with_context(told)?;
                self.mounted = false;
            }
            _ => self.end().with_context(told)?,
        }
        self.mount().with_context(told)
    }

    /// Unmounts.
    pub fn unmount(mut self) -> Result<()> {
        self.end()
    }

    fn detach(&self, lazily: bool) -> Result<()> {
        let at = self.at.as_os_str();
        match self.peer {
            _ if lazily => run("umount", [OsStr::new("-l"), at]),
            // umount returns when everything is in the image.
            Peer::Mount(_) | Peer::Fast(_) => {
                let program = crate::command::setup::extant()?;
                child::run(Command::new(program).arg("umount").arg(at)).map(drop)
            }
            _ => run("umount", [at]),
        }
    }

    fn end(&mut self) -> Result<()> {
        let mut unmounted = if std::mem::take(&mut self.mounted) {
            self.detach(false)
        } else {
            Ok(())
        };
        if unmounted.is_err() {
            // The lazy unmount completes when no process uses the mount. The first error is the one to report.
            let _ = self.detach(true);
        }
        let Some(mut server) = self.server.take() else {
            return unmounted;
        };
        if self.peer == Peer::Fuse2fs && unmounted.is_err() {
            // Waiting for the server would not end.
            server.process.kill()?;
        }
        if !server.ends()? {
            // The server is asked to end when this process does, and is not killed: see above.
            let left = || anyhow!("{}: its server does not end", self.peer.name());
            unmounted = unmounted.and_then(|()| Err(left()));
        }
        unmounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            extant_terminal::output::complain(format_args!("{}: {error:#}", self.at.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_found_by_their_names() {
        for name in [
            "kernel",
            "fuse2fs",
            "mount:uring",
            "mount:classic",
            "fast:uring",
            "fast:classic",
            "unconfined:uring",
            "unconfined:classic",
            "floor:uring",
            "floor:classic",
        ] {
            assert_eq!(Peer::of(OsStr::new(name)).map(Peer::name), Some(name));
        }
        assert_eq!(Peer::of(OsStr::new("mount")), None);
        assert_eq!(Peer::of(OsStr::new("floor:auto")), None);
    }
}

//! Peers that are mounted for a run, and gone after it however it ends: the kernel's ext4, and fuse2fs.
//!
//! They are mounted in a mount namespace of this process alone. When it ends, by whatever, the namespace
//! goes, with it the mounts, and with them the loop devices.

use anyhow::{Context, Result, bail, ensure};
use extant_bench::child;
use extant_bench::target::PathTarget;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Set in a process that has mounts of its own.
const OWN_MOUNTS: &str = "EXTANT_BENCH_OWN_MOUNTS";

/// A file system that can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The kernel's ext4 on a loop device.
    Kernel,
    /// fuse2fs of e2fsprogs.
    Fuse2fs,
}

impl Peer {
    /// The peer of this name.
    pub fn of(name: &OsStr) -> Option<Self> {
        [Self::Kernel, Self::Fuse2fs]
            .into_iter()
            .find(|peer| OsStr::new(peer.name()) == name)
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Fuse2fs => "fuse2fs",
        }
    }

    fn shown(self) -> &'static str {
        match self {
            Self::Kernel => "kernel ext4",
            Self::Fuse2fs => "fuse2fs",
        }
    }
}

/// The image that a peer is given.
pub struct Image {
    /// Where it is made.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Its journal in MiB, if not what mke2fs takes.
    pub journal: Option<u64>,
    /// Inodes.
    pub inodes: u32,
}

/// Whether anything can be mounted.
pub fn can_mount() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs this program anew in a mount namespace of its own, unless it has one.
pub fn own_mounts() -> Result<()> {
    if std::env::var_os(OWN_MOUNTS).is_some() {
        return Ok(());
    }
    ensure!(
        can_mount(),
        "kernel and fuse2fs are mounted, which takes root: \
         run it as root, or mount a file system and name its directory"
    );
    // Mounts of the system go on to be seen; ours are seen by nobody else.
    let error = Command::new("unshare")
        .args(["--mount", "--propagation", "slave", "--"])
        .arg(std::env::current_exe().context("this program's own path")?)
        .args(std::env::args_os().skip(1))
        .env(OWN_MOUNTS, "1")
        .exec();
    Err(error).context("unshare (of util-linux) cannot be run")
}

fn run<const N: usize>(program: &str, args: [&OsStr; N]) -> Result<()> {
    child::run(Command::new(program).args(args)).map(drop)
}

fn format(image: &Image) -> Result<()> {
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096"]);
    command.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    command.arg("-N").arg(image.inodes.to_string());
    if let Some(mib) = image.journal {
        command.arg("-J").arg(format!("size={mib}"));
    }
    let blocks = (image.size / 4096).to_string();
    child::run(command.arg(&image.path).arg(blocks)).map(drop)
}

/// A peer that is mounted; unmounted when it is dropped.
pub struct Mounted {
    peer: Peer,
    at: PathBuf,
    mounted: bool,
    server: Option<Child>,
}

impl Mounted {
    /// Makes an image and mounts it.
    pub fn new(peer: Peer, image: &Image, at: &Path) -> Result<Self> {
        let told = || format!("{} as a peer", peer.name());
        format(image).with_context(told)?;
        std::fs::create_dir(at).with_context(|| at.display().to_string())?;
        let mut mount = Self {
            peer,
            at: at.into(),
            mounted: false,
            server: None,
        };
        match peer {
            Peer::Kernel => {
                let options = OsStr::new("loop,noatime");
                let args = [OsStr::new("-o"), options, image.path.as_ref(), at.as_ref()];
                run("mount", args).with_context(told)?;
                mount.mounted = true;
            }
            Peer::Fuse2fs => mount.serve(image).with_context(told)?,
        }
        Ok(mount)
    }

    /// Starts fuse2fs, which ends with this process, and waits until it serves.
    fn serve(&mut self, image: &Image) -> Result<()> {
        let before = self.at.metadata()?.dev();
        let mut args: Vec<OsString> = ["--pdeathsig", "KILL", "fuse2fs", "-f"]
            .map(Into::into)
            .into();
        args.extend([image.path.as_os_str().into(), self.at.as_os_str().into()]);
        let server = Command::new("setpriv")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("setpriv (of util-linux) cannot be run")?;
        let server = self.server.insert(server);
        let start = Instant::now();
        while self.at.metadata().map_or(before, |m| m.dev()) == before {
            if let Some(status) = server.try_wait()? {
                bail!("fuse2fs: {status}; is it installed?");
            }
            ensure!(
                start.elapsed() < Duration::from_secs(20),
                "fuse2fs does not mount"
            );
            sleep(Duration::from_millis(10));
        }
        self.mounted = true;
        Ok(())
    }

    /// The target.
    pub fn target(&self) -> PathTarget {
        let target = PathTarget::named(&self.at, self.peer.shown().into());
        match &self.server {
            Some(server) => target.served_by(server.id()),
            None => target,
        }
    }

    /// Unmounts.
    pub fn unmount(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let unmounted = match std::mem::take(&mut self.mounted) {
            true => run("umount", [self.at.as_os_str()]),
            false => Ok(()),
        };
        if let Some(mut server) = self.server.take() {
            if unmounted.is_err() {
                // It would be waited for without end.
                server.kill()?;
            }
            server.wait()?;
        }
        unmounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            crate::output::complain(format_args!("{}: {error:#}", self.at.display()));
        }
    }
}

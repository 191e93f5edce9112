//! A directory of a mounted file system.

use super::{Lister, Name, Open, Target, TaskDir, TaskFile};
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{self, AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A directory of a mounted file system.
pub struct PathTarget {
    root: PathBuf,
    name: String,
    server: Option<u32>,
}

struct PathDir(OwnedFd);
struct PathFile(OwnedFd);
struct PathLister(Dir);

const DIR: OFlags = OFlags::DIRECTORY
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC);

impl PathTarget {
    /// Makes a target from the directory, with the default name.
    pub fn new(root: &Path) -> Self {
        let name = format!("path {}", root.display());
        Self::named(root, name)
    }

    /// Makes a target from the directory, with another name in the report.
    pub fn named(root: &Path, name: String) -> Self {
        let root = root.into();
        Self {
            root,
            name,
            server: None,
        }
    }

    /// Returns the directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Adds the process that serves the directory, because its CPU time counts, too.
    #[must_use]
    pub fn served_by(mut self, process: u32) -> Self {
        self.server = Some(process);
        self
    }
}

const SWITCH: &str = "/proc/sys/vm/drop_caches";
/// Time limit for the kernel to drop its caches.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the kernel drop its caches of all file systems. The kernel waits for every one of them, for ever if a server
/// is gone or stuck. So a separate process makes the request, which can be abandoned.
fn drop_caches() -> Result<()> {
    let mut child = Command::new("sh")
        .args(["-c", &format!("echo 3 > {SWITCH}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("sh")?;
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "only root may ask for it");
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            // The kill takes effect only when the kernel is done, so do not wait for it.
            let _ = child.kill();
            bail!("not done after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Returns the user and system time of a process and its threads, from /proc; 0 if the process is gone.
pub fn cpu_of(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name in parentheses may contain anything; utime and stime are the 12th and 13th field after it.
    let behind = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 = behind
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Returns the output of filefrag for each file, a line each: "NAME: N extents found".
fn filefrag(root: &Path, paths: &[String]) -> Result<Vec<u64>> {
    let out = Command::new("filefrag")
        .args(paths.iter().map(|p| root.join(p)))
        .output()
        .context("filefrag, of e2fsprogs")?;
    anyhow::ensure!(
        out.status.success(),
        "filefrag: {}",
        String::from_utf8_lossy(&out.stderr).trim()
    );
    let of = |line: &str| {
        let count = line.rsplit(": ").next()?.split_whitespace().next()?;
        count.parse().ok()
    };
    let text = String::from_utf8_lossy(&out.stdout);
    let counts: Option<Vec<u64>> = text.lines().map(of).collect();
    let counts = counts.filter(|c| c.len() == paths.len());
    counts.context("what filefrag printed is not understood")
}

impl Target for PathTarget {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn make_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        let full = self.root.join(path);
        std::fs::create_dir(&full).with_context(|| format!("mkdir {}", full.display()))?;
        self.open_dir(path)
    }

    fn open_dir(&self, path: &str) -> Result<Box<dyn TaskDir>> {
        let full = self.root.join(path);
        let opened = fs::open(&full, DIR, Mode::empty());
        Ok(Box::new(PathDir(
            opened.with_context(|| full.display().to_string())?,
        )))
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        let full = self.root.join(path);
        std::fs::remove_dir(&full).with_context(|| format!("rmdir {}", full.display()))
    }

    fn sync(&self) -> Result<()> {
        let fd = fs::open(&self.root, DIR, Mode::empty())?;
        fs::syncfs(&fd).context("syncfs")
    }

    fn extents(&self, paths: &[String]) -> Result<Vec<u64>> {
        let mut all = Vec::with_capacity(paths.len());
        // Limit the length of the command line.
        for some in paths.chunks(1000) {
            all.append(&mut filefrag(&self.root, some)?);
        }
        Ok(all)
    }

    /// Drops the caches of all file systems, which the kernel allows only root.
    fn drop_caches(&self) -> Result<()> {
        drop_caches().with_context(|| format!("{SWITCH}: dropping what the kernel holds in memory"))
    }

    fn other_cpu(&self) -> f64 {
        self.server.map_or(0.0, cpu_of)
    }
}

impl TaskDir for PathDir {
    fn create(&self, name: &str) -> Result<()> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o644))?;
        Ok(())
    }

    fn open_close(&self, name: &str) -> Result<()> {
        fs::openat(&self.0, name, FILE, Mode::empty())?;
        Ok(())
    }

    fn open(&self, name: &str, how: Open) -> Result<Box<dyn TaskFile>> {
        let more = match how {
            Open::Existing => OFlags::empty(),
            Open::Create => OFlags::CREATE,
            Open::Truncate => OFlags::CREATE | OFlags::TRUNC,
        };
        let fd = fs::openat(&self.0, name, FILE | more, Mode::from_raw_mode(0o644))?;
        Ok(Box::new(PathFile(fd)))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    fn rename(&self, old: &str, new: &str) -> Result<()> {
        Ok(fs::renameat(&self.0, old, &self.0, new)?)
    }

    fn stat(&self, name: &str) -> Result<u64> {
        Ok(fs::statat(&self.0, name, AtFlags::empty())?
            .st_size
            .cast_unsigned())
    }

    fn set_mode(&self, name: &str, mode: u16) -> Result<()> {
        let mode = Mode::from_raw_mode(mode.into());
        Ok(fs::chmodat(&self.0, name, mode, AtFlags::empty())?)
    }

    fn free_blocks(&self) -> Result<u64> {
        Ok(fs::fstatvfs(&self.0)?.f_bfree)
    }

    fn make_dir(&self, name: &str) -> Result<Box<dyn TaskDir>> {
        fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o755))?;
        self.open_dir(name)
    }

    fn open_dir(&self, name: &str) -> Result<Box<dyn TaskDir>> {
        let fd = fs::openat(&self.0, name, DIR, Mode::empty())?;
        Ok(Box::new(Self(fd)))
    }

    fn remove_dir(&self, name: &str) -> Result<()> {
        Ok(fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    fn lister(&self) -> Result<Box<dyn Lister>> {
        Ok(Box::new(PathLister(Dir::read_from(&self.0)?)))
    }

    fn again(&self) -> Result<Box<dyn TaskDir>> {
        Ok(Box::new(Self(self.0.try_clone()?)))
    }
}

impl Lister for PathLister {
    fn advance(&mut self) -> Result<bool> {
        Ok(self.0.read().transpose()?.is_some())
    }

    fn rewind(&mut self) -> Result<()> {
        self.0.rewind();
        Ok(())
    }

    fn rest(&mut self) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        while let Some(entry) = self.0.read().transpose()? {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                let is_dir = entry.file_type() == FileType::Directory;
                names.push(Name { name, is_dir });
            }
        }
        Ok(names)
    }
}

impl TaskFile for PathFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(rustix::io::pread(&self.0, buf, offset)?)
    }

    fn write_at(&self, mut offset: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let n = rustix::io::pwrite(&self.0, data, offset)?;
            data = &data[n..];
            offset += n as u64;
        }
        Ok(())
    }

    fn truncate(&self, size: u64) -> Result<()> {
        Ok(fs::ftruncate(&self.0, size)?)
    }

    fn fallocate(&self, offset: u64, len: u64) -> Result<()> {
        Ok(fs::fallocate(
            &self.0,
            FallocateFlags::empty(),
            offset,
            len,
        )?)
    }

    fn fsync(&self) -> Result<()> {
        Ok(fs::fsync(&self.0)?)
    }

    fn size(&self) -> Result<u64> {
        Ok(fs::fstat(&self.0)?.st_size.cast_unsigned())
    }
}

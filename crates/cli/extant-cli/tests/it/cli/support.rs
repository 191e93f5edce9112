//! Scratch images, the command, and the judges.

use crate::cli::remote;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory with one image in it.
pub struct Scratch {
    pub dir: tempfile::TempDir,
    pub image: PathBuf,
}

/// The output and exit code of a run.
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    pub fn of(out: Output) -> Self {
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        Self {
            code: out.status.code(),
            stdout: out.stdout,
            stderr,
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).expect("the output is JSON")
    }
}

/// Runs the command.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Ran {
    Ran::of(
        Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(args)
            .output()
            .expect("extant runs"),
    )
}

/// Runs the command with standard input.
pub fn run_with(args: &[&str], input: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("extant runs");
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    let input = input.to_vec();
    // A command that fails early does not read to the end.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let out = child.wait_with_output().expect("extant ends");
    writer.join().expect("the writer ends");
    Ran::of(out)
}

impl Scratch {
    /// Returns an image made by mke2fs.
    pub fn mke2fs(size: &str, args: &[&str]) -> Option<Self> {
        if !needs::have(&["mke2fs", "e2fsck"]) {
            return None;
        }
        Some(Self::empty().made(size, args))
    }

    /// Adds an image made by mke2fs.
    pub fn made(self, size: &str, args: &[&str]) -> Self {
        let out = Command::new("mke2fs")
            .args(["-q", "-F", "-E", "nodiscard"])
            .args(args)
            .arg(&self.image)
            .arg(size)
            .output()
            .expect("mke2fs runs");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        self
    }

    /// Returns a new ext4 with `/etc/motd`, a link to it, and the directory `/etc/skel`.
    pub fn filled() -> Option<Self> {
        let s = Self::ext4()?;
        std::fs::write(s.host("motd"), "welcome\n").unwrap();
        s.ok(&["mkdir", "-p", ":/etc/skel"]);
        s.ok(&["cp", "@motd", ":/etc/"]);
        s.ok(&["ln", "-s", "motd", ":/etc/link"]);
        Some(s)
    }

    /// Makes the default image: ext4, small.
    pub fn ext4() -> Option<Self> {
        Self::mke2fs("32M", &["-t", "ext4"])
    }

    /// Makes a directory without an image.
    pub fn empty() -> Self {
        Self::at(tempfile::tempdir())
    }

    /// Like [`Self::empty`], in memory, with room for an image larger than the largest file on a disk.
    pub fn in_memory() -> Self {
        Self::at(tempfile::tempdir_in("/dev/shm"))
    }

    fn at(dir: std::io::Result<tempfile::TempDir>) -> Self {
        let dir = dir.expect("a temporary directory");
        let image = dir.path().join("disk.img");
        Self { dir, image }
    }

    /// Returns a path on the host.
    pub fn host(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces a leading `:` by an address of the image, `%` by the image, and `@name` by a path on the host.
    fn expand(&self, args: &[&str]) -> Vec<String> {
        let image = self.image.to_str().expect("UTF-8");
        args.iter()
            .map(|arg| match *arg {
                "%" => image.to_string(),
                arg if arg.starts_with(":/") || arg.starts_with(":<") || arg == ":" => {
                    format!("{image}{arg}")
                }
                arg => match arg.strip_prefix('@') {
                    Some(name) => self.host(name).to_str().expect("UTF-8").to_string(),
                    None => arg.to_string(),
                },
            })
            .collect()
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        run(&self.expand(args))
    }

    pub fn run_with(&self, args: &[&str], input: &[u8]) -> Ran {
        let args = self.expand(args);
        run_with(&args.iter().map(String::as_str).collect::<Vec<_>>(), input)
    }

    /// Runs the command, which must succeed without output on standard error.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(
            (ran.code, ran.stderr.as_str()),
            (Some(0), ""),
            "{args:?}: {}",
            ran.text()
        );
        ran.text()
    }

    /// Runs the command, which must fail with exit code 1 and one line; returns the line.
    #[track_caller]
    pub fn fails(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(1), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
        ran.stderr.trim_end().to_string()
    }

    /// Asserts that e2fsck finds no errors.
    #[track_caller]
    pub fn clean(&self) {
        let out = Command::new("e2fsck")
            .args(["-f", "-n"])
            .arg(&self.image)
            .output()
            .expect("e2fsck runs");
        assert!(
            out.status.success(),
            "e2fsck says\n{}",
            String::from_utf8_lossy(&out.stdout)
        );
    }

    /// Returns the answer of debugfs to a request.
    pub fn debugfs(&self, request: &str) -> String {
        let out = Command::new("debugfs")
            .args(["-R", request])
            .arg(&self.image)
            .output();
        String::from_utf8_lossy(&out.expect("debugfs runs").stdout).into_owned()
    }

    /// Changes the image with debugfs.
    pub fn debugfs_write(&self, request: &str) {
        let mut debugfs = Command::new("debugfs");
        printed(debugfs.args(["-w", "-R", request]).arg(&self.image));
    }

    /// Returns the bytes of the image.
    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.image).expect("the image can be read")
    }
}

/// Returns the output of a program, which must succeed.
#[track_caller]
pub fn printed(command: &mut Command) -> Vec<u8> {
    let out = command.output().unwrap();
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {errors}");
    out.stdout
}

/// Returns whether tests that need root can run: in CI they must.
pub fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        needs::ignored("it takes root");
    }
    root
}

/// The image mounted by the kernel, until it is dropped.
pub struct Mounted {
    point: PathBuf,
    image: PathBuf,
}

impl Mounted {
    /// Mounts the image read-only.
    pub fn new(scratch: &Scratch) -> Option<Self> {
        Self::with(scratch, "loop,ro")
    }

    /// Mounts the image for writing.
    pub fn to_write(scratch: &Scratch) -> Option<Self> {
        Self::with(scratch, "loop,rw,noatime")
    }

    /// Mounts the image with these options.
    pub fn with(scratch: &Scratch, options: &str) -> Option<Self> {
        if !root() {
            return None;
        }
        let point = scratch.host("mounted");
        std::fs::create_dir_all(&point).expect("a mount point");
        let out = Command::new("mount")
            .args(["-o", options])
            .arg(&scratch.image)
            .arg(&point)
            .output();
        let out = out.expect("mount runs");
        if !out.status.success() {
            let why = String::from_utf8_lossy(&out.stderr);
            needs::ignored(&format!("no loop mounts here: {}", why.trim()));
            return None;
        }
        Some(Self {
            point,
            image: scratch.image.clone(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Unmounts the image, which must succeed; then the image contains all writes, and no loop device shows it.
    pub fn unmount(self) {
        drop(self);
    }
}

/// Returns whether a loop device shows the image.
fn is_on_loop(image: &Path) -> bool {
    let image = image.as_os_str().as_bytes();
    let devices = std::fs::read_dir("/sys/block").unwrap();
    devices.flatten().any(|device| {
        let file = std::fs::read(device.path().join("loop/backing_file"));
        file.is_ok_and(|file| file.trim_ascii_end() == image)
    })
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmount = || Command::new("umount").arg(&self.point).output().unwrap();
        let mut out = unmount();
        if std::thread::panicking() {
            return;
        }
        // A child process of another test may hold a file of the mount for a moment.
        remote::wait_until(|| {
            if !out.status.success() {
                out = unmount();
            }
            out.status.success()
        });
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "umount: {said}");
        // The mount name space of another test has a copy of the mount while that test runs.
        remote::wait_until(|| !is_on_loop(&self.image));
        assert!(!is_on_loop(&self.image), "the loop device stays");
    }
}

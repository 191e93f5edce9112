//! Images mounted for a test, and unmounted after it in every case.
//!
//! Each test runs in a separate process and mount name space: no other process sees its mounts, and they end with the
//! process. Servers get SIGTERM when the test's process ends; a server over io_uring is never killed while it is
//! mounted.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The command under test.
pub const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

const INSIDE: &str = "EXTANT_TEST_OWN_MOUNTS";

/// Time limit of one test.
const LONGEST: Duration = Duration::from_secs(if cfg!(debug_assertions) { 600 } else { 300 });
/// Time limit of one test of a torture run, which does many times the work.
const LONGEST_TORTURE: Duration = Duration::from_secs(2 * 3600);

/// Reports that a test cannot run here: on standard error, and as a failure in CI.
#[track_caller]
pub fn cannot(why: &str) {
    needs::ignored(why);
}

/// Runs a test in a separate process and mount name space.
pub fn isolated(test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    if !rustix::process::geteuid().is_root() {
        return cannot("mounting for tests takes root");
    }
    if !Path::new("/dev/fuse").exists() {
        return cannot("there is no /dev/fuse");
    }
    let thread = std::thread::current();
    let name = thread.name().expect("the test runner names its threads");
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "slave", "--"])
        .arg(exe)
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1");
    let longest = match std::env::var_os("EXTANT_TORTURE") {
        Some(_) => LONGEST_TORTURE,
        None => LONGEST,
    };
    let output = run_for(command, longest).unwrap_or_else(|| panic!("{name} takes too long"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}:\n{text}");
    assert!(text.contains("1 passed"), "{name} did not run:\n{text}");
    print!("{text}");
}

/// Runs a command with a time limit; returns `None` if the command took longer and was terminated.
pub fn run_for(mut command: Command, longest: Duration) -> Option<Output> {
    let dir = tempfile::tempdir().unwrap();
    // Redirect to files, because a full pipe would block the command.
    let file = |name| std::fs::File::create(dir.path().join(name)).unwrap();
    command
        .stdin(Stdio::null())
        .stdout(file("out"))
        .stderr(file("err"));
    let mut child = command
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let status = wait(&mut child, longest);
    if status.is_none() {
        terminate(&child);
        let _ = wait(&mut child, Duration::from_secs(20));
    }
    let read = |name| std::fs::read(dir.path().join(name)).unwrap();
    if status.is_none() {
        eprintln!("{}", String::from_utf8_lossy(&read("err")));
    }
    Some(Output {
        status: status?,
        stdout: read("out"),
        stderr: read("err"),
    })
}

/// Waits for a process, at most for `longest`.
pub fn wait(child: &mut Child, longest: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + longest;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        sleep(Duration::from_millis(5));
    }
}

fn terminate(child: &Child) {
    let _ = rustix::process::kill_process(
        rustix::process::Pid::from_child(child),
        rustix::process::Signal::TERM,
    );
}

/// Runs a program, which must succeed, and returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a shell script in a directory, with `set -eu`.
pub fn script(dir: &Path, text: &str) -> String {
    run(Command::new("bash")
        .args(["-euc", text])
        .current_dir(dir)
        .env("LC_ALL", "C"))
}

/// Runs `extant`, which must succeed, and returns its output.
pub fn extant<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> String {
    run(Command::new(EXTANT).args(args))
}

/// Transport of requests to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// /dev/fuse.
    Classic,
    /// io_uring.
    Uring,
}

impl Transport {
    pub fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Uring => "uring",
        }
    }
}

/// Returns the transports that this kernel supports, or those of EXTANT_MOUNT_SERVERS. Enables io_uring: the setting
/// is global, and stays enabled, because another test may be using it.
pub fn transports() -> Vec<Transport> {
    let asked = std::env::var("EXTANT_MOUNT_SERVERS").ok();
    let switch = "/sys/module/fuse/parameters/enable_uring";
    let mut found = vec![Transport::Classic];
    if Path::new(switch).exists() {
        let _ = std::fs::write(switch, "Y");
        if std::fs::read_to_string(switch).is_ok_and(|on| on.trim() == "Y") {
            found.push(Transport::Uring);
        }
    }
    found.retain(|t| {
        asked
            .as_ref()
            .is_none_or(|names| names.split(',').any(|n| n == t.name()))
    });
    assert!(
        !found.is_empty(),
        "EXTANT_MOUNT_SERVERS names none of this kernel's"
    );
    found
}

/// Runs a test in its own name space, once over each transport.
pub fn over_each(test: impl Fn(Transport)) {
    isolated(|| {
        for transport in transports() {
            eprintln!("over {}", transport.name());
            test(transport);
        }
    });
}

/// Runs a test over each transport in the long form, and over one of them in short, which `name` selects: tests with different names
/// use different ones.
pub fn over_one(name: &str, test: impl Fn(Transport)) {
    if std::env::var_os("EXTANT_TORTURE").is_some() {
        return over_each(test);
    }
    isolated(|| {
        let transports = transports();
        let sum: usize = name.bytes().map(usize::from).sum();
        let transport = transports[sum % transports.len()];
        eprintln!("over {}", transport.name());
        test(transport);
    });
}

/// Returns a place for images and directories, in memory if there is one.
pub fn place() -> tempfile::TempDir {
    needs::memory_dir()
}

/// Makes an image of ext4 with these arguments of mke2fs.
pub fn image(dir: &Path, size: &str, more: &[&str]) -> PathBuf {
    let image = dir.join("disk.img");
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F"]).args(more);
    if !more.contains(&"-t") {
        command.args(["-t", "ext4"]);
    }
    run(command.arg(&image).arg(size));
    image
}

/// Asserts that e2fsck finds no errors.
pub fn assert_clean(image: &Path) {
    let output = Command::new("e2fsck")
        .arg("-fn")
        .arg(image)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}:\n{text}", image.display());
}

/// An image that is mounted.
pub struct Mounted {
    dir: PathBuf,
    image: PathBuf,
    server: Option<Child>,
    transport: Transport,
}

impl Mounted {
    /// Mounts an image on a new directory next to it.
    pub fn new(image: &Path, transport: Transport, options: &[&str]) -> Self {
        Self::with(image, transport, &[], options)
    }

    /// Mounts like [`Self::new`], by a caller with one more descriptor than the standard ones.
    pub fn with_descriptor(image: &Path, transport: Transport, open: &std::fs::File) -> Self {
        rustix::io::fcntl_setfd(open, rustix::io::FdFlags::empty()).unwrap();
        Self::new(image, transport, &[])
    }

    /// Mounts like [`Self::new`], with more arguments for `extant mount`.
    pub fn with(image: &Path, transport: Transport, args: &[&str], options: &[&str]) -> Self {
        let dir = image.with_extension("mnt");
        Self::start(image, dir, transport, args, options, &[])
    }

    /// Mounts an image of a server on a directory.
    pub fn on(image: &Path, dir: &Path, transport: Transport) -> Self {
        Self::on_with(image, dir, transport, &[])
    }

    /// Mounts like [`Self::on`], with more arguments for `extant mount`.
    pub fn on_with(image: &Path, dir: &Path, transport: Transport, args: &[&str]) -> Self {
        Self::start(image, dir.into(), transport, args, &[], &[])
    }

    /// Mounts like [`Self::on`], with variables of the environment.
    pub fn on_env(image: &Path, dir: &Path, envs: &[(&str, &str)]) -> Self {
        Self::start(image, dir.into(), Transport::Classic, &[], &[], envs)
    }

    fn start(
        image: &Path,
        dir: PathBuf,
        transport: Transport,
        args: &[&str],
        options: &[&str],
        envs: &[(&str, &str)],
    ) -> Self {
        let _ = std::fs::create_dir(&dir);
        // The server ends with the thread that starts it, and a test is one thread.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "TERM", EXTANT, "mount", "--foreground"])
            .args(["--transport", transport.name()])
            .args(args);
        for option in options {
            command.args(["-o", option]);
        }
        let server = command
            .arg(image)
            .arg(&dir)
            .envs(envs.iter().copied())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut mounted = Self {
            dir,
            image: image.into(),
            server: Some(server),
            transport,
        };
        mounted.wait_until_mounted();
        mounted
    }

    fn wait_until_mounted(&mut self) {
        let start = Instant::now();
        // The socket exists once the server serves.
        while !is_mounted(&self.dir) || extant_status(&self.dir).is_none() {
            if let Some(status) = self.server.as_mut().unwrap().try_wait().unwrap() {
                self.server = None;
                panic!("the server ended: {status}");
            }
            assert!(
                start.elapsed() < Duration::from_secs(120),
                "it does not mount"
            );
            sleep(Duration::from_millis(5));
        }
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the image.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Unmounts, waits until the image is complete, and checks it with e2fsck.
    pub fn unmount(mut self) {
        run(Command::new(EXTANT).arg("umount").arg(&self.dir));
        let mut server = self.server.take().unwrap();
        let status = wait(&mut server, Duration::from_secs(30)).expect("the server ends");
        assert!(status.success(), "the server: {status}");
        assert_clean(&self.image);
    }

    /// Asks the server to end, and waits for its end.
    pub fn terminate(mut self) {
        let mut server = self.server.take().unwrap();
        terminate(&server);
        let status = wait(&mut server, Duration::from_secs(30)).expect("the server ends");
        assert!(status.success(), "the server: {status}");
        assert!(!is_mounted(&self.dir));
    }

    /// Returns the number of the server's process.
    pub fn server_id(&self) -> u32 {
        self.server.as_ref().unwrap().id()
    }

    /// Kills the server and `extant-remote`, which serves it, at once.
    pub fn kill_with_helper(self) {
        let server = self.server.as_ref().unwrap().id();
        let children = format!("/proc/{server}/task/{server}/children");
        let children = std::fs::read_to_string(children).unwrap();
        let helpers = children.split_whitespace().filter(|child| {
            // A zombie has no command line.
            let line = std::fs::read_to_string(format!("/proc/{child}/cmdline"));
            line.is_ok_and(|line| line.contains("extant-remote\0serve"))
        });
        let helpers: Vec<&str> = helpers.collect();
        assert_eq!(helpers.len(), 1, "{children}");
        run(Command::new("kill").arg("-KILL").args(&helpers));
        self.kill();
    }

    /// Waits until the volume has stopped after an error, and kills its server.
    pub fn kill_when_stopped(self) {
        let start = Instant::now();
        while std::fs::write(self.dir.join("probe"), "x").is_ok() {
            assert!(start.elapsed() < Duration::from_secs(60), "no error");
            sleep(Duration::from_millis(5));
        }
        self.kill();
    }

    /// Kills the server like a power failure, and removes the rest of the mount. Only over /dev/fuse: see
    /// docs/mount.md.
    pub fn kill(mut self) {
        assert_eq!(self.transport, Transport::Classic);
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        run(Command::new("umount").arg("-l").arg(&self.dir));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(mut server) = self.server.take() else {
            return;
        };
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        if wait(&mut server, Duration::from_secs(10)).is_none() {
            terminate(&server);
            if wait(&mut server, Duration::from_secs(10)).is_none() {
                eprintln!("server {} does not end", server.id());
            }
        }
    }
}

/// A directory on which a background server serves. Dropping it, for example after a failed test, unmounts the
/// directory, and the server ends.
pub struct InBackground<'a>(pub &'a Path);

impl Drop for InBackground<'_> {
    fn drop(&mut self) {
        if is_mounted(self.0) {
            let _ = Command::new("umount").arg("-l").arg(self.0).status();
        }
    }
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = dir.to_str().unwrap();
    mounts.lines().any(|l| l.split(' ').nth(4) == Some(dir))
}

fn extant_status(dir: &Path) -> Option<serde_json::Value> {
    let out = Command::new(EXTANT)
        .args(["status", "--json"])
        .arg(dir)
        .stderr(Stdio::null())
        .output()
        .unwrap();
    serde_json::from_slice(&out.stdout).ok()
}

/// Returns the status of a mount.
pub fn status(dir: &Path) -> serde_json::Value {
    extant_status(dir).expect("a status")
}

/// The kernel's ext4 on the same image, through a loop device.
pub struct Kernel {
    dir: PathBuf,
}

impl Kernel {
    pub fn new(image: &Path, options: &str) -> Self {
        let dir = image.with_extension("kernel");
        let _ = std::fs::create_dir(&dir);
        let options = format!("loop,{options}");
        run(Command::new("mount")
            .args(["-t", "ext4", "-o", &options])
            .arg(image)
            .arg(&dir));
        Self { dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.dir).status();
        if !unmounted.is_ok_and(|s| s.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
            assert!(
                std::thread::panicking(),
                "{}: cannot be unmounted",
                self.dir.display()
            );
        }
    }
}

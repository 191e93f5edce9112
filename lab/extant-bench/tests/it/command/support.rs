//! A place for a test, and the commands.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

const BENCH: &str = env!("CARGO_BIN_EXE_extant-bench");

/// Returns the command, without memory preparation, because its times do not matter.
pub fn bench() -> Command {
    let mut command = Command::new(BENCH);
    command.env("EXTANT_BENCH_TOUCH", "0");
    command
}

/// Output of a run.
pub struct Ran {
    pub code: Option<i32>,
    stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    fn of(out: Output) -> Self {
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
        let json = serde_json::from_slice(&self.stdout);
        json.unwrap_or_else(|e| panic!("no JSON: {e}: {}", self.stderr))
    }
}

/// Runs the command; the command `extant` is next to it.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Ran {
    needs::program("extant-cli", "extant");
    let out = bench().args(args).output();
    Ran::of(out.expect("extant-bench runs"))
}

/// A directory for a test, and an image that may be made in it.
pub struct Scratch {
    pub dir: tempfile::TempDir,
    image: PathBuf,
}

impl Scratch {
    pub fn empty() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let image = dir.path().join("disk.img");
        Self { dir, image }
    }

    /// Returns a path in the directory.
    pub fn host(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the command; `%` is the image, `@name` a path in the directory.
    pub fn run(&self, args: &[&str]) -> Ran {
        let place = |arg: &&str| match (*arg, arg.strip_prefix('@')) {
            ("%", _) => self.image.clone().into_os_string(),
            (_, Some(name)) => self.host(name).into_os_string(),
            (arg, None) => arg.into(),
        };
        run(&args.iter().map(place).collect::<Vec<_>>())
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
        assert!(ran.stderr.starts_with("extant-bench: "), "{}", ran.stderr);
        ran.stderr.trim_end().to_string()
    }
}

/// Returns whether tests that need root can run: in CI they must.
pub fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        needs::ignored("it takes root");
    }
    root
}

//! Images in temporary files, and the tools that judge them.

use blockdev::{Access, FileDevice};
use extant_mkfs::{MkfsOptions, MkfsReport, Prepared};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const UUID: [u8; 16] = *b"0123456789abcdef";
pub const EPOCH: i64 = 1_700_000_000;

/// Options that give the same bytes every time.
pub fn options() -> MkfsOptions {
    MkfsOptions {
        uuid: Some(UUID),
        ..MkfsOptions::default()
    }
}

fn missing(program: &str, e: &std::io::Error) -> String {
    format!(
        "{program} (Debian package {}): {e}",
        needs::package(program)
    )
}

/// Runs a tool. `None` if it is not installed, which is an error in CI.
pub fn run(program: &str, args: &[&str]) -> Option<Output> {
    match Command::new(program).args(args).output() {
        Ok(out) => Some(out),
        Err(e) => {
            needs::ignored(&missing(program, &e));
            None
        }
    }
}

/// Runs a tool that must succeed; returns its output.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = run(program, args)?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{program} {args:?}: {}\n{text}{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    Some(text)
}

/// Opens an image. Children that other tests are starting may hold its lock for a moment.
pub fn open(path: &Path) -> FileDevice {
    for _ in 0..100 {
        if let Ok(device) = FileDevice::open(path, Access::ReadWrite) {
            return device;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    FileDevice::open(path, Access::ReadWrite).unwrap()
}

/// Returns a directory for a test, in memory if there is a file system there.
pub fn scratch() -> tempfile::TempDir {
    let base = Path::new("/dev/shm");
    let made = tempfile::Builder::new()
        .prefix("extant-mkfs-")
        .tempdir_in(base);
    made.or_else(|_| tempfile::tempdir()).unwrap()
}

/// An image in a temporary directory.
pub struct Image {
    pub dir: tempfile::TempDir,
    pub path: PathBuf,
    pub report: MkfsReport,
}

impl Image {
    /// Writes the prepared volume.
    pub fn write(prepared: &Prepared) -> Self {
        let dir = scratch();
        let path = dir.path().join("image");
        let device = FileDevice::create(&path, prepared.size()).unwrap();
        let report = prepared.write(&device).unwrap();
        Self { dir, path, report }
    }

    pub fn str(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Asserts that e2fsck reports nothing.
    pub fn check(&self, what: &str) {
        let Some(out) = run("e2fsck", &["-fn", self.str()]) else {
            return;
        };
        let text = String::from_utf8_lossy(&out.stdout);
        let clean = out.status.success() && !text.contains("? no") && !text.contains("WARNING");
        assert!(
            clean,
            "{what}: e2fsck: {text}{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }

    pub fn debugfs(&self, request: &str) -> Option<String> {
        output("debugfs", &["-R", request, self.str()])
    }

    /// Mounts the image read-only, or not at all without the rights.
    pub fn mount(&self) -> Option<Mount> {
        self.mount_with("ro,noload")
    }

    pub fn mount_with(&self, options: &str) -> Option<Mount> {
        if !rustix::process::geteuid().is_root() {
            needs::ignored("mounting takes root");
            return None;
        }
        let at = self.dir.path().join("mnt");
        std::fs::create_dir_all(&at).unwrap();
        let options = format!("loop,{options}");
        let to = at.to_str().unwrap();
        output("mount", &["-t", "ext4", "-o", &options, self.str(), to])?;
        Some(Mount { at })
    }
}

/// A mounted image, unmounted on drop.
pub struct Mount {
    pub at: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A child that another test is starting may hold a file of the mount for a moment.
        for _ in 0..100 {
            let done = Command::new("umount").arg("-q").arg(&self.at).status();
            if done.is_ok_and(|s| s.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

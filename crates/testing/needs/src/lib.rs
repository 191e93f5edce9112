//! The tools and features that a test needs of its machine.
//!
//! A test that cannot run must not look like one that passed. In CI (the environment variable `CI` is set) a missing
//! tool fails the test, and the message names the Debian package that has it. Elsewhere the test is ignored, and
//! reports the reason on standard error, past the capturing of the test runner. If `EXTANT_IGNORED` names a file, a
//! line goes there too, and `make test` prints these lines at its end. The standard test runner does not support
//! ignoring a running test.
//!
//! ```
//! # fn main() {
//! needs::tools!("sh");          // returns from the test if it is missing
//! needs::that!(cfg!(unix), "this is no Unix");
//! assert!(needs::have(&["sh"])); // for tests that continue without the tool
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod ceph;
pub mod servers;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Returns a directory in memory, if there is one, for images: programs that make and check images flush them often.
///
/// # Panics
/// No directory can be made.
pub fn memory_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap_or_else(|e| panic!("a temporary directory: {e}"))
}

/// The tools that tests may ask for, by the Debian package that has them. The package `pypi` stands for programs of PyPI.
/// `make tools` installs the packages; a test of the engine's `tests/it/testing.rs` checks that.
const PACKAGES: &[(&str, &[&str])] = &[
    (
        "e2fsprogs",
        &[
            "mke2fs",
            "e2fsck",
            "debugfs",
            "dumpe2fs",
            "tune2fs",
            "filefrag",
            "resize2fs",
            "chattr",
            "lsattr",
            "e2image",
            "e2label",
            "e2freefrag",
        ],
    ),
    ("acl", &["setfacl", "getfacl"]),
    ("attr", &["setfattr", "getfattr"]),
    ("fuse3", &["fusermount3"]),
    ("mount", &["mount", "umount", "losetup"]),
    ("bsdutils", &["script"]),
    ("fdisk", &["sfdisk"]),
    ("gdisk", &["sgdisk"]),
    ("qemu-utils", &["qemu-img", "qemu-nbd"]),
    ("qemu-system-common", &["qemu-storage-daemon"]),
    ("qemu-system-x86", &["qemu-system-x86_64"]),
    ("android-sdk-libsparse-utils", &["simg2img", "img2simg"]),
    ("squashfs-tools", &["mksquashfs", "unsquashfs"]),
    ("xz-utils", &["xz"]),
    ("libarchive-tools", &["bsdtar"]),
    ("uidmap", &["newuidmap", "newgidmap"]),
    (
        "util-linux",
        &["unshare", "setpriv", "fallocate", "prlimit"],
    ),
    ("busybox-static", &["busybox"]),
    ("cryptsetup-bin", &["veritysetup"]),
    ("coreutils", &["chroot", "cp", "mkdir"]),
    ("dash", &["sh"]),
    ("pypi", &["moto_server"]),
];

/// The packages with one tool of their name.
const SAME_NAME: &[&str] = &[
    "bash",
    "bzip2",
    "cpio",
    "curl",
    "dbench",
    "fio",
    "fish",
    "gcc",
    "git",
    "gzip",
    "make",
    "mmdebstrap",
    "nbdkit",
    "nbd-server",
    "openssl",
    "rsync",
    "sqlite3",
    "stress-ng",
    "tar",
    "tmux",
    "valgrind",
    "zsh",
    "zstd",
];

/// Returns the Debian packages that tests may ask for, each with its tools.
pub fn packages() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let same = SAME_NAME
        .iter()
        .map(|tool| (*tool, std::slice::from_ref(tool)));
    PACKAGES.iter().copied().chain(same)
}

/// Returns Debian's package with a tool.
///
/// # Panics
/// The tool is not in the tables above. A test of a machine that happens to have the tool would pass, and fail on the next one.
#[track_caller]
pub fn package(tool: &str) -> &str {
    let known = PACKAGES.iter().find(|(_, tools)| tools.contains(&tool));
    let same = SAME_NAME.contains(&tool).then_some(tool);
    known.map(|(package, _)| *package).or(same).unwrap_or_else(|| {
        panic!("{tool} is not in the tables of crates/testing/needs: add it there and to `make tools`")
    })
}

/// Returns whether a tool exists: an executable file of that name in one of the directories of `PATH`, or where
/// administrators' tools are.
pub fn is_there(tool: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path).chain(usual).any(|dir| {
        let file = std::fs::metadata(dir.join(tool));
        file.is_ok_and(|f| f.is_file() && f.permissions().mode() & 0o111 != 0)
    })
}

/// Returns whether all of these tools exist; if not, [`ignored`] is called.
#[track_caller]
pub fn have(tools: &[&str]) -> bool {
    let missing: Vec<String> = tools
        .iter()
        .map(|tool| (tool, package(tool)))
        .filter(|(tool, _)| !is_there(tool))
        .map(|(tool, package)| format!("{tool} (Debian package {package})"))
        .collect();
    if !missing.is_empty() {
        ignored(&format!("missing: {}", missing.join(", ")));
    }
    missing.is_empty()
}

/// Reports that the running test cannot run, with the reason: a failure in CI, a line elsewhere.
///
/// # Panics
/// In CI.
#[track_caller]
pub fn ignored(why: &str) {
    let line = line(why);
    assert!(
        std::env::var_os("CI").is_none(),
        "in CI every test runs, but {line}"
    );
    say(&line);
}

/// Returns the path of a program of another package of this workspace, built in the profile of the running test:
/// Cargo builds with a test only what its own package makes.
///
/// # Panics
/// If it cannot be built.
pub fn program(package: &str, name: &str) -> PathBuf {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let test = std::env::current_exe().expect("the test's own path");
    // target/PROFILE/deps/TEST
    let place = test.ancestors().nth(2).expect("a build's directories");
    let program = place.join(name);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    // `make test` builds all programs first, and sets this variable.
    let ready = std::env::var_os("EXTANT_BUILT").is_some() && program.exists();
    if ready || built.contains(&program) {
        return program;
    }
    let profile = match place.file_name().and_then(OsStr::to_str) {
        Some("debug") => "dev",
        Some(other) => other,
        None => panic!("{}: no directory of a build", place.display()),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", package, "--bin", name]);
    command.args(["--profile", profile, "--target-dir"]);
    command.arg(place.parent().expect("a build's directory"));
    let done = command.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(
        done.as_ref().is_ok_and(|status| status.success()),
        "{command:?}: {done:?}"
    );
    built.insert(program.clone());
    program
}

fn say(line: &str) {
    // eprintln is captured by the test runner; this is not.
    let _ = writeln!(std::io::stderr(), "ignored: {line}");
    if let Some(file) = std::env::var_os("EXTANT_IGNORED") {
        note(Path::new(&file), line);
    }
}

/// Reports that the test lacks something which not every machine can have, CI's included, such as a newer kernel: a
/// line everywhere.
#[track_caller]
pub fn told(why: &str) {
    say(&line(why));
}

#[track_caller]
fn line(why: &str) -> String {
    let thread = std::thread::current();
    let place = std::panic::Location::caller();
    let test = thread.name().unwrap_or("a test");
    format!("{}, {test}: {why}", place.file())
}

fn note(file: &Path, line: &str) {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    // A single write, so that lines of several processes do not mix. A failed write of the summary does not fail a
    // test.
    let _ = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}

/// Returns from a test through [`ignored`] if a tool is missing. Several tools are checked together.
#[macro_export]
macro_rules! tools {
    ($($tool:expr),+ $(,)?) => {
        if !$crate::have(&[$($tool),+]) {
            return;
        }
    };
}

/// Returns from a test through [`ignored`] unless a condition holds; the reason names the missing part.
#[macro_export]
macro_rules! that {
    ($so:expr, $why:expr) => {
        if !$so {
            $crate::ignored($why);
            return;
        }
    };
}

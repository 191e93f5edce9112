//! `make install` and `make uninstall`.

use crate::cli::support::run;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

fn make(dir: &Path, target: &str) -> Output {
    Command::new("make")
        .arg("--no-print-directory")
        .arg(target)
        .arg(format!("EXTANT={EXTANT}"))
        .arg(format!("DESTDIR={}", dir.display()))
        .args(["PREFIX=/opt/local", "SBINDIR=/sbin"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."))
        .env_remove("MAKEFLAGS")
        .output()
        .expect("make runs")
}

#[track_caller]
fn made(dir: &Path, target: &str) {
    let out = make(dir, target);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && err.is_empty(), "{target}: {err}");
}

/// Returns all names below a directory; those of directories end in a slash.
fn names(dir: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut left = vec![PathBuf::new()];
    while let Some(below) = left.pop() {
        for entry in std::fs::read_dir(dir.join(&below)).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = below.join(entry.file_name());
            let is_dir = entry.file_type().expect("its type").is_dir();
            let slash = if is_dir { "/" } else { "" };
            names.insert(format!("{}{slash}", path.display()));
            left.extend(is_dir.then_some(path));
        }
    }
    names
}

#[test]
fn install_is_complete_and_uninstall_removes_it_exactly() {
    needs::tools!("make", "bash");
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    // Other programs' files at the destination, with similar names.
    let man = dir.join("opt/local/share/man/man1");
    std::fs::create_dir_all(&man).unwrap();
    std::fs::write(man.join("extant-foreign.1"), "").unwrap();
    let before = names(dir);
    made(dir, "install");
    let installed = names(dir);
    for name in [
        "opt/local/bin/extant",
        "opt/local/share/man/man1/extant.1",
        "opt/local/share/man/man1/extant-mkfs.1",
        "opt/local/share/man/man8/mount.extant.8",
        "opt/local/share/bash-completion/completions/extant",
        "opt/local/share/zsh/site-functions/_extant",
        "opt/local/share/fish/vendor_completions.d/extant.fish",
        "sbin/mount.extant",
        "sbin/mount.fuse.extant",
    ] {
        assert!(installed.contains(name), "{name} is not in {installed:?}");
    }
    let leads_to = std::fs::read_link(dir.join("sbin/mount.extant")).unwrap();
    assert_eq!(leads_to, Path::new("/opt/local/bin/extant"));
    // An update finds an existing installation, with a page that the new version no longer has.
    let list = dir.join("opt/local/share/extant/installed");
    let mut lines = std::fs::read_to_string(&list).unwrap();
    lines.push_str("/opt/local/share/man/man1/extant-of-old.1\n");
    std::fs::write(&list, lines).unwrap();
    std::fs::write(man.join("extant-of-old.1"), "").unwrap();
    made(dir, "install");
    assert_eq!(names(dir), installed);
    made(dir, "uninstall");
    assert_eq!(names(dir), before);
    let again = make(dir, "uninstall");
    let err = String::from_utf8_lossy(&again.stderr);
    assert!(err.contains("nothing to remove"), "{err}");
    assert!(!again.status.success());
}

/// `sudo make install`: root has no cargo. The target installs what the user has built; without a build it prints the
/// command that builds.
#[test]
fn who_has_no_cargo_installs_what_is_built() {
    needs::tools!("make", "bash");
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("target");
    let install = || {
        Command::new("make")
            .args(["--no-print-directory", "install", "CARGO=no-such-cargo"])
            .arg(format!("DESTDIR={}", place.path().join("dest").display()))
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.."))
            .env("CARGO_TARGET_DIR", &target)
            .env_remove("MAKEFLAGS")
            .output()
            .expect("make runs")
    };
    let out = install();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success(), "there is nothing to install");
    assert!(
        err.contains("run cargo build --release -p extant-cli first"),
        "{err}"
    );
    std::fs::create_dir_all(target.join("release")).unwrap();
    std::os::unix::fs::symlink(EXTANT, target.join("release/extant")).unwrap();
    let out = install();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{err}");
    assert!(place.path().join("dest/usr/local/bin/extant").is_file());
}

#[test]
fn shells_take_the_completions() {
    needs::tools!("bash", "zsh", "fish");
    let place = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        assert_eq!(script.code, Some(0), "{}", script.stderr);
        std::fs::write(place.path().join(shell), script.stdout).unwrap();
    }
    std::fs::rename(place.path().join("zsh"), place.path().join("_extant")).unwrap();
    for (shell, text, wanted) in [
        ("bash", ". ./bash; complete -p extant", "extant"),
        (
            "zsh",
            "fpath=($PWD $fpath); autoload -Uz compinit; compinit -D -u; print $_comps[extant]",
            "_extant",
        ),
        ("fish", "source ./fish; complete -C 'extant mkf'", "mkfs"),
    ] {
        let out = Command::new(shell)
            .args(["-c", text])
            .current_dir(place.path())
            .env("HOME", place.path())
            .output()
            .expect("the shell runs");
        let said = String::from_utf8_lossy(&out.stdout);
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains(wanted), "{shell}: {said}{err}");
        assert!(err.is_empty(), "{shell}: {err}");
    }
}

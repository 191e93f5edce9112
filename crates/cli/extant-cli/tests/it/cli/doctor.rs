//! `extant doctor` on machines that lack something.

use crate::cli::support::{Scratch, root};
use std::path::Path;
use std::process::Command;

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

/// Returns the report of `extant doctor --json`, and its exit code.
fn doctor(command: &mut Command) -> (Option<i32>, serde_json::Value) {
    let out = command.args(["doctor", "--json"]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&out.stderr),
        "",
        "it is all in the report"
    );
    let report = serde_json::from_slice(&out.stdout).expect("the output is JSON");
    (out.status.code(), report)
}

#[track_caller]
fn finding<'a>(report: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|f| f["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

/// Exit code, summary and findings agree, and each missing feature names its dependants.
#[test]
fn the_exit_code_says_what_the_findings_say() {
    let s = Scratch::empty();
    let (code, report) = doctor(Command::new(EXTANT).current_dir(s.dir.path()));
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() >= 9, "{report:#}");
    let missing = findings.iter().any(|f| f["state"] == "missing");
    assert_eq!(report["works"], !missing);
    assert_eq!(code, Some(i32::from(missing)));
    for f in findings {
        let works = f["state"] == "works";
        assert!(!works || f["remedy"].is_null(), "{f}");
        assert_ne!(f["needed_for"], "");
        assert_ne!(f["found"], "");
    }
    assert_eq!(finding(&report, "current directory")["state"], "works");
    let left = std::fs::read_dir(s.dir.path()).unwrap().count();
    assert_eq!(left, 0, "what was tried out is gone");
    // The report as text has one line for each check, and no colours without a terminal.
    let text = s.run(&["doctor"]).text();
    for f in findings {
        assert!(text.contains(f["name"].as_str().unwrap()), "{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
}

/// Runs the suggested command, and then the feature works.
#[test]
fn a_place_without_files_is_left_by_the_line_that_it_says() {
    let (code, report) = doctor(
        Command::new(EXTANT)
            .current_dir("/proc")
            .env("TMPDIR", "/nowhere"),
    );
    assert_eq!((code, &report["works"]), (Some(1), &false.into()));
    let line = |name| {
        finding(&report, name)["remedy"]
            .as_str()
            .unwrap()
            .to_string()
    };
    let typed = format!(
        "cd /proc; export TMPDIR=/nowhere; {}; {}; {EXTANT} doctor --json",
        line("current directory"),
        line("TMPDIR")
    );
    let out = Command::new("sh").args(["-c", &typed]).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    for name in ["current directory", "TMPDIR"] {
        assert_eq!(finding(&report, name)["state"], "works", "{report:#}");
    }
}

/// An ordinary user whose PATH is empty.
#[test]
fn an_ordinary_user_without_tools_is_told_what_to_install() {
    needs::tools!("setpriv");
    if !root() {
        return;
    }
    let s = Scratch::empty();
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", EXTANT];
    // A bare name would be searched for in the planted PATH.
    let setpriv = ["/usr/bin/setpriv", "/bin/setpriv"];
    let setpriv = setpriv.into_iter().find(|p| Path::new(p).exists()).unwrap();
    let mut command = Command::new(setpriv);
    command
        .args(nobody)
        .env("PATH", s.dir.path())
        .env("TMPDIR", "/tmp")
        .current_dir("/tmp");
    let (code, report) = doctor(&mut command);
    assert_eq!(code, Some(1));
    for (name, package) in [("fusermount3", "fuse3"), ("user name spaces", "util-linux")] {
        let f = finding(&report, name);
        assert_eq!(f["state"], "missing");
        let remedy = f["remedy"].as_str().unwrap();
        assert!(
            remedy.starts_with("sudo ") && remedy.ends_with(package),
            "{remedy}"
        );
    }
    let numbers = finding(&report, "subordinate numbers");
    assert_eq!(numbers["state"], "missing");
    // With the usual PATH, the checks that need no root find their tools.
    let mut command = Command::new(setpriv);
    let (_, report) = doctor(command.args(nobody).current_dir("/tmp"));
    if needs::have(&["fusermount3"]) {
        assert_eq!(
            finding(&report, "fusermount3")["state"],
            "works",
            "{report:#}"
        );
    }
}

//! Tests of what tests share: the tools that they need, stamps of writes, and the model of a file's states.

use extant_testing::judge::model::File;
use extant_testing::judge::stamp::{CELL, fill, parse, value};
use std::process::Command;

/// Packages of every Debian with a compiler.
const ALWAYS_THERE: &[&str] = &[
    "bash",
    "bsdutils",
    "coreutils",
    "dash",
    "gzip",
    "make",
    "mount",
    "pypi",
    "util-linux",
];

/// A package that is missing in the Makefile is noticed here, and not first on a machine without it.
#[test]
fn every_package_is_installed_by_make() {
    let file = |path: &str| {
        let path = format!("{}/../../../{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
    };
    let text = file("Makefile") + &file("scripts/test-remote.sh");
    let words: Vec<&str> = text.split([' ', '\n', ';', ':']).collect();
    for (package, tools) in needs::packages() {
        if !ALWAYS_THERE.contains(&package) {
            assert!(words.contains(&package), "nothing installs {package}");
            let asked = tools.iter().any(|tool| words.contains(tool));
            assert!(asked, "nothing asks whether {tools:?} are there");
        }
    }
}

#[test]
#[should_panic(expected = "is not in the tables")]
fn a_tool_without_a_package_fails_everywhere() {
    needs::have(&["no-such-tool"]);
}

#[test]
fn what_is_there_is_found_and_what_is_not_has_a_package() {
    assert!(needs::is_there("sh"));
    assert!(!needs::is_there("no such tool"));
    assert_eq!(needs::package("mke2fs"), "e2fsprogs");
    assert_eq!(needs::package("fio"), "fio");
}

/// A test that lacks a tool; [`a_missing_tool_is_told_and_fails_in_ci`] runs it in a separate process.
#[test]
fn lacks_a_tool() {
    if std::env::var_os("NEEDS_TEST").is_some() {
        needs::tools!("sh", "fio");
        unreachable!("it has returned");
    }
}

#[test]
fn a_missing_tool_is_told_and_fails_in_ci() {
    let summary = std::env::temp_dir().join(format!("needs-{}", std::process::id()));
    let run = |ci: bool| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "testing::lacks_a_tool"])
            .env("NEEDS_TEST", "1")
            .env("EXTANT_IGNORED", &summary)
            .env("PATH", "/nowhere")
            .env_remove("CI");
        if ci {
            command.env("CI", "true");
        }
        let out = command.output().unwrap();
        let text = [out.stdout, out.stderr].concat();
        (
            out.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let (passed, text) = run(false);
    let line = "testing::lacks_a_tool: missing: sh (Debian package dash), fio (Debian package fio)";
    assert!(
        passed && text.contains("ignored: ") && text.contains(line),
        "{text}"
    );
    let noted = std::fs::read_to_string(&summary).unwrap();
    std::fs::remove_file(&summary).unwrap();
    assert!(noted.contains(line), "{noted}");
    let (passed, text) = run(true);
    assert!(!passed && text.contains("in CI every test runs"), "{text}");
}

#[test]
fn a_stamp_is_read_back_and_a_torn_one_is_none() {
    let mut cells = fill(7, 3..5);
    assert_eq!(parse(&cells[..64]), Some(value(7, 3)));
    assert_eq!(parse(&cells[64..]), Some(value(7, 4)));
    assert_eq!(parse(&[0; 64]), Some(0));
    cells[40] ^= 1;
    assert_eq!(parse(&cells[..64]), None);
    cells[..64].fill(0);
    cells[63] = 1;
    assert_eq!(parse(&cells[..64]), None);
}

#[test]
fn a_copy_may_end_with_each_block_of_its_source() {
    let mut file = File::with(0, &[1; 10]);
    file.write(1, 10, &[2; 12]);
    file.copy(2, (3136, 4096), 960 / CELL, &[3; 26]);
    let sizes = file.legal_sizes(0, 2);
    assert_eq!(
        sizes.into_iter().collect::<Vec<_>>(),
        [640, 1408, 1920, 2624]
    );
    // A durable copy is whole.
    assert_eq!(
        file.legal_sizes(2, 2).into_iter().collect::<Vec<_>>(),
        [2624]
    );
}

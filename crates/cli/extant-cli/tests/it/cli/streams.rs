//! `-`: standard input and output instead of files, and where they are refused.

use crate::cli::support::{Scratch, run_with};
use std::process::{Command, Stdio};

#[test]
fn files_come_from_standard_input_and_go_to_standard_output() {
    let Some(s) = Scratch::ext4() else { return };
    let data: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
    let ran = s.run_with(&["cp", "-", ":/new"], &data);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert!(s.run(&["cp", ":/new", "-"]).stdout == data);
    // An existing file is truncated first, and keeps its name, mode and inode number.
    s.ok(&["chmod", "600", ":/new"]);
    let ino = s.run(&["stat", "--json", ":/new"]).json()[0]["ino"].clone();
    assert_eq!(
        s.run_with(&["cp", "-", &format!(":<{ino}>")], b"short")
            .code,
        Some(0)
    );
    assert_eq!(s.ok(&["cp", ":/new", "-"]), "short");
    let facts = &s.run(&["stat", "--json", ":/new"]).json()[0];
    assert_eq!((&facts["mode"], &facts["ino"]), (&"0600".into(), &ino));
    assert_eq!(s.run_with(&["cp", "-", ":/empty"], b"").code, Some(0));
    assert_eq!(s.ok(&["cat", ":/empty"]), "");
    // A file of that name is written with its directory.
    std::fs::write(s.host("-"), "file").unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["cp", "./-", "disk.img:/dash"])
        .current_dir(s.dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(out.status.success());
    assert_eq!(s.ok(&["cat", ":/dash"]), "file");
    s.clean();
}

#[test]
fn copies_of_streams_that_make_no_sense_are_refused() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", ":/d"]);
    for (args, said) in [
        (&["cp", "-", ":/d"][..], "standard input has no name: write"),
        (&["cp", "-r", ":/d", "-"], "extant export"),
        (&["cp", "-", "-"], "one side of a copy"),
        (&["cp", ":/d", "-", ":/"], "one side of a copy"),
        (&["cp", "-", "@x"], "one side of a copy"),
        (&["mkfs", "-", "--size", "8M"], "name a file"),
        (&["apply", "@x", "-"], "name a file"),
        (&["import", "-", "@x"], "@x"),
        (&["mount", "-", "@x"], "name a file"),
        (
            &["mount", "--scratch", "--keep", "-", "%", "@x"],
            "changes are kept in a file",
        ),
        (&["man", "-"], "name a directory"),
    ] {
        let line = s.fails(args);
        let said = said.replace('@', &s.dir.path().join("").display().to_string());
        assert!(line.contains(&said), "{args:?}: {line}");
    }
    for args in [&["ls", "-"][..], &["info", "-"], &["export", "-", "x"]] {
        let ran = s.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.stderr.contains("name a file"), "{}", ran.stderr);
    }
}

/// An overlay is read at many offsets; from a pipe it is read once.
#[test]
fn changes_come_from_standard_input() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", ":/d"]);
    let ran = s.run_with(&["apply", "-", "%"], b"no overlay");
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("- to "), "{}", ran.stderr);
    let left = s.dir.path().read_dir().unwrap();
    assert_eq!(left.count(), 1, "what was spooled is still there");
    // The overlay of a scratch mount.
    let overlay = s.host("overlay");
    let changes = extant::scratch::Changes::KeptIn(&overlay);
    let volume = extant::scratch::open(&s.image, changes, &extant::VolumeOptions::new()).unwrap();
    volume.write("/d/changed", b"kept").unwrap();
    volume.close().unwrap();
    let ran = s.run_with(&["apply", "-", "%"], &std::fs::read(&overlay).unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(s.ok(&["cat", ":/d/changed"]), "kept");
    s.clean();
}

#[test]
fn archives_come_from_standard_input() {
    let Some(s) = Scratch::ext4() else { return };
    std::fs::create_dir(s.host("tree")).unwrap();
    std::fs::write(s.host("tree/file"), "text").unwrap();
    s.ok(&["import", "%", "@tree"]);
    let archive = s.run(&["export", "%", "-"]).stdout;
    let new = s.host("new.img").display().to_string();
    let ran = run_with(&["mkfs", &new, "--from", "-"], &archive);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let ran = s.run_with(&["import", "%", "-", "--to", "/again"], &archive);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(s.ok(&["cat", ":/again/file"]), "text");
}

/// An archive is neither read from a terminal nor written to one.
#[test]
fn terminals_are_neither_source_nor_target_of_archives() {
    needs::tools!("script");
    let Some(s) = Scratch::ext4() else { return };
    let image = s.image.display();
    for (line, said) in [
        (format!("export {image} -"), "standard output is a terminal"),
        (format!("import {image} -"), "standard input is a terminal"),
        (
            format!("mkfs {image}.new --from -"),
            "standard input is a terminal",
        ),
        (format!("apply - {image}"), "standard input is a terminal"),
    ] {
        let out = Command::new("script")
            .args([
                "-qec",
                &format!("{} {line}", env!("CARGO_BIN_EXE_extant")),
                "/dev/null",
            ])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let seen = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(seen.contains(said), "{line}: {seen}");
        assert_eq!(out.status.code(), Some(1));
    }
    s.clean();
}

//! Names of the host in messages: characters that a terminal obeys, and bytes that are not UTF-8, are escaped.

use crate::cli::support::{Ran, run};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::Command;

/// A name that would write a second line, clear the screen and turn the text.
const NAME: &[u8] = b"a\nerror: fake\x1b[2J\xe2\x80\xae\xff.img";
const SHOWN: &str = "a\\nerror: fake\\u{1b}[2J\\u{202e}\\xff.img";

/// Fails if an output has characters that a terminal obeys.
fn check(ran: &Ran, what: &str) {
    for text in [ran.text(), ran.stderr.clone()] {
        let odd = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}' || c == '\u{fffd}');
        assert!(!text.contains(odd), "{what}: {text:?}");
        assert!(
            !text.lines().any(|line| line.starts_with("error: fake")),
            "{what}: {text}"
        );
    }
}

#[test]
fn names_of_arguments_are_escaped() {
    needs::tools!("mke2fs");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &[u8]| {
        let mut path = dir.path().as_os_str().to_owned().into_vec();
        path.push(b'/');
        path.extend_from_slice(name);
        OsString::from_vec(path)
    };
    let (image, missing) = (path(NAME), path(&[b"no", NAME].concat()));
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-t", "ext4"]).arg(&image).arg("16M");
    assert!(mke2fs.output().unwrap().status.success());
    std::fs::create_dir(path(b"tree")).unwrap();
    for line in [
        &["check"][..],
        &["check", "--verbose"],
        &["repair", "-n"],
        &["repair", "-y"],
        &["resize", "-n"],
        &["resize", "-P"],
        &["tune", "-L", "x"],
        &["tune", "-n", "-L", "y"],
        &["trim"],
        &["defrag"],
        &["df"],
        &["info"],
        &["ls"],
        &["tree"],
        &["map"],
        &["rescue"],
        &["undo"],
        &["mount"],
        &["umount"],
        &["inspect"],
        &["cat"],
        &["stat"],
        &["status"],
        &["sync"],
        &["mkfs"],
        &["mkfs", "--size"],
        &["mkfs", "/nowhere/x", "--from"],
        &["disk", "--ext4", "root=:9M"],
        &["apply"],
        &["push", "/nowhere/x"],
        &["import", "/nowhere/x"],
        &["export"],
        &["diff", "/nowhere/x"],
        &["touch"],
        &["rm"],
        &["mkdir"],
        &["lsattr"],
        &["cp", "/nowhere/x"],
        &["xattr"],
        &["no-such-command"],
    ] {
        for last in [&image, &missing] {
            let words = line.iter().map(OsString::from);
            let ran = run(&words.chain([last.clone()]).collect::<Vec<_>>());
            check(&ran, &format!("{line:?}"));
        }
    }
    let ran = run(&[OsString::from("ls"), missing]);
    assert!(ran.stderr.contains(&format!("no{SHOWN}")), "{}", ran.stderr);
    let ran = run(&[OsString::from("tune"), "-L".into(), "z".into(), image]);
    assert!(
        ran.text().contains(&format!("{SHOWN}: 1 change made")),
        "{}",
        ran.text()
    );
}

#[test]
fn names_of_sources_are_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let name = |text: &[u8]| OsString::from_vec(text.to_vec());
    let run_there = |words: &[OsString]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        Ran::of(
            command
                .args(words)
                .current_dir(dir.path())
                .output()
                .unwrap(),
        )
    };
    std::fs::write(
        dir.path().join(name(b"odd\x1b[2J\xff.tar")),
        "no archive\n".repeat(100),
    )
    .unwrap();
    std::fs::write(
        dir.path().join(name(b"list\x1b[2J\xff")),
        "#mtree\n./x\x1b[2J type=odd\x1b[2J\n",
    )
    .unwrap();
    for source in [
        &b"odd\x1b[2J\xff.tar"[..],
        b"list\x1b[2J\xff",
        b"absent\x1b[2J\xff",
    ] {
        let words = ["mkfs", "new.img", "--from"].map(OsString::from);
        let ran = run_there(&[&words[..], &[name(source)]].concat());
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        let control = |c: char| c != '\n' && c.is_control();
        assert!(!ran.stderr.contains(control), "{:?}", ran.stderr);
    }
    // A member whose file type cannot be, and one whose path leads out.
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    header.as_mut_bytes()[..11].copy_from_slice(b"../\x1b[2Jx\xff\0\0");
    header.set_cksum();
    builder.append(&header, std::io::empty()).unwrap();
    std::fs::write(dir.path().join("out.tar"), builder.into_inner().unwrap()).unwrap();
    let ran = run_there(&["mkfs", "new.img", "--from", "out.tar"].map(OsString::from));
    assert!(!ran.stderr.contains('\x1b'), "{:?}", ran.stderr);
    assert!(
        ran.stderr.contains("\\u{1b}") || ran.stderr.contains("\\x1b"),
        "{}",
        ran.stderr
    );
}

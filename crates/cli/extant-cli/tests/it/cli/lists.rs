//! Manifests and device tables as sources.

use crate::cli::support::Scratch;
use std::fs;
use std::process::Command;

/// Runs the command in the scratch directory, to which paths of manifests are relative.
fn run_there(s: &Scratch, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
    let out = command
        .args(args)
        .current_dir(s.dir.path())
        .output()
        .unwrap();
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

#[test]
fn lists_are_known_by_their_first_line() {
    let Some(s) = Scratch::ext4() else { return };
    fs::create_dir_all(s.host("rootfs/dev")).unwrap();
    fs::write(s.host("rootfs/su"), "su").unwrap();
    fs::write(s.host("motd"), "hello\n").unwrap();
    fs::write(
        s.host("list"),
        "#mtree\n./etc/motd mode=600 uid=3 contents=motd\n./tty type=char device=native,5,1\n",
    )
    .unwrap();
    fs::write(
        s.host("table"),
        "# devices\n/dev/null c 666 0 0 1 3\n/su f 4755 0 0\n",
    )
    .unwrap();
    // Without a signature at the start, so it works only with --manifest.
    fs::write(s.host("plain"), "added type=dir mode=700\n").unwrap();
    let ok = (Some(0), String::new());
    for args in [
        &[
            "mkfs",
            "new.img",
            "--from",
            "rootfs",
            "--from",
            "list",
            "--from",
            "table",
            "--manifest",
            "plain",
            "-q",
        ][..],
        &[
            "mkfs",
            "new.img",
            "--from",
            "rootfs",
            "--manifest",
            "list",
            "--manifest",
            "table",
            "--manifest",
            "plain",
            "-qF",
        ],
    ] {
        assert_eq!(run_there(&s, args), ok);
        let mut new = Scratch::empty();
        new.image = s.host("new.img");
        new.clean();
        let list = new.ok(&["ls", "-l", ":/", ":/dev", ":/etc"]);
        for want in ["crw-rw-rw-", "-rwsr-xr-x", "-rw-------", "drwx------"] {
            assert!(list.contains(want), "{want}: {list}");
        }
        assert_eq!(new.ok(&["cat", ":/etc/motd"]), "hello\n");
    }
    assert_eq!(
        run_there(&s, &["mkfs", "alone.img", "--manifest", "list", "-q"]),
        ok
    );
    // Import into an existing image.
    let (code, said) = run_there(&s, &["import", "disk.img", "list", "--to", "/in"]);
    assert_eq!(code, Some(0), "{said}");
    s.clean();
    assert_eq!(s.ok(&["cat", ":/in/etc/motd"]), "hello\n");
    assert!(s.ok(&["ls", "-l", ":/in"]).contains("crw-r--r--"));
    let line = s.fails(&["import", "%", "@table"]);
    assert!(line.contains("is a device table"), "{line}");
    let (code, said) = run_there(&s, &["mkfs", "bad.img", "--manifest", "motd"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("motd: line 1: hello: "), "{said}");
    assert!(!s.host("bad.img").exists());
}

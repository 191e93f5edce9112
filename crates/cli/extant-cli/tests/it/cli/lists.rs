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

/// A line about a file that an earlier source has changes its attributes, and nothing else of it.
#[test]
fn a_manifest_changes_files_of_earlier_sources() {
    let Some(s) = Scratch::ext4() else { return };
    fs::create_dir_all(s.host("rootfs/etc")).unwrap();
    fs::write(s.host("rootfs/etc/motd"), "hello\n").unwrap();
    fs::write(s.host("rootfs/su"), "su").unwrap();
    let list = "#mtree\n./etc/motd type=file mode=0640 uid=42 gid=43\n./su mode=4755\n./su time=1000\n\
                ./absent mode=600 optional\n";
    fs::write(s.host("list"), list).unwrap();
    let ok = (Some(0), String::new());
    let made = [
        "mkfs", "-q", "new.img", "--from", "rootfs", "--from", "list",
    ];
    assert_eq!(run_there(&s, &made), ok);
    assert_eq!(
        run_there(
            &s,
            &[
                "mkfs",
                "-q",
                "new2.img",
                "--from",
                "rootfs",
                "--manifest",
                "list"
            ]
        ),
        ok
    );
    assert_eq!(run_there(&s, &["import", "disk.img", "rootfs", "list"]), ok);
    for image in ["new.img", "new2.img", "disk.img"] {
        let address = |path: &str| format!("{}:{path}", s.host(image).display());
        let listed = s.ok(&["ls", "-l", &address("/etc")]);
        assert!(
            listed.starts_with("-rw-r----- 1 42 43 6 "),
            "{image}: {listed}"
        );
        let su = s.ok(&["stat", &address("/su")]);
        assert!(
            su.contains("rwsr-xr-x") && su.contains("1970-01-01"),
            "{image}: {su}"
        );
        assert_eq!(s.ok(&["cat", &address("/etc/motd")]), "hello\n");
    }
    s.clean();
    fs::write(s.host("list"), "#mtree\n./absent mode=600\n").unwrap();
    for line in [
        &[
            "mkfs", "-q", "-F", "new.img", "--from", "rootfs", "--from", "list",
        ][..],
        &["mkfs", "-q", "-F", "new.img", "--from", "list"],
        &["import", "disk.img", "list"],
    ] {
        let (code, said) = run_there(&s, line);
        assert_eq!(code, Some(1), "{said}");
        let part =
            "list: line 2: ./absent: no such file, and no earlier source has it: contents=FILE";
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn a_manifest_changes_only_files_and_obeys_the_latest_time() {
    let Some(s) = Scratch::ext4() else { return };
    fs::create_dir_all(s.host("rootfs/etc")).unwrap();
    fs::write(s.host("rootfs/file"), "hello\n").unwrap();
    for path in ["./etc", "."] {
        fs::write(
            s.host("list"),
            format!("#mtree\n{path} type=file mode=600\n"),
        )
        .unwrap();
        for line in [
            &[
                "mkfs", "-qF", "new.img", "--from", "rootfs", "--from", "list",
            ][..],
            &["import", "disk.img", "rootfs", "list"],
        ] {
            let (code, said) = run_there(&s, line);
            assert_eq!(code, Some(1), "{line:?}: {said}");
            assert!(said.contains("not a regular file"), "{said}");
        }
    }
    fs::write(s.host("list"), "#mtree\n./file time=5000\n").unwrap();
    let mkfs = "mkfs -qF new.img --from rootfs --from list";
    let import = "import disk.img rootfs list";
    for (image, line) in [("new.img", mkfs), ("disk.img", import)] {
        let ran = Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(line.split(' '))
            .env("SOURCE_DATE_EPOCH", "1000")
            .current_dir(s.dir.path())
            .status();
        assert!(ran.unwrap().success());
        let facts = s.ok(&[
            "stat",
            "--json",
            &format!("{}:/file", s.host(image).display()),
        ]);
        assert!(!facts.contains("01:23:20"), "{facts}");
    }
}

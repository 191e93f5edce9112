//! The program as debugfs: scripts that read and write images, with both implementations.

use crate::cli::called::{ScriptDir, clean, told};
use crate::cli::support::Scratch;
use extant_testing::common::copy_image;
use std::path::Path;
use std::process::Command;

#[test]
fn debugfs_gives_files_and_structures() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let Some(s) = Scratch::filled() else { return };
    copy_image(&s.image, place.image("d.img"));
    let both = |script: &str| {
        let (ours, theirs) = (place.ours(script), place.theirs(script));
        assert!(ours.status.success(), "{script}: {}", told(&ours));
        assert_eq!(ours.stdout, theirs.stdout, "{script}");
    };
    both("debugfs -R 'cat /etc/motd' d.img 2>/dev/null");
    both("debugfs -R 'dump /etc/motd copy' d.img 2>/dev/null; cat copy; rm copy");
    both("mkdir to; debugfs -R 'rdump /etc to' d.img 2>/dev/null; cat to/etc/motd; rm -r to");
    let out = place.ours("debugfs -R 'stat /etc/motd' d.img");
    assert!(
        out.status.success() && told(&out).contains("Links: 1 "),
        "{}",
        told(&out)
    );
    both("debugfs -w -R 'cat /etc/motd' d.img 2>/dev/null");
}

/// The requests of a script that makes an image step by step, with a file whose name has a blank, in the manner of
/// Buildroot and Yocto.
const REQUESTS: &str = r#"
# devices and configuration
mkdir /etc
cd /etc
write src motd
write src /etc/by-path
write "src" "a b"
cd /
mkdir etc/deep
symlink link etc/motd
symlink /etc/l2 /abs/target
ln etc/motd hard
mknod null c 1 3
mknod disk b 8 17
mknod fifo p
mkdir none/x
sif etc/motd mode 0100640
sif etc/motd uid 70000
sif etc/motd gid 5
sif etc/motd mtime 20200102030405
sif etc/motd atime @1000000000
set_inode_field null mode 020666
sif etc/deep flags 0x80080
ea_set etc/motd user.a "value b"
ea_set -r -f src etc/by-path user.b
ea_set etc/deep user.gone x
ea_rm etc/deep user.gone
write sparse sparse
mkdir dd
rmdir dd
rmdir /etc
mknod gone p
rm gone
rm /nothing
ssv volume_name made
ssv max_mnt_count 7
ssv checkinterval 86400
quit
mkdir after
"#;

/// Returns debugfs's output without details that may differ: numbers, times of directories and change times.
fn said_of(image: &Path, path: &str) -> String {
    let out = Command::new("debugfs")
        .args(["-R", &format!("stat {path}")])
        .arg(image)
        .output();
    let text = String::from_utf8_lossy(&out.unwrap().stdout).into_owned();
    let is_dir = text.contains("Type: directory");
    let kept = text.lines().filter_map(|line| {
        let line = line.trim();
        if let Some((_, rest)) = line.split_once("Type:") {
            return Some(rest.to_owned());
        }
        let times = ["atime", "mtime"].iter().any(|t| line.starts_with(t));
        let told = ["User:", "Links:", "Fast link", "Device", "user."];
        let told = told.iter().any(|t| line.starts_with(t)) || times && !is_dir;
        let line = line.split("Blockcount").next().unwrap_or(line);
        told.then(|| line.to_owned())
    });
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn debugfs_writes_the_same_tree() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    std::fs::write(place.image("cmds"), REQUESTS).unwrap();
    let extra =
        "sif etc/motd generation 99\nsif etc/deep projid 7\nsif etc/deep flags 0x20080000\n";
    std::fs::write(place.image("extra"), extra).unwrap();
    let made = "echo hello >src; chmod 751 src; truncate -s 3M sparse; echo end >>sparse; umask 077; \
                mke2fs -Fq -t ext4 FEATURES IMAGE 32M; E2FSPROGS_FAKE_TIME=1700000000; export E2FSPROGS_FAKE_TIME; \
                debugfs -w -f cmds IMAGE || :; MORE; debugfs -w -R 'mkdir /last' IMAGE";
    let paths = [
        "/etc",
        "/etc/motd",
        "/etc/by-path",
        "\"/etc/a b\"",
        "/etc/deep",
        "/etc/l2",
        "/link",
        "/hard",
        "/null",
        "/disk",
        "/fifo",
        "/sparse",
        "/last",
        "/dd",
        "/gone",
        "/after",
    ];
    for (features, more) in [
        ("", ":"),
        (
            "-O ^metadata_csum,project",
            "debugfs -w -f extra IMAGE; printf 'mkdir one\nmkdir one/two\nq\nmkdir no\n' | debugfs -w IMAGE",
        ),
    ] {
        let script = made.replace("FEATURES", features).replace("MORE", more);
        let (a, b) = (place.image("a.img"), place.image("b.img"));
        let ours = place.ours(&script.replace("IMAGE", "a.img"));
        assert!(ours.status.success(), "{}", told(&ours));
        clean(&a);
        let theirs = place.theirs(&script.replace("IMAGE", "b.img"));
        assert!(theirs.status.success(), "{}", told(&theirs));
        // debugfs leaves the count of links unchanged.
        place.theirs("e2fsck -fy b.img || :");
        for path in paths.into_iter().chain(["/one", "/one/two", "/no"]) {
            let (ours, theirs) = (said_of(&a, path), said_of(&b, path));
            assert_eq!(ours, theirs, "{path}: ours left");
            let absent = ["/dd", "/gone", "/no"].contains(&path)
                || path.starts_with("/one") && features.is_empty();
            assert_eq!(ours.is_empty(), absent, "{path}: {ours}");
        }
        for file in ["/etc/motd", "/sparse"] {
            let sums = ["a.img", "b.img"].map(|image| {
                let out = place.theirs(&format!("debugfs -R 'cat {file}' {image} | cksum"));
                String::from_utf8(out.stdout).unwrap()
            });
            assert_eq!(sums[0], sums[1], "{file}");
        }
        let listed = ["a.img", "b.img"].map(|image| {
            let script = format!("dumpe2fs -h {image} 2>/dev/null | grep -E 'Check interval|Maximum mount|volume name'");
            told(&place.theirs(&script))
        });
        assert_eq!(listed[0], listed[1]);
    }
    // The failed request is reported, and the others ran.
    let out = place.ours("debugfs -w -f cmds a.img");
    assert_eq!(out.status.code(), Some(1));
    assert!(
        told(&out).contains("debugfs: mkdir: /none/x: no such file"),
        "{}",
        told(&out)
    );
}

#[test]
fn debugfs_refuses_what_it_cannot_write() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let Some(s) = Scratch::filled() else { return };
    copy_image(&s.image, place.image("d.img"));
    let before = std::fs::read(place.image("d.img")).unwrap();
    for (request, line) in [
        (
            "mkdir a\nnothing <12>",
            "nothing: no such request: debugfs -R help lists them",
        ),
        ("mkdir", "mkdir: wrong number of words"),
        (
            "sif /etc/motd mode 0755",
            "sif: /etc/motd: 0755: another type of file",
        ),
        ("sif /etc/motd flags 0", "flags that say how"),
        ("sif /etc/motd generation 7", "metadata_csum"),
        ("ssv nothing 7", "ssv: invalid field specifier: nothing"),
        ("write none /x", "write: none: "),
        ("write tree /x", "write: tree: not a regular file"),
    ] {
        std::fs::write(place.image("cmds"), request).unwrap();
        let out = place.ours("debugfs -w -f cmds d.img");
        assert_eq!(out.status.code(), Some(1), "{request}: {}", told(&out));
        assert!(told(&out).contains(line), "{request}: {}", told(&out));
        clean(&place.image("d.img"));
        let out = place.theirs("debugfs -R 'ls /' d.img");
        assert!(
            !told(&out).contains(" a ") && !told(&out).contains(" x "),
            "{request}"
        );
    }
    let ours = place.ours("debugfs -w -c -R 'mkdir a' d.img");
    assert!(
        told(&ours).starts_with("debugfs: -c cannot be combined with -w"),
        "{}",
        told(&ours)
    );
    assert_eq!(
        std::fs::read(place.image("d.img")).unwrap().len(),
        before.len()
    );
}

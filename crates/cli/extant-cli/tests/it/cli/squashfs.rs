//! SquashFS images as sources of every command with sources: `extant diff`, e2fsck and the kernel judge.

use crate::cli::support::{Mounted, Scratch, root, run_with};
use crate::cli::trees::{make_tree, same, snapshot};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Packs a directory next to the image. `None` without mksquashfs.
fn pack(s: &Scratch, tree: &str, to: &str, options: &[&str]) -> Option<()> {
    needs::have(&["mksquashfs"]).then_some(())?;
    let out = Command::new("mksquashfs")
        .args([s.host(tree), s.host(to)])
        .args(["-noappend", "-quiet", "-no-progress"])
        .args(options)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    Some(())
}

/// Returns a tree that SquashFS can hold, except for fractions of seconds: no ACLs, no times beyond 32 bits.
fn tree(s: &Scratch) -> PathBuf {
    let tree = s.host("tree");
    make_tree(&tree);
    let tidy = "setfacl -Rb . 2>/dev/null; setfacl -Rk . 2>/dev/null; find . -exec touch -hd @1234567890 {} +";
    let mut command = Command::new("sh");
    command.args(["-c", tidy]).current_dir(&tree);
    assert!(command.status().unwrap().success());
    tree
}

/// Returns a snapshot without the positions of holes, which are larger in the image.
fn held(tree: BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, String> {
    let without = |line: String| {
        let words = line.split(' ').filter(|w| !w.starts_with("sparse="));
        words.collect::<Vec<_>>().join(" ")
    };
    tree.into_iter()
        .map(|(path, line)| (path, without(line)))
        .collect()
}

/// Asserts that the trees of two images are equal.
#[track_caller]
fn equal(s: &Scratch, a: &str, b: &str) {
    let ran = s.run(&["diff", a, b]);
    let told = (ran.code, ran.text(), ran.stderr);
    assert_eq!(told, (Some(0), String::new(), String::new()));
}

/// Returns a scratch for another image in the same directory.
fn other(s: &Scratch, name: &str) -> Scratch {
    let mut other = Scratch::empty();
    other.image = s.host(name);
    other
}

#[test]
fn new_images_and_imports_are_as_of_the_directory() {
    let s = Scratch::empty();
    let tree = tree(&s);
    if pack(&s, "tree", "named.tar", &["-comp", "xz"]).is_none() {
        return;
    }
    s.ok(&["mkfs", "%", "--from", "@tree", "-q", "--size", "128M"]);
    s.ok(&[
        "mkfs",
        "@new.img",
        "--from",
        "@named.tar",
        "-q",
        "--size",
        "128M",
    ]);
    other(&s, "new.img").clean();
    equal(&s, "%", "@new.img");
    if root()
        && let Some(mounted) = Mounted::new(&other(&s, "new.img"))
    {
        let mut found = snapshot(mounted.path());
        found.retain(|path, _| !path.starts_with("lost+found"));
        same(&held(found), &held(snapshot(&tree)));
    }
    // The bytes do not depend on the number of threads, or on whether the input is a file, a pipe, or compressed
    // again.
    let bytes = fs::read(s.host("named.tar")).unwrap();
    let packed = zstd::encode_all(&bytes[..], 1).unwrap();
    fs::write(s.host("packed"), packed).unwrap();
    let made = |from: &str, threads: &str, input: &[u8]| {
        let uuid = "00000000-0000-0000-0000-000000000001";
        let image = s.host("same.img");
        let image = image.to_str().unwrap();
        let from = from.replace('@', &s.host("").display().to_string());
        let args = [
            "mkfs",
            image,
            "-qF",
            "-U",
            uuid,
            "--from",
            &from,
            "--threads",
            threads,
        ];
        // The time has no other source.
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        command.args(args).env("SOURCE_DATE_EPOCH", "1700000000");
        fs::write(s.host("input"), input).unwrap();
        command.stdin(fs::File::open(s.host("input")).unwrap());
        let out = command.output().unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        fs::read(image).unwrap()
    };
    let first = made("@named.tar", "1", b"");
    for (from, threads) in [("@named.tar", "7"), ("-", "2"), ("@packed", "2")] {
        assert!(made(from, threads, &bytes) == first, "{from}");
    }
    // Import into an existing image.
    s.ok(&["import", "@new.img", "@named.tar", "--to", "/below/it"]);
    let ran = s.run_with(&["import", "@new.img", "-", "--to", "/piped"], &bytes);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    other(&s, "new.img").clean();
    s.ok(&["rm", "-r", ":/lost+found"]);
    for to in ["/below/it", "/piped"] {
        // An import leaves the attributes of the top directory unchanged.
        let name = format!("{}:{to}", s.host("new.img").display());
        let ran = s.run(&["diff", "%", &name]);
        let lines: Vec<_> = ran
            .stdout
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .collect();
        assert!(lines.len() <= 1, "{}{}", ran.text(), ran.stderr);
    }
}

#[test]
fn images_in_disks_and_as_layers() {
    let s = Scratch::empty();
    fs::create_dir_all(s.host("base/etc")).unwrap();
    fs::write(s.host("base/etc/gone"), "1").unwrap();
    fs::write(s.host("base/etc/kept"), "2").unwrap();
    if pack(&s, "base", "base.squashfs", &[]).is_none() {
        return;
    }
    needs::tools!("sfdisk");
    let bytes = fs::read(s.host("base.squashfs")).unwrap();
    let mut disk = vec![0; 8 << 20];
    disk[2 << 20..][..bytes.len()].copy_from_slice(&bytes);
    fs::write(s.host("disk.raw"), disk).unwrap();
    let mut table = Command::new("sfdisk");
    table
        .arg("-q")
        .arg(s.host("disk.raw"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = table.spawn().unwrap();
    let script = b"label: gpt\nstart=2048, size=1M\nstart=4096, size=4M, name=root\n";
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), script).unwrap();
    assert!(child.wait().unwrap().success());
    s.ok(&[
        "mkfs",
        "%",
        "--from",
        "@base.squashfs",
        "-q",
        "--size",
        "16M",
    ]);
    let check = |from: &str| {
        s.ok(&["mkfs", "@new.img", "-qF", "--from", from, "--size", "16M"]);
        equal(&s, "%", "@new.img");
    };
    check("@disk.raw@p2");
    check("@disk.raw@offset=2M");
    s.ok(&[
        "disk",
        "@made.img",
        "--ext4",
        &format!("root={}", s.host("disk.raw@label=root").display()),
    ]);
    equal(&s, "%", "@made.img@p1");
    s.ok(&["import", "@new.img", "@disk.raw@p2", "--to", "/d"]);
    assert_eq!(
        s.ok(&[
            "cat",
            &format!("{}:/d/etc/kept", s.host("new.img").display())
        ]),
        "2"
    );
    let line = s.fails(&["mkfs", "@none.img", "--from", "@disk.raw"]);
    assert!(line.contains("disk.raw@p1"), "{line}");

    // Over it a directory with a white-out, and the same files as layers of a container's image.
    fs::create_dir_all(s.host("over/etc")).unwrap();
    fs::write(s.host("over/etc/.wh.gone"), "").unwrap();
    fs::write(s.host("over/etc/new"), "3").unwrap();
    pack(&s, "over", "over.squashfs", &["-comp", "zstd"]);
    let blobs = s.host("oci/blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    for (from, to) in [("base.squashfs", "a"), ("over.squashfs", "b")] {
        fs::copy(s.host(from), blobs.join(to)).unwrap();
    }
    let layers = r#"{"layers": [{"digest": "sha256:a"}, {"digest": "sha256:b"}]}"#;
    fs::write(blobs.join("c"), layers).unwrap();
    fs::write(
        s.host("oci/index.json"),
        r#"{"manifests": [{"digest": "sha256:c"}]}"#,
    )
    .unwrap();
    fs::write(s.host("oci/oci-layout"), "{}").unwrap();
    for sources in [
        &["@base.squashfs", "@over"][..],
        &["@base", "@over.squashfs"],
        &["@disk.raw@p2", "@over.squashfs"],
        &["@oci"],
    ] {
        let mut args = vec!["mkfs", "@new.img", "-qF"];
        args.extend(sources.iter().flat_map(|from| ["--from", from]));
        s.ok(&args);
        let new = other(&s, "new.img");
        new.clean();
        assert_eq!(new.ok(&["ls", ":/etc"]), "kept\nnew\n", "{sources:?}");
    }
    s.ok(&["mkfs", "@into.img", "-q", "--size", "16M"]);
    s.ok(&["import", "@into.img", "@base.squashfs", "@over.squashfs"]);
    assert_eq!(other(&s, "into.img").ok(&["ls", ":/etc"]), "kept\nnew\n");
}

/// A file that is not a readable image is reported in one line, and no new image is left.
#[test]
fn broken_images_are_told_in_a_line() {
    let s = Scratch::empty();
    fs::create_dir(s.host("tree")).unwrap();
    for i in 0..100 {
        fs::write(s.host(&format!("tree/{i}")), "text").unwrap();
    }
    if pack(&s, "tree", "good", &[]).is_none() {
        return;
    }
    let good = fs::read(s.host("good")).unwrap();
    let damaged = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        fs::write(s.host("bad"), bytes).unwrap();
    };
    let line = |says: &str| {
        for args in [
            &["mkfs", "@new.img", "--from", "@bad"][..],
            &["import", "%", "@bad"],
        ] {
            let line = s.fails(args);
            assert!(line.contains(&format!("bad: at byte {says}")), "{line}");
        }
        assert!(!s.host("new.img").exists());
    };
    s.ok(&["mkfs", "%", "-q", "--size", "8M"]);
    damaged(28, 3);
    line("28: SquashFS of version 3.0, where only 4.0 is read");
    damaged(20, 2);
    line("20: compressed with lzma, the older format, which is not read: make it with -comp xz");
    let inodes = u64::from_le_bytes(*good[64..].first_chunk().unwrap()) as usize;
    damaged(inodes + 2, good[inodes + 2] ^ 0xff);
    line(&format!("{inodes}: gzip data that cannot be decompressed"));
    fs::write(s.host("bad"), &good[..300]).unwrap();
    line("40: the image is cut off: 300 bytes of ");
    let input = run_with(
        &["mkfs", s.host("new.img").to_str().unwrap(), "--from", "-"],
        &good[..300],
    );
    assert!(
        input
            .stderr
            .contains("standard input: at byte 40: the image is cut off"),
        "{}",
        input.stderr
    );
    s.clean();
}

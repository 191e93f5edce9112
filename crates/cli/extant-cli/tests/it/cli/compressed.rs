//! Images in compressed files, written and read directly. zstd, gzip, xz, bzip2, simg2img and qemu-img judge.

use crate::cli::support::{Ran, run};
use std::path::Path;
use std::process::Command;

const UUID: &str = "6e4f9d2c-0b1a-4c55-9a70-2f8f3c1d5e77";

/// Runs the command with paths in a directory, `%` standing for it.
fn ran(dir: &Path, args: &[&str]) -> Ran {
    let args: Vec<_> = args
        .iter()
        .map(|a| a.replace('%', &format!("{}/", dir.display())))
        .collect();
    run(&args)
}

/// Runs the command, which must succeed. Returns its output.
fn ok(dir: &Path, args: &[&str]) -> String {
    let ran = ran(dir, args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
    ran.text()
}

/// Returns the output of a tool on a file.
fn output(tool: &str, args: &[&str], file: &Path) -> Vec<u8> {
    let out = Command::new(tool).args(args).arg(file).output().unwrap();
    assert!(out.status.success(), "{tool} {args:?}");
    out.stdout
}

/// Makes a tree with a compressible file, an incompressible one, and a small one.
fn tree(dir: &Path) {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    let random: Vec<u8> = (0..3_000_000_u64)
        .map(|n| (n.wrapping_mul(6_364_136_223_846_793_005) >> 40) as u8)
        .collect();
    std::fs::write(tree.join("random"), random).unwrap();
    std::fs::write(tree.join("sevens"), vec![7; 2_000_000]).unwrap();
    std::fs::write(tree.join("sub/hello"), "hello\n").unwrap();
}

/// Makes a raw image of the tree, 16 MiB.
fn raw(dir: &Path) {
    tree(dir);
    ok(
        dir,
        &[
            "mkfs", "%raw", "--from", "%tree", "--size", "16M", "-U", UUID,
        ],
    );
}

#[test]
fn what_is_made_compressed_is_what_is_made_raw() {
    needs::tools!("zstd");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    let with_epoch = |image: &str, more: &[&str]| {
        let image = dir.join(image);
        let tree = dir.join("tree");
        let out = Command::new(env!("CARGO_BIN_EXE_extant"))
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .args(["mkfs", "--force", "--size", "64M", "-U", UUID, "--from"])
            .args([&tree, &image])
            .args(more)
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    with_epoch("raw", &[]);
    let raw = std::fs::read(dir.join("raw")).unwrap();
    let told = with_epoch("packed.img.zst", &[]);
    let packed = dir.join("packed.img.zst");
    assert!(told.contains(": 64M in "), "{told}");
    assert!(output("zstd", &["-dc"], &packed) == raw);
    let first = std::fs::read(&packed).unwrap();
    // An existing image is replaced, and the number of threads does not matter.
    for threads in ["1", "3"] {
        with_epoch("packed.img.zst", &["--threads", threads]);
        assert!(std::fs::read(&packed).unwrap() == first, "{threads}");
    }
    // The format from --format overrides the suffix.
    let json = with_epoch("other", &["--format", "zst", "--json"]);
    assert!(
        json.contains(&format!("\"packed_bytes\": {}", first.len())),
        "{json}"
    );
    assert!(std::fs::read(dir.join("other")).unwrap() == first);
    with_epoch("raw.zst", &["--format", "raw"]);
    assert!(std::fs::read(dir.join("raw.zst")).unwrap() == raw);
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert_eq!(left.len(), 5, "{left:?}");
    // An existing image is not overwritten by default.
    let refused = ran(dir, &["mkfs", "%packed.img.zst", "--size", "8M"]);
    assert!(
        refused
            .stderr
            .contains("holds an ext2, ext3 or ext4 file system already"),
        "{}",
        refused.stderr
    );
}

#[test]
fn disks_are_made_compressed() {
    needs::tools!("zstd");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    let args = |disk| {
        [
            "disk",
            disk,
            "-U",
            UUID,
            "--ext4",
            "root=%tree:9M",
            "--ext4",
            "b=:9M",
        ]
    };
    // A path in an option's value is relative to the working directory.
    let args = |disk| args(disk).map(|a| a.replace("root=%", &format!("root={}/", dir.display())));
    for disk in ["%d.img", "%d.img.zst"] {
        let out = Command::new(env!("CARGO_BIN_EXE_extant"))
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .args(args(disk).map(|a| a.replace('%', &format!("{}/", dir.display()))))
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
    }
    let raw = std::fs::read(dir.join("d.img")).unwrap();
    assert!(output("zstd", &["-dc"], &dir.join("d.img.zst")) == raw);
    assert_eq!(ok(dir, &["cat", "%d.img.zst@p1:/sub/hello"]), "hello\n");
    assert!(ok(dir, &["info", "%d.img.zst"]).contains("d.img.zst@p2"));
}

#[test]
fn every_command_that_reads_reads_compressed_images() {
    needs::tools!("gzip", "zstd", "xz", "bzip2");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    raw(dir);
    let made = dir.join("raw");
    for (tool, args) in [
        ("gzip", &["-1", "-c"]),
        ("zstd", &["-1", "-c"]),
        ("xz", &["-0", "-c"]),
        ("bzip2", &["-1", "-c"]),
    ] {
        std::fs::write(dir.join(tool), output(tool, args, &made)).unwrap();
    }
    ok(
        dir,
        &[
            "mkfs",
            "%seekable",
            "--format",
            "zst",
            "--from",
            "%raw",
            "--size",
            "16M",
        ],
    );
    for image in ["gzip", "zstd", "xz", "bzip2", "seekable"] {
        let at = |path: &str| format!("%{image}:{path}");
        let names = ok(dir, &["ls", &at("/")]);
        assert_eq!(names, "lost+found\nrandom\nsevens\nsub\n", "{image}");
        assert_eq!(ok(dir, &["cat", &at("/sub/hello")]), "hello\n");
        ok(dir, &["cp", &at("/random"), "%back"]);
        assert!(
            std::fs::read(dir.join("back")).unwrap()
                == std::fs::read(dir.join("tree/random")).unwrap()
        );
        let named = format!("%{image}");
        assert!(ok(dir, &["check", &named]).contains("clean"));
        assert!(ok(dir, &["info", &named]).contains("State:               clean"));
        assert!(ok(dir, &["inspect", &named, "stat", "/random"]).contains("3000000"));
        ok(dir, &["diff", "%raw", &named]);
        assert!(ok(dir, &["export", &named, "-", "--format", "tar"]).len() > 5_000_000);
        assert!(ok(dir, &["rescue", &named]).contains("hello"));
        ok(dir, &["mkfs", "%again", "--force", "--from", &named]);
        assert_eq!(ok(dir, &["cat", "%again:/sub/hello"]), "hello\n");
    }
}

#[test]
fn android_sparse_images_are_made_and_read() {
    needs::tools!("simg2img", "e2fsck");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    raw(dir);
    for args in [
        &["%new.simg"][..],
        &["%other", "--format", "android-sparse"],
    ] {
        let mkfs = ["mkfs", "--size", "64M", "--from", "%tree"];
        ok(dir, &[&mkfs[..], args].concat());
        let image = args[0].replace('%', "");
        let raw = dir.join("from simg");
        let made = Command::new("simg2img")
            .arg(dir.join(&image))
            .arg(&raw)
            .status();
        assert!(made.unwrap().success());
        output("e2fsck", &["-fn"], &raw);
        let at = |path: &str| format!("{}:{path}", args[0]);
        assert_eq!(ok(dir, &["cat", &at("/sub/hello")]), "hello\n");
        assert!(ok(dir, &["check", args[0]]).contains("clean"));
        let ran = ran(dir, &["mkdir", &at("/new")]);
        let why = "an Android sparse image, and only read: simg2img makes";
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
    assert!(dir.join("new.simg").metadata().unwrap().len() < 8 << 20);
}

#[test]
fn images_in_vhd_and_vmdk_are_read() {
    needs::tools!("qemu-img");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    raw(dir);
    for (kind, options) in [
        ("vpc", "subformat=dynamic,force_size=on"),
        ("vmdk", "subformat=streamOptimized"),
        ("vmdk", "subformat=monolithicFlat"),
    ] {
        let convert = Command::new("qemu-img")
            .current_dir(dir)
            .args(["convert", "-O", kind, "-o", options, "raw", "disk"])
            .status();
        assert!(convert.unwrap().success());
        assert_eq!(ok(dir, &["cat", "%disk:/sub/hello"]), "hello\n");
        assert!(ok(dir, &["check", "%disk"]).contains("clean"), "{options}");
        ok(dir, &["diff", "%raw", "%disk"]);
        let ran = ran(dir, &["rm", "%disk:/random"]);
        let why = "only read: qemu-img convert -O raw makes";
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}

#[test]
fn who_wants_to_change_one_is_told_the_reason() {
    needs::tools!("zstd");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    raw(dir);
    let packed = output("zstd", &["-1", "-c"], &dir.join("raw"));
    std::fs::write(dir.join("a.zst"), &packed).unwrap();
    for args in [
        &["mkdir", "%a.zst:/new"][..],
        &["rm", "%a.zst:/random"],
        &["cp", "%raw", "%a.zst:/raw"],
        &["repair", "-y", "%a.zst"],
        &["tune", "-L", "name", "%a.zst"],
        &["resize", "%a.zst", "32M"],
        &["import", "%a.zst", "%tree"],
        &["mkfs", "--force", "%a.zst@p1"],
    ] {
        let ran = ran(dir, args);
        assert_ne!(ran.code, Some(0), "{args:?}");
        let told = ran.stderr.trim_end();
        assert!(told.lines().count() == 1, "{args:?}: {told}");
        let partition = args[0] == "mkfs" && told.contains("no partition table");
        assert!(
            partition || told.contains("compressed with zstd, and only read: zstd -d makes"),
            "{args:?}: {told}"
        );
    }
    assert!(std::fs::read(dir.join("a.zst")).unwrap() == packed);
}

#[test]
fn archives_stay_archives_and_damage_is_an_error() {
    needs::tools!("gzip", "tar");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    let tar = Command::new("tar")
        .args(["-czf", "a.tar.gz", "-C", "tree", "."])
        .current_dir(dir)
        .status();
    assert!(tar.unwrap().success());
    ok(dir, &["mkfs", "%new", "--from", "%a.tar.gz"]);
    assert_eq!(ok(dir, &["cat", "%new:/sub/hello"]), "hello\n");
    let no_image = ran(dir, &["ls", "%a.tar.gz:"]);
    assert!(
        no_image.stderr.contains("it holds a tar archive"),
        "{}",
        no_image.stderr
    );
    let mut bytes = output("gzip", &["-1", "-c"], &dir.join("new"));
    bytes.truncate(bytes.len() / 2);
    std::fs::write(dir.join("cut.gz"), bytes).unwrap();
    let cut = ran(dir, &["ls", "%cut.gz:"]);
    assert_eq!(cut.code, Some(1), "{}", cut.stderr);
    assert!(cut.stderr.contains("cut.gz: "), "{}", cut.stderr);
}

//! Images in qcow2 files; qemu-img and e2fsck judge.

use crate::cli::support::run;
use std::path::Path;
use std::process::Command;

/// Runs a tool in a directory, which must succeed.
fn tool(dir: &Path, program: &str, args: &[&str]) {
    let out = Command::new(program)
        .current_dir(dir)
        .args(args)
        .output()
        .unwrap();
    let (told, said) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{program} {args:?}: {told}{said}");
}

/// Runs the command with paths in a directory, which `%` stands for; returns its output.
fn ok(dir: &Path, args: &[&str]) -> String {
    let args: Vec<_> = args
        .iter()
        .map(|a| a.replace('%', &format!("{}/", dir.display())))
        .collect();
    let ran = run(&args);
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
    ran.text()
}

/// Checks the image with qemu-img, and with e2fsck as converted by qemu-img.
fn judged(dir: &Path, image: &str) {
    tool(dir, "qemu-img", &["check", "-q", image]);
    tool(dir, "qemu-img", &["convert", "-O", "raw", image, "raw"]);
    tool(dir, "e2fsck", &["-fn", "raw"]);
}

#[test]
fn a_qcow2_image_is_made_filled_and_read() {
    needs::tools!("qemu-img", "e2fsck");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tool(
        dir,
        "qemu-img",
        &["create", "-q", "-f", "qcow2", "a.qcow2", "64M"],
    );
    ok(dir, &["mkfs", "%a.qcow2"]);
    let data: Vec<u8> = (0..3_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    std::fs::write(dir.join("big"), &data).unwrap();
    ok(dir, &["cp", "%big", "%a.qcow2:/big"]);
    ok(dir, &["check", "%a.qcow2"]);
    ok(dir, &["cp", "%a.qcow2:/big", "%back"]);
    assert!(std::fs::read(dir.join("back")).unwrap() == data);
    judged(dir, "a.qcow2");
    assert!(std::fs::metadata(dir.join("a.qcow2")).unwrap().len() < 32 << 20);
    // Changes in an overlay leave its backing image unchanged.
    let before = std::fs::read(dir.join("a.qcow2")).unwrap();
    tool(
        dir,
        "qemu-img",
        &[
            "create", "-q", "-f", "qcow2", "-b", "a.qcow2", "-F", "qcow2", "b.qcow2",
        ],
    );
    ok(dir, &["mkdir", "%b.qcow2:/new"]);
    assert_eq!(ok(dir, &["ls", "%b.qcow2:"]), "big\nlost+found\nnew\n");
    judged(dir, "b.qcow2");
    assert!(std::fs::read(dir.join("a.qcow2")).unwrap() == before);
    // Compressed clusters are readable.
    tool(
        dir,
        "qemu-img",
        &["convert", "-c", "-O", "qcow2", "b.qcow2", "c.qcow2"],
    );
    ok(dir, &["cp", "%c.qcow2:/big", "%back"]);
    assert!(std::fs::read(dir.join("back")).unwrap() == data);
}

#[test]
fn an_image_leads_to_no_file_elsewhere() {
    needs::tools!("qemu-img");
    let dir = tempfile::tempdir().unwrap();
    let (dir, elsewhere) = (dir.path(), tempfile::tempdir().unwrap());
    let secret = elsewhere.path().join("secret");
    std::fs::write(&secret, vec![7; 4 << 20]).unwrap();
    let to = secret.display().to_string();
    tool(
        dir,
        "qemu-img",
        &[
            "create", "-q", "-f", "qcow2", "-b", &to, "-F", "raw", "a.qcow2",
        ],
    );
    let ran = run(&["check", &dir.join("a.qcow2").display().to_string()]);
    assert!(
        ran.code != Some(0) && ran.stderr.contains("outside of its own directory"),
        "{}",
        ran.stderr
    );
}

#[test]
fn partitions_in_qcow2_images_are_images() {
    needs::tools!("qemu-img", "e2fsck");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ok(
        dir,
        &["disk", "%d.img", "--ext4", "one=:9M", "--ext4", "two=:9M"],
    );
    tool(
        dir,
        "qemu-img",
        &["convert", "-O", "qcow2", "d.img", "d.qcow2"],
    );
    assert!(ok(dir, &["info", "%d.qcow2"]).contains("d.qcow2@p2"));
    ok(dir, &["mkdir", "%d.qcow2@label=two:/dir"]);
    ok(dir, &["cp", "-a", "%d.qcow2@p2:/dir", "%d.qcow2@p1:/copy"]);
    assert_eq!(ok(dir, &["ls", "%d.qcow2@p1:"]), "copy\nlost+found\n");
    tool(dir, "qemu-img", &["check", "-q", "d.qcow2"]);
}

#[test]
fn the_name_of_a_new_image_selects_qcow2() {
    needs::tools!("qemu-img", "e2fsck");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::create_dir(dir.join("tree")).unwrap();
    std::fs::write(dir.join("tree/file"), vec![7; 300_000]).unwrap();
    ok(
        dir,
        &["mkfs", "%a.qcow2", "--from", "%tree", "--size", "1G"],
    );
    judged(dir, "a.qcow2");
    let size = std::fs::metadata(dir.join("a.qcow2")).unwrap().len();
    assert!(size < 8 << 20, "{size}");
    ok(dir, &["mkdir", "%a.qcow2:/new"]);
    assert_eq!(ok(dir, &["ls", "%a.qcow2:"]), "file\nlost+found\nnew\n");
    judged(dir, "a.qcow2");
    // `disk -F` replaces the image by another qcow2 image.
    let refused = run(&[
        "disk",
        &format!("{}/a.qcow2", dir.display()),
        "--ext4",
        "r=:9M",
    ]);
    assert!(refused.code != Some(0), "{}", refused.text());
    ok(dir, &["disk", "-F", "%a.qcow2", "--ext4", "r=:9M"]);
    tool(dir, "qemu-img", &["check", "-q", "-f", "qcow2", "a.qcow2"]);
    assert_eq!(ok(dir, &["ls", "%a.qcow2@p1:"]), "lost+found\n");
    ok(
        dir,
        &["mkfs", "%b", "--format", "qcow2", "--size", "9M", "-q"],
    );
    judged(dir, "b");
}

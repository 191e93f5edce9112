//! Immutable and append-only flags, and permissions for files and names: every call of a table must give the same
//! answer on a volume that this engine opened and on the same image mounted by the kernel.

use crate::common;
mod calls;
mod kernel_side;
mod our_side;

use calls::{Case, cases};
use common::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The variable that gives the kernel's side the image's path. The answers go to a file next to the image.
const IMAGE: &str = "EXTANT_BOUND_IMAGE";

fn able() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        needs::ignored("mounting takes root");
    }
    root && needs::have(&["mke2fs", "e2fsck", "mount", "unshare"])
}

#[test]
fn the_same_answers_as_the_kernel() {
    if !able() {
        return;
    }
    let dir = needs::memory_dir();
    let image = dir.path().join("image");
    mke2fs(
        &image,
        "96M",
        &["-t", "ext4", "-N", "20000", "-J", "size=8"],
    );
    // In a separate mount namespace, so that nothing stays mounted whatever happens.
    let out = Command::new("unshare")
        .args(["--mount", "--propagation", "slave", "timeout", "500"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "bound::in_a_mount_namespace",
            "--ignored",
            "--nocapture",
        ])
        .env(IMAGE, &image)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "the kernel's side: {}\n{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    let kernel = read_answers(&image.with_extension("answers"));
    assert_clean_file(&image, "after the kernel's side");

    mke2fs(
        &image,
        "96M",
        &["-t", "ext4", "-N", "20000", "-J", "size=8"],
    );
    let volume = extant::VolumeOptions::new()
        .background(false)
        .open(&image)
        .unwrap();
    let ours = our_side::Ours::new(&volume);
    let mut different = Vec::new();
    for case in cases() {
        let found = case.run(&ours);
        let expected = kernel.get(&case.name()).copied();
        if Some(found) != expected {
            different.push(format!("{}: {found}, the kernel {expected:?}", case.name()));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {} differ:\n{}",
        different.len(),
        kernel.len(),
        different.join("\n")
    );
    volume.close().unwrap();
    assert_clean_file(&image, "after our side");
}

/// Run by the test above, in a separate process.
#[test]
#[ignore = "run in a mount namespace by the_same_answers_as_the_kernel"]
fn in_a_mount_namespace() {
    let Some(image) = std::env::var_os(IMAGE) else {
        return;
    };
    let image = Path::new(&image);
    let dir = image.with_extension("mounted");
    std::fs::create_dir(&dir).unwrap();
    let run = |program: &str, args: &[&str]| {
        let out = Command::new(program).args(args).arg(&dir).output().unwrap();
        assert!(
            out.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    };
    run("mount", &["-o", "loop,noatime", image.to_str().unwrap()]);
    let kernel = kernel_side::Kernel::new(&dir);
    let answers: Vec<String> = cases()
        .iter()
        .map(|case: &Case| format!("{}\t{}", case.name(), case.run(&kernel)))
        .collect();
    std::fs::write(image.with_extension("answers"), answers.join("\n")).unwrap();
    drop(kernel);
    run("umount", &[]);
    std::fs::remove_dir(&dir).unwrap();
}

/// The flags that a new inode inherits from its directory depend on its type, as in Linux 6.18.
#[test]
fn flags_are_inherited_by_type() {
    needs::tools!("mke2fs");
    let v = open(&mem_image("16M", &["-t", "ext4", "-J", "size=4"]));
    let set = |path: &str, flags| {
        let set = extant::SetAttributes {
            flags: Some(flags),
            ..Default::default()
        };
        v.set_attributes(path, &set).unwrap();
    };
    v.create_dir("/d").unwrap();
    set("/d", 0xb_80cf);
    v.create_new_file("/d/file").unwrap();
    v.create_dir("/d/sub").unwrap();
    v.symlink("x", "/d/link").unwrap();
    v.symlink("x".repeat(100), "/d/long").unwrap();
    v.mknod("/d/fifo", extant::FileType::Fifo, 0o600, 0)
        .unwrap();
    for (path, flags) in [
        ("/d", 0xb_80cf),
        ("/d/file", 0x8_80cf),
        ("/d/sub", 0x9_80cf),
        ("/d/link", 0xc0),
        ("/d/long", 0x8_00c0),
        ("/d/fifo", 0xc0),
    ] {
        let found = v.symlink_metadata(path).unwrap().flags();
        assert_eq!(found, flags, "{path}: {found:x}");
    }
    // The append-only flag is not inherited.
    set("/d", 0x8_0020);
    v.create_new_file("/d/free").unwrap();
    assert_eq!(v.metadata("/d/free").unwrap().flags(), 0x8_0000);
}

fn read_answers(path: &Path) -> BTreeMap<String, i32> {
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let (name, errno) = line.split_once('\t').unwrap();
        (name.to_string(), errno.parse().unwrap())
    };
    text.lines().map(line).collect()
}

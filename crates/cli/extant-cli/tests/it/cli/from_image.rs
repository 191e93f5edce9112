//! New file systems and imports from images: what a copy keeps, judged by `extant diff`, e2fsck and the kernel.

use crate::cli::damage::with_loops;
use crate::cli::support::{Mounted, Scratch};
use crate::cli::trees::{make_tree, same, snapshot};
use std::fs;

/// Returns the new image as a separate scratch.
fn new_image(s: &Scratch) -> Scratch {
    let mut new = Scratch::empty();
    new.image = s.host("new.img");
    new
}

/// Asserts that the trees of two images are equal.
#[track_caller]
fn equal(s: &Scratch, a: &str, b: &str) {
    let ran = s.run(&["diff", a, b]);
    let told = (ran.code, ran.text(), ran.stderr);
    assert_eq!(told, (Some(0), String::new(), String::new()));
}

/// Copies the flags of chattr, except those that describe the storage; e2fsck and the columns of lsattr judge.
#[test]
fn flags_of_chattr_are_kept() {
    let Some(s) = Scratch::mke2fs("16M", &["-t", "ext4"]) else {
        return;
    };
    s.ok(&["mkdir", ":/dir"]);
    fs::write(s.host("file"), "text").unwrap();
    for file in [":/file", ":/dir/log", ":/plain"] {
        s.ok(&["cp", "@file", file]);
    }
    s.ok(&["ln", "-s", "file", ":/link"]);
    s.ok(&["chattr", "+iAd", ":/file"]);
    s.ok(&["chattr", "+aS", ":/dir/log"]);
    s.ok(&["chattr", "+TD", ":/dir"]);
    let listed = s.ok(&["lsattr", "-R", ":"]);
    assert!(listed.contains("----i-dA------e------- /file"), "{listed}");
    // Mapped by blocks, whatever the mapping in the old image.
    for (args, other) in [
        (&["-t", "ext4"][..], listed.clone()),
        (&["-t", "ext3"], listed.replace('e', "-")),
    ] {
        s.ok(&[
            &["mkfs", "@new.img", "-F", "-q", "--from", "%", "-N", "64"],
            args,
        ]
        .concat());
        let new = new_image(&s);
        new.clean();
        let found = new.ok(&["lsattr", "-R", ":"]);
        match args[1] {
            "ext4" => assert_eq!(found, other),
            _ => assert_eq!(found.replace('e', "-"), other),
        }
    }
}

#[test]
fn a_new_image_has_the_tree_of_an_old_one() {
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext3", "-I", "256", "-b", "2048"],
    ] {
        let Some(s) = Scratch::mke2fs("64M", args) else {
            return;
        };
        let tree = s.host("tree");
        make_tree(&tree);
        s.ok(&["import", "%", "@tree"]);
        let before = s.bytes();
        for threads in ["1", "4"] {
            let ran = s.run(&[
                "mkfs",
                "@new.img",
                "--from",
                "%",
                "-F",
                "--threads",
                threads,
            ]);
            assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
            let new = new_image(&s);
            new.clean();
            equal(&s, "%", "@new.img");
            if let Some(mounted) = Mounted::new(&new) {
                let mut found = snapshot(mounted.path());
                found.retain(|path, _| !path.starts_with("lost+found"));
                same(&found, &snapshot(&tree));
            }
        }
        assert!(s.bytes() == before, "the source was written to");
    }
}

/// Data inside inodes become ordinary files in the new image and in exports, and the source stays unchanged.
#[test]
fn files_inside_inodes() {
    let s = Scratch::empty();
    let tree = s.host("tree");
    make_tree(&tree);
    for n in 0..20 {
        fs::write(tree.join(format!("small{n}")), vec![b'a'; n * 9]).unwrap();
        let dir = tree.join(format!("dir{n}"));
        fs::create_dir(&dir).unwrap();
        (0..n).for_each(|m| fs::write(dir.join(format!("{m}")), "x").unwrap());
        std::os::unix::fs::symlink("t".repeat(50 + n), tree.join(format!("link{n}"))).unwrap();
    }
    let tree = tree.to_str().unwrap().to_owned();
    for inode in ["256", "1024"] {
        let args = ["-t", "ext4", "-I", inode, "-O", "inline_data", "-d", &tree];
        let Some(s) = Scratch::mke2fs("64M", &args) else {
            return;
        };
        let before = s.bytes();
        s.ok(&["mkfs", "@new.img", "--from", "%", "-q"]);
        let new = new_image(&s);
        new.clean();
        equal(&s, "%", "@new.img");
        let flags = new.ok(&["lsattr", "-R", ":"]);
        let inside = |line: &str| {
            line.split(' ')
                .next()
                .is_some_and(|flags| flags.contains('N'))
        };
        assert!(!flags.lines().any(inside), "{flags}");
        assert!(s.ok(&["lsattr", "-R", ":"]).lines().any(inside));
        if let Some(mounted) = Mounted::new(&s) {
            // Linux gives each file inside its inode the sectors of its size, also one that is a hole.
            let seen = |top: &std::path::Path| {
                let mut seen = snapshot(top);
                for line in seen.values_mut() {
                    *line = line.replace("sparse=true", "sparse=false");
                }
                seen
            };
            let theirs = seen(mounted.path());
            mounted.unmount();
            let mut found = theirs.clone();
            found.retain(|path, _| !path.starts_with("lost+found"));
            if let Some(mounted) = Mounted::new(&new) {
                let mut ours = seen(mounted.path());
                ours.retain(|path, _| !path.starts_with("lost+found"));
                same(&ours, &found);
            }
            let out = format!("@out{inode}");
            s.ok(&["export", ":/", &out]);
            same(&seen(&s.host(&out[1..])), &theirs);
        }
        assert!(s.fails(&["rm", ":/small3"]).contains("inline_data"));
        assert!(s.bytes() == before, "the source was written to");
    }
}

/// `mkfs --from` stores values that were in inodes in the inode or the block of their file. If they do not fit there, no image is made.
#[test]
fn values_in_inodes() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "ea_inode"];
    let Some(s) = Scratch::mke2fs("16M", &args) else {
        return;
    };
    fs::write(s.host("value"), [b'v'; 1000]).unwrap();
    let value = s.host("value").display().to_string();
    for request in [
        format!("write {value} /file"),
        format!("ea_set -f {value} /file user.note"),
        "ea_set /file user.short x".into(),
    ] {
        let mut debugfs = std::process::Command::new("debugfs");
        let out = debugfs.args(["-w", "-R", &request]).arg(&s.image).output();
        assert!(out.unwrap().status.success(), "{request}");
    }
    let before = s.bytes();
    let told = s.ok(&["getfattr", "-n", "user.note", ":/file"]);
    assert!(told.contains(&"v".repeat(1000)), "{told}");
    s.ok(&["mkfs", "@new.img", "--from", "%", "-q", "-b", "4096"]);
    new_image(&s).clean();
    equal(&s, "%", "@new.img");
    let narrow = ["mkfs", "@new.img", "-F", "--from", "%", "-q", "-b", "1024"];
    let said = s.fails(&narrow);
    assert!(
        said.contains("file: ") && said.contains("hold more"),
        "{said}"
    );
    s.ok(&[&narrow[..], &["--no-xattrs"]].concat());
    assert!(s.fails(&["rm", ":/file"]).contains("ea_inode"));
    assert!(s.bytes() == before, "the source was written to");
}

#[test]
fn images_in_disks_and_layers_of_images() {
    let Some(s) = Scratch::filled() else { return };
    s.ok(&[
        "disk",
        "@disk.raw",
        "--ext4",
        &format!("root={}", s.image.display()),
    ]);
    s.ok(&["mkfs", "@new.img", "--from", "@disk.raw@p1", "-q"]);
    new_image(&s).clean();
    equal(&s, "%", "@new.img");
    let line = s.fails(&["mkfs", "@none.img", "--from", "@disk.raw@p3"]);
    assert!(line.contains("disk.raw@p3"), "{line}");
    let line = s.fails(&["mkfs", "@none.img", "--from", "@disk.raw"]);
    assert!(line.contains("disk.raw@p1"), "{line}");
    if needs::have(&["qemu-img"]) {
        let mut convert = std::process::Command::new("qemu-img");
        convert
            .args(["convert", "-O", "qcow2"])
            .arg(&s.image)
            .arg(s.host("disk.qcow2"));
        assert!(convert.status().unwrap().success());
        s.ok(&["mkfs", "@new.img", "--from", "@disk.qcow2", "-q", "-F"]);
        equal(&s, "%", "@new.img");
    }
    // A directory over an image, and an image over it, with a white-out.
    fs::create_dir_all(s.host("over/etc")).unwrap();
    fs::write(s.host("over/etc/.wh.motd"), "").unwrap();
    fs::write(s.host("over/etc/added"), "added").unwrap();
    s.ok(&[
        "mkfs", "@new.img", "--from", "%", "--from", "@over", "-q", "-F",
    ]);
    let new = new_image(&s);
    new.clean();
    assert_eq!(new.ok(&["ls", ":/etc"]), "added\nlink\nskel\n");
    // Import into an existing image.
    s.ok(&["import", "@new.img", "%", "--to", "/deep/below"]);
    new.clean();
    equal(
        &s,
        ":/etc",
        &format!("{}:/deep/below/etc", new.image.display()),
    );
    let line = s.fails(&["mkfs", "%", "--from", "%", "-F"]);
    assert!(line.contains("is also its source"), "{line}");
    s.clean();
}

/// Images are not trusted.
#[test]
fn damaged_images_give_errors_or_clean_images() {
    let Some(s) = with_loops() else { return };
    let line = s.fails(&["mkfs", "@new.img", "--from", "%"]);
    assert!(line.contains("loop"), "{line}");
    assert!(!s.host("new.img").exists());
    let Some(s) = Scratch::ext4() else { return };
    make_tree(&s.host("tree"));
    s.ok(&["import", "%", "@tree"]);
    let good = s.bytes();
    // Inodes, directories and attributes are in the first blocks that contain data.
    let used: Vec<_> = (1024..good.len())
        .filter(|&at| good[at] != 0)
        .take(60_000)
        .collect();
    let mut seed = 0x9e37_79b9_u64;
    let mut made = 0;
    for round in 0..60 {
        let mut bytes = good.clone();
        // With one broken byte some images are still readable, with more bytes hardly any.
        let broken = if round % 2 == 0 { 1 } else { 20 };
        for _ in 0..broken {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            bytes[used[(seed >> 33) as usize % used.len()]] = (seed >> 20) as u8;
        }
        fs::write(&s.image, bytes).unwrap();
        let ran = s.run(&[
            "mkfs", "@new.img", "--from", "%", "-F", "-q", "--size", "64M",
        ]);
        assert!(
            matches!(ran.code, Some(0 | 1)),
            "{:?}: {}",
            ran.code,
            ran.stderr
        );
        if ran.code == Some(0) {
            made += 1;
            new_image(&s).clean();
        }
    }
    assert!(made > 0);
}

//! `extant undo`: its arguments, its trust in undo files, and full hosts.

use crate::cli::interrupted::{Loop, code, filled, interrupted};
use crate::cli::support::{Scratch, root, run};
use blockdev::{Access, BlockDevice, FileDevice};
use ext4_image::ImageFile;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

#[test]
fn undo_takes_its_words_in_any_order_and_says_what_it_did() {
    let Some((s, undo, before)) = interrupted() else {
        return;
    };
    let marked = s.bytes();
    let undo = undo.display().to_string();
    for words in [["undo", &undo, "%"], ["undo", "%", &undo]] {
        std::fs::write(&s.image, &marked).unwrap();
        let told = s.ok(&words);
        assert!(
            told.contains("disk.img: restored to its state before the change"),
            "{told}"
        );
        assert!(s.bytes() == before);
        assert!(s.ok(&words).contains("nothing to take back"));
    }
    std::fs::write(&s.image, &marked).unwrap();
    for words in [["undo", "%", "@none"], ["undo", "@none", "%"]] {
        let said = s.fails(&words);
        assert!(
            said.contains("an undo file and its image are needed"),
            "{said}"
        );
    }
    let said = s.fails(&["undo", "%", "%"]);
    assert!(said.contains("not an undo file"), "{said}");
    let said = s.fails(&["undo", &undo, &undo]);
    assert!(said.contains("both undo files"), "{said}");
    assert!(s.bytes() == marked);
    let ran = s.run(&["undo", "%"]);
    assert!(
        ran.code == Some(0) && ran.stderr.contains(&undo),
        "{}",
        ran.stderr
    );
    assert!(s.bytes() == before && !Path::new(&undo).exists());
    assert!(
        s.fails(&["undo", "%"])
            .contains("no change was interrupted")
    );
}

#[test]
fn what_was_changed_since_is_taken_back_by_force_alone() {
    let Some((s, undo, before)) = interrupted() else {
        return;
    };
    let undo = undo.display().to_string();
    // A sector that the change has written.
    let device = FileDevice::open(&s.image, Access::ReadWrite).unwrap();
    let changed = (0..before.len() as u64 / 512).map(|n| n * 512).find(|&at| {
        let mut now = [0; 512];
        device.read_at(at, &mut now).unwrap();
        at != 1024 && now != before[at as usize..at as usize + 512]
    });
    device.write_at(changed.unwrap(), &[0xa5; 512]).unwrap();
    drop(device);
    let changed = s.bytes();
    for args in [
        &["undo", &undo, "%"][..],
        &["undo", "%"],
        &["repair", "-y", "%"],
    ] {
        let ran = s.run(args);
        assert!(matches!(ran.code, Some(1 | 8)), "{args:?}");
        assert!(ran.stderr.contains("changed since"), "{}", ran.stderr);
        assert!(s.bytes() == changed);
    }
    s.ok(&["undo", "--force", &undo, "%"]);
    assert!(s.bytes() == before);
}

/// The undo file of an earlier change does not replace the mark of an interrupted one.
#[test]
fn an_earlier_undo_file_first_reverts_the_interrupted_change() {
    let Some((s, undo, before)) = interrupted() else {
        return;
    };
    let marked = s.bytes();
    let beside = std::fs::read(&undo).unwrap();
    std::fs::write(&s.image, &before).unwrap();
    let earlier = s.host("earlier").display().to_string();
    s.ok(&["tune", "%", "-L", "second", "--undo", &earlier]);
    for force in [&[][..], &["--force"]] {
        std::fs::write(&s.image, &marked).unwrap();
        std::fs::write(&undo, &beside).unwrap();
        let ran = s.run(&[&["undo", &earlier, "%"], force].concat());
        assert!(ran.stderr.contains("was reverted"), "{}", ran.stderr);
        assert!(ran.code == Some(0) && s.bytes() == before);
    }
    std::fs::write(&s.image, &marked).unwrap();
    let _ = std::fs::remove_file(&undo);
    let said = s.fails(&["undo", &earlier, "%"]);
    assert!(said.contains("a change in place was interrupted"), "{said}");
    assert!(s.bytes() == marked);
}

#[test]
fn a_pipe_is_not_an_undo_file() {
    let Some(s) = Scratch::ext4() else {
        return;
    };
    let pipe = s.host("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let said = s.fails(&["undo", "--force", &pipe.display().to_string(), "%"]);
    assert!(said.contains("not a regular file"), "{said}");
}

#[test]
fn an_image_with_an_interrupted_change_is_not_copied() {
    let Some((s, _, before)) = interrupted() else {
        return;
    };
    let copy = s.host("copy");
    std::fs::write(&copy, &before).unwrap();
    for command in ["push", "pull"] {
        let said = s.fails(&[command, "%", &copy.display().to_string(), "--force"]);
        assert!(said.contains("a change in place was interrupted"), "{said}");
        assert!(std::fs::read(&copy).unwrap() == before);
    }
}

#[test]
fn an_undo_file_that_is_not_trusted_is_told() {
    let Some((s, undo, before)) = interrupted() else {
        return;
    };
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&undo, PermissionsExt::from_mode(0o666)).unwrap();
    let marked = s.bytes();
    let undo = undo.display().to_string();
    for args in [
        &["undo", &undo, "%"][..],
        &["undo", "%"],
        &["tune", "%", "-L", "x"],
    ] {
        let said = s.fails(args);
        assert!(said.contains("others may write to it"), "{said}");
        assert!(s.bytes() == marked);
    }
    s.ok(&["undo", "--force", &undo, "%"]);
    assert!(s.bytes() == before);
}

#[test]
fn a_full_host_leaves_the_old_volume_and_no_undo_file() {
    if !root() {
        return;
    }
    let Some(s) = filled() else { return };
    let before = s.bytes();
    let place = s.host("small");
    std::fs::create_dir(&place).unwrap();
    let (mut failed, dir) = (0, place.display().to_string());
    let image = place.join("disk.img").display().to_string();
    for room in [8, 40, 80, 120, 160, 240, 400] {
        let taken = std::fs::metadata(&s.image).map(|meta| {
            use std::os::unix::fs::MetadataExt;
            meta.blocks() / 2
        });
        let size = format!("size={}k", taken.unwrap() + room);
        assert_eq!(
            code("mount", &["-t", "tmpfs", "-o", &size, "none", &dir]),
            Some(0)
        );
        let copied = code(
            "cp",
            &["--sparse=always", &s.image.display().to_string(), &image],
        );
        let ran = run(&["resize", &image, "2G"]);
        let (after, left) = (
            std::fs::read(&image).unwrap_or_default(),
            std::fs::read_dir(&place).unwrap().count(),
        );
        let length = std::fs::metadata(&image).map(|meta| meta.len());
        assert_eq!(code("umount", &[&dir]), Some(0));
        if copied != Some(0) || ran.code == Some(0) {
            continue;
        }
        failed += 1;
        assert!(ran.stderr.contains("o space left"), "{}", ran.stderr);
        assert!(after == before, "{room} KiB: {}", ran.stderr);
        assert_eq!(
            (length.unwrap(), left),
            (before.len() as u64, 1),
            "{room} KiB"
        );
    }
    assert!(failed > 1, "{failed}");
}

#[test]
fn a_full_host_below_a_loop_device_leaves_the_old_volume() {
    if !root() || !needs::have(&["losetup", "mount", "mke2fs"]) {
        return;
    }
    let s = Scratch::in_memory().made("16M", &["-t", "ext4", "-b", "1024"]);
    // The volume is smaller than its device, whose rest is a hole.
    let file = std::fs::OpenOptions::new().write(true).open(&s.image);
    file.unwrap().set_len(128 << 20).unwrap();
    let place = s.host("small");
    std::fs::create_dir(&place).unwrap();
    let (dir, image) = (place.display().to_string(), place.join("disk.img"));
    assert_eq!(
        code("mount", &["-t", "tmpfs", "-o", "size=1g", "none", &dir]),
        Some(0)
    );
    let names = [&s.image, &image].map(|path| path.display().to_string());
    assert_eq!(
        code("cp", &["--sparse=always", &names[0], &names[1]]),
        Some(0)
    );
    let before = std::fs::read(&image).unwrap();
    let used = rustix::fs::statvfs(&place).unwrap();
    let used = (used.f_blocks - used.f_bfree) * used.f_frsize / 1024;
    let size = format!("remount,size={}k", used + 8);
    assert_eq!(code("mount", &["-o", &size, &dir]), Some(0));
    let undo = s.host("undo").display().to_string();
    let device = Loop::over(&names[1]);
    let ran = run(&["resize", "--undo", &undo, &device.0]);
    drop(device);
    let after = std::fs::read(&image).unwrap();
    let unmounted = code("umount", &[&dir]);
    assert_eq!((ran.code, unmounted), (Some(1), Some(0)), "{}", ran.stderr);
    // A loop device reports a full host at a flush.
    assert!(
        ran.stderr.contains("the change was reverted"),
        "{}",
        ran.stderr
    );
    assert!(after == before, "{}", ran.stderr);
}

#[test]
fn a_block_device_has_its_undo_record_in_its_free_blocks() {
    if !root() || !needs::have(&["losetup"]) {
        return;
    }
    let Some(s) = filled() else { return };
    let device = Loop::over(&s.image.display().to_string());
    let file = ImageFile::of(Path::new(&device.0), None).unwrap();
    assert_eq!(file.place_of_undo().unwrap(), None);
    for args in [
        &["tune", &device.0, "-L", "label"][..],
        &["repair", "-p", &device.0],
        &["resize", &device.0, "12M"],
        &["defrag", &device.0],
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr, "", "{args:?}");
    }
    drop(device);
    s.clean();
}

#[test]
fn the_owner_of_an_image_in_a_directory_of_root_changes_it() {
    if !root() {
        return;
    }
    let Some(s) = filled() else { return };
    let program = s.host("extant");
    std::fs::copy(env!("CARGO_BIN_EXE_extant"), &program).unwrap();
    std::fs::set_permissions(s.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&s.image, Some(65_534), Some(65_534)).unwrap();
    let mut command = Command::new(program);
    let command = command.args(["tune", "-L", "label"]).arg(&s.image);
    let out = command.uid(65_534).gid(65_534).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.is_empty(), "{said}");
    s.clean();
}

#[test]
fn an_image_without_its_undo_file_says_which_it_needs() {
    let Some((s, undo, before)) = interrupted() else {
        return;
    };
    let elsewhere = s.host("elsewhere");
    std::fs::rename(&undo, &elsewhere).unwrap();
    let said = s.fails(&["tune", "%", "-L", "x"]);
    assert!(said.contains(&undo.display().to_string()), "{said}");
    assert!(said.contains("it is not there"), "{said}");
    s.ok(&["undo", "@elsewhere", "%"]);
    assert!(s.bytes() == before);
}

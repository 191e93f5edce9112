//! An open image is locked against writes by other users, under any name: the table of docs/mount.md, cell by cell.

use super::device::Loop;
use super::support::{EXTANT, Kernel, Mounted, Transport, image, isolated, place, run, script};
use std::path::Path;
use std::process::Command;

/// Writes a file into an image that may be in use; returns whether the write was refused because of another user.
#[track_caller]
fn is_refused(image: &Path) -> bool {
    let out = Command::new(EXTANT)
        .args(["cp", "/etc/hostname"])
        .arg(format!("{}:/written", image.display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    let busy = text.contains("in use") || text.contains("busy") || text.contains("is mounted");
    assert!(out.status.success() || busy, "{}: {text}", image.display());
    !out.status.success()
}

/// Asserts that a second user is refused under each name of the image.
fn assert_all_names_are_refused(dir: &Path, image: &Path) {
    script(
        dir,
        "ln -s disk.img symbolic; ln disk.img hard; mkdir -p other; mount --bind . other",
    );
    for name in ["disk.img", "symbolic", "hard", "other/disk.img"] {
        assert!(is_refused(&dir.join(name)), "{name}");
    }
    let shown = Loop::new(image, &[]);
    assert!(is_refused(&shown.0), "a loop device over it");
    drop(shown);
    run(Command::new("umount").arg(dir.join("other")));
}

#[test]
fn an_image_that_is_mounted_here_is_not_written_by_others() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        assert_eq!(image, place.path().join("disk.img"));
        let mounted = Mounted::new(&image, Transport::Classic, &[]);
        assert_all_names_are_refused(place.path(), &image);
        // To Linux, a file of an overlay file system is a separate file; writes go to the upper layer.
        script(
            place.path(),
            "mkdir -p lower upper work merged; mount --bind . lower
             if mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work merged 2>/dev/null
             then echo yes >overlaid; fi",
        );
        if place.path().join("overlaid").exists() {
            assert!(!is_refused(&place.path().join("merged/disk.img")));
            script(place.path(), "umount merged");
        }
        script(place.path(), "umount lower; echo text >mnt.file");
        mounted.unmount();
    });
}

#[test]
fn an_image_that_the_kernel_has_mounted_is_not_written() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let kernel = Kernel::new(&image, "rw");
        assert_all_names_are_refused(place.path(), &image);
        drop(kernel);
    });
}

/// The kernel's loop device does not circumvent the lock either, while this program has the device open.
#[test]
fn a_mounted_loop_device_keeps_its_file_and_its_twins() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let device = Loop::new(&image, &[]);
        let dir = place.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        run(Command::new(EXTANT).arg("mount").arg(&device.0).arg(&dir));
        assert!(is_refused(&image));
        let twin = Loop::new(&image, &[]);
        assert!(is_refused(&twin.0));
        drop(twin);
        run(Command::new(EXTANT).arg("umount").arg(&dir));
    });
}

/// A second mount of an image shows the first, and either can be unmounted first.
#[test]
fn a_second_mount_shows_the_first() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        script(place.path(), "mkdir a b");
        let (a, b) = (place.path().join("a"), place.path().join("b"));
        for (first, last) in [(&a, &b), (&b, &a)] {
            run(Command::new(EXTANT).arg("mount").arg(&image).arg(&a));
            run(Command::new(EXTANT).arg("mount").arg(&image).arg(&b));
            for dir in [&a, &b] {
                let again = Command::new(EXTANT)
                    .arg("mount")
                    .arg(&image)
                    .arg(dir)
                    .output();
                let said = String::from_utf8(again.unwrap().stderr).unwrap();
                assert!(said.contains("mounted here already"), "{said}");
            }
            script(&a, "echo text >file");
            assert_eq!(std::fs::read_to_string(b.join("file")).unwrap(), "text\n");
            // An image mounted for writing is not mounted again read-only.
            let other = Command::new(EXTANT)
                .args(["mount", "-o", "ro"])
                .arg(&image)
                .arg(&b)
                .output();
            assert!(!other.unwrap().status.success());
            run(Command::new(EXTANT).arg("umount").arg(first));
            script(last, "echo more >>file");
            run(Command::new(EXTANT).arg("umount").arg(last));
            let fsck = Command::new("e2fsck").arg("-fn").arg(&image).output();
            assert!(fsck.unwrap().status.success());
        }
    });
}

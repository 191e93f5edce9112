//! The first commands that a new user types.

use super::support::{
    EXTANT, InBackground, Kernel, Mounted, assert_clean, extant, image, isolated, over_each, place,
    run, script, status,
};
use crate::cli::interrupted::interrupted;
use std::process::Command;

#[test]
fn files_are_made_read_and_removed() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "64M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let text = script(
            mounted.dir(),
            "mkdir -p a/b; echo hello >a/b/file; ln a/b/file a/hard; ln -s b/file a/soft
             cat a/soft; stat -c %h a/hard; mv a/b/file a/moved; test ! -e a/b/file
             head -c 3000000 /dev/urandom >big; cp big again; cmp big again; truncate -s 5 again; wc -c <again
             rm a/hard; rmdir a/b; ls -A a; df . >/dev/null",
        );
        assert_eq!(text, "hello\n2\n5\nmoved\nsoft\n");
        assert_eq!(status(mounted.dir())["transport"], transport.name());
        mounted.unmount();
        assert_eq!(
            extant(
                [format!("cat {}:/a/moved", image.display())]
                    .iter()
                    .flat_map(|s| s.split(' '))
            ),
            "hello\n"
        );
        let kernel = Kernel::new(&image, "ro");
        assert_eq!(
            script(kernel.dir(), "cat a/moved; readlink a/soft"),
            "hello\nb/file\n"
        );
    });
}

#[test]
fn an_interrupted_change_is_taken_back_before_the_mount() {
    isolated(|| {
        let Some((s, undo, before)) = interrupted() else {
            return;
        };
        let dir = s.host("mnt");
        std::fs::create_dir(&dir).unwrap();
        let marked = std::fs::read(&s.image).unwrap();
        let mount = |options: &[&str]| {
            let mut command = Command::new(EXTANT);
            command.arg("mount").args(options).arg(&s.image).arg(&dir);
            command.output().unwrap()
        };
        for options in [&["-o", "ro"][..], &["--scratch"]] {
            let out = mount(options);
            let says = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(
                !out.status.success() && says.contains("extant undo"),
                "{says}"
            );
            assert!(std::fs::read(&s.image).unwrap() == marked);
        }
        let _unmounted = InBackground(&dir);
        let out = mount(&[]);
        let says = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{says}");
        assert!(
            says.contains("an interrupted change was reverted"),
            "{says}"
        );
        assert!(dir.join("directory 3").is_dir() && !undo.exists());
        extant(["umount", dir.to_str().unwrap()]);
        assert!(std::fs::read(&s.image).unwrap().len() == before.len());
        assert_clean(&s.image);
    });
}

/// The call that mount(8) makes for a line of /etc/fstab.
#[test]
fn the_helper_of_mount_mounts() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        let helper = place.path().join("mount.extant");
        std::os::unix::fs::symlink(EXTANT, &helper).unwrap();
        let dir = place.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        let _unmounted = InBackground(&dir);
        let options = ["-n", "-o", "rw,noexec,nofail,x-systemd.automount"];
        run(Command::new(&helper).arg(&image).arg(&dir).args(options));
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|l| l.contains("fuse.extant")).unwrap();
        assert!(
            line.contains("noexec") && !line.contains("nosuid"),
            "{line}"
        );
        std::fs::write(dir.join("file"), "text").unwrap();
        run(Command::new(EXTANT).arg("umount").arg(&dir));
        super::support::assert_clean(&image);
    });
}

#[test]
fn a_mount_in_the_background_serves_until_it_is_unmounted() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        let dir = place.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        let _unmounted = InBackground(&dir);
        run(Command::new(EXTANT).arg("mount").arg(&image).arg(&dir));
        std::fs::write(dir.join("file"), "text").unwrap();
        // A second mount with other options is refused, in one line.
        let second = place.path().join("second");
        std::fs::create_dir(&second).unwrap();
        let refused = Command::new(EXTANT)
            .args(["mount", "-o", "ro"])
            .arg(&image)
            .arg(&second)
            .output()
            .unwrap();
        assert_eq!(refused.status.code(), Some(1));
        let text = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("cannot differ"), "{text}");
        run(Command::new(EXTANT).arg("umount").arg(&dir));
        super::support::assert_clean(&image);
        let cat = format!("{}:/file", image.display());
        assert_eq!(extant(["cat", &cat]), "text");
    });
}

/// The server decompresses the image after it has confined itself, at once or frame by frame.
#[test]
fn compressed_images_are_mounted_to_read() {
    needs::tools!("gzip");
    isolated(|| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        let dir = place.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(place.path().join("file"), "hello\n").unwrap();
        let name = image.display().to_string();
        let file = place.path().join("file").display().to_string();
        extant(["cp", &file, &format!("{name}:/file")]);
        let seekable = format!("{name}.zst");
        extant(["mkfs", "-q", &seekable, "--from", &name]);
        run(Command::new("gzip").arg("-1").arg(&image));
        let _unmounted = InBackground(&dir);
        for packed in [seekable, format!("{name}.gz")] {
            let out = Command::new(EXTANT)
                .arg("mount")
                .arg(&packed)
                .arg(&dir)
                .output();
            let out = out.unwrap();
            let told = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{told}");
            assert!(
                told.contains("only read") && told.contains("mounted read-only"),
                "{told}"
            );
            assert_eq!(script(&dir, "cat file; ! touch new 2>/dev/null"), "hello\n");
            extant(["umount".as_ref(), dir.as_os_str()]);
        }
    });
}

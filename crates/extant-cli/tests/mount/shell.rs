//! `extant shell`, and mounting by users who are not root.

use super::support::{EXTANT, assert_clean, cannot, extant, image, isolated, place, run, run_for};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

#[test]
fn a_command_runs_in_the_image() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mut shell = Command::new(EXTANT);
        shell.arg("shell").arg(&image);
        shell.args([
            "--",
            "sh",
            "-c",
            "id -u; echo text >file; ls -d lost+found; exit 7",
        ]);
        let out = run_for(shell, Duration::from_secs(60)).unwrap();
        assert_eq!(
            out.status.code(),
            Some(7),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert_eq!(String::from_utf8_lossy(&out.stdout), "0\nlost+found\n");
        assert_clean(&image);
        assert_eq!(
            extant(["cat", &format!("{}:/file", image.display())]),
            "text\n"
        );
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("fuse.extant"), "{mounts}");
    });
}

/// ^C is for the command, which may not even mind it: what it works with is served on.
#[test]
fn interrupts_are_for_the_command() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mut shell = Command::new(EXTANT);
        shell.arg("shell").arg(&image).args([
            "--",
            "sh",
            "-c",
            "for i in 1 2 3; do kill -INT $PPID; sleep 0.2; done; echo text >file",
        ]);
        let out = run_for(shell, Duration::from_secs(60)).unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{}: {err}", out.status);
        assert_clean(&image);
        let cat = format!("{}:/file", image.display());
        assert_eq!(extant(["cat", &cat]), "text\n");
    });
}

/// A place where an ordinary user can work: the command, an image, and a /dev/fuse that is open to all, as
/// distributions have it.
struct User {
    place: tempfile::TempDir,
}

impl User {
    /// Whose image's root directory is that user's.
    fn new(owner: &str) -> Self {
        // Not in memory: device nodes do not work there everywhere.
        let place = tempfile::tempdir().unwrap();
        let user = Self { place };
        let fuse = user.path("fuse");
        run(Command::new("mknod").arg(&fuse).args(["c", "10", "229"]));
        run(Command::new("chmod").arg("666").arg(&fuse));
        run(Command::new("mount")
            .arg("--bind")
            .arg(&fuse)
            .arg("/dev/fuse"));
        run(Command::new("install")
            .args(["-m", "755", EXTANT])
            .arg(user.path("extant")));
        image(
            user.path(".").as_path(),
            "32M",
            &["-E", &format!("root_owner={owner}")],
        );
        std::fs::create_dir(user.path("mnt")).unwrap();
        run(Command::new("chown")
            .args(["-R", "65534:65534"])
            .arg(user.path(".")));
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn run(&self, script: &str) -> Output {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "bash",
                "-c",
                script,
            ])
            .current_dir(self.place.path())
            .env("HOME", self.place.path())
            .env("TMPDIR", self.place.path())
            .env_remove("XDG_RUNTIME_DIR");
        run_for(command, Duration::from_secs(60)).expect("it ends")
    }
}

impl Drop for User {
    fn drop(&mut self) {
        // A server in the background that a script left there ends with its mount.
        for place in [&self.path("mnt"), Path::new("/dev/fuse")] {
            let _ = Command::new("umount")
                .args([Path::new("-l"), place])
                .stderr(Stdio::null())
                .status();
        }
    }
}

#[test]
fn an_ordinary_user_is_root_inside() {
    isolated(|| {
        let user = User::new("0:0");
        if !user
            .run("unshare --user --map-root-user --mount true")
            .status
            .success()
        {
            return cannot("users may make no user name spaces here");
        }
        let out = user.run("./extant shell disk.img -- sh -c 'id -u; echo text >file; stat -c %u file; chmod 4755 file'");
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{err}");
        assert_eq!(String::from_utf8_lossy(&out.stdout), "0\n0\n");
        assert_clean(&user.path("disk.img"));
        let text = extant([
            "stat",
            &format!("{}:/file", user.path("disk.img").display()),
        ]);
        assert!(text.contains("4755") || text.contains("rws"), "{text}");
    });
}

#[test]
fn an_ordinary_user_mounts() {
    isolated(|| {
        let user = User::new("65534:65534");
        let out = user.run(
            "set -e; ./extant mount disk.img mnt; echo text >mnt/file; cat mnt/file; stat -c %u mnt/file
             ./extant status --json mnt | grep -c transport; ./extant umount mnt; ./extant cat disk.img:/file",
        );
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{err}");
        assert_eq!(
            String::from_utf8_lossy(&out.stdout),
            "text\n65534\n1\ntext\n"
        );
        assert_clean(&user.path("disk.img"));
    });
}

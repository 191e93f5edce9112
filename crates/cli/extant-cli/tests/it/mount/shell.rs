//! `extant shell`, and mounts by users other than root.

use super::support::{EXTANT, assert_clean, cannot, extant, image, isolated, place, run, run_for};
use std::io::{Read, Write};
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

/// Otherwise the device of that file system would be in use until the shell ends.
#[test]
fn a_file_system_that_is_unmounted_outside_is_unmounted_inside() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let other = place.path().join("other");
        std::fs::create_dir(&other).unwrap();
        run(Command::new("mount").args(["--make-rshared", "/"]));
        run(Command::new("mount")
            .args(["-t", "tmpfs", "none"])
            .arg(&other));
        let script = "echo ready; read line; ! grep /other /proc/self/mountinfo >&2";
        let mut shell = Command::new(EXTANT)
            .arg("shell")
            .arg(&image)
            .args(["--", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        shell.stdout.take().unwrap().read_exact(&mut ready).unwrap();
        run(Command::new("umount").arg(&other));
        writeln!(shell.stdin.take().unwrap(), "unmounted").unwrap();
        assert!(shell.wait().unwrap().success());
    });
}

/// ^C is for the command, which may ignore it: the server continues to serve the command.
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

/// A place where an ordinary user can work: the command, an image, and a /dev/fuse that is open to all, as in
/// distributions.
struct User {
    place: tempfile::TempDir,
}

impl User {
    /// Makes a place with an image whose root directory belongs to `owner`.
    fn new(owner: &str) -> Self {
        // On disk, because device nodes do not work in every file system in memory.
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
        // A background server that a script left there ends with its mount.
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

/// A user without write permission to the image's root directory gets a warning at mount time, with a command that
/// helps.
#[test]
fn whose_root_it_is_is_said_to_who_cannot_write_there() {
    isolated(|| {
        let user = User::new("0:0");
        let out = user.run("./extant mount disk.img mnt && ./extant umount mnt");
        assert!(out.status.success());
        assert_eq!(
            String::from_utf8_lossy(&out.stderr),
            "note: disk.img: its / belongs to user 0, you are 65534: to write there, unmount it and type extant chown \
             65534:65534 disk.img:/ (for all that is in it, chown -R), or be root in it with extant shell disk.img\n"
        );
        // The command in the message works.
        let out = user.run(
            "set -e; ./extant chown 65534:65534 disk.img:/; ./extant mount disk.img mnt; touch mnt/f; ./extant umount mnt
             ./extant chown 0:65534 disk.img:/; ./extant chmod 775 disk.img:/; ./extant mount disk.img mnt; ./extant umount mnt
             ./extant chown 0:0 disk.img:/; ./extant mount -o ro disk.img mnt; ./extant umount mnt",
        );
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && err.is_empty(), "{err}");
        assert_clean(&user.path("disk.img"));
    });
}

/// In a chroot the kernel refuses user name spaces: the error reports that, and no process is left.
#[test]
fn where_user_name_spaces_are_refused_nothing_stays() {
    needs::tools!("chroot", "newuidmap");
    isolated(|| {
        let user = User::new("0:0");
        let ids = user.path("subuid");
        std::fs::write(&ids, "nobody:100000:65536\n").unwrap();
        for file in ["/etc/subuid", "/etc/subgid"] {
            run(Command::new("mount").arg("--bind").arg(&ids).arg(file));
        }
        // Not below the directory that is removed after the test.
        run(Command::new("mount").args(["--rbind", "/", "/mnt"]));
        let image = user.path("disk.img");
        let mut shell = Command::new("chroot");
        shell
            .args(["--userspec=65534:65534", "--groups=", "/mnt"])
            .arg(user.path("extant"))
            .arg("shell")
            .arg(&image)
            .args(["--", "true"]);
        let out = run_for(shell, Duration::from_secs(60)).expect("it ends");
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{err}");
        assert!(
            err.starts_with("error: you may make no user name space here: "),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
        let left: Vec<String> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path().join("cmdline")).ok())
            .filter(|line| line.contains(image.to_str().unwrap()))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

/// If a user may not mount, the error names the command that explains why.
#[test]
fn a_mount_that_is_not_possible_leads_to_the_doctor() {
    isolated(|| {
        let user = User::new("65534:65534");
        // A directory of another user.
        run(Command::new("chown").arg("0:0").arg(user.path("mnt")));
        let out = user.run("./extant mount disk.img mnt");
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(
            err.contains("mnt: no permission to mount")
                && err.ends_with(": extant doctor says what mounting needs here\n"),
            "{err}"
        );
        assert_clean(&user.path("disk.img"));
    });
}

/// Makes a minimal root file system: a shell with its libraries, and mount points for system directories.
fn small_root(dir: &Path) {
    let copy = |from: &Path| {
        let to = dir.join(from.strip_prefix("/").unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    for program in ["/bin/sh", "/bin/cat", "/bin/sleep"] {
        copy(Path::new(program));
        let libraries = run(Command::new("ldd").arg(program));
        let paths = libraries.split_whitespace().filter(|w| w.starts_with('/'));
        paths.for_each(|path| copy(Path::new(path)));
    }
    for place in ["proc", "dev", "sys", "etc", "root"] {
        std::fs::create_dir_all(dir.join(place)).unwrap();
    }
    std::fs::write(dir.join("etc/resolv.conf"), "of the image\n").unwrap();
}

/// An ordinary user without the administrator's tools in PATH enters an image. `shell` uses system calls, provides the
/// programs with system directories, and returns their exit status. No trace of that is in the image afterwards.
#[test]
fn the_image_becomes_the_root_directory() {
    isolated(|| {
        let user = User::new("0:0");
        if !user
            .run("unshare --user --map-root-user --mount true")
            .status
            .success()
        {
            return cannot("users may make no user name spaces here");
        }
        let root = user.path("root");
        small_root(&root);
        extant([
            "mkfs",
            "--force",
            "--owner",
            "0:0",
            "--free",
            "20%",
            "--from",
            root.to_str().unwrap(),
            user.path("disk.img").to_str().unwrap(),
        ]);
        run(Command::new("chown")
            .arg("65534:65534")
            .arg(user.path("disk.img")));
        let out = user.run(
            r#"PATH=/usr/bin:/bin ./extant shell --chroot disk.img -- sh -c '
                echo "$PATH $HOME"; cd; read line </etc/resolv.conf; echo "$line" >file
                test -e /proc/self/status && test -c /dev/null && test -d /sys/kernel || exit 1; exit 9'"#,
        );
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(9), "{err}");
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /root\n";
        assert_eq!(String::from_utf8_lossy(&out.stdout), path);
        // The user has no subordinate numbers, and the line names the remedy.
        assert!(err.contains("usermod --add-subuids"), "{err}");
        let image = user.path("disk.img");
        assert_clean(&image);
        let cat = |path: &str| extant(["cat", &format!("{}:{path}", image.display())]);
        assert_eq!(cat("/etc/resolv.conf"), "of the image\n");
        assert_ne!(cat("/root/file"), "of the image\n");
        let missing = user.run("./extant shell --chroot disk.img -- no-such-program");
        assert_eq!(missing.status.code(), Some(127));
    });
}

/// The shell is killed while a command works in the image: the command ends, nothing stays mounted, and the image
/// opens.
#[test]
fn nothing_is_left_of_a_shell_that_is_killed() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mut shell = Command::new(EXTANT)
            .arg("shell")
            .arg(&image)
            .args([
                "--",
                "sh",
                "-c",
                "echo text >file; sync; echo $$; exec sleep 100",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = std::io::BufReader::new(shell.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        let command: u32 = line.trim().parse().unwrap();
        shell.kill().unwrap();
        shell.wait().unwrap();
        let gone = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let stat = std::fs::read_to_string(format!("/proc/{command}/stat"));
            stat.is_err() || stat.is_ok_and(|s| s.contains(") Z"))
        });
        assert!(gone, "the command goes on without its image");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("fuse.extant"), "{mounts}");
        // The server is notified, and closes the image.
        let ls = || Command::new(EXTANT).arg("ls").arg(&image).output().unwrap();
        let closed = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            ls().status.success()
        });
        assert!(closed, "{:?}", ls());
        extant(["touch", &format!("{}:/after", image.display())]);
        assert_clean(&image);
    });
}

//! Wrong usage, wrong images, full images, interrupts: one line, an exit code, and an unchanged image.

use crate::cli::called::{ScriptDir, told};
use crate::cli::support::{Scratch, run};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn wrong_usage_is_said_with_code_2() {
    for args in [
        &["frobnicate"][..],
        &["ls"],
        &["cat", "file"],
        &["chmod", "9z", "a:/b"],
        &["mkfs"],
        &[],
    ] {
        let ran = run(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty());
    }
    assert!(run(&["cat", "file"]).stderr.contains("write IMAGE:/path"));
}

#[test]
fn what_is_no_image_is_said() {
    let s = Scratch::empty();
    let each: [&[&str]; 7] = [
        &["ls", ":/"],
        &["cat", ":/a"],
        &["mkdir", ":/a"],
        &["info", "%"],
        &["df", "%"],
        &["rm", ":/a"],
        &["export", "%", "@out"],
    ];
    for args in each {
        let line = s.fails(args);
        assert!(
            line.contains("disk.img: no such file or directory"),
            "{args:?}: {line}"
        );
    }
    std::fs::write(&s.image, vec![0x5a; 1 << 20]).unwrap();
    for args in each {
        let line = s.fails(args);
        assert!(
            line.contains("disk.img: not an ext2/ext3/ext4 file system"),
            "{args:?}: {line}"
        );
    }
    std::fs::write(&s.image, "").unwrap();
    assert!(
        s.fails(&["ls", ":/"])
            .contains("not an ext2/ext3/ext4 file system")
    );
    let dir = crate::cli::support::run(&["ls", s.dir.path().to_str().unwrap()]);
    assert!(
        dir.code == Some(1)
            && dir
                .stderr
                .contains("neither a regular file nor a block device")
    );
}

#[test]
fn features_not_known_are_refused_by_name() {
    for feature in ["bigalloc", "quota"] {
        let Some(s) = Scratch::mke2fs("16M", &["-t", "ext4", "-O", feature]) else {
            return;
        };
        assert_eq!(s.ok(&["ls", ":/"]), "lost+found\n");
        assert!(s.fails(&["mkdir", ":/a"]).contains(feature));
    }
}

#[test]
fn failed_commands_leave_every_byte() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", ":/d"]);
    s.ok(&["touch", ":/d/f"]);
    std::fs::write(s.host("file"), "x").unwrap();
    let before = s.bytes();
    let failing: [&[&str]; 16] = [
        &["mkdir", ":/d"],
        &["rm", ":/none"],
        &["rm", ":/d"],
        &["mv", ":/none", ":/x"],
        &["mv", "-n", ":/d/f", ":/d"],
        &["ln", "-s", "x", ":/d/f"],
        &["ln", ":/none", ":/x"],
        &["chmod", "777", ":/none"],
        &["chown", "1", ":/none"],
        &["setfattr", "-x", "user.none", ":/d/f"],
        &["cp", "@none", ":/d"],
        &["cp", "@file", ":/none/x"],
        &["import", "%", "@none"],
        &["import", "%", "@file"],
        &["touch", ":/none/x"],
        &["mkfs", "%", "--size", "1M"],
    ];
    for args in failing {
        match args[..2] {
            ["mv", "-n"] => drop(s.run(&["mv", "-n", ":/d/f", ":/d/f"])),
            _ => drop(s.fails(args)),
        }
        assert!(s.bytes() == before, "{args:?} changed the image");
    }
}

#[test]
fn full_images_say_so_and_stay_clean() {
    let Some(s) = Scratch::mke2fs("8M", &["-t", "ext4"]) else {
        return;
    };
    std::fs::write(s.host("large"), vec![1; 16 << 20]).unwrap();
    assert!(s.fails(&["cp", "@large", ":/a"]).contains("no space left"));
    s.clean();
    s.ok(&["rm", "-f", ":/a"]);
    std::fs::create_dir(s.host("many")).unwrap();
    for n in 0..3000 {
        std::fs::write(s.host(&format!("many/{n}")), "").unwrap();
    }
    assert!(s.fails(&["import", "%", "@many"]).contains("no space left"));
    s.clean();
    s.ok(&["rm", "-rf", ":/lost+found"]);
    s.clean();
}

#[test]
fn used_images_are_refused() {
    let Some(s) = Scratch::ext4() else { return };
    let lock = std::fs::File::open(&s.image).unwrap();
    lock.lock().unwrap();
    assert!(s.fails(&["mkdir", ":/d"]).contains("in use"));
    drop(lock);
    s.ok(&["mkdir", ":/d"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let Some(s) = Scratch::ext4() else { return };
    std::fs::write(s.host("large"), vec![b'x'; 4 << 20]).unwrap();
    s.ok(&["cp", "@large", ":/"]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
        .arg("cat")
        .arg(format!("{}:/large", s.image.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut [0; 10])
        .unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(
        (out.status.code(), out.stderr.as_slice()),
        (Some(141), &b""[..])
    );
}

/// Work that only prints ends with its reader: no later file or request is looked at, which is wrong here.
#[test]
fn programs_by_other_names_end_with_their_reader() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    let made = place.ours(
        "mke2fs -Fq -d tree d.img 16M; tune2fs -z undo -L new d.img; printf 'stat /\\nstat /none\\n' >requests",
    );
    assert!(made.status.success(), "{}", told(&made));
    let ends = |line: &str, code: i32| {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        // The writing end of a pipe without a reader.
        let closed = || std::io::pipe().unwrap().1;
        let mut command = Command::new(place.image("names").join(name));
        command.args(words).current_dir(place.image("."));
        let out = command
            .stdout(closed())
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(
            (out.status.code(), told(&out)),
            (Some(code), String::new()),
            "{line}"
        );
        // If standard error cannot be written, the command must not panic.
        let done = command.stderr(closed()).status().unwrap();
        assert_eq!(done.code(), Some(code), "{line}");
    };
    for line in [
        "lsattr -R d.img:/ d.img:/none",
        "lsattr -d tree none",
        "debugfs -f requests d.img",
        "debugfs -R ls d.img",
        "dumpe2fs d.img",
        "tune2fs -l d.img",
        "e2undo -h undo",
        "extant lsattr -R d.img:/",
        "extant ls -R d.img:/",
        "extant tree d.img:/",
        "extant check --json d.img",
        "extant inspect d.img dirents /",
    ] {
        ends(line, 141);
    }
    for line in ["lsattr -V -d tree", "resize2fs d.img 16384", "mke2fs -V"] {
        let mut words = line.split(' ');
        let mut command = Command::new(place.image("names").join(words.next().unwrap()));
        command.args(words).current_dir(place.image("."));
        let done = command.stderr(std::io::pipe().unwrap().1).output().unwrap();
        assert_eq!(done.status.code(), Some(0), "{line}: {}", told(&done));
    }
}

/// Waits until a child handles SIGINT, or has ended.
fn wait_for_handler(child: &std::process::Child) {
    let status = format!("/proc/{}/status", child.id());
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|l| l.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        // SIGINT is signal 2, the second bit.
        if text.contains("State:\tZ") || caught.is_none_or(|mask| mask & 2 != 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Interrupts a command `wait` milliseconds after it handles SIGINT. Returns its exit code and its messages.
fn interrupted(command: &mut Command, wait: u64) -> (Option<i32>, String) {
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_for_handler(&child);
    std::thread::sleep(Duration::from_millis(wait));
    let pid = rustix::process::Pid::from_child(&child);
    // The process may have ended already.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    (out.status.code(), said)
}

#[test]
fn interrupts_leave_a_clean_image() {
    let Some(s) = Scratch::mke2fs("512M", &["-t", "ext4"]) else {
        return;
    };
    std::fs::create_dir(s.host("many")).unwrap();
    for n in 0..4000 {
        std::fs::write(s.host(&format!("many/{n}")), vec![3; 8000]).unwrap();
    }
    for wait in [0, 5, 20, 60, 150] {
        let mut import = Command::new(env!("CARGO_BIN_EXE_extant"));
        import
            .arg("import")
            .args([&s.image, &s.host("many")])
            .args(["--to", &format!("/after{wait}")]);
        let (code, said) = interrupted(&mut import, wait);
        match code {
            Some(0) => {}
            Some(130) => assert_eq!(said, "error: interrupted\n"),
            other => panic!("{other:?} {said}"),
        }
        s.clean();
    }
}

/// A new image is complete or absent.
#[test]
fn interrupts_leave_no_half_image() {
    let s = Scratch::empty();
    std::fs::create_dir(s.host("many")).unwrap();
    for n in 0..4000 {
        std::fs::write(s.host(&format!("many/{n}")), vec![3; 8000]).unwrap();
    }
    for wait in [0, 5, 10, 20, 40, 80] {
        let mut mkfs = Command::new(env!("CARGO_BIN_EXE_extant"));
        mkfs.arg("mkfs")
            .arg(&s.image)
            .arg("--from")
            .arg(s.host("many"))
            .stdout(Stdio::null());
        let (code, said) = interrupted(&mut mkfs, wait);
        match code {
            Some(0) => {
                s.clean();
                std::fs::remove_file(&s.image).unwrap();
            }
            Some(130) => {
                assert_eq!(said, "error: interrupted\n");
                assert!(!s.image.exists());
            }
            other => panic!("{other:?} {said}"),
        }
    }
}

#[test]
fn what_was_meant_is_said() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["mkdir", ":/etc"]);
    std::fs::write(s.host("file"), "text").unwrap();
    let image = s.image.display().to_string();
    for (args, said) in [
        (["ls", "%:etc"].as_slice(), "write %:/etc?"),
        (&["cat", "%:etc"], "write %:/etc"),
        (&["rm", ":/etc"], "is a directory: use -r"),
        (
            &["mv", ":/etc", "@file"],
            "use cp -a, then remove the source",
        ),
        (&["import", "%", "@file"], "cp copies files"),
        (
            &["export", "%", "@x.tar.xz"],
            "use .tar, .tar.gz, .tar.zst, .cpio",
        ),
        (
            &["mkfs", "@x.img", "--size", "1K"],
            "24576 bytes are enough",
        ),
    ] {
        let args: Vec<String> = args
            .iter()
            .map(|a| a.replace("%:", &format!("{image}:")))
            .collect();
        let ran = s.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_ne!(ran.code, Some(0), "{args:?}");
        let said = said.replace('%', &image);
        assert!(ran.stderr.contains(&said), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("os error"), "{args:?}: {}", ran.stderr);
    }
    assert!(!s.host("x.tar.xz").exists() && !s.host("x.img").exists());
    std::fs::create_dir(s.host("x.tar.xz")).unwrap();
    s.ok(&["export", "%", "@x.tar.xz"]);
    // A cause is reported once, and nothing is printed about the failed operand.
    let line = s.fails(&["mkfs", "@no/x.img", "--size", "8M"]);
    assert_eq!(line.matches("No such file").count(), 1, "{line}");
    assert!(s.run(&["df", "@file"]).stdout.is_empty());
}

#[test]
fn an_archive_that_cannot_be_made_costs_no_other() {
    let Some(s) = Scratch::ext4() else { return };
    s.ok(&["touch", ":/f"]);
    std::fs::write(s.host("old.tar"), "precious").unwrap();
    s.fails(&["export", ":/nothere", "@old.tar"]);
    assert_eq!(std::fs::read(s.host("old.tar")).unwrap(), b"precious");
    let before = s.dir.path().read_dir().unwrap().count();
    std::os::unix::fs::symlink("old.tar", s.host("link.tar")).unwrap();
    s.ok(&["export", ":/f", "@link.tar"]);
    assert!(s.host("link.tar").is_symlink());
    let written = std::fs::read(s.host("old.tar")).unwrap();
    assert_eq!(
        tar::Archive::new(&written[..]).entries().unwrap().count(),
        1
    );
    assert_eq!(s.dir.path().read_dir().unwrap().count(), before + 1);
    // The new image has the mode of any new file: 0666 without the bits of the umask.
    use std::os::unix::fs::PermissionsExt;
    s.ok(&["export", ":/f", "@new.tar"]);
    std::fs::write(s.host("plain"), "").unwrap();
    let mode = |name: &str| s.host(name).metadata().unwrap().permissions().mode();
    assert_eq!(mode("new.tar"), mode("plain"));
}

#[test]
fn a_full_standard_output_is_named() {
    let Some(s) = Scratch::ext4() else { return };
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let out = Command::new(env!("CARGO_BIN_EXE_extant"))
        .arg("ls")
        .arg(&s.image)
        .stdout(full.unwrap())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(
        (out.status.code(), said.as_str()),
        (Some(1), "error: standard output: No space left on device\n")
    );
}

#[test]
fn an_archive_that_does_not_come_can_be_given_up() {
    let Some(s) = Scratch::ext4() else { return };
    for args in [
        ["import".into(), s.image.display().to_string(), "-".into()].as_slice(),
        &[
            "mkfs".into(),
            s.host("x.img").display().to_string(),
            "--from".into(),
            "-".into(),
        ],
        &[
            "cp".into(),
            "-".into(),
            format!("{}:/file", s.image.display()),
        ],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_extant"))
            .args(args)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Kept open until the end: the pipe has neither data nor an end.
        let stdin = child.stdin.take();
        wait_for_handler(&child);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(
            (out.status.code(), said.as_str()),
            (Some(130), "error: interrupted\n")
        );
        drop(stdin);
    }
    s.clean();
    assert!(!s.host("x.img").exists());
}

/// Long work shows its progress and its result on a terminal, and nothing without one.
#[test]
fn progress_is_for_terminals() {
    needs::tools!("script");
    let Some(s) = Scratch::ext4() else { return };
    std::fs::create_dir(s.host("tree")).unwrap();
    std::fs::write(s.host("tree/file"), "x").unwrap();
    assert_eq!(s.ok(&["import", "%", "@tree"]), "");
    // An archive that has no data yet.
    let fifo = s.host("fifo");
    let (kind, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    let line = [env!("CARGO_BIN_EXE_extant").as_ref(), s.image.as_path()]
        .map(|p| p.display().to_string())
        .join(" import ");
    let mut child = Command::new("script")
        .args([
            "-qec",
            &format!("{line} - < {}", fifo.display()),
            "/dev/null",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let writer = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    let mut terminal = child.stdout.take().unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("import: 0") {
        let mut part = [0; 100];
        let n = terminal.read(&mut part).unwrap();
        assert!(n > 0, "it ended: {}", String::from_utf8_lossy(&seen));
        seen.extend(&part[..n]);
    }
    let mut archive = tar::Builder::new(writer);
    archive.append_dir_all("more", s.host("tree")).unwrap();
    drop(archive.into_inner().unwrap());
    terminal.read_to_end(&mut seen).unwrap();
    assert!(child.wait().unwrap().success());
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.contains("1 file, 1 directory"), "{seen}");
    s.clean();
}

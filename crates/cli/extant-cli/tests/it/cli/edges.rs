//! Unusual arguments and inputs: each works as intended or is refused.

use crate::cli::support::{Mounted, Scratch, printed, root};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Returns an archive of pax with one empty file, `f`, and these records of it.
fn pax(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    archive
        .append_pax_extensions(records.iter().copied())
        .unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(0);
    header.set_mode(0o644);
    archive.append_data(&mut header, "f", &b""[..]).unwrap();
    archive.into_inner().unwrap()
}

#[test]
fn the_name_of_an_image_is_its_format_or_it_is_refused() {
    let s = Scratch::empty();
    for name in [
        "a.vdi", "a.VHDX", "a.qed", "a.hdd", "a.img.gz", "a.xz", "a.iso", "a.tgz",
    ] {
        for args in [
            &["mkfs", "--size", "8M"][..],
            &["disk", "--ext4", "root=:8M"],
        ] {
            let said = s.fails(&[args, &[&format!("@{name}")]].concat());
            assert!(said.contains("is not written"), "{said}");
            assert!(!s.host(name).exists());
        }
    }
    s.ok(&["mkfs", "@raw.gz", "--format", "raw", "--size", "8M", "-q"]);
}

/// Unsupported disks of virtual machines are recognized by their contents, not by their names.
#[test]
fn disks_that_are_not_read_are_named() {
    needs::tools!("qemu-img");
    let s = Scratch::empty();
    fs::create_dir(s.host("dir")).unwrap();
    for (format, named) in [
        ("vhdx", "a VHDX, which is not read: qemu-img convert -O raw"),
        ("vdi", "it is a VDI: qemu-img convert -O raw"),
        ("qed", "it is a QED image: qemu-img convert -O raw"),
        (
            "parallels",
            "it is a Parallels disk: qemu-img convert -O raw",
        ),
    ] {
        let disk = s.host("disk.img");
        let mut create = Command::new("qemu-img");
        create.args(["create", "-q", "-f", format]).arg(&disk);
        assert!(create.arg("16M").status().unwrap().success());
        // The server of a mount is confined, and cannot look into other files.
        let mount = (format == "vhdx").then_some(&["mount", "@disk.img", "@dir"][..]);
        let readers = [&["ls", "@disk.img"][..], &["info", "@disk.img"]];
        for args in readers.into_iter().chain(mount) {
            let said = s.fails(args);
            assert!(said.contains(named), "{format}: {said}");
            assert_eq!(said.lines().count(), 1, "{format}: {said}");
        }
        // A file with content is replaced only with --force.
        let said = s.fails(&["mkfs", "@disk.img", "--size", "8M"]);
        let why = if format == "vhdx" {
            named
        } else {
            "use --force"
        };
        assert!(said.contains(why), "{format}: {said}");
    }
}

/// In a container or for a user whose processes are limited, threads that cannot be started leave their work to others, or
/// the command fails in a line.
#[test]
fn a_limit_of_processes_is_no_reason_to_panic() {
    needs::tools!("prlimit", "setpriv");
    if !root() {
        return;
    }
    let s = Scratch::empty();
    let write = |n: u32| fs::write(s.host(&format!("tree/{n}")), vec![n as u8; 20_000]).unwrap();
    fs::create_dir(s.host("tree")).unwrap();
    // With more than 256 changed inodes, threads write back.
    (0..600).for_each(write);
    s.ok(&["mkfs", "-q", "%", "--from", "@tree"]);
    s.ok(&["export", "%", "@base.tar.gz"]);
    let mut done = 0;
    for limit in 1..6 {
        for line in [
            "extant mkfs -Fq new.img --from tree --size 100M",
            "extant mkfs -Fq packed.img.zst --from tree",
            "extant mkfs -Fq verified.img --from tree --verity",
            "extant mkfs -Fq layers.img --from base.tar.gz",
            "extant check new.img",
            "extant repair -y new.img",
            "extant export new.img out.tar",
            "extant export new.img out.tar.gz",
            "extant cp -a new.img:/ out",
            "extant cp -a tree new.img:/more",
            "extant import new.img base.tar.gz",
            "extant rescue new.img --tar rescued.tar",
            "extant resize new.img 80M",
            "extant push new.img pushed.img",
            "extant ls -R packed.img.zst:/",
        ] {
            let program = Path::new(env!("CARGO_BIN_EXE_extant"));
            let dir = s.host("work");
            fs::create_dir_all(&dir).unwrap();
            for name in ["tree", "base.tar.gz"] {
                let _ = std::os::unix::fs::symlink(s.host(name), dir.join(name));
            }
            std::os::unix::fs::chown(&dir, Some(54_321), Some(54_321)).unwrap();
            std::os::unix::fs::chown(s.dir.path(), Some(54_321), None).unwrap();
            let words = line.split(' ').map(|w| {
                if w == "extant" {
                    program.as_os_str()
                } else {
                    w.as_ref()
                }
            });
            let out = Command::new("prlimit")
                .arg(format!("--nproc={limit}"))
                .args([
                    "setpriv",
                    "--reuid",
                    "54321",
                    "--regid",
                    "54321",
                    "--clear-groups",
                ])
                .args(words)
                .current_dir(&dir)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            let code = out.status.code();
            assert!(
                matches!(code, Some(0 | 1 | 8)),
                "{limit} {line}: {code:?} {said}"
            );
            assert!(!said.contains("panicked"), "{limit} {line}: {said}");
            done += u32::from(code == Some(0));
        }
    }
    assert!(done > 20, "{done} commands ended well");
}

/// A directory that is unmounted also if a test fails.
struct UnmountedAtEnd(PathBuf);

impl Drop for UnmountedAtEnd {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).status();
        if !std::thread::panicking() {
            assert!(done.unwrap().success());
        }
    }
}

/// The rest of a rescue would fail in the same way, and no file that looks whole has only zeros.
#[test]
fn a_rescue_to_a_full_host_ends_with_the_first_file_that_has_no_room() {
    needs::tools!("mount", "umount");
    if !root() {
        return;
    }
    let s = Scratch::empty();
    fs::create_dir_all(s.host("tree")).unwrap();
    for n in 0..30 {
        fs::write(s.host(&format!("tree/{n:02}")), vec![7; 100_000]).unwrap();
    }
    s.ok(&["mkfs", "-q", "%", "--from", "@tree"]);
    fs::create_dir(s.host("full")).unwrap();
    let full = s.host("full").display().to_string();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none", &full])
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        needs::ignored("no tmpfs can be mounted");
        return;
    }
    let mounted = UnmountedAtEnd(s.host("full"));
    let rescued = s.run(&["rescue", "%", "--to", "@full/out"]);
    let files = fs::read_dir(s.host("full/out")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let files = files.filter(|path| path.is_file());
    let whole = files.map(|path| fs::read(path).unwrap() == vec![7; 100_000]);
    let whole: Vec<bool> = whole.collect();
    fs::remove_dir_all(s.host("full/out")).unwrap();
    let exported = s.run(&["export", "%", "@full/out.tar"]);
    let packed = s.run(&["rescue", "%", "--tar", "@full/out.tar"]);
    let left = |dir: &str| -> Vec<_> {
        let names = fs::read_dir(s.host(dir)).unwrap();
        let mut names: Vec<_> = names.map(|name| name.unwrap().path()).collect();
        names.retain(|path| !path.is_dir());
        names
    };
    assert_eq!(left("full"), [] as [std::path::PathBuf; 0]);
    fs::create_dir(s.host("full/cp")).unwrap();
    let copied = s.run(&["cp", "-r", ":/", "@full/cp"]);
    let parts = left("full/cp");
    assert_eq!(copied.code, Some(1), "{}", copied.stderr);
    for part in parts {
        assert_eq!(
            fs::read(&part).unwrap().len(),
            100_000,
            "{}",
            part.display()
        );
    }
    fs::remove_dir_all(s.host("full/cp")).unwrap();
    fs::write(s.host("full/most"), vec![1; 1_000_000]).unwrap();
    let single = s.run(&["cp", ":/00", "@full/single"]);
    assert_eq!(single.code, Some(1), "{}", single.stderr);
    assert!(!s.host("full/single").exists(), "a part of a file");
    drop(mounted);
    assert!(
        packed
            .stderr
            .ends_with("out.tar: No space left on device\n"),
        "{}",
        packed.stderr
    );
    assert_eq!(packed.code, Some(8));
    assert!(
        whole.len() > 5 && whole.iter().all(|whole| *whole),
        "{whole:?}"
    );
    assert_eq!(rescued.stderr.lines().count(), 1, "{}", rescued.stderr);
    assert!(rescued.stderr.contains("full/out: "), "{}", rescued.stderr);
    assert!(
        rescued.stderr.ends_with(": No space left on device\n"),
        "{}",
        rescued.stderr
    );
    assert_eq!(rescued.code, Some(8), "{}", rescued.stderr);
    let named = format!("error: {full}/out.tar: No space left on device\n");
    assert_eq!((exported.code, exported.stderr), (Some(1), named));
}

#[test]
fn sizes_that_cannot_be_meant_leave_nothing_behind() {
    let s = Scratch::empty();
    let said = s.run(&["disk", "%", "--ext4", "root=:64"]).stderr;
    assert!(said.contains("write 64M"), "{said}");
    // Larger than the largest file in Linux.
    let said = s.fails(&[
        "mkfs",
        "%",
        "-b",
        "65536",
        "--size",
        "8000000T",
        "-O",
        "^resize_inode",
    ]);
    assert!(!s.image.exists(), "{said}");
}

#[test]
fn a_longer_file_keeps_what_mke2fs_leaves_alone() {
    let s = Scratch::empty();
    let mut bytes = vec![7; 24 << 20];
    fs::write(&s.image, &bytes).unwrap();
    let mke2fs = s.host("mke2fs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_extant"), &mke2fs).unwrap();
    printed(
        Command::new(mke2fs)
            .args(["-q", "-F"])
            .arg(&s.image)
            .arg("16M"),
    );
    let made = s.bytes();
    bytes.drain(..16 << 20);
    assert!(made[16 << 20..] == bytes);
    s.clean();
}

#[test]
fn attributes_of_archives_are_kept_or_missed_in_words() {
    let s = Scratch::empty();
    let cases: [(&str, &[u8], &str); 6] = [
        ("SCHILY.acl.default", b"", ""),
        ("SCHILY.acl.access", b"", ""),
        ("RHT.security.selinux", b"", ""),
        ("LIBARCHIVE.xattr.user.a", b"%%%", "warning"),
        ("SCHILY.acl.access", b"nonsense", "warning"),
        ("mtime", b"", ""),
    ];
    for (key, value, says) in cases {
        fs::write(s.host("a.tar"), pax(&[(key, value)])).unwrap();
        let ran = s.run(&["mkfs", "-F", "-q", "%", "--from", "@a.tar"]);
        assert_eq!(ran.code, Some(0), "{key}: {}", ran.stderr);
        assert_eq!(
            ran.stderr.contains("warning"),
            !says.is_empty(),
            "{key}: {}",
            ran.stderr
        );
    }
    let label = b"system_u:object_r:etc_t:s0";
    let records: [(&str, &[u8]); 2] = [
        ("RHT.security.selinux", label),
        ("SCHILY.fflags", b"nodump,immutable"),
    ];
    fs::write(s.host("a.tar"), pax(&records)).unwrap();
    s.ok(&["mkfs", "-F", "-q", "%", "--from", "@a.tar"]);
    let kept = s.ok(&["getfattr", "-n", "security.selinux", "--only-values", ":/f"]);
    assert_eq!(kept.trim_end_matches('\0').as_bytes(), label);
    assert!(s.ok(&["lsattr", ":/f"]).starts_with("----i-d"));
}

#[test]
fn flags_of_a_source_directory_are_kept() {
    let Some(s) = Scratch::ext4() else { return };
    let Some(mounted) = Mounted::to_write(&s) else {
        return;
    };
    let at = |name: &str| mounted.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    for (name, flag) in [("i", "+i"), ("a", "+a"), ("noatime", "+A"), ("dir", "+d")] {
        if name != "dir" {
            fs::write(at(name), "x").unwrap();
        }
        printed(Command::new("chattr").arg(flag).arg(at(name)));
    }
    let made = s.host("made.img").display().to_string();
    s.ok(&["mkfs", "-q", &made, "--from", "@mounted"]);
    for name in ["i", "a"] {
        printed(Command::new("chattr").arg("-ia").arg(at(name)));
    }
    mounted.unmount();
    let lines = s.ok(&["lsattr", &format!("{made}:/")]);
    for (name, letter) in [("i", 'i'), ("a", 'a'), ("noatime", 'A'), ("dir", 'd')] {
        let line = lines
            .lines()
            .find(|line| line.ends_with(&format!("/{name}")));
        let (flags, _) = line.unwrap().split_once(' ').unwrap();
        assert!(flags.contains(letter), "{lines}");
    }
}

#[test]
fn zeros_become_holes_unless_they_are_kept() {
    let s = Scratch::empty();
    fs::create_dir(s.host("t")).unwrap();
    // Blocks of zeros at the start, in the middle and at the end, and more extents than an inode has room for.
    let mut bytes = vec![0; 400 << 10];
    for at in (8 << 10..300 << 10).step_by(16 << 10) {
        bytes[at] = 1;
    }
    fs::write(s.host("t/f"), &bytes).unwrap();
    fs::write(s.host("t/zeros"), vec![0; 100 << 10]).unwrap();
    for (args, blocks) in [
        (&["-t", "ext4"][..], 19),
        (&["-t", "ext2"], 19),
        (&["--keep-zeros"], 100),
    ] {
        let args = [
            &["mkfs", "-F", "-q", "%", "-b", "4096", "--from", "@t"],
            args,
        ]
        .concat();
        s.ok(&args);
        s.clean();
        let held = s.run(&["stat", "--json", ":/f", ":/zeros"]).json();
        let of_map = 4096 * u64::from(blocks < 100);
        assert_eq!(held[0]["allocated"], (blocks << 12) + of_map, "{args:?}");
        assert_eq!(held[1]["allocated"] == 0, blocks < 100, "{args:?}");
        assert!(s.run(&["cat", ":/f"]).stdout == bytes, "{args:?}");
    }
    // The file's old bytes are not zeros.
    fs::write(&s.image, vec![0xff; 16 << 20]).unwrap();
    s.ok(&["mkfs", "-F", "-q", "%", "--size", "16M", "--from", "@t"]);
    s.clean();
    assert!(s.run(&["cat", ":/f"]).stdout == bytes);
}

#[test]
fn files_that_cannot_be_read_are_listed() {
    if !root() {
        return;
    }
    let s = Scratch::empty();
    fs::create_dir_all(s.host("t/closed")).unwrap();
    for name in ["open", "secret", "closed/in"] {
        fs::write(s.host(&format!("t/{name}")), "x").unwrap();
    }
    let mode = |path: &Path, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(s.dir.path(), 0o777);
    mode(&s.host("t/secret"), 0);
    mode(&s.host("t/closed"), 0);
    // A copy of the program that the other user can reach.
    let program = s.host("extant");
    fs::copy(env!("CARGO_BIN_EXE_extant"), &program).unwrap();
    let mkfs = |more: &[&str]| {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&program);
        command
            .args(["mkfs", "-q"])
            .arg(&s.image)
            .arg("--from")
            .arg(s.host("t"));
        let out = command.args(more).uid(65_534).gid(65_534).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, said) = mkfs(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--skip-unreadable leaves out"), "{said}");
    let (code, said) = mkfs(&["--skip-unreadable"]);
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{said}");
    assert!(
        said.contains("/secret") && said.contains("/closed"),
        "{said}"
    );
    let names = s.ok(&["ls", "-R", ":/"]);
    assert!(
        names.contains("open") && names.contains("closed"),
        "{names}"
    );
    assert!(
        !names.contains("secret") && !names.contains("in\n"),
        "{names}"
    );
}

#[test]
fn no_two_names_look_the_same() {
    let s = Scratch::empty();
    fs::create_dir(s.host("t")).unwrap();
    let names: [&[u8]; 5] = [b"caf\xe9", b"caf\\xe9", b"a\nb", b"a\\nb", b"caf\xe8"];
    for name in names {
        fs::write(s.host("t").join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
    }
    s.ok(&["mkfs", "%", "-q", "--from", "@t"]);
    let text = s.ok(&["ls", ":/"]);
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), names.len() + 1, "{text}"); // and lost+found
    assert!(
        lines.contains(&r"$'caf\xe9'") && lines.contains(&r"caf\xe9"),
        "{text}"
    );
    let json = s.run(&["ls", "--json", ":/"]).json();
    let mut paths: Vec<_> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["path"].to_string())
        .collect();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), names.len() + 1, "{json}");
    let of = |path: &str| {
        json.as_array()
            .unwrap()
            .iter()
            .find(|e| e["path"] == path)
            .unwrap()
    };
    assert!(of("/a\nb")["path_bytes"].is_null());
    assert_eq!(of("/caf\u{fffd}e9")["path_bytes"], "L2NhZuk=");
}

#[test]
fn the_least_size_is_the_least() {
    let s = Scratch::empty();
    fs::create_dir_all(s.host("t/etc")).unwrap();
    let noise: Vec<u8> = (0..200_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    fs::write(s.host("t/etc/a"), noise).unwrap();
    fs::create_dir(s.host("tiny")).unwrap();
    let len = |name: &str| s.host(name).metadata().unwrap().len();
    for (from, more) in [
        ("@t", &[][..]),
        ("@t", &["-t", "ext2"]),
        ("@t", &["-b", "4096"]),
        ("@tiny", &[]),
        ("@tiny", &["-t", "ext2"]),
    ] {
        let args =
            |image: &'static str| [&["mkfs", "-F", "-q", image, "--from", from], more].concat();
        s.ok(&args("@usual.img"));
        s.ok(&[args("%"), vec!["--size", "min"]].concat());
        s.clean();
        let least = s.image.metadata().unwrap().len();
        assert!(least <= len("usual.img"), "{from} {more:?}: {least}");
        s.ok(&["resize", "-M", "%"]);
        let again = s.image.metadata().unwrap().len();
        assert!(
            least <= again * 11 / 10,
            "{from} {more:?}: {least}, then {again}"
        );
    }
}

#[test]
fn the_same_changes_at_the_same_time_make_the_same_bytes() {
    let s = Scratch::empty();
    fs::create_dir_all(s.host("t/d")).unwrap();
    for name in ["a", "d/b", "d/c"] {
        fs::write(s.host(&format!("t/{name}")), name.repeat(3000)).unwrap();
    }
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        let words = words.iter().map(|word| match word.strip_prefix('@') {
            Some(name) => s.host(name).display().to_string(),
            None => word.replace('%', s.image.to_str().unwrap()),
        });
        printed(command.args(words).env("SOURCE_DATE_EPOCH", "1700000000"));
    };
    let make = || {
        let _ = fs::remove_file(&s.image);
        run(&["mkfs", "-q", "%", "--size", "16M"]);
        run(&["import", "%", "@t"]);
        run(&["cp", "-r", "@t", "%:/copy"]);
        run(&["mkdir", "%:/new"]);
        run(&["rm", "-r", "%:/d"]);
        run(&["touch", "%:/now"]);
        s.bytes()
    };
    let first = make();
    std::thread::sleep(Duration::from_millis(1100));
    assert!(first == make());
    let json = s.run(&["ls", "-R", "--json", ":/"]).json();
    for entry in json.as_array().unwrap() {
        for time in ["atime", "mtime", "ctime", "crtime"] {
            let said = entry[time].as_str().unwrap();
            assert!(said <= "2023-11-14T22:13:20Z", "{entry}");
        }
    }
    // A different content yields a different UUID.
    let id = |from: &str| {
        run(&["mkfs", "-F", "-q", "%", "--from", from]);
        s.run(&["info", "--json", "%"]).json()["uuid"].to_string()
    };
    assert_ne!(id("@t"), id("@t/d"));
    assert_eq!(id("@t"), id("@t"));
}

#[test]
fn the_first_signal_ends_what_only_reads() {
    let s = Scratch::empty();
    fs::create_dir(s.host("t")).unwrap();
    for n in 0..200 {
        fs::write(s.host(&format!("t/{n}")), vec![1; 20_000]).unwrap();
    }
    s.ok(&["mkfs", "%", "-q", "--size", "64M", "--from", "@t"]);
    let before = s.bytes();
    // The check takes a minute at this rate.
    let child = Command::new(env!("CARGO_BIN_EXE_extant"))
        .args(["check", "--scrub=64K"])
        .arg(&s.image)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    printed(Command::new("kill").args(["-INT", &child.id().to_string()]));
    let out = child.wait_with_output().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(out.status.code(), Some(130));
    assert_eq!(String::from_utf8_lossy(&out.stderr), "error: interrupted\n");
    assert!(s.bytes() == before);
}

#[test]
fn pipes_are_sources_and_no_images() {
    let s = Scratch::empty();
    fs::write(s.host("a.tar"), pax(&[])).unwrap();
    let pipe = s.host("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    // No program writes to the pipe: a command that opened it would wait.
    for args in [
        &["mkfs", "@pipe", "--size", "8M"][..],
        &["ls", "@pipe"],
        &["info", "@pipe"],
        &["check", "@pipe"],
        &["rescue", "@pipe", "--to", "@out"],
        &["diff", "@pipe", "@pipe"],
    ] {
        let said = s.run(args).stderr;
        assert!(said.contains("nor a block device"), "{args:?}: {said}");
    }
    let from = |command: &[&str]| {
        let (tar, pipe) = (s.host("a.tar"), pipe.clone());
        let writer = std::thread::spawn(move || fs::copy(tar, pipe).unwrap());
        s.ok(command);
        writer.join().unwrap();
    };
    from(&["mkfs", "@new.img", "--from", "@pipe", "-q"]);
    from(&["import", "@new.img", "@pipe", "--to", "/second"]);
    assert_eq!(s.ok(&["ls", "@new.img:/second"]), "f\n");
}

/// A flag that forbids a change is named, with the command that takes it away.
#[test]
fn what_a_flag_protects_is_said() {
    needs::tools!("mke2fs");
    let Some(s) = Scratch::ext4() else { return };
    fs::write(s.host("file"), "x").unwrap();
    for args in [
        &["mkdir", ":/d"][..],
        &["cp", "@file", ":/d/kept"],
        &["cp", "@file", ":/log"],
        &["chattr", "+i", ":/d"],
        &["chattr", "+a", ":/log"],
    ] {
        s.ok(args);
    }
    for (args, advice) in [
        (&["rm", ":/d/kept"][..], "chattr -i"),
        (&["touch", ":/d/new"], "chattr -i"),
        (&["mv", ":/d/kept", ":/x"], "chattr -i"),
        (&["mv", ":/lost+found", ":/d/x"], "chattr -i"),
        (&["chmod", "600", ":/d"], "chattr -i"),
        (&["rm", ":/log"], "chattr -a"),
    ] {
        let said = s.fails(args);
        let place = if advice.ends_with('i') {
            ":/d takes"
        } else {
            ":/log takes"
        };
        assert!(said.contains("operation not permitted: "), "{said}");
        assert!(said.contains(advice) && said.contains(place), "{said}");
    }
}

#[test]
fn import_says_where_the_directory_of_an_image_goes() {
    needs::tools!("mke2fs");
    let Some(s) = Scratch::ext4() else { return };
    fs::create_dir(s.host("tree")).unwrap();
    let said = s.fails(&["import", ":/sub", "@tree"]);
    assert!(
        said.contains("is the value of --to: write extant import"),
        "{said}"
    );
    assert!(said.trim_end().ends_with("--to /sub"), "{said}");
    let said = s.fails(&["import", "@tree", ":/sub"]);
    assert!(
        said.contains("the image comes first: write extant import"),
        "{said}"
    );
}

/// The answer does not depend on whether a file is fragmented.
#[test]
fn files_of_clusters_are_not_defragmented() {
    needs::tools!("mke2fs");
    let s = Scratch::empty();
    for (features, named) in [("bigalloc", "bigalloc"), ("quota", "quota")] {
        let mut make = Command::new("mke2fs");
        make.args(["-Fq", "-t", "ext4", "-O", features]);
        assert!(
            make.arg(s.host("c.img"))
                .arg("16M")
                .status()
                .unwrap()
                .success()
        );
        let said = s.fails(&["defrag", "@c.img"]);
        assert!(said.contains(named), "{said}");
        s.ok(&["defrag", "-n", "@c.img"]);
    }
}

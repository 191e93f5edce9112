//! Programs get correct information: space used and free, times, flags, labels, and errors as soon as they are known.

use super::device::Loop;
use super::support::{
    EXTANT, InBackground, Kernel, Mounted, Transport, assert_clean, extant, image, isolated,
    over_each, place, run, script,
};
use extant_testing::common::{copy_image, data_of};
use rustix::fs::{SeekFrom, StatVfs, statvfs};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

/// Longer than the kernel may cache the attributes of a file that is being written.
const A_MOMENT: Duration = Duration::from_millis(30);

fn new_file(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .unwrap()
}

fn held(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

#[test]
fn a_file_that_is_being_written_holds_space() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "64M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let path = mounted.dir().join("file");
        let mut file = new_file(&path);
        file.write_all(&[1; 1_000_000]).unwrap();
        sleep(A_MOMENT);
        assert!(held(&path) >= 1_000_000, "written: {}", held(&path));
        file.write_all(&[1; 1_000_000]).unwrap();
        file.sync_all().unwrap();
        assert!(held(&path) >= 2_000_000, "synced: {}", held(&path));
        let data = |at| rustix::fs::seek(&file, SeekFrom::Data(at)).unwrap();
        let hole = |at| rustix::fs::seek(&file, SeekFrom::Hole(at)).unwrap();
        assert_eq!((data(0), hole(0)), (0, 2_000_000));
        drop(file);
        // An existing file that is growing.
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        (&file).write_all(&[1; 1_000_000]).unwrap();
        file.sync_all().unwrap();
        sleep(A_MOMENT);
        assert!(held(&path) >= 3_000_000, "appended: {}", held(&path));
        drop(file);
        // Synced before any query.
        let quick = mounted.dir().join("quick");
        let file = new_file(&quick);
        (&file).write_all(&[1; 5000]).unwrap();
        file.sync_all().unwrap();
        assert!(held(&quick) >= 5000);
        drop(file);
        // A file of many extents: the blocks of the extent tree count, too.
        let pieces = mounted.dir().join("pieces");
        let file = new_file(&pieces);
        for i in 0..50 {
            file.write_all_at(&[2; 1024], i * 65536).unwrap();
        }
        file.sync_all().unwrap();
        drop(file);
        let names = ["file", "quick", "pieces"];
        let shown = names.map(|n| held(&mounted.dir().join(n)));
        mounted.unmount();
        let mounted = Mounted::new(&image, transport, &[]);
        assert_eq!(names.map(|n| held(&mounted.dir().join(n))), shown);
        mounted.unmount();
    });
}

fn df(dir: &Path) -> StatVfs {
    statvfs(dir).unwrap()
}

#[test]
fn a_full_volume_says_so_at_once() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let dir = mounted.dir();
        script(dir, "fallocate -l 4M kept");
        let filler = dir.join("filler");
        let fill = || {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&filler)
                .unwrap();
            let mut written = 0;
            // Without a limit the writer would never stop.
            while written < 512 << 20 {
                match file.write(&[1; 65536]) {
                    Ok(n) => written += n,
                    Err(e) => return (written, e.kind()),
                }
            }
            (written, ErrorKind::Other)
        };
        let (written, error) = fill();
        assert_eq!(error, ErrorKind::StorageFull, "after {written}");
        assert!(written < 60 << 20, "{written}");
        let (written, error) = fill();
        assert_eq!(error, ErrorKind::StorageFull, "full already");
        assert!(written <= 4 * 65536, "full already: {written}");
        // Writes use the space that fallocate reserved.
        let kept = OpenOptions::new()
            .write(true)
            .open(dir.join("kept"))
            .unwrap();
        for at in (0..4 << 20).step_by(65536) {
            kept.write_all_at(&[5; 65536], at).unwrap();
        }
        kept.sync_all().unwrap();
        drop(kept);
        // The space is free once the kernel's FORGET of the file has come.
        let before = df(dir);
        std::fs::remove_file(&filler).unwrap();
        sleep(A_MOMENT);
        let after = df(dir);
        assert!(
            (after.f_bavail - before.f_bavail) * after.f_frsize > 15 << 20,
            "{} {}",
            before.f_bavail,
            after.f_bavail
        );
        std::fs::write(&filler, vec![3; 15 << 20]).unwrap();
        mounted.unmount();
    });
}

/// Returns whether the kernel can be made to forget a file: since Linux 6.18.
fn can_prune() -> bool {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let mut parts = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(18))
}

#[test]
fn a_full_volume_tells_handles_that_read_too() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        let path = mounted.dir().join("filler");
        let mut file = new_file(&path);
        let mut written = 0;
        let error = loop {
            assert!(written < 512 << 20, "no write failed");
            match file.write(&[1; 65536]) {
                Ok(n) => written += n,
                Err(e) => break e.kind(),
            }
        };
        assert_eq!(error, ErrorKind::StorageFull, "after {written}");
        assert!(written < 60 << 20, "{written}");
        drop(file);
        sleep(A_MOMENT);
        let shown = path.metadata().unwrap().len();
        mounted.unmount();
        let mounted = Mounted::new(&image, transport, &[]);
        let stored = std::fs::read(mounted.dir().join("filler")).unwrap();
        assert!(stored.len() > 20 << 20, "{}", stored.len());
        if can_prune() {
            assert_eq!(shown, stored.len() as u64, "shown | stored");
        }
        mounted.unmount();
    });
}

fn mount_in_background(image: &Path, dir: &Path, options: &[&str]) -> Output {
    let _ = std::fs::create_dir(dir);
    let mut command = Command::new(EXTANT);
    command.arg("mount");
    for option in options {
        command.args(["-o", option]);
    }
    command.arg(image).arg(dir).output().unwrap()
}

fn kind_and_options(dir: &Path) -> (String, String) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let dir = dir.to_str().unwrap();
    let line = mounts.lines().rfind(|l| l.split(' ').nth(1) == Some(dir));
    let mut words = line
        .unwrap_or_else(|| panic!("{dir} is not mounted"))
        .split(' ');
    let kind = words.nth(2).unwrap().to_string();
    (kind, words.next().unwrap().to_string())
}

#[test]
fn what_is_write_protected_is_mounted_read_only() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        let dir = place.path().join("mnt");
        let protect = |mode| {
            std::fs::set_permissions(&image, PermissionsExt::from_mode(mode)).unwrap();
        };
        protect(0o444);
        let device = Loop::new(&image, &["-r"]);
        let before = data_of(&image);
        for source in [&image, &device.0] {
            let _unmounted = InBackground(&dir);
            let refused = mount_in_background(source, &dir, &["rw"]);
            assert!(!refused.status.success());
            let said = mount_in_background(source, &dir, &[]);
            let text = String::from_utf8_lossy(&said.stderr);
            assert!(said.status.success(), "{text}");
            assert!(
                text.contains("write-protected; mounted read-only"),
                "{text}"
            );
            assert_eq!(text.lines().count(), 1, "{text}");
            let (_, options) = kind_and_options(&dir);
            assert!(options.starts_with("ro"), "{options}");
            let error = std::fs::write(dir.join("file"), "").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
            run(Command::new(EXTANT).arg("umount").arg(&dir));
        }
        drop(device);
        assert!(data_of(&image) == before, "nothing is written");
        protect(0o644);
    });
}

/// Installs the helpers of mount(8) where it looks for them, only in this mount name space: /sbin becomes a directory
/// of links to its former content. That content is mounted read-only, at a path that no clean-up after the test
/// touches.
fn install_helpers() {
    let text = format!(
        "mount -t tmpfs none /mnt; mkdir /mnt/sbin /mnt/real
         mount --bind /usr/sbin /mnt/real; mount -o remount,bind,ro /mnt/real
         ln -s /mnt/real/* /mnt/sbin/
         for name in extant fuse.extant fuseblk.extant; do ln -sf {EXTANT} /mnt/sbin/mount.$name; done
         mount --bind /mnt/sbin /usr/sbin"
    );
    script(Path::new("/"), &text);
}

/// The options of mount(8), of /etc/fstab and of systemd in it.
#[test]
fn mount_and_fstab_mount_and_remount() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let dir = place.path().join("mnt");
        std::fs::create_dir(&dir).unwrap();
        install_helpers();
        let _unmounted = InBackground(&dir);
        let mount = |args: &[&str]| {
            let mut command = Command::new("mount");
            command
                .args(args)
                .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
            run(&mut command)
        };
        let (source, target) = (image.to_str().unwrap(), dir.to_str().unwrap());
        for kind in ["extant", "fuse.extant"] {
            mount(&[
                "-t",
                kind,
                "-o",
                "noatime,x-systemd.automount",
                source,
                target,
            ]);
            let (kind, options) = kind_and_options(&dir);
            assert_eq!(kind, "fuse.extant");
            assert!(options.contains("noatime"), "{options}");
            run(Command::new(EXTANT).arg("umount").arg(&dir));
        }
        let fstab = place.path().join("fstab");
        let line = format!(
            "{source} {target} fuse.extant rw,nodev,nofail,user,exec,x-systemd.device-timeout=5 0 0\n"
        );
        std::fs::write(&fstab, line).unwrap();
        mount(&["--bind", fstab.to_str().unwrap(), "/etc/fstab"]);
        mount(&[target]);
        std::fs::write(dir.join("file"), "before").unwrap();
        let writer = File::create(dir.join("writer")).unwrap();
        let busy = Command::new("mount")
            .args(["-o", "remount,ro", target])
            .output()
            .unwrap();
        assert!(!busy.status.success(), "a file is open for writing");
        drop(writer);
        std::fs::write(dir.join("file"), "between").unwrap();
        mount(&["-o", "remount,ro", target]);
        let error = std::fs::write(dir.join("file"), "not").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"between");
        // The image is as clean as after a close.
        assert_clean(&image);
        let copy = place.path().join("copy.img");
        copy_image(&image, &copy);
        {
            let kernel = Kernel::new(&copy, "ro,noload");
            assert_eq!(script(kernel.dir(), "cat file"), "between");
        }
        mount(&["-o", "remount,rw", target]);
        std::fs::write(dir.join("file"), "after").unwrap();
        let (_, options) = kind_and_options(&dir);
        assert!(
            options.starts_with("rw") && options.contains("nodev"),
            "{options}"
        );
        mount(&["-o", "remount,ro", target]);
        run(Command::new(EXTANT).arg("umount").arg(&dir));
        assert_clean(&image);
        assert_eq!(extant(["cat", &format!("{source}:/file")]), "after");
        // A mount that began read-only stays so.
        mount(&["-o", "ro", target]);
        let refused = Command::new("mount")
            .args(["-o", "remount,rw", target])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && text.contains("unmount it first"),
            "{text}"
        );
        run(Command::new(EXTANT).arg("umount").arg(&dir));
    });
}

/// The server sets the times of directories; the kernel keeps the times of written files (docs/mount.md).
#[test]
fn times_are_clamped_when_they_are_set() {
    over_each(|transport| {
        let place = place();
        for (inode, latest) in [("128", i64::from(i32::MAX)), ("256", 15_032_385_535)] {
            let image = image(place.path(), "16M", &["-I", inode]);
            let mounted = Mounted::new(&image, transport, &[]);
            let text = "mkdir -p d; touch -d @99999999999 d; stat -c '%X %Y' d
                 >f; touch -a -d @99999999999 f; stat -c %X f";
            let shown = script(mounted.dir(), text);
            assert_eq!(shown, format!("{latest} {latest}\n{latest}\n"), "{inode}");
            mounted.unmount();
            // With write-through, the kernel keeps no times.
            let mounted = Mounted::new(&image, transport, &["writethrough"]);
            let shown = script(mounted.dir(), ">g; touch -d @99999999999 g; stat -c %Y g");
            assert_eq!(shown, format!("{latest}\n"), "{inode}");
            mounted.unmount();
            let mounted = Mounted::new(&image, transport, &["ro"]);
            assert_eq!(
                script(mounted.dir(), "stat -c '%X %Y' d"),
                format!("{latest} {latest}\n")
            );
            mounted.unmount();
        }
    });
}

#[test]
fn a_change_of_flags_changes_the_time_of_change() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        for options in [&[][..], &["writethrough"]] {
            let mounted = Mounted::new(&image, transport, options);
            let name = if options.is_empty() { "d" } else { "f" };
            let text = format!(
                "mkdir -p d; >f; sync -f .; stat -c %Z {name} >before; sleep 1.1
                 chattr +d {name}; test $(stat -c %Z {name}) -gt $(cat before)
                 chattr +x d; mkdir -p d/e; lsattr -d d d/e | grep -c x-"
            );
            // The flag is kept and inherited, as on any device without persistent memory.
            assert_eq!(script(mounted.dir(), &text), "2\n");
            mounted.unmount();
        }
    });
}

/// With the write-back cache the kernel keeps these times, without it the server.
#[test]
fn a_write_through_a_mapping_changes_the_times() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        for options in [&[][..], &["writethrough"]] {
            let mounted = Mounted::new(&image, transport, options);
            let path = mounted.dir().join("file");
            std::fs::write(&path, [1; 8192]).unwrap();
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(&path)
                .unwrap();
            let times = || path.metadata().map(|m| (m.mtime(), m.ctime())).unwrap();
            let old = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
            file.set_modified(old).unwrap();
            let (_, changed) = times();
            sleep(Duration::from_millis(1100));
            let put = |map: &mut [u8]| map.fill(2);
            super::posix::sys::mapped(std::os::fd::AsFd::as_fd(&file), (4096, 10), true, put)
                .unwrap();
            file.sync_all().unwrap();
            let shown = times();
            assert!(shown.0 > 1_000_000_000, "{options:?}: {shown:?}");
            assert!(shown.1 > changed, "{options:?}: {shown:?}");
            drop(file);
            mounted.unmount();
            let mounted = Mounted::new(&image, transport, options);
            let path = mounted.dir().join("file");
            let stored = path.metadata().unwrap();
            assert_eq!((stored.mtime(), stored.ctime()), shown, "{options:?}");
            mounted.unmount();
        }
    });
}

#[test]
fn a_label_is_on_the_device_while_it_is_mounted() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        let mounted = Mounted::new(&image, transport, &[]);
        script(mounted.dir(), "echo text >file");
        let dir = File::open(mounted.dir()).unwrap();
        let mut label = [0; 256];
        label[..7].copy_from_slice(b"backups");
        super::posix::sys::ioctl(std::os::fd::AsFd::as_fd(&dir), 0x4100_9432, &mut label).unwrap();
        let mut found = [0; 16];
        let device = File::open(&image).unwrap();
        device.read_exact_at(&mut found, 1024 + 0x78).unwrap();
        assert_eq!(&found, b"backups\0\0\0\0\0\0\0\0\0");
        drop(dir);
        script(mounted.dir(), "echo more >>file");
        mounted.unmount();
    });
}

/// Access times by reads that reach the server.
#[test]
fn access_times_are_kept_as_was_asked() {
    over_each(|transport| {
        let place = place();
        let image = image(place.path(), "16M", &[]);
        for (option, file, dir) in [
            ("noatime", false, false),
            ("relatime", true, true),
            ("strictatime", true, true),
            ("nodiratime", true, false),
        ] {
            let mounted = Mounted::new(&image, transport, &[option]);
            // With O_DIRECT every read reaches the server.
            let text = "rm -rf d f; mkdir d; echo text >f; touch -d @1000 f d; sync -f .
                 dd if=f of=/dev/null iflag=direct bs=4096 2>/dev/null; ls d; sleep 0.05
                 echo $(stat -c %X f) $(stat -c %X d)";
            let shown = script(mounted.dir(), text);
            let times: Vec<i64> = shown
                .split_whitespace()
                .map(|t| t.parse().unwrap())
                .collect();
            assert_eq!(
                [times[0] != 1000, times[1] != 1000],
                [file, dir],
                "{option}: {shown}"
            );
            mounted.unmount();
        }
    });
}

/// A program writes a new version and renames it over the old one without fsync: one of the two survives a kill.
#[test]
fn what_replaces_a_file_outlasts_a_kill() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, Transport::Classic, &["commit=300"]);
        let dir = mounted.dir();
        script(
            dir,
            "echo old >renamed; echo old >cut; sync renamed cut
             echo new >renamed.new; mv renamed.new renamed; echo new >cut; sleep 0.1; echo x >other; sync other",
        );
        mounted.kill();
        let mounted = Mounted::new(&image, Transport::Classic, &[]);
        assert_eq!(script(mounted.dir(), "cat renamed cut"), "new\nnew\n");
        mounted.unmount();
    });
}

#[test]
fn a_read_only_mount_says_that_removed_files_hold_space() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, Transport::Classic, &[]);
        let path = mounted.dir().join("file");
        let file = File::create(&path).unwrap();
        (&file).write_all(&[1; 100_000]).unwrap();
        file.sync_all().unwrap();
        std::fs::remove_file(&path).unwrap();
        file.sync_all().unwrap();
        mounted.kill();
        drop(file);
        let dir = place.path().join("mnt");
        let _unmounted = InBackground(&dir);
        let said = mount_in_background(&image, &dir, &["ro"]);
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{text}");
        assert!(
            text.contains("removed files hold space") && text.contains(": 1"),
            "{text}"
        );
        run(Command::new(EXTANT).arg("umount").arg(&dir));
        let mounted = Mounted::new(&image, Transport::Classic, &[]);
        mounted.unmount();
        let said = mount_in_background(&image, &dir, &["ro"]);
        assert!(
            said.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
        run(Command::new(EXTANT).arg("umount").arg(&dir));
    });
}

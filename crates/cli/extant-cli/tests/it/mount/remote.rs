//! Volumes on NBD servers, mounted.

use super::remote_faults::qemu_nbd;
use super::support::{EXTANT, Mounted, Transport, assert_clean, extant, isolated, place, wait};
use needs::servers::Server;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A volume of 32 MiB in a file, for a server at a socket, and the directory for its mount.
struct Export {
    _place: tempfile::TempDir,
    image: PathBuf,
    socket: PathBuf,
    address: String,
    dir: PathBuf,
}

impl Export {
    fn new() -> Self {
        needs::program("extant-remote", "extant-remote");
        let place = place();
        let [image, socket, dir] = ["image", "socket", "mnt"].map(|name| place.path().join(name));
        extant(["mkfs", image.to_str().unwrap(), "--size", "32M", "-q"]);
        Self {
            address: format!("nbd+unix:///disk?socket={}", socket.display()),
            _place: place,
            image,
            socket,
            dir,
        }
    }

    /// Starts a server.
    fn serve(&self) -> Server {
        qemu_nbd(&self.image, &self.socket)
    }

    /// Starts a server that takes longer for each write than a request has after an interrupt.
    fn serve_slowly(&self) -> Server {
        let server = Command::new("nbdkit")
            .args(["-f", "-e", "disk", "--filter=delay", "-U"])
            .arg(&self.socket)
            .args(["file".as_ref(), self.image.as_os_str()])
            .arg("wdelay=6")
            .spawn();
        let server = Server(server.unwrap());
        wait_for_socket(&self.socket);
        server
    }

    fn mount(&self, words: &[&str]) -> Mounted {
        let address = self.address.as_ref();
        Mounted::on_with(address, &self.dir, Transport::Classic, words)
    }

    /// Makes a file of the mount durable.
    fn sync(&self, name: &str) -> std::io::Result<()> {
        fs::File::open(self.dir.join(name)).and_then(|file| file.sync_all())
    }

    /// Unmounts by `extant umount`, and returns the time that it took.
    fn umount(&self, mounted: Mounted) -> Duration {
        let began = Instant::now();
        let mut umount = Command::new(EXTANT)
            .arg("umount")
            .arg(&self.dir)
            .spawn()
            .unwrap();
        let ended = wait(&mut umount, Duration::from_secs(120));
        assert!(ended.is_some(), "umount does not end");
        drop(mounted);
        began.elapsed()
    }
}

/// Waits until a server listens.
fn wait_for_socket(socket: &Path) {
    let start = Instant::now();
    while !socket.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no socket");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_for_one_client_is_enough() {
    needs::tools!("qemu-nbd", "e2fsck");
    isolated(|| {
        let export = Export::new();
        let server = Command::new("qemu-nbd")
            .args(["-f", "raw", "-t", "-x", "disk", "-e", "1", "-k"])
            .args([&export.socket, &export.image])
            .spawn();
        let _server = Server(server.unwrap());
        wait_for_socket(&export.socket);
        let mounted = export.mount(&[]);
        fs::write(mounted.dir().join("f"), "text").unwrap();
        mounted.terminate();
        assert_eq!(extant(["cat", &format!("{}:/f", export.address)]), "text");
    });
}

/// Returns the children of a process that ended, and that it did not wait for.
fn zombies(process: u32) -> Vec<String> {
    let stats = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = entry.ok()?.path().join("stat");
        fs::read_to_string(stat).ok()
    });
    let is_zombie = |stat: &String| {
        let mut fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        fields.next() == Some("Z") && fields.next() == Some(&process.to_string())
    };
    stats.filter(is_zombie).collect()
}

/// A mount looks at the image by one `extant-remote`, and serves it by another.
#[test]
fn programs_that_ended_are_not_left_under_a_mount() {
    isolated(|| {
        needs::program("extant-remote", "extant-remote");
        let place = place();
        let address = format!("file+objects://{}", place.path().join("store").display());
        extant(["mkfs", &address, "--size", "32M", "-q"]);
        let mounted = Mounted::on(
            address.as_ref(),
            &place.path().join("mnt"),
            Transport::Classic,
        );
        fs::write(mounted.dir().join("f"), "text").unwrap();
        let start = Instant::now();
        loop {
            let left = zombies(mounted.server_id());
            if left.is_empty() {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "{left:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        mounted.terminate();
    });
}

/// A mount whose server is silent or gone fails programs in time, and `umount` ends.
#[test]
fn a_mount_ends_without_its_server() {
    needs::tools!("qemu-nbd", "e2fsck");
    isolated(|| {
        let export = Export::new();
        let dir = &export.dir;
        for (time, is_killed) in [("3", false), ("3", true), ("never", false), ("never", true)] {
            let server = export.serve();
            let mounted = export.mount(&["--io-timeout", time]);
            fs::write(dir.join("kept"), time).unwrap();
            export.sync("kept").unwrap();
            let stopped = Pid::from_child(&server.0);
            fs::write(dir.join("lost"), time).unwrap();
            if is_killed {
                drop(server);
            } else {
                kill_process(stopped, Signal::STOP).unwrap();
                std::mem::forget(server);
            }
            if time == "3" {
                let began = Instant::now();
                assert!(export.sync("lost").is_err(), "{time} {is_killed}");
                let took = began.elapsed();
                assert!(took < Duration::from_secs(15), "{took:?}");
            }
            let took = export.umount(mounted);
            assert!(took < Duration::from_secs(60), "{took:?}");
            if !is_killed {
                kill_process(stopped, Signal::KILL).unwrap();
            }
            let _server = export.serve();
            let again = export.mount(&["--io-timeout", "never"]);
            assert_eq!(fs::read_to_string(dir.join("kept")).unwrap(), time);
            again.terminate();
        }
    });
}

/// A mount waits for a server that starts later than the mount, and for one that restarts after more than the usual 8 seconds.
#[test]
fn a_mount_waits_for_its_server() {
    needs::tools!("qemu-nbd", "e2fsck");
    isolated(|| {
        let export = Export::new();
        std::thread::scope(|s| {
            let serve_after = |seconds| {
                let export = &export;
                s.spawn(move || {
                    std::thread::sleep(Duration::from_secs(seconds));
                    export.serve()
                })
            };
            let server = serve_after(2);
            let mounted = export.mount(&["--io-timeout", "never"]);
            fs::write(export.dir.join("before"), "1").unwrap();
            drop(server.join().unwrap());
            let server = serve_after(10);
            export.sync("before").unwrap();
            let _server = server.join().unwrap();
            mounted.terminate();
        });
        assert_clean(&export.image);
    });
}

/// A slow server gets all data at the end of the mount.
#[test]
fn a_slow_server_gets_the_last_writes() {
    needs::tools!("nbdkit", "e2fsck");
    isolated(|| {
        let export = Export::new();
        let server = export.serve_slowly();
        let mounted = export.mount(&[]);
        let content = |n: u8| vec![n; 100_000 + usize::from(n)];
        for n in 0..20 {
            fs::write(export.dir.join(n.to_string()), content(n)).unwrap();
        }
        let took = export.umount(mounted);
        // The mount was over long before, and was asked to stop its waits.
        assert!(took > Duration::from_secs(12), "{took:?}");
        drop(server);
        assert_clean(&export.image);
        for n in 0..20 {
            let written = extant(["cat", &format!("{}:/{n}", export.image.display())]);
            assert_eq!(written.as_bytes(), content(n), "{n}");
        }
    });
}

/// A program continues on a detached mount, however slow the server is.
#[test]
fn a_detached_mount_on_a_slow_server_is_used() {
    needs::tools!("nbdkit", "e2fsck");
    isolated(|| {
        let export = Export::new();
        let server = export.serve_slowly();
        let mounted = export.mount(&[]);
        let file = fs::File::create(export.dir.join("f")).unwrap();
        let mut umount = Command::new(EXTANT)
            .args(["umount", "--lazy"])
            .arg(&export.dir)
            .spawn()
            .unwrap();
        // `umount` without `--lazy` has ended the waits for the server by then.
        assert!(wait(&mut umount, Duration::from_secs(12)).is_none());
        file.write_all_at(&[7; 100_000], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        let ended = wait(&mut umount, Duration::from_secs(120)).unwrap();
        assert!(ended.success());
        drop((mounted, server));
        assert_clean(&export.image);
        let size = extant(["cat", &format!("{}:/f", export.image.display())]).len();
        assert_eq!(size, 100_000);
    });
}

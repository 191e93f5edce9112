//! Volumes on NBD servers, mounted.

use super::remote_faults::qemu_nbd;
use super::support::{EXTANT, Mounted, Transport, extant, isolated, place, wait};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Server of an export for one client at a time; dropping it ends the server.
struct OneClient(std::process::Child);

impl Drop for OneClient {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_for_one_client_is_enough() {
    needs::tools!("qemu-nbd", "e2fsck");
    isolated(|| {
        let place = place();
        let (image, socket) = (place.path().join("image"), place.path().join("socket"));
        extant(["mkfs", image.to_str().unwrap(), "--size", "32M", "-q"]);
        let server = Command::new("qemu-nbd")
            .args(["-f", "raw", "-t", "-x", "disk", "-e", "1", "-k"])
            .args([&socket, &image])
            .spawn()
            .unwrap();
        let _server = OneClient(server);
        while !socket.exists() {
            std::thread::yield_now();
        }
        let address = format!("nbd+unix:///disk?socket={}", socket.display());
        let dir = place.path().join("mnt");
        let mounted = Mounted::on(address.as_ref(), &dir, Transport::Classic);
        fs::write(mounted.dir().join("f"), "text").unwrap();
        mounted.terminate();
        assert_eq!(extant(["cat", &format!("{address}:/f")]), "text");
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
        needs::program("extant-remote", "extant-remote");
        let place = place();
        let (image, socket) = (place.path().join("image"), place.path().join("socket"));
        extant(["mkfs", image.to_str().unwrap(), "--size", "32M", "-q"]);
        let address = format!("nbd+unix:///disk?socket={}", socket.display());
        let dir = place.path().join("mnt");
        let mount = |time| {
            let words = ["--io-timeout", time];
            Mounted::on_with(address.as_ref(), &dir, Transport::Classic, &words)
        };
        let umount = || {
            let began = Instant::now();
            let mut umount = Command::new(EXTANT)
                .arg("umount")
                .arg(&dir)
                .spawn()
                .unwrap();
            let ended = wait(&mut umount, Duration::from_secs(60));
            assert!(ended.is_some(), "umount does not end");
            println!("umount took {:?}", began.elapsed());
        };
        let sync = |name| fs::File::open(dir.join(name)).and_then(|file| file.sync_all());
        for (time, is_killed) in [("3", false), ("3", true), ("never", false), ("never", true)] {
            let server = qemu_nbd(&image, &socket);
            let mounted = mount(time);
            fs::write(dir.join("kept"), time).unwrap();
            sync("kept").unwrap();
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
                assert!(sync("lost").is_err(), "{time} {is_killed}");
                assert!(
                    began.elapsed() < Duration::from_secs(15),
                    "{:?}",
                    began.elapsed()
                );
            }
            umount();
            drop(mounted);
            if !is_killed {
                kill_process(stopped, Signal::KILL).unwrap();
            }
            let _server = qemu_nbd(&image, &socket);
            let again = mount("never");
            assert_eq!(fs::read_to_string(dir.join("kept")).unwrap(), time);
            again.terminate();
        }
    });
}

/// A mount waits for a server that comes back after longer than the usual 8 seconds.
#[test]
fn a_mount_waits_for_its_server() {
    needs::tools!("qemu-nbd", "e2fsck");
    isolated(|| {
        needs::program("extant-remote", "extant-remote");
        let place = place();
        let (image, socket) = (place.path().join("image"), place.path().join("socket"));
        extant(["mkfs", image.to_str().unwrap(), "--size", "32M", "-q"]);
        let address = format!("nbd+unix:///disk?socket={}", socket.display());
        let dir = place.path().join("mnt");
        let server = qemu_nbd(&image, &socket);
        let words = ["--io-timeout", "never"];
        let mounted = Mounted::on_with(address.as_ref(), &dir, Transport::Classic, &words);
        fs::write(dir.join("before"), "1").unwrap();
        drop(server);
        let again = std::thread::spawn({
            let (image, socket) = (image.clone(), socket.clone());
            move || {
                std::thread::sleep(Duration::from_secs(10));
                qemu_nbd(&image, &socket)
            }
        });
        fs::File::open(dir.join("before"))
            .unwrap()
            .sync_all()
            .unwrap();
        let _server = again.join().unwrap();
        mounted.terminate();
        super::support::assert_clean(&image);
    });
}

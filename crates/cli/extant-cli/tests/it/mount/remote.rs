//! Volumes on NBD servers, mounted.

use super::support::{Mounted, Transport, extant, isolated, place};
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

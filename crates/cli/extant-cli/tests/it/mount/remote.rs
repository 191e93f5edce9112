//! Volumes on NBD servers, mounted.

use super::support::{Mounted, Transport, extant, isolated, place};
use std::fs;
use std::process::Command;

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

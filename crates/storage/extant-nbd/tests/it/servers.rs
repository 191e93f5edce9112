//! Real servers, and servers that violate the protocol.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use crate::it::fake;
use blockdev::BlockDevice;
use extant_nbd::{NbdDevice, NbdUrl, Options};

struct Server(Child, PathBuf);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

fn dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("extant-nbd-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

fn qemu(name: &str, more: &[&str]) -> (Server, NbdUrl) {
    let dir = dir(name);
    let (image, socket) = (dir.join("disk"), dir.join("s"));
    std::fs::File::create(&image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    (Server(start(&dir, more), dir), url("disk", &socket))
}

/// Starts a server, and waits until it accepts connections.
fn start(dir: &Path, more: &[&str]) -> Child {
    let socket = dir.join("s");
    let _ = std::fs::remove_file(&socket);
    let child = Command::new("qemu-nbd")
        .args(["-f", "raw", "-t", "-x", "disk", "-e", "8", "-k"])
        .arg(&socket)
        .args(more)
        .arg(dir.join("disk"))
        .spawn()
        .unwrap();
    for _ in 0..500 {
        if UnixStream::connect(&socket).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

impl Server {
    fn restart(&mut self) {
        self.0 = start(&self.1, &[]);
    }
}

fn url(export: &str, socket: &Path) -> NbdUrl {
    NbdUrl::parse(&format!("nbd+unix:///{export}?socket={}", socket.display())).unwrap()
}

#[test]
fn many_threads_read_what_they_wrote() {
    needs::tools!("qemu-nbd");
    let (server, url) = qemu("threads", &[]);
    let device = NbdDevice::connect(&url, &Options::default()).unwrap();
    assert_eq!(device.len(), 64 << 20);
    std::thread::scope(|s| {
        for task in 0..8u8 {
            let device = &device;
            s.spawn(move || {
                let data = vec![task + 1; 3 << 20];
                let at = u64::from(task) * (4 << 20) + 512;
                device.write_at(at, &data).unwrap();
                let mut back = vec![0; data.len()];
                device.read_at(at, &mut back).unwrap();
                assert_eq!(data, back);
            });
        }
    });
    device.flush().unwrap();
    device.discard(512, 4096).unwrap();
    device.flush().unwrap();
    let bytes = std::fs::read(server.1.join("disk")).unwrap();
    assert!(bytes[512..4608].iter().all(|b| *b == 0) && bytes[4608] == 1);
    assert_eq!(
        device.read_at(64 << 20, &mut [0]).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
}

#[test]
fn a_wrong_export_lists_the_right_ones_and_read_only_is_kept() {
    needs::tools!("qemu-nbd");
    let (server, right) = qemu("wrong", &["-r"]);
    let error = NbdDevice::connect(&url("no", &server.1.join("s")), &Options::default())
        .err()
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("'disk'"), "{error}");
    let device = NbdDevice::connect(&right, &Options::default()).unwrap();
    assert!(device.read_only());
    assert_eq!(
        device.write_at(0, &[0; 512]).unwrap_err().kind(),
        ErrorKind::ReadOnlyFilesystem
    );
}

#[test]
fn a_server_that_dies_fails_what_waits() {
    needs::tools!("qemu-nbd");
    let (mut server, url) = qemu("dies", &[]);
    let options = Options {
        reconnect: Duration::from_millis(300),
        ..Options::default()
    };
    let device = NbdDevice::connect(&url, &options).unwrap();
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    assert!(device.write_at(0, &[1; 512]).is_err());
    assert!(device.flush().is_err());
    let impatient = Options {
        reconnect: Duration::from_secs(600),
        keep_waiting: Some(Arc::new(|_| Err(ErrorKind::Interrupted.into()))),
        ..Options::default()
    };
    server.restart();
    let device = NbdDevice::connect(&url, &impatient).unwrap();
    server.0.kill().unwrap();
    let interrupted = device.flush().unwrap_err();
    assert_eq!(interrupted.kind(), ErrorKind::Interrupted);
}

/// A restarted server that has lost its unflushed writes receives them again, in their order.
#[test]
fn unflushed_writes_are_sent_again() {
    needs::tools!("qemu-nbd");
    let (mut server, url) = qemu("again", &[]);
    let device = NbdDevice::connect(&url, &Options::default()).unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    device.flush().unwrap();
    device.write_at(4096, &[2; 8192]).unwrap();
    device.write_at(8192, &[3; 4096]).unwrap();
    device.discard(10_240, 1024).unwrap();
    for _ in 0..3 {
        server.0.kill().unwrap();
        server.0.wait().unwrap();
        // Unflushed writes are lost with the machine.
        let image = server.1.join("disk");
        let file = std::fs::File::options().write(true).open(&image).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[9; 16_384], 4096).unwrap();
        server.restart();
        let mut bytes = [0; 12_288];
        device.read_at(0, &mut bytes).unwrap();
        assert!(bytes[..4096] == [1; 4096] && bytes[4096..8192] == [2; 4096]);
        assert!(bytes[8192..10_240] == [3; 2048] && bytes[10_240..11_264] == [0; 1024]);
        assert!(bytes[11_264..] == [3; 1024]);
    }
    device.flush().unwrap();
}

/// Threads that write, read and flush do not notice that the server is killed again and again.
#[test]
fn work_goes_on_over_many_connections() {
    needs::tools!("qemu-nbd");
    for (name, connections) in [("many", 1), ("many-of-four", 4)] {
        lose_connections(name, connections);
    }
}

fn lose_connections(name: &str, connections: usize) {
    let (mut server, url) = qemu(name, &[]);
    let options = Options {
        connections,
        ..Options::default()
    };
    let device = NbdDevice::connect(&url, &options).unwrap();
    assert_eq!(device.connections(), connections);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for task in 0..4u64 {
            let (device, done) = (&device, &done);
            scope.spawn(move || {
                let mut round = 0u64;
                while round < 5 || !done.load(std::sync::atomic::Ordering::Relaxed) {
                    round += 1;
                    let at = task * (8 << 20) + round % 16 * 65_536;
                    let data = vec![(task * 50 + round % 50) as u8; 65_536];
                    device.write_at(at, &data).unwrap();
                    if round.is_multiple_of(3) {
                        device.flush().unwrap();
                    }
                    let mut back = vec![0; data.len()];
                    device.read_at(at, &mut back).unwrap();
                    assert!(back == data, "task {task}, round {round}");
                }
            });
        }
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(20));
            server.0.kill().unwrap();
            server.0.wait().unwrap();
            server.restart();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Runs a server that sends these bytes behind a right handshake, or at once if `raw`.
fn liar(name: &str, size: u64, raw: bool, bytes: Vec<u8>) -> std::io::Result<NbdDevice> {
    fake::connect(name, move |mut stream| {
        if !raw {
            fake::greet(&mut stream, size, false);
        }
        let _ = stream.write_all(&bytes);
        let _ = stream.read_to_end(&mut Vec::new());
    })
}

#[test]
fn servers_that_lie_are_errors() {
    let kind = |r: std::io::Result<NbdDevice>| r.err().map(|e| e.kind());
    assert_eq!(
        kind(liar("garbage", 0, true, vec![0x5a; 4096])),
        Some(ErrorKind::InvalidData)
    );
    assert_eq!(
        kind(liar("size", u64::MAX, false, vec![])),
        Some(ErrorKind::InvalidData)
    );
    let read = |name, bytes| {
        liar(name, 1 << 20, false, bytes)
            .unwrap()
            .read_at(0, &mut [0; 512])
    };
    let mut cookie = 0x6744_6698u32.to_be_bytes().to_vec();
    cookie.extend([0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
    assert!(
        read("cookie", cookie)
            .unwrap_err()
            .to_string()
            .contains("nobody sent")
    );
    assert!(
        read("magic", vec![1; 16])
            .unwrap_err()
            .to_string()
            .contains("magic")
    );
    assert_eq!(
        read("silent", vec![]).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
}

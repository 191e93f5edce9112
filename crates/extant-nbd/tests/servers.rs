//! Real servers, and ones that lie.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

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
    let child = Command::new("qemu-nbd")
        .args(["-f", "raw", "-t", "-x", "disk", "-e", "8", "-k"])
        .arg(&socket)
        .args(more)
        .arg(&image)
        .spawn()
        .unwrap();
    let server = Server(child, dir);
    for _ in 0..500 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    (server, url("disk", &socket))
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
    let device = NbdDevice::connect(&url, &Options::default()).unwrap();
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    assert!(device.write_at(0, &[1; 512]).is_err());
    assert!(device.flush().is_err());
}

/// Runs a server that sends these bytes behind a right handshake, or at once if `raw`.
fn liar(name: &str, size: u64, raw: bool, bytes: Vec<u8>) -> std::io::Result<NbdDevice> {
    let dir = dir(name);
    let socket = dir.join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        if !raw {
            let mut hello = b"NBDMAGICIHAVEOPT\0\x03".to_vec();
            let reply = |kind: u32, data: &[u8]| {
                let mut r = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
                r.extend(
                    [7, kind, data.len() as u32]
                        .iter()
                        .flat_map(|n| n.to_be_bytes()),
                );
                r.extend(data);
                r
            };
            let mut info = vec![0, 0];
            info.extend(size.to_be_bytes());
            info.extend([0, 5]);
            hello.extend(reply(3, &info));
            hello.extend(reply(1, &[]));
            stream.write_all(&hello).unwrap();
        }
        let _ = stream.write_all(&bytes);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let options = Options {
        timeout: Duration::from_millis(500),
        ..Options::default()
    };
    let device = NbdDevice::connect(&url("disk", &socket), &options);
    let _ = std::fs::remove_dir_all(dir);
    device
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

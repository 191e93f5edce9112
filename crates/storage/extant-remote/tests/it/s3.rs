//! Images on S3 servers that others wrote: moto and s3s-fs.

use crate::support::{Served, Server};
use blockdev::{BlockDevice, conformance};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns a port that is free.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Starts moto, and makes a bucket.
fn moto() -> (Server, String) {
    let port = free_port();
    let child = Command::new("moto_server")
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server(child);
    for _ in 0..600 {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
            let host = format!("127.0.0.1:{port}");
            let request = format!(
                "PUT /bucket HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains(" 200 "), "{answer}");
            return (server, format!("http://{host}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("moto_server does not listen");
}

/// Starts s3s-fs, whose buckets are directories.
fn s3s_fs(root: &Path) -> (Server, String) {
    let port = free_port();
    std::fs::create_dir_all(root.join("bucket")).unwrap();
    let child = Command::new("s3s-fs")
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--access-key", "a", "--secret-key", "b"])
        .arg(root)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server(child);
    for _ in 0..600 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return (server, format!("http://127.0.0.1:{port}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("s3s-fs does not listen");
}

#[test]
fn an_image_on_moto() {
    needs::tools!("moto_server");
    let (_server, endpoint) = moto();
    an_image_on_s3(&endpoint);
}

/// `scripts/test-remote.sh` builds this server from its sources, which takes minutes: other runs have it only if it is there.
#[test]
fn an_image_on_s3s_fs() {
    if Command::new("s3s-fs").arg("--version").output().is_err() {
        return needs::told("no s3s-fs: scripts/test-remote.sh builds it");
    }
    let root = tempfile::tempdir().unwrap();
    let (_server, endpoint) = s3s_fs(root.path());
    an_image_on_s3(&endpoint);
}

/// Conformance, a killed writer, a writer that returns, and errors.
fn an_image_on_s3(endpoint: &str) {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("credentials");
    std::fs::write(
        &files,
        "[default]\naws_access_key_id=a\naws_secret_access_key=b\nregion=us-east-1\n",
    )
    .unwrap();
    let envs = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_SHARED_CREDENTIALS_FILE", files.to_str().unwrap()),
    ];
    let start = |address: &str| Served::start(dir.path(), address, &envs);
    let served = start("s3://bucket/disk?size=16M").unwrap();
    conformance::check(served.device(), 1).unwrap();
    served.device().write_at(0, b"kept").unwrap();
    served.device().flush().unwrap();
    served.device().write_at(0, b"lost").unwrap();
    served.kill();
    let served = start("s3://bucket/disk").unwrap();
    let mut found = [0; 4];
    served.device().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"kept");
    // Another writer, by force; the first is refused when it returns.
    let address = "s3://bucket/disk?takeover";
    let other = tempfile::tempdir().unwrap();
    let new = Served::start(other.path(), address, &envs).unwrap();
    served.device().write_at(0, b"late").unwrap();
    assert!(served.device().flush().is_err());
    new.device().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"kept");
    new.end();
    let said = start("s3://bucket/other").err().unwrap();
    assert!(said.contains("no image here"), "{said}");
    let said = start("s3://nowhere/other").err().unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
}

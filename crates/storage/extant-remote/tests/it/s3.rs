//! Images on an S3 server that others wrote: moto.

use crate::support::{Served, Server};
use blockdev::{BlockDevice, conformance};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Starts the server, and makes a bucket.
fn moto() -> (Server, String) {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
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

#[test]
fn an_image_on_s3() {
    needs::tools!("moto_server");
    let dir = tempfile::tempdir().unwrap();
    let (server, endpoint) = moto();
    let files = dir.path().join("credentials");
    std::fs::write(
        &files,
        "[default]\naws_access_key_id=a\naws_secret_access_key=b\nregion=us-east-1\n",
    )
    .unwrap();
    let envs = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
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
    drop(server);
}

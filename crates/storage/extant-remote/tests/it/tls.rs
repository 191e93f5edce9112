//! An NBD server that speaks only TLS: nbdkit, with certificates that openssl makes.

use crate::support::Served;
use blockdev::{BlockDevice, conformance};
use extant_nbd::{NbdDevice, NbdUrl, Options};
use extant_remote::{Tunnel, runtime};
use needs::servers::{Server, free_port};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes a certificate of `name`, signed by the authority in the directory, or the authority itself.
fn certificate(dir: &Path, name: &str, subject: &str) {
    let openssl = |line: &str| {
        let ran = Command::new("openssl")
            .args(line.split(' '))
            .current_dir(dir)
            .stderr(Stdio::null())
            .status();
        assert!(ran.unwrap().success(), "openssl {line}");
    };
    let key = format!(
        "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}-key.pem -subj /CN={subject}"
    );
    if name == "ca" {
        openssl(&format!("req -x509 {key} -days 30 -out ca-cert.pem"));
        return;
    }
    let names = "-addext subjectAltName=DNS:localhost,IP:127.0.0.1";
    openssl(&format!("req -new {key} {names} -out {name}.csr"));
    openssl(&format!(
        "x509 -req -in {name}.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -copy_extensions copy -days 30 -out {name}-cert.pem"
    ));
}

/// nbdkit, and its port.
struct Nbdkit(#[expect(dead_code, reason = "ends the server")] Server, u16);

impl Nbdkit {
    fn start(more: &[&str]) -> Self {
        Self::start_at(free_port(), more, &["memory", "16M"])
    }

    fn start_at(port: u16, more: &[&str], plugin: &[&str]) -> Self {
        let mut command = Command::new("nbdkit");
        command
            .args(["-f", "-i", "127.0.0.1", "-p", &port.to_string()])
            .args(more)
            .args(plugin)
            .stderr(Stdio::null());
        Self(Server::start(&mut command, port), port)
    }

    fn tunnel(&self, host: &str, certificates: Option<&Path>) -> io::Result<Tunnel> {
        let mut address = format!("nbds://{host}:{}/", self.1);
        if let Some(dir) = certificates {
            address += &format!("?tls-certificates={}", dir.display());
        }
        Tunnel::open(&address, runtime().unwrap())
    }
}

#[test]
fn a_device_over_tls_keeps_its_promises() {
    needs::tools!("nbdkit", "openssl");
    let dir = tempfile::tempdir().unwrap();
    let pki = dir.path();
    certificate(pki, "ca", "authority");
    certificate(pki, "server", "localhost");
    certificate(pki, "client", "somebody");
    let of_server = format!("--tls-certificates={}", pki.display());
    let server = Nbdkit::start(&["--tls=require", "--tls-verify-peer", &of_server]);
    let tunnel = server.tunnel("localhost", Some(pki)).unwrap();
    let socket = pki.join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let served = std::thread::spawn(move || tunnel.serve(listener.accept().unwrap().0));
    let url = NbdUrl::parse(&format!("nbd+unix:///?socket={}", socket.display())).unwrap();
    let device = NbdDevice::connect(&url, &Options::default()).unwrap();
    conformance::check(&device, 1).unwrap();
    drop(device);
    served.join().unwrap().unwrap();
}

#[test]
fn certificates_that_do_not_fit_are_refused() {
    needs::tools!("nbdkit", "openssl");
    let dir = tempfile::tempdir().unwrap();
    let (right, wrong) = (dir.path().join("right"), dir.path().join("wrong"));
    for pki in [&right, &wrong] {
        std::fs::create_dir(pki).unwrap();
        certificate(pki, "ca", "authority");
    }
    certificate(&right, "server", "localhost");
    let of_server = format!("--tls-certificates={}", right.display());
    let server = Nbdkit::start(&["--tls=require", &of_server]);
    server.tunnel("localhost", Some(&right)).unwrap();
    let refused = |done: io::Result<Tunnel>| done.err().expect("refused").to_string();
    // Another authority, and none: the authorities of the system.
    for pki in [Some(&*wrong), None] {
        let why = refused(server.tunnel("localhost", pki));
        assert!(why.contains("TLS: invalid peer certificate"), "{why}");
    }
    let why = refused(server.tunnel("127.0.0.2", Some(&right)));
    assert!(
        why.contains("refused") || why.contains("certificate"),
        "{why}"
    );
    let why = refused(server.tunnel("localhost", Some(Path::new("/none"))));
    assert!(why.contains("/none/ca-cert.pem"), "{why}");

    let plain = Nbdkit::start(&["--tls=off"]);
    let why = refused(plain.tunnel("localhost", Some(&right)));
    assert!(why.contains("it has no TLS"), "{why}");
}

/// The device outlives its connections: it writes again what a server that was killed may have lost.
#[test]
fn a_lost_connection_is_replaced() {
    needs::tools!("nbdkit", "openssl");
    let dir = tempfile::tempdir().unwrap();
    let pki = dir.path();
    certificate(pki, "ca", "authority");
    certificate(pki, "server", "localhost");
    let disk = pki.join("disk");
    std::fs::File::create(&disk)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    let of_server = format!("--tls-certificates={}", pki.display());
    let arguments = ["--tls=require", &of_server];
    let plugin = ["file", disk.to_str().unwrap()];
    let port = Nbdkit::start(&["--tls=off"]).1;
    let mut server = Nbdkit::start_at(port, &arguments, &plugin);
    let address = |fields: &str| {
        format!(
            "nbds://localhost:{port}/?tls-certificates={}&{fields}",
            pki.display()
        )
    };
    let served = Served::start(pki, &address("reconnect=60&connections=4"), &[]).unwrap();
    let device = served.device();
    for round in 1..4_u8 {
        device.write_at(4096, &[round; 4096]).unwrap();
        device.flush().unwrap();
        device
            .write_at(u64::from(round) << 20, &[round; 100_000])
            .unwrap();
        drop(server);
        // Writes that were not flushed are lost with the machine.
        let file = std::fs::File::options().write(true).open(&disk).unwrap();
        file.write_all_at(&[9; 100_000], u64::from(round) << 20)
            .unwrap();
        server = Nbdkit::start_at(port, &arguments, &plugin);
        let mut bytes = vec![0; 100_000];
        device.read_at(u64::from(round) << 20, &mut bytes).unwrap();
        assert!(bytes == vec![round; 100_000], "round {round}");
        device.read_at(4096, &mut bytes[..4096]).unwrap();
        assert!(bytes[..4096] == [round; 4096]);
    }
    conformance::check(device, 1).unwrap();
    served.end();
    // A server that does not return is an error after the time of the address.
    let served = Served::start(pki, &address("reconnect=1"), &[]).unwrap();
    drop(server);
    assert!(served.device().read_at(0, &mut [0; 512]).is_err());
}

//! An NBD server that speaks only TLS: nbdkit, with certificates that openssl makes.

use crate::support::Served;
use blockdev::{BlockDevice, conformance};
use extant_nbd::{NbdDevice, NbdUrl, Options};
use extant_remote::{Tunnel, runtime};
use needs::servers::{Server, free_port};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection};

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

/// Makes two directories, each with an authority for certificates.
fn authorities(dir: &Path) -> [PathBuf; 2] {
    ["right", "wrong"].map(|name| {
        let pki = dir.join(name);
        std::fs::create_dir(&pki).unwrap();
        certificate(&pki, "ca", "authority");
        pki
    })
}

#[test]
fn certificates_that_do_not_fit_are_refused() {
    needs::tools!("nbdkit", "openssl");
    let dir = tempfile::tempdir().unwrap();
    let [right, wrong] = authorities(dir.path());
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

/// Takes one connection over TLS, and ends it before the first answer.
fn end_after_tls(listener: &TcpListener, config: &Arc<ServerConfig>) {
    let mut stream = listener.accept().unwrap().0;
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    // The flags of the client, and the option for TLS.
    stream.read_exact(&mut [0; 20]).unwrap();
    let mut reply = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
    reply.extend([5_u32, 1, 0].map(u32::to_be_bytes).concat());
    stream.write_all(&reply).unwrap();
    let mut tls = ServerConnection::new(Arc::clone(config)).unwrap();
    // A wrong certificate of the client is an error, and an alert.
    while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
    stream.shutdown(Shutdown::Write).unwrap();
    // The client ends its side, too.
    let _ = stream.read_to_end(&mut Vec::new());
}

/// A server that ends a connection after TLS may be starting, and one that sends an alert about the certificate refuses.
#[test]
fn only_a_refusal_ends_the_wait_for_a_server() {
    needs::tools!("nbdkit", "openssl");
    let dir = tempfile::tempdir().unwrap();
    let [right, wrong] = authorities(dir.path());
    for pki in [&right, &wrong] {
        certificate(pki, "server", "localhost");
        certificate(pki, "client", "somebody");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = || {
        ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
    };
    let own = || {
        let chain = CertificateDer::pem_file_iter(right.join("server-cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(right.join("server-key.pem")).unwrap();
        (chain.map(Result::unwrap).collect(), key)
    };
    let (chain, key) = own();
    let anybody = builder().with_no_client_auth();
    let anybody = Arc::new(anybody.with_single_cert(chain, key).unwrap());
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(wrong.join("ca-cert.pem")).unwrap();
    roots.add(authority).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let (chain, key) = own();
    let others = builder().with_client_cert_verifier(verifier.build().unwrap());
    let others = Arc::new(others.with_single_cert(chain, key).unwrap());

    let address = format!(
        "nbds://localhost:{port}/?tls-certificates={}",
        right.display()
    );
    let envs = [("EXTANT_IO_TIMEOUT", "never")];
    let of_server = format!("--tls-certificates={}", right.display());
    std::thread::scope(|s| {
        let refusing = listener.try_clone().unwrap();
        let refuser = s.spawn(move || end_after_tls(&refusing, &others));
        let said = Served::start(dir.path(), &address, &envs).err().unwrap();
        assert!(said.contains("the server denies access"), "{said}");
        refuser.join().unwrap();
        let client = s.spawn(|| {
            let served = Served::start(dir.path(), &address, &envs).unwrap();
            served.device().read_at(0, &mut [1; 512]).unwrap();
            served.end();
        });
        end_after_tls(&listener, &anybody);
        drop(listener);
        let _server = Nbdkit::start_at(port, &["--tls=require", &of_server], &["memory", "16M"]);
        client.join().unwrap();
    });
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

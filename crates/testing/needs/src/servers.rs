//! Servers of other programs, which tests start on ports of this machine.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A server; dropping it ends the server.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Starts a server that listens on `port`, and waits until it does.
    ///
    /// # Panics
    /// The server does not start, ends, or does not listen within a minute.
    pub fn start(command: &mut Command, port: u16) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut server = Self(child.unwrap_or_else(|e| panic!("{command:?}: {e}")));
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.0.try_wait();
            assert!(matches!(ended, Ok(None)), "{command:?}: {ended:?}");
            assert!(start.elapsed() < Duration::from_secs(60), "{command:?}");
            sleep(Duration::from_millis(50));
        }
        server
    }
}

/// Returns a port that is free.
///
/// # Panics
/// No port is free.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Sends a request without a body to an HTTP server of this machine. Returns the answer.
///
/// # Panics
/// The server does not answer.
pub fn request(port: u16, line: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    let request = format!(
        "{line} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n"
    );
    let mut answer = String::new();
    let done = stream.write_all(request.as_bytes());
    let done = done.and_then(|()| stream.read_to_string(&mut answer));
    done.unwrap_or_else(|e| panic!("{line}: {e}"));
    answer
}

/// Kind of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// S3, in Python.
    Moto,
    /// S3 over a directory, in Rust.
    S3sFs,
    /// S3 over a directory, in Go.
    VersityGateway,
    /// Google Cloud Storage, in Go, behind a translator.
    FakeGcs,
    /// Azure Blob Storage, by Microsoft.
    Azurite,
}

/// Key of the account `devstoreaccount1` that every Azurite has.
const AZURITE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Headers of the request that makes the container `bucket`. The signature is constant, because the time and the key are.
const AZURITE_CREATE: &str = "x-ms-date: Thu, 01 Jan 2026 00:00:00 GMT\r\nx-ms-version: 2023-11-03\r\nAuthorization: SharedKey devstoreaccount1:Rz81t0VrzLAlOhnk61os7IveLLBdbIyxvV72/oP6AsI=\r\n";

impl StoreKind {
    /// Returns the name of the program.
    fn program(self) -> &'static str {
        match self {
            Self::Moto => "moto_server",
            Self::S3sFs => "s3s-fs",
            Self::VersityGateway => "versitygw",
            Self::FakeGcs => "fake-gcs-server",
            Self::Azurite => "azurite-blob",
        }
    }
}

/// An object store with the bucket `bucket`.
pub struct Store {
    kind: StoreKind,
    /// Port that clients connect to.
    pub port: u16,
    _server: Server,
    _dir: tempfile::TempDir,
}

impl Store {
    /// Starts a store. Returns `None` if the machine has no such program: every machine of CI has moto, and
    /// `scripts/test-remote.sh` installs the others.
    ///
    /// # Panics
    /// The server does not start, or has no bucket afterwards. In CI, moto is missing.
    #[track_caller]
    pub fn start(kind: StoreKind) -> Option<Self> {
        let program = kind.program();
        if kind == StoreKind::Moto {
            if !crate::have(&[program]) {
                return None;
            }
        } else if !crate::is_there(program) {
            crate::told(&format!("no {program}: scripts/test-remote.sh installs it"));
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory for the objects");
        std::fs::create_dir(dir.path().join("bucket")).expect("a directory for the bucket");
        let mut port = free_port();
        let number = port.to_string();
        let mut command = Command::new(program);
        command.stderr(Stdio::null());
        match kind {
            StoreKind::Moto => command.args(["-H", "127.0.0.1", "-p", &number]),
            StoreKind::S3sFs => command
                .args(["--host", "127.0.0.1", "--port", &number])
                .args(["--access-key", "a", "--secret-key", "b"])
                .arg(dir.path()),
            StoreKind::VersityGateway => command
                .args(["--access", "a", "--secret", "b", "--port"])
                .args([&format!("127.0.0.1:{number}"), "posix"])
                .arg(dir.path()),
            StoreKind::FakeGcs => command
                .args(["-scheme", "http", "-host", "127.0.0.1", "-port", &number])
                .args(["-backend", "memory", "-public-host"])
                .arg(format!("127.0.0.1:{number}"))
                .arg("-data")
                .arg(dir.path()),
            StoreKind::Azurite => command
                .args(["--blobHost", "127.0.0.1", "--blobPort", &number])
                .args(["--silent", "--disableTelemetry", "--location"])
                .arg(dir.path()),
        };
        let server = Server::start(&mut command, port);
        let create = match kind {
            StoreKind::Moto => Some(("PUT /bucket", "")),
            StoreKind::Azurite => Some((
                "PUT /devstoreaccount1/bucket?restype=container",
                AZURITE_CREATE,
            )),
            _ => None,
        };
        if let Some((line, headers)) = create {
            let answer = request(port, line, headers);
            assert!(answer.contains(" 20"), "{answer}");
        }
        if kind == StoreKind::FakeGcs {
            port = translate(port);
        }
        Some(Self {
            kind,
            port,
            _server: server,
            _dir: dir,
        })
    }

    /// Returns the address of an object or a prefix of the bucket.
    pub fn address(&self, name: &str) -> String {
        let scheme = match self.kind {
            StoreKind::FakeGcs => "gs",
            StoreKind::Azurite => "az",
            _ => "s3",
        };
        format!("{scheme}://bucket/{name}")
    }

    /// Returns the variables for clients that reach the store at `port`.
    pub fn envs(&self, port: u16) -> Vec<(&'static str, String)> {
        let endpoint = format!("http://127.0.0.1:{port}");
        match self.kind {
            StoreKind::FakeGcs => vec![("STORAGE_EMULATOR_HOST", endpoint)],
            StoreKind::Azurite => vec![(
                "AZURE_STORAGE_CONNECTION_STRING",
                format!(
                    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={AZURITE_KEY};BlobEndpoint={endpoint}/devstoreaccount1;"
                ),
            )],
            _ => vec![
                ("AWS_ENDPOINT_URL", endpoint),
                ("AWS_ACCESS_KEY_ID", "a".into()),
                ("AWS_SECRET_ACCESS_KEY", "b".into()),
                ("AWS_REGION", "us-east-1".into()),
            ],
        }
    }
}

/// Reads the head of a request, and its body.
fn read_request(stream: &TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut len) = (String::new(), 0);
    loop {
        let start = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let line = head[start..].to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            len = value.trim().parse().map_err(|_| ErrorKind::InvalidData)?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body)?;
    Ok((head, body))
}

/// Answers one request of Google's XML interface by a server that has the JSON interface only.
fn translate_request(client: &TcpStream, port: u16) -> std::io::Result<()> {
    let (head, body) = read_request(client)?;
    let (line, fields) = head.split_once("\r\n").unwrap_or_default();
    let object = line
        .strip_prefix("PUT /bucket/")
        .and_then(|rest| rest.split(' ').next());
    let line = match object {
        Some(object) => {
            let lower = fields.to_ascii_lowercase();
            let condition = lower.split_once("x-goog-if-generation-match: ");
            let condition = condition.and_then(|(_, rest)| rest.split("\r\n").next());
            let condition = condition.map(|n| format!("&ifGenerationMatch={n}"));
            format!(
                "POST /upload/storage/v1/b/bucket/o?uploadType=media&name={object}{} HTTP/1.1",
                condition.unwrap_or_default()
            )
        }
        None => line.to_owned(),
    };
    let fields = fields.split("\r\n").filter(|field| {
        let field = field.to_ascii_lowercase();
        !field.is_empty() && !field.starts_with("host:")
    });
    let fields: String = fields.map(|field| format!("{field}\r\n")).collect();
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    let head = format!("{line}\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{fields}\r\n");
    server.write_all(&[head.as_bytes(), &body].concat())?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    if object.is_some() {
        // The other interface has these in the body.
        let end = answer.windows(2).position(|pair| pair == b"\r\n");
        let end = end.ok_or(ErrorKind::InvalidData)? + 2;
        let fields = b"ETag: \"1\"\r\nx-goog-generation: 1\r\n";
        answer.splice(end..end, fields.iter().copied());
    }
    let mut client = client;
    client.write_all(&answer)
}

/// Starts a translator before fake-gcs-server: clients that use Google's XML interface, as crates do that speak S3 too, make objects
/// by its `PUT`, which the server lacks. The server decides about the condition. Returns the port of the translator.
fn translate(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let own = listener.local_addr().expect("its address").port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A client that is gone needs no answer.
            std::thread::spawn(move || translate_request(&client, port));
        }
    });
    own
}

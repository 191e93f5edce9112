//! NBD servers with TLS: this program upgrades the connection (`NBD_OPT_STARTTLS`), and passes the bytes of the protocol on in both
//! directions. The client continues the handshake as without TLS.
//!
//! The client cannot reconnect through this program, because the socket between them is for one connection. If the address asks for
//! reconnection or for several connections, this program is the client of the server itself, and its device is the export.

use crate::requests::{io_timeout, runtime};
use crate::server::MAX_OPTION;
use extant_nbd::numbers::{OPT_MAGIC, OPT_REPLY_MAGIC, OPT_STARTTLS, REP_ACK};
use extant_nbd::{NbdDevice, NbdUrl, Options};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsConnector, rustls};

const SCHEME: &str = "nbds://";
/// Port that IANA assigned to NBD.
const PORT: u16 = 10809;
/// Time for the connection, the handshake and TLS together.
const LIMIT: Duration = Duration::from_secs(30);
const FIXED_NEWSTYLE: u16 = 1;
/// Length of magic numbers and flags with which a server begins.
const GREETING: usize = 18;

/// Address of a server with TLS: `nbds://HOST[:PORT]/EXPORT`, with the fields `tls-certificates=DIR`, `reconnect=SECONDS` and
/// `connections=NUMBER`.
struct TlsAddress {
    host: String,
    port: u16,
    /// Directory with `ca-cert.pem`, and with `client-cert.pem` and `client-key.pem` if the server asks for them.
    certificates: Option<PathBuf>,
    /// The fields that are those of an address without TLS, joined by `&`.
    fields: String,
}

impl TlsAddress {
    fn parse(text: &str) -> io::Result<Self> {
        let wrong = |why: &str| {
            let shape = "try nbds://HOST[:PORT]/EXPORT or nbds://HOST/EXPORT?tls-certificates=DIR";
            io::Error::new(ErrorKind::InvalidInput, format!("{why} ({shape})"))
        };
        let url = url::Url::parse(text).map_err(|e| wrong(&e.to_string()))?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong("no host"))?;
        let (mut certificates, mut fields) = (None, Vec::new());
        for (field, value) in url.query_pairs() {
            match &*field {
                "tls-certificates" => certificates = Some(PathBuf::from(value.into_owned())),
                "reconnect" | "connections" => fields.push(format!("{field}={value}")),
                _ => return Err(wrong("an unknown field after '?'")),
            }
        }
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(PORT),
            certificates,
            fields: fields.join("&"),
        })
    }

    fn config(&self) -> io::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let known = match &self.certificates {
            Some(dir) => certificates(&dir.join("ca-cert.pem"))?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        roots.add_parsable_certificates(known);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots);
        let own = self
            .certificates
            .as_ref()
            .map(|dir| (dir.join("client-cert.pem"), dir.join("client-key.pem")));
        match own.filter(|(certificate, _)| certificate.exists()) {
            None => Ok(config.with_no_client_auth()),
            Some((certificate, key)) => {
                let chain = certificates(&certificate)?;
                let secret = PrivateKeyDer::from_pem_file(&key).map_err(|e| at(&key, e))?;
                let config = config.with_client_auth_cert(chain, secret);
                config.map_err(|e| at(&certificate, e))
            }
        }
    }
}

/// Takes an error that another thread left.
fn take(error: &Mutex<Option<io::Error>>) -> Option<io::Error> {
    error.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn at(path: &Path, error: impl std::fmt::Display) -> io::Error {
    let text = format!("{}: {error}", path.display());
    io::Error::new(ErrorKind::InvalidInput, text)
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|e| at(path, e))
}

fn protocol(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("NBD server: {what}"))
}

/// Connection to an NBD server, encrypted.
///
/// ```no_run
/// let tunnel = extant_remote::Tunnel::open("nbds://localhost/disk", extant_remote::runtime()?)?;
/// let (client, server) = std::os::unix::net::UnixStream::pair()?;
/// tunnel.serve(server)?;
/// # drop(client);
/// # std::io::Result::Ok(())
/// ```
pub struct Tunnel {
    runtime: Runtime,
    stream: TlsStream<TcpStream>,
    greeting: [u8; GREETING],
    /// Whether the client has a certificate.
    has_certificate: bool,
}

impl Tunnel {
    /// Returns whether an address is that of a server with TLS.
    pub fn is_address(address: &str) -> bool {
        address.starts_with(SCHEME)
    }

    /// Opens the export as a device of this process if the address asks for reconnection or for several connections. Each connection is a
    /// separate tunnel.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), and the export does not exist.
    pub fn device(address: &str) -> io::Result<Option<NbdDevice>> {
        let parsed = TlsAddress::parse(address)?;
        let io_timeout = io_timeout()?;
        if parsed.fields.is_empty() && io_timeout.is_none() {
            return Ok(None);
        }
        let place = address.strip_prefix(SCHEME).unwrap_or(address);
        let place = place.split('?').next().unwrap_or(place);
        let url = NbdUrl::parse(&format!("nbd://{place}?{}", parsed.fields))?;
        let address = address.to_owned();
        // A refusal of the server, which the client hears as the end of its stream.
        let refusal = Arc::new(Mutex::new(None));
        let of_dial = Arc::clone(&refusal);
        let dial = move |limit: Duration| {
            if let Some(why) = take(&of_dial) {
                return Err(why);
            }
            let tunnel = Self::open_within(&address, runtime()?, limit.min(LIMIT))?;
            let (client, server) = UnixStream::pair()?;
            let of_tunnel = Arc::clone(&of_dial);
            let serve = move || {
                let kept = server.try_clone();
                let served = tunnel.serve(server);
                let refused = served.err().filter(|e| e.kind() == ErrorKind::InvalidData);
                *of_tunnel.lock().unwrap_or_else(PoisonError::into_inner) = refused;
                // The stream ends after the refusal is known.
                drop(kept);
            };
            std::thread::Builder::new()
                .name("tunnel".into())
                .spawn(serve)?;
            Ok(client)
        };
        let options = Options {
            dial: Some(Arc::new(dial)),
            io_timeout,
            ..Options::default()
        };
        let device = NbdDevice::connect(&url, &options);
        device.map(Some).map_err(|e| take(&refusal).unwrap_or(e))
    }

    /// Connects to the server, and checks its certificate.
    ///
    /// # Errors
    /// The address is not valid, the server does not answer within 30 seconds or has no TLS, or a certificate is not accepted.
    pub fn open(address: &str, runtime: Runtime) -> io::Result<Self> {
        Self::open_within(address, runtime, LIMIT)
    }

    fn open_within(address: &str, runtime: Runtime, limit: Duration) -> io::Result<Self> {
        let parsed = TlsAddress::parse(address)?;
        let config = parsed.config()?;
        let has_certificate = config.client_auth_cert_resolver.has_certs();
        let connected = runtime.block_on(async {
            let within = timeout(limit, connect(&parsed, config)).await;
            within.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
        });
        let (stream, greeting) = connected?;
        Ok(Self {
            runtime,
            stream,
            greeting,
            has_certificate,
        })
    }

    /// Serves a client until one side ends the connection.
    pub fn serve(mut self, client: UnixStream) -> io::Result<()> {
        client.set_nonblocking(true)?;
        self.runtime.block_on(async {
            let mut client = tokio::net::UnixStream::from_std(client)?;
            client.write_all(&self.greeting).await?;
            // The server has the flags of this program, which are those of every client of fixed newstyle.
            client.read_exact(&mut [0; 4]).await?;
            let (mut from_client, mut to_client) = client.split();
            let (mut from_server, mut to_server) = tokio::io::split(&mut self.stream);
            let answered = Cell::new(false);
            let answers = async {
                let mut first = vec![0; 4096];
                let length = from_server.read(&mut first).await?;
                if length == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                answered.set(true);
                to_client.write_all(&first[..length]).await?;
                copy(&mut from_server, &mut to_client).await
            };
            let done = tokio::select! {
                done = copy(&mut from_client, &mut to_server) => done,
                done = answers => done,
            };
            match done {
                Err(e) if !answered.get() => Err(refused(&e, self.has_certificate)),
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(()),
                done => done.map(drop),
            }
        })
    }
}

/// Returns the error of a connection that the server ended before its first answer. It learns of the client's certificate after the client
/// holds the connection for established.
fn refused(error: &io::Error, has_certificate: bool) -> io::Error {
    let why = if has_certificate {
        error.to_string()
    } else {
        "it may ask for a certificate: client-cert.pem and client-key.pem in tls-certificates=DIR"
            .into()
    };
    protocol(format_args!("it ended the connection after TLS: {why}"))
}

async fn connect(
    address: &TlsAddress,
    config: ClientConfig,
) -> io::Result<(TlsStream<TcpStream>, [u8; GREETING])> {
    let mut stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    stream.set_nodelay(true)?;
    let mut greeting = [0; GREETING];
    stream.read_exact(&mut greeting).await?;
    let flags = u16::from_be_bytes([greeting[16], greeting[17]]);
    if !greeting.starts_with(b"NBDMAGICIHAVEOPT") || flags & FIXED_NEWSTYLE == 0 {
        return Err(protocol("not a server of the fixed newstyle handshake"));
    }
    stream
        .write_all(&u32::from(flags & 3).to_be_bytes())
        .await?;
    let mut option = OPT_MAGIC.to_be_bytes().to_vec();
    option.extend(OPT_STARTTLS.to_be_bytes());
    option.extend(0u32.to_be_bytes());
    stream.write_all(&option).await?;
    let magic = (stream.read_u64().await?, stream.read_u32().await?);
    let (kind, length) = (stream.read_u32().await?, stream.read_u32().await?);
    if magic != (OPT_REPLY_MAGIC, OPT_STARTTLS) || length > MAX_OPTION {
        return Err(protocol("a reply of the handshake is not valid"));
    }
    stream.read_exact(&mut vec![0; length as usize]).await?;
    if kind != REP_ACK {
        return Err(protocol(
            "it has no TLS: use nbd:// if the network is trusted",
        ));
    }
    let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|e| io::Error::new(e.kind(), format!("TLS: {e}")))?;
    Ok((stream, greeting))
}

#[test]
fn wrong_addresses_are_refused() {
    for text in [
        "nbds:///x",
        "nbds://h:99999/x",
        "nbds://h/x?tls=1",
        "nbds://h/x?socket=/s",
        "nbds://",
    ] {
        assert!(TlsAddress::parse(text).is_err(), "{text}");
    }
    let address = TlsAddress::parse("nbds://[::1]:5/x?tls-certificates=/pki").unwrap();
    assert_eq!((address.host.as_str(), address.port), ("::1", 5));
}

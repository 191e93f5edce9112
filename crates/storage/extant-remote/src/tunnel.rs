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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::ResolvesClientCert;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{AlertDescription, ClientConfig, RootCertStore, SignatureScheme};
use tokio_rustls::{TlsConnector, rustls};

const SCHEME: &str = "nbds://";
/// Port that IANA assigned to NBD.
const PORT: u16 = 10809;
/// Time for the connection, the handshake and TLS together.
const LIMIT: Duration = Duration::from_secs(30);
/// Time for an alert of a server that takes nothing more.
const LAST_ANSWER: Duration = Duration::from_secs(1);
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

    fn config(&self, missing: &Arc<MissingCertificate>) -> io::Result<ClientConfig> {
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
            None => Ok(config.with_client_cert_resolver(Arc::clone(missing) as _)),
            Some((certificate, key)) => {
                let chain = certificates(&certificate)?;
                let secret = PrivateKeyDer::from_pem_file(&key).map_err(|e| at(&key, e))?;
                let config = config.with_client_auth_cert(chain, secret);
                config.map_err(|e| at(&certificate, e))
            }
        }
    }
}

/// Resolver for a client without a certificate; keeps whether the server asked for a certificate.
#[derive(Debug, Default)]
struct MissingCertificate {
    is_asked_for: AtomicBool,
}

impl ResolvesClientCert for MissingCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.is_asked_for.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Why the last tunnel ended before the first answer of the server, which the client hears as the end of its stream.
#[derive(Clone, Default)]
struct EarlyEnd(Arc<Mutex<Option<io::Error>>>);

impl EarlyEnd {
    fn set(&self, error: Option<io::Error>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
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
    missing: Arc<MissingCertificate>,
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
        let early_end = EarlyEnd::default();
        let known_to_dial = early_end.clone();
        let dial = move |limit: Duration| {
            // The next connection would be refused, too.
            let refusal = known_to_dial.take().filter(is_refusal);
            if let Some(why) = refusal {
                return Err(why);
            }
            let tunnel = Self::open_within(&address, runtime()?, limit.min(LIMIT))?;
            let (client, server) = UnixStream::pair()?;
            let known_to_tunnel = known_to_dial.clone();
            let serve = move || {
                let kept = server.try_clone();
                let served = tunnel.serve(server);
                known_to_tunnel.set(served.err());
                // The stream ends after its error is known.
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
        device.map(Some).map_err(|e| early_end.take().unwrap_or(e))
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
        let missing = Arc::new(MissingCertificate::default());
        let config = parsed.config(&missing)?;
        let connected = runtime.block_on(async {
            let within = timeout(limit, connect(&parsed, config)).await;
            within.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
        });
        let (stream, greeting) = connected?;
        Ok(Self {
            runtime,
            stream,
            greeting,
            missing,
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
            tokio::pin!(answers);
            let done = tokio::select! {
                done = copy(&mut from_client, &mut to_server) => match done {
                    // The server may have said why it takes nothing more.
                    Err(e) if !answered.get() => {
                        timeout(LAST_ANSWER, answers).await.unwrap_or(Err(e))
                    }
                    done => done,
                },
                done = &mut answers => done,
            };
            match done {
                Err(e) if !answered.get() => Err(ended_early(e, &self.missing)),
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(()),
                done => done.map(drop),
            }
        })
    }
}

/// Returns whether an error means that the server refuses this client, so that another attempt is useless.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
}

/// Returns the error of a connection that ended after TLS and before the first answer of the server. The server sees the client's
/// certificate only when the client has ended its part of TLS. Without a refusal, the server may be starting.
fn ended_early(error: io::Error, missing: &MissingCertificate) -> io::Error {
    let tls = error.get_ref().and_then(|e| e.downcast_ref());
    let why = match tls {
        // Many servers only end the connection.
        _ if missing.is_asked_for.load(Ordering::Relaxed) => {
            "the server asks for a certificate: put client-cert.pem and client-key.pem in tls-certificates=DIR".into()
        }
        Some(rustls::Error::AlertReceived(alert)) if is_about_access(*alert) => {
            format!("the server denies access: its TLS alert is {alert:?}")
        }
        _ => {
            let why = if error.kind() == ErrorKind::UnexpectedEof {
                String::new()
            } else {
                format!(": {error}")
            };
            let why = format!("the server ended the connection after TLS{why}");
            return io::Error::new(error.kind(), why);
        }
    };
    io::Error::new(ErrorKind::PermissionDenied, why)
}

/// Returns whether an alert is about the certificate or the rights of the client.
fn is_about_access(alert: AlertDescription) -> bool {
    use AlertDescription as A;
    matches!(
        alert,
        A::AccessDenied
            | A::BadCertificate
            | A::CertificateExpired
            | A::CertificateRequired
            | A::CertificateRevoked
            | A::CertificateUnknown
            | A::DecryptError
            | A::NoCertificate
            | A::UnknownCA
            | A::UnsupportedCertificate
    )
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

//! Addresses of exports.

use crate::options::MOST_CONNECTIONS;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// The address of an export: `nbd://host[:port]/export` or `nbd+unix:///export?socket=PATH`. `reconnect=SECONDS` behind `?` or `&`
/// stands for [`Options::reconnect`](crate::Options::reconnect), and `connections=NUMBER` for
/// [`Options::connections`](crate::Options::connections).
///
/// ```
/// let url = extant_nbd::NbdUrl::parse("nbd://localhost/disk").unwrap();
/// assert_eq!(url.to_string(), "nbd://localhost:10809/disk");
/// assert!(extant_nbd::NbdUrl::parse("nbd+unix:///disk").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUrl {
    pub(crate) place: ServerPlace,
    pub(crate) export: String,
    pub(crate) reconnect: Option<u64>,
    pub(crate) connections: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerPlace {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// The port that IANA assigned to NBD.
const PORT: u16 = 10809;
/// The protocol's limit of the length of a name, in bytes.
const MAX_EXPORT: usize = 4096;
/// Longest time to wait for another connection, in seconds: a day.
const MAX_RECONNECT: u64 = 86_400;

impl NbdUrl {
    /// Parses an address. The error is `InvalidInput` with a message.
    pub fn parse(text: &str) -> io::Result<Self> {
        let wrong = |why: &str| {
            let shape = "try nbd://host[:port]/export or nbd+unix:///export?socket=PATH";
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{text}: {why} ({shape})"),
            )
        };
        let (address, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut socket, mut reconnect, mut connections) = (None, None, None);
        for field in query.split('&').filter(|field| !field.is_empty()) {
            match field.split_once('=') {
                Some(("socket", path)) => socket = Some(path),
                Some(("reconnect", seconds)) => {
                    let seconds = seconds.parse().ok();
                    let valid = seconds.filter(|s| *s <= MAX_RECONNECT);
                    reconnect = Some(valid.ok_or_else(|| wrong("not a valid number of seconds"))?);
                }
                Some(("connections", number)) => {
                    let number = number.parse().ok();
                    let valid = number.filter(|n| (1..=MOST_CONNECTIONS).contains(n));
                    let why = "not a number of connections from 1 to 16";
                    connections = Some(valid.ok_or_else(|| wrong(why))?);
                }
                _ => return Err(wrong("an unknown field after '?'")),
            }
        }
        let (place, export) = if let Some(export) = address.strip_prefix("nbd+unix:///") {
            let socket = socket.ok_or_else(|| wrong("no socket"))?;
            let socket = decode(socket).filter(|s| !s.is_empty());
            let socket = socket.ok_or_else(|| wrong("not a valid socket path"))?;
            (ServerPlace::Unix(socket.into()), export)
        } else if let Some(rest) = address.strip_prefix("nbd://") {
            if socket.is_some() {
                return Err(wrong("a socket beside a host"));
            }
            let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
            let (host, port) =
                split_port(authority).ok_or_else(|| wrong("not a valid host and port"))?;
            (ServerPlace::Tcp { host, port }, export)
        } else {
            return Err(wrong("not the address of an NBD export"));
        };
        let url = NbdUrl {
            place,
            export: decode(export).ok_or_else(|| wrong("not a valid export name"))?,
            reconnect,
            connections,
        };
        if url.export.len() > MAX_EXPORT {
            return Err(wrong("the export name is longer than 4096 bytes"));
        }
        Ok(url)
    }
}

fn split_port(authority: &str) -> Option<(String, u16)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']')?;
            (
                host,
                if rest.is_empty() {
                    None
                } else {
                    Some(rest.strip_prefix(':')?)
                },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Some(PORT), |p| p.parse().ok())?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Decodes `%41`; `None` for a bad escape or bytes that are not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            u8::try_from(high * 16 + low).ok()?
        } else {
            byte
        };
        out.push(byte);
    }
    String::from_utf8(out).ok()
}

impl fmt::Display for NbdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ServerPlace::Tcp { host, port } if host.contains(':') => {
                write!(f, "nbd://[{host}]:{port}/{}", self.export)
            }
            ServerPlace::Tcp { host, port } => write!(f, "nbd://{host}:{port}/{}", self.export),
            ServerPlace::Unix(path) => {
                write!(f, "nbd+unix:///{}?socket={}", self.export, path.display())
            }
        }
    }
}

#[test]
fn wrong_addresses_are_refused() {
    for text in [
        "nbd:///x",
        "nbd://h:99999/x",
        "nbd://h/%4",
        "nbd://h/%ff",
        "nbd+unix:///x?socket=",
        "http://h/x",
        "nbd://[::1/x",
        "nbd://h/x?reconnect=y",
        "nbd://h/x?reconnect=99999999",
        "nbd://h/x?socket=/s",
        "nbd://h/x?connections=0",
        "nbd://h/x?connections=17",
        "nbd+unix:///x?socket=/s&tls=1",
    ] {
        assert_eq!(
            NbdUrl::parse(text).unwrap_err().kind(),
            io::ErrorKind::InvalidInput,
            "{text}"
        );
    }
    assert_eq!(
        NbdUrl::parse("nbd://[::1]:5/a%20b").unwrap().to_string(),
        "nbd://[::1]:5/a b"
    );
    let url = NbdUrl::parse("nbd+unix:///x?reconnect=600&socket=/s").unwrap();
    assert_eq!(url.reconnect, Some(600));
}

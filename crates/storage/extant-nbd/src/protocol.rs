//! Numbers of fixed length, and the errors of a server: all parts of the protocol use them.

use std::io::{self, Read};

/// Characters of a server's message that are shown.
const SHOWN: usize = 200;

/// Error of a server that shuts down; it may be restarted.
pub(crate) const SHUTDOWN: u32 = 108;

/// Returns the error for a code of the protocol; `message` is the server's own.
pub(crate) fn remote_error(code: u32, message: &str) -> io::Error {
    let (kind, name) = match code {
        1 => (io::ErrorKind::PermissionDenied, "not permitted"),
        5 => (io::ErrorKind::Other, "I/O error"),
        12 => (io::ErrorKind::OutOfMemory, "out of memory"),
        22 => (io::ErrorKind::InvalidInput, "invalid request"),
        28 => (io::ErrorKind::StorageFull, "no space"),
        95 => (io::ErrorKind::Unsupported, "not supported"),
        SHUTDOWN => (io::ErrorKind::ConnectionAborted, "the server shuts down"),
        _ => (io::ErrorKind::Other, "unknown error"),
    };
    let colon = if message.is_empty() { "" } else { ": " };
    io::Error::new(kind, format!("NBD server: {name} ({code}){colon}{message}"))
}

/// Returns an error for a server that breaks the protocol.
pub(crate) fn protocol(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("NBD server: {what}"))
}

pub(crate) fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let field = at.checked_add(N).and_then(|end| bytes.get(at..end));
    let field = field.and_then(|f| f.try_into().ok());
    field.ok_or_else(|| protocol("a reply of the handshake is too short"))
}

/// Returns a server's text as it may be shown.
pub(crate) fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let printable = text.chars().filter(|c| !c.is_control());
    printable.take(SHOWN).collect()
}

//! Notifies a service manager as sd_notify(3) describes: a datagram to the socket in the environment.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Notifies the service manager, if there is one, that the service is ready. Errors are only reported, because the
/// service can run without the notification.
pub fn ready() {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET")
        && let Err(error) = tell(&socket, b"READY=1\n")
    {
        extant_terminal::output::complain(format_args!("{}: {error}", socket.to_string_lossy()));
    }
}

fn tell(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        tell(path.as_os_str(), b"READY=1\n").unwrap();
        let mut buffer = [0; 32];
        let n = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"READY=1\n");
        let name = format!("extant-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        tell(format!("@{name}").as_ref(), b"x").unwrap();
        assert_eq!(manager.recv(&mut buffer).unwrap(), 1);
    }
}

//! A connection with many requests in flight: callers write requests, one thread reads the replies.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::handshake::array;
use crate::protocol;
use crate::url::ServerPlace;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const WRITE_ZEROES: u16 = 6;

/// A stream of either kind.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) fn connect(place: &ServerPlace, timeout: Duration) -> io::Result<Self> {
        match place {
            ServerPlace::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path)?)),
            ServerPlace::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    pub(crate) fn set_timeouts(
        &self,
        read: Option<Duration>,
        write: Option<Duration>,
    ) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s
                .set_read_timeout(read)
                .and_then(|()| s.set_write_timeout(write)),
            Stream::Unix(s) => s
                .set_read_timeout(read)
                .and_then(|()| s.set_write_timeout(write)),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Stream::Tcp(s) => Stream::Tcp(s.try_clone()?),
            Stream::Unix(s) => Stream::Unix(s.try_clone()?),
        })
    }

    fn shutdown(&self) {
        // A stream that is closed already needs no more.
        let _ = match self {
            Stream::Tcp(s) => s.shutdown(Shutdown::Both),
            Stream::Unix(s) => s.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(buf),
            Stream::Unix(s) => s.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write(buf),
            Stream::Unix(s) => s.write(buf),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Waiter {
    /// Bytes that the reply carries if it is not an error.
    length: usize,
    answer: SyncSender<io::Result<Vec<u8>>>,
}

/// Requests without a reply; `lost` says why there will be no more replies.
#[derive(Default)]
struct Pending {
    waiters: HashMap<u64, Waiter>,
    next: u64,
    lost: Option<String>,
}

pub(crate) struct Connection {
    pending: Arc<Mutex<Pending>>,
    writer: Mutex<Stream>,
    closer: Stream,
    timeout: Duration,
}

/// A request that was sent.
pub(crate) struct Ticket(Receiver<io::Result<Vec<u8>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone(why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        format!("the NBD connection is lost: {why}"),
    )
}

/// Fails every request that waits and those to come.
fn lose(pending: &Mutex<Pending>, why: &str) {
    let mut pending = lock(pending);
    let why = pending.lost.get_or_insert_with(|| why.to_owned()).clone();
    for (_, waiter) in pending.waiters.drain() {
        // A caller whose time is over does not listen any more.
        let _ = waiter.answer.try_send(Err(gone(&why)));
    }
}

impl Connection {
    pub(crate) fn start(stream: Stream, timeout: Duration) -> io::Result<Self> {
        stream.set_timeouts(None, Some(timeout))?;
        let mut reader = stream.try_clone()?;
        let closer = stream.try_clone()?;
        let pending = Arc::new(Mutex::new(Pending::default()));
        let shared = Arc::clone(&pending);
        std::thread::Builder::new()
            .name("nbd-replies".into())
            .spawn(move || {
                let error = loop {
                    if let Err(error) = receive(&mut reader, &shared) {
                        break error;
                    }
                };
                reader.shutdown();
                lose(&shared, &error.to_string());
            })?;
        Ok(Connection {
            pending,
            writer: Mutex::new(stream),
            closer,
            timeout,
        })
    }

    /// Sends a request; `length` is that of the range on the device.
    pub(crate) fn send(
        &self,
        command: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> io::Result<Ticket> {
        let (answer, ticket) = sync_channel(1);
        let cookie = {
            let mut pending = lock(&self.pending);
            if let Some(why) = &pending.lost {
                return Err(gone(why));
            }
            pending.next = pending.next.wrapping_add(1);
            let cookie = pending.next;
            let length = if command == READ { length as usize } else { 0 };
            pending.waiters.insert(cookie, Waiter { length, answer });
            cookie
        };
        let sent = self.write(command, cookie, offset, length, data);
        if let Err(error) = sent {
            self.close(&error.to_string());
            return Err(gone(&error.to_string()));
        }
        Ok(Ticket(ticket))
    }

    fn write(
        &self,
        command: u16,
        cookie: u64,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> io::Result<()> {
        // Header and data in one write: two small ones would be two packets.
        let mut request = Vec::with_capacity(28 + data.len());
        request.extend(REQUEST_MAGIC.to_be_bytes());
        request.extend(0u16.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        lock(&self.writer).write_all(&request)
    }

    /// Waits for the reply. A server that does not answer in time loses the connection, because a late reply to a
    /// write could otherwise overtake the caller's next operations.
    pub(crate) fn wait(&self, ticket: Ticket) -> io::Result<Vec<u8>> {
        match ticket.0.recv_timeout(self.timeout) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(gone("the request was dropped")),
            Err(RecvTimeoutError::Timeout) => {
                let why = format!("no reply in {} s", self.timeout.as_secs_f32());
                self.close(&why);
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("the NBD server sent {why}"),
                ))
            }
        }
    }

    /// Whether there will be no more replies.
    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.pending).lost.is_some()
    }

    fn close(&self, why: &str) {
        lose(&self.pending, why);
        self.closer.shutdown();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The server may have gone away, so an error of the disconnect request is ignored.
        let _ = self.write(DISCONNECT, 0, 0, 0, &[]);
        self.close("closed");
    }
}

/// Receives one reply.
fn receive(reader: &mut Stream, pending: &Mutex<Pending>) -> io::Result<()> {
    if u32::from_be_bytes(array(reader)?) != REPLY_MAGIC {
        return Err(protocol("a reply has a wrong magic number"));
    }
    let code = u32::from_be_bytes(array(reader)?);
    let cookie = u64::from_be_bytes(array(reader)?);
    let waiter = lock(pending).waiters.remove(&cookie);
    let waiter = waiter.ok_or_else(|| {
        protocol(format_args!(
            "a reply to request {cookie}, which nobody sent"
        ))
    })?;
    // The connection must be known to be lost before a caller hears of it: callers then try the next connection.
    let lost = |e: io::Error| {
        lose(pending, &e.to_string());
        let _ = waiter.answer.try_send(Err(gone(&e.to_string())));
        e
    };
    let answer = match code {
        0 => {
            let mut data = vec![0; waiter.length];
            reader.read_exact(&mut data).map_err(lost)?;
            Ok(data)
        }
        SHUTDOWN => return Err(lost(remote_error(code))),
        _ => Err(remote_error(code)),
    };
    // A caller whose time is over does not listen any more.
    let _ = waiter.answer.try_send(answer);
    Ok(())
}

/// Error of a server that shuts down; it may be restarted.
const SHUTDOWN: u32 = 108;

fn remote_error(code: u32) -> io::Error {
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
    io::Error::new(kind, format!("NBD server: {name} ({code})"))
}

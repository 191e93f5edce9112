//! A connection with many requests in flight: callers write requests, one thread reads the replies.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::numbers::{
    BLOCK_STATUS, DISCONNECT, EXTENDED_REPLY, EXTENDED_REQUEST_MAGIC, LAST_CHUNK, PAYLOAD_LEN,
    REQUEST_MAGIC, SIMPLE_REPLY, STRUCTURED_REPLY, WRITE,
};
use crate::options::Options;
use crate::patience::{POLL, Patience};
use crate::protocol::{SHUTDOWN, array, protocol, remote_error};
use crate::reply::Expected;
use crate::url::ServerPlace;

/// Longest range of a request for the status without extended headers: a multiple of every block size.
const MOST_SHORT: u64 = 1 << 30;

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

pub(crate) struct Waiter {
    /// Contents of the reply.
    pub(crate) expected: Expected,
    answer: SyncSender<io::Result<Vec<u8>>>,
}

impl Waiter {
    fn tell(self, answer: io::Result<Vec<u8>>) {
        // A caller whose time is over does not listen any more.
        let _ = self.answer.try_send(answer);
    }
}

/// Requests without a reply; `lost` says why there will be no more replies.
#[derive(Default)]
pub(crate) struct Pending {
    waiters: HashMap<u64, Waiter>,
    next: u64,
    lost: Option<String>,
}

pub(crate) struct Connection {
    pending: Arc<Mutex<Pending>>,
    writer: Mutex<Stream>,
    closer: Stream,
    patience: Patience,
    /// Whether requests and replies have extended headers.
    extended: bool,
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
        waiter.tell(Err(gone(&why)));
    }
}

impl Connection {
    pub(crate) fn start(stream: Stream, patience: Patience, extended: bool) -> io::Result<Self> {
        // A write looks at the limits of its wait each time.
        stream.set_timeouts(None, Some(POLL))?;
        let mut reader = stream.try_clone()?;
        let closer = stream.try_clone()?;
        let pending = Arc::new(Mutex::new(Pending::default()));
        let shared = Arc::clone(&pending);
        std::thread::Builder::new()
            .name("nbd-replies".into())
            .spawn(move || {
                let error = loop {
                    if let Err(error) = receive(&mut reader, &shared, extended) {
                        break error;
                    }
                };
                // The reason first: else a caller hears of the closed stream.
                lose(&shared, &error.to_string());
                reader.shutdown();
            })?;
        Ok(Connection {
            pending,
            writer: Mutex::new(stream),
            closer,
            patience,
            extended,
        })
    }

    /// Sends a request; `length` is that of the range on the device.
    pub(crate) fn send(
        &self,
        command: u16,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> io::Result<Ticket> {
        let length = match command {
            // A server may tell of less than it was asked for.
            BLOCK_STATUS if !self.extended => length.min(MOST_SHORT),
            _ if !self.extended && length > u64::from(u32::MAX) => {
                let why =
                    format!("a request of {length} bytes: the server has no extended headers");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            _ => length,
        };
        let (answer, ticket) = sync_channel(1);
        let cookie = {
            let mut pending = lock(&self.pending);
            if let Some(why) = &pending.lost {
                return Err(gone(why));
            }
            pending.next = pending.next.wrapping_add(1);
            let cookie = pending.next;
            let expected = Expected::of(command, offset, length);
            pending.waiters.insert(cookie, Waiter { expected, answer });
            cookie
        };
        let sent = self.write(&self.patience, command, cookie, offset, length, data);
        if let Err(error) = sent {
            self.close(&error.to_string());
            return Err(gone(&error.to_string()));
        }
        Ok(Ticket(ticket))
    }

    fn write(
        &self,
        patience: &Patience,
        command: u16,
        cookie: u64,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> io::Result<()> {
        let (magic, flags) = match (self.extended, command) {
            (false, _) => (REQUEST_MAGIC, 0),
            (true, WRITE) => (EXTENDED_REQUEST_MAGIC, PAYLOAD_LEN),
            (true, _) => (EXTENDED_REQUEST_MAGIC, 0),
        };
        // Header and data in one write: two small ones would be two packets.
        let mut request = Vec::with_capacity(32 + data.len());
        request.extend(magic.to_be_bytes());
        request.extend(flags.to_be_bytes());
        request.extend(command.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        if self.extended {
            request.extend(length.to_be_bytes());
        } else {
            request.extend((length as u32).to_be_bytes()); // checked by `send`
        }
        request.extend(data);
        let mut writer = lock(&self.writer);
        let (mut wait, mut rest) = (patience.begin(), &request[..]);
        while !rest.is_empty() {
            match writer.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                // The limit is that of a server that takes no bytes, not that of a slow one.
                Ok(n) => (wait, rest) = (patience.begin(), &rest[n..]),
                Err(error) => match error.kind() {
                    // The server takes no bytes.
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => wait.check()?,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Waits for the reply. A server that does not answer in time loses the connection, because a late reply to a
    /// write could otherwise overtake the caller's next operations.
    pub(crate) fn wait(&self, ticket: Ticket) -> io::Result<Vec<u8>> {
        let mut wait = self.patience.begin();
        loop {
            match ticket.0.recv_timeout(wait.step()) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Disconnected) => return Err(gone("the request was dropped")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let Err(error) = wait.check() else { continue };
            self.close(&error.to_string());
            if error.kind() != io::ErrorKind::TimedOut {
                return Err(error);
            }
            let why = format!("the NBD server sent {error}");
            return Err(io::Error::new(error.kind(), why));
        }
    }

    /// Whether there will be no more replies.
    pub(crate) fn is_lost(&self) -> bool {
        lock(&self.pending).lost.is_some()
    }

    pub(crate) fn close(&self, why: &str) {
        lose(&self.pending, why);
        self.closer.shutdown();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The server may have gone away, so an error of the disconnect request is ignored.
        let patience = Patience::new(&Options {
            timeout: POLL,
            ..Options::default()
        });
        let _ = self.write(&patience, DISCONNECT, 0, 0, 0, &[]);
        self.close("closed");
    }
}

/// Receives one reply, or one chunk of a structured one.
fn receive(reader: &mut Stream, pending: &Mutex<Pending>, extended: bool) -> io::Result<()> {
    match u32::from_be_bytes(array(reader)?) {
        SIMPLE_REPLY if !extended => receive_simple(reader, pending),
        STRUCTURED_REPLY if !extended => receive_chunk(reader, pending, false),
        EXTENDED_REPLY if extended => receive_chunk(reader, pending, true),
        _ => Err(protocol("a reply has a wrong magic number")),
    }
}

fn take(pending: &Mutex<Pending>, cookie: u64) -> io::Result<Waiter> {
    let waiter = lock(pending).waiters.remove(&cookie);
    waiter.ok_or_else(|| {
        protocol(format_args!(
            "a reply to request {cookie}, which nobody sent"
        ))
    })
}

/// Ends a request by an error after which the connection is of no use. The connection must be known to be lost before a caller hears of
/// the error: callers then try the next connection.
fn lost(pending: &Mutex<Pending>, waiter: Waiter, error: io::Error) -> io::Error {
    lose(pending, &error.to_string());
    waiter.tell(Err(gone(&error.to_string())));
    error
}

fn receive_simple(reader: &mut Stream, pending: &Mutex<Pending>) -> io::Result<()> {
    let code = u32::from_be_bytes(array(reader)?);
    let mut waiter = take(pending, u64::from_be_bytes(array(reader)?))?;
    let answer = match code {
        0 => match waiter.expected.simple(reader) {
            Ok(data) => Ok(data),
            Err(error) => return Err(lost(pending, waiter, error)),
        },
        SHUTDOWN => return Err(lost(pending, waiter, remote_error(code, ""))),
        _ => Err(remote_error(code, "")),
    };
    waiter.tell(answer);
    Ok(())
}

fn receive_chunk(reader: &mut Stream, pending: &Mutex<Pending>, extended: bool) -> io::Result<()> {
    let flags = u16::from_be_bytes(array(reader)?);
    let kind = u16::from_be_bytes(array(reader)?);
    let cookie = u64::from_be_bytes(array(reader)?);
    let (offset, length) = if extended {
        let offset = u64::from_be_bytes(array(reader)?);
        (Some(offset), u64::from_be_bytes(array(reader)?))
    } else {
        (None, u32::from_be_bytes(array(reader)?).into())
    };
    // Taken out, so that nobody waits for this thread while it reads.
    let mut waiter = take(pending, cookie)?;
    if offset.is_some_and(|offset| offset != waiter.expected.offset) {
        let error = protocol("a reply has the offset of another request");
        return Err(lost(pending, waiter, error));
    }
    if let Err(error) = waiter.expected.chunk(reader, kind, length) {
        return Err(lost(pending, waiter, error));
    }
    if flags & LAST_CHUNK != 0 {
        match waiter.expected.done() {
            Ok(answer) => waiter.tell(answer),
            Err(error) => return Err(lost(pending, waiter, error)),
        }
        return Ok(());
    }
    let mut pending = lock(pending);
    match pending.lost.clone() {
        Some(why) => waiter.tell(Err(gone(&why))),
        None => drop(pending.waiters.insert(cookie, waiter)),
    }
    Ok(())
}

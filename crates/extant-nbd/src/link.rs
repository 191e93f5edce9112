//! The link to an export: one connection, and the next one when that is lost.
//!
//! A server acknowledges a write before the write is durable. If the server crashes, such writes are lost although they were
//! acknowledged. Therefore the link keeps every write since the last flush, and sends them again over the next connection, in
//! the order in which they were acknowledged, before any other request.
//!
//! A request that was in flight when the connection was lost is sent again as well. The server may still be at work on the first one: it must
//! end the requests of a lost connection before it accepts overlapping ones, as the servers here do.

use crate::connection::{Connection, FLUSH, Stream, Ticket, WRITE};
use crate::device::{FLAG_FLUSH, FLAG_READ_ONLY, Options};
use crate::handshake::{Export, negotiate};
use crate::url::NbdUrl;
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests of one call that are in flight at once.
const DEPTH: usize = 16;
/// Bytes of unflushed writes that are kept; then the link flushes.
const MOST_UNFLUSHED: usize = 64 << 20;
/// Bytes that a request counts besides its data.
const SIZE_OF_REQUEST: usize = 64;
/// Connections that one call may lose: a server that ends the connection at a request would do so for ever.
const MOST_LOSSES: u32 = 10;
/// First wait before another attempt to connect, and the longest one.
const WAITS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Request of a call.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'p> {
    pub(crate) command: u16,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    pub(crate) data: &'p [u8],
}

/// Request that a flush makes durable.
struct Unflushed {
    command: u16,
    offset: u64,
    len: u32,
    data: Vec<u8>,
}

impl Unflushed {
    fn piece(&self) -> Piece<'_> {
        Piece {
            command: self.command,
            offset: self.offset,
            len: self.len,
            data: &self.data,
        }
    }
}

impl From<Piece<'_>> for Unflushed {
    fn from(piece: Piece<'_>) -> Self {
        Self {
            command: piece.command,
            offset: piece.offset,
            len: piece.len,
            data: piece.data.to_vec(),
        }
    }
}

/// The requests since the last flush.
#[derive(Default)]
struct Requests {
    list: VecDeque<Unflushed>,
    bytes: usize,
    /// Number of requests that were ever removed from the front.
    removed: u64,
    /// Number of the connection over which all of these were sent.
    connection: u64,
}

impl Requests {
    fn end(&self) -> u64 {
        self.removed + self.list.len() as u64
    }

    /// Removes the requests up to a number that [`end`](Self::end) returned.
    fn remove_to(&mut self, end: u64) {
        while self.removed < end
            && let Some(first) = self.list.pop_front()
        {
            self.bytes -= first.data.len() + SIZE_OF_REQUEST;
            self.removed += 1;
        }
    }
}

/// The connection in use.
struct Current {
    connection: Arc<Connection>,
    /// Number of connections before it.
    number: u64,
    /// Beginning of the first call that failed for lack of a connection.
    lost_since: Option<Instant>,
    /// No connection was had in time: there will be none, because somebody else may have the export by now.
    ended: bool,
}

pub(crate) struct Link {
    url: NbdUrl,
    options: Options,
    pub(crate) export: Export,
    current: Mutex<Current>,
    unflushed: Mutex<Requests>,
    /// A flush has failed: the server's next one may succeed although writes were lost.
    flush_failed: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects; `limit` is the time for the connection and for each step of the handshake.
fn connect(url: &NbdUrl, options: &Options, limit: Duration) -> io::Result<(Connection, Export)> {
    let mut stream = Stream::connect(&url.place, limit)?;
    stream.set_timeouts(Some(limit), Some(limit))?;
    let export = negotiate(&mut stream, &url.export)?;
    Ok((Connection::start(stream, options.timeout)?, export))
}

/// Sends requests, [`DEPTH`] of them at once, and passes each reply on. Waits for every request that was sent, so that no write lands
/// after this call has failed.
pub(crate) fn send_all<'p, P: Borrow<Piece<'p>>>(
    connection: &Connection,
    pieces: impl IntoIterator<Item = P>,
    mut replied: impl FnMut(Vec<u8>),
) -> io::Result<()> {
    let mut flight: VecDeque<Ticket> = VecDeque::new();
    let mut result = Ok(());
    let mut finish = |ticket, result: io::Result<()>| match connection.wait(ticket) {
        Ok(data) => {
            replied(data);
            result
        }
        Err(e) => result.and(Err(e)),
    };
    for piece in pieces {
        let piece = piece.borrow();
        if flight.len() == DEPTH
            && let Some(first) = flight.pop_front()
        {
            result = finish(first, result);
        }
        match connection.send(piece.command, piece.offset, piece.len, piece.data) {
            Ok(ticket) => flight.push_back(ticket),
            Err(error) => result = result.and(Err(error)),
        }
        if result.is_err() {
            break;
        }
    }
    for ticket in flight {
        result = finish(ticket, result);
    }
    result
}

impl Link {
    pub(crate) fn new(url: &NbdUrl, options: &Options) -> io::Result<Self> {
        let (connection, export) = connect(url, options, options.timeout)?;
        Ok(Self {
            url: url.clone(),
            options: options.clone(),
            export,
            current: Mutex::new(Current {
                connection: Arc::new(connection),
                number: 0,
                lost_since: None,
                ended: false,
            }),
            flush_failed: AtomicBool::new(false),
            unflushed: Mutex::default(),
        })
    }

    /// Runs a call, again over the next connection each time that the connection is lost.
    pub(crate) fn run<T>(&self, call: impl FnMut(&Connection) -> io::Result<T>) -> io::Result<T> {
        self.run_over(call).map(|(_, done)| done)
    }

    /// Like [`run`](Self::run); also returns the number of the connection over which the call succeeded.
    fn run_over<T>(
        &self,
        mut call: impl FnMut(&Connection) -> io::Result<T>,
    ) -> io::Result<(u64, T)> {
        let mut losses = 0;
        loop {
            let began = Instant::now();
            let (connection, number) = {
                let current = lock(&self.current);
                (Arc::clone(&current.connection), current.number)
            };
            match call(&connection) {
                Err(lost) if connection.is_lost() && losses < MOST_LOSSES => {
                    losses += 1;
                    self.next(number, began, lost)?;
                }
                done => return done.map(|done| (number, done)),
            }
        }
    }

    /// Replaces the connection of this number; returns `lost` if no other is had in time, which counts from the beginning of the
    /// first call that failed. From then on every call fails.
    fn next(&self, number: u64, began: Instant, lost: io::Error) -> io::Result<()> {
        let mut current = lock(&self.current);
        if current.number != number {
            return Ok(());
        }
        let since = *current.lost_since.get_or_insert(began);
        let mut wait = WAITS.0;
        loop {
            let left = self.options.reconnect.saturating_sub(since.elapsed());
            if left.is_zero() || current.ended {
                current.ended = true;
                *lock(&self.unflushed) = Requests::default();
                return Err(lost);
            }
            std::thread::sleep(wait.min(left));
            wait = (wait * 2).min(WAITS.1);
            if let Some(keep_waiting) = &self.options.keep_waiting {
                keep_waiting()?;
            }
            let limit = self.options.timeout.min(left);
            let Ok((connection, export)) = connect(&self.url, &self.options, limit) else {
                continue;
            };
            self.check_same(&export)?;
            if since.elapsed() >= self.options.reconnect {
                continue;
            }
            let mut requests = lock(&self.unflushed);
            let pieces = requests.list.iter().map(Unflushed::piece);
            match send_all(&connection, pieces, |_| {}) {
                Ok(()) => {
                    current.connection = Arc::new(connection);
                    current.number += 1;
                    current.lost_since = None;
                    requests.connection = current.number;
                    return Ok(());
                }
                Err(_) if connection.is_lost() => {}
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Fails if the server now has another export of this name.
    fn check_same(&self, now: &Export) -> io::Result<()> {
        let is_read_only = |export: &Export| export.flags & FLAG_READ_ONLY != 0;
        if now.size == self.export.size && is_read_only(now) == is_read_only(&self.export) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{}: the server came back with another export: {} bytes instead of {}",
            self.url, now.size, self.export.size
        )))
    }

    /// Sends requests that change the export, and keeps them until a flush.
    pub(crate) fn change(&self, pieces: &[Piece<'_>]) -> io::Result<()> {
        let mut kept: VecDeque<Unflushed> = pieces.iter().copied().map(Unflushed::from).collect();
        let bytes = |request: &Unflushed| request.data.len() + SIZE_OF_REQUEST;
        let is_full = loop {
            let (number, ()) = self.run_over(|connection| send_all(connection, pieces, |_| {}))?;
            let mut requests = lock(&self.unflushed);
            if requests.connection != number {
                // The connection was replaced meanwhile, and these were not among the requests that were sent again.
                continue;
            }
            requests.bytes += kept.iter().map(bytes).sum::<usize>();
            requests.list.append(&mut kept);
            break requests.bytes > MOST_UNFLUSHED;
        };
        if is_full { self.flush() } else { Ok(()) }
    }

    /// Flushes; the requests that were acknowledged before are durable then. By the protocol, a server
    /// without flush keeps acknowledged writes. After one failed flush every flush fails.
    pub(crate) fn flush(&self) -> io::Result<()> {
        if self.export.flags & FLAG_FLUSH == 0 {
            let mut requests = lock(&self.unflushed);
            let end = requests.end();
            requests.remove_to(end);
            return Ok(());
        }
        if self.flush_failed.load(Ordering::Relaxed) {
            return Err(io::Error::other("an earlier flush of the export failed"));
        }
        let flushed = self.run(|connection| {
            // Over a later connection these requests were sent again before.
            let end = lock(&self.unflushed).end();
            let ticket = connection.send(FLUSH, 0, 0, &[])?;
            connection.wait(ticket)?;
            lock(&self.unflushed).remove_to(end);
            Ok(())
        });
        flushed.inspect_err(|_| self.flush_failed.store(true, Ordering::Relaxed))
    }
}

/// Returns the requests that write `data` at `offset`, in pieces of `chunk` bytes.
pub(crate) fn writes(offset: u64, data: &[u8], chunk: usize) -> Vec<Piece<'_>> {
    let starts = (offset..).step_by(chunk);
    let pieces = starts.zip(data.chunks(chunk)).map(|(offset, data)| Piece {
        command: WRITE,
        offset,
        // A chunk is not longer than the 32 bits of the limit that it follows.
        len: data.len() as u32,
        data,
    });
    pieces.collect()
}

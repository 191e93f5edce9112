//! The link to an export: its connections, and the next ones when one is lost.
//!
//! A write returns as soon as it is sent (write-behind), because a caller that waited for each reply would pay a round trip for each
//! write. At most `MOST_BEHIND` writes and `MOST_BYTES_BEHIND` bytes are without a reply. A read, and a write to the same bytes, wait for
//! the replies of the writes that they overlap, because a server may reorder requests. A flush waits for all of them. An error
//! of a write is reported by the next call that waits for it, and fails every later write and flush.
//!
//! A server acknowledges a write before the write is durable. If the server crashes, such writes are lost although they were
//! acknowledged. Therefore the link keeps every write since the last flush, and sends them again over the next connection, in
//! the order in which they were issued, before any other request.
//!
//! A request that was in flight when the connection was lost is sent again as well. The server may still be at work on the first one: it must
//! end the requests of a lost connection before it accepts overlapping ones, as the servers here do.

use crate::connections::{Connections, SentRequest};
use crate::handshake::Export;
use crate::numbers::{FLAG_FLUSH, FLAG_READ_ONLY, FLUSH, READ};
use crate::options::Options;
use crate::patience::POLL;
use crate::piece::{Piece, overlap};
use crate::url::NbdUrl;
use crate::window::{Posted, Window};
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests of one call that are in flight at once.
const DEPTH: usize = 16;
/// Connections that one call may lose: a server that ends the connection at a request would do so for ever.
const MOST_LOSSES: u32 = 10;
/// First wait before another attempt to connect, and the longest one.
const WAITS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Longest time for an attempt to connect, and for each step of the handshake.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(30);

/// The connections in use.
struct Current {
    connection: Arc<Connections>,
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
    window: Mutex<Window>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends requests, [`DEPTH`] of them at once, and passes each reply on. A change waits for the replies of earlier ones that it overlaps.
/// Waits for every request that was sent, so that no write lands after this call has failed.
pub(crate) fn send_all<'p, P: Borrow<Piece<'p>>>(
    connection: &Connections,
    pieces: impl IntoIterator<Item = P>,
    mut replied: impl FnMut(Vec<u8>),
) -> io::Result<()> {
    let mut flight: VecDeque<(SentRequest, Range<u64>)> = VecDeque::new();
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
        let range = piece.range();
        while flight.len() == DEPTH
            || (piece.command != READ && flight.iter().any(|(_, other)| overlap(other, &range)))
        {
            let Some((first, _)) = flight.pop_front() else {
                break;
            };
            result = finish(first, result);
        }
        match connection.send(piece.command, piece.offset, piece.len, piece.data) {
            Ok(ticket) => flight.push_back((ticket, range)),
            Err(error) => result = result.and(Err(error)),
        }
        if result.is_err() {
            break;
        }
    }
    for (ticket, _) in flight {
        result = finish(ticket, result);
    }
    result
}

/// Fails if the caller asks to stop a wait that began at `since`.
fn keep_waiting(options: &Options, since: Instant) -> io::Result<()> {
    options
        .keep_waiting
        .as_ref()
        .map_or(Ok(()), |asked| asked(since.elapsed()))
}

/// Waits for a time, as a part of a wait that began at `since`, or fails if the caller asks to stop.
fn pause(options: &Options, time: Duration, since: Instant) -> io::Result<()> {
    let began = Instant::now();
    while let left = time.saturating_sub(began.elapsed())
        && !left.is_zero()
    {
        std::thread::sleep(left.min(POLL));
        keep_waiting(options, since)?;
    }
    Ok(())
}

/// Opens connections on another thread, so that the caller can stop while a server does not answer.
fn open(
    url: &NbdUrl,
    options: &Options,
    limit: Duration,
    since: Instant,
) -> io::Result<(Connections, Export)> {
    if options.keep_waiting.is_none() {
        return Connections::open(url, options, limit);
    }
    let (sender, opened) = sync_channel(1);
    let (url, of_thread) = (url.clone(), options.clone());
    std::thread::Builder::new()
        .name("nbd-connect".into())
        .spawn(move || {
            // A caller that stopped needs no connection.
            let _ = sender.send(Connections::open(&url, &of_thread, limit));
        })?;
    loop {
        match opened.recv_timeout(POLL) {
            Ok(opened) => return opened,
            Err(RecvTimeoutError::Timeout) => keep_waiting(options, since)?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the attempt to connect ended"));
            }
        }
    }
}

/// Returns whether an error means that the server is not there, or not yet. An answer of the server is not such an error.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, NotFound, Other, PermissionDenied};
    match error.kind() {
        // The system reports a socket that does not exist, the server an export that does not.
        NotFound => error.raw_os_error().is_some(),
        kind => !matches!(kind, InvalidData | InvalidInput | Other | PermissionDenied),
    }
}

/// Opens the first connections. If the user has set a time, a server that is absent is waited for, because the server may be starting.
fn connect_first(url: &NbdUrl, options: &Options) -> io::Result<(Connections, Export)> {
    let since = Instant::now();
    let time = options.io_timeout.unwrap_or_default();
    let left = || time.saturating_sub(since.elapsed());
    let mut limit = options.timeout.min(LONGEST_ATTEMPT);
    let mut wait = WAITS.0;
    loop {
        let absent = match open(url, options, limit, since) {
            Err(error) if is_absent(&error) => error,
            opened => return opened,
        };
        pause(options, wait.min(left()), since)?;
        wait = (wait * 2).min(WAITS.1);
        limit = limit.min(left());
        if limit.is_zero() {
            return Err(absent);
        }
    }
}

impl Link {
    pub(crate) fn new(url: &NbdUrl, options: &Options) -> io::Result<Self> {
        let (connection, export) = connect_first(url, options)?;
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
            window: Mutex::default(),
        })
    }

    /// Returns the connection in use and its number.
    pub(crate) fn current(&self) -> (Arc<Connections>, u64) {
        let current = lock(&self.current);
        (Arc::clone(&current.connection), current.number)
    }

    /// Runs a call, again over the next connection each time that the connection is lost.
    pub(crate) fn run<T>(
        &self,
        mut call: impl FnMut(&Connections) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut losses = 0;
        loop {
            let began = Instant::now();
            let (connection, number) = self.current();
            match call(&connection) {
                Err(lost) if connection.is_lost() && losses < MOST_LOSSES => {
                    losses += 1;
                    self.next(number, began, lost)?;
                }
                done => return done,
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
        // The requests in flight on the other connections are sent again, too.
        current.connection.close("another connection to the server");
        let since = *current.lost_since.get_or_insert(began);
        let mut wait = WAITS.0;
        loop {
            let left = self.options.reconnect.saturating_sub(since.elapsed());
            if left.is_zero() || current.ended {
                current.ended = true;
                lock(&self.window).clear();
                return Err(self.ended(lost));
            }
            pause(&self.options, wait.min(left), since)?;
            wait = (wait * 2).min(WAITS.1);
            let limit = self.options.timeout.min(left).min(LONGEST_ATTEMPT);
            let Ok((connection, export)) = open(&self.url, &self.options, limit, since) else {
                keep_waiting(&self.options, since)?;
                continue;
            };
            self.check_same(&export)?;
            if since.elapsed() >= self.options.reconnect {
                continue;
            }
            let mut window = lock(&self.window);
            match send_all(&connection, window.pieces(), |_| {}) {
                Ok(()) => {
                    current.connection = Arc::new(connection);
                    current.number += 1;
                    current.lost_since = None;
                    window.connection = current.number;
                    return Ok(());
                }
                Err(_) if connection.is_lost() => {}
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Returns the error of a call whose time to wait for another connection is over.
    fn ended(&self, lost: io::Error) -> io::Error {
        let limit = self.options.reconnect;
        if limit.is_zero() || lost.kind() == io::ErrorKind::TimedOut {
            return lost;
        }
        let why = format!(
            "{lost}, and there was no other for {} s",
            limit.as_secs_f32()
        );
        io::Error::new(lost.kind(), why)
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

    /// Sends requests that change the export, and keeps them until a flush. Does not wait for the replies.
    pub(crate) fn change(&self, pieces: &[Piece<'_>]) -> io::Result<()> {
        for piece in pieces {
            self.post(piece)?;
        }
        let is_full = lock(&self.window).is_full();
        if is_full { self.flush() } else { Ok(()) }
    }

    fn post(&self, piece: &Piece<'_>) -> io::Result<()> {
        loop {
            let began = Instant::now();
            let (connection, number) = self.current();
            let mut window = lock(&self.window);
            window.check()?;
            if window.connection != number {
                // The connection has just been replaced, and only the requests in the window were sent again.
                continue;
            }
            if let Some(earlier) = window.before(&piece.range()) {
                drop(window);
                self.settle(&earlier)?;
                continue;
            }
            window.keep(piece);
            match connection.send(piece.command, piece.offset, piece.len, piece.data) {
                Ok(ticket) => {
                    window.posted(piece, ticket, connection, number);
                    return Ok(());
                }
                Err(lost) => {
                    drop(window);
                    // The request is kept, so it is sent again over the next connection.
                    return self.next(number, began, lost);
                }
            }
        }
    }

    /// Waits for the reply to a change.
    fn settle(&self, posted: &Posted) -> io::Result<()> {
        let began = Instant::now();
        let mut ticket = lock(&posted.ticket);
        let Some(reply) = ticket.take() else {
            return lock(&self.window).check();
        };
        let replied = posted.connection.wait(reply);
        let mut window = lock(&self.window);
        window.settled(posted);
        match replied {
            Err(lost) if posted.connection.is_lost() => {
                drop(window);
                self.next(posted.number, began, lost)
            }
            Err(refused) => Err(window.fail(refused)),
            Ok(_) => Ok(()),
        }
    }

    /// Waits for the replies to all changes of a range.
    pub(crate) fn settle_range(&self, range: &Range<u64>) -> io::Result<()> {
        loop {
            let Some(posted) = lock(&self.window).overlapping(range) else {
                return Ok(());
            };
            self.settle(&posted)?;
        }
    }

    /// Flushes; the changes that returned before are durable then. By the protocol, a server
    /// without flush keeps acknowledged writes. After one failed flush every flush fails, because the server's next one may succeed
    /// although writes were lost.
    pub(crate) fn flush(&self) -> io::Result<()> {
        lock(&self.window).check()?;
        let flushed = self.run(|connection| {
            // Over a later connection these requests were sent again before.
            let end = lock(&self.window).end();
            loop {
                let Some(posted) = lock(&self.window).first_before(end) else {
                    break;
                };
                self.settle(&posted)?;
            }
            lock(&self.window).check()?;
            if self.export.flags & FLAG_FLUSH != 0 {
                let ticket = connection.send(FLUSH, 0, 0, &[])?;
                connection.wait(ticket)?;
            }
            lock(&self.window).remove_to(end);
            Ok(())
        });
        flushed.map_err(|error| lock(&self.window).fail(error))
    }
}

impl Drop for Link {
    /// Waits for the replies to changes, so that a server that ends a connection at once has seen them.
    fn drop(&mut self) {
        let behind = lock(&self.window).take_behind();
        for posted in behind {
            if let Some(ticket) = lock(&posted.ticket).take() {
                // An error is ignored, because unflushed changes are not promised.
                let _ = posted.connection.wait(ticket);
            }
        }
    }
}

/// An attempt ends with the time that the user allows, not after it.
#[test]
fn attempts_to_connect_end_with_the_time() {
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let of_dial = Arc::clone(&attempts);
    let began = Instant::now();
    let time = Duration::from_secs(1);
    let options = Options {
        timeout: time,
        io_timeout: Some(time),
        dial: Some(Arc::new(move |limit| {
            lock(&of_dial).push(limit);
            Err(io::ErrorKind::ConnectionRefused.into())
        })),
        ..Options::default()
    };
    let url = NbdUrl::parse("nbd://localhost/disk").unwrap();
    let error = connect_first(&url, &options).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(began.elapsed() >= time);
    let limits = lock(&attempts);
    // The attempts begin after 50, 150 and 350 ms.
    assert!(limits.len() > 1, "{limits:?}");
    assert!(limits.is_sorted_by(|a, b| a > b), "{limits:?}");
}

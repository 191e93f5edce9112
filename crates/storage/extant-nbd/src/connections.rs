//! The connections to one export that are in use together, if the server allows several.
//!
//! A server with `NBD_FLAG_CAN_MULTI_CONN` answers a read or a flush of one connection after the acknowledged writes of all of them. The
//! link waits for the replies of writes before it sends a flush or a request that overlaps them, so that requests may take any connection.
//! If one is lost, all are closed, because the link sends unflushed writes again over the next ones.

use crate::connection::{Connection, Stream, Ticket};
use crate::handshake::{Export, negotiate};
use crate::numbers::FLAG_MULTI_CONN;
use crate::options::{MOST_CONNECTIONS, Options};
use crate::patience::{Patience, no_reply};
use crate::url::NbdUrl;
use blockdev::start_threads;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Longest time for the connections after the first one: a server that accepts no more keeps them waiting.
const LIMIT_OF_MORE: Duration = Duration::from_secs(2);

pub(crate) struct Connections {
    /// The list is never empty.
    all: Vec<Connection>,
    next: AtomicUsize,
}

/// A request that was sent, with the index of its connection.
pub(crate) struct SentRequest(usize, Ticket);

/// Opens a connection; `limit` is the time for the connection and for each step of the handshake.
fn open(url: &NbdUrl, options: &Options, limit: Duration) -> io::Result<(Connection, Export)> {
    let mut stream = match &options.dial {
        Some(dial) => Stream::Unix(dial(limit)?),
        None => Stream::connect(&url.place, limit)?,
    };
    stream.set_timeouts(Some(limit), Some(limit))?;
    let export = negotiate(&mut stream, &url.export).map_err(|error| match error.kind() {
        // The errors of the system are "Resource temporarily unavailable" and "failed to fill whole buffer".
        io::ErrorKind::WouldBlock => no_reply(limit),
        io::ErrorKind::UnexpectedEof => io::Error::new(
            error.kind(),
            "the server ended the connection in the handshake",
        ),
        _ => error,
    })?;
    let connection = Connection::start(stream, Patience::new(options), export.extended)?;
    Ok((connection, export))
}

impl Connections {
    /// Opens the number of connections that the options and the server allow. One is enough.
    pub(crate) fn open(
        url: &NbdUrl,
        options: &Options,
        limit: Duration,
    ) -> io::Result<(Self, Export)> {
        let (first, export) = open(url, options, limit)?;
        let mut all = vec![first];
        if export.flags & FLAG_MULTI_CONN != 0 {
            // Reconnection has a limit for all connections together.
            let limit = LIMIT_OF_MORE.min(limit / 4);
            let is_same = |more: &Export| *more == export;
            std::thread::scope(|scope| {
                let numbers = 1..options.connections.min(MOST_CONNECTIONS);
                let more = start_threads(scope, numbers, |_| open(url, options, limit));
                let opened = more.into_iter().filter_map(|more| more.join().ok()?.ok());
                let same = opened.filter(|(_, export)| is_same(export));
                all.extend(same.map(|(connection, _)| connection));
            });
        }
        let next = AtomicUsize::new(0);
        Ok((Self { all, next }, export))
    }

    /// Returns the number of connections.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Sends a request over the next connection; `length` is that of the range on the device.
    pub(crate) fn send(
        &self,
        command: u16,
        offset: u64,
        length: u64,
        data: &[u8],
    ) -> io::Result<SentRequest> {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.all.len();
        let ticket = self.all[index].send(command, offset, length, data)?;
        Ok(SentRequest(index, ticket))
    }

    /// Waits for the reply to a request that was sent over these connections.
    pub(crate) fn wait(&self, request: SentRequest) -> io::Result<Vec<u8>> {
        self.all[request.0].wait(request.1)
    }

    /// Whether there will be no more replies on one of them.
    pub(crate) fn is_lost(&self) -> bool {
        self.all.iter().any(Connection::is_lost)
    }

    pub(crate) fn close(&self, why: &str) {
        for connection in &self.all {
            connection.close(why);
        }
    }
}

//! The writes since the last flush, and those of them that have no reply yet.

use crate::connections::{Connections, SentRequest};
use crate::piece::{Piece, overlap};
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Changes that may be without a reply.
pub(crate) const MOST_BEHIND: usize = 64;
/// Bytes of the changes that may be without a reply.
pub(crate) const MOST_BYTES_BEHIND: usize = 16 << 20;
/// Bytes of unflushed writes that are kept; then the link flushes.
const MOST_UNFLUSHED: usize = 64 << 20;
/// Bytes that a request counts besides its data.
const SIZE_OF_REQUEST: usize = 64;

/// Change that a flush makes durable.
struct Unflushed {
    command: u16,
    offset: u64,
    len: u64,
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

/// Change that was sent and has no reply yet.
pub(crate) struct Posted {
    /// Number of changes before it.
    number_of_change: u64,
    range: Range<u64>,
    bytes: usize,
    pub(crate) connection: Arc<Connections>,
    /// Number of connections before that one.
    pub(crate) number: u64,
    /// `None` when somebody has received the reply.
    pub(crate) ticket: Mutex<Option<SentRequest>>,
}

#[derive(Default)]
pub(crate) struct Window {
    unflushed: VecDeque<Unflushed>,
    bytes: usize,
    /// Number of changes that were ever removed from the front.
    removed: u64,
    behind: VecDeque<Arc<Posted>>,
    bytes_behind: usize,
    /// Number of the connection over which all of these were sent.
    pub(crate) connection: u64,
    /// Why a write or a flush failed: the export lacks something that the caller believes to be there.
    failure: Option<(io::ErrorKind, String)>,
}

impl Window {
    /// Fails if an earlier write or flush has failed.
    pub(crate) fn check(&self) -> io::Result<()> {
        match &self.failure {
            None => Ok(()),
            Some((kind, why)) => Err(io::Error::new(
                *kind,
                format!("an earlier write or flush of the export failed: {why}"),
            )),
        }
    }

    /// Notes a failure, and returns it.
    pub(crate) fn fail(&mut self, error: io::Error) -> io::Error {
        self.failure
            .get_or_insert_with(|| (error.kind(), error.to_string()));
        error
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes > MOST_UNFLUSHED
    }

    /// Returns the number of changes that were ever kept.
    pub(crate) fn end(&self) -> u64 {
        self.removed + self.unflushed.len() as u64
    }

    /// Returns the unflushed changes in their order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        self.unflushed.iter().map(Unflushed::piece)
    }

    /// Keeps a change that is to be sent.
    pub(crate) fn keep(&mut self, piece: &Piece<'_>) {
        self.bytes += piece.data.len() + SIZE_OF_REQUEST;
        self.unflushed.push_back(Unflushed {
            command: piece.command,
            offset: piece.offset,
            len: piece.len,
            data: piece.data.to_vec(),
        });
    }

    /// Notes that the last change was sent.
    pub(crate) fn posted(
        &mut self,
        piece: &Piece<'_>,
        ticket: SentRequest,
        connection: Arc<Connections>,
        number: u64,
    ) {
        // A server that writes zeros needs time for them. So 4 of the longest requests without data may wait at once.
        let bytes = piece.data.len().max((piece.len / 16) as usize);
        self.bytes_behind += bytes;
        self.behind.push_back(Arc::new(Posted {
            number_of_change: self.end() - 1,
            range: piece.range(),
            bytes,
            connection,
            number,
            ticket: Mutex::new(Some(ticket)),
        }));
    }

    /// Notes that the reply to a change was received.
    pub(crate) fn settled(&mut self, posted: &Posted) {
        let is_it = |p: &Arc<Posted>| p.number_of_change == posted.number_of_change;
        if let Some(at) = self.behind.iter().position(is_it) {
            self.behind.remove(at);
            self.bytes_behind -= posted.bytes;
        }
    }

    /// Returns a change whose reply must be there before a change of `range` may be sent.
    pub(crate) fn before(&self, range: &Range<u64>) -> Option<Arc<Posted>> {
        let is_full = self.behind.len() >= MOST_BEHIND || self.bytes_behind >= MOST_BYTES_BEHIND;
        let first = || self.behind.front().filter(|_| is_full).cloned();
        self.overlapping(range).or_else(first)
    }

    /// Returns a change without a reply that overlaps `range`.
    pub(crate) fn overlapping(&self, range: &Range<u64>) -> Option<Arc<Posted>> {
        let found = self.behind.iter().find(|p| overlap(&p.range, range));
        found.cloned()
    }

    /// Returns a change without a reply among the first `end` changes.
    pub(crate) fn first_before(&self, end: u64) -> Option<Arc<Posted>> {
        let first = self.behind.front();
        first.filter(|p| p.number_of_change < end).cloned()
    }

    /// Takes all changes that have no reply.
    pub(crate) fn take_behind(&mut self) -> VecDeque<Arc<Posted>> {
        self.bytes_behind = 0;
        std::mem::take(&mut self.behind)
    }

    /// Removes the changes up to a number that [`end`](Self::end) returned.
    pub(crate) fn remove_to(&mut self, end: u64) {
        while self.removed < end
            && let Some(first) = self.unflushed.pop_front()
        {
            self.bytes -= first.data.len() + SIZE_OF_REQUEST;
            self.removed += 1;
        }
    }

    /// Forgets all changes: nobody will send them again.
    pub(crate) fn clear(&mut self) {
        let end = self.end();
        self.remove_to(end);
    }
}

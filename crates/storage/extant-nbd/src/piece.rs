//! The requests of a call, each for a piece of its range.

use crate::numbers::WRITE;
use std::ops::Range;

/// Request of a call.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'p> {
    pub(crate) command: u16,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) data: &'p [u8],
}

impl Piece<'_> {
    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.len)
    }
}

pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Returns the requests that write `data` at `offset`, in pieces of `chunk` bytes.
pub(crate) fn writes(offset: u64, data: &[u8], chunk: usize) -> Vec<Piece<'_>> {
    let starts = (offset..).step_by(chunk);
    let pieces = starts.zip(data.chunks(chunk)).map(|(offset, data)| Piece {
        command: WRITE,
        offset,
        len: data.len() as u64,
        data,
    });
    pieces.collect()
}

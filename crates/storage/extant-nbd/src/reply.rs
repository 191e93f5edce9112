//! Contents of replies: simple replies, and structured replies, which have chunks.

use crate::numbers::{
    BLOCK_STATUS, CHUNK_ERROR, CHUNK_NONE, CHUNK_OFFSET_DATA, CHUNK_OFFSET_HOLE, CHUNK_STATUS,
    CHUNK_STATUS_EXTENDED, READ,
};
use crate::protocol::{SHUTDOWN, array, number, protocol, remote_error, shown};
use std::io::{self, Read};

/// Longest chunk without data, in bytes.
const MOST: u64 = 1 << 20;

/// The reply to a request as far as it was received.
pub(crate) struct Expected {
    command: u16,
    pub(crate) offset: u64,
    /// Bytes that the reply to a read carries, or 0.
    length: usize,
    /// Bytes of a read, or descriptors of a status with 64 bits of length and 64 bits of flags.
    data: Vec<u8>,
    /// Bytes of a read that came.
    came: usize,
    error: Option<io::Error>,
}

impl Expected {
    pub(crate) fn of(command: u16, offset: u64, length: u64) -> Self {
        Self {
            command,
            offset,
            length: if command == READ { length as usize } else { 0 },
            data: Vec::new(),
            came: 0,
            error: None,
        }
    }

    /// Reads the payload of a simple reply without an error.
    pub(crate) fn simple(&mut self, from: &mut impl Read) -> io::Result<Vec<u8>> {
        if self.command == BLOCK_STATUS {
            return Err(protocol("a simple reply to a request for the block status"));
        }
        let mut data = vec![0; self.length];
        from.read_exact(&mut data)?;
        Ok(data)
    }

    /// Reads a chunk of a structured reply. An error ends the connection.
    pub(crate) fn chunk(&mut self, from: &mut impl Read, kind: u16, length: u64) -> io::Result<()> {
        match kind {
            CHUNK_NONE if length == 0 => Ok(()),
            CHUNK_OFFSET_DATA if self.command == READ => {
                let part = length.checked_sub(8).map(|part| part as usize);
                let at = u64::from_be_bytes(array(from)?);
                from.read_exact(self.part(at, part)?)
            }
            CHUNK_OFFSET_HOLE if self.command == READ && length == 12 => {
                let at = u64::from_be_bytes(array(from)?);
                let part = u32::from_be_bytes(array(from)?) as usize;
                self.part(at, Some(part))?.fill(0);
                Ok(())
            }
            CHUNK_STATUS if self.command == BLOCK_STATUS && (12..=MOST).contains(&length) => {
                let _context: [u8; 4] = array(from)?;
                let mut short = vec![0; length as usize - 4];
                from.read_exact(&mut short)?;
                self.data.clear();
                for field in short.chunks_exact(4) {
                    self.data.extend([0; 4]);
                    self.data.extend(field);
                }
                Ok(())
            }
            CHUNK_STATUS_EXTENDED
                if self.command == BLOCK_STATUS && (24..=MOST).contains(&length) =>
            {
                let _context: [u8; 4] = array(from)?;
                let count = u32::from_be_bytes(array(from)?);
                if 8 + 16 * u64::from(count) != length {
                    return Err(protocol("a block status has a wrong number of ranges"));
                }
                self.data = vec![0; length as usize - 8];
                from.read_exact(&mut self.data)
            }
            _ if kind & CHUNK_ERROR != 0 && (6..=MOST).contains(&length) => {
                let mut payload = vec![0; length as usize];
                from.read_exact(&mut payload)?;
                let code = u32::from_be_bytes(number(&payload, 0)?);
                let message = u16::from_be_bytes(number(&payload, 4)?);
                let message = payload.get(6..).and_then(|m| m.get(..message.into()));
                let message = message.ok_or_else(|| protocol("an error's message is too short"))?;
                let error = remote_error(code, &shown(message));
                if code == SHUTDOWN {
                    return Err(error);
                }
                self.error.get_or_insert(error);
                Ok(())
            }
            _ => Err(protocol(format_args!(
                "a chunk of kind {kind} and {length} bytes in the reply to command {}",
                self.command
            ))),
        }
    }

    /// Returns the place for a part of a read that a chunk carries.
    fn part(&mut self, at: u64, length: Option<usize>) -> io::Result<&mut [u8]> {
        let wrong = || protocol("a chunk of data lies outside of the request");
        let length = length.filter(|&length| length > 0).ok_or_else(wrong)?;
        let start = at.checked_sub(self.offset).ok_or_else(wrong)?;
        let start = usize::try_from(start).map_err(|_| wrong())?;
        let end = start.checked_add(length).ok_or_else(wrong)?;
        // Chunks do not overlap, so more bytes than were asked for are a fault even inside of the request.
        self.came = self.came.saturating_add(length);
        if end > self.length || self.came > self.length {
            return Err(wrong());
        }
        self.data.resize(self.length, 0);
        Ok(&mut self.data[start..end])
    }

    /// Returns the answer after the last chunk. An outer error ends the connection.
    pub(crate) fn done(&mut self) -> io::Result<io::Result<Vec<u8>>> {
        if let Some(error) = self.error.take() {
            return Ok(Err(error));
        }
        if self.came != self.length {
            return Err(protocol(format_args!(
                "{} of {} bytes came in the reply to a read",
                self.came, self.length
            )));
        }
        Ok(Ok(std::mem::take(&mut self.data)))
    }
}

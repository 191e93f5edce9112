//! The export as a device.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use blockdev::BlockDevice;

use crate::connection::{Connection, FLUSH, READ, Stream, TRIM, Ticket, WRITE, WRITE_ZEROES};
use crate::handshake::{Export, negotiate};
use crate::url::NbdUrl;

const FLAG_READ_ONLY: u16 = 1 << 1;
const FLAG_FLUSH: u16 = 1 << 2;
const FLAG_TRIM: u16 = 1 << 5;
const FLAG_ZEROES: u16 = 1 << 6;
/// Bytes of one request.
const CHUNK: u32 = 1 << 20;
/// Requests of one call that are in flight at once.
const DEPTH: usize = 16;

/// How to connect.
///
/// ```
/// let options = extant_nbd::Options::default();
/// assert_eq!(options.timeout.as_secs(), 30);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Time that the server has to accept a connection or to answer a request. Default: 30 s.
    pub timeout: Duration,
    /// Refuses writes even if the server allows them. Default: false.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            timeout: Duration::from_secs(30),
            read_only: false,
        }
    }
}

/// An export of an NBD server. Requests must be aligned to the server's minimum block size.
///
/// ```no_run
/// use extant_nbd::{NbdDevice, NbdUrl, Options};
/// let url = NbdUrl::parse("nbd://localhost/disk")?;
/// let device = NbdDevice::connect(&url, &Options::default())?;
/// # std::io::Result::Ok(())
/// ```
pub struct NbdDevice {
    connection: Connection,
    export: Export,
    read_only: bool,
}

impl NbdDevice {
    /// Connects to a server and opens the export. The error names the address; `NotFound` for a wrong export also
    /// lists the names that the server has.
    pub fn connect(url: &NbdUrl, options: &Options) -> io::Result<Self> {
        Self::open(url, options).map_err(|e| io::Error::new(e.kind(), format!("{url}: {e}")))
    }

    fn open(url: &NbdUrl, options: &Options) -> io::Result<Self> {
        let mut stream = Stream::connect(&url.place, options.timeout)?;
        stream.set_timeouts(Some(options.timeout), Some(options.timeout))?;
        let export = negotiate(&mut stream, &url.export)?;
        let read_only = options.read_only || export.flags & FLAG_READ_ONLY != 0;
        let connection = Connection::start(stream, options.timeout)?;
        Ok(NbdDevice {
            connection,
            export,
            read_only,
        })
    }

    fn check(&self, offset: u64, len: u64, what: &str) -> io::Result<()> {
        let size = self.export.size;
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let why = format!("{what} at {offset} of {len} bytes: the export has {size} bytes");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        if self.read_only && what != "read" {
            return Err(blockdev::refuse_read_only(what));
        }
        let min = u64::from(self.export.min_block);
        if !offset.is_multiple_of(min) || !len.is_multiple_of(min) {
            let why =
                format!("{what} at {offset} of {len} bytes: the server wants multiples of {min}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(())
    }

    /// Bytes of one request: a multiple of the minimum block size.
    fn chunk(&self) -> usize {
        let limit = CHUNK.min(self.export.max_payload);
        (limit - limit % self.export.min_block) as usize
    }

    /// Sends a command without data for each chunk of a range.
    fn for_range(&self, command: u16, offset: u64, len: u64) -> io::Result<()> {
        let mut at = 0;
        while at < len {
            // A range of zeros or holes carries no data, but servers may limit it all the same.
            let length = (len - at).min(self.chunk() as u64) as u32;
            let ticket = self.connection.send(command, offset + at, length, &[])?;
            self.connection.wait(ticket)?;
            at += u64::from(length);
        }
        Ok(())
    }
}

impl BlockDevice for NbdDevice {
    fn len(&self) -> u64 {
        self.export.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, "read")?;
        let mut flight: VecDeque<(Ticket, &mut [u8])> = VecDeque::new();
        let finish = |(ticket, part): (Ticket, &mut [u8])| -> io::Result<()> {
            part.copy_from_slice(&self.connection.wait(ticket)?);
            Ok(())
        };
        let mut at = offset;
        for part in buf.chunks_mut(self.chunk()) {
            if flight.len() == DEPTH
                && let Some(first) = flight.pop_front()
            {
                finish(first)?;
            }
            let length = part.len() as u32;
            flight.push_back((self.connection.send(READ, at, length, &[])?, part));
            at += u64::from(length);
        }
        flight.into_iter().try_for_each(finish)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, "write")?;
        let mut flight = VecDeque::new();
        let mut at = offset;
        let mut result = Ok(());
        // Every request that was sent is waited for, so that no write lands after this call has failed.
        for part in buf.chunks(self.chunk()) {
            if flight.len() == DEPTH
                && let Some(first) = flight.pop_front()
            {
                result = result.and(self.connection.wait(first).map(drop));
            }
            match self.connection.send(WRITE, at, part.len() as u32, part) {
                Ok(ticket) => flight.push_back(ticket),
                Err(error) => result = result.and(Err(error)),
            }
            if result.is_err() {
                break;
            }
            at += part.len() as u64;
        }
        for ticket in flight {
            result = result.and(self.connection.wait(ticket).map(drop));
        }
        result
    }

    /// A server without flush keeps what it has acknowledged, by the protocol.
    fn flush(&self) -> io::Result<()> {
        if self.read_only || self.export.flags & FLAG_FLUSH == 0 {
            return Ok(());
        }
        let ticket = self.connection.send(FLUSH, 0, 0, &[])?;
        self.connection.wait(ticket).map(drop)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len, "discard")?;
        if self.export.flags & FLAG_ZEROES != 0 {
            return self.for_range(WRITE_ZEROES, offset, len);
        }
        let zeros = vec![0; self.chunk()];
        let mut at = 0;
        while at < len {
            let length = (len - at).min(zeros.len() as u64);
            self.write_at(offset + at, &zeros[..length as usize])?;
            at += length;
        }
        Ok(())
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len, "trim")?;
        if self.export.flags & FLAG_TRIM == 0 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the server cannot trim",
            ));
        }
        self.for_range(TRIM, offset, len)
    }

    fn read_only(&self) -> bool {
        self.read_only
    }
}

//! The export as a device.

use std::io;
use std::ops::Range;
use std::time::Duration;

use blockdev::BlockDevice;

use crate::link::{Link, send_all};
use crate::numbers::{
    BLOCK_STATUS, FLAG_READ_ONLY, FLAG_TRIM, FLAG_ZEROES, READ, STATE_ZERO, TRIM, WRITE_ZEROES,
};
use crate::options::Options;
use crate::piece::{Piece, writes};
use crate::protocol::{number, protocol};
use crate::url::NbdUrl;

/// Most bytes whose status one request asks for: a multiple of every block size.
const MOST_STATUS: u64 = 1 << 40;
/// Bytes that one request zeroes or trims with extended headers: few enough to end before the timeout on a server that writes zeros.
const LONG_CHUNK: u64 = 64 << 20;
/// Bytes of one request.
const CHUNK: u64 = 1 << 20;

/// An export of an NBD server. Requests must be aligned to the server's minimum block size.
///
/// ```no_run
/// use extant_nbd::{NbdDevice, NbdUrl, Options};
/// let url = NbdUrl::parse("nbd://localhost/disk")?;
/// let device = NbdDevice::connect(&url, &Options::default())?;
/// # std::io::Result::Ok(())
/// ```
pub struct NbdDevice {
    link: Link,
    read_only: bool,
}

impl NbdDevice {
    /// Connects to a server and opens the export. The error names the address; `NotFound` for a wrong export also
    /// lists the names that the server has.
    pub fn connect(url: &NbdUrl, options: &Options) -> io::Result<Self> {
        Self::open(url, options).map_err(|e| io::Error::new(e.kind(), format!("{url}: {e}")))
    }

    fn open(url: &NbdUrl, options: &Options) -> io::Result<Self> {
        let mut options = options.clone();
        if let Some(seconds) = url.reconnect {
            options.reconnect = Duration::from_secs(seconds);
        }
        if let Some(limit) = options.io_timeout {
            (options.timeout, options.reconnect) = (limit, limit);
        }
        if let Some(connections) = url.connections {
            options.connections = connections;
        }
        let link = Link::new(url, &options)?;
        let read_only = options.read_only || link.export.flags & FLAG_READ_ONLY != 0;
        Ok(NbdDevice { link, read_only })
    }

    fn check(&self, offset: u64, len: u64, what: &str) -> io::Result<()> {
        let size = self.link.export.size;
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let why = format!("{what} at {offset} of {len} bytes: the export has {size} bytes");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        if self.read_only && what != "read" {
            return Err(blockdev::refuse_read_only(what));
        }
        let min = u64::from(self.link.export.min_block);
        if !offset.is_multiple_of(min) || !len.is_multiple_of(min) {
            let why =
                format!("{what} at {offset} of {len} bytes: the server wants multiples of {min}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(())
    }

    /// Returns the number of connections in use.
    pub fn connections(&self) -> usize {
        self.link.current().0.count()
    }

    /// Returns the size of a request in bytes: a multiple of the minimum block size.
    fn chunk(&self) -> usize {
        let limit = CHUNK.min(self.link.export.max_payload.into());
        (limit - limit % u64::from(self.link.export.min_block)) as usize
    }

    /// Returns ranges from `at` on, in their order: the length of each, which is not zero, and whether it reads as zeros.
    fn status(&self, at: u64) -> io::Result<Vec<(u64, bool)>> {
        let len = (self.link.export.size - at).min(MOST_STATUS);
        let status = self.link.run(|connection| {
            let ticket = connection.send(BLOCK_STATUS, at, len, &[])?;
            connection.wait(ticket)
        })?;
        let range = |descriptor: &[u8]| {
            let field = |at| number(descriptor, at).map(u64::from_be_bytes);
            Ok((field(0)?, field(8)? & STATE_ZERO != 0))
        };
        let ranges: Vec<_> = status
            .chunks_exact(16)
            .map(range)
            .collect::<io::Result<_>>()?;
        if ranges.is_empty() || ranges.iter().any(|(len, _)| *len == 0) {
            return Err(protocol("a block status that does not advance"));
        }
        Ok(ranges)
    }

    /// Returns a command without data for each chunk of a range. Servers without extended headers may limit such ranges, too.
    fn ranges(&self, command: u16, offset: u64, len: u64) -> Vec<Piece<'static>> {
        let chunk = match command {
            READ => self.chunk(),
            _ if self.link.export.extended => LONG_CHUNK as usize,
            _ => self.chunk(),
        };
        let starts = (offset..offset + len).step_by(chunk);
        let pieces = starts.map(|at| Piece {
            command,
            offset: at,
            len: (offset + len - at).min(chunk as u64),
            data: &[],
        });
        pieces.collect()
    }
}

impl BlockDevice for NbdDevice {
    fn len(&self) -> u64 {
        self.link.export.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, "read")?;
        self.link
            .settle_range(&(offset..offset + buf.len() as u64))?;
        let chunk = self.chunk();
        let pieces = self.ranges(READ, offset, buf.len() as u64);
        self.link.run(|connection| {
            let mut parts = buf.chunks_mut(chunk);
            send_all(connection, &pieces, |data| {
                if let Some(part) = parts.next() {
                    part.copy_from_slice(&data);
                }
            })
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64, "write")?;
        self.link.change(&writes(offset, buf, self.chunk()))
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        self.write_at(offset, &bufs.concat())
    }

    /// Flushes the server, except one without flush: by the protocol it keeps acknowledged writes.
    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.link.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len, "discard")?;
        if self.link.export.flags & FLAG_ZEROES != 0 {
            return self.link.change(&self.ranges(WRITE_ZEROES, offset, len));
        }
        blockdev::write_zeroes(self, offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len, "trim")?;
        if self.link.export.flags & FLAG_TRIM == 0 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the server cannot trim",
            ));
        }
        self.link.settle_range(&(offset..offset + len))?;
        let pieces = self.ranges(TRIM, offset, len);
        // The requests go one at a time, because a server may take long for each.
        pieces.chunks(1).try_for_each(|piece| {
            self.link
                .run(|connection| send_all(connection, piece, |_| {}))
        })
    }

    /// Asks the server. A server that cannot tell has data everywhere.
    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        let size = self.link.export.size;
        if !self.link.export.has_status {
            return Ok((offset < size).then_some(offset..size));
        }
        let min = u64::from(self.link.export.min_block);
        let mut found: Option<Range<u64>> = None;
        let mut at = offset - offset % min;
        self.link.settle_range(&(at..size))?;
        while at < size {
            for (len, is_zero) in self.status(at)? {
                let end = at.saturating_add(len).min(size);
                match &mut found {
                    Some(data) if !is_zero => data.end = end,
                    None if !is_zero && end > offset => found = Some(at.max(offset)..end),
                    Some(_) => return Ok(found),
                    None => {}
                }
                at = end;
            }
        }
        Ok(found)
    }

    fn read_only(&self) -> bool {
        self.read_only
    }
}

//! An archive as a sequence of bytes: a file that can be read again later, or a stream whose member data is spooled
//! to an unlinked temporary file. Decompression runs in a separate thread.

use super::compression::Unpacked;
use super::input::ArchiveInput;
use super::raw::{Compression, Raw};
use crate::error::{Result, SourceError};
use crate::member::Origin;
use crate::monitor::ReadMonitor;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Builder;
use std::time::Duration;

/// Bytes that a reading thread sends at a time.
const CHUNK: usize = 512 << 10;
/// Bytes of headers read at once from a file.
const WINDOW: usize = 16 << 10;
/// Interval in which a waiting reader checks for cancellation.
const PATIENCE: Duration = Duration::from_millis(200);

/// Bits of an origin that are the offset.
const OFFSET_BITS: u32 = 48;
/// Bits that are the file; the highest bit is left to others.
const FILE_BITS: u32 = 63 - OFFSET_BITS;

/// Files that hold member data.
#[doc(hidden)]
#[derive(Default)]
pub struct Store {
    files: Vec<File>,
    /// Index of the spool, and the bytes in it.
    spool: Option<(usize, u64)>,
}

#[doc(hidden)]
impl Store {
    fn origin(file: usize, offset: u64) -> Result<Origin> {
        if offset >> OFFSET_BITS != 0 || file >> FILE_BITS != 0 {
            return Err(SourceError::TooMuch(
                "archives of more than 2^48 bytes, or more than 2^15 of them".into(),
            ));
        }
        Ok((file as u64) << OFFSET_BITS | offset)
    }

    fn add(&mut self, file: File) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }

    /// Returns the spool and its length; creates it first.
    fn spool(&mut self, dir: &Path) -> Result<(usize, u64)> {
        if let Some(spool) = self.spool {
            return Ok(spool);
        }
        let file = blockdev::unnamed_file(dir)
            .map_err(|e| SourceError::io(format!("a temporary file in {}", dir.display()), e))?;
        let spool = (self.add(file), 0);
        self.spool = Some(spool);
        Ok(spool)
    }

    /// Reads member data.
    pub fn read(&self, origin: Origin, buf: &mut [u8]) -> io::Result<()> {
        let file = self.files.get((origin >> OFFSET_BITS) as usize);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        file.read_exact_at(buf, origin & ((1 << OFFSET_BITS) - 1))
    }
}

/// Name and reader of an input, and its file if that is a regular one.
type Opened = (String, Box<dyn Read + Send>, Option<File>);

/// Opens a file as an input.
fn opened(name: String, path: &Path) -> Result<Opened> {
    let open = || -> io::Result<_> {
        let file = File::open(path)?;
        let plain = file.metadata()?.is_file().then(|| file.try_clone());
        Ok((file, plain.transpose()?))
    };
    let (file, plain) = open().map_err(|e| SourceError::io(format!("opening {name}"), e))?;
    Ok((name, Box::new(file), plain))
}

/// Detects the compression of a stream. The first bytes may arrive late, so the wait can be cancelled.
fn look(mut raw: Raw, monitor: &dyn ReadMonitor) -> Result<(io::Result<Compression>, Raw)> {
    let (sender, seen) = sync_channel(1);
    let started = Builder::new().spawn(move || {
        let compression = raw.compression().map(|c| c.unwrap_or(Compression::None));
        // The channel has no receiver after a cancellation.
        let _ = sender.send((compression, raw));
    });
    started.map_err(|e| SourceError::io("cannot start a thread", e))?;
    loop {
        match seen.recv_timeout(PATIENCE) {
            Ok(both) => return Ok(both),
            Err(RecvTimeoutError::Timeout) => monitor.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(SourceError::io(
                    "reading",
                    io::Error::other("a thread ended early"),
                ));
            }
        }
    }
}

/// The bytes behind a [`Stream`].
enum Feed {
    /// Headers are read where they are; data stays.
    File {
        file: usize,
        size: u64,
        window: Vec<u8>,
        window_at: u64,
    },
    /// Chunks come from a thread.
    Thread {
        chunks: Receiver<io::Result<Vec<u8>>>,
        chunk: Vec<u8>,
        used: usize,
    },
}

/// An archive, read once from front to back.
#[doc(hidden)]
pub struct Stream<'a> {
    pub name: String,
    /// Offset of the next byte, after decompression.
    pub at: u64,
    from: Feed,
    store: &'a mut Store,
    spool_dir: &'a Path,
    monitor: &'a dyn ReadMonitor,
    in_passing: bool,
    /// Data and padding of the last member not yet passed.
    data: u64,
    padding: u64,
    /// The sum of the bytes of the last member's data that were read.
    sum: u32,
}

#[doc(hidden)]
impl<'a> Stream<'a> {
    /// Opens an input and finds out how it is compressed.
    pub fn open(
        input: ArchiveInput,
        store: &'a mut Store,
        spool_dir: &'a Path,
        monitor: &'a dyn ReadMonitor,
    ) -> Result<Self> {
        let (name, reader, file): Opened = match input {
            ArchiveInput::Reader { name, reader } => (name, reader, None),
            ArchiveInput::Named { name, path } => opened(name, &path)?,
            ArchiveInput::File(path) => opened(path.display().to_string(), &path)?,
        };
        let io = |e: io::Error| match e.kind() {
            io::ErrorKind::Unsupported => SourceError::Archive {
                archive: name.clone(),
                offset: 0,
                what: e.to_string(),
            },
            _ => SourceError::io(format!("reading {name}"), e),
        };
        let mut raw = Raw::new(reader);
        let (compression, raw) = match &file {
            Some(_) => (
                raw.compression().map(|c| c.unwrap_or(Compression::None)),
                raw,
            ),
            None => look(raw, monitor)?,
        };
        let compression = compression.map_err(io)?;
        let from = match file {
            Some(file) if compression == Compression::None => {
                monitor.begins(false);
                let size = file.metadata().map_err(io)?.len();
                Feed::File {
                    file: store.add(file),
                    size,
                    window: Vec::new(),
                    window_at: 0,
                }
            }
            _ => {
                monitor.begins(true);
                unpack(raw)
            }
        };
        Ok(Self {
            name,
            at: 0,
            from,
            store,
            spool_dir,
            monitor,
            in_passing: false,
            data: 0,
            padding: 0,
            sum: 0,
        })
    }

    /// Stops keeping data of members: the caller reads it from the stream before the next member.
    pub fn in_passing(&mut self) {
        self.in_passing = true;
    }

    /// Returns the whole stream as a file, if nothing was read yet: the file itself, or a copy of the stream.
    pub fn whole(&mut self) -> Result<File> {
        let copy = |file: &File| file.try_clone();
        if let Feed::File { file, .. } = self.from {
            return copy(&self.store.files[file]).map_err(|e| self.io(e)); // as returned by add
        }
        let made = blockdev::unnamed_file(self.spool_dir);
        let context = || format!("a temporary file in {}", self.spool_dir.display());
        let file = self
            .store
            .add(made.map_err(|e| SourceError::io(context(), e))?);
        loop {
            let n = self.peek()?.len() as u64;
            if n == 0 {
                break;
            }
            self.pass(n, Some((file, self.at)))?;
        }
        copy(&self.store.files[file]).map_err(|e| self.io(e))
    }

    /// Decompresses some bytes and all that follow.
    pub fn unpack_rest(&mut self, head: &[u8]) -> Result<()> {
        let nothing = Feed::File {
            file: 0,
            size: 0,
            window: Vec::new(),
            window_at: 0,
        };
        let rest: Box<dyn Read + Send> = match std::mem::replace(&mut self.from, nothing) {
            Feed::File { file, .. } => {
                let file = self.store.files[file].try_clone(); // as returned by add
                Box::new(FileRest {
                    file: file.map_err(|e| self.io(e))?,
                    at: self.at,
                })
            }
            Feed::Thread {
                chunks,
                chunk,
                used,
            } => Box::new(ThreadRest {
                chunks,
                chunk,
                used,
            }),
        };
        let head = io::Cursor::new(head.to_vec());
        self.from = unpack(Raw::new(Box::new(head.chain(rest))));
        Ok(())
    }

    /// Reads data of the last member; nothing at its end.
    pub fn read_data(&mut self, buf: &mut [u8]) -> Result<usize> {
        let most = usize::try_from(self.data).map_or(buf.len(), |left| left.min(buf.len()));
        let n = self.read(&mut buf[..most])?;
        if n < most {
            return Err(self.error("the archive is cut off"));
        }
        self.data -= n as u64;
        self.sum = sum(self.sum, &buf[..n]);
        Ok(n)
    }

    /// Returns the sum of the last member's bytes, if all were read in passing.
    pub fn sum_in_passing(&self) -> Option<u32> {
        (self.in_passing && self.data == 0).then_some(self.sum)
    }

    /// Returns the sum of the bytes of a member that was kept.
    pub fn sum_of_kept(&self, origin: Origin, size: u64) -> Result<Option<u32>> {
        if self.in_passing {
            return Ok(None);
        }
        let (mut at, end, mut found) = (origin, origin + size, 0);
        let mut buf = vec![0; CHUNK];
        while at < end {
            self.monitor.check()?;
            let n = usize::try_from(end - at).map_or(buf.len(), |left| left.min(buf.len()));
            let part = &mut buf[..n];
            self.store.read(at, part).map_err(|e| self.io(e))?;
            found = sum(found, part);
            at += n as u64;
        }
        Ok(Some(found))
    }

    /// Passes over zeros.
    pub fn skip_zeros(&mut self) -> Result<()> {
        loop {
            let zeros = self.peek()?.iter().take_while(|b| **b == 0).count();
            if zeros == 0 {
                return Ok(());
            }
            self.consume(zeros);
        }
    }

    /// Skips the rest of the last member's data.
    pub fn next_member(&mut self) -> Result<()> {
        let (data, padding) = (self.data, self.padding);
        (self.data, self.padding) = (0, 0);
        self.skip(data)?;
        self.skip_padding(padding)
    }

    /// Takes the data of a member and its padding: keeps them, or leaves them to be read in passing.
    pub fn member_data(&mut self, size: u64, padding: u64) -> Result<Origin> {
        if self.in_passing {
            (self.data, self.padding, self.sum) = (size, padding, 0);
            return Ok(0);
        }
        let origin = self.keep(size)?;
        self.skip_padding(padding)?;
        Ok(origin)
    }

    /// Skips the padding of a member. Some writers end with the last member's data.
    pub fn skip_padding(&mut self, len: u64) -> Result<()> {
        match &self.from {
            Feed::File { size, .. } => self.at += len.min(size.saturating_sub(self.at)),
            Feed::Thread { .. } => return self.pass_up_to(len),
        }
        Ok(())
    }

    /// Creates an error at the current place.
    pub fn error(&self, what: impl Into<String>) -> SourceError {
        self.error_at(self.at, what)
    }

    /// Creates an error at an earlier place.
    pub fn error_at(&self, offset: u64, what: impl Into<String>) -> SourceError {
        SourceError::Archive {
            archive: self.name.clone(),
            offset,
            what: what.into(),
        }
    }

    fn io(&self, e: io::Error) -> SourceError {
        SourceError::io(format!("reading {} at byte {}", self.name, self.at), e)
    }

    /// Fills `buf`; returns fewer bytes only at the end.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let mut n = 0;
        while n < buf.len() {
            if let Some(len) = self.read_past_window(&mut buf[n..])? {
                n += len;
                if len == 0 {
                    break;
                }
                continue;
            }
            let part = self.peek()?;
            if part.is_empty() {
                break;
            }
            let len = part.len().min(buf.len() - n);
            buf[n..n + len].copy_from_slice(&part[..len]);
            n += len;
            self.consume(len);
        }
        Ok(n)
    }

    /// Reads a large range directly from a file if the window has no part of it; `None`: use the window.
    fn read_past_window(&mut self, buf: &mut [u8]) -> Result<Option<usize>> {
        let Feed::File {
            file,
            window,
            window_at,
            ..
        } = &self.from
        else {
            return Ok(None);
        };
        let at_hand = (*window_at..*window_at + window.len() as u64).contains(&self.at);
        if buf.len() < WINDOW || at_hand {
            return Ok(None);
        }
        let file = &self.store.files[*file]; // as returned by add
        let n = file.read_at(buf, self.at).map_err(|e| self.io(e))?;
        self.at += n as u64;
        Ok(Some(n))
    }

    /// Returns some of the next bytes; at the start enough to detect the format, at the end none.
    pub fn peek(&mut self) -> Result<&[u8]> {
        let at = self.at;
        match &mut self.from {
            Feed::File {
                file,
                window,
                window_at,
                ..
            } => {
                let end = *window_at + window.len() as u64;
                if !(*window_at..end).contains(&at) {
                    window.resize(WINDOW, 0);
                    let file = &self.store.files[*file]; // as returned by add
                    let read = file.read_at(window, at);
                    let n = match read {
                        Ok(n) => n,
                        Err(e) => return Err(self.io(e)),
                    };
                    window.truncate(n);
                    *window_at = at;
                }
            }
            Feed::Thread {
                chunks,
                chunk,
                used,
            } => {
                while *used == chunk.len() {
                    match chunks.recv_timeout(PATIENCE) {
                        Ok(Ok(next)) => (*chunk, *used) = (next, 0),
                        Ok(Err(e)) => return Err(self.io(e)),
                        Err(RecvTimeoutError::Timeout) => self.monitor.check()?,
                        Err(RecvTimeoutError::Disconnected) => break,
                    }
                }
            }
        }
        Ok(match &self.from {
            Feed::File {
                window, window_at, ..
            } => {
                let within = at.saturating_sub(*window_at) as usize;
                window.get(within..).unwrap_or(&[])
            }
            Feed::Thread { chunk, used, .. } => &chunk[*used..], // used is at most its length
        })
    }

    fn consume(&mut self, n: usize) {
        self.at += n as u64;
        if let Feed::Thread { used, .. } = &mut self.from {
            *used += n; // never more than was peeked
        }
    }

    /// Passes over bytes, which must be there.
    pub fn skip(&mut self, len: u64) -> Result<()> {
        if let Feed::File { size, .. } = self.from {
            if len > size.saturating_sub(self.at) {
                return Err(self.error("the archive is cut off"));
            }
            self.at += len;
            return Ok(());
        }
        self.pass(len, None)
    }

    /// Skips up to `len` bytes of a stream; stops at its end.
    fn pass_up_to(&mut self, len: u64) -> Result<()> {
        let mut rest = len;
        while rest > 0 {
            let n = (self.peek()?.len() as u64).min(rest);
            if n == 0 {
                break;
            }
            self.pass(n, None)?;
            rest -= n;
        }
        Ok(())
    }

    /// Keeps the next bytes, or leaves them where they are, and returns where they can be read.
    fn keep(&mut self, len: u64) -> Result<Origin> {
        if let Feed::File { file, .. } = self.from {
            let origin = Store::origin(file, self.at)?;
            self.skip(len)?;
            return Ok(origin);
        }
        let (file, offset) = self.store.spool(self.spool_dir)?;
        self.pass(len, Some((file, offset)))?;
        self.store.spool = Some((file, offset + len));
        Store::origin(file, offset)
    }

    /// Passes over bytes of a stream, and copies them to a place in a file.
    fn pass(&mut self, len: u64, to: Option<(usize, u64)>) -> Result<()> {
        let mut rest = len;
        while rest > 0 {
            let part = self.peek()?;
            if part.is_empty() {
                return Err(self.error("the archive is cut off"));
            }
            let n = part.len().min(usize::try_from(rest).unwrap_or(usize::MAX));
            if let (Some((file, offset)), Feed::Thread { chunk, used, .. }) = (to, &self.from) {
                let part = &chunk[*used..*used + n]; // as peeked
                let file = &self.store.files[file]; // as returned by spool
                file.write_all_at(part, offset + (len - rest))
                    .map_err(|e| SourceError::io("writing a temporary file", e))?;
            }
            self.monitor.advance(n as u64);
            self.consume(n);
            rest -= n as u64;
        }
        self.monitor.check()
    }

    /// Reads a stream to its end, so that its writer can finish and its checksum is checked.
    pub fn drain(&mut self) -> Result<()> {
        while let Feed::Thread { .. } = self.from {
            let n = self.peek()?.len();
            if n == 0 {
                break;
            }
            self.consume(n);
        }
        Ok(())
    }
}

/// Decompresses in a separate thread.
fn unpack(raw: Raw) -> Feed {
    let (sender, chunks) = sync_channel(4);
    let failed = sender.clone();
    let started = Builder::new().spawn(move || match Unpacked::new(raw) {
        Ok(unpacked) => pump(unpacked, &sender),
        Err(e) => drop(sender.send(Err(e))),
    });
    if let Err(e) = started {
        drop(failed.send(Err(e)));
    }
    Feed::Thread {
        chunks,
        chunk: Vec::new(),
        used: 0,
    }
}

/// The rest of a file.
struct FileRest {
    file: File,
    at: u64,
}

impl Read for FileRest {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buf, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

/// The rest of the bytes from a thread.
struct ThreadRest {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    used: usize,
}

impl Read for ThreadRest {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.used == self.chunk.len() {
            match self.chunks.recv() {
                Ok(next) => (self.chunk, self.used) = (next?, 0),
                Err(_) => return Ok(0),
            }
        }
        let n = (&self.chunk[self.used..]).read(buf)?; // used is at most its length
        self.used += n;
        Ok(n)
    }
}

fn sum(before: u32, bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(before, |sum, &b| sum.wrapping_add(b.into()))
}

fn pump(mut from: impl Read, to: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let mut n = 0;
        let mut failed = None;
        let mut ended = false;
        while n < chunk.len() {
            match from.read(&mut chunk[n..]) {
                Ok(0) => {
                    ended = true;
                    break;
                }
                Ok(more) => n += more,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        chunk.truncate(n);
        if (n > 0 && to.send(Ok(chunk)).is_err()) || ended {
            return;
        }
        if let Some(e) = failed {
            let _ = to.send(Err(e));
            return;
        }
    }
}

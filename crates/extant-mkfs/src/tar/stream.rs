//! An archive as a sequence of bytes: a file that can be read again later, or a stream whose member
//! data is put aside in an unlinked temporary file as it passes. Decompression has a thread of its
//! own.

use super::TarInput;
use crate::error::{MkfsError, Result};
use crate::progress::{Monitor, Phase};
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Bytes that a reading thread hands over at a time.
const CHUNK: usize = 512 << 10;
/// Bytes of headers read at once from a file.
const WINDOW: usize = 16 << 10;
/// How often a waiting reader asks whether to go on.
const PATIENCE: Duration = Duration::from_millis(200);

/// Where member data can be read later: the file, and the offset in it.
pub(crate) type Origin = u64;
/// Bits of an origin that are the offset.
const OFFSET_BITS: u32 = 48;
/// Bits that are the file; the highest bit is left to others.
const FILE_BITS: u32 = 63 - OFFSET_BITS;

/// Files that hold member data.
#[derive(Default)]
pub(crate) struct Store {
    files: Vec<File>,
    /// Which of them is the spool, and how much is in it.
    spool: Option<(usize, u64)>,
}

impl Store {
    fn origin(file: usize, offset: u64) -> Result<Origin> {
        if offset >> OFFSET_BITS != 0 || file >> FILE_BITS != 0 {
            return Err(MkfsError::Options(
                "archives of more than 2^48 bytes, or more than 2^15 of them".into(),
            ));
        }
        Ok((file as u64) << OFFSET_BITS | offset)
    }

    fn add(&mut self, file: File) -> usize {
        self.files.push(file);
        self.files.len() - 1
    }

    /// The spool and its length; makes it first.
    fn spool(&mut self, dir: &Path) -> Result<(usize, u64)> {
        if let Some(spool) = self.spool {
            return Ok(spool);
        }
        let file = blockdev::unnamed_file(dir)
            .map_err(|e| MkfsError::io(format!("a temporary file in {}", dir.display()), e))?;
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

/// Compression by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

fn compression(magic: &[u8]) -> Result<Compression, &'static str> {
    match magic {
        [0x1f, 0x8b, ..] => Ok(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Compression::Zstd),
        // A frame for applications, which zstd readers skip.
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Compression::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Err("xz"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Err("bzip2"),
        _ => Ok(Compression::None),
    }
}

/// The first bytes, fewer only of a shorter stream.
fn magic(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(6).read_to_end(&mut bytes)?;
    Ok(bytes)
}

type Input = Box<dyn Read + Send>;

/// The first bytes of a stream, which may be long in coming: meanwhile the caller can be told to stop.
fn in_thread(mut reader: Input, monitor: &Monitor) -> Result<(io::Result<Vec<u8>>, Input)> {
    let (sender, read) = sync_channel(1);
    std::thread::spawn(move || {
        let bytes = magic(&mut reader);
        // After a stop the channel has no receiver.
        let _ = sender.send((bytes, reader));
    });
    loop {
        match read.recv_timeout(PATIENCE) {
            Ok(both) => return Ok(both),
            Err(RecvTimeoutError::Timeout) => monitor.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(MkfsError::io(
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

/// One archive, read once from front to back.
pub(super) struct Stream<'a> {
    pub name: String,
    /// Offset of the next byte, after decompression.
    pub at: u64,
    from: Feed,
    store: &'a mut Store,
    spool_dir: &'a Path,
    monitor: &'a Monitor,
}

impl<'a> Stream<'a> {
    /// Opens an input and finds out how it is compressed.
    pub fn open(
        input: TarInput,
        store: &'a mut Store,
        spool_dir: &'a Path,
        monitor: &'a Monitor,
    ) -> Result<Self> {
        let (name, mut reader, file): (String, Box<dyn Read + Send>, _) = match input {
            TarInput::Reader { name, reader } => (name, reader, None),
            TarInput::File(path) => {
                let name = path.display().to_string();
                let open = || -> io::Result<_> {
                    let file = File::open(&path)?;
                    let plain = file
                        .metadata()?
                        .is_file()
                        .then(|| file.try_clone())
                        .transpose()?;
                    Ok((file, plain))
                };
                let (file, plain) =
                    open().map_err(|e| MkfsError::io(format!("opening {name}"), e))?;
                (name, Box::new(file), plain)
            }
        };
        let io = |e| MkfsError::io(format!("reading {name}"), e);
        let (magic, reader) = match &file {
            Some(_) => (magic(&mut reader), reader),
            None => in_thread(reader, monitor)?,
        };
        let magic = magic.map_err(io)?;
        let compression = compression(&magic).map_err(|what| MkfsError::Tar {
            archive: name.clone(),
            offset: 0,
            what: format!("{what} is not a supported compression; decompress it first"),
        })?;
        let from = match file {
            Some(file) if compression == Compression::None => {
                monitor.phase(Phase::Scan, 0);
                let size = file.metadata().map_err(io)?.len();
                Feed::File {
                    file: store.add(file),
                    size,
                    window: Vec::new(),
                    window_at: 0,
                }
            }
            _ => {
                monitor.phase(Phase::Spool, 0);
                let raw = io::Cursor::new(magic).chain(reader);
                let (sender, chunks) = sync_channel(4);
                std::thread::spawn(move || produce(raw, compression, &sender));
                Feed::Thread {
                    chunks,
                    chunk: Vec::new(),
                    used: 0,
                }
            }
        };
        Ok(Self {
            name,
            at: 0,
            from,
            store,
            spool_dir,
            monitor,
        })
    }

    /// An error at the current place.
    pub fn error(&self, what: impl Into<String>) -> MkfsError {
        MkfsError::Tar {
            archive: self.name.clone(),
            offset: self.at,
            what: what.into(),
        }
    }

    fn io(&self, e: io::Error) -> MkfsError {
        MkfsError::io(format!("reading {} at byte {}", self.name, self.at), e)
    }

    /// Reads as much of `buf` as there is; less only at the end.
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

    /// Reads much at once from a file that has none of it at hand; `None`: go the usual way.
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

    /// Some of the next bytes; none only at the end.
    fn peek(&mut self) -> Result<&[u8]> {
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

    /// Keeps the next bytes, or leaves them where they are, and returns where they can be read.
    pub fn keep(&mut self, len: u64) -> Result<Origin> {
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
                    .map_err(|e| MkfsError::io("writing a temporary file", e))?;
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

/// Reads, decompresses and sends until the end, an error, or the receiver is gone.
fn produce(raw: impl Read + Send, compression: Compression, to: &SyncSender<io::Result<Vec<u8>>>) {
    match compression {
        Compression::None => pump(raw, to),
        Compression::Gzip => {
            let raw = io::BufReader::with_capacity(CHUNK, raw);
            let decoder = Some(flate2::bufread::GzDecoder::new(raw));
            pump(Gzip { decoder }, to);
        }
        Compression::Zstd => match zstd::stream::read::Decoder::new(raw) {
            Ok(mut decoder) => {
                // The largest window that `zstd --long` makes.
                let _ = decoder.window_log_max(31);
                pump(decoder, to);
            }
            Err(e) => drop(to.send(Err(e))),
        },
    }
}

/// Gzip members one after the other; zeros may fill up the end, as gzip(1) has it.
struct Gzip<R> {
    /// `None` at the end.
    decoder: Option<flate2::bufread::GzDecoder<R>>,
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let n = decoder.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            let Some(mut raw) = self.decoder.take().map(|d| d.into_inner()) else {
                break;
            };
            while let Some(zeros) = leading_zeros(raw.fill_buf()?) {
                raw.consume(zeros);
            }
            if !raw.fill_buf()?.is_empty() {
                self.decoder = Some(flate2::bufread::GzDecoder::new(raw));
            }
        }
        Ok(0)
    }
}

/// How many bytes at the start are zeros; none if there are none.
fn leading_zeros(bytes: &[u8]) -> Option<usize> {
    let zeros = bytes.iter().take_while(|b| **b == 0).count();
    (zeros > 0).then_some(zeros)
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

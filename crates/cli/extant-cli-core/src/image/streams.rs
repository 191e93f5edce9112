//! Standard input and output, which `-` names instead of a file. A file of that name is written `./-`.

use crate::address::image_place::ImagePlace;
use crate::address::{is_stream, os};
use crate::format::show::ShowPath;
use anyhow::{Context, Result, bail, ensure};
use extant::OpenOptions;
use extant_terminal::interrupt;
use extant_terminal::progress::Progress;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Bytes moved at once.
const CHUNK: usize = 1 << 20;
/// Longest delay of a signal while no data arrive.
const PATIENCE: Duration = Duration::from_millis(50);

/// Fails for an image that would be a stream.
pub fn no_image(path: &Path) -> Result<()> {
    ensure!(
        !is_stream(path),
        "-: an image is read and written at many places, not from start to end: name a file"
    );
    Ok(())
}

/// Fails if an archive is to be read from a terminal.
pub fn archive_from_stdin() -> Result<()> {
    ensure!(
        !io::stdin().is_terminal(),
        "standard input is a terminal: send an archive through a pipe, or name a file"
    );
    Ok(())
}

/// Fails if an archive would go to a terminal.
pub fn archive_to_stdout() -> Result<()> {
    ensure!(
        !io::stdout().is_terminal(),
        "standard output is a terminal: send the archive through a pipe, or name a file"
    );
    Ok(())
}

/// Standard input, read by a thread, so that a signal ends the work even if the writer never writes.
pub struct Stdin {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    used: usize,
}

/// Returns whether a source can only be read from start to end: standard input, or a pipe, such as that of `<(command)` in a shell.
pub fn is_pipe(source: &Path) -> bool {
    is_stream(source)
        || source.metadata().is_ok_and(|meta| {
            let kind = meta.file_type();
            !(kind.is_file() || kind.is_dir() || kind.is_block_device())
        })
}

/// Starts reading standard input.
pub fn stdin() -> Result<Stdin> {
    reading(|| Ok(Box::new(io::stdin())))
}

/// Starts reading a source for which [`is_pipe`] is true. The thread opens a named pipe, because that waits for the writer.
pub fn pipe(source: &Path) -> Result<Stdin> {
    if is_stream(source) {
        return stdin();
    }
    let source = source.to_path_buf();
    reading(move || Ok(Box::new(File::open(source)?)))
}

/// Starts a thread that reads what `open` returns.
fn reading(open: impl FnOnce() -> io::Result<Box<dyn Read>> + Send + 'static) -> Result<Stdin> {
    let (sender, pieces) = sync_channel::<io::Result<Vec<u8>>>(2);
    std::thread::Builder::new()
        .name("stdin".into())
        .spawn(move || {
            let mut input = match open() {
                Ok(input) => input,
                Err(e) => {
                    // The receiver is gone if its work has failed.
                    let _ = sender.send(Err(e));
                    return;
                }
            };
            loop {
                let mut piece = vec![0; CHUNK];
                let read = match input.read(&mut piece) {
                    Ok(0) => return,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(n) => {
                        piece.truncate(n);
                        Ok(piece)
                    }
                    Err(e) => Err(e),
                };
                let failed = read.is_err();
                // The receiver is gone if its work has failed.
                if sender.send(read).is_err() || failed {
                    return;
                }
            }
        })
        .context("a thread for standard input")?;
    Ok(Stdin {
        pieces,
        piece: Vec::new(),
        used: 0,
    })
}

impl Stdin {
    /// Returns the next bytes, after waiting for them. An empty slice is the end.
    fn next(&mut self) -> io::Result<&[u8]> {
        while self.used == self.piece.len() {
            interrupt::check().map_err(io::Error::other)?;
            match self.pieces.recv_timeout(PATIENCE) {
                Ok(piece) => (self.piece, self.used) = (piece?, 0),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(self.piece.get(self.used..).unwrap_or_default())
    }
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.next()?.read(buf)?;
        self.used += n;
        Ok(n)
    }
}

/// Reads standard input piece by piece.
pub fn read_stdin(mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut stdin = stdin()?;
    loop {
        let piece = stdin.next();
        interrupt::check()?;
        let n = match piece.context("standard input")? {
            [] => return Ok(()),
            piece => {
                take(piece)?;
                piece.len()
            }
        };
        stdin.used += n;
    }
}

/// Writes standard input to a file of an image, which is made or truncated.
pub fn into_image(place: &ImagePlace) -> Result<()> {
    let options = OpenOptions::new().write(true).truncate(true);
    let file = match place.node() {
        Some(_) => place.open(&options)?,
        None => place
            .dir
            .open_file_with(os(&place.path), &options.create(true))?,
    };
    let progress = Progress::bytes("copy", 0);
    let mut at = 0;
    let done = read_stdin(|piece| {
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
        progress.add(piece.len() as u64);
        Ok(())
    });
    progress.done();
    done
}

/// Writes a file of an image to `out`.
pub fn out_of_image(place: &ImagePlace, out: &mut impl Write) -> Result<()> {
    let file = place.open(&OpenOptions::new().read(true))?;
    // On a terminal the output itself shows the progress.
    let progress = (!io::stdout().is_terminal())
        .then(|| Ok::<_, extant::Error>(Progress::bytes("read", file.metadata()?.len())))
        .transpose()?;
    let mut buf = vec![0; CHUNK];
    loop {
        interrupt::check()?;
        let n = match file.read(&mut buf)? {
            0 => return Ok(()),
            n => n,
        };
        out.write_all(&buf[..n])?;
        if let Some(progress) = &progress {
            progress.add(n as u64);
        }
    }
}

/// Copies standard input to a temporary file, for readers that need random access.
pub fn spooled(beside: &Path) -> Result<tempfile::NamedTempFile> {
    if io::stdin().is_terminal() {
        bail!("standard input is a terminal: send the file through a pipe, or name it");
    }
    let dir = match beside.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let mut file = tempfile::Builder::new()
        .prefix(".extant-")
        .tempfile_in(dir)
        .with_context(|| format!("{}: a place for standard input", dir.shown()))?;
    read_stdin(|piece| Ok(file.write_all(piece)?))?;
    file.flush()?;
    Ok(file)
}

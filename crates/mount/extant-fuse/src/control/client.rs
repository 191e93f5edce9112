//! The client's side of the socket.

use super::{Command, Fragments, LONGEST, MOST_BYTES, Reply, Status, bad};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A connection to a running mount.
///
/// ```no_run
/// use extant_fuse::control::{Client, socket_of};
/// let mounted = fuse_server::mounted_at("/mnt".as_ref())?.expect("something is mounted");
/// let mut client = Client::connect(&socket_of(mounted.device))?;
/// println!("{} inodes known", client.status()?.nodes_known);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Client {
    lines: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the socket of a mount.
    ///
    /// # Errors
    /// `NotFound` or `ConnectionRefused` if no mount of this user listens there.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        Ok(Self {
            lines: BufReader::new(stream),
        })
    }

    /// Sends a command without waiting for the answer.
    pub fn send(&mut self, command: Command) -> io::Result<()> {
        let mut line = serde_json::to_vec(&command).map_err(|e| bad(e.to_string()))?;
        line.push(b'\n');
        self.lines.get_mut().write_all(&line)
    }

    /// Returns the answer to the oldest unanswered command.
    ///
    /// # Errors
    /// The server's error, as `Other`; `UnexpectedEof` if the server ended.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.lines.by_ref().take(LONGEST).read_line(&mut line)? == 0 {
            let gone = "the server went away without an answer";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, gone));
        }
        match serde_json::from_str(&line).map_err(|e| bad(e.to_string()))? {
            Reply::Failed(why) => Err(io::Error::other(why)),
            reply => Ok(reply),
        }
    }

    /// Sends a command and waits for the answer.
    pub fn ask(&mut self, command: Command) -> io::Result<Reply> {
        self.send(command)?;
        self.receive()
    }

    /// Takes a snapshot, or joins that of another connection; returns the size of the image in bytes.
    ///
    /// # Errors
    /// The server fails.
    pub fn snapshot(&mut self, join: bool) -> io::Result<u64> {
        let command = if join {
            Command::JoinSnapshot
        } else {
            Command::Snapshot
        };
        match self.ask(command)? {
            Reply::Snapshot(len) => Ok(len),
            _ => Err(bad("the answer is not a snapshot")),
        }
    }

    /// Fills a buffer from the snapshot of this connection.
    ///
    /// # Errors
    /// The server fails.
    pub fn read_snapshot(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut at = offset;
        for piece in buf.chunks_mut(MOST_BYTES as usize) {
            let len = piece.len() as u32; // at most MOST_BYTES
            match self.ask(Command::Read { offset: at, len })? {
                Reply::Bytes(n) if n == len => self.lines.read_exact(piece)?,
                _ => return Err(bad("the answer is not what was asked for")),
            }
            at += u64::from(len);
        }
        Ok(())
    }

    /// Returns the number of blocks of the volume, and the block size in bytes.
    ///
    /// # Errors
    /// The server fails.
    pub fn size(&mut self) -> io::Result<(u64, u32)> {
        self.ask_size(Command::Size)
    }

    /// Grows the volume to `bytes` bytes, or to all available space; returns its blocks, and the block size in bytes.
    ///
    /// # Errors
    /// The server fails.
    pub fn grow(&mut self, bytes: Option<u64>) -> io::Result<(u64, u32)> {
        self.ask_size(Command::Grow { bytes })
    }

    fn ask_size(&mut self, command: Command) -> io::Result<(u64, u32)> {
        match self.ask(command)? {
            Reply::Size { blocks, block_size } => Ok((blocks, block_size)),
            _ => Err(bad("the answer is not a size")),
        }
    }

    /// Returns the extents of a regular file.
    ///
    /// # Errors
    /// The server fails.
    pub fn fragments(&mut self, ino: u32) -> io::Result<Fragments> {
        match self.ask(Command::Fragments { ino })? {
            Reply::Fragments(found) => Ok(found),
            _ => Err(bad("the answer is not a count of extents")),
        }
    }

    /// Moves a regular file into fewer extents; returns the number of blocks moved. The generation is that of
    /// [`Fragments`].
    ///
    /// # Errors
    /// The server fails, or the file was removed and its number reused.
    pub fn defragment(&mut self, ino: u32, generation: u32) -> io::Result<u64> {
        let (mut at, mut sum) = (Some(0), 0);
        while let Some(from) = at {
            let command = Command::Defragment {
                ino,
                generation,
                from,
            };
            match self.ask(command)? {
                Reply::Defragmented { next, moved } => (at, sum) = (next, sum + moved),
                _ => return Err(bad("the answer is not what was asked for")),
            }
        }
        Ok(sum)
    }

    /// Returns live counters.
    pub fn status(&mut self) -> io::Result<Status> {
        match self.ask(Command::Status)? {
            Reply::Status(status) => Ok(*status),
            _ => Err(bad("the answer is not a status")),
        }
    }

    /// Returns a report as text.
    pub fn text(&mut self, command: Command) -> io::Result<String> {
        match self.ask(command)? {
            Reply::Text(text) => Ok(text),
            _ => Err(bad("the answer is not a report")),
        }
    }
}

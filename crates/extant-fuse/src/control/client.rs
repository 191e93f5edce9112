//! The other side of the socket.

use super::{Command, LONGEST, Reply, Status, bad};
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

    /// Asks for something without waiting for the answer.
    pub fn send(&mut self, command: Command) -> io::Result<()> {
        let mut line = serde_json::to_vec(&command).map_err(|e| bad(e.to_string()))?;
        line.push(b'\n');
        self.lines.get_mut().write_all(&line)
    }

    /// The answer to the oldest unanswered command.
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

    /// Asks and waits for the answer.
    pub fn ask(&mut self, command: Command) -> io::Result<Reply> {
        self.send(command)?;
        self.receive()
    }

    /// Live counters.
    pub fn status(&mut self) -> io::Result<Status> {
        match self.ask(Command::Status)? {
            Reply::Status(status) => Ok(*status),
            _ => Err(bad("the answer is no status")),
        }
    }

    /// One of the reports as text.
    pub fn text(&mut self, command: Command) -> io::Result<String> {
        match self.ask(command)? {
            Reply::Text(text) => Ok(text),
            _ => Err(bad("the answer is no report")),
        }
    }
}

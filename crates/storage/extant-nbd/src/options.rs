//! Options of a connection.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Most connections to an export.
pub(crate) const MOST_CONNECTIONS: usize = 16;

/// Options of a connection.
///
/// ```
/// let options = extant_nbd::Options::default();
/// assert_eq!((options.timeout.as_secs(), options.reconnect.as_secs()), (30, 8));
/// ```
#[derive(Clone)]
pub struct Options {
    /// Time that the server has to accept a connection or to answer a request. Default: 30 s.
    pub timeout: Duration,
    /// Time after the loss of the connection during which requests wait for another one. Zero: they fail at once. Default: 8 s, less than
    /// others wait before they take over a volume under multiple mount protection.
    pub reconnect: Duration,
    /// Time after which a request fails because the server is silent or gone, if it is not `None`: it stands for `timeout` and
    /// `reconnect`, even if the address has a `reconnect`. The first connection, too, is then waited for, if the server is not there yet.
    /// `Duration::MAX` never ends. Default: `None`.
    pub io_timeout: Option<Duration>,
    /// Called while requests wait, with the time that the wait has lasted. Its error ends a wait for a connection at once, and a wait for a
    /// reply after 5 seconds.
    pub keep_waiting: Option<Arc<KeepWaiting>>,
    /// Connections to use at once, if the server allows several (`NBD_FLAG_CAN_MULTI_CONN`). Default: 1, and at most 16.
    pub connections: usize,
    /// Opens each connection instead of the address, which then only names the export.
    pub dial: Option<Arc<Dial>>,
    /// Refuses writes even if the server allows them. Default: false.
    pub read_only: bool,
}

/// Function that ends a wait by an error; it receives the time that the wait has lasted.
pub type KeepWaiting = dyn Fn(Duration) -> io::Result<()> + Send + Sync;

/// Function that opens a connection to a server within a time.
pub type Dial = dyn Fn(Duration) -> io::Result<UnixStream> + Send + Sync;

impl Options {
    /// Parses a time for [`io_timeout`](Self::io_timeout): a number of seconds, or `never`. The error is `InvalidInput` with a message.
    ///
    /// ```
    /// let parse = extant_nbd::Options::parse_io_timeout;
    /// assert_eq!(parse("20").unwrap().as_secs(), 20);
    /// assert_eq!(parse("never").unwrap(), std::time::Duration::MAX);
    /// assert!(parse("0").is_err());
    /// ```
    pub fn parse_io_timeout(text: &str) -> io::Result<Duration> {
        if text == "never" {
            return Ok(Duration::MAX);
        }
        let seconds = text.parse::<u32>().ok().filter(|seconds| *seconds > 0);
        let seconds = seconds.ok_or_else(|| {
            let why = format!("'{text}' is not a number of seconds (try 60 or never)");
            io::Error::new(io::ErrorKind::InvalidInput, why)
        })?;
        Ok(Duration::from_secs(seconds.into()))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("timeout", &self.timeout)
            .field("reconnect", &self.reconnect)
            .field("io_timeout", &self.io_timeout)
            .field("connections", &self.connections)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            timeout: Duration::from_secs(30),
            reconnect: Duration::from_secs(8),
            io_timeout: None,
            keep_waiting: None,
            connections: 1,
            dial: None,
            read_only: false,
        }
    }
}

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
    /// Called while requests wait for a connection; its error ends the wait.
    pub keep_waiting: Option<Arc<KeepWaiting>>,
    /// Connections to use at once, if the server allows several (`NBD_FLAG_CAN_MULTI_CONN`). Default: 1, and at most 16.
    pub connections: usize,
    /// Opens each connection instead of the address, which then only names the export.
    pub dial: Option<Arc<Dial>>,
    /// Refuses writes even if the server allows them. Default: false.
    pub read_only: bool,
}

/// Function that ends a wait by an error.
pub type KeepWaiting = dyn Fn() -> io::Result<()> + Send + Sync;

/// Function that opens a connection to a server within a time.
pub type Dial = dyn Fn(Duration) -> io::Result<UnixStream> + Send + Sync;

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("timeout", &self.timeout)
            .field("reconnect", &self.reconnect)
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
            keep_waiting: None,
            connections: 1,
            dial: None,
            read_only: false,
        }
    }
}

//! A mounted file system that is served.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::classic::Classic;
use crate::handler::{Handler, InitFlags};
use crate::init;
use crate::mount::Connection;
use crate::notify::Notifier;
use crate::shared::Shared;
use crate::uring::Rings;

/// Transport of the kernel's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Transport {
    /// io_uring where the kernel allows it, else /dev/fuse
    #[default]
    Auto,
    /// FUSE over io_uring, one queue per CPU (Linux 6.14, module parameter fuse.enable_uring)
    Uring,
    /// /dev/fuse
    Classic,
}

/// A file system that is being served; its threads run from [`new`](Session::new) on.
///
/// The session ends when the file system is unmounted, and [`run`](Session::run) waits for that. Dropping the session
/// before that aborts its connection: every program that uses the file system gets an error.
///
/// ```no_run
/// use std::sync::Arc;
/// use fuse_server::{MemoryFs, MountOptions, Session, Transport};
///
/// let connection = fuse_server::mount("/mnt", &MountOptions::default())?;
/// let session = Session::new(connection, Arc::new(MemoryFs::new()), Transport::Auto, 0)?;
/// session.run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Session {
    shared: Arc<Shared>,
    connection: Connection,
    transport: Transport,
    ended: bool,
}

impl Session {
    /// Negotiates with the kernel and starts to serve.
    ///
    /// `threads` is the initial number of threads that read the device, 0 for the number of CPUs; over io_uring each
    /// CPU has its own thread. More threads are started when all of them are inside the handler. A process that forks
    /// must fork before this call.
    pub fn new(
        connection: Connection,
        handler: Arc<dyn Handler>,
        transport: Transport,
        threads: usize,
    ) -> io::Result<Self> {
        let device = Arc::clone(connection.shared_device());
        let pending = init::receive(&device)?;
        let offered = pending.offer.flags.contains(InitFlags::OVER_IO_URING);
        if transport == Transport::Uring && !offered {
            pending.refuse(&device);
            let message = "the kernel does not offer FUSE over io_uring (see /sys/module/fuse/parameters/enable_uring)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let wants = handler.init(&pending.offer, Notifier::new(&device));
        let mut agreement = pending.agree(&wants, offered && transport != Transport::Classic);
        let shared = Shared::new(handler, agreement.dialect, &connection);

        // Once the kernel knows of rings it waits for them, so the rings must exist before that.
        let rings = match transport {
            Transport::Classic => None,
            Transport::Auto | Transport::Uring if offered => {
                match Rings::prepare(&shared, &device, agreement.payload) {
                    Ok(rings) => Some(rings),
                    Err(_) if transport == Transport::Auto => None,
                    Err(error) => {
                        pending.refuse(&device);
                        return Err(error);
                    }
                }
            }
            Transport::Auto | Transport::Uring => None,
        };
        if rings.is_none() {
            agreement = pending.agree(&wants, false);
        }
        pending.confirm(&device, &agreement);

        let served_by = if rings.is_some() {
            Transport::Uring
        } else {
            Transport::Classic
        };
        let session = Self {
            shared,
            connection,
            transport: served_by,
            ended: false,
        };
        match rings {
            Some(rings) => {
                Classic::start(&session.shared, &device, agreement.payload, 1, true)?;
                rings.register()?;
            }
            None => {
                let threads = if threads == 0 {
                    default_threads()
                } else {
                    threads
                };
                Classic::start(&session.shared, &device, agreement.payload, threads, false)?;
            }
        }
        Ok(session)
    }

    /// Returns the transport of requests: never [`Transport::Auto`].
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns the mount point.
    pub fn target(&self) -> &Path {
        self.connection.target()
    }

    /// Waits until the file system is unmounted. Returns an error if the session ended for another reason, such as a
    /// panic of the handler.
    pub fn run(mut self) -> io::Result<()> {
        self.shared.wait();
        self.ended = true;
        self.shared.destroy()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.place().abort();
            self.shared.wait();
            // The session was aborted, and no handler is notified of its end.
            let _ = self.shared.destroy();
        }
    }
}

/// Returns the number of CPUs, but no more than a single queue in the kernel can keep busy.
fn default_threads() -> usize {
    std::thread::available_parallelism()
        .map_or(2, usize::from)
        .clamp(2, 16)
}

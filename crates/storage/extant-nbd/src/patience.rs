//! The end of a wait for the server: its time is over, or the caller asks to stop.

use crate::options::{KeepWaiting, Options};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two looks at the limits of a wait.
pub(crate) const POLL: Duration = Duration::from_millis(50);
/// Time that a request still has after the caller asked to stop: a server that is only slow answers by then.
const GRACE: Duration = Duration::from_secs(5);

/// Limits of the waits for replies.
#[derive(Clone)]
pub(crate) struct Patience {
    /// Longest wait for one reply.
    pub(crate) timeout: Duration,
    keep_waiting: Option<Arc<KeepWaiting>>,
}

/// A wait that has begun.
pub(crate) struct Wait<'p> {
    patience: &'p Patience,
    began: Instant,
    asked_to_stop: Option<Instant>,
}

/// Returns the error of a reply that did not come in time.
pub(crate) fn no_reply(timeout: Duration) -> io::Error {
    let why = format!("no reply in {} s", timeout.as_secs_f32());
    io::Error::new(io::ErrorKind::TimedOut, why)
}

impl Patience {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            timeout: options.timeout,
            keep_waiting: options.keep_waiting.clone(),
        }
    }

    /// Begins a wait.
    pub(crate) fn begin(&self) -> Wait<'_> {
        Wait {
            patience: self,
            began: Instant::now(),
            asked_to_stop: None,
        }
    }
}

impl Wait<'_> {
    /// Returns how long to wait before the next [`check`](Self::check).
    pub(crate) fn step(&self) -> Duration {
        let left = self.patience.timeout.saturating_sub(self.began.elapsed());
        POLL.min(left)
    }

    /// Fails if the wait is over.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        let timeout = self.patience.timeout;
        if self.began.elapsed() >= timeout {
            return Err(no_reply(timeout));
        }
        let asked = self.patience.keep_waiting.as_ref();
        let asked = asked.map(|asked| asked(self.began.elapsed()));
        if let Some(Err(error)) = asked {
            let since = *self.asked_to_stop.get_or_insert_with(Instant::now);
            if since.elapsed() >= GRACE {
                return Err(error);
            }
        }
        Ok(())
    }
}

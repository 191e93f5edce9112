//! Wakes the background thread before its timer.

use crate::base::locks::{self, Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

/// Wakes the background thread before its timer.
#[derive(Default)]
pub struct Kick {
    asked: Mutex<Asked, locks::Kick>,
    /// The request that is pending, so that another one for no more need not take the lock.
    pending: AtomicU8,
    changed: Condvar,
    /// A thread has come to wait for requests.
    served: AtomicBool,
}

/// What the background thread is asked for. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Nothing: the time is over.
    #[default]
    Nothing,
    /// Writing images home, so that the log can be emptied soon.
    Clean,
    /// A push.
    Push,
    /// The end of the thread.
    End,
}

impl Kick {
    /// Asks for a push soon.
    pub fn wake(&self) {
        self.ask(Asked::Push);
    }

    /// Asks for images to be written home soon.
    pub fn clean(&self) {
        self.ask(Asked::Clean);
    }

    fn ask(&self, what: Asked) {
        if self.pending.load(Ordering::Relaxed) >= what as u8 {
            return;
        }
        let mut asked = self.asked.lock();
        if *asked < what {
            *asked = what;
            self.pending.store(what as u8, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// Whether a thread serves the requests.
    pub fn is_served(&self) -> bool {
        self.served.load(Ordering::Relaxed)
    }

    /// Ends the background thread.
    pub fn end(&self) {
        *self.asked.lock() = Asked::End;
        self.changed.notify_all();
    }

    /// Waits for a request or the timeout; `None` if the thread must end.
    pub fn wait(&self, timeout: Duration) -> Option<Asked> {
        self.served.store(true, Ordering::Relaxed);
        let mut asked = self.asked.lock();
        if *asked == Asked::Nothing {
            self.changed.wait_for(&mut asked, timeout);
        }
        match *asked {
            Asked::End => None,
            other => {
                *asked = Asked::Nothing;
                self.pending.store(0, Ordering::Relaxed);
                Some(other)
            }
        }
    }
}

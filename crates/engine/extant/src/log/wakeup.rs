//! Wakes the background thread before its timer.

use crate::base::locks::{self, Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Wakes the background thread before its timer.
#[derive(Default)]
pub struct Wakeup {
    asked: Mutex<Request, locks::Wakeup>,
    /// A request is pending, so that another request need not take the lock.
    pending: AtomicBool,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Request {
    #[default]
    Nothing,
    Push,
    End,
}

impl Wakeup {
    /// Asks for a push soon.
    pub fn wake(&self) {
        if self.pending.load(Ordering::Relaxed) {
            return;
        }
        let mut asked = self.asked.lock();
        if *asked == Request::Nothing {
            *asked = Request::Push;
            self.pending.store(true, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// Ends the background thread.
    pub fn end(&self) {
        *self.asked.lock() = Request::End;
        self.changed.notify_all();
    }

    /// Waits for [`Wakeup::wake`] or the timeout; true if a push was asked for, `None` if the thread must end.
    pub fn wait(&self, timeout: Duration) -> Option<bool> {
        let mut asked = self.asked.lock();
        if *asked == Request::Nothing {
            self.changed.wait_for(&mut asked, timeout);
        }
        match *asked {
            Request::End => None,
            other => {
                *asked = Request::Nothing;
                self.pending.store(false, Ordering::Relaxed);
                Some(other == Request::Push)
            }
        }
    }
}

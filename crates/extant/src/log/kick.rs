//! Wakes the background thread before its timer.

use crate::base::locks::{self, Condvar, Mutex};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Wakes the background thread before its timer.
#[derive(Default)]
pub struct Kick {
    asked: Mutex<Asked, locks::Kick>,
    /// A request is pending, so that another request need not take the lock.
    pending: AtomicBool,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Asked {
    #[default]
    Nothing,
    Push,
    End,
}

impl Kick {
    /// Asks for a push soon.
    pub fn wake(&self) {
        if self.pending.load(Ordering::Relaxed) {
            return;
        }
        let mut asked = self.asked.lock();
        if *asked == Asked::Nothing {
            *asked = Asked::Push;
            self.pending.store(true, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// Ends the background thread.
    pub fn end(&self) {
        *self.asked.lock() = Asked::End;
        self.changed.notify_all();
    }

    /// Waits for [`Kick::wake`] or the timeout; true if a push was asked for, `None` if the thread must end.
    pub fn wait(&self, timeout: Duration) -> Option<bool> {
        let mut asked = self.asked.lock();
        if *asked == Asked::Nothing {
            self.changed.wait_for(&mut asked, timeout);
        }
        match *asked {
            Asked::End => None,
            other => {
                *asked = Asked::Nothing;
                self.pending.store(false, Ordering::Relaxed);
                Some(other == Asked::Push)
            }
        }
    }
}

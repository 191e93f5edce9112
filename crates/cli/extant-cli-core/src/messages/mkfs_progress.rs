//! Progress of making an image.

use extant::mkfs::{self, Phase};
use extant_terminal::progress::Progress;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Shows one phase at a time, and records when the last phase began.
#[derive(Default)]
pub struct Bar {
    shown: Mutex<Option<Progress>>,
    flush: Mutex<Option<Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere ends the work anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bar {
    /// Returns how long the last phase has taken, in seconds; 0 if it has not begun.
    pub fn flush_seconds(&self) -> f64 {
        lock(&self.flush).map_or(0.0, |at| at.elapsed().as_secs_f64())
    }

    /// Shows the next phase, or none.
    pub fn change(&self, next: Option<Progress>) {
        if let Some(old) = std::mem::replace(&mut *lock(&self.shown), next) {
            old.done();
        }
    }
}

impl mkfs::Progress for Bar {
    fn phase(&self, phase: Phase, total: u64) {
        if phase == Phase::Flush {
            *lock(&self.flush) = Some(Instant::now());
        }
        self.change(Some(match phase {
            Phase::Scan => Progress::count("scan"),
            Phase::Spool => Progress::bytes("read", total),
            Phase::Data => Progress::bytes("data", total),
            Phase::Metadata => Progress::up_to("metadata", total),
            Phase::Flush => Progress::wait("write to the device"),
            _ => Progress::wait("plan"),
        }));
    }

    fn advance(&self, done: u64) {
        if let Some(bar) = &*lock(&self.shown) {
            bar.add(done);
        }
    }
}

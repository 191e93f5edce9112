//! The guard that keeps a volume open, and closes it.

use crate::base::error::Result;
use crate::base::locks::{self, Mutex};
use crate::commit::journal::recovery::Recovery;
use crate::store::health::ended;
use crate::volume::engine::Engine;
use ext4_format::jbd2;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Ends the background thread and closes the volume when the last clone is dropped.
pub(crate) struct Guard {
    pub(crate) engine: Arc<Engine>,
    pub(crate) background: Mutex<Option<JoinHandle<()>>, locks::Volume>,
    pub(crate) closed: Mutex<bool, locks::Volume>,
    pub(crate) recovery: Recovery,
    pub(crate) journal: Option<jbd2::Superblock>,
    pub(crate) orphans_left: usize,
}

impl Guard {
    pub(crate) fn close(&self) -> Result<()> {
        let mut closed = self.closed.lock();
        if std::mem::replace(&mut *closed, true) {
            return Ok(());
        }
        self.engine.thaw();
        self.engine.log.wakeup.end();
        if let Some(thread) = self.background.lock().take() {
            // The thread only ends. Closing reports its failures.
            let _ = thread.join();
        }
        let closed = self.engine.shut_down();
        self.engine.end();
        closed
    }

    pub(crate) fn invalidate(&self) {
        let mut closed = self.closed.lock();
        if std::mem::replace(&mut *closed, true) {
            return;
        }
        self.engine
            .cut_off(ended::GONE, "the volume was closed by force");
        self.engine.log.wakeup.end();
        if let Some(thread) = self.background.lock().take() {
            let _ = thread.join();
        }
        self.engine.end();
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(e) = self.close() {
            tracing::error!(error = %e, "closing a volume");
        }
    }
}

//! How a volume ends: closed, shut down, or cut off, with what only handles held.

use crate::base::error::{Error, Result};
use crate::store::health::ended;
use crate::volume::engine::Engine;
use std::sync::atomic::Ordering;

impl Engine {
    /// Closes: everything durable and home, the volume marked clean.
    pub(super) fn shut_down(&self) -> Result<()> {
        if self.store.health.read_only.is_some() {
            return Ok(());
        }
        if self.store.health.ended.load(Ordering::Acquire) == ended::SHUT_DOWN {
            return Ok(());
        }
        self.store.check_running()?;
        // Inodes that cannot be freed stay orphans, for e2fsck; everything else must be durable.
        let freed = self.lifecycle.free_open_orphans();
        self.data.sync()?;
        self.commit.rest(|| {
            let _ = self.store.health.stopped.set("the volume is closed".into());
        })?;
        freed
    }

    /// Ends all commits and makes every handle stale; `how` is one of [`ended`]. Returns when no write is in
    /// progress.
    pub(crate) fn cut_off(&self, how: u8, why: &str) {
        self.store.health.ended.fetch_max(how, Ordering::AcqRel);
        self.store.stop(&Error::Stopped(why.into()));
        self.store.gate.open();
        // Writers of data have passed the gate.
        self.store.gate.drain();
        self.commit.wait_for_pushes();
    }

    /// Ends the volume after it was closed: handles are stale, memory is freed.
    pub(super) fn end(&self) {
        self.store
            .health
            .ended
            .store(ended::GONE, Ordering::Release);
        self.drop_shares();
        self.lifecycle.evict_all();
    }
}

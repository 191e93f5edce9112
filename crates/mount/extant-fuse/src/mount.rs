//! The state that the handler and the control socket of one mount share.

use crate::control::Status;
use crate::counters::Counters;
use crate::nodes::Nodes;
use extant::blockdev::Snapshot;
use extant::unstable::Node;
use extant::{Frozen, Volume};
use lockmeter::{Mutex, RwLock, lock_class};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

lock_class!(
    /// The last error of a mount.
    pub(crate) Trouble = "last trouble"
);
lock_class!(
    /// The freeze of the volume while it is mounted read-only.
    pub(crate) Still = "remounted read-only"
);

/// Why a mount is read-only after `mount -o remount,ro`.
const REMOUNTED: &str = "remounted read-only";

/// The state that the handler and the control socket of one mount share.
pub(crate) struct Shared {
    pub volume: Volume,
    pub nodes: Nodes,
    pub counters: Counters,
    /// Name of the image in reports.
    pub image: String,
    /// Transport of requests, once it is known.
    pub transport: OnceLock<&'static str>,
    since: Instant,
    freezes: AtomicU32,
    troubles: AtomicU64,
    last_trouble: Mutex<Option<String>, Trouble>,
    /// The freeze since the mount was remounted read-only.
    still: RwLock<Option<Frozen>, Still>,
}

impl Shared {
    pub fn new(volume: Volume, image: String) -> extant::Result<Self> {
        Ok(Self {
            nodes: Nodes::new(Node::root(&volume)?),
            volume,
            counters: Counters::new(),
            image,
            transport: OnceLock::new(),
            since: Instant::now(),
            freezes: AtomicU32::new(0),
            troubles: AtomicU64::new(0),
            last_trouble: Mutex::new(None),
            still: RwLock::new(None),
        })
    }

    /// Returns live counters.
    pub fn status(&self) -> extant::Result<Status> {
        let mut status = Status::of(&self.volume)?;
        for (slot, requests) in status.slots.iter_mut().zip(self.counters.by_slot()) {
            slot.requests = requests;
        }
        Ok(Status {
            image: self.image.clone(),
            transport: self.transport.get().copied().unwrap_or("starting").into(),
            read_only: status.read_only.or_else(|| {
                // The status does not wait for a remount that waits for a change of the volume.
                let still = self.still.try_read().is_some_and(|s| s.is_some());
                still.then(|| REMOUNTED.into())
            }),
            frozen: self.freezes.load(Relaxed) > 0,
            troubles: self.troubles.load(Relaxed),
            last_trouble: self.last_trouble.lock().clone(),
            uptime_seconds: self.since.elapsed().as_secs_f64(),
            nodes_known: self.nodes.count() as u64,
            requests: self.counters.read(),
            ..status
        })
    }

    /// Records that the image is broken or its device failed. The log of a server in the background is seldom read, so
    /// the status keeps the last such error.
    pub fn trouble(&self, error: &extant::Error) {
        tracing::error!(image = self.image, %error, "request failed");
        self.troubles.fetch_add(1, Relaxed);
        *self.last_trouble.lock() = Some(error.to_string());
    }

    /// Makes the mount read-only: the image is in the state of a cleanly closed one, until [`Shared::end_read_only`].
    pub fn begin_read_only(&self) -> extant::Result<()> {
        let mut still = self.still.write();
        if still.is_none() && self.volume.read_only().is_none() {
            *still = Some(self.volume.freeze()?);
        }
        Ok(())
    }

    /// Makes a change of the volume, for which a remount waits. After `mount -o remount,ro` the change is refused; it
    /// would wait until the mount is writable again.
    pub fn while_writable<R>(
        &self,
        change: impl FnOnce(&Volume) -> extant::Result<R>,
    ) -> extant::Result<R> {
        let still = self.still.read();
        if still.is_some() {
            return Err(extant::Error::ReadOnly(REMOUNTED.into()));
        }
        change(&self.volume)
    }

    /// Makes the mount writable again.
    pub fn end_read_only(&self) {
        let still = self.still.write().take();
        drop(still);
    }

    /// Closes the volume before its device is released. A later close finds the volume closed; an error is recorded.
    pub fn close_early(&self) {
        self.end_read_only();
        if let Err(e) = self.volume.clone().close() {
            self.trouble(&e);
        }
    }

    /// Takes a snapshot of the image.
    pub fn snapshot(&self) -> extant::Result<Snapshot> {
        // A read-only mount is frozen already.
        match &*self.still.read() {
            Some(still) => still.snapshot(),
            None => self.volume.snapshot(),
        }
    }

    /// Blocks all changes until the guard is dropped.
    pub fn freeze(self: &Arc<Self>) -> extant::Result<Freeze> {
        let frozen = self.volume.freeze()?;
        self.freezes.fetch_add(1, Relaxed);
        Ok(Freeze {
            shared: Arc::clone(self),
            _frozen: frozen,
        })
    }
}

/// A guard that blocks changes while it lives.
pub(crate) struct Freeze {
    shared: Arc<Shared>,
    _frozen: Frozen,
}

impl Drop for Freeze {
    fn drop(&mut self) {
        self.shared.freezes.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Without the wait, the label would be set on a frozen volume, until the mount is writable again.
    #[test]
    fn a_remount_waits_for_a_change_that_has_begun() {
        let volume = extant::doc_volume();
        let shared = Shared::new(volume, "a test".into()).unwrap();
        std::thread::scope(|scope| {
            let remount = shared.while_writable(|volume| {
                let remount = scope.spawn(|| shared.begin_read_only());
                std::thread::sleep(Duration::from_millis(50));
                assert!(!remount.is_finished(), "the volume is frozen");
                volume.set_label(b"label")?;
                Ok(remount)
            });
            remount.unwrap().join().unwrap().unwrap();
        });
        let refused = shared.while_writable(|volume| volume.set_label(b"late"));
        assert!(matches!(refused, Err(extant::Error::ReadOnly(_))));
        assert_eq!(shared.volume.label().unwrap(), "label");
    }
}

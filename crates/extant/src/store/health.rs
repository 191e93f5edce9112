//! Whether a volume is still there, and whether it may be changed; how it stops.

use crate::base::error::{Error, Result};
use crate::base::invariants::Rule;
use crate::store::damage::Damage;
use crate::types::dentry::NameHash;
use crate::volume::engine::Engine;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Engine {
    /// The volume has not been closed or shut down.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        match self.ended.load(Ordering::Acquire) {
            ended::NOT => Ok(()),
            other => Err(self.why_ended(other)),
        }
    }

    #[cold]
    pub(crate) fn why_ended(&self, how: u8) -> Error {
        match (how, self.stopped.get()) {
            (ended::GONE, _) => Error::Stale,
            (ended::FAILED, Some(why)) => Error::Stopped(why.clone()),
            _ => Error::Stopped("the volume was shut down".into()),
        }
    }

    /// Fails when the volume has stopped after an error.
    pub(crate) fn check_running(&self) -> Result<()> {
        self.check_here()?;
        match self.stopped.get() {
            Some(why) => Err(Error::Stopped(why.clone())),
            None => Ok(()),
        }
    }

    /// Fails when the volume cannot be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_here()?;
        if let Some(why) = self.stopped.get() {
            return Err(Error::ReadOnly(format!("stopped after an error: {why}")));
        }
        match &self.read_only {
            Some(why) => Err(Error::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }
}

/// Whether a volume is still there for its callers.
pub(crate) mod ended {
    /// It is.
    pub const NOT: u8 = 0;
    /// It was shut down, on demand.
    pub const SHUT_DOWN: u8 = 1;
    /// It has failed, and that was to end everything.
    pub const FAILED: u8 = 2;
    /// It was closed, or invalidated: handles are stale.
    pub const GONE: u8 = 3;
}

/// Called when a volume stops after a failure.
#[derive(Clone)]
pub(crate) struct StopHook(pub Arc<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for StopHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StopHook")
    }
}

/// Called for damage that is found.
#[derive(Clone)]
pub(crate) struct DamageHook(pub Arc<dyn Fn(&Damage) + Send + Sync>);

impl std::fmt::Debug for DamageHook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DamageHook")
    }
}

impl Engine {
    /// Stops the volume if a rule does not hold: for where no error can be returned.
    #[inline(always)]
    pub(crate) fn insist(&self, holds: bool, rule: Rule, found: impl FnOnce() -> String) {
        if !holds {
            self.stop_for(rule, found());
        }
    }

    #[cold]
    pub(crate) fn stop_for(&self, rule: Rule, found: String) {
        self.stop(&rule.broken(found));
    }

    /// Passes a result on, and stops the volume if it is a broken rule.
    #[inline]
    pub(crate) fn heed<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e @ Error::Broken { .. }) = &result {
            self.stop(e);
        }
        result
    }
}

impl Engine {
    /// Stops the volume: no further change reaches the device, every waiter is told.
    pub(crate) fn stop(&self, why: &Error) {
        tracing::error!(error = %why, "volume stopped");
        let reason = self.reason(why);
        let failed = self.check_here().is_ok() && self.stopped.set(reason.clone()).is_ok();
        // On demand, perhaps after a failure.
        let _ = self.stopped.set(reason.clone());
        self.record_error(why);
        if failed && self.fail_all {
            self.ended.store(ended::FAILED, Ordering::Release);
        }
        {
            let _durable = self.log.durable.lock();
            self.log.durable_changed.notify_all();
        }
        if let Some(hook) = self.on_stop.as_ref().filter(|_| failed) {
            (hook.0)(&reason);
        }
    }

    /// Why a volume stops, in words. A host that fails is not a volume that is damaged.
    pub(crate) fn reason(&self, why: &Error) -> String {
        let Error::Io { source, .. } = why else {
            return why.to_string();
        };
        let full = [
            std::io::ErrorKind::StorageFull,
            std::io::ErrorKind::QuotaExceeded,
            std::io::ErrorKind::FileTooLarge,
        ];
        let host = match full.contains(&source.kind()) {
            true => "the host has no room for the image",
            false => "the host failed",
        };
        let rest = match self.geometry.features.has_journal() {
            true => "nothing more is written, and the next opening recovers what was synced",
            false => "nothing more is written, and e2fsck is needed, as after a cut of power",
        };
        format!("{host} ({why}); {rest}")
    }
}

impl Engine {
    /// Records why the volume stops in its superblock, as far as the device lets it, if it is damage of the volume.
    #[track_caller]
    pub(crate) fn record_error(&self, why: &Error) {
        let closed = self.check_here().is_err();
        if !closed && self.read_only.is_none() && matches!(why, Error::Format(_)) {
            self.add_damage(why, "stop", None);
            self.write_errors();
        }
    }
}

impl Engine {
    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        let (major, minor) = self.hasher.hash(name);
        NameHash { major, minor }
    }
}

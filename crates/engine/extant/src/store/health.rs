//! The health of a volume: whether it is open, whether it may be changed, and how it stops.

use crate::base::error::{Error, Result};
use crate::base::invariants::Rule;
use crate::base::upward::Upward;
use crate::store::Store;
use crate::store::damage::Damage;
use crate::store::damage::DamageLog;
use crate::types::dentry::NameHash;
use ext4_format::fold::Comparison;
use ext4_format::inode::flags;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

#[cfg(test)]
impl Health {
    /// Returns the health of a volume that is writable and was never damaged.
    pub(crate) fn sound() -> Self {
        Self {
            read_only: None,
            stopped: OnceLock::new(),
            ended: AtomicU8::new(ended::NOT),
            fail_all: false,
            on_stop: None,
            stops_on_damage: true,
            on_damage: None,
            damage: DamageLog::new(0),
            waiters: Default::default(),
        }
    }
}

impl Store {
    /// Checks that the volume has not been closed or shut down.
    #[inline]
    pub(crate) fn check_here(&self) -> Result<()> {
        match self.health.ended.load(Ordering::Acquire) {
            ended::NOT => Ok(()),
            other => Err(self.why_ended(other)),
        }
    }

    #[cold]
    pub(super) fn why_ended(&self, how: u8) -> Error {
        match (how, self.health.stopped.get()) {
            (ended::GONE, _) => Error::Stale,
            (ended::FAILED, Some(why)) => Error::Stopped(why.clone()),
            _ => Error::Stopped("the volume was shut down".into()),
        }
    }

    /// Fails when the volume has stopped after an error.
    pub(crate) fn check_running(&self) -> Result<()> {
        self.check_here()?;
        match self.health.stopped.get() {
            Some(why) => Err(Error::Stopped(why.clone())),
            None => Ok(()),
        }
    }

    /// Returns true if the volume can be changed.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        let health = &self.health;
        health.ended.load(Ordering::Acquire) == ended::NOT
            && health.stopped.get().is_none()
            && health.read_only.is_none()
    }

    /// Fails when the volume cannot be changed.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_writable() {
            Ok(())
        } else {
            self.why_not_writable()
        }
    }

    #[cold]
    #[inline(never)]
    fn why_not_writable(&self) -> Result<()> {
        self.check_here()?;
        if let Some(why) = self.health.stopped.get() {
            return Err(Error::ReadOnly(format!("stopped after an error: {why}")));
        }
        match &self.health.read_only {
            Some(why) => Err(Error::ReadOnly(why.clone())),
            None => Ok(()),
        }
    }
}

/// Threads that wait for events which a stop of the volume prevents.
pub(crate) trait Waiters: Send + Sync {
    /// Wakes them to look at the volume again.
    fn wake(&self);
}

/// The state of a volume: open or ended, writable or not, damaged or not.
pub(crate) struct Health {
    /// Reason why the volume may not be changed, if so.
    pub read_only: Option<String>,
    pub stopped: OnceLock<String>,
    /// A value of [`ended`]. After the end, handles are stale.
    pub ended: AtomicU8,
    /// A failure ends reading, too.
    pub fail_all: bool,
    pub on_stop: Option<StopHook>,
    /// Damage stops the volume, as a failed write does.
    pub stops_on_damage: bool,
    pub on_damage: Option<DamageHook>,
    pub damage: DamageLog,
    pub waiters: Upward<dyn Waiters>,
}

/// Whether a volume is open for its callers.
pub(crate) mod ended {
    /// The volume is open.
    pub const NOT: u8 = 0;
    /// The volume was shut down on demand.
    pub const SHUT_DOWN: u8 = 1;
    /// The volume has failed, and its policy ends everything.
    pub const FAILED: u8 = 2;
    /// The volume was closed or invalidated: handles are stale.
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

impl Store {
    /// Stops the volume if a rule does not hold, where no error can be returned.
    #[inline(always)]
    pub(crate) fn insist(&self, holds: bool, rule: Rule, found: impl FnOnce() -> String) {
        if !holds {
            self.stop_for(rule, found());
        }
    }

    #[cold]
    pub(super) fn stop_for(&self, rule: Rule, found: String) {
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

impl Store {
    /// Stops the volume: no further change reaches the device, and every waiter is woken.
    pub(crate) fn stop(&self, why: &Error) {
        tracing::error!(error = %why, "volume stopped");
        let reason = self.reason(why);
        let failed = self.check_here().is_ok() && self.health.stopped.set(reason.clone()).is_ok();
        // A shutdown on demand may follow a failure.
        let _ = self.health.stopped.set(reason.clone());
        self.record_error(why);
        if failed && self.health.fail_all {
            self.health.ended.store(ended::FAILED, Ordering::Release);
        }
        if let Some(waiters) = self.health.waiters.get() {
            waiters.wake();
        }
        if let Some(hook) = self.health.on_stop.as_ref().filter(|_| failed) {
            (hook.0)(&reason);
        }
    }

    /// Returns the reason for a stop, in words. The text distinguishes a failing host from a damaged volume.
    pub(super) fn reason(&self, why: &Error) -> String {
        let Error::Io { source, .. } = why else {
            return why.to_string();
        };
        let full = [
            std::io::ErrorKind::StorageFull,
            std::io::ErrorKind::QuotaExceeded,
            std::io::ErrorKind::FileTooLarge,
        ];
        let host = if full.contains(&source.kind()) {
            "the host has no room for the image"
        } else {
            "the host failed"
        };
        let rest = if self.geometry.features.has_journal() {
            "nothing more is written, and the next opening recovers what was synced"
        } else {
            "nothing more is written, and e2fsck is needed, as after a cut of power"
        };
        format!("{host} ({why}); {rest}")
    }
}

impl Store {
    /// Records the reason of a stop in the superblock, as far as the device allows it, if it is damage of the volume.
    #[track_caller]
    pub(super) fn record_error(&self, why: &Error) {
        let closed = self.check_here().is_err();
        if !closed && self.health.read_only.is_none() && matches!(why, Error::Format(_)) {
            self.add_damage(why, "stop", None);
            self.write_errors();
        }
    }
}

impl Store {
    /// Hashes a name, byte by byte.
    pub(crate) fn hash(&self, name: &[u8]) -> NameHash {
        let (major, minor) = self.hasher.hash(name);
        NameHash { major, minor }
    }

    /// Hashes a name for a directory with this comparison of names.
    #[inline]
    pub(crate) fn hash_by(&self, compared: Comparison, name: &[u8]) -> NameHash {
        if compared.folds() {
            self.hash_folded(name)
        } else {
            self.hash(name)
        }
    }

    #[cold]
    #[inline(never)]
    fn hash_folded(&self, name: &[u8]) -> NameHash {
        let (major, minor) = self.hasher.comparing(Comparison::Folded).hash(name);
        NameHash { major, minor }
    }

    /// Returns how names are compared in a directory with these flags.
    #[inline]
    pub(crate) fn comparison(&self, directory: u32) -> Comparison {
        match directory & flags::CASEFOLD {
            0 => Comparison::Exact,
            _ => self.geometry.comparison(directory),
        }
    }
}

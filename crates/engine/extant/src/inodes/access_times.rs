//! Access times: which reads are noted, and when noted times are written to the device.
//!
//! A noted time is in the inode's core, so the next item of the core contains it. If the inode does not change
//! otherwise, the next write-back writes the time. If the volume keeps times *lazily*, the next sync, fsync of the
//! inode or eviction does, at the latest after a day. Inodes with such times are on lists of their slots, which do not
//! hold them: freed inodes are skipped.

use crate::base::locks::{self, Mutex};
use crate::base::now;
use crate::incore::inode::{Inode, InodeState};
use crate::inodes::Inodes;
use crate::types::settings::AccessTimes;
use ext4_format::inode::flags;
use ext4_format::timestamp::Timestamp;
use percpu::PerSlot;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Seconds after which a time that was read is noted again, and after which a lazy one is written.
const DAY: i64 = 24 * 60 * 60;

/// Inodes with lazy times and since when, the longest waiting first.
type Waiting = VecDeque<(i64, Weak<Inode>)>;

/// The lists of all slots.
#[derive(Default)]
pub(crate) struct LazyTimes {
    slots: PerSlot<Mutex<Waiting, locks::LazyTimes>>,
}

/// Returns whether a read now is noted, by the rule of relative times.
fn is_due(core: (Timestamp, Timestamp, Timestamp), now: Timestamp) -> bool {
    let (atime, mtime, ctime) = core;
    mtime >= atime || ctime >= atime || now.secs().saturating_sub(atime.secs()) >= DAY
}

impl Inodes {
    /// Notes that a file, a directory's names or a symbolic link was read.
    #[inline]
    pub(crate) fn accessed(&self, inode: &Arc<Inode>) {
        if self.store.settings.access_times != AccessTimes::None {
            self.note_access(inode);
        }
    }

    fn note_access(&self, inode: &Arc<Inode>) {
        let untimed = !self.store.settings.directory_times && inode.directory().is_some();
        if untimed || inode.has_flag(flags::NOATIME) || self.store.health.read_only.is_some() {
            return;
        }
        let time = self.storable(now());
        let is_due = |state: &InodeState| {
            let mut core = state.core;
            self.add_overwrites(inode, &mut core);
            let mut times = (core.atime, core.mtime, core.ctime);
            let changed = inode.directory().and_then(|names| names.last_change());
            if let Some(newest) = changed {
                times = (times.0, newest, times.2.max(newest));
            }
            let due = match self.store.settings.access_times {
                AccessTimes::None => false,
                AccessTimes::Relative => is_due(times, time),
                AccessTimes::Strict => times.0 != time,
            };
            due && !state.freed
        };
        if !is_due(&inode.state.read()) {
            return;
        }
        let mut state = inode.state.lock();
        if !is_due(&state) {
            return;
        }
        state.core.atime = time;
        self.note_times(inode, state);
    }

    /// Notes that a time of the core has changed, and nothing else. The time is written when the volume's settings ask
    /// for it.
    fn note_times(&self, inode: &Arc<Inode>, mut state: crate::incore::inode::StateGuard<'_>) {
        if !self.store.settings.lazy_times {
            state.core_dirty = true;
            drop(state);
            self.note_dirty(inode);
            return;
        }
        state.lazy_times = true;
        if std::mem::replace(&mut state.on_lazy_list, true) {
            return;
        }
        drop(state);
        let entry = (now().secs(), Arc::downgrade(inode));
        let mut waiting = self.lazy_times.slots.local().lock();
        waiting.push_back(entry);
        self.store.unsynced.dirty.note();
    }

    /// Makes this inode's lazy times due: the next write-back of the inode includes them.
    pub(crate) fn make_times_due_of(&self, inode: &Arc<Inode>) {
        if !inode.state.read().lazy_times {
            return;
        }
        let mut state = inode.state.lock();
        if make_due(&mut state) {
            drop(state);
            self.note_dirty(inode);
        }
    }

    /// Makes the lazy times of all inodes due.
    pub(crate) fn make_all_times_due(&self) {
        self.make_times_due_since(i64::MAX);
    }

    /// Makes the lazy times due of inodes that have waited for a day.
    pub(crate) fn make_old_times_due(&self) {
        self.make_times_due_since(now().secs().saturating_sub(DAY));
    }

    /// Returns whether inodes have lazy times that are not due.
    pub(crate) fn has_lazy_times(&self) -> bool {
        let mut slots = self.lazy_times.slots.iter();
        slots.any(|slot| !slot.lock().is_empty())
    }

    fn make_times_due_since(&self, time: i64) {
        for slot in self.lazy_times.slots.iter() {
            loop {
                let mut waiting = slot.lock();
                let due = waiting.front().is_some_and(|(since, _)| *since <= time);
                let first = if due { waiting.pop_front() } else { None };
                drop(waiting);
                match first {
                    Some((_, inode)) => {
                        if let Some(inode) = inode.upgrade() {
                            inode.state.lock().on_lazy_list = false;
                            self.make_times_due_of(&inode);
                        }
                    }
                    None => break,
                }
            }
        }
    }
}

/// Makes a lazy time due, and returns true if there was one.
fn make_due(state: &mut InodeState) -> bool {
    let lazy = std::mem::take(&mut state.lazy_times) && !state.freed;
    state.core_dirty |= lazy;
    lazy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_times_follow_changes_and_days() {
        let at = |secs| Timestamp::new(secs, 0);
        assert!(
            is_due((at(5), at(5), at(1)), at(6)),
            "changed when it was read"
        );
        assert!(is_due((at(5), at(1), at(7)), at(8)), "attributes changed");
        assert!(!is_due((at(5), at(4), at(4)), at(8)));
        assert!(!is_due((at(5), at(4), at(4)), at(4 + DAY)));
        assert!(is_due((at(5), at(4), at(4)), at(5 + DAY)));
        assert!(
            !is_due((at(5), at(4), at(4)), at(i64::MIN)),
            "a clock set back"
        );
    }
}

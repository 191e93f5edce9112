//! The end of a volume: closed, shut down, or cut off, with the inodes that only handles held.

use crate::base::error::{Error, Result};
use crate::base::planted::{self, Fault};
use crate::store::health::ended;
use crate::volume::engine::Engine;
use std::sync::atomic::Ordering;

impl Engine {
    /// Closes the volume: everything is durable and home, and the volume is marked clean.
    pub(super) fn shut_down(&self) -> Result<()> {
        if self.store.health.read_only.is_some() {
            return Ok(());
        }
        if self.store.health.ended.load(Ordering::Acquire) == ended::SHUT_DOWN {
            return Ok(());
        }
        self.store.check_running()?;
        // Inodes that cannot be freed stay orphans, for e2fsck; data that cannot be written back are lost. Everything
        // else must be durable.
        let freed = self.lifecycle.free_open_orphans();
        let synced = self.data.sync_formatted();
        if synced.is_err()
            && (self.store.check_running().is_err() || planted::is(Fault::StopsAtFirstFailure))
        {
            return synced;
        }
        let rested = self.commit.rest(|| {
            let _ = self.store.health.stopped.set("the volume is closed".into());
        });
        synced.and(rested).and(freed)
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

#[cfg(test)]
mod tests {
    use crate::base::error::Result;
    use crate::base::schedule::{self, Point};
    use crate::mkfs::{self, MkfsOptions};
    use crate::{Volume, VolumeOptions};
    use blockdev::MemDevice;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    /// Holds a thread at a point in a call while the volume is closed by force. The call must then fail, and no byte
    /// may have changed. Before, the volume has a file that is not durable.
    fn ended_at(point: Point, call: impl FnOnce(&Volume) -> Result<()> + Send + 'static) {
        let device = Arc::new(MemDevice::new(16 << 20));
        let options = MkfsOptions {
            size: Some(16 << 20),
            ..Default::default()
        };
        mkfs::format(&*device, &options).unwrap();
        let volume = VolumeOptions::new()
            .background(false)
            .on_damage(|damage| panic!("{damage}"))
            .open_device(Arc::clone(&device) as _)
            .unwrap();
        volume.create_new_file("/file").unwrap();
        let ((comes, has_come), (go, gone)) = (channel(), channel::<()>());
        let other = volume.clone();
        let caller = std::thread::spawn(move || {
            schedule::at(point, move || {
                comes.send(()).unwrap();
                gone.recv().unwrap();
            });
            call(&other)
        });
        has_come.recv().unwrap();
        volume.invalidate();
        let image = device.snapshot();
        go.send(()).unwrap();
        caller.join().unwrap().unwrap_err();
        assert!(image.to_bytes().unwrap() == device.to_bytes().unwrap());
    }

    /// Holds an fsync at a point of its fast commit until the volume is being closed by force. When the close has returned, no byte
    /// may change any more.
    fn ended_while_synced_at(point: Point) {
        let device = Arc::new(MemDevice::new(64 << 20));
        let options = MkfsOptions {
            size: Some(64 << 20),
            features: "fast_commit".into(),
            ..Default::default()
        };
        mkfs::format(&*device, &options).unwrap();
        let volume = VolumeOptions::new()
            .background(false)
            .open_device(Arc::clone(&device) as _)
            .unwrap();
        let sync = |volume: &Volume, path: &str| volume.create_new_file(path)?.sync_all();
        sync(&volume, "/before").unwrap();
        let (comes, has_come) = channel();
        let other = volume.clone();
        let caller = std::thread::spawn(move || {
            let held = other.clone();
            schedule::at(point, move || {
                comes.send(()).unwrap();
                while held.guard_engine().store.check_running().is_ok() {
                    std::thread::yield_now();
                }
            });
            sync(&other, "/file")
        });
        has_come.recv().unwrap();
        volume.invalidate();
        let image = device.snapshot();
        let _ = caller.join().unwrap();
        assert!(
            image.to_bytes().unwrap() == device.to_bytes().unwrap(),
            "{point:?}"
        );
    }

    #[test]
    fn a_forced_close_waits_for_fast_commits() {
        ended_while_synced_at(Point::FastCommitQueued);
        ended_while_synced_at(Point::FastCommitBegun);
    }

    /// The push has no pass of the gate, and found the volume running before it waits for its turn.
    #[test]
    fn a_push_that_waited_while_the_volume_was_cut_off_writes_nothing() {
        ended_at(Point::PushQueued, |volume| {
            volume.guard_engine().commit.push_all()
        });
    }

    /// The inode in core is gone with the volume, and its number is free on the device. That must not count as damage.
    #[test]
    fn what_a_closed_volume_lacks_is_no_damage() {
        ended_at(Point::NameFound, |volume| volume.remove_file("/file"));
    }
}

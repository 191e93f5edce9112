//! Home write-back ahead of the checkpoint, so that the push that empties the log finds little left to write.
//!
//! A checkpoint writes every dirty image home with the locks of the formatter and of the journal held, and every fsync
//! waits for it. When transactions are small, as behind fsyncs, the background thread begins to write home before the
//! log is half full, [`AT_ONCE`] images at a time with the journal's lock, and the log is emptied when few are left.
//!
//! Only images of durable contexts go home, and the log keeps them until it is emptied: a cut at any moment is
//! one during a checkpoint. The journal's lock keeps any other writer of homes away. It also keeps a context that frees
//! one of the blocks from being logged, so none of them can become a file's data while it is written.

use super::{Writer, home};
use crate::base::error::Result;
use crate::base::locks::MutexGuard;
use crate::base::{locks, schedule};
use crate::commit::Committer;
use ext4_format::BlockNr;
use std::sync::atomic::Ordering;

/// Images written home with one hold of the journal's lock.
pub const AT_ONCE: usize = 64;

/// Most images that a checkpoint should have left to write.
pub const LEFT: usize = 1024;

/// How full the log is, in blocks.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// All of it.
    pub len: usize,
    /// In use.
    pub used: usize,
    /// The last transaction.
    pub last: usize,
}

impl Fill {
    /// Most images that a checkpoint should have left.
    fn left(&self) -> usize {
        LEFT.min(self.len / 16)
    }

    /// Transactions are small: many more fit behind the middle of the log.
    fn in_small_steps(&self) -> bool {
        self.last < self.len / 16
    }

    /// Images should go home ahead of the checkpoint: of those dirty now, half as many may be left.
    pub fn wants_home(&self, dirty: usize) -> bool {
        self.in_small_steps() && self.used > self.len / 8 * 3 && dirty > self.left() / 2
    }

    /// The log must be emptied: more than half of it is used, and few images are left, or it is not worth the time,
    /// or there is none, to write them home first.
    pub fn is_due(&self, dirty: usize, ahead: bool) -> bool {
        let waits =
            ahead && self.in_small_steps() && dirty > self.left() && self.used <= self.len / 4 * 3;
        self.used > self.len / 2 && !waits
    }
}

impl Committer {
    /// Asks for the log to be emptied by the next push, or for images to be written home first.
    pub(in crate::commit) fn plan_checkpoint(
        &self,
        journal: &MutexGuard<'_, Writer, locks::Journal>,
    ) {
        let dirty = self.store.buffers.dirty_count();
        let bytes = dirty as u64 * u64::from(self.store.geometry.block_size);
        let ahead = self.log.kick.is_served();
        if journal.wants_checkpoint(dirty, ahead) || bytes > self.store.limits.cache_bytes / 4 {
            self.log.half_full.store(true, Ordering::Relaxed);
        } else if ahead && journal.wants_home(dirty) {
            self.log.kick.clean();
        }
    }

    /// Writes home what is dirty and durable, in steps between which pushes go on. The caller has passed the gate of
    /// a frozen volume.
    pub(crate) fn write_home_ahead(&self) -> Result<()> {
        let dirty = self.store.buffers.dirty(self.log.durable());
        let blocks: Vec<BlockNr> = dirty.into_iter().map(|(block, _)| block).collect();
        for some in blocks.chunks(AT_ONCE) {
            schedule::reached(schedule::Point::HomeAhead);
            let journal = self.journal.lock();
            self.store.check_running()?;
            if !journal.wants_home(self.store.buffers.dirty_count()) {
                // Another thread has emptied the log, or is about to find little left.
                return Ok(());
            }
            // As they are now: freed blocks are not among them.
            let images = self.store.buffers.dirty_of(some, self.log.durable());
            // Stopped before the next writer takes the lock.
            home::write_home(self, &images).inspect_err(|e| self.store.stop(e))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;
    use crate::log::kick::Asked;
    use crate::mkfs::{self, MkfsOptions};
    use crate::volume::engine::Engine;
    use blockdev::{BlockDevice, MemDevice};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_log_is_emptied_when_little_is_left_or_at_three_quarters() {
        let fill = |used, last| Fill {
            len: 16384,
            used,
            last,
        };
        // Small transactions.
        assert!(!fill(6144, 100).wants_home(6000));
        assert!(fill(6145, 100).wants_home(6000));
        assert!(!fill(6145, 100).wants_home(512));
        assert!(!fill(8192, 100).is_due(0, true));
        assert!(fill(8193, 100).is_due(1024, true));
        assert!(!fill(12288, 100).is_due(1025, true));
        assert!(fill(12289, 100).is_due(1025, true));
        // Nobody writes home ahead, or there is no time for it.
        assert!(fill(8193, 100).is_due(1025, false));
        assert!(fill(8193, 1024).is_due(1025, true));
        assert!(!fill(8193, 1024).wants_home(6000));
    }

    const SIZE: u64 = 64 << 20;
    const LEN: u64 = (16 << 20) / 1024 - 1;

    /// A volume whose log has 16,384 blocks, without a background thread.
    fn volume() -> (Arc<MemDevice>, Volume) {
        let device = Arc::new(MemDevice::new(SIZE));
        let options = MkfsOptions {
            size: Some(SIZE),
            journal_size: Some(16 << 20),
            ..Default::default()
        };
        mkfs::format(&*device, &options).unwrap();
        let volume = open(Arc::clone(&device));
        (device, volume)
    }

    fn open(device: Arc<MemDevice>) -> Volume {
        let options = crate::VolumeOptions::new().background(false);
        options.open_device(device).unwrap()
    }

    /// What the background thread does when it is asked; whether it was.
    fn serve(engine: &Engine) -> bool {
        let asked = engine.log.kick.wait(Duration::ZERO) == Some(Asked::Clean);
        if asked {
            engine.commit.write_home_ahead().unwrap();
        }
        asked
    }

    /// Small transactions, each with a few blocks that none before has changed, until the log has been emptied twice.
    /// The most images that a push wrote home.
    fn most_homed(ahead: bool) -> u64 {
        let (_device, volume) = volume();
        let engine = volume.guard_engine();
        assert_eq!(volume.log_state().blocks, LEN);
        let (mut emptied, mut before) = (0, 0);
        for round in 0..1000 {
            for n in 0..20 {
                volume.create_dir(format!("/{round}.{n}")).unwrap();
            }
            volume.sync().unwrap();
            let used = volume.log_state().used_blocks;
            emptied += usize::from(used < before);
            if emptied == 2 {
                break;
            }
            before = used;
            if ahead {
                serve(engine);
            }
        }
        assert_eq!(emptied, 2);
        let most = engine.commit.totals.most_homed();
        volume.close().unwrap();
        most
    }

    /// A push that empties the log, and all who wait for it, write a bounded number of images.
    #[test]
    fn a_checkpoint_that_fsyncs_wait_for_writes_few_images() {
        let (with, without) = (most_homed(true), most_homed(false));
        println!("images that a push wrote home: {with}, {without} without writing ahead");
        assert!(with <= LEFT as u64, "{with}");
        assert!(without > 3 * LEFT as u64, "{without}");
    }

    /// Creates directories until images should go home.
    fn fill(volume: &Volume) -> Vec<String> {
        let mut made = Vec::new();
        let engine = volume.guard_engine();
        engine.log.kick.wait(Duration::ZERO);
        for round in 0..1000 {
            for n in 0..20 {
                made.push(format!("/{round}.{n}"));
                volume.create_dir(&made[made.len() - 1]).unwrap();
            }
            volume.sync().unwrap();
            if engine.log.kick.wait(Duration::ZERO) == Some(Asked::Clean) {
                return made;
            }
        }
        panic!("nobody asked");
    }

    /// The device as a cut leaves it.
    fn cut(device: &MemDevice) -> Arc<MemDevice> {
        let copy = Arc::new(MemDevice::new(SIZE));
        let mut bytes = vec![0; 1 << 20];
        for at in (0..SIZE).step_by(bytes.len()) {
            device.read_at(at, &mut bytes).unwrap();
            copy.write_at(at, &bytes).unwrap();
        }
        copy
    }

    /// Blocks of directories are freed and become files' data between two steps: the images are not written over them.
    /// A cut at that moment, and one at the end, leaves the files and the directories that were synced.
    #[test]
    fn what_is_freed_meanwhile_is_not_written_home() {
        let (device, volume) = volume();
        let made = fill(&volume);
        let (gone, stay) = made.split_at(made.len() / 2);
        let (paths, inner) = (gone.to_vec(), volume.clone());
        let meanwhile = move || {
            paths.iter().for_each(|dir| inner.remove_dir(dir).unwrap());
            inner.sync().unwrap();
            // Far more data than the directories had blocks, into the first free blocks among others.
            for n in 0..paths.len() {
                inner.write(format!("/file.{n}"), [n as u8; 16384]).unwrap();
            }
            inner.sync().unwrap();
        };
        let before = volume.guard_engine().store.buffers.dirty_count();
        if !schedule::at(schedule::Point::HomeAhead, meanwhile) {
            return;
        }
        volume.guard_engine().commit.write_home_ahead().unwrap();
        let after = volume.guard_engine().store.buffers.dirty_count();
        println!("dirty images: {before}, then {after}");
        let check = |volume: &Volume| {
            for n in 0..gone.len() {
                let found = volume.read(format!("/file.{n}")).unwrap();
                assert!(found == [n as u8; 16384], "file {n}");
            }
            gone.iter()
                .for_each(|dir| assert!(volume.metadata(dir).is_err(), "{dir}"));
            stay.iter()
                .for_each(|dir| assert!(volume.metadata(dir).unwrap().is_dir(), "{dir}"));
        };
        let recovered = open(cut(&device));
        check(&recovered);
        recovered.close().unwrap();
        volume.close().unwrap();
        let again = open(device);
        check(&again);
        again.close().unwrap();
    }

    /// Between two steps the volume may stop: the next step sees it.
    #[test]
    fn a_stopped_volume_is_not_written_to() {
        let (_device, volume) = volume();
        fill(&volume);
        let engine = volume.guard_engine();
        engine.store.stop(&crate::Error::Stopped("the test".into()));
        let before = engine.store.buffers.dirty_count();
        engine.commit.write_home_ahead().unwrap_err();
        assert_eq!(engine.store.buffers.dirty_count(), before);
    }
}

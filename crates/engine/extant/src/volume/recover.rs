//! Recovery at opening: the log and then the fast commits are replayed, on the device, or in memory if the volume is
//! read-only.

use crate::base::error::Result;
use crate::commit::journal::recovery::{self, Recovering, Recovery};
use crate::commit::journal::{LogArea, home};
use crate::store::buffers::Buffers;
use crate::store::superblock;
use crate::volume::open::Opening;
use ext4_format::jbd2::{FastChange, Superblock};
use ext4_format::{BlockNr, FormatError};
use extant_formatter::fast_commit::{FreeSpace, Volume};
use extant_formatter::groups::{self, Groups};
use extant_formatter::image::Image;
use extant_formatter::system_zone::SystemZone;
use extant_formatter::{Formatter, Moment, Output, superblock_location};
use std::sync::Arc;

impl Opening<'_> {
    /// Replays the log onto the device. Fast commits become a transaction of the log first, so that they are replayed
    /// whole or not at all.
    pub(super) fn recover(&mut self, area: &LogArea, log: &mut Superblock) -> Result<Recovery> {
        let mut done = Recovery::default();
        loop {
            let plan = recovery::plan(area, log, self.blocks_of_device())?;
            let device = Arc::clone(&self.device);
            let recovering = Recovering {
                area,
                device: &*device,
                block_size: self.geometry.block_size,
            };
            recovering.write_home(&plan)?;
            self.read_superblock_again()?;
            let changes = recovery::fast_changes(area, log, &plan)?;
            done.add(&plan, changes.len());
            let Some(tid) = plan.fast_commits.filter(|_| !changes.is_empty()) else {
                recovering.empty(log, &plan)?;
                return Ok(done);
            };
            let output = self.format_fast(area, &changes, &self.buffers())?;
            for &run in &output.zeroed {
                home::zero(&*device, self.geometry.block_size, run)?;
            }
            recovering.log_batch(log, (&plan, tid), &output.blocks)?;
        }
    }

    /// Reads the superblock, which the log may have replaced.
    fn read_superblock_again(&mut self) -> Result<()> {
        let mut again = superblock::find(&*self.device)?;
        self.geometry = again.geometry;
        // An image in the log may be older than the errors recorded at its place.
        let before = again.raw;
        if again.raw.keep_errors(&self.raw) {
            again.raw.set_checksum_untorn(&before);
            self.put_superblock(&again.raw)?;
        }
        self.raw = again.raw;
        Ok(())
    }

    /// Applies the log's images, and those of fast commits, in memory, because nothing is written to a read-only
    /// volume.
    pub(super) fn recover_in_memory(
        &mut self,
        area: &LogArea,
        log: &Superblock,
        buffers: &Buffers,
    ) -> Result<Recovery> {
        let plan = recovery::plan(area, log, self.blocks_of_device())?;
        buffers.drop_clean();
        for replay in &plan.replay {
            buffers.publish(replay.home, Image::read(recovery::image(area, replay)?), 0);
        }
        let changes = recovery::fast_changes(area, log, &plan)?;
        if !changes.is_empty() {
            let output = self.format_fast(area, &changes, buffers)?;
            let zeros = Image::read(vec![0; self.geometry.block_size as usize]);
            for &(start, len) in &output.zeroed {
                for block in start.0..start.0 + u64::from(len) {
                    buffers.publish(BlockNr(block), Arc::clone(&zeros), 0);
                }
            }
        }
        let mut done = Recovery::default();
        done.add(&plan, changes.len());
        Ok(done)
    }

    /// Formats the changes of fast commits over the images of a volume whose log was replayed, and publishes the result
    /// there.
    fn format_fast(
        &self,
        area: &LogArea,
        changes: &[FastChange],
        buffers: &Buffers,
    ) -> Result<Output> {
        let geometry = &self.geometry;
        let groups = Groups::load(geometry, buffers)?;
        let hasher = self.hasher()?;
        let zone = Arc::new(SystemZone::new(geometry, &area.ranges()));
        let free = groups::count(geometry, buffers)?;
        let mut formatter = Formatter::new(geometry, free, buffers, hasher, Arc::clone(&zone), 1)?;
        let volume = Volume {
            geometry,
            images: buffers,
            groups: &groups,
            hasher: &hasher,
            zone: &zone,
        };
        let items = volume.items(changes)?;
        let space = FreeSpace::new(&volume, &items);
        let formatted = formatter.format(&items, buffers, &space, usize::MAX)?;
        let mut output = formatted.ok_or(FormatError::Unrepresentable("fast commits"))?;
        for (block, image) in &output.blocks {
            buffers.publish(*block, Arc::clone(image), 0);
        }
        let own = superblock_location(geometry).0;
        if let Ok(at) = output
            .blocks
            .binary_search_by_key(&own, |(block, _)| *block)
        {
            let now = crate::base::now().secs();
            let (block, image) = formatter.superblock_update(buffers, now, Moment::Sync, |_| {})?;
            buffers.publish(block, Arc::clone(&image), 0);
            output.blocks[at].1 = image;
        }
        Ok(output)
    }
}

//! The formatter: the only code that changes ext4 metadata blocks. Its input is a batch, its output block images.
//!
//! Pure and deterministic: no device, no clock, no lock of the layers above. It reads old blocks through
//! [`BlockImages`], and takes new ones through [`MetaSpace`] from the operations' reservations. So it cannot fail for
//! lack of space.

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::gaps::Gaps;
use crate::group_images::GroupImages;
use crate::groups::{DescTable, Totals};
use crate::image::{BlockImages, Image};
use crate::item::ItemList;
use crate::ledger::{Ledger, MetaSpace};
use crate::locks::Mutex;
use crate::orphans::Orphans;
use crate::system_zone::SystemZone;
use crate::threads::Crew;
use crate::unit::{Part, Published, Shared};
use crate::workspace::Workspace;
use crate::xattrs::{XattrBatch, XattrBlocks};
use crate::{bits, growth, superblock};
use ext4_format::geometry::Geometry;
#[cfg(test)]
use ext4_format::group_desc::GroupDesc;
use ext4_format::growth::Growth;
use ext4_format::hash::DirHasher;
use ext4_format::{BlockNr, GroupNr, InodeNr};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The output of one batch.
#[derive(Debug, Default)]
pub struct Output {
    /// Changed blocks with their new images, by block number.
    pub blocks: Vec<(BlockNr, Arc<Image>)>,
    /// The blocks with group descriptors, in order.
    pub descriptors: Vec<BlockNr>,
    /// Blocks of inode tables that come into use without an inode in them and hold old bytes on the device (the
    /// group's table was never zeroed). They must be zeros on the device before this batch is committed, written
    /// directly and not through the journal; a cached image is to be dropped.
    pub zeroed: Vec<(BlockNr, u32)>,
    /// Metadata blocks freed: revoked in the journal, forgotten by the cache.
    pub revoked: Vec<BlockNr>,
    /// Changes for stat.
    pub published: Vec<Published>,
    /// Inode numbers that were in use on disk before this batch and are free after it.
    pub freed_inodes: Vec<InodeNr>,
    /// The volume became larger by this.
    pub grown: Option<Box<Growth>>,
    /// Metadata blocks taken from [`MetaSpace`].
    pub taken: u64,
    /// Time that bringing the items into order took.
    pub sorting: Duration,
}

/// The formatter's state between batches: the descriptors as of the last one, the orphans, and the attribute blocks
/// that can be shared.
pub struct Formatter {
    pub(crate) geometry: Geometry,
    descs: DescTable,
    /// The sum of all descriptors.
    pub(crate) free: Totals,
    hasher: DirHasher,
    zone: Arc<SystemZone>,
    pub(crate) orphans: Orphans,
    /// The volume's new name, for the next batch.
    label: Option<[u8; 16]>,
    /// The volume becomes larger with the next batch.
    growth: Option<Box<Growth>>,
    xattrs: XattrBlocks,
    gaps: Gaps,
    /// State bits of the superblock when the volume was opened.
    pub(crate) found_state: u16,
    /// Errors that the superblock counted then.
    found_errors: u32,
    /// Threads that format a large batch.
    threads: usize,
}

impl Formatter {
    /// Sets the volume's label with the next batch.
    pub fn set_label(&mut self, label: [u8; 16]) {
        self.label = Some(label);
    }

    /// Grows the volume with the next batch. The blocks past the old end are on the device by then. The change of the
    /// old blocks fits half a transaction.
    pub fn grow(&mut self, growth: Growth) {
        self.growth = Some(Box::new(growth));
    }

    /// Returns the last group of a volume that becomes larger with the next batch.
    pub fn grows_from(&self) -> Option<GroupNr> {
        let growth = self.growth.as_ref()?;
        Some(GroupNr(growth.old.groups.saturating_sub(1)))
    }

    /// Returns the volume's own blocks.
    pub fn zone(&self) -> &Arc<SystemZone> {
        &self.zone
    }

    /// Makes a formatter for a volume whose journal is recovered. It uses up to `threads` threads for a large batch.
    /// Reads the superblock and the orphans.
    pub fn new(
        geometry: &Geometry,
        free: Totals,
        images: &dyn BlockImages,
        hasher: DirHasher,
        zone: Arc<SystemZone>,
        threads: usize,
    ) -> Result<Self> {
        let in_zone = Arc::clone(&zone);
        Self::build(geometry, free, images, hasher, zone, threads, |descs| {
            Orphans::load(geometry, descs, images, &in_zone)
        })
    }

    fn build(
        geometry: &Geometry,
        free: Totals,
        images: &dyn BlockImages,
        hasher: DirHasher,
        zone: Arc<SystemZone>,
        threads: usize,
        orphans: impl FnOnce(&DescTable) -> Result<Orphans>,
    ) -> Result<Self> {
        let descs = DescTable::new(geometry);
        let found = superblock::read(geometry, images)?;
        Ok(Self {
            geometry: geometry.clone(),
            hasher,
            free,
            orphans: orphans(&descs)?,
            zone,
            label: None,
            growth: None,
            xattrs: XattrBlocks::default(),
            gaps: Gaps::default(),
            found_state: found.state.get(),
            found_errors: found.error_count.get(),
            threads,
            descs,
        })
    }

    /// Makes a formatter for a read-only volume whose list of orphans is damaged.
    ///
    /// # Errors
    /// As of [`Formatter::new`].
    pub fn without_orphans(
        geometry: &Geometry,
        free: Totals,
        images: &dyn BlockImages,
        hasher: DirHasher,
        zone: Arc<SystemZone>,
    ) -> Result<Self> {
        Self::build(geometry, free, images, hasher, zone, 1, |_| {
            Ok(Orphans::none())
        })
    }

    /// Errors that the superblock counted when the volume was opened.
    pub fn found_errors(&self) -> u32 {
        self.found_errors
    }

    /// Returns the inodes to be finished at open: those without a link must be freed, the others truncated to their
    /// size.
    pub fn orphans(&self) -> Vec<InodeNr> {
        self.orphans.all()
    }

    /// Returns the descriptors as of the last batch.
    #[cfg(test)]
    pub fn descs(&self, images: &dyn BlockImages) -> Vec<GroupDesc> {
        let all = (0..self.geometry.groups).map(GroupNr);
        all.map(|g| *self.descs.get(&self.geometry, images, g).unwrap())
            .collect()
    }

    /// Turns a batch into changed blocks. `None` if they are more than `most`: then nothing has happened but
    /// that blocks were taken from `space`, and the batch is to come again in parts. After an error the
    /// formatter's state is that of no batch: the volume must stop.
    pub fn format(
        &mut self,
        items: &ItemList,
        images: &dyn BlockImages,
        space: &dyn MetaSpace,
        most: usize,
    ) -> Result<Option<Output>> {
        // Items count blocks, but bitmaps count clusters.
        if self.geometry.cluster_ratio != 1 {
            return Err(Error::Unsupported("changes of a volume with bigalloc"));
        }
        let (gaps, free, label) = (self.gaps.clone(), self.free, self.label);
        let mut output = self.apply(items, images, space)?;
        if output.blocks.len() <= most {
            if let Some(growth) = &output.grown {
                // From now on descriptors are read from the images that the caller publishes.
                self.geometry = growth.new.clone();
                self.descs = DescTable::new(&self.geometry);
                self.zone = Arc::new(self.zone.grown(&self.geometry));
            }
            return Ok(Some(output));
        }
        self.growth = output.grown.take();
        // Read again from the images, which this batch has not changed.
        self.descs = DescTable::new(&self.geometry);
        self.free = free;
        self.orphans = Orphans::load(&self.geometry, &self.descs, images, &self.zone)?;
        self.xattrs = XattrBlocks::default();
        self.gaps = gaps;
        self.label = label;
        Ok(None)
    }

    fn apply(
        &mut self,
        items: &ItemList,
        images: &dyn BlockImages,
        space: &dyn MetaSpace,
    ) -> Result<Output> {
        let start = Instant::now();
        let batch = Batch::new(items, self.threads)?;
        let sorting = start.elapsed();
        let shared = Shared {
            geometry: &self.geometry,
            images,
            space,
            zone: &self.zone,
            descs: &self.descs,
            hasher: &self.hasher,
            gaps: Mutex::new(&mut self.gaps),
            crew: Crew::of(self.threads),
            keeps_room: items.keeps_room,
        };
        let xattrs = XattrBatch {
            blocks: &mut self.xattrs,
            ws: Workspace::new(&self.geometry, images),
            ledger: Ledger::new(space, &self.zone),
        };
        let Part {
            mut ws,
            ledger,
            done,
        } = shared.run(&batch, xattrs)?;
        self.orphans.apply(&mut ws, &self.descs, &done.orphans)?;
        superblock::provide(&mut ws, done.needs)?;
        if let Some(label) = self.label.take() {
            superblock::change(&mut ws, |sb| sb.volume_name = label)?;
        }
        let runs = bits::net(items.bits.iter().chain(&ledger.bits).copied())?;
        let mut groups = GroupImages::new(&mut ws, &mut self.descs);
        groups.blocks(&runs)?;
        groups.inodes(&done.bits)?;
        let (blocks, inodes) = groups.change;
        self.free.blocks = self.free.blocks.saturating_add_signed(blocks);
        self.free.inodes = self.free.inodes.saturating_add_signed(inodes);
        let mut descriptors = groups.descriptors()?;
        let grown = self.growth.take();
        if let Some(growth) = &grown {
            descriptors.extend(growth::apply(&mut ws, &mut self.descs, growth)?);
            descriptors.sort_unstable();
            descriptors.dedup();
            let (blocks, inodes) = growth.free();
            self.free.blocks += blocks;
            self.free.inodes += inodes;
        }
        let (blocks, revoked) = ws.finish();
        Ok(Output {
            blocks,
            descriptors,
            zeroed: done.zeroed,
            revoked,
            published: done.published,
            freed_inodes: done.freed,
            grown,
            taken: ledger.taken,
            sorting,
        })
    }
}

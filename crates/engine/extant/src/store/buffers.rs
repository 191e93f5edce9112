//! Metadata block images in memory (mechanism L6): sharded by block number, no global list, no LRU lock.
//!
//! An image never changes: the formatter makes a new one and [`Buffers::publish`]es it, so a reader keeps a
//! consistent block for as long as it holds the [`Image`]. A published image is *dirty* until a checkpoint has
//! written it home. Dirty images stay in memory; a second-chance sweep drops clean ones of a shard that is over its
//! share, when a block is read and when many have become clean.

use crate::base::error::{Error, Result};
use crate::base::locks::{self, Mutex};
use crate::base::planted::{self, Fault};
use crate::base::schedule::{self, Point};
use blockdev::BlockDevice;
use ext4_format::BlockNr;
use extant_formatter::block_memory;
use extant_formatter::image::{BlockImages, Image, NumberMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Entry {
    image: Arc<Image>,
    /// Context that made the image, if it is dirty.
    dirty: Option<u64>,
    used: bool,
}

#[derive(Default)]
struct Shard {
    map: NumberMap<u64, Entry>,
    dirty: usize,
    /// Blocks that threads are reading from the device, with the tickets of the reads. A block that gets another
    /// image meanwhile is removed.
    reading: Vec<(u64, u64)>,
    tickets: u64,
}

impl Shard {
    /// Begins a read of the block from the device.
    fn begin_read(&mut self, block: BlockNr) -> u64 {
        self.tickets += 1;
        self.reading.push((block.0, self.tickets));
        self.tickets
    }

    /// Ends the read. Returns false if the block has got another image meanwhile.
    fn end_read(&mut self, block: BlockNr, ticket: u64) -> bool {
        let found = self.reading.iter().position(|r| *r == (block.0, ticket));
        found.map(|at| self.reading.swap_remove(at)).is_some() || planted::is(Fault::StaleBuffer)
    }

    /// Makes reads of the block that are in progress outdated, because the image is replaced or dropped.
    fn outdate_reads(&mut self, block: BlockNr) {
        if !self.reading.is_empty() {
            self.reading.retain(|(b, _)| *b != block.0);
        }
    }

    /// Replaces the image of a block. Returns the old entry.
    fn replace(&mut self, block: BlockNr, image: Arc<Image>, dirty: Option<u64>) -> Option<Entry> {
        self.outdate_reads(block);
        let used = true;
        self.map.insert(block.0, Entry { image, dirty, used })
    }
}

const SHARDS: usize = 64;

/// The cache of metadata block images of one volume.
pub struct Buffers {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    shards: Box<[Mutex<Shard, locks::Buffers>]>,
    clean_per_shard: usize,
    dirty: AtomicUsize,
    /// The last field, so that the images of the shards are dropped before it.
    _memory: block_memory::User,
}

impl Buffers {
    /// Makes a cache that keeps about `clean_limit` clean blocks.
    pub fn new(device: Arc<dyn BlockDevice>, block_size: u32, clean_limit: usize) -> Self {
        Self {
            device,
            block_size,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            clean_per_shard: (clean_limit / SHARDS).max(16),
            dirty: AtomicUsize::new(0),
            _memory: block_memory::User::new(),
        }
    }

    fn shard(&self, block: BlockNr) -> &Mutex<Shard, locks::Buffers> {
        // Runs of 16 blocks share a shard: an inode table's neighbours are used together.
        &self.shards[(block.0 >> 4) as usize % SHARDS]
    }

    /// Returns the image of a block, from memory or from the device.
    pub fn read(&self, block: BlockNr) -> Result<Arc<Image>> {
        self.find_or_read(block)
            .map_err(|e| Error::block_io("read", block, e))
    }

    fn find_or_read(&self, block: BlockNr) -> io::Result<Arc<Image>> {
        loop {
            let mut shard = self.shard(block).lock();
            if let Some(image) = Self::find(&mut shard, block) {
                return Ok(image);
            }
            let ticket = shard.begin_read(block);
            drop(shard);
            let mut bytes = vec![0; self.block_size as usize];
            let read = self
                .device
                .read_at(block.offset(self.block_size), &mut bytes);
            schedule::reached(Point::BlockRead);
            let mut shard = self.shard(block).lock();
            let current = shard.end_read(block, ticket);
            read?;
            // A newer image may have been published, written home and evicted: the read bytes may be older, or a mix of
            // both.
            if current {
                if shard.map.len() - shard.dirty >= self.clean_per_shard {
                    Self::sweep(&mut shard);
                }
                // Another reader may have been faster: its image is the same.
                let entry = shard.map.entry(block.0).or_insert(Entry {
                    image: Image::read(bytes),
                    dirty: None,
                    used: false,
                });
                return Ok(Arc::clone(&entry.image));
            }
        }
    }

    /// Copies the bytes of dirty images into `buf`, which holds the bytes of the device from `block` and a byte within.
    pub fn overlay_dirty(&self, block: BlockNr, within: usize, buf: &mut [u8]) {
        let size = self.block_size as usize;
        let (mut block, mut within, mut rest) = (block, within, buf);
        while !rest.is_empty() {
            let here = rest.len().min(size.saturating_sub(within));
            let (part, behind) = rest.split_at_mut(here);
            let shard = self.shard(block).lock();
            let dirty = shard.map.get(&block.0).filter(|e| e.dirty.is_some());
            if let Some(newer) = dirty.and_then(|e| e.image.get(within..within + here)) {
                part.copy_from_slice(newer);
            }
            (block, within, rest) = (BlockNr(block.0.saturating_add(1)), 0, behind);
        }
    }

    /// Returns the image if it is in memory.
    #[cfg(test)]
    pub fn peek(&self, block: BlockNr) -> Option<Arc<Image>> {
        Self::find(&mut self.shard(block).lock(), block)
    }

    fn find(shard: &mut Shard, block: BlockNr) -> Option<Arc<Image>> {
        let entry = shard.map.get_mut(&block.0)?;
        entry.used = true;
        Some(Arc::clone(&entry.image))
    }

    fn sweep(shard: &mut Shard) {
        let mut quota = shard.map.len() / 4;
        shard.map.retain(|_, e| {
            if e.dirty.is_some() || quota == 0 {
                return true;
            }
            if std::mem::take(&mut e.used) {
                return true;
            }
            quota -= 1;
            false
        });
    }

    /// Publishes the formatter's new image of a block, made in a context. The image is dirty until it is home.
    pub fn publish(&self, block: BlockNr, image: Arc<Image>, context: u64) {
        let mut shard = self.shard(block).lock();
        let old = shard.replace(block, image, Some(context));
        if old.is_none_or(|e| e.dirty.is_none()) {
            shard.dirty += 1;
            self.dirty.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds an image that the caller has written home itself.
    pub fn replace_clean(&self, block: BlockNr, image: Arc<Image>) {
        let mut shard = self.shard(block).lock();
        let old = shard.replace(block, image, None);
        self.count_gone(&mut shard, old);
    }

    /// Drops the image of a block that no longer holds metadata, because the image must never be written home.
    pub fn forget(&self, block: BlockNr) {
        let mut shard = self.shard(block).lock();
        shard.outdate_reads(block);
        let old = shard.map.remove(&block.0);
        self.count_gone(&mut shard, old);
    }

    /// Counts an image that has left its shard, which may have been dirty.
    fn count_gone(&self, shard: &mut Shard, old: Option<Entry>) {
        if old.is_some_and(|e| e.dirty.is_some()) {
            shard.dirty -= 1;
            self.dirty.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of blocks in memory.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|s| s.lock().map.len()).sum()
    }

    /// Returns the number of dirty blocks.
    pub fn dirty_count(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Returns the dirty images made in contexts up to `context`, by block number. Only one caller at a time writes
    /// home.
    pub fn dirty(&self, context: u64) -> Vec<(BlockNr, Arc<Image>)> {
        let mut all = Vec::with_capacity(self.dirty_count());
        for shard in &self.shards {
            let shard = shard.lock();
            all.extend(
                shard
                    .map
                    .iter()
                    .filter(|(_, e)| e.dirty.is_some_and(|c| c <= context))
                    .map(|(&b, e)| (BlockNr(b), Arc::clone(&e.image))),
            );
        }
        all.sort_unstable_by_key(|(b, _)| *b);
        all
    }

    /// Marks images that were written home as clean. An image that was replaced meanwhile stays dirty.
    pub fn mark_clean(&self, homed: &[(BlockNr, Arc<Image>)]) {
        for (block, image) in homed {
            let mut shard = self.shard(*block).lock();
            let same = |e: &Entry| e.dirty.is_some() && Arc::ptr_eq(&e.image, image);
            if let Some(entry) = shard.map.get_mut(&block.0).filter(|e| same(e)) {
                entry.dirty = None;
                shard.dirty -= 1;
                self.dirty.fetch_sub(1, Ordering::Relaxed);
            }
        }
        // A thread that only publishes blocks reads none, and would never sweep.
        for shard in &self.shards {
            self.bound(&mut shard.lock());
        }
    }

    /// Drops the surplus of clean images, first those not used since the last sweep.
    fn bound(&self, shard: &mut Shard) {
        let clean = shard.map.len() - shard.dirty;
        let mut over = clean.saturating_sub(self.clean_per_shard);
        for any in [false, true] {
            if over == 0 {
                return;
            }
            shard.map.retain(|_, e| {
                let stays = e.dirty.is_some() || over == 0 || (std::mem::take(&mut e.used) && !any);
                over -= usize::from(!stays);
                stays
            });
        }
    }

    /// Drops every image, dirty ones too: nothing will be written any more.
    pub fn clear(&self) {
        for shard in &self.shards {
            *shard.lock() = Shard::default();
        }
        self.dirty.store(0, Ordering::Relaxed);
    }

    /// Drops every clean image (forced re-read).
    pub fn drop_clean(&self) {
        for shard in &self.shards {
            shard.lock().map.retain(|_, e| e.dirty.is_some());
        }
    }
}

impl BlockImages for Buffers {
    fn image(&self, block: BlockNr) -> extant_formatter::Result<Arc<Image>> {
        self.find_or_read(block)
            .map_err(|source| extant_formatter::Error::Read { block, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that are published and written home, and never read, leave memory too.
    #[test]
    fn what_is_home_is_bounded_without_a_read() {
        let device = Arc::new(blockdev::MemDevice::new(64 << 20));
        let buffers = Buffers::new(device, 4096, SHARDS * 20);
        for context in 1..=10 {
            for n in 0..1500 {
                let block = BlockNr(context * 1500 + n);
                buffers.publish(block, Image::made(vec![1; 4096]), context);
            }
            let dirty = buffers.dirty(context);
            assert_eq!(dirty.len(), 1500);
            buffers.mark_clean(&dirty);
            assert_eq!(buffers.dirty_count(), 0);
            assert!(buffers.count() <= SHARDS * 20, "{}", buffers.count());
        }
        // Dirty images stay, however many they are.
        for n in 0..3000 {
            buffers.publish(BlockNr(n), Image::made(vec![1; 4096]), 11);
        }
        buffers.mark_clean(&[]);
        assert_eq!(buffers.dirty(11).len(), 3000);
        assert!((0..3000).all(|n| buffers.peek(BlockNr(n)).is_some()));
    }

    /// A reader reads a block from the device; before the read returns the block gets a new image, which goes home
    /// and leaves memory. The reader's bytes are older than the device then, and must not become the block's image.
    #[test]
    fn a_slow_read_does_not_bring_an_old_block_back() {
        let device = Arc::new(blockdev::MemDevice::new(1 << 20));
        let buffers = Buffers::new(Arc::clone(&device) as Arc<dyn BlockDevice>, 4096, 64);
        let (block, read) = (BlockNr(7), std::sync::mpsc::channel());
        let (replaced, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|s| {
            let reader = s.spawn(|| {
                let (told, wait) = (read.0, wait);
                schedule::at(Point::BlockRead, move || {
                    told.send(()).unwrap();
                    wait.recv().unwrap();
                });
                buffers.read(block).map(|image| image[0])
            });
            read.1.recv().unwrap();
            let image = Image::made(vec![9; 4096]);
            buffers.publish(block, Arc::clone(&image), 1);
            device.write_at(7 * 4096, &image).unwrap();
            buffers.mark_clean(&[(block, image)]);
            buffers.drop_clean();
            replaced.send(()).unwrap();
            assert_eq!(reader.join().unwrap().unwrap(), 9);
        });
        assert_eq!(buffers.read(block).unwrap()[0], 9);
    }
}

//! One mutant: its creation, and the steps of its test.

use crate::bases::Base;
use crate::common::Rng;
use crate::images::judge::{self, Verdict};
use crate::images::{commands, engine, server};
use crate::map::{Log, What};
use crate::mutate::{Targets, mutate};
use blockdev::{BlockDevice, MemDevice};
use ext4_format::group_desc::GroupDesc;
use ext4_format::{BlockNr, GroupNr, InodeNr, bitmap};
use extant::VolumeOptions;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device that records whether it was written to.
pub struct Watched {
    pub inner: MemDevice,
    written: AtomicBool,
}

impl BlockDevice for Watched {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.written.store(true, Ordering::Relaxed);
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn read_only(&self) -> bool {
        false
    }
}

impl Watched {
    fn new(inner: &MemDevice) -> Arc<Self> {
        Arc::new(Self {
            inner: inner.snapshot(),
            written: AtomicBool::new(false),
        })
    }
}

/// Returns the file that keeps the image after the last finding.
pub fn after() -> PathBuf {
    format!("{}/mutant-after.img", env!("CARGO_TARGET_TMPDIR")).into()
}

pub fn options() -> VolumeOptions {
    VolumeOptions::new().background(false).cache_bytes(8 << 20)
}

/// A mutant, and its place in a base.
pub struct Mutant<'a> {
    base: &'a Base,
    device: MemDevice,
    touched: BTreeSet<u64>,
    rng: Rng,
}

/// Offset of the superblock's three words of features.
const FEATURES: u64 = 1024 + 0x5c;

impl<'a> Mutant<'a> {
    pub fn new(base: &'a Base, targets: &Targets<'_>, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let device = base.device.snapshot();
        let mut touched = match rng.below(16) {
            0 => BTreeSet::new(),
            _ => mutate(&device, targets, &mut rng),
        };
        if touched.is_empty() || rng.below(12) == 0 {
            let at = FEATURES + rng.below(12);
            let mut byte = [0];
            device.read_at(at, &mut byte).unwrap();
            device.write_at(at, &[byte[0] ^ 1 << rng.below(8)]).unwrap();
            touched.insert(1024 / base.block as u64);
        }
        if rng.below(12) == 0 {
            // A whole bitmap of zeros, of ones, or of noise.
            let is_bitmap = |w: &What| matches!(w, What::BlockBitmap(_) | What::InodeBitmap(_));
            let bitmaps: Vec<u64> = (base.map.blocks.iter())
                .filter(|(_, what)| is_bitmap(what))
                .map(|(&nr, _)| nr)
                .collect();
            let nr = bitmaps[rng.below(bitmaps.len() as u64) as usize];
            let mut bytes = vec![0; base.block];
            match rng.below(4) {
                0 => bytes.fill(0xff),
                1 => bytes.fill_with(|| rng.next() as u8),
                _ => {}
            }
            device.write_at(nr * base.block as u64, &bytes).unwrap();
            touched.insert(nr);
        }
        if base.kind.sealed && rng.below(16) != 0 {
            base.map.seal(&device, &touched);
        }
        Self {
            base,
            device,
            touched,
            rng,
        }
    }

    /// Saves the image in its initial state.
    pub fn save(&self, path: &Path) {
        crate::common::write_image(&self.device, path);
    }

    /// Runs all steps on the mutant; the error is a finding. `scratch` is a file to work with.
    pub fn run(&mut self, scratch: &Path) -> Result<(), String> {
        let read_only = options().read_only(true);
        if let Ok(volume) = read_only.open_device(Watched::new(&self.device)) {
            engine::read(&volume);
            let _ = volume.close();
        }
        if let Ok(volume) = options()
            .noload(true)
            .open_device(Watched::new(&self.device))
        {
            engine::read(&volume);
        }
        let device = Watched::new(&self.device);
        if let Ok(volume) = options().open_device(Arc::clone(&device) as _) {
            engine::change(&volume, &mut self.rng);
            let _ = volume.close();
            if let Ok(volume) = options().open_device(Arc::clone(&device) as _) {
                let _ = volume.close();
            }
        }
        self.judge(&device, "the library", scratch)?;
        let device = Watched::new(&self.device);
        if let Ok(volume) = options().open_device(Arc::clone(&device) as _) {
            server::serve(&volume, &mut self.rng);
            let _ = volume.close();
        }
        self.judge(&device, "the server", scratch)?;
        if self.rng.below(64) == 0 {
            let path = scratch.with_extension("command");
            self.save(&path);
            commands::run(&path, &mut self.rng)?;
            let bytes = std::fs::read(&path).unwrap_or_default();
            let after = judge::verdict(&MemDevice::from_bytes(&bytes), scratch);
            self.compare(after, "the command", scratch)?;
        }
        Ok(())
    }

    fn judge(&self, device: &Watched, who: &str, scratch: &Path) -> Result<(), String> {
        if !device.written.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.compare(judge::verdict(&device.inner, scratch), who, scratch)
            .inspect_err(|_| crate::common::write_image(&device.inner, &after()))
    }

    /// Fails if the image is worse than before. A clean image needs no comparison.
    fn compare(
        &self,
        after: Option<(Verdict, String)>,
        who: &str,
        scratch: &Path,
    ) -> Result<(), String> {
        let Some((after, text)) = after.filter(|(v, _)| *v > Verdict::Clean) else {
            return Ok(());
        };
        let Some((before, earlier)) = self.before(scratch) else {
            return Ok(());
        };
        let unseen = || {
            self.lies()
                || self.points_at_free(&text)
                || self.leads_to_free(&text)
                || judge::outlives_its_names(&text, &earlier)
        };
        if after <= before || (before, after) == (Verdict::Mended, Verdict::Broken) && unseen() {
            return Ok(());
        }
        if after == Verdict::Mended && judge::only_orphans(&text) {
            return Ok(());
        }
        Err(format!(
            "{who} made it worse: {before:?} before, {after:?} after\n{text}"
        ))
    }

    /// Returns the verdict before any step. The engine checks only the first sector of a commit block, like newer
    /// kernels. e2fsck 1.47.0 ends the log before a commit block with other bytes after that sector, and so misses the
    /// later transactions. In that case the image is judged after a replay of the log and no other change.
    fn before(&self, scratch: &Path) -> Option<(Verdict, String)> {
        let (worst, text) = judge::worst(&self.device, scratch)?;
        if !judge::ends_early(&self.device, scratch) {
            return Some((worst, text));
        }
        let device = Watched::new(&self.device);
        if let Ok(volume) = options().open_device(Arc::clone(&device) as _) {
            let _ = volume.close();
        }
        let (replayed, more) = judge::verdict(&device.inner, scratch)?;
        Some((worst.max(replayed), text + &more))
    }

    /// Returns whether a bitmap marks a used block or inode as free, and every other structure that the engine reads
    /// agrees: the count in its descriptor, and the checksum, if there is one. Only a walk through all inodes would
    /// reveal the error, and neither this engine nor the kernel walks all inodes when it opens a volume. The engine
    /// then allocates blocks that the bitmap wrongly marks as free.
    fn lies(&self) -> bool {
        let agrees = |group: GroupNr, blocks: bool| self.agreeing_bitmap(group, blocks).is_some();
        self.touched
            .iter()
            .any(|nr| match self.base.map.blocks.get(nr) {
                Some(What::BlockBitmap(group)) => agrees(*group, true),
                Some(What::InodeBitmap(group)) => agrees(*group, false),
                // In the log: after the replay, the home location counts.
                Some(What::Log(Log::Image { home, .. })) => matches!(
                    self.base.map.blocks.get(home),
                    Some(What::BlockBitmap(_) | What::InodeBitmap(_) | What::Descriptors { .. })
                ),
                _ => false,
            })
    }

    /// Returns whether a changed mapping names a block that is free by its bitmap, and the count in the descriptor
    /// agrees. Only a walk through all mappings shows that such a block belongs to a file; neither this engine nor the
    /// kernel makes that walk when it opens a volume, and neither reads the mapping of the inode of reserved
    /// descriptors at all. e2fsck makes the walk first and marks the block as in use. The engine allocates the block
    /// to another file; then two files claim it, or a reader interprets the other file's data as pointers. All
    /// complaints but these two are findings.
    /// file's data for pointers. All complaints but these two are findings.
    fn points_at_free(&self, text: &str) -> bool {
        if !text.contains("has illegal block(s)") && !text.contains("ultiply-claimed block(s)") {
            return false;
        }
        let geo = self.base.map.geometry();
        let is_free = |block: u64| {
            let place = geo.group_of_block(BlockNr(block));
            place.is_some_and(|(group, bit)| {
                let map = self.agreeing_bitmap(group, true);
                map.is_some_and(|map| !bitmap::test(&map, bit))
            })
        };
        let names_free = |at: u64, len: usize| {
            let (mut was, mut is) = (vec![0; len], vec![0; len]);
            let read = self.base.device.read_at(at, &mut was);
            let read = read.and_then(|()| self.device.read_at(at, &mut is));
            read.is_ok() && named_anew(&was, &is).any(is_free)
        };
        let block = self.base.block;
        self.touched.iter().any(|&nr| {
            let at = nr * block as u64;
            match self.base.map.blocks.get(&nr) {
                // The inode of reserved descriptors is not in the map.
                None | Some(What::Extents { .. }) => names_free(at, block),
                Some(What::Inodes { .. }) => {
                    let here = self.base.map.inodes.iter().filter(|i| i.0 == nr);
                    let mut roots = here.map(|i| at + i.1 as u64 + I_BLOCK);
                    roots.any(|at| names_free(at, 60))
                }
                _ => false,
            }
        })
    }

    /// Returns whether a changed name leads to an inode number that is free by its bitmap, and the count in the
    /// descriptor agrees. Before the steps, e2fsck removes the name without a question. Neither this engine nor the
    /// kernel reads the inode of a name before it is needed, and both allocate the number to the next new file. If
    /// that file is of another type than the name says, e2fsck asks. All complaints but this one are findings.
    fn leads_to_free(&self, text: &str) -> bool {
        if !text.contains("has an incorrect filetype") {
            return false;
        }
        let geo = self.base.map.geometry();
        let is_free = |number: u64| {
            let ino = u32::try_from(number).map(InodeNr).ok();
            let place = ino.and_then(|ino| geo.group_of_inode(ino));
            place.is_some_and(|(group, index)| {
                let map = self.agreeing_bitmap(group, false);
                map.is_some_and(|map| !bitmap::test(&map, index))
            })
        };
        let block = self.base.block;
        let is_leaf = |nr: &u64| matches!(self.base.map.blocks.get(nr), Some(What::Leaf { .. }));
        self.touched.iter().any(|nr| {
            let home = match self.base.map.blocks.get(nr) {
                Some(What::Log(Log::Image { home, .. })) => home,
                _ => nr,
            };
            let at = nr * block as u64;
            let (mut was, mut is) = (vec![0; block], vec![0; block]);
            let read = self.base.device.read_at(at, &mut was);
            let read = read.and_then(|()| self.device.read_at(at, &mut is));
            // A name's record begins with the number, at a multiple of four bytes.
            is_leaf(home) && read.is_ok() && named_anew(&was, &is).any(is_free)
        })
    }

    /// Returns a group's bitmap of blocks or of inodes, if its descriptor counts as many as are free by it.
    fn agreeing_bitmap(&self, group: GroupNr, blocks: bool) -> Option<Vec<u8>> {
        let geo = self.base.map.geometry();
        let (block, offset) = geo.desc_location(group);
        let mut bytes = vec![0; geo.desc_size.into()];
        let at = block.offset(geo.block_size) + u64::from(offset);
        self.device.read_at(at, &mut bytes).ok()?;
        let desc = GroupDesc::decode(&bytes, geo, group).ok()?;
        let (place, bits, count) = if blocks {
            (
                desc.block_bitmap,
                geo.blocks_in_group(group),
                desc.free_blocks,
            )
        } else {
            (desc.inode_bitmap, geo.inodes_per_group, desc.free_inodes)
        };
        let mut map = vec![0; self.base.block];
        let read = self.device.read_at(place.offset(geo.block_size), &mut map);
        read.ok()?;
        (bitmap::count_zeros(&map, bits) == count).then_some(map)
    }
}

/// Byte of an inode's record where its mapping begins.
const I_BLOCK: u64 = 40;

/// Returns the blocks that a node of a mapping names now but not before: of a node of extents, or of pointers.
fn named_anew<'n>(was: &'n [u8], is: &'n [u8]) -> Box<dyn Iterator<Item = u64> + 'n> {
    let word = |b: &[u8], at: usize| {
        let bytes = b.get(at..at + 4).and_then(|b| b.try_into().ok());
        u64::from(bytes.map_or(0, u32::from_le_bytes))
    };
    let changed = |size: usize| {
        let pairs = was.chunks_exact(size).zip(is.chunks_exact(size));
        pairs.filter(|(was, is)| was != is).map(|(_, is)| is)
    };
    if !was.starts_with(&[0x0a, 0xf3]) {
        return Box::new(changed(4).map(move |p| word(p, 0)).filter(|&p| p != 0));
    }
    let leaf = was.get(6..8) == Some(&[0, 0]);
    // A changed header is not an entry.
    let entries = changed(12).filter(|e| !e.starts_with(&[0x0a, 0xf3]));
    Box::new(entries.flat_map(move |entry| {
        // Above 32,768 the length is that of an unwritten extent.
        let len = match word(entry, 4) & 0xffff {
            len @ 0..=0x8000 => len,
            len => len - 0x8000,
        };
        if leaf {
            word(entry, 8)..word(entry, 8) + len
        } else {
            word(entry, 4)..word(entry, 4) + 1
        }
    }))
}

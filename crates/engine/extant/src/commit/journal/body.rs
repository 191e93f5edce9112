//! Writing the body of a journal transaction into the log: revoke blocks, then stretches of a descriptor block and the
//! images that it lists. The place of each is known before the first is written, and until the next flush they may
//! reach the medium in any order. So several threads check and write them.

use super::LogArea;
use crate::base::error::{Error, Result};
use crate::base::parallel;
use ext4_format::BlockNr;
use ext4_format::jbd2::{self, DescriptorWriter, Format, RevokeWriter, Tid};
use extant_formatter::image::Image;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Smallest number of stretches (of 1 MB each, with blocks of 4 KiB) that is worth another thread.
const STRETCHES: usize = 4;

/// The place of a transaction, and the format of its blocks.
pub struct Body<'a> {
    pub area: &'a LogArea,
    pub format: &'a Format,
    /// Blocks of the log, which is a ring.
    pub log: Range<u32>,
    /// First block of the transaction.
    pub start: u32,
    pub tid: Tid,
}

impl Body<'_> {
    /// Writes the transaction without its commit block, and returns the place of that block.
    pub fn write(&self, revoked: &[BlockNr], blocks: &[(BlockNr, Arc<Image>)]) -> Result<u32> {
        let revokes = self.revokes(revoked)?;
        let revokes: Vec<&[u8]> = revokes.iter().map(|block| &**block).collect();
        self.put(0, &revokes)?;
        let each = self.format.tags_per_block().max(1);
        let stretches: Vec<_> = blocks.chunks(each).collect();
        let threads = parallel::threads_for(stretches.len(), STRETCHES);
        parallel::for_each(threads, &stretches, |i, stretch| {
            self.stretch(revokes.len() + i * (each + 1), stretch)
        })?;
        Ok(self.block(revokes.len() + stretches.len() + blocks.len()).0)
    }

    fn revokes(&self, mut revoked: &[BlockNr]) -> Result<Vec<Vec<u8>>> {
        let mut blocks = Vec::new();
        while !revoked.is_empty() {
            let mut block = vec![0; self.format.block_size as usize];
            let mut writer = RevokeWriter::new(self.format, &mut block, self.tid)?;
            let mut n = 0;
            while n < revoked.len() && writer.push(revoked[n])? {
                n += 1;
            }
            writer.finish();
            revoked = &revoked[n..];
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// Writes a descriptor block and the images that it lists. `at` is the distance in blocks from the start.
    fn stretch(&self, at: usize, images: &[(BlockNr, Arc<Image>)]) -> Result<()> {
        let mut descriptor = vec![0; self.format.block_size as usize];
        let mut writer = DescriptorWriter::new(self.format, &mut descriptor, self.tid)?;
        let mut logged = Vec::with_capacity(images.len());
        for (home, image) in images {
            let image = if jbd2::needs_escape(image) {
                let mut copy = image.to_vec();
                jbd2::escape(&mut copy);
                Cow::Owned(copy)
            } else {
                Cow::Borrowed(&***image)
            };
            let sum = self.format.image_checksum(self.tid, &image);
            if !writer.push(*home, sum, matches!(image, Cow::Owned(_)))? {
                return Err(Error::Stopped("a descriptor block is full too soon".into()));
            }
            logged.push(image);
        }
        writer.finish();
        let mut blocks: Vec<&[u8]> = Vec::with_capacity(1 + logged.len());
        blocks.push(&descriptor);
        blocks.extend(logged.iter().map(|image| &**image));
        self.put(at, &blocks)
    }

    /// Returns the log's block at this distance from the start, and the number of blocks from there to the log's end.
    fn block(&self, behind: usize) -> (u32, usize) {
        let len = self.log.len().max(1);
        let at = ((self.start - self.log.start) as usize + behind) % len;
        (self.log.start + at as u32, len - at)
    }

    /// Writes adjacent blocks, the first at distance `behind` from the start.
    fn put(&self, behind: usize, blocks: &[&[u8]]) -> Result<()> {
        let (at, room) = self.block(behind);
        let (here, wrapped) = blocks.split_at(blocks.len().min(room));
        self.area.write(at, here)?;
        self.area.write(self.log.start, wrapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::journal::recovery;
    use blockdev::{BlockDevice, MemDevice};
    use ext4_format::jbd2::{Commit, MAGIC, Superblock};
    use extant_formatter::extent_map::{ExtentMap, Run};

    const BLOCK: usize = 1024;

    /// Makes a log in the blocks 0 to 2047 of the device.
    fn area(device: &Arc<MemDevice>) -> LogArea {
        let mut map = ExtentMap::default();
        map.append(Run {
            logical: 0,
            len: 2048,
            physical: BlockNr(0),
            unwritten: false,
        });
        LogArea::new(
            Arc::clone(device) as Arc<dyn BlockDevice>,
            BLOCK as u32,
            map,
        )
    }

    #[test]
    fn what_is_written_around_the_end_is_replayed() {
        let device = Arc::new(MemDevice::new(4096 * BLOCK as u64));
        let area = area(&device);
        let features = Superblock::default_features(true, true);
        let mut superblock = Superblock::new(BLOCK as u32, 2048, features, [7; 16]);
        let (tid, start) = (Tid(5), 1800);
        superblock.start = start;
        superblock.sequence = tid;
        let format = superblock.format();
        let body = Body {
            area: &area,
            format: &format,
            log: superblock.log_range(),
            start,
            tid,
        };
        // Enough images for several threads. Every fifth must be escaped.
        let images: Vec<_> = (0..900)
            .map(|i: u32| {
                let mut bytes = vec![i as u8; BLOCK];
                if i.is_multiple_of(5) {
                    bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
                }
                (BlockNr(3000 + u64::from(i)), Image::made(bytes))
            })
            .collect();
        let revoked: Vec<_> = (0..300).map(|i| BlockNr(2100 + i)).collect();
        let commit_at = body.write(&revoked, &images).unwrap();
        let descriptors = 900_usize.div_ceil(format.tags_per_block());
        let revokes = 300_usize.div_ceil(format.revokes_per_block());
        let end = start as usize + revokes + descriptors + 900 - 2047;
        assert_eq!(commit_at as usize, end, "behind all, around the end");
        let mut block = vec![0; BLOCK];
        let commit = Commit {
            tid,
            secs: 0,
            nanos: 0,
            transaction_crc: None,
        };
        commit.write(&format, &mut block).unwrap();
        area.write(commit_at, &[&block]).unwrap();
        let plan = recovery::plan(&area, &superblock, 4096).unwrap();
        assert_eq!((plan.transactions, plan.replay.len()), (1, 900));
        for replay in &plan.replay {
            let (_, image) = &images[(replay.home.0 - 3000) as usize];
            assert_eq!(recovery::image(&area, replay).unwrap(), image[..]);
        }
    }
}

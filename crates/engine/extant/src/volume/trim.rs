//! Trimming: reporting free blocks to the device.
//!
//! A block that is free in the in-core bitmap is free on the device, or was never in use there: a freed block stays set
//! until the context that frees it is durable. So the device may discard free blocks. Meanwhile the run is removed from
//! the count and from the bitmap, so that no caller can allocate it. Afterwards it is free again. A run is never more
//! than a part of the free blocks, and a caller that finds too few waits until it is free again.

use crate::base::error::{Error, Result};
use crate::space::block::RunRequest;
use crate::types::credentials::Credentials;
use crate::volume::engine::Engine;
use ext4_format::{BlockNr, GroupNr};
use std::io::ErrorKind;
use std::ops::Range;

/// Most blocks taken at once: a group of 4 KiB blocks.
const MOST: u64 = 1 << 15;

impl Engine {
    /// Reports the free blocks in a range of bytes to the device, if they form runs of at least `least` bytes. Returns
    /// the number of bytes that were trimmed. A run that the device is busy with is skipped.
    pub(crate) fn trim(&self, start: u64, len: u64, least: u64) -> Result<u64> {
        self.store.check_writable()?;
        let geometry = &self.store.geometry;
        let bs = u64::from(geometry.block_size);
        let least = u32::try_from(least.div_ceil(bs).max(1))
            .ok()
            .filter(|&n| n <= geometry.blocks_per_group)
            .ok_or(Error::Invalid("least length to trim is more than a group"))?;
        let first = (start / bs).max(geometry.first_data_block);
        if start / bs >= geometry.blocks_count {
            return Err(Error::Invalid("range to trim is outside the volume"));
        }
        if len < bs {
            return Err(Error::Invalid("range to trim is less than a block"));
        }
        let end = (start.saturating_add(len) / bs).min(geometry.blocks_count);
        // Preallocated blocks are free, too.
        self.data.discard_aside();
        let (mut at, mut trimmed) = (first, 0);
        while at < end {
            let Some((group, bit)) = geometry.group_of_block(BlockNr(at)) else {
                break;
            };
            let left = u64::from(geometry.blocks_in_group(group).saturating_sub(bit));
            let here = left.min(end - at);
            if here == 0 {
                break;
            }
            // Less than a group.
            trimmed += self.trim_group(group, bit..bit + here as u32, least)?;
            at += here;
        }
        Ok(trimmed * bs)
    }

    fn trim_group(&self, group: GroupNr, range: Range<u32>, least: u32) -> Result<u64> {
        let bs = u64::from(self.store.geometry.block_size);
        let first = self.store.geometry.group_first_block(group);
        let (mut at, mut trimmed) = (range.start, 0);
        // The rest of a run that was taken in part may be short.
        let mut rest_of_run = false;
        while at < range.end {
            let _pass = self.store.gate.enter();
            self.store.check_writable()?;
            let _trimming = self.space.trimming.lock();
            let most = (self.space.counts.free().0 / 4).min(MOST);
            let counted = self.space.counts.take_up_to(&Credentials::root(), most);
            if counted == 0 {
                break;
            }
            let most = counted as u32;
            let wanted = RunRequest {
                least,
                most,
                any_at_start: rest_of_run,
            };
            let found = self.store.heed(self.space.blocks.take_free(
                group,
                at..range.end,
                &wanted,
                &*self.space,
            ));
            let taken = found.as_ref().map_or(0, |f| f.map_or(0, |(_, len)| len));
            self.space.counts.give(counted - u64::from(taken));
            let Some((start, len)) = found? else {
                break;
            };
            let bit = (start.0 - first.0) as u32;
            let done = self.store.device.trim(start.0 * bs, u64::from(len) * bs);
            self.space.mark_free(start, len)?;
            self.space.counts.give(u64::from(len));
            match done {
                Ok(()) => trimmed += u64::from(len),
                // Another write made pages of the block device dirty. The next trim retries them.
                Err(e) if e.kind() == ErrorKind::ResourceBusy => {}
                Err(e) if e.kind() == ErrorKind::Unsupported => {
                    return Err(Error::Unsupported("the device cannot trim"));
                }
                Err(e) => return Err(Error::block_io("trim", start, e)),
            }
            rest_of_run = u64::from(len) == counted;
            at = bit + len;
        }
        Ok(trimmed)
    }
}

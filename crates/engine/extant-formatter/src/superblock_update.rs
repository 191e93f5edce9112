//! The primary superblock's image at open, sync and close.

use crate::error::Result;
use crate::formatter::Formatter;
use crate::image::{BlockImages, Image};
use crate::superblock::{edit, location};
use ext4_format::BlockNr;
use ext4_format::features::{Incompat, RoCompat};
use ext4_format::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID};
use std::sync::Arc;

/// The moment at which a superblock is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The volume is opened for writing: not cleanly unmounted any more. With a journal the journal must be replayed
    /// from now on, and the orphan file examined.
    Open,
    /// In between: only counts, time and errors.
    Sync,
    /// Everything is at its place: the journal is empty and the volume as clean as it was found.
    Close,
}

impl Formatter {
    /// Returns a new image of the primary superblock's block, with free counts as of the last batch. `also` makes
    /// further changes. `now` is in seconds. Call it with no other batch in progress. Publish and write the returned
    /// image.
    pub fn superblock_update(
        &self,
        images: &dyn BlockImages,
        now: i64,
        moment: Moment,
        also: impl FnOnce(&mut RawSuperblock),
    ) -> Result<(BlockNr, Arc<Image>)> {
        let geometry = &self.geometry;
        let features = geometry.features;
        let (block, offset) = location(geometry);
        let mut bytes = images.image(block)?.to_vec();
        edit(&mut bytes, offset, |sb| {
            sb.set_free_blocks(self.free.blocks);
            sb.free_inodes_count
                .set(u32::try_from(self.free.inodes).unwrap_or(u32::MAX));
            sb.set_write_time(now);
            let mut incompat = Incompat::from_bits_retain(sb.feature_incompat.get());
            let mut ro_compat = RoCompat::from_bits_retain(sb.feature_ro_compat.get());
            let mut state = sb.state.get();
            match moment {
                Moment::Open => {
                    sb.set_mount_time(now);
                    sb.mnt_count.set(sb.mnt_count.get().saturating_add(1));
                    if features.has_journal() {
                        incompat |= Incompat::NEEDS_RECOVERY;
                    } else {
                        state &= !STATE_VALID;
                    }
                    if features.has_orphan_file() {
                        ro_compat |= RoCompat::ORPHAN_PRESENT;
                    }
                }
                Moment::Sync => {}
                Moment::Close => {
                    incompat -= Incompat::NEEDS_RECOVERY;
                    if !self.orphans.file_in_use() {
                        ro_compat -= RoCompat::ORPHAN_PRESENT;
                    }
                    state = state & STATE_ERROR | self.found_state & !STATE_ERROR;
                }
            }
            sb.feature_incompat.set(incompat.bits());
            sb.feature_ro_compat.set(ro_compat.bits());
            sb.state.set(state);
            also(sb);
        })?;
        Ok((block, Image::made(bytes)))
    }
}

//! Reading ahead: a device that is slow is told what will be read, so that it reads while threads look at what they have.

use crate::volume::Volume;
use ext4_format::BlockNr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks that are read at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) first: BlockNr,
    pub(crate) blocks: u32,
}

/// Pieces by number, read about in their order.
pub(crate) struct Ahead<F> {
    piece: F,
    /// The device is told of so many pieces behind the one that is read.
    distance: usize,
    /// It was told of the pieces below this one.
    told: AtomicUsize,
}

impl<F: Fn(usize) -> Option<Piece>> Ahead<F> {
    pub(crate) const fn new(distance: usize, piece: F) -> Self {
        Self {
            piece,
            distance,
            told: AtomicUsize::new(0),
        }
    }

    /// A piece is read now: a device that was seen to be slow is told of those behind it.
    pub(crate) fn tell(&self, volume: &Volume<'_>, nth: usize) {
        if !volume.is_slow() {
            return;
        }
        let end = nth.saturating_add(self.distance);
        let told = self.told.fetch_max(end, Ordering::Relaxed);
        for piece in (told.max(nth + 1)..end).map_while(&self.piece) {
            volume.will_read(piece.first, piece.blocks);
        }
    }
}

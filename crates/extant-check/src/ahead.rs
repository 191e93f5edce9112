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

impl Piece {
    /// The other one begins where this one ends, and both together can be counted.
    fn is_before(&self, other: &Self) -> bool {
        self.first.0.checked_add(self.blocks.into()) == Some(other.first.0)
            && self.blocks.checked_add(other.blocks).is_some()
    }
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

    /// A piece is read now: a device that was seen to be slow is told of those behind it, of many at once.
    pub(crate) fn tell(&self, volume: &Volume<'_>, nth: usize) {
        if volume.is_slow() && self.told.load(Ordering::Relaxed) <= nth + self.distance / 2 {
            self.tell_from(volume, nth + 1);
        }
    }

    /// The first piece will be read soon: a device that was seen to be slow is told of it and of those behind it.
    pub(crate) fn tell_first(&self, volume: &Volume<'_>) {
        if volume.is_slow() {
            self.tell_from(volume, 0);
        }
    }

    fn tell_from(&self, volume: &Volume<'_>, first: usize) {
        let end = first.saturating_add(self.distance);
        let told = self.told.fetch_max(end, Ordering::Relaxed);
        let pieces = (told.max(first)..end).map_while(&self.piece);
        tell_all(volume, pieces);
    }
}

/// Tells the device of pieces, of those that lie behind one another as one: it reads large ones faster.
pub(crate) fn tell_all(volume: &Volume<'_>, pieces: impl Iterator<Item = Piece>) {
    let mut run: Option<Piece> = None;
    for piece in pieces {
        match &mut run {
            Some(run) if run.is_before(&piece) => run.blocks += piece.blocks,
            _ => {
                if let Some(run) = run.replace(piece) {
                    volume.tell(run);
                }
            }
        }
    }
    if let Some(run) = run {
        volume.tell(run);
    }
}

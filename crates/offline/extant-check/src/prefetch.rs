//! Prefetching: announces the next reads to a slow device, so that it reads while the threads check.

use crate::volume::{Piece, Volume};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pieces by number, read approximately in their order.
pub(crate) struct Ahead<F> {
    piece: F,
    /// Number of pieces to announce behind the current one.
    distance: usize,
    /// Number of the first piece that is not announced yet.
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

    /// Announces the pieces behind the current one to a slow device, many at once.
    pub(crate) fn tell(&self, volume: &Volume<'_>, nth: usize) {
        if volume.is_slow() && self.told.load(Ordering::Relaxed) <= nth + self.distance / 2 {
            self.tell_from(volume, nth + 1);
        }
    }

    /// Announces the first piece and those behind it to a slow device.
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

/// Announces pieces to the device. Adjacent pieces are joined, because the device reads large ranges faster.
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

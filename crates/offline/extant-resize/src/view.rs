//! Blocks that move, and a view of the image after they have been copied.

use blockdev::BlockDevice;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::sync_channel;
use std::thread::Builder;

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// Pieces that are read before they are written.
const READ_AHEAD: usize = 4;

/// A run of blocks that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) from: u64,
    pub(crate) len: u64,
    pub(crate) to: u64,
    /// Whether its new place is free in the old file system.
    pub(crate) early: bool,
    /// Whether the content is unused: the new place is zeroed.
    pub(crate) blank: bool,
}

/// Runs of blocks that move, by their old place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moves {
    /// Old place: length and new place.
    from: BTreeMap<u64, (u64, u64)>,
    /// By their new place, those whose place nothing in the old file system has.
    early: BTreeMap<u64, Move>,
    /// Moves that are written with the switch, because their new place belonged to a structure of the old volume.
    late: Vec<Move>,
}

impl Moves {
    pub(crate) fn insert(&mut self, run: Move) {
        self.from.insert(run.from, (run.len, run.to));
        if run.early {
            self.early.insert(run.to, run);
        } else {
            self.late.push(run);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.from.is_empty()
    }

    /// Returns the number of blocks that move.
    pub(crate) fn blocks(&self) -> u64 {
        self.from.values().map(|run| run.0).sum()
    }

    pub(crate) fn late(&self) -> &[Move] {
        &self.late
    }

    /// Returns the place of the first blocks of a run that stay together.
    fn step(&self, block: u64, len: u64) -> (u64, u64) {
        if let Some((&from, &(n, to))) = self.from.range(..=block).next_back()
            && block < from + n
        {
            return (to + (block - from), len.min(from + n - block));
        }
        let next = self.from.range(block..).next();
        (block, next.map_or(len, |(&from, _)| len.min(from - block)))
    }

    /// Returns the place of a block.
    pub(crate) fn place(&self, block: u64) -> u64 {
        self.step(block, 1).0
    }

    /// Calls `f` with the new place and the length of each part of a run.
    pub(crate) fn parts(&self, mut block: u64, mut len: u64, mut f: impl FnMut(u64, u64)) {
        while len > 0 {
            let (to, n) = self.step(block, len);
            f(to, n);
            block += n;
            len -= n;
        }
    }

    /// Returns the moves to free places, with adjacent ones joined.
    fn joined(&self) -> Vec<Move> {
        let mut runs: Vec<Move> = Vec::new();
        for &run in self.early.values() {
            match runs.last_mut() {
                Some(last)
                    if last.to + last.len == run.to
                        && last.from + last.len == run.from
                        && last.blank == run.blank =>
                {
                    last.len += run.len;
                }
                _ => runs.push(run),
            }
        }
        runs
    }

    /// Copies blocks whose new place is free, and returns when they are durable. The new places are unused in the old
    /// file system. An error of `step`, which is called before each piece, ends the copy.
    pub(crate) fn copy(
        &self,
        device: &dyn BlockDevice,
        block_size: u64,
        step: &dyn Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let (blank, runs): (Vec<_>, Vec<_>) = self.joined().into_iter().partition(|r| r.blank);
        for run in blank {
            device.discard(run.to * block_size, run.len * block_size)?;
        }
        copy_runs(device, &runs, block_size, step)?;
        if self.early.is_empty() {
            return Ok(());
        }
        device.flush()
    }
}

/// Copies runs: one thread reads ahead while another writes.
fn copy_runs(
    device: &dyn BlockDevice,
    runs: &[Move],
    block_size: u64,
    step: &dyn Fn() -> io::Result<()>,
) -> io::Result<()> {
    let (full, pieces) = sync_channel::<io::Result<(u64, Vec<u8>)>>(READ_AHEAD);
    let (empty, spare) = sync_channel::<Vec<u8>>(READ_AHEAD + 2);
    std::thread::scope(|scope| {
        let started = Builder::new().spawn_scoped(scope, move || {
            for run in runs {
                let (from, end) = (run.from * block_size, (run.from + run.len) * block_size);
                let mut at = from;
                while at < end {
                    let n = PIECE.min(end - at);
                    let mut bytes = spare.try_recv().unwrap_or_default();
                    bytes.resize(n as usize, 0);
                    let read = device.read_at(at, &mut bytes);
                    let failed = read.is_err();
                    let place = run.to * block_size + (at - from);
                    // Pieces after a failed write are not received.
                    if full.send(read.map(|()| (place, bytes))).is_err() || failed {
                        return;
                    }
                    at += n;
                }
            }
        });
        started?;
        for piece in pieces {
            let (place, bytes) = piece?;
            step()?;
            device.write_at(place, &bytes)?;
            let _ = empty.try_send(bytes);
        }
        Ok(())
    })
}

/// A device that is seen as if the moves to free places had been made; beyond its end it is zeros.
pub(crate) struct View<'d> {
    pub(crate) device: &'d dyn BlockDevice,
    pub(crate) len: u64,
    pub(crate) block_size: u64,
    pub(crate) moves: Moves,
}

impl View<'_> {
    /// Reads the present bytes of a place.
    pub(crate) fn read_old(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let there = self
            .device
            .len()
            .saturating_sub(offset)
            .min(buf.len() as u64) as usize;
        let (known, beyond) = buf.split_at_mut(there);
        beyond.fill(0);
        if known.is_empty() {
            return Ok(());
        }
        self.device.read_at(offset, known)
    }
}

impl BlockDevice for View<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset
            .checked_add(buf.len() as u64)
            .filter(|&end| end <= self.len);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.read_old(offset, buf)?;
        let (first, last) = (offset / self.block_size, end.div_ceil(self.block_size));
        let before = self.moves.early.range(..first).next_back();
        let inside = self.moves.early.range(first..last);
        for (&to, run) in before.into_iter().chain(inside) {
            let start = (to * self.block_size).max(offset);
            let stop = ((to + run.len) * self.block_size).min(end);
            if start >= stop {
                continue;
            }
            let part = buf.get_mut((start - offset) as usize..(stop - offset) as usize);
            let part = part.unwrap_or(&mut []);
            if run.blank {
                part.fill(0);
                continue;
            }
            let source = run.from * self.block_size + (start - to * self.block_size);
            self.read_old(source, part)?;
        }
        Ok(())
    }

    blockdev::only_read!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockdev::MemDevice;

    fn run(from: u64, len: u64, to: u64) -> Move {
        Move {
            from,
            len,
            to,
            early: true,
            blank: false,
        }
    }

    #[test]
    fn moved_blocks_are_seen_at_their_new_places() {
        let bytes: Vec<u8> = (0..8u8).flat_map(|n| [n; 512]).collect();
        let device = MemDevice::from_bytes(&bytes);
        let mut moves = Moves::default();
        moves.insert(run(5, 2, 1));
        moves.insert(Move {
            early: false,
            ..run(7, 1, 3)
        });
        moves.insert(Move {
            blank: true,
            ..run(8, 1, 4)
        });
        assert_eq!((moves.place(6), moves.place(7), moves.place(4)), (2, 3, 4));
        let mut parts = Vec::new();
        moves.parts(4, 4, |to, n| parts.push((to, n)));
        assert_eq!(parts, [(4, 1), (1, 2), (3, 1)]);
        let view = View {
            device: &device,
            len: 10 * 512,
            block_size: 512,
            moves,
        };
        let mut seen = vec![0; 10 * 512];
        view.read_at(0, &mut seen).unwrap();
        let blocks: Vec<u8> = seen.chunks(512).map(|b| b[0]).collect();
        assert_eq!(blocks, [0, 5, 6, 3, 0, 5, 6, 7, 0, 0]);
        view.moves.copy(&device, 512, &|| Ok(())).unwrap();
        let mut copied = vec![0; 8 * 512];
        device.read_at(0, &mut copied).unwrap();
        assert_eq!(copied, seen[..8 * 512]);
    }
}

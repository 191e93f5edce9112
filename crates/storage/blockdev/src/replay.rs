//! [`Replayer`]: the images that a crash could have left behind.
//!
//! After a crash a device holds everything up to the last flush and, of the writes since then, any subset, each
//! possibly torn between sectors. The replayer keeps two images while it steps through a log: the durable and the
//! written state. Both share their chunks, so an image costs next to nothing and a test can take one or many at each
//! step.

use std::io;

use crate::device::{BlockDevice, SECTOR};
use crate::mem::MemDevice;
use crate::record::{Event, Log};

/// The fate of a write that was not yet durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing of it reached the medium.
    Lost,
    /// All of it reached the medium.
    Kept,
    /// About half of its sectors reached the medium, chosen by this seed.
    Torn(u64),
    /// All but one piece of at most 4 KiB, chosen by this number, reached the medium.
    Without(u64),
    /// Of the write, only the piece chosen by this number reached the medium.
    Only(u64),
}

/// Size of the piece of [`Fate::Without`] and [`Fate::Only`].
const PIECE: u64 = 4096;

/// Treatment by [`Replayer::crash`] of writes that were not yet durable. The same value always gives the same image.
///
/// ```
/// let harsh = extant_blockdev::Crash { seed: 42, torn: true, reorder: false };
/// assert_eq!(harsh, extant_blockdev::Crash::new(42));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Decides which writes survive, and how large a part of them: from none to all.
    pub seed: u64,
    /// Writes may survive in part, sector by sector.
    pub torn: bool,
    /// An older write to a place may win over a newer one. Disks do not do that (their cache holds the newest);
    /// networks of disks may.
    pub reorder: bool,
}

impl Crash {
    /// Makes the faults of a disk, which may lose and tear writes, but does not restore overwritten ones.
    pub fn new(seed: u64) -> Self {
        Crash {
            seed,
            torn: true,
            reorder: false,
        }
    }
}

/// Steps through a [`Log`]; a clone continues on its own.
///
/// ```
/// use extant_blockdev::{BlockDevice, Crash, MemDevice, RecordingDevice};
/// let base = MemDevice::new(1 << 20);
/// let dev = RecordingDevice::new(base.snapshot());
/// dev.write_at(0, &[1; 512]).unwrap();
/// dev.flush().unwrap();
/// dev.write_at(512, &[2; 512]).unwrap();
///
/// let log = dev.log();
/// let mut replayer = log.replay(&base);
/// while replayer.step().unwrap().is_some() {
///     for seed in 0..10 {
///         let image = replayer.crash(&Crash::new(seed)).unwrap();
///         // Here a test would mount `image` and check it.
/// #       let mut b = [0; 1]; image.read_at(0, &mut b).unwrap();
/// #       assert!(b == [1] || replayer.position() < 2);
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Replayer<'a> {
    events: &'a [Event],
    position: usize,
    durable: MemDevice,
    current: MemDevice,
    /// Writes and discards since the last flush, as positions in the log.
    pending: Vec<usize>,
    /// The next flush makes nothing durable.
    lies: bool,
}

impl Log {
    /// Steps through the log from `base`, the contents when recording began.
    pub fn replay(&self, base: &MemDevice) -> Replayer<'_> {
        Replayer::new(self.events(), base)
    }

    /// Returns the device after the first `events` events, none of them lost.
    pub fn image_at(&self, base: &MemDevice, events: usize) -> io::Result<MemDevice> {
        let mut replayer = self.replay(base);
        replayer.advance_to(events)?;
        Ok(replayer.image())
    }
}

impl<'a> Replayer<'a> {
    pub(crate) fn new(events: &'a [Event], base: &MemDevice) -> Self {
        let (durable, current) = (base.snapshot(), base.snapshot());
        Replayer {
            events,
            position: 0,
            durable,
            current,
            pending: Vec::new(),
            lies: false,
        }
    }

    /// Makes the next flush return without making anything durable: earlier writes may still be lost, until a
    /// later flush.
    ///
    /// ```
    /// use extant_blockdev::{BlockDevice, MemDevice, RecordingDevice};
    /// let base = MemDevice::new(4096);
    /// let dev = RecordingDevice::new(base.snapshot());
    /// dev.write_at(0, &[1; 512])?;
    /// dev.flush()?;
    /// let log = dev.log();
    /// let mut replayer = log.replay(&base);
    /// replayer.lie_once();
    /// replayer.advance_to(2)?;
    /// assert_eq!(replayer.pending().len(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn lie_once(&mut self) {
        self.lies = true;
    }

    /// Plays one event and returns it; `None` at the end.
    pub fn step(&mut self) -> io::Result<Option<&'a Event>> {
        let Some(event) = self.events.get(self.position) else {
            return Ok(None);
        };
        match event {
            Event::Write { .. } | Event::Discard { .. } => {
                apply(&self.current, event, Fate::Kept)?;
                self.pending.push(self.position);
            }
            Event::Flush if std::mem::take(&mut self.lies) => {}
            Event::Flush => {
                self.durable = self.current.snapshot();
                self.pending.clear();
            }
            Event::Mark(_) => {}
        }
        self.position += 1;
        Ok(Some(event))
    }

    /// Plays events until `position` of them have been played, or the log ends.
    pub fn advance_to(&mut self, position: usize) -> io::Result<()> {
        while self.position < position && self.step()?.is_some() {}
        Ok(())
    }

    /// Returns the number of events played.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the writes and discards since the last flush, in order, with their positions.
    pub fn pending(&self) -> impl ExactSizeIterator<Item = (usize, &'a Event)> {
        let events = self.events;
        self.pending.iter().map(move |&p| (p, &events[p]))
    }

    /// Returns the device with nothing lost.
    pub fn image(&self) -> MemDevice {
        self.current.snapshot()
    }

    /// Returns the device without any write that may be lost.
    pub fn durable(&self) -> MemDevice {
        self.durable.snapshot()
    }

    /// Returns the device after a crash at this point, drawn at random from the possible ones.
    pub fn crash(&self, crash: &Crash) -> io::Result<MemDevice> {
        let mut random = Random(crash.seed);
        let keep_of_8 = random.below(9); // both ends: all lost, all kept
        let mut order: Vec<(usize, Fate)> = Vec::with_capacity(self.pending.len());
        for &position in &self.pending {
            let fate = match random.below(8) {
                r if r < keep_of_8 => Fate::Kept,
                _ if crash.torn && random.below(2) == 0 => Fate::Torn(random.next()),
                _ => Fate::Lost,
            };
            order.push((position, fate));
        }
        if crash.reorder {
            for i in (1..order.len()).rev() {
                order.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        self.survivors(order)
    }

    /// Returns the device after a crash at this point in which `fate` decides for each pending event, given its
    /// position in the log.
    pub fn crash_with(&self, mut fate: impl FnMut(usize, &Event) -> Fate) -> io::Result<MemDevice> {
        self.survivors(self.pending().map(|(p, event)| (p, fate(p, event))))
    }

    fn survivors(&self, order: impl IntoIterator<Item = (usize, Fate)>) -> io::Result<MemDevice> {
        let image = self.durable.snapshot();
        for (position, fate) in order {
            apply(&image, &self.events[position], fate)?;
        }
        Ok(image)
    }
}

/// Applies the part of a write or discard to `image` that its fate allows.
fn apply(image: &MemDevice, event: &Event, fate: Fate) -> io::Result<()> {
    let (offset, len) = match event {
        Event::Write { offset, data } => (*offset, data.len() as u64),
        Event::Discard { offset, len } => (*offset, *len),
        Event::Flush | Event::Mark(_) => return Ok(()),
    };
    let part = |start: u64, end: u64| match event {
        Event::Write { data, .. } => image.write_at(
            start,
            &data[(start - offset) as usize..(end - offset) as usize],
        ),
        _ => image.discard(start, end - start),
    };
    match fate {
        Fate::Lost => Ok(()),
        Fate::Kept => part(offset, offset + len),
        Fate::Without(_) | Fate::Only(_) if len == 0 => Ok(()),
        Fate::Without(n) | Fate::Only(n) => {
            let end = offset + len;
            let from = offset.max((offset / PIECE + n % len.div_ceil(PIECE)) * PIECE);
            let to = end.min((from / PIECE + 1) * PIECE);
            if matches!(fate, Fate::Only(_)) {
                return part(from, to);
            }
            part(offset, from)?;
            part(to, end)
        }
        Fate::Torn(seed) => {
            let mut random = Random(seed);
            let mut start = offset;
            while start < offset + len {
                let end = ((start / SECTOR + 1) * SECTOR).min(offset + len);
                if random.below(2) == 0 {
                    part(start, end)?;
                }
                start = end;
            }
            Ok(())
        }
    }
}

/// splitmix64: small, and the same everywhere and forever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, distributed evenly enough for small `n`.
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 32) % n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordingDevice;
    use std::collections::HashSet;

    const LEN: u64 = 64 << 10;

    fn bytes(dev: &MemDevice) -> Vec<u8> {
        dev.to_bytes().unwrap()
    }

    /// Records three written sectors, a flush, and three pending writes, the last over the first.
    fn recorded() -> (MemDevice, RecordingDevice<MemDevice>) {
        let base = MemDevice::new(LEN);
        let dev = RecordingDevice::new(base.snapshot());
        dev.write_at(0, &[1; 1536]).unwrap();
        dev.flush().unwrap();
        dev.mark(1);
        dev.write_at(0, &[2; 1024]).unwrap();
        dev.write_at(4096, &[3; 512]).unwrap();
        dev.write_at(0, &[4; 1024]).unwrap();
        (base, dev)
    }

    #[test]
    fn one_piece_is_lost_or_kept_alone() {
        let base = MemDevice::new(1 << 20);
        let dev = RecordingDevice::new(base.snapshot());
        dev.write_at(1024, &[7; 12 << 10]).unwrap();
        let log = dev.log();
        let mut replayer = log.replay(&base);
        replayer.step().unwrap();
        for n in 0..6 {
            let bytes = |fate| {
                let image = replayer.crash_with(|_, _| fate).unwrap();
                image.to_bytes().unwrap()
            };
            let (without, only) = (bytes(Fate::Without(n)), bytes(Fate::Only(n)));
            let all = bytes(Fate::Kept);
            let there = |bytes: &[u8]| bytes.iter().filter(|b| **b == 7).count();
            assert!((1..=4096).contains(&there(&only)), "{n}");
            assert_eq!(there(&without) + there(&only), 12 << 10);
            assert!((0..all.len()).all(|i| all[i] == without[i] + only[i]));
        }
    }

    #[test]
    fn prefixes() {
        let (base, dev) = recorded();
        let log = dev.log();
        let first: Vec<u8> = (0..=6)
            .map(|n| bytes(&log.image_at(&base, n).unwrap())[0])
            .collect();
        assert_eq!(first, [0, 1, 1, 1, 2, 2, 4]);
        assert_eq!(bytes(&log.image_at(&base, 99).unwrap()), bytes(dev.inner()));
        assert!(
            bytes(&base).iter().all(|&b| b == 0),
            "the base is left alone"
        );
    }

    #[test]
    fn forks_go_their_own_ways() {
        let (base, dev) = recorded();
        let log = dev.log();
        let mut a = log.replay(&base);
        a.advance_to(2).unwrap();
        let b = a.clone();
        a.advance_to(6).unwrap();
        assert_eq!((bytes(&a.image())[0], bytes(&b.image())[0]), (4, 1));
        assert_eq!((a.pending().len(), b.pending().len()), (3, 0));
        assert_eq!(bytes(&a.durable()), bytes(&b.image()));
    }

    #[test]
    fn crashes_keep_what_is_durable_and_reach_every_subset() {
        let (base, dev) = recorded();
        let log = dev.log();
        let mut replayer = log.replay(&base);
        replayer.advance_to(6).unwrap();
        for (torn, reorder) in [(false, false), (false, true), (true, false)] {
            let mut seen = HashSet::new();
            for seed in 0..2000 {
                let crash = Crash {
                    seed,
                    torn,
                    reorder,
                };
                let image = bytes(&replayer.crash(&crash).unwrap());
                assert_eq!(
                    image,
                    bytes(&replayer.crash(&crash).unwrap()),
                    "deterministic"
                );
                assert!(image[1024..1536].iter().all(|&b| b == 1), "durable");
                for sector in image.chunks(512) {
                    assert!(
                        sector.iter().all(|b| b == &sector[0]),
                        "torn inside a sector"
                    );
                }
                assert!(torn || image[0] == image[512], "torn though not asked for");
                seen.insert((image[0], image[512], image[4096]));
            }
            // Sectors 0 and 1 hold 1, 2 or 4, together or apart; 4096 is written or not.
            assert_eq!(seen.len(), if torn { 18 } else { 6 });
        }
    }

    #[test]
    fn order_of_overlapping_writes() {
        let (base, dev) = recorded();
        let log = dev.log();
        let mut replayer = log.replay(&base);
        replayer.advance_to(6).unwrap();
        assert_eq!(
            bytes(&replayer.crash_with(|_, _| Fate::Kept).unwrap()),
            bytes(dev.inner())
        );
        assert_eq!(
            bytes(&replayer.crash_with(|_, _| Fate::Lost).unwrap()),
            bytes(&replayer.durable())
        );
        let without_last = replayer.crash_with(|p, _| if p == 5 { Fate::Lost } else { Fate::Kept });
        assert_eq!(bytes(&without_last.unwrap())[0], 2);
    }

    #[test]
    fn torn_discards_and_unaligned_writes() {
        let base = MemDevice::from_bytes(&[9; 4096]);
        let dev = RecordingDevice::new(base.snapshot());
        dev.discard(100, 2000).unwrap();
        let log = dev.log();
        let mut replayer = log.replay(&base);
        replayer.step().unwrap();
        let torn = bytes(&replayer.crash_with(|_, _| Fate::Torn(3)).unwrap());
        let kept = (100..2100).filter(|&i| torn[i] == 9).count();
        assert!(kept > 0 && kept < 2000);
        assert!(torn[..100].iter().chain(&torn[2100..]).all(|&b| b == 9));
    }
}

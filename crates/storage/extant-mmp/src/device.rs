//! A device whose volume this process has claimed.

use crate::block::{MmpBlock, MmpError, node};
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::mmp::{self, Mark, MmpState};
use ext4_format::superblock::RawSuperblock;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Times of a claim.
///
/// ```
/// assert_eq!(extant_mmp::MmpOptions::default().settle.as_secs(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct MmpOptions {
    /// Time between the write of a number and the second look at the block. A claim must read and write the block in half of it. All
    /// that write to one volume need the same value. Default: 1 s.
    pub settle: Duration,
    /// Time between two numbers. Default: what the superblock says, usually 5 s.
    pub update: Option<Duration>,
}

impl Default for MmpOptions {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(1),
            update: None,
        }
    }
}

/// A device whose volume this process has claimed. Readers see the block of a volume that nobody has, and their writes to it are kept
/// until the claim ends. Dropping the device ends the claim.
///
/// ```
/// use blockdev::{BlockDevice, MemDevice};
/// use ext4_format::layout::{Layout, LayoutParams};
/// use extant_mmp::{MmpDevice, MmpOptions};
/// use std::sync::Arc;
/// let layout = Layout::new(&LayoutParams::for_size(64 << 20)).unwrap();
/// let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(64 << 20));
/// let (sb, geometry) = (&layout.superblock, &layout.geometry);
/// let claimed = MmpDevice::mount(Arc::clone(&device), sb, geometry, &MmpOptions::default()).unwrap();
/// assert!(claimed.is_none(), "a volume without the feature needs no claim");
/// ```
pub struct MmpDevice {
    claim: Arc<Claim>,
    heartbeat: Option<JoinHandle<()>>,
}

/// The claim, which the thread that renews it shares.
struct Claim {
    device: Arc<dyn BlockDevice>,
    block: MmpBlock,
    settle: Duration,
    /// Name of this machine.
    node: Vec<u8>,
    /// Time in [`milliseconds`] until which the claim holds without a renewal; 0 once it is lost.
    valid_until: AtomicU64,
    number: Mutex<Number>,
    ended: Condvar,
    /// The block as readers see it.
    shown: Mutex<Vec<u8>>,
}

/// The number in the block.
struct Number {
    /// `None` once the claim is lost.
    mine: Option<u32>,
    /// The number that was written last, also if the write failed.
    next: Option<u32>,
    /// The device is being dropped.
    ends: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn taken_over(holder: &str) -> io::Error {
    let text = format!("the volume was taken over by {holder} (multiple mount protection)");
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

impl MmpDevice {
    /// Claims a volume as a mount does, if it has the feature. A thread renews the claim.
    ///
    /// # Errors
    /// `InUse` if somebody else has the volume; `Format` for a damaged block; `Io`.
    pub fn mount(
        device: Arc<dyn BlockDevice>,
        sb: &RawSuperblock,
        geometry: &Geometry,
        options: &MmpOptions,
    ) -> Result<Option<Self>, MmpError> {
        let Some(mut claimed) = Self::claim(device, sb, geometry, options)? else {
            return Ok(None);
        };
        let claim = Arc::clone(&claimed.claim);
        let renewing = std::thread::Builder::new().name("mmp".into());
        claimed.heartbeat = Some(renewing.spawn(move || claim.keep())?);
        Ok(Some(claimed))
    }

    /// Claims a volume as a checker does, if it has the feature. Others refuse the number at once, because it never changes.
    ///
    /// # Errors
    /// As of [`mount`](Self::mount).
    pub fn check(
        device: Arc<dyn BlockDevice>,
        sb: &RawSuperblock,
        geometry: &Geometry,
        options: &MmpOptions,
    ) -> Result<Option<Self>, MmpError> {
        let claimed = Self::claim(device, sb, geometry, options)?;
        if let Some(claimed) = &claimed {
            let claim = &claimed.claim;
            lock(&claim.number).mine = Some(mmp::CHECKED);
            claim.write(mmp::CHECKED)?;
            // Nobody takes over what a checker has.
            claim.valid_until.store(u64::MAX, Ordering::Release);
        }
        Ok(claimed)
    }

    fn claim(
        device: Arc<dyn BlockDevice>,
        sb: &RawSuperblock,
        geometry: &Geometry,
        options: &MmpOptions,
    ) -> Result<Option<Self>, MmpError> {
        let number = first_number();
        let Some(mut block) = MmpBlock::of(sb, geometry)? else {
            return Ok(None);
        };
        block.update = options.update.unwrap_or(block.update);
        let shown = mmp::clean_block(block.size, now(), block.seed);
        let claim = Claim {
            device,
            block,
            settle: options.settle,
            node: rustix::system::uname().nodename().to_bytes().to_vec(),
            valid_until: AtomicU64::new(0),
            number: Mutex::new(Number {
                mine: Some(number),
                next: None,
                ends: false,
            }),
            ended: Condvar::new(),
            shown: Mutex::new(shown),
        };
        claim.take(number)?;
        Ok(Some(Self {
            claim: Arc::new(claim),
            heartbeat: None,
        }))
    }

    /// Returns true if another holder has taken the volume over; every write fails then.
    pub fn is_lost(&self) -> bool {
        lock(&self.claim.number).mine.is_none()
    }
}

/// Number of attempts before a device counts as too slow.
const ATTEMPTS: u32 = 10;

impl Claim {
    /// Takes the volume with this number once nobody else has it.
    fn take(&self, number: u32) -> Result<(), MmpError> {
        // A block that did not change for longer than a live mount leaves it.
        let mut stale = None;
        for attempt in 0..ATTEMPTS {
            let looked = Instant::now();
            let found = self.block.read(&*self.device)?;
            // The block has this number after an attempt that was too slow.
            let is_mine = attempt > 0 && mmp::number(&found) == number;
            let is_free = is_mine || self.block.state(&found)? == MmpState::Clean;
            if !is_free && stale.as_ref() != Some(&found) {
                stale = Some(self.block.wait_until_free(&*self.device, found)?);
            } else if self.try_number(number, looked)? {
                return Ok(());
            }
        }
        Err(self.too_slow())
    }

    /// Writes a number, waits, and looks again; returns false if the write was too slow to count. `looked` is when the block was found
    /// free.
    fn try_number(&self, number: u32, looked: Instant) -> Result<bool, MmpError> {
        let until = self.write(number)?;
        if looked.elapsed() > self.settle / 2 {
            return Ok(false);
        }
        std::thread::sleep(self.settle);
        let block = self.block.read(&*self.device)?;
        if mmp::number(&block) != number {
            let holder = format!("somebody on {}, who came at the same time", node(&block));
            return Err(MmpError::InUse { holder });
        }
        self.valid_until.store(until, Ordering::Release);
        Ok(true)
    }

    /// Writes a number; returns the time until which it holds, counted from before the write.
    fn write(&self, number: u32) -> Result<u64, MmpError> {
        let until = milliseconds() + 1000 * u64::from(self.interval());
        let mark = Mark {
            number,
            time: now(),
            node: &self.node,
            device: b"extant",
            interval: self.interval(),
        };
        let mut block = vec![0; self.block.size];
        mark.write(&mut block);
        if let Some(seed) = self.block.seed {
            mmp::set_checksum(&mut block, seed);
        }
        self.device.write_at(self.block.offset, &block)?;
        Ok(until)
    }

    /// Seconds that others wait at least before they take the volume over.
    fn interval(&self) -> u16 {
        let seconds = self.block.update.as_secs().saturating_mul(2);
        mmp::clamp_interval(seconds)
    }

    /// Renews the claim until it ends or is lost.
    fn keep(&self) {
        let mut number = lock(&self.number);
        while !number.ends {
            let waited = self.ended.wait_timeout(number, self.block.update);
            number = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !number.ends && self.renew(&mut number).is_err() && number.mine.is_none() {
                return;
            }
        }
    }

    /// Writes the next number if the block still has the last one. If the lease had ended, looks once more.
    fn renew(&self, number: &mut Number) -> Result<(), MmpError> {
        let lost = |number: &mut Number, block: &[u8]| {
            number.mine = None;
            self.valid_until.store(0, Ordering::Release);
            MmpError::Io(taken_over(&format!("somebody on {}", node(block))))
        };
        for _ in 0..ATTEMPTS {
            let Some(mine) = number.mine else {
                return Err(MmpError::Io(taken_over("somebody else")));
            };
            let looked = Instant::now();
            let block = self.block.read(&*self.device)?;
            if !self.is_mine(number, &block) {
                return Err(lost(number, &block));
            }
            let next = mine % mmp::MAX_NUMBER + 1;
            // If the write fails, the block has either number.
            number.next = Some(next);
            // The read may have taken longer than the lease.
            let done = if self.is_valid() {
                self.write(next).map(|until| {
                    self.valid_until.store(until, Ordering::Release);
                    true
                })
            } else {
                self.try_number(next, looked)
            };
            match done {
                Ok(true) => {
                    number.mine = Some(next);
                    return Ok(());
                }
                Ok(false) => {}
                Err(MmpError::InUse { .. }) => return Err(lost(number, &block)),
                Err(e) => return Err(e),
            }
        }
        Err(self.too_slow())
    }

    /// Returns true if the block has the number of this claim, or the one that a failed write may have left.
    fn is_mine(&self, number: &Number, block: &[u8]) -> bool {
        let found = Some(mmp::number(block));
        number.mine.is_some() && (found == number.mine || found == number.next)
    }

    fn too_slow(&self) -> MmpError {
        let text = format!("reading and writing takes over {:?}", self.settle / 2);
        MmpError::Io(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    fn is_valid(&self) -> bool {
        milliseconds() < self.valid_until.load(Ordering::Acquire)
    }

    /// Fails if the claim is lost. Renews a lease that has ended.
    fn check(&self) -> io::Result<()> {
        if self.is_valid() {
            return Ok(());
        }
        let mut number = lock(&self.number);
        if self.is_valid() {
            return Ok(());
        }
        self.renew(&mut number).map_err(|e| match e {
            MmpError::Io(e) => e,
            e => io::Error::other(e.to_string()),
        })
    }

    /// Writes the block as readers see it, if nobody else has taken the volume over. If a file has got
    /// the block meanwhile, these are the bytes of the file.
    fn release(&self) -> Result<(), MmpError> {
        let mut number = lock(&self.number);
        if number.mine.is_none() {
            return Ok(());
        }
        let block = self.block.read(&*self.device)?;
        if self.is_mine(&number, &block) {
            self.device
                .write_at(self.block.offset, &lock(&self.shown))?;
            self.device.flush()?;
        }
        number.mine = None;
        Ok(())
    }

    /// Returns the part of a range that lies in the block: relative to the range, and its offset in the block.
    fn part(&self, offset: u64, len: usize) -> Option<(Range<usize>, usize)> {
        let end = offset.checked_add(len as u64)?;
        let (first, last) = (
            self.block.offset,
            self.block.offset + self.block.size as u64,
        );
        let (from, to) = (offset.max(first), end.min(last));
        // Both lie in the range, whose length is a `usize`.
        (from < to).then(|| {
            let within = (from - offset) as usize..(to - offset) as usize;
            (within, (from - first) as usize)
        })
    }
}

impl Drop for MmpDevice {
    fn drop(&mut self) {
        lock(&self.claim.number).ends = true;
        self.claim.ended.notify_all();
        if let Some(heartbeat) = self.heartbeat.take() {
            let _ = heartbeat.join();
        }
        // If it fails, the number stays, and the next user waits until it is known to be stale.
        let _ = self.claim.release();
    }
}

impl BlockDevice for MmpDevice {
    fn len(&self) -> u64 {
        self.claim.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.claim.device.read_at(offset, buf)?;
        if let Some((within, at)) = self.claim.part(offset, buf.len()) {
            let shown = lock(&self.claim.shown);
            let len = within.len();
            if let (Some(to), Some(from)) = (buf.get_mut(within), shown.get(at..at + len)) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.claim.device.will_read(offset, len);
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        match self.claim.part(offset, buf.len()) {
            Some(_) => Ok(false),
            None => self.claim.device.read_uncached(offset, buf),
        }
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.claim.check()?;
        let Some((within, at)) = self.claim.part(offset, buf.len()) else {
            return self.claim.device.write_at(offset, buf);
        };
        let (before, rest) = buf.split_at(within.start);
        let (inside, behind) = rest.split_at(within.len());
        self.claim.device.write_at(offset, before)?;
        let end = offset + within.end as u64;
        self.claim.device.write_at(end, behind)?;
        if let Some(shown) = lock(&self.claim.shown).get_mut(at..at + inside.len()) {
            shown.copy_from_slice(inside);
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if self.claim.part(offset, len).is_none() {
            self.claim.check()?;
            return self.claim.device.write_vectored_at(offset, bufs);
        }
        let mut at = offset;
        for buf in bufs {
            self.write_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn write_unit(&self) -> u64 {
        self.claim.device.write_unit()
    }

    fn flush(&self) -> io::Result<()> {
        self.claim.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.claim.check()?;
        self.claim.device.discard(offset, len)
    }

    fn trim(&self, offset: u64, len: u64) -> io::Result<()> {
        self.claim.check()?;
        self.claim.device.trim(offset, len)
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        self.claim.check()?;
        self.claim.device.extend(len)
    }

    fn shorten(&self, len: u64) -> io::Result<()> {
        self.claim.check()?;
        self.claim.device.shorten(len)
    }

    fn read_only(&self) -> bool {
        self.claim.device.read_only()
    }
}

/// Returns milliseconds of a clock that includes the time during which the machine sleeps, if the system has such a clock.
fn milliseconds() -> u64 {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let clock = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::Monotonic;
    let time = clock_gettime(clock);
    let milliseconds = time.tv_sec as i64 * 1000 + time.tv_nsec as i64 / 1_000_000;
    u64::try_from(milliseconds).unwrap_or(0)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// Returns a number that no other claim is likely to begin with.
fn first_number() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::collections::hash_map::RandomState::new();
    let hash = random.build_hasher().finish() as u32;
    hash % mmp::MAX_NUMBER + 1
}

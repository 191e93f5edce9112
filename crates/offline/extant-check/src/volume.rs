//! The volume to check: an image on a device that is overlaid by the blocks that its journal would write home.

use crate::error::Error;
use crate::report::{FindingPlace, Findings, Rule};
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use ext4_format::{BlockNr, FormatError, jbd2};
use ext4_image::Image;
use std::collections::BTreeMap;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A block that the journal would write home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// The block of the journal that holds it.
    pub(crate) at: BlockNr,
    /// Whether its first four bytes must be restored.
    pub(crate) escaped: bool,
}

/// A device as it will be after the replay of the journal.
pub(crate) struct Replayed<'d> {
    device: &'d dyn BlockDevice,
    block_size: u32,
    /// The newest block of the journal for each block of the volume.
    logged: BTreeMap<BlockNr, Logged>,
    bytes_read: AtomicU64,
    /// A read took long.
    slow: AtomicBool,
}

/// A read that takes no longer than this says nothing about the device.
const SHORT: Duration = Duration::from_micros(64);

impl Replayed<'_> {
    /// Copies the part of a logged block that is in the bytes from `offset` on.
    fn overlay(
        &self,
        home: BlockNr,
        logged: &Logged,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let mut block = vec![0; self.block_size as usize];
        self.device
            .read_at(logged.at.offset(self.block_size), &mut block)?;
        if logged.escaped {
            jbd2::unescape(&mut block);
        }
        let home = home.offset(self.block_size);
        let skipped = offset.saturating_sub(home) as usize; // less than a block
        let to = home.saturating_sub(offset) as usize; // less than the buffer
        let bytes = block.iter().skip(skipped);
        buf.iter_mut()
            .skip(to)
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        Ok(())
    }
}

impl BlockDevice for Replayed<'_> {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let begin = Instant::now();
        self.device.read_at(offset, buf)?;
        let took = begin.elapsed();
        if took > SHORT && took.as_nanos() > buf.len() as u128 {
            self.slow.store(true, Ordering::Relaxed);
        }
        self.bytes_read
            .fetch_add(buf.len() as u64, Ordering::Relaxed);
        let size = u64::from(self.block_size);
        let end = offset.saturating_add(buf.len() as u64).div_ceil(size);
        for (home, logged) in self.logged.range(BlockNr(offset / size)..BlockNr(end)) {
            self.overlay(*home, logged, offset, buf)?;
        }
        Ok(())
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.device.will_read(offset, len);
    }

    blockdev::only_read!();
}

pub(crate) struct Volume<'d> {
    image: Image<Replayed<'d>>,
    /// Whether fast commits continue the log.
    pub(crate) pending_fast_commits: bool,
}

impl<'d> Deref for Volume<'d> {
    type Target = Image<Replayed<'d>>;

    fn deref(&self) -> &Self::Target {
        &self.image
    }
}

impl DerefMut for Volume<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.image
    }
}

impl<'d> Volume<'d> {
    /// Reads the superblock. A damaged superblock is a finding if the volume can still be read.
    pub(crate) fn open(device: &'d dyn BlockDevice, findings: &Findings) -> Result<Self, Error> {
        let bytes = ext4_image::superblock_bytes(device).map_err(Error::Io)?;
        let sb = match RawSuperblock::parse(&bytes) {
            Ok(sb) => sb,
            Err(error @ FormatError::Interrupted(_)) => return Err(Error::NoSuperblock(error)),
            Err(error) => {
                let backup = ext4_image::usual_backups(device).next();
                let (_, sb) = backup.ok_or(Error::NoSuperblock(error.clone()))?;
                findings.add_error(Rule::Superblock, FindingPlace::default(), &error);
                sb
            }
        };
        Self::of(device, sb)
    }

    /// Creates a volume from a superblock that was read before.
    pub(crate) fn of(device: &'d dyn BlockDevice, sb: RawSuperblock) -> Result<Self, Error> {
        let geo = Geometry::new(&sb).map_err(Error::NoSuperblock)?;
        let dev = Replayed {
            device,
            block_size: geo.block_size,
            logged: BTreeMap::new(),
            bytes_read: AtomicU64::new(0),
            slow: AtomicBool::new(false),
        };
        Ok(Self {
            image: Image {
                dev,
                sb,
                geo,
                descs: Vec::new(),
            },
            pending_fast_commits: false,
        })
    }

    /// Switches to the state of the volume after the replay of its journal.
    pub(crate) fn replay(&mut self, logged: BTreeMap<BlockNr, Logged>) -> Result<(), Error> {
        self.dev.logged = logged;
        let block = BlockNr(SUPERBLOCK_OFFSET / u64::from(self.geo.block_size));
        if self.dev.logged.contains_key(&block) {
            let bytes = ext4_image::superblock_bytes(&self.dev).map_err(Error::Io)?;
            self.sb = RawSuperblock::parse(&bytes).map_err(Error::NoSuperblock)?;
            self.geo = Geometry::new(&self.sb).map_err(Error::NoSuperblock)?;
        }
        Ok(())
    }

    /// Returns the number of bytes of the device.
    pub(crate) fn device_len(&self) -> u64 {
        self.dev.len()
    }

    /// Returns the number of bytes read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.dev.bytes_read.load(Ordering::Relaxed)
    }

    /// Reads whole blocks from `first` on.
    pub(crate) fn read_into(&self, first: BlockNr, buf: &mut [u8]) -> io::Result<()> {
        self.dev.read_at(first.offset(self.geo.block_size), buf)
    }

    /// Returns whether a read took longer than a nanosecond for each byte, so that the device is not in memory.
    pub(crate) fn is_slow(&self) -> bool {
        self.dev.slow.load(Ordering::Relaxed)
    }

    /// Announces blocks to the device that will be read soon.
    pub(crate) fn tell(&self, Piece { first, blocks }: Piece) {
        let size = self.geo.block_size;
        self.dev
            .will_read(first.offset(size), u64::from(blocks) * u64::from(size));
    }

    /// Reads whole blocks; if that fails, fills them with zeros and adds a finding.
    pub(crate) fn read_or_tell(
        &self,
        first: BlockNr,
        buf: &mut [u8],
        place: FindingPlace,
        findings: &Findings,
    ) -> bool {
        let Err(error) = self.read_into(first, buf) else {
            return true;
        };
        findings.add(Rule::Unreadable, place.block(first), || error.to_string());
        buf.fill(0);
        false
    }
}

/// Blocks that are read by one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) first: BlockNr,
    pub(crate) blocks: u32,
}

impl Piece {
    /// Returns whether `other` begins at the end of this piece, and the sum of their lengths does not overflow.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self.first.0.checked_add(self.blocks.into()) == Some(other.first.0)
            && self.blocks.checked_add(other.blocks).is_some()
    }
}

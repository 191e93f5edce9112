//! The volume to check: its device, overlaid by the blocks that its journal would write home.

use crate::error::Error;
use crate::report::{FindingPlace, Findings, Rule};
use blockdev::BlockDevice;
use ext4_format::geometry::Geometry;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use ext4_format::{BlockNr, FormatError, InodeNr, checksum, jbd2};
use std::collections::BTreeMap;
use std::io;
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

pub(crate) struct Volume<'d> {
    device: &'d dyn BlockDevice,
    pub(crate) sb: RawSuperblock,
    pub(crate) geo: Geometry,
    /// The newest block of the journal for each block of the volume.
    logged: BTreeMap<BlockNr, Logged>,
    /// Whether fast commits continue the log.
    pub(crate) pending_fast_commits: bool,
    bytes_read: AtomicU64,
    /// A read took long.
    slow: AtomicBool,
}

/// A read that takes no longer than this says nothing about the device.
const SHORT: Duration = Duration::from_micros(64);

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
        Ok(Self {
            device,
            sb,
            geo,
            logged: BTreeMap::new(),
            pending_fast_commits: false,
            bytes_read: AtomicU64::new(0),
            slow: AtomicBool::new(false),
        })
    }

    /// Switches to the state of the volume after the replay of its journal.
    pub(crate) fn replay(&mut self, logged: BTreeMap<BlockNr, Logged>) -> Result<(), Error> {
        self.logged = logged;
        let block = BlockNr(SUPERBLOCK_OFFSET / u64::from(self.geo.block_size));
        if self.logged.contains_key(&block) {
            let mut bytes = vec![0; self.geo.block_size as usize];
            self.read(block, &mut bytes).map_err(Error::Io)?;
            let within = (SUPERBLOCK_OFFSET % u64::from(self.geo.block_size)) as usize;
            let bytes = bytes.get(within..).unwrap_or(&[]);
            self.sb = RawSuperblock::parse(bytes).map_err(Error::NoSuperblock)?;
            self.geo = Geometry::new(&self.sb).map_err(Error::NoSuperblock)?;
        }
        Ok(())
    }

    /// Returns the number of bytes of a block.
    pub(crate) const fn block_size(&self) -> usize {
        self.geo.block_size as usize
    }

    /// Returns the seed of the checksums of an inode's blocks, if blocks have checksums.
    pub(crate) fn inode_seed(&self, ino: InodeNr, generation: u32) -> Option<u32> {
        let seed = || checksum::inode_seed(self.geo.csum_seed, ino, generation);
        self.geo.features.has_metadata_csum().then(seed)
    }

    /// Returns the number of bytes of the device.
    pub(crate) fn device_len(&self) -> u64 {
        self.device.len()
    }

    /// Returns the number of bytes read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Reads whole blocks from `first` on.
    pub(crate) fn read(&self, first: BlockNr, buf: &mut [u8]) -> io::Result<()> {
        let begin = Instant::now();
        self.device
            .read_at(first.offset(self.geo.block_size), buf)?;
        let took = begin.elapsed();
        if took > SHORT && took.as_nanos() > buf.len() as u128 {
            self.slow.store(true, Ordering::Relaxed);
        }
        self.bytes_read
            .fetch_add(buf.len() as u64, Ordering::Relaxed);
        if self.logged.is_empty() {
            return Ok(());
        }
        let count = (buf.len() / self.block_size()) as u64;
        let range = first..BlockNr(first.0.saturating_add(count));
        for (home, logged) in self.logged.range(range) {
            let at = (home.0 - first.0) as usize * self.block_size();
            let Some(block) = buf.get_mut(at..at + self.block_size()) else {
                continue;
            };
            self.device
                .read_at(logged.at.offset(self.geo.block_size), block)?;
            if logged.escaped {
                jbd2::unescape(block);
            }
        }
        Ok(())
    }

    /// Returns whether a read took longer than a nanosecond for each byte, so that the device is not in memory.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }

    /// Announces blocks to the device that will be read soon.
    pub(crate) fn tell(&self, Piece { first, blocks }: Piece) {
        let size = self.geo.block_size;
        self.device
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
        let Err(error) = self.read(first, buf) else {
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

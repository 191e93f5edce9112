//! The block of multiple mount protection, and waiting until nobody has the volume.

use ext4_format::geometry::Geometry;
use ext4_format::mmp::{self, MmpState};
use ext4_format::superblock::RawSuperblock;
use ext4_format::{BlockNr, FormatError, Where};
use std::io;
use std::time::Duration;

/// Error of a claim.
///
/// ```
/// let error = extant_mmp::MmpError::InUse { holder: "a mount on 'box'".into() };
/// assert!(error.to_string().starts_with("the volume is in use by a mount on 'box'"));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum MmpError {
    /// Somebody else has the volume, or left it in use.
    #[error("the volume is in use by {holder} (multiple mount protection)")]
    InUse {
        /// The holder, as the block names it.
        holder: String,
    },
    /// The block is damaged.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error("block of multiple mount protection: {0}")]
    Io(#[from] io::Error),
}

/// Block of a volume that has the feature.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MmpBlock {
    pub(crate) offset: u64,
    pub(crate) size: usize,
    /// Seed of the checksum, if metadata have checksums.
    pub(crate) seed: Option<u32>,
    /// Time between two numbers of a mount.
    pub(crate) update: Duration,
}

impl MmpBlock {
    /// Returns the block that the superblock names, if the volume has the feature.
    pub(crate) fn of(sb: &RawSuperblock, geometry: &Geometry) -> Result<Option<Self>, FormatError> {
        if !geometry.features.has_mmp() {
            return Ok(None);
        }
        let block = BlockNr(sb.mmp_block.get());
        if !geometry.is_valid_data_range(block, 1) {
            let what = "block of multiple mount protection";
            return Err(FormatError::corrupt(what, Where::Superblock));
        }
        let seconds = match sb.mmp_interval.get() {
            0 => mmp::DEFAULT_INTERVAL,
            seconds => seconds.min(mmp::MAX_INTERVAL),
        };
        Ok(Some(Self {
            offset: block.offset(geometry.block_size),
            size: geometry.block_size as usize,
            seed: geometry
                .features
                .has_metadata_csum()
                .then_some(geometry.csum_seed),
            update: Duration::from_secs(seconds.into()),
        }))
    }

    pub(crate) fn state(&self, block: &[u8]) -> Result<MmpState, MmpError> {
        Ok(mmp::state(block, self.seed)?)
    }
}

/// Fails if the volume is in use. If its block has the number of a mount, waits until a live mount would have changed that number.
///
/// # Errors
/// `InUse`; `Format` for a damaged block; `Io`.
///
/// ```
/// use blockdev::MemDevice;
/// use ext4_format::geometry::Geometry;
/// use ext4_format::layout::{Layout, LayoutParams};
/// let layout = Layout::new(&LayoutParams::for_size(64 << 20)).unwrap();
/// let device = MemDevice::new(64 << 20);
/// // Without the feature nobody is waited for.
/// extant_mmp::wait_until_free(&device, &layout.superblock, &layout.geometry).unwrap();
/// ```
pub fn wait_until_free(
    device: &dyn blockdev::BlockDevice,
    sb: &RawSuperblock,
    geometry: &Geometry,
) -> Result<(), MmpError> {
    match MmpBlock::of(sb, geometry)? {
        Some(block) => {
            let first = block.read(device)?;
            block.wait_until_free(device, first).map(drop)
        }
        None => Ok(()),
    }
}

impl MmpBlock {
    pub(crate) fn read(&self, device: &dyn blockdev::BlockDevice) -> Result<Vec<u8>, MmpError> {
        let mut bytes = vec![0; self.size];
        device.read_at(self.offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the block of a volume that nobody has: `first`, or the same block after the wait.
    pub(crate) fn wait_until_free(
        &self,
        device: &dyn blockdev::BlockDevice,
        first: Vec<u8>,
    ) -> Result<Vec<u8>, MmpError> {
        match self.state(&first)? {
            MmpState::Clean => Ok(first),
            MmpState::Checked => {
                let holder = format!("a checker on {}, or one that was killed", node(&first));
                Err(MmpError::InUse { holder })
            }
            MmpState::Mounted(_) => {
                let interval = u64::from(mmp::interval(&first));
                std::thread::sleep(Duration::from_secs((interval * 2 + 1).min(interval + 60)));
                let second = self.read(device)?;
                if second != first && self.state(&second)? != MmpState::Clean {
                    let holder = format!("a mount on {}", node(&second));
                    return Err(MmpError::InUse { holder });
                }
                Ok(second)
            }
        }
    }
}

/// Returns the name of the machine that wrote the block, for people.
pub(crate) fn node(block: &[u8]) -> String {
    match mmp::node(block) {
        [] => "an unknown machine".into(),
        name => format!("'{}'", name.escape_ascii()),
    }
}

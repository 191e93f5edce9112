//! Volumes mounted by Linux' ext4. The kernel changes label, UUID and size. Other fields of the superblock are written
//! to the device, whose page cache the kernel shares.

use super::listing;
use anyhow::{Context, Result};
use blockdev::{BlockDevice, UnlockedFile, host};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_cli_core::mounts::host_files::mount_of_device;
use extant_tune::TuneOptions;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A mounted volume.
pub(super) struct InUse {
    device: PathBuf,
    /// Mount point.
    pub dir: PathBuf,
}

impl InUse {
    /// Returns the volume of a block device that Linux' ext4 has mounted.
    pub fn of(device: &Path) -> Option<Self> {
        let dir = mount_of_device(device)?;
        let device = device.to_owned();
        Some(Self { device, dir })
    }

    /// Returns the volume that is mounted on a directory.
    pub fn on(dir: &Path) -> Option<Self> {
        let dir = dir.canonicalize().ok().filter(|dir| dir.is_dir())?;
        let entry = fuse_server::mounted_at(&dir).ok()??;
        Self::of(Path::new(&entry.source)).map(|found| Self { dir, ..found })
    }

    pub fn name(&self) -> String {
        self.device.display().to_string()
    }

    fn open(&self) -> Result<UnlockedFile> {
        let opened = File::open(&self.device).and_then(UnlockedFile::new);
        opened.with_context(|| self.name())
    }

    /// Returns the present superblock, and the length of the device.
    pub fn look(&self) -> Result<(RawSuperblock, u64)> {
        let device = self.open()?;
        let sb = listing::superblock(&device).with_context(|| self.name())?;
        Ok((sb, device.len()))
    }

    /// Makes changes of `extant tune`.
    pub fn tune(&self, mut options: TuneOptions) -> Result<()> {
        self.change(&mut options).with_context(|| self.name())
    }

    fn change(&self, options: &mut TuneOptions) -> Result<()> {
        let uuid = options.uuid.take();
        let label = options.label.clone();
        let device = self.open()?;
        // Refuse before the first change.
        extant_tune::superblock_in_use(&device, options)?;
        let dir = File::open(&self.dir)?;
        if let Some(uuid) = uuid {
            host::set_uuid(&dir, uuid).map_err(|e| refused("UUID", e))?;
        }
        if let Some(label) = &label {
            match host::set_label(&dir, label) {
                Ok(()) => options.label = None,
                // A kernel before 5.17: write its superblock as tune2fs did then.
                Err(e) if is_unknown(&e) => {}
                Err(e) => return Err(refused("label", e)),
            }
        }
        if let Some(superblock) = extant_tune::superblock_in_use(&device, options)? {
            let device = OpenOptions::new().write(true).open(&self.device)?;
            device.write_all_at(&superblock, SUPERBLOCK_OFFSET)?;
            device.sync_all()?;
        }
        Ok(())
    }

    /// Grows the volume to `blocks` blocks, with the kernel.
    pub fn grow(&self, blocks: u64) -> Result<()> {
        let dir = File::open(&self.dir).with_context(|| self.name())?;
        host::grow(&dir, blocks).map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::PERM) => {
                anyhow::anyhow!("{}: permission denied to resize filesystem", self.name())
            }
            _ => anyhow::Error::new(e).context(self.name()),
        })
    }
}

/// Returns whether the kernel does not support a call.
fn is_unknown(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOTTY | Errno::OPNOTSUPP)
    )
}

fn refused(what: &str, error: io::Error) -> anyhow::Error {
    if is_unknown(&error) {
        anyhow::anyhow!(
            "the kernel does not change the {what} of a mounted volume: unmount it first"
        )
    } else {
        anyhow::Error::new(error).context(format!("changing the {what}"))
    }
}

//! The crate rsext4.

use crate::Session;
use anyhow::{Context, Result, anyhow};
use rsext4::{
    BLOCK_SIZE, BlockIo, Clock, DeviceCapabilities, DeviceGeometry, Ext4, Ext4Error, Ext4Result,
    Ext4Timestamp, FileName, FilePermissions, InodeNumber, MountOptions, MountServices,
    MountedServices, MutationContext, NoopObserver, SectorId,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

struct Device {
    file: File,
    blocks: u64,
}

impl Device {
    fn offset(sector: SectorId) -> Ext4Result<u64> {
        Ok((sector.as_usize()? * BLOCK_SIZE) as u64)
    }
}

impl BlockIo for Device {
    fn write(&mut self, buffer: &[u8], sector: SectorId, _count: u32) -> Ext4Result<()> {
        let written = self.file.write_all_at(buffer, Self::offset(sector)?);
        written.map_err(|_| Ext4Error::invalid_input())
    }

    fn read(&mut self, buffer: &mut [u8], sector: SectorId, _count: u32) -> Ext4Result<()> {
        let read = self.file.read_exact_at(buffer, Self::offset(sector)?);
        read.map_err(|_| Ext4Error::invalid_input())
    }

    fn flush(&mut self) -> Ext4Result<()> {
        self.file
            .sync_data()
            .map_err(|_| Ext4Error::invalid_input())
    }

    fn geometry(&self) -> DeviceGeometry {
        DeviceGeometry::new(BLOCK_SIZE as u32, self.blocks)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities {
            flush: true,
            ..DeviceCapabilities::default()
        }
    }
}

struct Now;

impl Clock for Now {
    fn now(&self) -> Ext4Result<Ext4Timestamp> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Ok(Ext4Timestamp::new(now.as_secs() as i64, now.subsec_nanos()))
    }
}

struct Rsext4 {
    volume: Ext4<Device, MountedServices<(), NoopObserver>>,
    file: Option<InodeNumber>,
}

fn told(error: impl std::fmt::Debug) -> anyhow::Error {
    anyhow!("{error:?}")
}

pub fn open(image: &Path) -> Result<Box<dyn Session>> {
    let file = File::options().read(true).write(true).open(image)?;
    let blocks = file.metadata()?.len() / BLOCK_SIZE as u64;
    let device = Device { file, blocks };
    let services = MountServices::new(Now, (), NoopObserver);
    let volume = Ext4::mount(device, services, MountOptions::read_write()).map_err(told)?;
    Ok(Box::new(Rsext4 { volume, file: None }))
}

impl Rsext4 {
    fn find(&mut self, name: &str) -> Result<rsext4::InodeInfo> {
        let root = self.volume.root_inode();
        let name = FileName::new(name.as_bytes()).map_err(told)?;
        let found = self.volume.lookup_child(root, name).map_err(told)?;
        found.context("no such name")
    }
}

impl Session for Rsext4 {
    fn create(&mut self, name: &str) -> Result<()> {
        let root = self.volume.root_inode();
        let name = FileName::new(name.as_bytes()).map_err(told)?;
        let mode = FilePermissions::new(0o644).map_err(told)?;
        let context = MutationContext::new(0, 0, 0, 0);
        let made = self.volume.create_regular_file(context, root, name, mode);
        made.map_err(told).map(drop)
    }

    fn unlink(&mut self, name: &str) -> Result<()> {
        let root = self.volume.root_inode();
        let name = FileName::new(name.as_bytes()).map_err(told)?;
        let outcome = self.volume.unlink(root, name).map_err(told)?;
        if outcome.requires_reap() {
            self.volume
                .reap_unlinked_inode(outcome.inode)
                .map_err(told)?;
        }
        Ok(())
    }

    fn stat(&mut self, name: &str) -> Result<u64> {
        Ok(self.find(name)?.size)
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<()> {
        let file = match self.file {
            Some(file) => file,
            None => {
                let found = self.find(name)?.number;
                *self.file.insert(found)
            }
        };
        self.volume
            .write_inode(file, 0, data)
            .map_err(told)
            .map(drop)
    }

    fn sync(&mut self) -> Result<()> {
        self.volume.sync().map_err(told).map(drop)
    }
}

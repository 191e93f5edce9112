//! The crate rust-fs-ext4.

use crate::Session;
use anyhow::{Result, anyhow};
use fs_ext4::block_io::FileDevice;
use fs_ext4::fs::Filesystem;
use std::path::Path;
use std::sync::Arc;

struct RustFsExt4(Filesystem);

fn told(error: impl std::fmt::Debug) -> anyhow::Error {
    anyhow!("{error:?}")
}

pub fn open(image: &Path) -> Result<Box<dyn Session>> {
    let device = FileDevice::open_path_rw(image).map_err(told)?;
    let opened = Filesystem::mount(Arc::new(device)).map_err(told)?;
    Ok(Box::new(RustFsExt4(opened)))
}

impl Session for RustFsExt4 {
    fn create(&mut self, name: &str) -> Result<()> {
        let path = format!("/{name}");
        self.0.apply_create(&path, 0o644).map_err(told).map(drop)
    }

    fn unlink(&mut self, name: &str) -> Result<()> {
        self.0.apply_unlink(&format!("/{name}")).map_err(told)
    }

    fn stat(&mut self, name: &str) -> Result<u64> {
        let ino = self.0.lookup_path_bytes(format!("/{name}").as_bytes());
        let inode = self.0.stat_ino(ino.map_err(told)?).map_err(told)?;
        Ok(inode.size)
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<()> {
        let written = self.0.apply_pwrite(&format!("/{name}"), 0, data);
        written.map_err(told).map(drop)
    }

    fn sync(&mut self) -> Result<()> {
        self.0.flush().map_err(told)
    }
}

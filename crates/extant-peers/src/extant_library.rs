//! This engine.

use crate::Session;
use anyhow::{Context, Result};
use extant::{File, OpenFlags, OpenOptions, Volume};
use std::path::Path;

struct Extant {
    volume: Volume,
    file: Option<File>,
}

pub fn open(image: &Path) -> Result<Box<dyn Session>> {
    let volume = OpenOptions::new().open(image)?;
    Ok(Box::new(Extant { volume, file: None }))
}

impl Session for Extant {
    fn create(&mut self, name: &str) -> Result<()> {
        self.volume.create(name, 0o644)?;
        Ok(())
    }

    fn unlink(&mut self, name: &str) -> Result<()> {
        Ok(self.volume.unlink(name)?)
    }

    fn stat(&mut self, name: &str) -> Result<u64> {
        Ok(self.volume.stat(name)?.size)
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<()> {
        if self.file.is_none() {
            self.file = Some(self.volume.open(name, OpenFlags::WRITE, 0)?);
        }
        let file = self.file.as_ref().context("it was just opened")?;
        Ok(file.write_all_at(0, data)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.volume.sync()?)
    }
}

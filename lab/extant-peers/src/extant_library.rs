//! This engine.

use crate::Session;
use anyhow::{Context, Result};
use extant::{File, OpenOptions, Volume};
use std::path::Path;

struct Extant {
    volume: Volume,
    file: Option<File>,
}

pub fn open(image: &Path) -> Result<Box<dyn Session>> {
    let volume = Volume::open(image)?;
    Ok(Box::new(Extant { volume, file: None }))
}

impl Session for Extant {
    fn create(&mut self, name: &str) -> Result<()> {
        self.volume.create_new_file(name)?;
        Ok(())
    }

    fn unlink(&mut self, name: &str) -> Result<()> {
        Ok(self.volume.remove_file(name)?)
    }

    fn stat(&mut self, name: &str) -> Result<u64> {
        Ok(self.volume.metadata(name)?.len())
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<()> {
        if self.file.is_none() {
            self.file = Some(OpenOptions::new().write(true).open(&self.volume, name)?);
        }
        let file = self.file.as_ref().context("it was just opened")?;
        Ok(file.write_all_at(data, 0)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.volume.sync()?)
    }
}

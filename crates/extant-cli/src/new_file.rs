//! Files of new images: raw, or packed when they are whole, as their names or `--format` say.

use crate::commands::mkfs::{Bar, no_place};
use crate::interrupt;
use crate::progress::Progress;
use anyhow::{Context, Result};
use blockdev::{BlockDevice, FileDevice};
use extant::mkfs::Progress as _;
use extant_disk::{NewFormat, NewImage, Packing};
use std::io;
use std::path::{Path, PathBuf};

/// A format as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Byte by byte
    Raw,
    /// zstd, seekable; so is out.img.zst without this option
    Zst,
    /// Android's sparse image; so is out.simg without this option
    AndroidSparse,
}

impl Format {
    /// How a file of this name is packed; `None` for raw.
    pub fn of(asked: Option<Self>, path: &Path) -> Option<NewFormat> {
        match asked {
            None => NewFormat::of_name(path),
            Some(Self::Raw) => None,
            Some(Self::Zst) => Some(NewFormat::Zstd),
            Some(Self::AndroidSparse) => Some(NewFormat::AndroidSparse),
        }
    }
}

/// The file of a new image.
pub enum NewFile {
    Raw(FileDevice),
    Packed(Box<NewImage>, PathBuf),
}

impl NewFile {
    /// Makes the file, or what it is going to be packed from.
    pub fn create(path: &Path, format: Option<NewFormat>, size: u64) -> Result<Self> {
        let made = match format {
            None => FileDevice::create(path, size).map(Self::Raw),
            Some(format) => NewImage::create(path, format, size)
                .map(|new| Self::Packed(Box::new(new), path.to_path_buf())),
        };
        made.map_err(|e| no_place(path, e))
    }

    /// The device to write to.
    pub fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::Raw(file) => file,
            Self::Packed(new, _) => new.device(),
        }
    }

    /// Packs what is to be packed. Returns the size of the file then.
    pub fn finish(self, threads: usize, bar: &Bar) -> Result<Option<u64>> {
        let (new, path) = match self {
            Self::Raw(_) => return Ok(None),
            Self::Packed(new, path) => (new, path),
        };
        bar.change(Some(Progress::bytes("pack", new.device().len())));
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        };
        let packed = new.finish(&Packing {
            threads,
            step: &|bytes| {
                bar.advance(bytes);
                interrupt::check().map_err(io::Error::other)
            },
        });
        interrupt::check()?;
        packed.map(Some).with_context(|| path.display().to_string())
    }
}

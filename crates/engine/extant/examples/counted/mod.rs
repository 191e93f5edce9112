//! The image on which operations are counted.

use blockdev::FileDevice;
use extant::mkfs::{self, MkfsOptions};
use std::path::Path;

pub type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// Makes an empty file system with these features and the usual ones, identical each time.
pub fn make(image: &Path, features: &str) -> Outcome {
    let options = MkfsOptions {
        size: Some(2 << 30),
        journal_size: Some(256 << 20),
        uuid: Some(*b"0123456789abcdef"),
        source_date_epoch: Some(1_700_000_000),
        zeroed_device: true,
        threads: 1,
        features: features.into(),
        ..MkfsOptions::default()
    };
    mkfs::format(&FileDevice::create(image, 2 << 30)?, &options)?;
    Ok(())
}

//! The identity of an image, whatever name it goes by.

use super::advice::about_image;
use super::{store, streams};
use crate::address::schemes::is_remote;
use crate::format::show::ShowPath;
use anyhow::{Context, Result};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The file of an image and its place there.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Device and inode of the file.
    pub file: store::FileId,
    /// Byte range of the image in the file.
    range: Range<u64>,
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.file == other.file && self.range.start == other.range.start
    }
}

impl Identity {
    /// Returns whether two images share bytes of a file.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (a, b) = (&self.range, &other.range);
        self.file == other.file && a.start < b.end && b.start < a.end
    }
}

/// Returns the identity of an image: two names of one image are one image.
pub fn identity(image: &Path) -> Result<Identity> {
    streams::no_image(image)?;
    if is_remote(image) {
        return Ok(Identity {
            file: store::remote_id(store::file(image)),
            range: store::range(image)?,
        });
    }
    let meta = store::file(image).metadata().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => anyhow::anyhow!("no such file or directory"),
        _ => e.into(),
    });
    let meta = meta
        .with_context(|| image.shown())
        .map_err(|e| about_image(image, e))?;
    Ok(Identity {
        file: (meta.dev(), meta.ino()),
        range: store::range(image)?,
    })
}

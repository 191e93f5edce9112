//! An image of a container on standard input. The bytes read for detection are kept, because layers are in any order,
//! and other input is read again from its start.

use super::{ContainerSource, ImageChoice, image_in, unpacked_layers};
use anyhow::{Context, Result};
use extant::mkfs::{ArchiveInput, decompressed};
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::streams::{self, Stdin};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tempfile::SpooledTempFile;

/// Bytes that are kept in memory before they go to a file.
const IN_MEMORY: usize = 4 << 20;

/// Standard input and its bytes that were already read.
struct KeptLayer {
    rest: Stdin,
    read: SpooledTempFile,
}

/// A reader that keeps the bytes it reads.
struct Tee(Arc<Mutex<KeptLayer>>);

fn lock(kept: &Mutex<KeptLayer>) -> std::sync::MutexGuard<'_, KeptLayer> {
    // A panic elsewhere ends the work anyway.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Read for Tee {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut kept = lock(&self.0);
        let n = kept.rest.read(buf)?;
        kept.read.write_all(&buf[..n])?; // as read
        Ok(n)
    }
}

/// A reader of the kept bytes and then the rest of standard input.
struct Again(Arc<Mutex<KeptLayer>>);

impl Read for Again {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut kept = lock(&self.0);
        match kept.read.read(buf)? {
            0 => kept.rest.read(buf),
            n => Ok(n),
        }
    }
}

/// Detects an image of a container on standard input or another pipe. Its layers are unpacked below `scratch`.
pub fn piped(source: &Path, scratch: &Path, choice: &ImageChoice) -> Result<ContainerSource> {
    let kept = Arc::new(Mutex::new(KeptLayer {
        rest: streams::pipe(source)?,
        read: tempfile::spooled_tempfile_in(IN_MEMORY, scratch),
    }));
    let tee = || Box::new(Tee(Arc::clone(&kept)));
    // Input that is not a tar archive is reported by its own reader.
    let top = decompressed(tee())
        .map_err(anyhow::Error::from)
        .and_then(image_in);
    extant_terminal::interrupt::check()?;
    let top = top.unwrap_or(None);
    let shown = match source.to_str() {
        Some("-") => "standard input".to_owned(),
        _ => source.shown(),
    };
    let name = || shown.clone();
    if top.is_some() {
        // Read to the end, so that the writer can finish.
        io::copy(&mut *tee(), &mut io::sink()).with_context(name)?;
    }
    lock(&kept)
        .read
        .seek(SeekFrom::Start(0))
        .with_context(name)?;
    let again = Box::new(Again(Arc::clone(&kept)));
    let Some(top) = top else {
        return Ok(ContainerSource::Other(ArchiveInput::Reader {
            name: shown.clone(),
            reader: again,
        }));
    };
    let archive = decompressed(again).with_context(name)?;
    unpacked_layers(archive, &top, &shown, scratch, choice).map(ContainerSource::Image)
}

//! Opening images, each once, and closing them whatever happened.

use super::identity::{Identity, identity};
use crate::address::Address;
use crate::address::advice::about;
use crate::address::advice::about_new;
use crate::address::image_place::ImagePlace;
use crate::address::patterns::{NoMatch, expand};
use crate::format::clock;
use crate::format::show::ShowPath;
use crate::image::advice::about_image;
use crate::image::{in_place, logged_image, store};
use crate::mounts::server_exit::open_when_free;
use anyhow::{Context, Result, bail};
use blockdev::{Access, BlockDevice};
use extant::{Volume, VolumeOptions};
use extant_terminal::progress::Progress;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Opens an image for reading: nothing in the image changes, not even by journal recovery.
pub fn read(image: &Path) -> Result<Volume> {
    open(image, false)
}

/// Memory for data pages: a command reads and writes most of them once.
const CACHE: u64 = 256 << 20;

/// Whether `--noload` was given.
static NOLOAD: AtomicBool = AtomicBool::new(false);

/// Sets whether images are read without the contents of their journals from now on.
pub fn leave_journals(yes: bool) {
    NOLOAD.store(yes, Ordering::Relaxed);
}

/// Returns whether images are read without the contents of their journals.
pub fn journals_are_left() -> bool {
    NOLOAD.load(Ordering::Relaxed)
}

/// Adds reports of damage and failures to the options: messages on standard error that name the image.
pub fn telling(options: VolumeOptions, image: &Path) -> VolumeOptions {
    let (damaged, stopped) = (image.to_path_buf(), image.to_path_buf());
    options
        .on_damage(move |damage| {
            extant_terminal::output::warn(format_args!("{}: damaged: {damage}", damaged.shown()))
        })
        .on_stop(move |why| {
            extant_terminal::output::warn(format_args!(
                "{}: no more changes: {why}",
                stopped.shown()
            ))
        })
}

/// Opens the device of an image to read its structures.
pub fn device(image: &Path) -> Result<Arc<dyn BlockDevice>> {
    identity(image)?;
    store::open(image, Access::ReadOnly)
}

fn open(image: &Path, writing: bool) -> Result<Volume> {
    crate::image::streams::no_image(image)?;
    let noload = journals_are_left();
    if writing && noload {
        bail!(
            "{}: --noload is for reading only: omit it to change the image",
            image.shown()
        );
    }
    if writing {
        in_place::take_back(image)?;
        if let Some(seconds) = clock::fixed()? {
            extant::unstable::fix_time(seconds);
        }
    }
    // Replaying a long journal or many orphans may take long.
    let progress = Progress::wait(&format!("{}: opening", image.shown()));
    let options = telling(VolumeOptions::new(), image)
        .read_only(!writing)
        .leave_out_damage(!writing)
        .noload(noload)
        .cache_bytes(CACHE);
    let opened = if !store::is_plain(image) || logged_image::is_logged(image) {
        let access = if writing {
            Access::ReadWrite
        } else {
            Access::ReadOnly
        };
        options.open_device(store::open(image, access)?)
    } else {
        open_when_free(image, || options.clone().open(image))
    };
    progress.done();
    let volume = opened
        .map_err(plain)
        .with_context(|| image.shown())
        .map_err(|e| about_image(image, e))?;
    if writing && let Some(why) = volume.read_only() {
        let why = why
            .trim_start_matches("read-only file system: ")
            .to_string();
        let error = anyhow::Error::new(extant::Error::ReadOnly(why));
        let error = error.context(image.shown());
        return Err(about_image(image, error));
    }
    Ok(volume)
}

/// Returns an error without the image's path, because the system's message already names the image.
pub fn plain(e: extant::Error) -> anyhow::Error {
    match e {
        extant::Error::Open { context, source } if context.starts_with("open ") => {
            // The kind in words; an error of the system in the system's words.
            match source.get_ref() {
                _ if source.kind() == std::io::ErrorKind::NotFound => {
                    anyhow::anyhow!("no such file or directory")
                }
                Some(inner) => {
                    let text = inner.to_string();
                    let name = context.trim_start_matches("open ");
                    let text = text
                        .strip_prefix(name)
                        .and_then(|t| t.strip_prefix(": "))
                        .unwrap_or(&text);
                    anyhow::anyhow!("{text}")
                }
                None => source.into(),
            }
        }
        other => other.into(),
    }
}

/// Works on an image for writing, then closes it; an error of the work takes precedence over an error of closing.
pub fn change<R>(image: &Path, work: impl FnOnce(&Volume) -> Result<R>) -> Result<R> {
    let volume = open(image, true)?;
    let done = work(&volume);
    let closed = closing(volume, image).with_context(|| format!("{}: close", image.shown()));
    let result = done?;
    closed.map(|()| result)
}

/// Closes a volume, which may have much to write.
fn closing(volume: Volume, image: &Path) -> extant::Result<()> {
    let progress = Progress::wait(&format!("{}: writing", image.shown()));
    let closed = volume.close();
    progress.done();
    closed
}

/// An image that is open.
struct Opened {
    identity: Identity,
    path: PathBuf,
    volume: Volume,
}

/// Images that a command works on, opened as they are named.
pub struct Images {
    writing: bool,
    open: Vec<Opened>,
}

impl Images {
    /// Returns the volume of an image, opened at first use.
    pub fn get(&mut self, image: &Path) -> Result<Volume> {
        let identity = identity(image)?;
        if let Some(opened) = self.open.iter().find(|o| o.identity == identity) {
            return Ok(opened.volume.clone());
        }
        if let Some(opened) = self.open.iter().find(|o| o.identity.overlaps(&identity)) {
            bail!("{} and {} overlap", opened.path.shown(), image.shown());
        }
        let volume = open(image, self.writing)?;
        self.open.push(Opened {
            identity,
            path: image.to_path_buf(),
            volume: volume.clone(),
        });
        Ok(volume)
    }

    /// Works on images for reading or writing, then closes them.
    pub fn with<R>(writing: bool, work: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        let mut images = Self {
            writing,
            open: Vec::new(),
        };
        let done = work(&mut images);
        let mut closed = Ok(());
        for opened in images.open {
            let image = opened.path;
            let done = closing(opened.volume, &image);
            closed = closed.and(done.with_context(|| format!("{}: close", image.shown())));
        }
        let result = done?;
        closed.map(|()| result)
    }

    /// Works on every address, and on every address that matches a pattern. Reports an address that fails, and
    /// continues with the others.
    pub fn each(
        writing: bool,
        addresses: &[Address],
        otherwise: NoMatch,
        mut work: impl FnMut(&ImagePlace) -> Result<()>,
    ) -> Result<()> {
        Self::with(writing, |images| {
            extant_terminal::output::each(addresses, |address| {
                let volume = images.get(&address.image)?;
                extant_terminal::output::each(expand(&volume, address, otherwise)?, |address| {
                    let done = ImagePlace::of(&volume, &address).and_then(|place| {
                        work(&place).map_err(|e| match otherwise {
                            NoMatch::IsName => about_new(&place, e),
                            _ => about(&place, e),
                        })
                    });
                    done.with_context(|| address.to_string())
                })
            })
        })
    }
}

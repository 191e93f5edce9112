//! Advice about an image that does not open.

use super::failed_open::about_open;
use super::present_content::{content, first_partition, is_disk};
use super::store;
use crate::address::schemes::is_remote;
use crate::format::show::ShowPath;
use crate::messages::advised::advised;
use blockdev::Access;
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant::Error;
use extant_terminal::interrupt::Interrupted;
use extant_terminal::output::one_line;
use std::path::Path;

/// Adds advice to the error of an image that does not open.
pub fn about_image(image: &Path, error: anyhow::Error) -> anyhow::Error {
    let name = image.shown();
    let kind = error.chain().find_map(|e| e.downcast_ref::<Error>());
    let advice = match kind {
        Some(Error::Format(ext4_format::FormatError::NotExt4(_))) => not_ext4(image),
        Some(Error::Format(ext4_format::FormatError::Incompatible(what)))
            if what.starts_with("fast commits") =>
        {
            Some(format!("extant repair -p {name} replays them"))
        }
        Some(Error::Unsupported(what)) if what.starts_with("fast commits") => {
            Some(format!("extant repair -p {name} replays them"))
        }
        // It is the journal of another volume, and holds no files.
        Some(Error::Format(ext4_format::FormatError::Incompatible(what)))
            if what.starts_with("journal_dev") =>
        {
            None
        }
        Some(Error::Format(ext4_format::FormatError::Incompatible(_))) => Some(format!(
            "extant inspect and check read it; Linux can mount {name}, and extant import brings its files into a new image"
        )),
        Some(Error::ReadOnly(why)) => without_feature(image, why),
        _ => return about_open(image, error),
    };
    match advice {
        Some(advice) => advised(one_line(&error), advice),
        None => error,
    }
}

/// Adds advice to the error of a command that was run on a whole disk instead of one of its partitions.
pub fn about_disk(image: &Path, error: anyhow::Error) -> anyhow::Error {
    let interrupted = error.chain().any(|e| e.is::<Interrupted>());
    if interrupted {
        error
    } else {
        let disk = no_disk(image).err();
        disk.unwrap_or_else(|| about_length(image, error))
    }
}

/// Adds advice to the error of a file that is shorter than its volume.
fn about_length(image: &Path, error: anyhow::Error) -> anyhow::Error {
    let head = store::head(image, 2 * SUPERBLOCK_SIZE).unwrap_or_default();
    let superblock = head.get(SUPERBLOCK_OFFSET as usize..).unwrap_or_default();
    let sb = RawSuperblock::parse(superblock).ok().or_else(|| {
        let device = store::open(image, Access::ReadOnly).ok()?;
        let backup = ext4_image::usual_backups(&device).next();
        backup.map(|(_, sb)| sb)
    });
    let volume = sb.and_then(|sb| sb.volume_len());
    if let Some(volume) = volume.filter(|_| is_remote(image)) {
        let device = store::open(image, Access::ReadOnly);
        return match device {
            Ok(device) if device.len() < volume => advised(
                one_line(&error),
                format_args!(
                    "the server has {} bytes of a volume of {volume}: make the image on the server as long",
                    device.len()
                ),
            ),
            _ => error,
        };
    }
    let file = image.metadata().ok().filter(std::fs::Metadata::is_file);
    match (volume, file) {
        (Some(volume), Some(file)) if file.len() < volume && store::is_plain(image) => {
            let (len, name) = (file.len(), image.shown());
            advised(
                one_line(&error),
                format_args!(
                    "the file is truncated to {len} bytes: truncate -s {volume} {name} makes it as long as its volume, with zeros at the end"
                ),
            )
        }
        _ => error,
    }
}

/// Fails for a disk with partitions. Backup superblocks on the disk belong to its partitions.
pub fn no_disk(image: &Path) -> anyhow::Result<()> {
    if store::split(image).is_some() || !is_disk(image) {
        return Ok(());
    }
    let Some(first) = first_partition(image) else {
        return Ok(());
    };
    let name = image.shown();
    Err(advised(
        format_args!("{name}: it is a disk with partitions"),
        format_args!("extant info {name} lists them, {name}@p{first} is the first"),
    ))
}

/// Returns the command that removes a feature which keeps an image read-only, or makes an image without that feature.
fn without_feature(image: &Path, why: &str) -> Option<String> {
    let readable = [
        "the feature inline_data ",
        "the feature ea_inode ",
        "feature bigalloc ",
    ];
    if readable.iter().any(|feature| why.starts_with(feature)) {
        return Some(format!(
            "extant mkfs NEW.img --from {} makes an image without it",
            image.shown()
        ));
    }
    let feature = why
        .strip_prefix("feature ")
        .and_then(|w| w.split(' ').next());
    let feature = feature.filter(|f| ["quota", "project"].contains(f))?;
    Some(format!(
        "extant tune {} -O ^{feature} takes it out",
        image.shown()
    ))
}

/// Returns advice about a file that is not an ext4 image, by the file's content.
fn not_ext4(image: &Path) -> Option<String> {
    let name = image.shown();
    // A confined server cannot open the file again.
    let held = content(image).unwrap_or_else(|_| Some("data".into()));
    Some(match held.as_deref() {
        Some(held @ ("a qcow2 image" | "a VDI" | "a QED image" | "a Parallels disk")) => {
            format!("it is {held}: qemu-img convert -O raw {name} RAW makes one that can be opened")
        }
        Some(held @ ("an MBR partition table" | "a GPT partition table")) => {
            let first = first_partition(image).unwrap_or(1);
            format!(
                "it begins with {held}: extant info {name} lists its partitions, {name}@p{first} is the first"
            )
        }
        Some(held @ ("gzip data" | "zstd data" | "a tar archive")) => {
            format!("it holds {held}: extant mkfs IMAGE --from {name} makes an image of an archive")
        }
        Some("data") => format!("file {name} may tell what it is"),
        Some(held) => format!("it holds {held}"),
        None => format!("it holds nothing: extant mkfs {name} makes a file system in it"),
    })
}

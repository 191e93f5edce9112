//! Advice: a user reads after an error what to do about it.

use crate::address::base_name;
use crate::address::{bytes, os};
use crate::commands::partitions;
use crate::image_place::ImagePlace;
use crate::show::{show, type_name};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant::{Dir, Error, FileType};
use std::fmt;
use std::path::Path;

/// An error with advice. The text includes its causes.
#[derive(Debug)]
struct Advised(String);

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Advised {}

/// Appends advice to an error.
pub fn advised(error: impl fmt::Display, advice: impl fmt::Display) -> anyhow::Error {
    anyhow::Error::new(Advised(format!("{error}: {advice}")))
}

/// Returns the directory part of a path; empty if the path is one name.
pub fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
    let path = &path[..end - base_name(path).len()];
    match path.iter().rposition(|&b| b != b'/') {
        Some(at) => &path[..=at],
        None if path.is_empty() => path,
        None => b"/",
    }
}

/// Returns a directory part that is empty means the directory itself.
fn asked(path: &[u8]) -> &[u8] {
    if path.is_empty() { b"." } else { path }
}

/// Returns the nearest existing ancestor of a path, with its type.
fn nearest<'p>(dir: &Dir, path: &'p [u8]) -> Option<(&'p [u8], FileType)> {
    let mut at = path;
    loop {
        let next = above(at);
        if next == at {
            return None;
        }
        at = next;
        if let Ok(attributes) = dir.metadata(os(asked(at))) {
            return Some((asked(at), attributes.file_type()));
        }
    }
}

/// Adds advice to an error about a place, if there is any.
pub fn about(place: &ImagePlace, error: anyhow::Error) -> anyhow::Error {
    // An error with a context is about something below the place.
    let Some(kind) = error
        .downcast_ref::<Error>()
        .filter(|_| error.chain().count() == 1)
    else {
        return error;
    };
    let address = &place.address;
    match kind {
        Error::NotFound | Error::NotDirectory if place.node().is_none() => {
            let name = |path: &[u8]| place.at(path).to_string();
            match missing(&place.dir, &place.path, name) {
                Some(advice) => advised(kind, advice),
                None => error,
            }
        }
        Error::IsDirectory => advised(kind, format_args!("extant ls {address} lists it")),
        Error::SymlinkLoop => advised(
            kind,
            format_args!("extant ls -l {address} shows where it leads"),
        ),
        Error::NotEmpty => advised(kind, "use -r"),
        _ => error,
    }
}

/// Returns advice about a path that does not exist; `name` turns a path from the same directory into an address.
pub fn missing(dir: &Dir, path: &[u8], name: impl Fn(&[u8]) -> String) -> Option<String> {
    if let Ok(target) = dir.read_link(os(path)) {
        return Some(format!(
            "it is a symbolic link to {}, which does not exist",
            show(&bytes(target))
        ));
    }
    if let Ok(attributes) = dir.symlink_metadata(os(path)) {
        return Some(format!("it is a {}", type_name(attributes.file_type())));
    }
    let (there, kind) = nearest(dir, path)?;
    Some(match kind {
        FileType::Directory => format!("see extant ls {}", name(there)),
        _ => format!("{} is not a directory", name(there)),
    })
}

/// Adds advice to an error about a new name, whose directory may be missing.
pub fn about_new(place: &ImagePlace, error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(kind @ Error::NotFound)
            if place
                .dir
                .symlink_metadata(os(asked(above(&place.path))))
                .is_err() =>
        {
            let parent = place.at(above(&place.path));
            advised(
                kind,
                format_args!("extant mkdir -p {parent} makes its directory"),
            )
        }
        Some(kind @ Error::Exists) => advised(kind, "with -p a directory may be there"),
        _ => about(place, error),
    }
}

/// Adds advice to the error of an image that does not open.
pub fn about_image(image: &Path, error: anyhow::Error) -> anyhow::Error {
    let text = crate::output::one_line(&error);
    let name = image.display();
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
        Some(Error::Format(ext4_format::FormatError::Incompatible(_))) => Some(format!(
            "Linux can read it: mount {name} there, and extant import brings its files into a new image"
        )),
        Some(Error::ReadOnly(why)) => without_feature(image, why),
        _ if text.ends_with("(multiple mount protection)") => Some(format!(
            "if nobody has it, extant tune {name} -E clear_mmp says so"
        )),
        Some(_) => None,
        None if text.ends_with("no such file or directory") => {
            Some("extant mkfs makes a new image".to_string())
        }
        None if text.contains("in use by another") => Some(format!(
            "extant umount its directory, or see fuser -v {name}"
        )),
        None if text.ends_with("Permission denied") => Some(permission(image)),
        None if text.ends_with("nor a block device") && image.is_dir() => Some(format!(
            "a path in an image is IMAGE:/PATH; extant mkfs IMAGE --from {name} makes an image of a directory"
        )),
        None if text.ends_with("Not a directory") => inside(image),
        None => None,
    };
    match advice {
        Some(advice) => advised(text, advice),
        None => error,
    }
}

/// Adds advice to the error of a command that was run on a whole disk instead of one of its partitions.
pub fn about_disk(image: &Path, error: anyhow::Error) -> anyhow::Error {
    let interrupted = error
        .chain()
        .any(|e| e.is::<crate::interrupt::Interrupted>());
    if interrupted {
        error
    } else {
        let disk = no_disk(image).err();
        disk.unwrap_or_else(|| about_length(image, error))
    }
}

/// Adds advice to the error of a file that is shorter than its volume.
fn about_length(image: &Path, error: anyhow::Error) -> anyhow::Error {
    let head = crate::store::head(image, 2 * SUPERBLOCK_SIZE).unwrap_or_default();
    let superblock = head.get(SUPERBLOCK_OFFSET as usize..).unwrap_or_default();
    let sb = RawSuperblock::parse(superblock).ok();
    let volume = sb.and_then(|sb| {
        let block = 1024_u64.checked_shl(sb.log_block_size.get())?;
        sb.blocks_count().checked_mul(block)
    });
    let file = image.metadata().ok().filter(std::fs::Metadata::is_file);
    match (volume, file) {
        (Some(volume), Some(file)) if file.len() < volume && crate::store::is_plain(image) => {
            let (len, name) = (file.len(), image.display());
            advised(
                crate::output::one_line(&error),
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
    if crate::store::split(image).is_some() || !partitions::is_disk(image) {
        return Ok(());
    }
    let Some(first) = partitions::first(image) else {
        return Ok(());
    };
    let name = image.display();
    Err(advised(
        format_args!("{name}: it is a disk with partitions"),
        format_args!("extant info {name} lists them, {name}@p{first} is the first"),
    ))
}

/// Returns the command that removes a feature which keeps an image read-only, or makes an image without that feature.
fn without_feature(image: &Path, why: &str) -> Option<String> {
    if why.starts_with("the feature inline_data ") {
        return Some(format!(
            "extant mkfs NEW.img --from {} makes an image without it",
            image.display()
        ));
    }
    let feature = why
        .strip_prefix("feature ")
        .and_then(|w| w.split(' ').next());
    let feature = feature.filter(|f| ["quota", "project"].contains(f))?;
    Some(format!(
        "extant tune {} -O ^{feature} takes it out",
        image.display()
    ))
}

/// Returns advice about a file that is not an ext4 image, by the file's content.
fn not_ext4(image: &Path) -> Option<String> {
    let name = image.display();
    // A confined server cannot open the file again.
    let held = crate::present_content::content(image).unwrap_or_else(|_| Some("data".into()));
    Some(match held.as_deref() {
        Some(held @ "a qcow2 image") => {
            format!("it is {held}: qemu-img convert -O raw {name} RAW makes one that can be opened")
        }
        Some(held @ ("an MBR partition table" | "a GPT partition table")) => {
            let first = partitions::first(image).unwrap_or(1);
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

/// Returns the owner and the mode of a file that the user may not open.
fn permission(image: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    match image.metadata() {
        Ok(meta) => format!(
            "it is of user {} with mode {:04o}, and you are {}",
            meta.uid(),
            meta.mode() & 0o7777,
            rustix::process::geteuid().as_raw()
        ),
        Err(_) => "a directory above it is closed to you".into(),
    }
}

/// Returns the address for a path like `disk.img/etc`.
fn inside(path: &Path) -> Option<String> {
    let image = path.ancestors().skip(1).find(|p| p.is_file())?;
    let rest = path.strip_prefix(image).ok()?;
    Some(format!("write {}:/{}", image.display(), rest.display()))
}

/// Returns advice by the kind of an error, for all commands.
pub fn in_general(error: &anyhow::Error) -> Option<&'static str> {
    error
        .chain()
        .find_map(|cause| match cause.downcast_ref::<Error>()? {
            Error::NoSpace(_) => {
                Some("extant df shows what is free, extant resize makes an image larger")
            }
            Error::Format(
                ext4_format::FormatError::Corrupt { .. }
                | ext4_format::FormatError::Checksum { .. },
            ) => Some("the image is damaged: extant repair -n lists what it would mend"),
            Error::NoAttribute => Some("see extant getfattr -m -"),
            Error::Unsupported("attribute name space") => {
                Some("names begin with user., trusted., security. or system.")
            }
            _ => None,
        })
}

//! Files of new images: raw, or packed when they are complete, as their names or `--format` ask.

use crate::address::schemes::unknown_scheme;
use crate::format::show::ShowPath;
use crate::messages::advised::advised;
use crate::messages::mkfs_progress::Bar;
use crate::mounts::server_exit::open_when_free;
use anyhow::{Context, Result, anyhow, bail};
use blockdev::{Access, BlockDevice, FileDevice};
use extant::mkfs::Progress as _;
use extant_disk::{NewFormat, NewImage, Packing};
use extant_terminal::interrupt;
use extant_terminal::output::one_line;
use extant_terminal::progress::Progress;
use std::io;
use std::path::{Path, PathBuf};

/// A format as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Byte by byte
    Raw,
    /// zstd, seekable; the default for out.img.zst
    Zst,
    /// Android's sparse image; the default for out.simg
    AndroidSparse,
    /// qcow2 image of QEMU, not compressed; the default for out.qcow2
    Qcow2,
    /// Dynamic VHD, for Hyper-V and VirtualBox; the default for out.vhd
    Vhd,
    /// VMDK in one growing file, for VMware and VirtualBox; the default for out.vmdk
    Vmdk,
}

/// Suffixes of names that ask for an unsupported format, and the command that makes a file NEW of that format from a raw image RAW, if
/// there is one.
const NOT_WRITTEN: &[(&str, Option<&str>)] = &[
    ("qcow", Some("qemu-img convert -f raw -O qcow RAW NEW")),
    ("vhdx", Some("qemu-img convert -f raw -O vhdx RAW NEW")),
    ("vdi", Some("qemu-img convert -f raw -O vdi RAW NEW")),
    ("qed", Some("qemu-img convert -f raw -O qed RAW NEW")),
    ("hdd", Some("qemu-img convert -f raw -O parallels RAW NEW")),
    ("hds", Some("qemu-img convert -f raw -O parallels RAW NEW")),
    ("gz", Some("gzip RAW")),
    ("xz", Some("xz RAW")),
    ("bz2", Some("bzip2 RAW")),
    ("lz4", Some("lz4 RAW")),
    ("lzma", Some("xz --format=lzma RAW")),
    ("lzo", Some("lzop RAW")),
    ("zip", Some("zip NEW RAW")),
    ("7z", Some("7z a NEW RAW")),
    ("tar", Some("extant export RAW NEW")),
    ("tgz", Some("extant export RAW NEW")),
    ("cpio", Some("extant export RAW NEW")),
    ("iso", None),
    ("ova", None),
    ("ovf", None),
    ("dmg", None),
    ("squashfs", None),
    ("sqfs", None),
    ("erofs", None),
    ("e01", None),
    ("aff4", None),
];

impl Format {
    /// Returns the packing for a file of this name; `None` for raw.
    ///
    /// # Errors
    /// The name asks for an unsupported format, and no format was given.
    pub fn of(asked: Option<Self>, path: &Path) -> Result<Option<NewFormat>> {
        Ok(match asked {
            None => match NewFormat::of_name(path) {
                None => {
                    check_ending(path)?;
                    None
                }
                known => known,
            },
            Some(Self::Raw) => None,
            Some(Self::Zst) => Some(NewFormat::Zstd),
            Some(Self::AndroidSparse) => Some(NewFormat::AndroidSparse),
            Some(Self::Qcow2) => Some(NewFormat::Qcow2),
            Some(Self::Vhd) => Some(NewFormat::Vhd),
            Some(Self::Vmdk) => Some(NewFormat::Vmdk),
        })
    }
}

/// Returns the suffix of a name in lower case.
fn ending_of(path: &Path) -> String {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.unwrap_or_default().to_ascii_lowercase()
}

/// Returns the name with the suffix of a raw image instead of another suffix.
fn raw_name(path: &Path) -> PathBuf {
    let raw = path.with_extension("");
    match raw.extension() {
        Some(_) => raw,
        None => raw.with_extension("img"),
    }
}

/// Fails if the name of a new raw image has the suffix of another format.
///
/// # Errors
/// The name asks for another format; the message has a name for a raw image.
pub fn check_raw_name(path: &Path) -> Result<()> {
    let ending = ending_of(path);
    let other = NOT_WRITTEN.iter().any(|(known, _)| *known == ending);
    if other || NewFormat::of_name(path).is_some() {
        bail!(
            "{}: the copy is a raw image, not .{ending}: name it {}",
            path.shown(),
            raw_name(path).shown()
        );
    }
    Ok(())
}

/// Fails for a name with the suffix of an unsupported format.
fn check_ending(path: &Path) -> Result<()> {
    let ending = ending_of(path);
    let Some((_, command)) = NOT_WRITTEN.iter().find(|(known, _)| *known == ending) else {
        return Ok(());
    };
    let shown = path.shown();
    let Some(command) = command else {
        bail!(
            "{shown}: .{ending} is not written, but raw images, .qcow2, .vhd, .vmdk, .zst and .simg (--format raw writes a raw image of this name)"
        );
    };
    let raw = raw_name(path);
    let raw = raw.shown();
    let words = command.split(' ').map(|word| match word {
        "RAW" => raw.to_string(),
        "NEW" => shown.to_string(),
        word => word.to_string(),
    });
    let then = words.collect::<Vec<_>>().join(" ");
    bail!(
        "{shown}: .{ending} is not written: make {raw}, then {then} (--format raw writes a raw image of this name)"
    )
}

/// The file of a new image.
pub enum NewFile {
    /// A raw image.
    Raw(FileDevice),
    /// An image to pack when it is complete, and its path.
    Packed(Box<NewImage>, PathBuf),
}

impl NewFile {
    /// Creates the file, or the temporary file to pack later.
    pub fn create(path: &Path, format: Option<NewFormat>, size: u64) -> Result<Self> {
        let made = match format {
            None => open_when_free(path, || FileDevice::create(path, size)).map(Self::Raw),
            Some(format) => open_when_free(path, || NewImage::create(path, format, size))
                .map(|new| Self::Packed(Box::new(new), path.to_path_buf())),
        };
        made.map_err(|e| no_place(path, e))
    }

    /// Uses the beginning of an existing file, which reads as zeros from then on. The rest of the file stays.
    pub fn beginning_of(path: &Path, size: u64) -> Result<Self> {
        let opened = open_when_free(path, || FileDevice::open(path, Access::ReadWrite));
        let opened = opened.and_then(|file| {
            file.discard(0, size)?;
            Ok(Self::Raw(file))
        });
        opened.map_err(|e| no_place(path, e))
    }

    /// Returns the device to write to.
    pub fn device(&self) -> &dyn BlockDevice {
        match self {
            Self::Raw(file) => file,
            Self::Packed(new, _) => new.device(),
        }
    }

    /// Packs the image if a format was requested. Returns the size of the packed file.
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
        packed.map(Some).with_context(|| path.shown())
    }
}

/// Returns why an image cannot be made at its path.
fn no_place(image: &Path, e: io::Error) -> anyhow::Error {
    let kind = e.kind();
    let error = bare(e);
    let parent = image
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let dir = parent.shown();
    if let Some(why) = unknown_scheme(image.as_os_str()) {
        return anyhow!(why);
    }
    match kind {
        io::ErrorKind::NotFound if !parent.exists() => advised(
            one_line(&error),
            format_args!("mkdir -p {dir} makes its directory"),
        ),
        io::ErrorKind::PermissionDenied => advised(
            one_line(&error),
            format_args!("name a file in a directory that is yours, not in {dir}"),
        ),
        io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => advised(
            one_line(&error),
            format_args!(
                "the file system of {dir} holds no file of this size: use a smaller --size"
            ),
        ),
        _ => error,
    }
}

/// Returns an error of the device without its leading path.
fn bare(e: io::Error) -> anyhow::Error {
    match e.to_string().split_once(": ") {
        Some((_, rest)) if e.get_ref().is_some() => anyhow::anyhow!("{rest}"),
        _ => e.into(),
    }
}

//! A file as a disk: raw, or in a format that its first bytes identify.

use crate::android::{self, Chunks};
use crate::by_imago::ImagoDevice;
use crate::cursor::Cursor;
use crate::mapped::Mapped;
use crate::seek_table::SeekTable;
use crate::seekable::Seekable;
use crate::unpacked::{Unpacked, Unpacking};
use crate::vhd::{self, Blocks, Footer, VhdKind};
use crate::vmdk::{self, Grains};
use blockdev::{Access, BlockDevice, FileDevice, PartDevice};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Format of a disk in a file. The first bytes identify it, regardless of the name.
///
/// ```
/// use extant_disk::{Format, blockdev::MemDevice};
/// let mut bytes = [0; 4096];
/// bytes[..4].copy_from_slice(b"QFI\xfb");
/// assert_eq!(Format::of(&MemDevice::from_bytes(&bytes)), Format::Qcow2);
/// assert_eq!(Format::of(&MemDevice::new(4096)), Format::Raw);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Raw, or unknown.
    Raw,
    /// QEMU's own format.
    Qcow2,
    /// Compressed with gzip.
    Gzip,
    /// Compressed with zstd; with a seek table, only the frames that are read are decompressed.
    Zstd,
    /// Compressed with xz.
    Xz,
    /// Compressed with bzip2.
    Bzip2,
    /// Android's sparse image.
    AndroidSparse,
    /// VHD with blocks in a table.
    Vhd,
    /// VHD that is a raw disk with a footer.
    VhdFixed,
    /// VHDX, which is only recognized.
    Vhdx,
    /// VMDK in one file, or a description of several.
    Vmdk,
}

impl Format {
    /// Returns the format of a file; raw if it cannot be read.
    pub fn of(file: &dyn BlockDevice) -> Self {
        let mut head = [0; 512];
        let len = file.len().min(head.len() as u64) as usize;
        let head = &mut head[..len];
        if file.read_at(0, head).is_err() {
            return Self::Raw;
        }
        match head {
            [b'Q', b'F', b'I', 0xfb, ..] if len == 512 => Self::Qcow2,
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            // A skippable frame may come first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', b'1', b'A', b'Y', ..] => Self::Bzip2,
            _ if head.starts_with(&android::MAGIC) => Self::AndroidSparse,
            _ if head.starts_with(vhd::MAGIC) => Self::Vhd,
            _ if head.starts_with(b"vhdxfile") => Self::Vhdx,
            _ if head.starts_with(vmdk::MAGIC) || head.starts_with(vmdk::DESCRIPTION) => Self::Vmdk,
            _ => match Footer::read(file) {
                Some(footer) if footer.kind == VhdKind::Fixed => Self::VhdFixed,
                _ => Self::Raw,
            },
        }
    }

    /// Returns whether disks in this format can be written.
    pub const fn is_written(self) -> bool {
        matches!(self, Self::Raw | Self::Qcow2 | Self::VhdFixed)
    }

    /// Returns whether the whole file is compressed, so that it may also contain an archive.
    pub const fn is_compressed(self) -> bool {
        matches!(self, Self::Gzip | Self::Zstd | Self::Xz | Self::Bzip2)
    }

    /// Returns why a disk in this format cannot be written, and the remedy.
    ///
    /// ```
    /// let why = extant_disk::Format::Xz.why_read_only();
    /// assert_eq!(why, Some("compressed with xz, and only read: xz -d makes an image that can be changed"));
    /// ```
    pub const fn why_read_only(self) -> Option<&'static str> {
        Some(match self {
            Self::Raw | Self::Qcow2 | Self::VhdFixed => return None,
            Self::Gzip => {
                "compressed with gzip, and only read: gzip -d makes an image that can be changed"
            }
            Self::Zstd => {
                "compressed with zstd, and only read: zstd -d makes an image that can be changed"
            }
            Self::Xz => {
                "compressed with xz, and only read: xz -d makes an image that can be changed"
            }
            Self::Bzip2 => {
                "compressed with bzip2, and only read: bzip2 -d makes an image that can be changed"
            }
            Self::AndroidSparse => {
                "an Android sparse image, and only read: simg2img makes an image that can be changed"
            }
            Self::Vhd => {
                "a VHD, and only read: qemu-img convert -O raw makes an image that can be changed"
            }
            Self::Vhdx => {
                "a VHDX, which is not read: qemu-img convert -O raw makes an image that is"
            }
            Self::Vmdk => {
                "a VMDK, and only read: qemu-img convert -O raw makes an image that can be changed"
            }
        })
    }
}

/// Opens the disk in a file.
///
/// ```no_run
/// use extant_disk::blockdev::{Access, BlockDevice};
/// let disk = extant_disk::open("disk.qcow2", Access::ReadOnly)?;
/// println!("{} bytes", disk.len());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The file cannot be opened, or is damaged; it is opened for writing, but its format is read-only; a qcow2 image
/// refers to a file outside of its own directory.
pub fn open(path: impl AsRef<Path>, access: Access) -> io::Result<Arc<dyn BlockDevice>> {
    open_with(path, access, Unpacking::default())
}

/// Opens the disk in a zstd file that lies on a device. Returns `None` if the file lacks a seek table, or if its frames are long.
///
/// ```
/// use extant_disk::blockdev::MemDevice;
/// let device = std::sync::Arc::new(MemDevice::new(4096));
/// assert!(extant_disk::seekable(device)?.is_none());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The device cannot be read, or the table is damaged.
pub fn seekable(file: Arc<dyn BlockDevice>) -> io::Result<Option<Arc<dyn BlockDevice>>> {
    let table = SeekTable::read(&file)?.filter(SeekTable::has_short_frames);
    let disk = table.map(|table| Arc::new(Seekable::new(file, "the file".into(), table)));
    Ok(disk.map(|disk| disk as _))
}

/// Opens the disk like [`open`], with a directory and a size limit for files that must be decompressed as a whole.
/// They are decompressed at the first call of the device.
///
/// ```no_run
/// use extant_disk::{Unpacking, blockdev::Access};
/// let disk = extant_disk::open_with("disk.img.gz", Access::ReadOnly, Unpacking::default())?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Like [`open`]; also, the space for the decompressed data is insufficient.
pub fn open_with(
    path: impl AsRef<Path>,
    access: Access,
    unpacking: Unpacking,
) -> io::Result<Arc<dyn BlockDevice>> {
    let path = path.as_ref();
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    // Report the format's reason even if the file is not writable.
    let file = FileDevice::open(path, access);
    let file = match access {
        Access::ReadOnly => file?,
        Access::ReadWrite => {
            let format = file.as_ref().map_or(Format::Raw, |file| Format::of(file));
            if let Some(why) = format.why_read_only() {
                let why = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why);
                return Err(named(why));
            }
            file?
        }
    };
    Ok(match Format::of(&file) {
        Format::Raw => Arc::new(file),
        Format::Qcow2 => Arc::new(ImagoDevice::qcow2(file, access)?),
        Format::AndroidSparse => {
            let chunks = Chunks::read(&file).map_err(named)?;
            Arc::new(Mapped::new(file, chunks))
        }
        Format::Vhd | Format::VhdFixed => vhd(file).map_err(named)?,
        Format::Vhdx => {
            let why = Format::Vhdx.why_read_only().unwrap_or_default();
            return Err(named(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        Format::Vmdk => {
            let mut head = [0; 4];
            file.read_at(0, &mut head)?;
            if head != *vmdk::MAGIC {
                return Ok(Arc::new(ImagoDevice::vmdk(file).map_err(named)?));
            }
            let grains = Grains::read(&file).map_err(named)?;
            Arc::new(Mapped::new(file, grains))
        }
        Format::Zstd => match SeekTable::read(&file).map_err(named)? {
            Some(table) if table.has_short_frames() => {
                let name = path.display().to_string();
                Arc::new(Seekable::new(Arc::new(file), name, table))
            }
            _ => Arc::new(Unpacked::new(file, unpacking)?),
        },
        Format::Gzip | Format::Xz | Format::Bzip2 => Arc::new(Unpacked::new(file, unpacking)?),
    })
}

/// Returns the disk in a VHD.
fn vhd(file: FileDevice) -> io::Result<Arc<dyn BlockDevice>> {
    let footer = Footer::read(&file).ok_or_else(|| {
        let text = "the VHD is damaged: its footer has a wrong checksum";
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    Ok(match footer.kind {
        VhdKind::Fixed => Arc::new(PartDevice::new(file, 0..footer.size)?),
        _ => {
            let blocks = Blocks::read(&file, &footer)?;
            Arc::new(Mapped::new(file, blocks))
        }
    })
}

/// Returns the first bytes of a file's content, compressed or not; at most `most`.
///
/// ```
/// use extant_disk::blockdev::MemDevice;
/// let head = extant_disk::decompressed_head(MemDevice::from_bytes(b"plain"), 3)?;
/// assert_eq!(head, b"pla");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The device fails, or the compressed data are damaged.
pub fn decompressed_head(file: impl BlockDevice + 'static, most: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    extant_sources::decompressed(Box::new(Cursor::new(file)))?
        .take(most as u64)
        .read_to_end(&mut head)?;
    Ok(head)
}

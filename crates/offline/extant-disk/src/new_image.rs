//! New images in packed formats: built on an unnamed sparse file, and packed when they are complete.

use crate::android;
use crate::new_vhd;
use crate::new_vmdk;
use crate::pack;
use crate::packing::Packing;
use crate::qcow2;
use crate::scratch::Scratch;
use blockdev::{Access, BlockDevice, FileDevice};
use std::fs::{File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Packed format of a new image.
///
/// ```
/// use extant_disk::NewFormat;
/// assert_eq!(NewFormat::of_name("root.img.zst"), Some(NewFormat::Zstd));
/// assert_eq!(NewFormat::of_name("root.QCOW2"), Some(NewFormat::Qcow2));
/// assert_eq!(NewFormat::of_name("root.img"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NewFormat {
    /// zstd in its seekable format, of frames of 1 MiB.
    Zstd,
    /// Android's sparse image.
    AndroidSparse,
    /// qcow2, the format of QEMU.
    Qcow2,
    /// Dynamic VHD, for Hyper-V and VirtualBox.
    Vhd,
    /// VMDK in one growing file, for VMware and VirtualBox.
    Vmdk,
}

impl NewFormat {
    /// Returns the format that the suffix of a file's name selects, in upper or lower case.
    pub fn of_name(path: impl AsRef<Path>) -> Option<Self> {
        let ending = path.as_ref().extension()?;
        match ending.to_str()?.to_ascii_lowercase().as_str() {
            "zst" | "zstd" => Some(Self::Zstd),
            "simg" => Some(Self::AndroidSparse),
            "qcow2" => Some(Self::Qcow2),
            "vhd" | "vpc" => Some(Self::Vhd),
            "vmdk" => Some(Self::Vmdk),
            _ => None,
        }
    }
}

/// An image in the making, whose file appears when the image is complete.
///
/// ```
/// use extant_disk::blockdev::BlockDevice;
/// use extant_disk::{NewFormat, NewImage, Packing};
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("disk.img.zst");
/// let new = NewImage::create(&path, NewFormat::Zstd, 1 << 30)?;
/// new.device().write_at(1 << 20, b"data")?;
/// assert!(!path.exists());
/// let size = new.finish(&Packing { threads: 2, step: &|_| Ok(()) })?;
/// assert_eq!(path.metadata()?.len(), size);
/// assert!(size < 128 << 10);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct NewImage {
    path: PathBuf,
    format: NewFormat,
    scratch: Scratch,
    /// The file to be replaced, which stays locked meanwhile.
    replaced: Option<FileDevice>,
}

/// Returns the directory of a file.
pub fn directory(path: &Path) -> &Path {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.unwrap_or(Path::new("."))
}

impl NewImage {
    /// Starts an image of `size` zero bytes. Its data are in an unnamed file in the same directory until the image is
    /// complete, and take only the space of the written data.
    ///
    /// # Errors
    /// An existing file is in use or belongs to another user; the directory is not writable.
    pub fn create(path: impl AsRef<Path>, format: NewFormat, size: u64) -> io::Result<Self> {
        let path = path.as_ref();
        let (path, replaced) = match path.canonicalize() {
            Ok(real) => {
                let replaced = FileDevice::open(&real, Access::ReadWrite)?;
                (real, Some(replaced))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => (path.to_path_buf(), None),
            Err(e) => return Err(e),
        };
        let scratch = Scratch::new(directory(&path), size)?;
        Ok(Self {
            path,
            format,
            scratch,
            replaced,
        })
    }

    /// Returns the device to build the image on.
    pub fn device(&self) -> &dyn BlockDevice {
        &self.scratch
    }

    /// Packs the image, and gives the file its name once it is durable. Returns the size of the file.
    ///
    /// # Errors
    /// The file cannot be written, or a step fails. The new file is removed, and an existing file stays.
    pub fn finish(self, packing: &Packing<'_>) -> io::Result<u64> {
        let new = tempfile::Builder::new()
            .prefix(".extant-")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory(&self.path))?;
        let mut out = BufWriter::with_capacity(1 << 20, new.as_file());
        match self.format {
            NewFormat::Zstd => pack::pack(&self.scratch, &mut out, packing)?,
            NewFormat::AndroidSparse => android::pack(&self.scratch, &mut out, packing)?,
            NewFormat::Qcow2 => qcow2::pack(&self.scratch, &mut out, packing)?,
            NewFormat::Vhd => new_vhd::pack(&self.scratch, &mut out, packing)?,
            NewFormat::Vmdk => new_vmdk::pack(&self.scratch, &self.path, &mut out, packing)?,
        }
        out.flush()?;
        drop(out);
        let size = new.as_file().metadata()?.len();
        if let Some(replaced) = &self.replaced {
            let mode = replaced.path().metadata()?.permissions();
            new.as_file().set_permissions(mode)?;
        }
        new.as_file().sync_all()?;
        new.persist(&self.path).map_err(|e| e.error)?;
        // Also make the name durable.
        File::open(directory(&self.path))?.sync_all()?;
        Ok(size)
    }
}

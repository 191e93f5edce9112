//! qcow2 images, and VMDK images of several files, by the crate `imago`.

use blockdev::{Access, BlockDevice, FileDevice};
use imago::file::File;
use imago::format::gate::ImplicitOpenGate;
use imago::qcow2::Qcow2;
use imago::vmdk::Vmdk;
use imago::{FormatAccess, FormatDriverBuilder, Storage, StorageOpenOptions};
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest depth of nested images.
const DEEPEST: u32 = 16;

/// The disk in an image. Its file stays locked, like that of a [`FileDevice`].
pub struct ImagoDevice {
    access: FormatAccess<File>,
    file: FileDevice,
    len: u64,
    /// Set after a panic of the crate, which means damage of the image; the crate's state is not used any more.
    broken: AtomicBool,
}

/// Lets an image refer only to files in its own directory. Otherwise an image from elsewhere could name any file of
/// its user as its backing file, and expose the contents.
struct OwnDirectory {
    dir: PathBuf,
    depth: u32,
}

impl OwnDirectory {
    fn allow(&self, path: Option<&Path>) -> io::Result<()> {
        let path = path.ok_or(io::ErrorKind::InvalidInput)?;
        let near = path.canonicalize()?.parent() == Some(&*self.dir);
        if near && self.depth < DEEPEST {
            return Ok(());
        }
        let why = if near {
            "too many images are behind one another"
        } else {
            "the image leads to a file outside of its own directory, which is not opened"
        };
        let text = format!("{}: {why}", path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}

impl ImplicitOpenGate<File> for OwnDirectory {
    fn open_format<F: FormatDriverBuilder<File>>(
        &mut self,
        builder: F,
    ) -> io::Result<FormatAccess<File>> {
        self.allow(builder.get_image_path().as_deref())?;
        let gate = Self {
            dir: self.dir.clone(),
            depth: self.depth + 1,
        };
        Ok(FormatAccess::new(builder.open(gate)?))
    }

    fn open_storage(&mut self, options: StorageOpenOptions) -> io::Result<File> {
        self.allow(options.get_filename())?;
        File::open(options)
    }
}

thread_local! {
    static IN_IMAGO: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this thread runs the crate `imago`, which may panic on a damaged image. A program that aborts at a panic can report
/// the damage in its panic hook.
///
/// ```
/// assert!(!extant_disk::in_imago());
/// ```
pub fn in_imago() -> bool {
    IN_IMAGO.get()
}

/// Runs the crate's code, which may panic on a damaged image.
fn guarded<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    IN_IMAGO.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IN_IMAGO.set(false);
    done.unwrap_or_else(|_| {
        let text = "the image is damaged";
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    })
}

impl ImagoDevice {
    /// Opens the qcow2 image in an already open file.
    pub fn qcow2(file: FileDevice, access: Access) -> io::Result<Self> {
        let write = access == Access::ReadWrite;
        Self::open(file, |path, gate| {
            let builder = Qcow2::<File>::builder_path(path).write(write);
            builder.open(gate).map(FormatAccess::new)
        })
    }

    /// Opens the image that the file describes, read-only.
    pub fn vmdk(file: FileDevice) -> io::Result<Self> {
        Self::open(file, |path, gate| {
            let builder = Vmdk::<File>::builder_path(path);
            builder.open(gate).map(FormatAccess::new)
        })
    }

    fn open(
        file: FileDevice,
        open: impl FnOnce(&Path, OwnDirectory) -> io::Result<FormatAccess<File>>,
    ) -> io::Result<Self> {
        let path = file.path().canonicalize()?;
        let name = file.path().display().to_string();
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{name}: {e}"));
        let dir = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let opened = guarded(|| open(&path, OwnDirectory { dir, depth: 0 }));
        let access = opened.map_err(named)?;
        let len = access.size();
        Ok(Self {
            access,
            file,
            len,
            broken: AtomicBool::new(false),
        })
    }

    fn run<T>(&self, work: impl FnOnce(&FormatAccess<File>) -> io::Result<T>) -> io::Result<T> {
        if self.broken.load(Ordering::Acquire) {
            return Err(io::Error::other("the image failed before"));
        }
        let mut ended = false;
        let done = guarded(|| {
            let done = work(&self.access);
            ended = true;
            done
        });
        if !ended {
            self.broken.store(true, Ordering::Release);
        }
        done.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.file.path().display())))
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        let what = || io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the disk");
        end.map(drop).ok_or_else(what)
    }

    fn may_write(&self) -> io::Result<()> {
        if self.read_only() {
            Err(io::ErrorKind::ReadOnlyFilesystem.into())
        } else {
            Ok(())
        }
    }
}

impl BlockDevice for ImagoDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        self.run(|access| access.read(buf, offset))
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.may_write()?;
        self.check(offset, buf.len() as u64)?;
        self.run(|access| access.write(buf, offset))
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only() {
            return Ok(());
        }
        // First the crate's cache, then the file's.
        self.run(|access| access.flush().and_then(|()| access.sync()))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.may_write()?;
        self.check(offset, len)?;
        self.run(|access| access.write_zeroes(offset, len))
    }

    fn read_only(&self) -> bool {
        self.file.read_only()
    }
}

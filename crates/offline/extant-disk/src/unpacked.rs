//! A compressed file without an index as a device: decompressed once, into an unnamed sparse file.

use crate::cursor::Cursor;
use crate::mapped::beyond;
use crate::new_image::directory;
use blockdev::{BlockDevice, FileDevice};
use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Number of bytes decompressed at once, and the granularity of holes in the output.
const CHUNK: usize = 1 << 20;
const GRAIN: usize = 64 << 10;

/// Parameters for files that must be decompressed as a whole.
///
/// ```no_run
/// use extant_disk::{Unpacking, blockdev::Access};
/// let unpacking = Unpacking { most: 1 << 30, ..Unpacking::default() };
/// let disk = extant_disk::open_with("disk.img.xz", Access::ReadOnly, unpacking)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Unpacking {
    /// Directory of the unnamed file with the content while the device is open. If the file cannot be made there, the
    /// directory of the compressed file is used.
    pub dir: PathBuf,
    /// Size limit of the content in bytes.
    pub most: u64,
    /// Called for each decompressed piece; an error ends the work.
    pub step: Arc<dyn Fn() -> io::Result<()> + Send + Sync>,
}

impl Default for Unpacking {
    /// Returns the default: the directory for temporary files, and 64 GiB.
    fn default() -> Self {
        Self {
            dir: std::env::temp_dir(),
            most: 64 << 30,
            step: Arc::new(|| Ok(())),
        }
    }
}

impl fmt::Debug for Unpacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dir, most, step: _ } = self;
        let mut shown = f.debug_struct("Unpacking");
        shown
            .field("dir", dir)
            .field("most", most)
            .finish_non_exhaustive()
    }
}

/// The device. Its content is decompressed at the first access, so that a program may confine itself before.
pub struct Unpacked {
    file: Arc<FileDevice>,
    content: FileDevice,
    unpacking: Unpacking,
    done: OnceLock<Result<(), (io::ErrorKind, String)>>,
}

impl Unpacked {
    /// Makes the file for the content of a compressed file.
    pub fn new(file: FileDevice, unpacking: Unpacking) -> io::Result<Self> {
        let content = FileDevice::temporary(&unpacking.dir, 0)
            .or_else(|_| FileDevice::temporary(directory(file.path()), 0))?;
        Ok(Self {
            file: Arc::new(file),
            content,
            unpacking,
            done: OnceLock::new(),
        })
    }

    fn content(&self) -> io::Result<&FileDevice> {
        let done = self.done.get_or_init(|| {
            self.unpack().map_err(|e| {
                // The partial output is useless.
                let _ = self.content.set_len(0);
                let text = match e.kind() {
                    io::ErrorKind::StorageFull => format!(
                        "no space for what is in it in {}: TMPDIR may name another place",
                        self.content.path().display()
                    ),
                    _ => e.to_string(),
                };
                (e.kind(), format!("{}: {text}", self.file.path().display()))
            })
        });
        match done {
            Ok(()) => Ok(&self.content),
            Err((kind, text)) => Err(io::Error::new(*kind, text.clone())),
        }
    }

    fn unpack(&self) -> io::Result<()> {
        let file = Cursor::new(Arc::clone(&self.file));
        let mut from = extant_sources::decompressed(Box::new(file))?;
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut at = 0;
        loop {
            (self.unpacking.step)()?;
            chunk.clear();
            from.by_ref().take(CHUNK as u64).read_to_end(&mut chunk)?;
            if chunk.is_empty() {
                return Ok(());
            }
            let end = at + chunk.len() as u64;
            if end > self.unpacking.most {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    self.too_large(),
                ));
            }
            self.content.set_len(end)?;
            for grain in chunk.chunks(GRAIN) {
                if !blockdev::is_zero(grain) {
                    self.content.write_at(at, grain)?;
                }
                at += grain.len() as u64;
            }
        }
    }

    fn too_large(&self) -> String {
        let most = self.unpacking.most;
        let most = match most {
            n if n.is_multiple_of(1 << 30) => format!("{} GiB", n >> 30),
            n => format!("{n} bytes"),
        };
        format!("is decompressed only up to {most}: decompress it to a file")
    }
}

impl BlockDevice for Unpacked {
    /// Returns 0 if the content cannot be decompressed; a read reports the reason.
    fn len(&self) -> u64 {
        self.content().map_or(0, BlockDevice::len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let content = self.content()?;
        let end = offset.checked_add(buf.len() as u64);
        end.filter(|end| *end <= content.len()).ok_or_else(beyond)?;
        content.read_at(offset, buf)
    }

    blockdev::only_read!();
}

//! The rescued files, as a tar archive.

use super::Loss;
use super::copy::Copied;
use anyhow::Result;
use ext4_format::FileType;
use extant_cli_core::image::whole_file::{WholeFile, directory_of};
use extant_rescue::{Found, Rescue};
use extant_terminal::interrupt;
use extant_terminal::progress::Progress;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tar::{Builder, EntryType, Header};

struct Packer<'r> {
    rescue: &'r Rescue<'r>,
    out: Builder<BufWriter<&'r mut File>>,
    /// Directory for temporary files, next to the archive.
    dir: &'r Path,
    /// Largest size of a file to pack; larger files are mostly holes.
    most: u64,
    copied: Copied,
    first: HashMap<u32, &'r Found>,
}

/// Writes everything to a new archive, which gets its name when it is complete. Skips files larger than `most` bytes,
/// because an archive has no holes.
pub fn pack(rescue: &Rescue<'_>, path: &Path, most: u64) -> Result<Copied> {
    let mut whole = WholeFile::new(path)?;
    let copied = write(rescue, whole.file(), directory_of(path), most)?;
    whole.name()?;
    Ok(copied)
}

fn write<'r>(
    rescue: &'r Rescue<'r>,
    file: &'r mut File,
    dir: &'r Path,
    most: u64,
) -> Result<Copied> {
    let lost = Vec::new();
    let mut packer = Packer {
        rescue,
        out: Builder::new(BufWriter::with_capacity(1 << 18, file)),
        dir,
        most,
        copied: Copied { files: 0, lost },
        first: HashMap::new(),
    };
    let bytes = rescue.found().iter().map(|found| found.size);
    let progress = Progress::bytes("packing", bytes.fold(0, u64::saturating_add));
    for found in rescue.found() {
        interrupt::check()?;
        packer.one(found)?;
        progress.add(found.size);
    }
    progress.done();
    packer.out.into_inner()?.flush()?;
    Ok(packer.copied)
}

impl<'r> Packer<'r> {
    fn lose(&mut self, found: &Found, reason: impl Into<String>) {
        self.copied.lost.push(Loss::of(&found.path, reason.into()));
    }

    fn one(&mut self, found: &'r Found) -> io::Result<()> {
        let path = Path::new(OsStr::from_bytes(&found.path));
        let mut header = self.header(found);
        match found.file_type {
            FileType::Directory => {
                header.set_entry_type(EntryType::Directory);
                self.out.append_data(&mut header, path, io::empty())
            }
            FileType::Symlink => {
                let target = self.data(found)?;
                header.set_entry_type(EntryType::Symlink);
                let mut bytes = Vec::new();
                target.take(1 << 16).read_to_end(&mut bytes)?;
                self.link(&mut header, path, found, &bytes)
            }
            FileType::Regular if found.size > self.most => {
                self.lose(
                    found,
                    "it is larger than the image, and an archive has no holes",
                );
                Ok(())
            }
            FileType::Regular => {
                let first = self.first.get(&found.ino.0).filter(|_| !found.deleted);
                if let Some(first) = first.copied() {
                    header.set_entry_type(EntryType::Link);
                    return self.link(&mut header, path, found, &first.path);
                }
                let data = self.data(found)?;
                header.set_size(found.size);
                self.out.append_data(&mut header, path, data)?;
                self.copied.files += 1;
                if !found.deleted {
                    self.first.insert(found.ino.0, found);
                }
                Ok(())
            }
            _ => {
                self.lose(found, "a device, a FIFO or a socket, which is not copied");
                Ok(())
            }
        }
    }

    fn link(
        &mut self,
        header: &mut Header,
        path: &Path,
        found: &Found,
        target: &[u8],
    ) -> io::Result<()> {
        if target.is_empty() {
            self.lose(found, "its target is lost");
            return Ok(());
        }
        if target.contains(&0) {
            self.lose(
                found,
                "its target has a NUL byte, which an archive cannot hold",
            );
            return Ok(());
        }
        let target = OsStr::from_bytes(target);
        self.out.append_link(header, path, target)
    }

    /// Returns a header with owner, permissions without set-id bits, and modification time.
    fn header(&self, found: &Found) -> Header {
        let core = self.rescue.attributes(found).unwrap_or_default();
        let directory = found.file_type == FileType::Directory;
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(0);
        header.set_mode(match core.mode {
            0 if directory => 0o755,
            mode => u32::from(mode & 0o777),
        });
        header.set_uid(core.uid.into());
        header.set_gid(core.gid.into());
        header.set_mtime(core.mtime.secs().try_into().unwrap_or(0));
        header
    }

    /// Returns the data in an unnamed file, with holes, ready to be read from its beginning.
    fn data(&mut self, found: &Found) -> io::Result<File> {
        let mut file = blockdev::unnamed_file(self.dir)?;
        file.set_len(found.size.min(self.most))?;
        let lost = self
            .rescue
            .read(found, &mut |at, bytes| file.write_all_at(bytes, at))?;
        for reason in lost {
            self.lose(found, reason);
        }
        file.rewind()?;
        Ok(file)
    }
}

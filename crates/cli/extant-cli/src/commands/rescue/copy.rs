//! Copies the rescued files to the host. Names and targets come from a broken image, which may be hostile. So no
//! existing file is written to, and symbolic links are made only after everything else is written.

use super::Loss;
use anyhow::{Result, bail};
use ext4_format::FileType;
use extant_cli_core::format::show::show;
use extant_rescue::{Found, Rescue};
use extant_terminal::interrupt;
use extant_terminal::output::one_line;
use extant_terminal::progress::Progress;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{
    self,
    ErrorKind::{QuotaExceeded, StorageFull},
};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Minimum number of zeros that become a hole.
const HOLE: usize = 4096;

pub struct Copied {
    pub files: u64,
    pub lost: Vec<Loss>,
}

struct Copier<'r> {
    rescue: &'r Rescue<'r>,
    to: &'r Path,
    copied: Copied,
    /// First path of the data of each inode.
    first: HashMap<u32, PathBuf>,
}

/// Copies everything to a directory that is new or empty.
pub fn copy(rescue: &Rescue<'_>, to: &Path) -> Result<Copied> {
    match std::fs::read_dir(to) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                bail!("the directory is not empty");
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::create_dir(to)?,
        Err(error) => return Err(error.into()),
    }
    let bytes = rescue.found().iter().map(|found| found.size);
    let progress = Progress::bytes("copying", bytes.fold(0, u64::saturating_add));
    let mut copier = Copier {
        rescue,
        to,
        copied: Copied {
            files: 0,
            lost: Vec::new(),
        },
        first: HashMap::new(),
    };
    // The parents of deleted files and of names without a directory are not listed. Make them before any link, because a link could
    // lead elsewhere.
    let directories = rescue.found().iter();
    let directories = directories.filter(|found| found.file_type == FileType::Directory);
    let listed: HashSet<&[u8]> = directories.map(|found| &found.path[..]).collect();
    for found in rescue.found() {
        let above = found.path.iter().rposition(|&byte| byte == b'/');
        let above = above.and_then(|end| found.path.get(..end));
        if let Some(above) = above.filter(|above| !listed.contains(above)) {
            let above = to.join(OsStr::from_bytes(above));
            let mut make = DirBuilder::new();
            make.recursive(true).mode(0o700);
            copier.note(found, |_| make.create(above))?;
        }
    }
    // In the order of paths, a directory comes before its contents.
    for found in rescue.found() {
        interrupt::check()?;
        if found.file_type != FileType::Symlink {
            copier.note(found, |copier| copier.one(found))?;
        }
        progress.add(found.size);
    }
    interrupt::check()?;
    let links = rescue.found().iter();
    for found in links.filter(|found| found.file_type == FileType::Symlink) {
        copier.note(found, |copier| copier.link(found))?;
    }
    // Bottom-up, because a read-only directory accepts no more names.
    for found in rescue.found().iter().rev() {
        if found.file_type == FileType::Directory {
            copier.directory_done(found)?;
        }
    }
    progress.done();
    Ok(copier.copied)
}

impl Copier<'_> {
    fn path(&self, found: &Found) -> PathBuf {
        self.to.join(OsStr::from_bytes(&found.path))
    }

    fn lose(&mut self, found: &Found, reason: String) {
        self.copied.lost.push(Loss::of(&found.path, reason));
    }

    /// Notes why a file is lost. On a full host the copy ends, because the same happens to all other files.
    fn note(
        &mut self,
        found: &Found,
        make: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> Result<()> {
        if let Err(error) = make(self) {
            let is_full = matches!(error.kind(), StorageFull | QuotaExceeded);
            let error = anyhow::Error::from(error);
            if is_full {
                return Err(error.context(show(&found.path)));
            }
            self.lose(found, one_line(&error));
        }
        Ok(())
    }

    fn one(&mut self, found: &Found) -> io::Result<()> {
        let path = self.path(found);
        match found.file_type {
            FileType::Directory => DirBuilder::new().mode(0o700).create(path),
            FileType::Regular if found.deleted => self.file(found, path),
            FileType::Regular => match self.first.get(&found.ino.0) {
                Some(first) => std::fs::hard_link(first, path),
                None => self.file(found, path),
            },
            _ => {
                self.lose(
                    found,
                    "a device, a FIFO or a socket, which is not copied".into(),
                );
                Ok(())
            }
        }
    }

    fn file(&mut self, found: &Found, path: PathBuf) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        // A newer file may have the number of a deleted file.
        if !found.deleted {
            self.first.insert(found.ino.0, path.clone());
        }
        let sized = file.set_len(found.size);
        let lost = sized.and_then(|()| {
            self.rescue.read(found, &mut |at, bytes| {
                interrupt::check().map_err(io::Error::other)?;
                for (i, part) in (0..).zip(bytes.chunks(HOLE)) {
                    if part.iter().any(|&b| b != 0) {
                        file.write_all_at(part, at + i * HOLE as u64)?;
                    }
                }
                Ok(())
            })
        });
        if interrupt::check().is_err() || lost.is_err() {
            // Do not leave a partial file.
            std::fs::remove_file(path)?;
        }
        for reason in lost? {
            self.lose(found, reason);
        }
        self.copied.files += 1;
        self.attributes(found, &file)
    }

    /// Sets permissions without set-id bits, and the modification time.
    fn attributes(&self, found: &Found, file: &File) -> io::Result<()> {
        let Some(core) = self.rescue.attributes(found) else {
            return Ok(());
        };
        file.set_permissions(Permissions::from_mode(u32::from(core.mode & 0o777)))?;
        match time(core.mtime.secs(), core.mtime.nanos()) {
            Some(time) => file.set_modified(time),
            None => Ok(()),
        }
    }

    fn link(&mut self, found: &Found) -> io::Result<()> {
        let mut target = Vec::new();
        let lost = self.rescue.read(found, &mut |at, bytes| {
            // A target is at most one block.
            if at == 0 {
                target = bytes.to_vec();
            }
            Ok(())
        })?;
        for reason in lost {
            self.lose(found, reason);
        }
        std::os::unix::fs::symlink(OsStr::from_bytes(&target), self.path(found))
    }

    fn directory_done(&mut self, found: &Found) -> Result<()> {
        // A path that is not a directory here was lost, which was reported.
        let path = self.path(found);
        let is = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        if is {
            self.note(found, |copier| copier.attributes(found, &File::open(path)?))?;
        }
        Ok(())
    }
}

fn time(secs: i64, nanos: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let at = if secs < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    at?.checked_add(Duration::from_nanos(nanos.into()))
}

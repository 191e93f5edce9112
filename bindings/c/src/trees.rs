//! Directories that are read, and trees that are copied.

use crate::border::{Fail, call, call_long, handle, path, store, text};
use crate::{Stat, stat};
use engine::mkfs::{ArchiveInput, Source, TreeSource};
use engine::{CopyCounts, CopyOptions, Dir, DirEntry, Packing, PathError, ReadDir, Volume};
use std::ffi::{c_char, c_int, c_void};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Returns the source of a new volume: a directory, or an archive.
pub fn source(path: &Path) -> Source {
    if path.is_dir() {
        Source::Tree(TreeSource::new(path))
    } else {
        Source::Archive(ArchiveInput::File(path.into()))
    }
}

/// An open directory, from which paths start, and the place in its list of names.
pub struct DirHandle {
    pub dir: Dir,
    /// `None` before the first name is asked for.
    names: Mutex<Option<ReadDir>>,
}

impl DirHandle {
    pub fn new(dir: Dir) -> Self {
        let names = Mutex::new(None);
        Self { dir, names }
    }

    fn names(&self) -> Result<MutexGuard<'_, Option<ReadDir>>, Fail> {
        self.names.lock().map_err(|_| Fail::Errno(5))
    }

    /// Returns the next name, out of names that this handle has locked.
    fn next(&self, names: &mut Option<ReadDir>) -> Result<Option<DirEntry>, Fail> {
        if names.is_none() {
            *names = Some(self.dir.read_dir(".")?);
        }
        Ok(names.as_mut().and_then(Iterator::next).transpose()?)
    }
}

#[repr(C)]
pub struct Dirent {
    ino: u32,
    kind: u32,
    name: [u8; 256],
}

#[repr(C)]
pub struct DirentPlus {
    entry: Dirent,
    st: Stat,
}

#[repr(C)]
pub struct Counts {
    files: u64,
    directories: u64,
    symlinks: u64,
    specials: u64,
    bytes: u64,
}

type Progress = unsafe extern "C" fn(*mut c_void, *const Counts) -> c_int;

/// The caller's function and its argument, and whether the function has ended the copy.
struct Tell(Option<Progress>, *mut c_void, Mutex<()>, AtomicBool);

// SAFETY: according to the header, any thread calls the function, one at a time: with the lock held.
unsafe impl Sync for Tell {}

impl Tell {
    fn tell(&self, done: &CopyCounts) {
        let Some(progress) = self.0 else { return };
        let counts = Counts {
            files: done.files,
            directories: done.directories,
            symlinks: done.symlinks,
            specials: done.specials,
            bytes: done.bytes,
        };
        let _one = self.2.lock();
        if self.3.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: as the header asks for.
        if unsafe { progress(self.1, &counts) } != 0 {
            self.3.store(true, Ordering::Relaxed);
        }
    }
}

fn dirent(next: &DirEntry) -> Result<Dirent, Fail> {
    let bytes = next.file_name().as_bytes();
    let mut name = [0; 256];
    // Names have at most 255 bytes, so the last one stays NUL.
    let room = name.get_mut(..bytes.len()).ok_or(Fail::Errno(36))?;
    room.copy_from_slice(bytes);
    Ok(Dirent {
        ino: next.ino(),
        kind: next.file_type().mode_bits().into(),
        name,
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readdirplus(
    dir: *mut DirHandle,
    entries: *mut DirentPlus,
    count: usize,
) -> isize {
    call_long(|| {
        // SAFETY: a directory.
        let dir = unsafe { handle(dir)? };
        let mut names = dir.names()?;
        if entries.is_null() && count > 0 {
            return Err(Fail::Null);
        }
        let mut stored = 0;
        while stored < count {
            let Some(next) = dir.next(&mut names)? else {
                break;
            };
            let st = match next.metadata() {
                // The name was removed after the directory was read.
                Err(engine::Error::NotFound) => continue,
                st => stat(&st?),
            };
            let entry = dirent(&next)?;
            // SAFETY: `stored` is below the number of entries that the caller has room for.
            unsafe { store(entries.add(stored), DirentPlus { entry, st })? };
            stored += 1;
        }
        Ok(stored)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readdir(dir: *mut DirHandle, entry: *mut Dirent) -> c_int {
    let done = call_long(|| {
        // SAFETY: a directory.
        let dir = unsafe { handle(dir)? };
        let Some(next) = dir.next(&mut *dir.names()?)? else {
            return Ok(0);
        };
        let found = dirent(&next)?;
        // SAFETY: a place.
        unsafe { store(entry, found)? };
        Ok(1)
    });
    done as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rewinddir(dir: *mut DirHandle) -> c_int {
    call(|| {
        // SAFETY: a directory.
        *unsafe { handle(dir)? }.names()? = None;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_closedir(dir: *mut DirHandle) {
    call(|| {
        if !dir.is_null() {
            // SAFETY: the handle was made by `to_c`, and by the rules of the header it is no longer in use.
            drop(unsafe { Box::from_raw(dir) });
        }
        Ok(())
    });
}

/// Calls `copy`, and reports progress.
///
/// # Safety
/// The rules of the header apply.
unsafe fn with_progress(
    volume: *mut Volume,
    (progress, user): (Option<Progress>, *mut c_void),
    copy: impl FnOnce(&Volume, &CopyOptions<'_>) -> Result<CopyCounts, PathError>,
) -> Result<(), Fail> {
    // SAFETY: a volume.
    let volume = unsafe { handle(volume)? };
    let caller = Tell(progress, user, Mutex::new(()), AtomicBool::new(false));
    let tell = |done: &CopyCounts| caller.tell(done);
    let options = CopyOptions::new().progress(&tell).cancel(&caller.3);
    let told = |e: PathError| {
        Fail::Text(
            e.source.errno(),
            format!("{}: {}", e.path.display(), e.source),
        )
    };
    copy(volume, &options).map_err(told)?;
    // The function may have refused the last file, behind which nothing looks at the flag.
    if caller.3.load(Ordering::Relaxed) {
        return Err(Fail::Errno(rustix::io::Errno::INTR.raw_os_error()));
    }
    Ok(())
}

/// Copies by `copy`, and reports progress.
///
/// # Safety
/// The rules of the header apply.
unsafe fn copied(
    volume: *mut Volume,
    (from, to): (*const c_char, *const c_char),
    caller: (Option<Progress>, *mut c_void),
    copy: fn(&Volume, &Path, &Path, &CopyOptions<'_>) -> Result<CopyCounts, PathError>,
) -> c_int {
    call(|| {
        // SAFETY: strings.
        let (from, to) = unsafe { (path(from)?, path(to)?) };
        // SAFETY: a volume, and a function for progress.
        unsafe { with_progress(volume, caller, |v, how| copy(v, from, to, how)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_copy_tree_in(
    volume: *mut Volume,
    from: *const c_char,
    to: *const c_char,
    progress: Option<Progress>,
    user: *mut c_void,
) -> c_int {
    // SAFETY: as the header asks for.
    unsafe {
        copied(volume, (from, to), (progress, user), |v, from, to, how| {
            v.copy_tree_in(from, to, how)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_copy_tree_out(
    volume: *mut Volume,
    from: *const c_char,
    to: *const c_char,
    progress: Option<Progress>,
    user: *mut c_void,
) -> c_int {
    // SAFETY: as the header asks for.
    unsafe {
        copied(volume, (from, to), (progress, user), |v, from, to, how| {
            v.copy_tree_out(from, to, how)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_import(
    volume: *mut Volume,
    archive: *const c_char,
    to: *const c_char,
    progress: Option<Progress>,
    user: *mut c_void,
) -> c_int {
    // SAFETY: as the header asks for.
    unsafe {
        copied(
            volume,
            (archive, to),
            (progress, user),
            |v, from, to, how| v.import_archive(ArchiveInput::File(from.into()), to, how),
        )
    }
}

type WriteBytes = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int;

/// The caller's function that takes an archive, its argument, and the number of the error with which it has ended the export.
struct Output(WriteBytes, *mut c_void, Option<i32>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: as the header asks for; the calling thread writes.
        match unsafe { (self.0)(self.1, bytes.as_ptr().cast(), bytes.len()) } {
            0 => Ok(bytes.len()),
            code => {
                self.2 = Some(code.checked_abs().unwrap_or(5));
                Err(io::Error::other("the caller's function failed"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_export(
    volume: *mut Volume,
    from: *const c_char,
    format: *const c_char,
    write: Option<WriteBytes>,
    progress: Option<Progress>,
    user: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: strings; the format may be null.
        let (from, format) = unsafe { (path(from)?, text(format)?) };
        let packing = match &format[..] {
            "" => Packing::TAR,
            format => format.parse().map_err(|e| {
                Fail::Text(22, format!("'{format}' is not an archive format: {e:#}"))
            })?,
        };
        let mut out = Output(write.ok_or(Fail::Null)?, user, None);
        // SAFETY: a volume, and a function for progress.
        let done = unsafe {
            with_progress(volume, (progress, user), |v, how| {
                v.export_archive(from, &mut out, packing, how)
            })
        };
        done.map_err(|failed| out.2.map_or(failed, Fail::Errno))
    })
}

//! Directories that are read, and trees that are copied.

use crate::border::{Fail, call, call_long, handle, path, store};
use engine::{CopyCounts, CopyOptions, PathError, ReadDir, Volume};
use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

/// An open directory.
pub struct DirHandle(Mutex<ReadDir>);

impl DirHandle {
    pub fn new(dir: ReadDir) -> Self {
        Self(Mutex::new(dir))
    }
}

#[repr(C)]
pub struct Dirent {
    ino: u32,
    kind: u32,
    name: [u8; 256],
}

#[repr(C)]
pub struct Counts {
    files: u64,
    directories: u64,
    symlinks: u64,
    specials: u64,
    bytes: u64,
}

type Progress = unsafe extern "C" fn(*mut c_void, *const Counts);

/// The caller's function and its argument.
struct Tell(Option<Progress>, *mut c_void, Mutex<()>);

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
        // SAFETY: as the header asks for.
        unsafe { progress(self.1, &counts) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readdir(dir: *mut DirHandle, entry: *mut Dirent) -> c_int {
    let done = call_long(|| {
        // SAFETY: a directory.
        let dir = unsafe { handle(dir)? };
        let mut dir = dir.0.lock().map_err(|_| Fail::Errno(5))?;
        let Some(next) = dir.next().transpose()? else {
            return Ok(0);
        };
        let bytes = next.file_name().as_bytes();
        let mut name = [0; 256];
        // Names have at most 255 bytes, so the last one stays NUL.
        let room = name.get_mut(..bytes.len()).ok_or(Fail::Errno(36))?;
        room.copy_from_slice(bytes);
        let found = Dirent {
            ino: next.ino(),
            kind: next.file_type().mode_bits().into(),
            name,
        };
        // SAFETY: a place.
        unsafe { store(entry, found)? };
        Ok(1)
    });
    done as c_int
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

/// Copies by `copy`, and reports progress.
///
/// # Safety
/// The rules of the header apply.
unsafe fn copied(
    volume: *mut Volume,
    (from, to): (*const c_char, *const c_char),
    (progress, user): (Option<Progress>, *mut c_void),
    copy: fn(&Volume, &Path, &Path, &CopyOptions<'_>) -> Result<CopyCounts, PathError>,
) -> c_int {
    call(|| {
        // SAFETY: a volume and strings.
        let (volume, from, to) = unsafe { (handle(volume)?, path(from)?, path(to)?) };
        let tell = Tell(progress, user, Mutex::new(()));
        let tell = |done: &CopyCounts| tell.tell(done);
        let options = CopyOptions::new().progress(&tell);
        let done = copy(volume, from, to, &options);
        let told = |e: PathError| {
            Fail::Text(
                e.source.errno(),
                format!("{}: {}", e.path.display(), e.source),
            )
        };
        done.map(drop).map_err(told)
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

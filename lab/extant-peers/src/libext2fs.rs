//! libext2fs of e2fsprogs. Its interface is C: this module alone holds unsafe code, the calls into it. They follow
//! ext2fs/ext2fs.h of version 1.47.
#![allow(unsafe_code)]

use crate::Session;
use anyhow::{Context, Result, ensure};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;

/// errcode_t.
type Code = std::ffi::c_long;
/// ext2_filsys.
type Fs = *mut c_void;
/// ext2_file_t.
type File = *mut c_void;

const FLAG_RW: c_int = 1;
const FLAG_64BITS: c_int = 0x20000;
const ROOT: u32 = 2;
const TYPE_REGULAR: c_int = 1;
const FILE_WRITE: c_int = 1;
const NO_SPACE_IN_DIRECTORY: Code = 2_133_571_366;
/// S_IFREG with 0644.
const MODE: u16 = 0o100_644;

unsafe extern "C" {
    static unix_io_manager: *mut c_void;
    fn ext2fs_open(
        name: *const c_char,
        flags: c_int,
        superblock: c_int,
        block_size: c_uint,
        manager: *mut c_void,
        fs: *mut Fs,
    ) -> Code;
    fn ext2fs_close_free(fs: *mut Fs) -> Code;
    fn ext2fs_flush(fs: Fs) -> Code;
    fn ext2fs_read_bitmaps(fs: Fs) -> Code;
    fn ext2fs_new_inode(fs: Fs, dir: u32, mode: c_int, map: *mut c_void, ino: *mut u32) -> Code;
    fn ext2fs_inode_alloc_stats2(fs: Fs, ino: u32, in_use: c_int, is_dir: c_int);
    fn ext2fs_write_new_inode(fs: Fs, ino: u32, inode: *mut Inode) -> Code;
    fn ext2fs_read_inode(fs: Fs, ino: u32, inode: *mut Inode) -> Code;
    fn ext2fs_write_inode(fs: Fs, ino: u32, inode: *mut Inode) -> Code;
    fn ext2fs_link(fs: Fs, dir: u32, name: *const c_char, ino: u32, flags: c_int) -> Code;
    fn ext2fs_unlink(fs: Fs, dir: u32, name: *const c_char, ino: u32, flags: c_int) -> Code;
    fn ext2fs_expand_dir(fs: Fs, dir: u32) -> Code;
    fn ext2fs_namei(fs: Fs, root: u32, cwd: u32, name: *const c_char, ino: *mut u32) -> Code;
    fn ext2fs_file_open(fs: Fs, ino: u32, flags: c_int, file: *mut File) -> Code;
    fn ext2fs_file_llseek(file: File, offset: u64, whence: c_int, position: *mut u64) -> Code;
    fn ext2fs_file_write(file: File, buf: *const c_void, n: c_uint, written: *mut c_uint) -> Code;
    fn ext2fs_file_flush(file: File) -> Code;
    fn ext2fs_file_close(file: File) -> Code;
}

/// struct ext2_inode: 128 bytes on disk, in the order of the host, whose first fields are named here.
#[repr(C)]
#[derive(Clone, Copy)]
struct Inode {
    mode: u16,
    uid: u16,
    size: u32,
    times: [u32; 3],
    dtime: u32,
    gid: u16,
    links: u16,
    rest: [u32; 25],
}

const _: () = assert!(size_of::<Inode>() == 128);

struct Ext2fs {
    fs: Fs,
    file: Option<File>,
}

// SAFETY: the library keeps no state of a thread; a session is used by one thread at a time.
unsafe impl Send for Ext2fs {}

fn check(code: Code) -> Result<()> {
    ensure!(code == 0, "libext2fs: error {code}");
    Ok(())
}

fn c(name: &[u8]) -> Result<CString> {
    CString::new(name).context("a name without zero bytes")
}

pub fn open(image: &Path) -> Result<Box<dyn Session>> {
    let name = c(image.as_os_str().as_bytes())?;
    let mut fs = null_mut();
    // SAFETY: the name is a C string, and the result has a place.
    check(unsafe {
        ext2fs_open(
            name.as_ptr(),
            FLAG_RW | FLAG_64BITS,
            0,
            0,
            unix_io_manager,
            &mut fs,
        )
    })?;
    let session = Ext2fs { fs, file: None };
    // SAFETY: it is open.
    check(unsafe { ext2fs_read_bitmaps(session.fs) })?;
    Ok(Box::new(session))
}

impl Ext2fs {
    fn find(&self, name: &str) -> Result<u32> {
        let (name, mut ino) = (c(name.as_bytes())?, 0);
        // SAFETY: it is open, the name is a C string, and the result has a place.
        check(unsafe { ext2fs_namei(self.fs, ROOT, ROOT, name.as_ptr(), &mut ino) })?;
        Ok(ino)
    }

    fn inode(&self, ino: u32) -> Result<Inode> {
        let mut inode = Inode {
            mode: 0,
            uid: 0,
            size: 0,
            times: [0; 3],
            dtime: 0,
            gid: 0,
            links: 0,
            rest: [0; 25],
        };
        // SAFETY: it is open, and 128 bytes are written.
        check(unsafe { ext2fs_read_inode(self.fs, ino, &mut inode) })?;
        Ok(inode)
    }
}

impl Session for Ext2fs {
    fn create(&mut self, name: &str) -> Result<()> {
        let (name, mut ino) = (c(name.as_bytes())?, 0);
        let mut inode = Inode {
            mode: MODE,
            uid: 0,
            size: 0,
            times: [1_700_000_000; 3],
            dtime: 0,
            gid: 0,
            links: 1,
            rest: [0; 25],
        };
        // SAFETY: it is open, and everything pointed to lives on.
        unsafe {
            check(ext2fs_new_inode(
                self.fs,
                ROOT,
                MODE.into(),
                null_mut(),
                &mut ino,
            ))?;
            let mut linked = ext2fs_link(self.fs, ROOT, name.as_ptr(), ino, TYPE_REGULAR);
            if linked == NO_SPACE_IN_DIRECTORY {
                check(ext2fs_expand_dir(self.fs, ROOT))?;
                linked = ext2fs_link(self.fs, ROOT, name.as_ptr(), ino, TYPE_REGULAR);
            }
            check(linked)?;
            ext2fs_inode_alloc_stats2(self.fs, ino, 1, 0);
            check(ext2fs_write_new_inode(self.fs, ino, &mut inode))
        }
    }

    fn unlink(&mut self, name: &str) -> Result<()> {
        let ino = self.find(name)?;
        let (name, mut inode) = (c(name.as_bytes())?, self.inode(ino)?);
        (inode.links, inode.dtime) = (0, 1_700_000_000);
        // SAFETY: it is open, and everything pointed to lives on. The file has no blocks.
        unsafe {
            check(ext2fs_unlink(self.fs, ROOT, name.as_ptr(), ino, 0))?;
            check(ext2fs_write_inode(self.fs, ino, &mut inode))?;
            ext2fs_inode_alloc_stats2(self.fs, ino, -1, 0);
        }
        Ok(())
    }

    fn stat(&mut self, name: &str) -> Result<u64> {
        let ino = self.find(name)?;
        Ok(self.inode(ino)?.size.into())
    }

    fn write(&mut self, name: &str, data: &[u8]) -> Result<()> {
        let file = match self.file {
            Some(file) => file,
            None => {
                let (ino, mut file) = (self.find(name)?, null_mut());
                // SAFETY: it is open, and the result has a place.
                check(unsafe { ext2fs_file_open(self.fs, ino, FILE_WRITE, &mut file) })?;
                *self.file.insert(file)
            }
        };
        let (len, mut at, mut written) = (u32::try_from(data.len())?, 0, 0);
        // SAFETY: the file is open, and the data are as long as is said.
        unsafe {
            check(ext2fs_file_llseek(file, 0, 0, &mut at))?;
            check(ext2fs_file_write(
                file,
                data.as_ptr().cast(),
                len,
                &mut written,
            ))?;
        }
        ensure!(written == len, "a part was written");
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        // SAFETY: both are open.
        unsafe {
            if let Some(file) = self.file {
                check(ext2fs_file_flush(file))?;
            }
            check(ext2fs_flush(self.fs))
        }
    }
}

impl Drop for Ext2fs {
    fn drop(&mut self) {
        // SAFETY: both are open, and not used afterwards. Errors here were reported by the sync before.
        unsafe {
            if let Some(file) = self.file {
                ext2fs_file_close(file);
            }
            ext2fs_close_free(&mut self.fs);
        }
    }
}

//! The calls on a mounted file system, by threads that have taken on the user.

use super::calls::{Answer, ROOT, Side};
use extant::unstable::OpenFlags;
use extant::{Fallocate, RenameMode, SetTime};
use rustix::fs::{self, AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags};
use rustix::fs::{RenameFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub struct Kernel {
    base: PathBuf,
}

impl Kernel {
    pub fn new(base: &Path) -> Self {
        // Files get exactly the mode asked for.
        rustix::process::umask(Mode::empty());
        Self {
            base: base.to_path_buf(),
        }
    }

    /// Does a call as a user, on a path.
    fn by<T: Send>(
        &self,
        who: u32,
        path: &str,
        f: impl FnOnce(&Path) -> Result<T, Errno> + Send,
    ) -> Answer<T> {
        let path = self.base.join(path);
        let call = || {
            if who != ROOT {
                let (uid, gid) = (Uid::from_raw(who), Gid::from_raw(who));
                rustix::thread::set_thread_groups(&[])?;
                rustix::thread::set_thread_res_gid(gid, gid, gid)?;
                rustix::thread::set_thread_res_uid(uid, uid, uid)?;
            }
            f(&path)
        };
        std::thread::scope(|s| s.spawn(call).join().unwrap()).map_err(Errno::raw_os_error)
    }
}

fn timespec(time: Option<SetTime>) -> Timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, i64::from(fs::UTIME_OMIT as u32)),
        Some(SetTime::Now) => (0, i64::from(fs::UTIME_NOW as u32)),
        Some(SetTime::At(t)) => (t.secs(), i64::from(t.nanos())),
    };
    Timespec { tv_sec, tv_nsec }
}

impl Side for Kernel {
    type Handle = OwnedFd;

    fn open(&self, who: u32, path: &str, flags: OpenFlags) -> Answer<OwnedFd> {
        let has = |flag| flags.contains(flag);
        let mut how = match (has(OpenFlags::READ), has(OpenFlags::WRITE)) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        how.set(OFlags::APPEND, has(OpenFlags::APPEND));
        how.set(OFlags::CREATE, has(OpenFlags::CREATE));
        how.set(OFlags::EXCL, has(OpenFlags::EXCLUSIVE));
        how.set(OFlags::TRUNC, has(OpenFlags::TRUNCATE));
        self.by(who, path, |p| fs::open(p, how, Mode::from_raw_mode(0o644)))
    }
    fn write(&self, who: u32, handle: &OwnedFd, offset: u64) -> Answer {
        self.by(who, "", |_| {
            rustix::io::pwrite(handle, b"data", offset).map(drop)
        })
    }
    fn read(&self, handle: &OwnedFd) -> Answer {
        self.by(ROOT, "", |_| {
            rustix::io::pread(handle, &mut [0; 8], 0).map(drop)
        })
    }
    fn cut(&self, who: u32, handle: &OwnedFd, size: u64) -> Answer {
        self.by(who, "", |_| fs::ftruncate(handle, size))
    }
    fn allocate(&self, who: u32, handle: &OwnedFd, how: Fallocate) -> Answer {
        let keep = |yes| {
            if yes {
                FallocateFlags::KEEP_SIZE
            } else {
                FallocateFlags::empty()
            }
        };
        let mode = match how {
            Fallocate::Allocate { keep_size } => keep(keep_size),
            Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | keep(true),
            Fallocate::ZeroRange { keep_size } => FallocateFlags::ZERO_RANGE | keep(keep_size),
            #[allow(unreachable_patterns)]
            other => panic!("not in the table: {other:?}"),
        };
        self.by(who, "", |_| fs::fallocate(handle, mode, 0, 8192))
    }
    fn truncate(&self, who: u32, path: &str, size: u64) -> Answer {
        // This side has no call by path, but opening for writing needs the same permission.
        self.by(who, path, |p| {
            let file = fs::open(p, OFlags::WRONLY, Mode::empty());
            file.and_then(|file| fs::ftruncate(file, size))
        })
    }
    fn chmod(&self, who: u32, path: &str, mode: u16) -> Answer {
        self.by(who, path, |p| {
            fs::chmod(p, Mode::from_raw_mode(u32::from(mode)))
        })
    }
    fn chown(&self, who: u32, path: &str, uid: Option<u32>, gid: Option<u32>) -> Answer {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        self.by(who, path, |p| {
            fs::chownat(CWD, p, uid, gid, AtFlags::empty())
        })
    }
    fn times(
        &self,
        who: u32,
        path: &str,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    ) -> Answer {
        let times = Timestamps {
            last_access: timespec(atime),
            last_modification: timespec(mtime),
        };
        self.by(who, path, |p| {
            fs::utimensat(CWD, p, &times, AtFlags::empty())
        })
    }
    fn set_xattr(&self, who: u32, path: &str, name: &str, value: &[u8]) -> Answer {
        self.by(who, path, |p| {
            fs::setxattr(p, name, value, XattrFlags::empty())
        })
    }
    fn get_xattr(&self, who: u32, path: &str, name: &str) -> Answer {
        let mut value = vec![0; 70_000];
        self.by(who, path, |p| {
            fs::getxattr(p, name, &mut value[..]).map(drop)
        })
    }
    fn remove_xattr(&self, who: u32, path: &str, name: &str) -> Answer {
        self.by(who, path, |p| fs::removexattr(p, name))
    }
    fn link(&self, who: u32, old: &str, new: &str) -> Answer {
        let new = self.base.join(new);
        self.by(who, old, |p| fs::link(p, &new))
    }
    fn unlink(&self, who: u32, path: &str) -> Answer {
        self.by(who, path, |p| fs::unlink(p))
    }
    fn mkdir(&self, who: u32, path: &str) -> Answer {
        self.by(who, path, |p| fs::mkdir(p, Mode::from_raw_mode(0o755)))
    }
    fn rmdir(&self, who: u32, path: &str) -> Answer {
        self.by(who, path, |p| fs::rmdir(p))
    }
    fn symlink(&self, who: u32, path: &str) -> Answer {
        self.by(who, path, |p| fs::symlink("to", p))
    }
    fn fifo(&self, who: u32, path: &str) -> Answer {
        let mode = Mode::from_raw_mode(0o600);
        self.by(who, path, |p| fs::mknodat(CWD, p, FileType::Fifo, mode, 0))
    }
    fn device(&self, who: u32, path: &str) -> Answer {
        let (mode, null) = (Mode::from_raw_mode(0o600), fs::makedev(1, 3));
        self.by(who, path, |p| {
            fs::mknodat(CWD, p, FileType::CharacterDevice, mode, null)
        })
    }
    fn unnamed(&self, who: u32, dir: &str) -> Answer {
        let how = OFlags::TMPFILE | OFlags::RDWR;
        self.by(who, dir, |p| {
            fs::open(p, how, Mode::from_raw_mode(0o600)).map(drop)
        })
    }
    fn rename(&self, who: u32, old: &str, new: &str, mode: RenameMode) -> Answer {
        let new = self.base.join(new);
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
            RenameMode::Whiteout => RenameFlags::WHITEOUT,
            RenameMode::WhiteoutNoReplace => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
        };
        self.by(who, old, |p| fs::renameat_with(CWD, p, CWD, &new, flags))
    }
    fn list(&self, who: u32, path: &str) -> Answer {
        let how = OFlags::RDONLY | OFlags::DIRECTORY;
        self.by(who, path, |p| {
            let dir = fs::Dir::new(fs::open(p, how, Mode::empty())?)?;
            dir.into_iter().try_for_each(|entry| entry.map(drop))
        })
    }
    fn stat(&self, who: u32, path: &str) -> Answer {
        self.by(who, path, |p| fs::stat(p).map(drop))
    }
    fn set_flags(&self, who: u32, path: &str, flags: u32) -> Answer {
        // The flag is read through root's handle, because the caller may lack the right to read.
        let file = self.by(ROOT, path, |p| fs::open(p, OFlags::RDONLY, Mode::empty()))?;
        let flags = IFlags::from_bits_retain(flags);
        self.by(who, path, |_| fs::ioctl_setflags(file, flags))
    }
}

//! The calls on a volume opened by us.

use super::calls::{Answer, Side};
use extant::unstable::OpenFlags;
use extant::{
    Credentials, Error, Fallocate, File, FileType, OpenOptions, RenameMode, SetAttributes, SetTime,
    SetXattr, Volume,
};

pub struct Ours<'v> {
    volume: &'v Volume,
}

impl<'v> Ours<'v> {
    pub fn new(volume: &'v Volume) -> Self {
        Self { volume }
    }

    fn by(&self, who: u32) -> Volume {
        self.volume.as_user(Credentials::new(who, who, &[]))
    }

    fn set(&self, who: u32, path: &str, set: SetAttributes) -> Answer {
        errno(self.by(who).set_attributes(path, &set))
    }
}

fn errno<T>(result: Result<T, Error>) -> Answer<T> {
    result.map_err(|e| e.errno())
}

impl Side for Ours<'_> {
    type Handle = File;

    fn open(&self, who: u32, path: &str, flags: OpenFlags) -> Answer<File> {
        errno(self.by(who).open_file_with(path, &OpenOptions::from(flags)))
    }
    fn write(&self, _: u32, handle: &File, offset: u64) -> Answer {
        errno(handle.write_at(b"data", offset).map(drop))
    }
    fn read(&self, handle: &File) -> Answer {
        errno(handle.read_at(&mut [0; 8], 0).map(drop))
    }
    fn cut(&self, _: u32, handle: &File, size: u64) -> Answer {
        errno(handle.set_len(size))
    }
    fn allocate(&self, _: u32, handle: &File, how: Fallocate) -> Answer {
        errno(handle.fallocate(how, 0, 8192))
    }
    fn truncate(&self, who: u32, path: &str, size: u64) -> Answer {
        errno(self.by(who).set_len(path, size))
    }
    fn chmod(&self, who: u32, path: &str, mode: u16) -> Answer {
        let mode = Some(mode);
        self.set(
            who,
            path,
            SetAttributes {
                mode,
                ..Default::default()
            },
        )
    }
    fn chown(&self, who: u32, path: &str, uid: Option<u32>, gid: Option<u32>) -> Answer {
        self.set(
            who,
            path,
            SetAttributes {
                uid,
                gid,
                ..Default::default()
            },
        )
    }
    fn times(
        &self,
        who: u32,
        path: &str,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    ) -> Answer {
        self.set(
            who,
            path,
            SetAttributes {
                atime,
                mtime,
                ..Default::default()
            },
        )
    }
    fn set_xattr(&self, who: u32, path: &str, name: &str, value: &[u8]) -> Answer {
        errno(self.by(who).set_xattr(path, name, value, SetXattr::Any))
    }
    fn get_xattr(&self, who: u32, path: &str, name: &str) -> Answer {
        errno(self.by(who).get_xattr(path, name).map(drop))
    }
    fn remove_xattr(&self, who: u32, path: &str, name: &str) -> Answer {
        errno(self.by(who).remove_xattr(path, name))
    }
    fn link(&self, who: u32, old: &str, new: &str) -> Answer {
        errno(self.by(who).hard_link(old, new))
    }
    fn unlink(&self, who: u32, path: &str) -> Answer {
        errno(self.by(who).remove_file(path))
    }
    fn mkdir(&self, who: u32, path: &str) -> Answer {
        errno(self.by(who).create_dir(path).map(drop))
    }
    fn rmdir(&self, who: u32, path: &str) -> Answer {
        errno(self.by(who).remove_dir(path))
    }
    fn symlink(&self, who: u32, path: &str) -> Answer {
        errno(self.by(who).symlink("to", path))
    }
    fn fifo(&self, who: u32, path: &str) -> Answer {
        errno(self.by(who).mknod(path, FileType::Fifo, 0o600, 0))
    }
    fn device(&self, who: u32, path: &str) -> Answer {
        errno(self.by(who).mknod(path, FileType::CharDevice, 0o600, 0x103))
    }
    fn unnamed(&self, who: u32, dir: &str) -> Answer {
        let dir = errno(self.by(who).open_dir(dir))?;
        errno(dir.create_unnamed(0o600).map(drop))
    }
    fn rename(&self, who: u32, old: &str, new: &str, mode: RenameMode) -> Answer {
        errno(self.by(who).rename_with(old, new, mode))
    }
    fn list(&self, who: u32, path: &str) -> Answer {
        errno(self.by(who).read_dir(path).map(drop))
    }
    fn stat(&self, who: u32, path: &str) -> Answer {
        errno(self.by(who).metadata(path).map(drop))
    }
    fn set_flags(&self, who: u32, path: &str, flags: u32) -> Answer {
        let flags = Some(flags);
        self.set(
            who,
            path,
            SetAttributes {
                flags,
                ..Default::default()
            },
        )
    }
}

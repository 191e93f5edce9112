//! The targets that programs run over.

use extant::{Fallocate, File, OpenOptions, Volume};

/// Files by name, as a program uses them. A call that fails fails the test.
pub trait Target: Sync {
    /// An open file.
    type Handle;
    fn create(&self, path: &str, mode: u16) -> Self::Handle;
    fn open(&self, path: &str) -> Self::Handle;
    fn write(&self, file: &Self::Handle, offset: u64, data: &[u8]);
    fn read(&self, file: &Self::Handle, offset: u64, len: usize) -> Vec<u8>;
    fn size(&self, file: &Self::Handle) -> u64;
    fn truncate(&self, file: &Self::Handle, size: u64);
    fn fallocate(&self, file: &Self::Handle, how: Fallocate, offset: u64, len: u64);
    /// Copies all of the range.
    fn copy(&self, from: (&Self::Handle, u64), to: (&Self::Handle, u64), len: u64);
    fn fsync(&self, file: &Self::Handle, datasync: bool);
    fn sync(&self);
    fn rename(&self, from: &str, to: &str);
    fn link(&self, old: &str, new: &str);
    fn unlink(&self, path: &str);
    fn make_dir(&self, path: &str);
}

/// The library.
impl Target for Volume {
    type Handle = File;

    fn create(&self, path: &str, mode: u16) -> File {
        let new = OpenOptions::new().read(true).write(true).create_new(true);
        self.open_file_with(path, &new.mode(mode.into())).unwrap()
    }

    fn open(&self, path: &str) -> File {
        self.open_file_with(path, &OpenOptions::new().read(true).write(true))
            .unwrap()
    }

    fn write(&self, file: &File, offset: u64, data: &[u8]) {
        file.write_all_at(data, offset).unwrap();
    }

    fn read(&self, file: &File, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let n = file.read_at(&mut bytes, offset).unwrap();
        bytes.truncate(n);
        bytes
    }

    fn size(&self, file: &File) -> u64 {
        file.metadata().unwrap().len()
    }

    fn truncate(&self, file: &File, size: u64) {
        file.set_len(size).unwrap();
    }

    fn fallocate(&self, file: &File, how: Fallocate, offset: u64, len: u64) {
        file.fallocate(how, offset, len).unwrap();
    }

    fn copy(&self, (from, at): (&File, u64), (to, place): (&File, u64), len: u64) {
        let mut done = 0;
        while done < len {
            let n = from.copy_range_to(at + done, to, place + done, len - done);
            done += n.unwrap();
        }
    }

    fn fsync(&self, file: &File, datasync: bool) {
        if datasync {
            file.sync_data()
        } else {
            file.sync_all()
        }
        .unwrap();
    }

    fn sync(&self) {
        Volume::sync(self).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        extant::Dir::rename(self, from, to).unwrap();
    }

    fn link(&self, old: &str, new: &str) {
        extant::Dir::hard_link(self, old, new).unwrap();
    }

    fn unlink(&self, path: &str) {
        extant::Dir::remove_file(self, path).unwrap();
    }

    fn make_dir(&self, path: &str) {
        match self.create_dir(path) {
            Ok(_) | Err(extant::Error::Exists) => {}
            Err(e) => panic!("{path}: {e}"),
        }
    }
}

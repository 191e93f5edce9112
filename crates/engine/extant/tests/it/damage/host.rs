//! The host fails under an image: the volume stops, is not marked as damaged, and recovers at the next opening.

use crate::common::*;
use crate::damage::image::*;
use blockdev::{BlockDevice, MemDevice};
use extant::Error;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A device whose host refuses writes, with an error of the system.
struct Refusing {
    inner: MemDevice,
    refuses: AtomicBool,
    errno: i32,
}

impl BlockDevice for Refusing {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(self.errno));
        }
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn read_only(&self) -> bool {
        false
    }
}

#[test]
fn a_host_that_fails_is_no_damage() {
    needs::tools!("mke2fs", "e2fsck");
    for (errno, word) in [(28, "no room"), (122, "no room"), (5, "failed")] {
        for kind in [
            &["-t", "ext4", "-b", "1024", "-J", "size=1"][..],
            &["-t", "ext2"],
        ] {
            let what = format!("errno {errno}, {kind:?}");
            let journal = kind.contains(&"ext4");
            let device = Arc::new(Refusing {
                inner: base("16M", kind).snapshot(),
                refuses: AtomicBool::new(false),
                errno,
            });
            let (options, found) = noting();
            let told = Arc::new(Mutex::new(Vec::new()));
            let tell = Arc::clone(&told);
            let options = options.on_stop(move |why| tell.lock().unwrap().push(why.to_string()));
            let volume = options.open_device(Arc::clone(&device) as _).unwrap();
            volume.write("/synced", b"there").unwrap();
            volume.sync().unwrap();
            volume.write("/lost", b"x").unwrap();
            device.refuses.store(true, Ordering::Relaxed);
            let failed = volume.sync();
            assert!(
                matches!(failed, Err(Error::Io { .. })),
                "{what}: {failed:?}"
            );
            // A failed write of data makes a sync fail and nothing more. A failed write of metadata stops the volume.
            let file = volume.open_file("/synced").unwrap();
            device.refuses.store(false, Ordering::Relaxed);
            if told.lock().unwrap().is_empty() {
                volume.create_new_file("/more").unwrap();
                device.refuses.store(true, Ordering::Relaxed);
                volume.sync().unwrap_err();
                device.refuses.store(false, Ordering::Relaxed);
            }
            let why = told.lock().unwrap().join("; ");
            assert!(why.contains(word), "{what}: {why}");
            assert_eq!(why.contains("recovers"), journal, "{what}: {why}");
            // The host has room again, but this volume stays stopped.
            assert!(
                matches!(volume.create_new_file("/no"), Err(Error::ReadOnly(_))),
                "{what}"
            );
            let mut bytes = [0; 5];
            file.read_at(&mut bytes, 0).unwrap();
            drop(file);
            let _ = volume.close();
            assert!(found.lock().unwrap().is_empty(), "{what}");
            let sb = superblock(&device.inner);
            assert_eq!((sb.state.get() & 2, sb.error_count.get()), (0, 0), "{what}");
            let volume = options.open_device(Arc::clone(&device) as _).unwrap();
            assert_eq!(volume.read_only().is_some(), !journal, "{what}");
            assert_eq!(volume.read("/synced").unwrap(), b"there", "{what}");
            if journal {
                volume.write("/again", b"x").unwrap();
                volume.close().unwrap();
                assert_clean(&device.inner, &what);
            }
        }
    }
}

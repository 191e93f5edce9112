//! An image that becomes longer: its new length is durable before other writes, and the old length is restored when
//! the change is reverted.

use crate::it::image;
use blockdev::{BlockDevice, FaultDevice, MemDevice, Op};
use ext4_image::{Error, Undo};
use extant_resize::{NewSize, Plan, ResizeOptions};
use std::io;
use std::sync::Mutex;

const SIZE: u64 = 64 << 20;

fn small() -> Option<MemDevice> {
    needs::have(&["mke2fs", "e2fsck"])
        .then(|| image::populate_sized("16M", &["-t", "ext4", "-b", "1024"], false, 60).snapshot())
}

fn plan(device: &MemDevice) -> Plan {
    extant_resize::plan(device, &ResizeOptions::new(NewSize::Bytes(SIZE))).unwrap()
}

/// A device that notes in which order it is used.
struct Watched(MemDevice, Mutex<Vec<&'static str>>);

impl Watched {
    fn note(&self, call: &'static str) {
        self.1.lock().unwrap().push(call);
    }
}

impl BlockDevice for Watched {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.note("write");
        self.0.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.note("flush");
        self.0.flush()
    }

    fn extend(&self, len: u64) -> io::Result<()> {
        self.note("extend");
        self.0.extend(len)
    }

    fn read_only(&self) -> bool {
        false
    }
}

#[test]
fn a_new_length_is_flushed_before_anything_is_written() {
    let Some(device) = small() else { return };
    let plan = plan(&device);
    let watched = Watched(device, Mutex::default());
    plan.write(&watched, None, None).unwrap();
    let calls = watched.1.into_inner().unwrap();
    assert_eq!(calls.get(..3), Some(&["extend", "flush", "write"][..]));
    assert_eq!(watched.0.len(), SIZE);
}

#[test]
fn a_cut_that_lost_the_new_length_is_taken_back() {
    let Some(device) = small() else { return };
    let (plan, old) = (plan(&device), device.to_bytes().unwrap());
    let dir = needs::memory_dir();
    let beside = dir.path().join("undo");
    let mut marked = 0;
    for at in 1.. {
        let cut = FaultDevice::new(device.snapshot());
        cut.fail_after(Op::Write, at);
        if plan.write(&cut, None, Some(&beside)).is_ok() {
            break;
        }
        for lost in [false, true] {
            let image = cut.inner().snapshot();
            if lost {
                image.shorten(old.len() as u64).unwrap();
            }
            if let Ok(Some(undo)) = Undo::read(&beside) {
                undo.take_back(&image).unwrap();
                marked += 1;
            }
            let bytes = image.to_bytes().unwrap();
            assert!(bytes.starts_with(&old), "cut at write {at}, {lost}");
            assert!(bytes.len() == old.len() || !beside.exists());
        }
        let _ = std::fs::remove_file(&beside);
    }
    assert!(marked > 6, "{marked}");
}

#[test]
fn a_host_that_is_full_leaves_the_old_length() {
    let Some(device) = small() else { return };
    let (plan, old) = (plan(&device), device.to_bytes().unwrap());
    let full = FaultDevice::new(device.snapshot());
    // The host has no space beyond the old end.
    full.fail_range(Op::Write, old.len() as u64 + 1024..SIZE);
    // Without an undo file the record would be in free blocks, whose bytes then differ.
    let dir = needs::memory_dir();
    let beside = dir.path().join("undo");
    let error = plan.write(&full, None, Some(&beside)).unwrap_err();
    assert!(
        matches!(error, extant_resize::Error::Undo(Error::TakenBack(_))),
        "{error}"
    );
    assert!(full.inner().to_bytes().unwrap() == old);
}

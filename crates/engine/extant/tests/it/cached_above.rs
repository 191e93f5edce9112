//! Files whose pages a cache above the engine keeps, as the kernel does for a mount.

use crate::common;
use blockdev::{FaultDevice, Op};
use common::*;
use extant::unstable::Node;
use extant::{Credentials, VolumeOptions};
use std::sync::Arc;

const ARGS: &[&str] = &["-t", "ext4", "-J", "size=4"];

/// A cache above this one keeps the bytes that it has written, so pages of the same bytes would only take memory.
#[test]
fn pages_of_a_cache_above_leave_once_they_are_written() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image("32M", ARGS);
    let v = open(&device);
    let top = Node::root(&v).unwrap();
    let (file, _) = top
        .create(&Credentials::root(), b"above", 0o640, true)
        .unwrap();
    let (own, _) = top
        .create(&Credentials::root(), b"own", 0o640, true)
        .unwrap();
    own.write_at(&Credentials::root(), &[7; 8192], 0).unwrap();
    for n in 0..40u8 {
        file.write_cached(&[n; 4096], u64::from(n) * 4096).unwrap();
        if n % 8 == 7 {
            assert!(v.memory().data > 8 * 4096);
            file.fsync(false).unwrap();
            own.fsync(false).unwrap();
            // The pages of a file that nothing above caches stay.
            assert_eq!(v.memory().data, 8192);
        }
    }
    // A part of a page that is on the device already.
    file.write_cached(b"part", 5000).unwrap();
    file.fsync(false).unwrap();
    let mut page = [0; 4096];
    for n in 0..40u8 {
        file.read_at(&mut page, u64::from(n) * 4096).unwrap();
        let wrong = page.iter().filter(|byte| **byte != n).count();
        assert_eq!(wrong, if n == 1 { 4 } else { 0 }, "{n}");
    }
    drop((file, own, top));
    v.close().unwrap();
    assert_clean(&device, "pages that left");
}

/// The kernel writes the tail of a growing file from the beginning of its page, so no byte of the block is read.
#[test]
fn growing_tails_are_written_without_a_read() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image("32M", ARGS);
    let faulty = Arc::new(FaultDevice::new(Arc::clone(&device)));
    let v = VolumeOptions::new()
        .background(false)
        .open_device(Arc::clone(&faulty) as _)
        .unwrap();
    let top = Node::root(&v).unwrap();
    let (file, _) = top
        .create(&Credentials::root(), b"log", 0o640, true)
        .unwrap();
    file.write_cached(&[1; 100], 0).unwrap();
    file.fsync(false).unwrap();
    faulty.fail_all(Op::Read);
    for n in 2..100u64 {
        let len = (n * 100) as usize;
        let from = (n - 1) * 100 / 4096 * 4096;
        let tail = vec![n as u8; len - from as usize];
        file.write_cached(&tail, from).unwrap();
        file.fsync(false).unwrap();
    }
    faulty.heal();
    let mut tail = [0; 4096];
    assert_eq!(file.read_at(&mut tail, 8192).unwrap(), 9900 - 8192);
    assert!(tail[..9900 - 8192].iter().all(|byte| *byte == 99));
    drop((file, top));
    v.close().unwrap();
    assert_clean(&device, "tails");
}

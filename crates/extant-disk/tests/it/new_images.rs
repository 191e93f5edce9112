//! New images in packed formats: `zstd` judges.

use extant_disk::blockdev::BlockDevice;
use extant_disk::{NewFormat, NewImage, Packing};
use std::io;
use std::path::Path;
use std::process::Command;

const LEN: u64 = (37 << 20) + 4096;

/// Writes pieces of all kinds: random, repeated, zero, and across boundaries.
fn fill(device: &dyn BlockDevice) {
    let mut state = 88_172_645_463_325_252_u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(3 << 20)
    .collect();
    device.write_at(500_000, &random).unwrap();
    device.write_at(8 << 20, &[7; 3_000_000]).unwrap();
    device.write_at(20 << 20, &[0; 1 << 20]).unwrap();
    device
        .write_vectored_at((30 << 20) - 3, &[b"abc", b"def"])
        .unwrap();
    device.write_at(LEN - 1, b"z").unwrap();
}

fn make(path: &Path, threads: usize) -> u64 {
    let new = NewImage::create(path, NewFormat::Zstd, LEN).unwrap();
    fill(new.device());
    let packing = Packing {
        threads,
        step: &|_| Ok(()),
    };
    new.finish(&packing).unwrap()
}

#[test]
fn zstd_reads_what_is_written_by_any_number_of_threads() {
    needs::tools!("zstd");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zst");
    let size = make(&path, 1);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len() as u64, size);
    // Three MiB of random bytes, and almost nothing for the rest.
    assert!(size < (3 << 20) + (64 << 10), "{size}");
    for threads in [2, 3, 8, 64] {
        assert_eq!(make(&path, threads), size);
        assert!(std::fs::read(&path).unwrap() == bytes, "{threads} threads");
    }
    let out = Command::new("zstd").args(["-dc"]).arg(&path).output();
    let expected = extant_disk::blockdev::MemDevice::new(LEN);
    fill(&expected);
    assert!(out.unwrap().stdout == expected.to_bytes().unwrap());
    let names = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 1, "something was left");
}

#[test]
fn a_failure_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zst");
    std::fs::write(&path, "old").unwrap();
    let new = NewImage::create(&path, NewFormat::Zstd, LEN).unwrap();
    // The file is locked meanwhile.
    let second = NewImage::create(&path, NewFormat::Zstd, LEN).err().unwrap();
    assert_eq!(second.kind(), io::ErrorKind::ResourceBusy);
    let failed = new.finish(&Packing {
        threads: 2,
        step: &|_| Err(io::Error::other("enough")),
    });
    assert_eq!(failed.unwrap_err().to_string(), "enough");
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

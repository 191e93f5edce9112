//! New images in packed formats. `zstd` and `qemu-img` check them.

use crate::it::random;
use extant_disk::blockdev::BlockDevice;
use extant_disk::{NewFormat, NewImage, Packing};
use std::io;
use std::path::Path;
use std::process::Command;

const LEN: u64 = (37 << 20) + 4096;

/// Writes pieces of all kinds: random, repeated, zero, and across boundaries.
fn fill(device: &dyn BlockDevice) {
    let mut next = random::numbers();
    let random = std::iter::repeat_with(|| next(256) as u8);
    let random: Vec<u8> = random.take(3 << 20).collect();
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
    finished(new, threads)
}

fn finished(new: NewImage, threads: usize) -> u64 {
    let step = &|_| Ok(());
    new.finish(&Packing { threads, step }).unwrap()
}

/// Runs qemu-img in a directory. Panics if qemu-img fails.
fn qemu_img(dir: &Path, args: &[&str]) {
    let out = Command::new("qemu-img")
        .current_dir(dir)
        .args(args)
        .output();
    let out = out.unwrap();
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {told}");
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

/// Makes an image and a raw file with the same content, and compares them with qemu-img. Returns the size of the image.
fn judged_as(
    (format, qemus, name): (NewFormat, &str, &str),
    dir: &Path,
    len: u64,
    work: &dyn Fn(&dyn BlockDevice),
) -> u64 {
    let raw = std::fs::File::create(dir.join("raw")).unwrap();
    raw.set_len(len).unwrap();
    let access = extant_disk::blockdev::Access::ReadWrite;
    work(&extant_disk::blockdev::FileDevice::open(dir.join("raw"), access).unwrap());
    let new = NewImage::create(dir.join(name), format, len).unwrap();
    work(new.device());
    let size = finished(new, 1);
    // QEMU has no check of VHDs.
    if format != NewFormat::Vhd {
        qemu_img(dir, &["check", "-q", "-f", qemus, name]);
    }
    let compare = ["compare", "-q", "-f", "raw", "-F", qemus];
    qemu_img(dir, &[&compare[..], &["raw", name]].concat());
    let ours = extant_disk::open(dir.join(name), extant_disk::blockdev::Access::ReadOnly).unwrap();
    assert_eq!(ours.len(), len);
    size
}

fn judged(dir: &Path, len: u64, work: &dyn Fn(&dyn BlockDevice)) -> u64 {
    judged_as((NewFormat::Qcow2, "qcow2", "a.qcow2"), dir, len, work)
}

/// Writes to the first and the last bytes.
fn ends(device: &dyn BlockDevice) {
    device.write_at(0, b"first").unwrap();
    device.write_at(device.len() - 4, b"last").unwrap();
}

#[test]
fn qemu_reads_new_vhd_and_vmdk_images() {
    needs::tools!("qemu-img");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let vhd = (NewFormat::Vhd, "vpc", "a.vhd");
    // Names that cannot stand in the description.
    let vmdk = (NewFormat::Vmdk, "vmdk", "a \"\n\u{e4}.vmdk");
    for kind in [vhd, vmdk] {
        judged_as(kind, dir, LEN, &fill);
        let first = std::fs::read(dir.join(kind.2)).unwrap();
        judged_as(kind, dir, LEN, &fill);
        assert!(std::fs::read(dir.join(kind.2)).unwrap() == first);
        // Each size lies between two multiples of a cluster, a grain and a cylinder.
        judged_as(kind, dir, 512, &|_| ());
        judged_as(kind, dir, (33 << 20) + 512, &ends);
        judged_as(kind, dir, (40 << 30) + 65536 + 512, &ends);
    }
    // The files have holes. A table and two clusters; the used tables, the directories and two grains.
    let blocks =
        |name: &str| std::os::unix::fs::MetadataExt::blocks(&dir.join(name).metadata().unwrap());
    assert!(blocks(vhd.2) < 1000, "{}", blocks(vhd.2));
    assert!(blocks(vmdk.2) < 1000, "{}", blocks(vmdk.2));
}

#[test]
fn a_vhd_and_a_vmdk_image_have_whole_sectors_and_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    for (format, len, why) in [
        (NewFormat::Vhd, 1000, "whole sectors"),
        (NewFormat::Vhd, (2040 << 30) + 512, "2040 GiB"),
        (NewFormat::Vmdk, 1000, "whole sectors"),
        (NewFormat::Vmdk, 2 << 40, "2 TiB"),
    ] {
        let new = NewImage::create(dir.path().join("a"), format, len).unwrap();
        let step = &|_| Ok(());
        let error = new.finish(&Packing { threads: 1, step }).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn qemu_reads_new_qcow2_images() {
    needs::tools!("qemu-img");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let size = judged(dir, LEN, &fill);
    // The image has the clusters of the data and a few clusters of tables.
    assert!(size < (6 << 20) + (12 << 16), "{size}");
    let first = std::fs::read(dir.join("a.qcow2")).unwrap();
    judged(dir, LEN, &fill);
    assert!(std::fs::read(dir.join("a.qcow2")).unwrap() == first);
    // Test an empty disk, and a disk with data in the first and the last of many L2 tables.
    assert_eq!(judged(dir, 512, &|_| ()), 4 << 16);
    assert_eq!(judged(dir, (5 << 40) + 512, &ends), (4 + 1 + 2 + 2) << 16);
}

#[test]
fn a_qcow2_image_has_whole_sectors() {
    let dir = tempfile::tempdir().unwrap();
    let new = NewImage::create(dir.path().join("a.qcow2"), NewFormat::Qcow2, 1000).unwrap();
    let step = &|_| Ok(());
    let error = new.finish(&Packing { threads: 1, step }).unwrap_err();
    assert!(error.to_string().contains("whole sectors"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_suffix_selects_the_format_in_any_case() {
    for (name, format) in [
        ("a.QCOW2", NewFormat::Qcow2),
        ("a.Zst", NewFormat::Zstd),
        ("a.ZSTD", NewFormat::Zstd),
        ("a.Simg", NewFormat::AndroidSparse),
        ("a.VHD", NewFormat::Vhd),
        ("a.b.Vmdk", NewFormat::Vmdk),
    ] {
        assert_eq!(NewFormat::of_name(name), Some(format), "{name}");
    }
    assert_eq!(NewFormat::of_name("QCOW2"), None);
}

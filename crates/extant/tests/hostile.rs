//! Hostile images: whatever the bytes are, the worst outcome is an error. No panic, no hang, no
//! access outside the device.

mod common;

use blockdev::{BlockDevice, MemDevice};
use common::*;
use extant::{
    Error, FileType, OpenFlags, OpenOptions, RenameMode, SetAttributes, SetXattr, Volume,
};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn open_as(device: &Arc<MemDevice>, read_only: bool) -> extant::Result<Volume> {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    OpenOptions::new()
        .background(false)
        .read_only(read_only)
        .cache_bytes(8 << 20)
        .open_device(device)
}

/// Bytes that mark file data, so that what is metadata can be told.
const DATA: u8 = 0xDA;

/// An image with everything in it: large directories, deep mappings, attributes in blocks, links.
fn populate(args: &[&str], dirty: bool) -> Arc<MemDevice> {
    let device = mem_image("16M", args);
    let v = open(&device);
    let big = v.create_dir("/big", 0o755).unwrap();
    for n in 0..900 {
        big.create(format!("a name of some length, number {n:0>20}"), 0o644)
            .unwrap();
    }
    v.sync().unwrap();
    for d in 0..6 {
        let dir = v.create_dir(format!("/d{d}"), 0o755).unwrap();
        for n in 0..6usize {
            dir.write_file(format!("f{n}"), &vec![DATA; n * 1500])
                .unwrap();
        }
        dir.symlink("x".repeat(100), "slow").unwrap();
        dir.symlink("short", "fast").unwrap();
        dir.mknod("dev", FileType::CharDevice, 0o600, 0x103)
            .unwrap();
        dir.set_xattr("f1", "user.large", &[DATA; 500], SetXattr::Any)
            .unwrap();
        dir.set_xattr("f2", "user.small", b"v", SetXattr::Any)
            .unwrap();
        dir.link("f3", "hard").unwrap();
    }
    let deep = v.create("/deep", 0o644).unwrap();
    for n in 0..700u64 {
        deep.write_at(n * 8192, &[DATA; 512]).unwrap();
    }
    let far = v.create("/far", 0o644).unwrap();
    far.write_at(70 << 20, &[DATA; 1024]).unwrap();
    v.sync().unwrap();
    if dirty {
        // As a kill leaves it: committed, not written home.
        for n in 0..40 {
            v.create(format!("/d0/late{n}"), 0o600).unwrap();
        }
        v.truncate("/deep", 100_000).unwrap();
        v.unlink("/d1/f5").unwrap();
        v.sync().unwrap();
        let device = Arc::new(device.snapshot());
        v.close().unwrap();
        return device;
    }
    drop((deep, far));
    v.close().unwrap();
    device
}

/// Blocks of an image that hold metadata: those in use that are not file data.
fn metadata(device: &MemDevice, block: usize) -> Vec<u64> {
    let bytes = device.to_bytes().unwrap();
    bytes
        .chunks_exact(block)
        .enumerate()
        .filter(|(_, b)| b.iter().any(|&x| x != 0) && b.iter().any(|&x| x != 0 && x != DATA))
        .map(|(n, _)| n as u64)
        .collect()
}

/// Breaks a few places.
fn mutate(device: &MemDevice, blocks: &[u64], block: u64, rng: &mut Rng) {
    for _ in 0..1 + rng.below(6) {
        let at = match rng.below(8) {
            // The superblock and the descriptors decide most.
            0 => 1024 + rng.below(1024),
            1 => blocks[rng.below(blocks.len().min(4) as u64) as usize] * block + rng.below(block),
            _ => {
                let start = blocks[rng.below(blocks.len() as u64) as usize] * block;
                // Headers are at the front.
                start
                    + if rng.below(2) == 0 {
                        rng.below(64)
                    } else {
                        rng.below(block)
                    }
            }
        };
        let width = [1usize, 1, 2, 4, 4, 8][rng.below(6) as usize];
        let at = (at / width as u64 * width as u64).min(device.len() - 8);
        let mut bytes = [0u8; 8];
        device.read_at(at, &mut bytes[..width]).unwrap();
        match rng.below(6) {
            0 | 1 => bytes[rng.below(width as u64) as usize] ^= 1 << rng.below(8),
            2 => bytes = rng.next().to_le_bytes(),
            3 => bytes = [0xff; 8],
            4 => bytes = [0; 8],
            _ => {
                let n = u64::from_le_bytes(bytes);
                bytes = if rng.below(2) == 0 {
                    n.wrapping_add(1)
                } else {
                    n.wrapping_sub(1)
                }
                .to_le_bytes();
            }
        }
        device.write_at(at, &bytes[..width]).unwrap();
        if rng.below(12) == 0 {
            // A whole block of something else.
            let mut other = vec![0; block as usize];
            let from = blocks[rng.below(blocks.len() as u64) as usize];
            let to = blocks[rng.below(blocks.len() as u64) as usize];
            match rng.below(3) {
                0 => device.read_at(from * block, &mut other).unwrap(),
                1 => other.fill_with(|| rng.next() as u8),
                _ => {}
            }
            device.write_at(to * block, &other).unwrap();
        }
    }
}

/// Walks everything, whatever it says; bounded, for directories may go in circles.
fn walk(v: &Volume) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut todo = vec![String::from("/")];
    let mut files = Vec::new();
    let mut buf = vec![0; 70_000];
    while let Some(dir) = todo.pop() {
        let Ok(entries) = v.read_dir(&dir) else {
            continue;
        };
        for entry in entries {
            let mut path = dir.clone().into_bytes();
            path.extend(&entry.name);
            let _ = v.list_xattrs(&path).map(|names| {
                names.iter().for_each(|n| drop(v.get_xattr(&path, n)));
            });
            let _ = v.stat(&path);
            let Ok(attributes) = v.lstat(&path) else {
                continue;
            };
            let _ = v.read_link(&path);
            if let Ok(file) = v.open(&path, OpenFlags::READ, 0) {
                let _ = file.read_at(0, &mut buf);
                let _ = file.read_at(attributes.size.saturating_sub(5000), &mut buf);
                let mut at = 0;
                for _ in 0..8 {
                    let Ok(data) = file.seek(at, extant::Seek::Data) else {
                        break;
                    };
                    let _ = file.read_at(data, &mut buf);
                    let Ok(hole) = file.seek(data, extant::Seek::Hole) else {
                        break;
                    };
                    at = hole;
                }
            }
            let Ok(path) = String::from_utf8(path) else {
                continue;
            };
            if entry.file_type == FileType::Directory && seen.insert(entry.ino) && path.len() < 3000
            {
                todo.push(format!("{path}/"));
            }
            if files.len() < 3000 {
                files.push(path);
            }
        }
    }
    files
}

/// A few changes; any error is fine.
fn change(v: &Volume, files: &[String], rng: &mut Rng) {
    for _ in 0..30 {
        let some = files
            .get(rng.below(files.len() as u64) as usize)
            .map_or("/none", String::as_str);
        let other = files
            .get(rng.below(files.len() as u64) as usize)
            .map_or("/none", String::as_str);
        let _ = match rng.below(12) {
            0 => v.create(format!("{some}/new"), 0o600).map(drop),
            1 => v.write_file(format!("/new{}", rng.below(9)), &[1; 9000]),
            2 => v.unlink(some),
            3 => v.remove_dir(some),
            4 => v.rename(some, other, RenameMode::Replace),
            5 => v.rename(some, other, RenameMode::Exchange),
            6 => v.truncate(some, rng.below(100_000)),
            7 => v.set_xattr(some, "user.x", &[3; 300], SetXattr::Any),
            8 => v
                .create_dir(format!("/dir{}", rng.below(9)), 0o755)
                .map(drop),
            9 => v.link(some, format!("/hard{}", rng.below(9))),
            10 => v.set_attributes(
                some,
                &SetAttributes {
                    mode: Some(0o600),
                    ..Default::default()
                },
            ),
            _ => v.open(some, OpenFlags::WRITE, 0).and_then(|f| {
                f.write_at(rng.below(50_000), &[2; 5000])?;
                f.fallocate(extant::Fallocate::PunchHole, 4096, 20_000)
            }),
        };
        if rng.below(10) == 0 {
            let _ = v.sync();
        }
    }
    let _ = v.sync();
    let _ = v.statfs();
}

fn attack(base: &MemDevice, blocks: &[u64], block: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    let device = Arc::new(base.snapshot());
    mutate(&device, blocks, block, &mut rng);
    if let Ok(v) = open_as(&Arc::new(device.snapshot()), true) {
        walk(&v);
        let _ = v.close();
    }
    if let Ok(v) = open_as(&device, false) {
        let files = if rng.below(2) == 0 {
            walk(&v)
        } else {
            vec!["/d0/f3".into(), "/d1".into(), "/deep".into(), "/big".into()]
        };
        change(&v, &files, &mut rng);
        let _ = v.close();
        if let Ok(v) = open_as(&device, false) {
            let _ = v.close();
        }
    }
}

/// Runs the seeds on some threads, with a watchdog for each.
fn campaign(name: &str, args: &[&str], dirty: bool, seeds: u64) {
    if !have("mke2fs") {
        return;
    }
    let base = populate(args, dirty);
    let block = u64::from(
        open_as(&Arc::new(base.snapshot()), true)
            .unwrap()
            .geometry()
            .block_size,
    );
    let blocks = metadata(&base, block as usize);
    let only: Option<u64> = std::env::var("EXTANT_SEED")
        .ok()
        .and_then(|s| s.parse().ok());
    let next = AtomicU64::new(only.unwrap_or(0));
    let end = only.map_or(seeds, |o| o + 1);
    let workers = std::thread::available_parallelism()
        .map_or(1, usize::from)
        .min(8);
    let running: Vec<Mutex<Option<(u64, Instant)>>> =
        (0..workers).map(|_| Mutex::new(None)).collect();
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for mine in &running {
            let (next, failures, base, blocks) = (&next, &failures, &base, &blocks);
            s.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    *mine.lock().unwrap() = Some((seed, Instant::now()));
                    if catch_unwind(AssertUnwindSafe(|| attack(base, blocks, block, seed))).is_err()
                    {
                        failures.lock().unwrap().push(seed);
                    }
                    *mine.lock().unwrap() = None;
                }
            });
        }
        while next.load(Ordering::Relaxed) < end
            || running.iter().any(|r| r.lock().unwrap().is_some())
        {
            std::thread::sleep(Duration::from_millis(20));
            for slot in &running {
                if let Some((seed, since)) = *slot.lock().unwrap()
                    && since.elapsed() > Duration::from_secs(60)
                {
                    eprintln!("{name}: seed {seed} hangs");
                    // The thread cannot be ended, and the scope would wait for it.
                    std::process::exit(101);
                }
            }
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{name}: panics with seeds {failures:?}; repeat one with EXTANT_SEED=n"
    );
}

fn seeds() -> u64 {
    if torture() { 2_500 } else { 60 }
}

#[test]
fn metadata_without_checksums() {
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "^metadata_csum,^uninit_bg",
    ];
    campaign("no checksums", &args, false, seeds() * 2);
}

#[test]
fn metadata_without_checksums_4k() {
    let args = [
        "-t",
        "ext4",
        "-J",
        "size=4",
        "-O",
        "^metadata_csum,^uninit_bg",
    ];
    campaign("no checksums, 4 KiB", &args, false, seeds());
}

#[test]
fn metadata_with_checksums() {
    campaign(
        "checksums",
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        false,
        seeds(),
    );
}

#[test]
fn block_maps() {
    campaign(
        "ext3",
        &["-t", "ext3", "-b", "1024", "-J", "size=1"],
        false,
        seeds(),
    );
}

#[test]
fn small_inodes_no_journal() {
    campaign("ext2", &["-t", "ext2", "-b", "1024"], false, seeds());
}

#[test]
fn dirty_journal() {
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "^metadata_csum,^uninit_bg",
    ];
    campaign("dirty journal", &args, true, seeds());
}

#[test]
fn dirty_journal_with_checksums() {
    campaign(
        "dirty journal, checksums",
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        true,
        seeds(),
    );
}

#[test]
fn no_image_at_all() {
    for (what, bytes) in [
        ("empty", vec![]),
        ("one byte", vec![1]),
        ("zeros", vec![0; 1 << 20]),
        ("ones", vec![0xff; 1 << 20]),
        ("text", b"this is no image. ".repeat(10_000)),
    ] {
        for read_only in [true, false] {
            let result = open_as(&Arc::new(MemDevice::from_bytes(&bytes)), read_only);
            match result {
                Err(Error::Format(e)) => assert!(!e.to_string().is_empty()),
                Err(e) => panic!("{what}: {e:?} instead of an error of the format"),
                Ok(_) => panic!("{what}: opens"),
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty");
    std::fs::write(&path, b"").unwrap();
    assert!(OpenOptions::new().open(&path).is_err());
    assert!(
        OpenOptions::new().open(dir.path()).is_err(),
        "a directory is no image"
    );
    assert!(OpenOptions::new().open(dir.path().join("none")).is_err());
}

#[test]
fn truncated_images() {
    if !have("mke2fs") {
        return;
    }
    let base = populate(&["-t", "ext4", "-b", "1024", "-J", "size=1"], false)
        .to_bytes()
        .unwrap();
    for len in [
        1024,
        1500,
        2048,
        3000,
        10_000,
        100_000,
        1 << 20,
        base.len() / 2,
        base.len() - 1024,
        base.len() - 1,
    ] {
        for read_only in [true, false] {
            let device = Arc::new(MemDevice::from_bytes(&base[..len]));
            let error = open_as(&device, read_only)
                .err()
                .unwrap_or_else(|| panic!("{len} bytes open"));
            assert!(matches!(error, Error::Format(_)), "{len} bytes: {error:?}");
        }
    }
}

/// The primary superblock is gone: a backup is used, for reading only.
#[test]
fn zeroed_superblock() {
    if !have("mke2fs") {
        return;
    }
    for args in [
        &["-t", "ext4", "-b", "1024", "-J", "size=1"][..],
        &["-t", "ext2", "-b", "1024"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "sparse_super2",
            "-J",
            "size=1",
        ],
    ] {
        let device = populate(args, false);
        let whole = snapshot(&open_as(&device, true).unwrap()).unwrap();
        device.write_at(1024, &[0; 1024]).unwrap();
        let before = device.to_bytes().unwrap();
        let v = open_as(&device, false).unwrap_or_else(|e| panic!("{args:?}: {e}"));
        let why = v.read_only().expect("read-only");
        assert!(
            why.contains("superblock") && why.contains("backup"),
            "{why}"
        );
        assert!(
            snapshot(&v).unwrap() == whole,
            "{args:?}: the tree by the backup"
        );
        assert!(matches!(v.create("/x", 0o600), Err(Error::ReadOnly(_))));
        v.close().unwrap();
        assert!(device.to_bytes().unwrap() == before, "nothing is written");
    }
}

/// What is not supported is refused by its name, or opened for reading by its name.
#[test]
fn unsupported_features() {
    if !have("mke2fs") {
        return;
    }
    for (feature, extra) in [
        ("inline_data", &[][..]),
        ("bigalloc", &["-C", "16384"]),
        ("encrypt", &[]),
        ("casefold", &[]),
        ("ea_inode", &[]),
    ] {
        let device = mem_image("32M", &[&["-t", "ext4", "-O", feature][..], extra].concat());
        for read_only in [true, false] {
            let error = open_as(&device, read_only)
                .err()
                .unwrap_or_else(|| panic!("{feature} opens"));
            assert!(error.to_string().contains(feature), "{feature}: {error}");
        }
    }
    for feature in ["verity", "quota", "project"] {
        let device = mem_image("32M", &["-t", "ext4", "-O", feature]);
        let before = device.to_bytes().unwrap();
        let v = open_as(&device, false).unwrap_or_else(|e| panic!("{feature}: {e}"));
        let why = v
            .read_only()
            .unwrap_or_else(|| panic!("{feature} opens for writing"));
        assert!(why.contains(feature), "{feature}: {why}");
        assert!(matches!(v.create("/x", 0o600), Err(Error::ReadOnly(_))));
        assert!(v.read_dir("/").is_ok());
        v.close().unwrap();
        assert!(
            device.to_bytes().unwrap() == before,
            "{feature}: nothing is written"
        );
    }
}

fn superblock(device: &MemDevice) -> ext4_format::superblock::RawSuperblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    ext4_format::superblock::RawSuperblock::parse(&bytes).unwrap()
}

#[test]
fn multiple_mount_protection() {
    if !have("mke2fs") {
        return;
    }
    let device = mem_image("32M", &["-t", "ext4", "-O", "mmp"]);
    let v = open_as(&device, false).expect("an idle image opens");
    assert!(
        v.read_only()
            .is_some_and(|why| why.contains("mount protection"))
    );
    v.close().unwrap();
    // A sequence number instead of "clean": somebody has it mounted.
    let block = superblock(&device).mmp_block.get();
    device
        .write_at(block * 4096 + 4, &1u32.to_le_bytes())
        .unwrap();
    for read_only in [true, false] {
        let error = open_as(&device, read_only)
            .err()
            .expect("in use")
            .to_string();
        assert!(error.contains("mmp"), "{error}");
    }
}

#[test]
fn external_journal() {
    if !have("mke2fs") {
        return;
    }
    let device = mem_image("32M", &["-t", "ext4"]);
    let mut sb = superblock(&device);
    sb.journal_inum = 0.into();
    sb.set_checksum();
    device.write_at(1024, sb.bytes()).unwrap();
    let error = open_as(&device, false)
        .err()
        .expect("the journal is elsewhere")
        .to_string();
    assert!(error.contains("external journal"), "{error}");
}

#[test]
fn fast_commit_opens_when_clean() {
    if !have("mke2fs") {
        return;
    }
    let device = mem_image("64M", &["-t", "ext4", "-O", "fast_commit"]);
    let v = open_as(&device, false).expect("a clean image opens");
    if v.read_only().is_none() {
        v.write_file("/x", b"x").unwrap();
    }
    v.close().unwrap();
    assert_clean(&device, "fast_commit");
}

//! Blocks that are set aside for files that grow: they keep files contiguous, cost no other file a block, and leave
//! no trace.

use crate::common;
use blockdev::MemDevice;
use common::*;
use extant::{BlockScan, Error, Fallocate, Volume, VolumeOptions, mkfs};
use std::sync::Arc;

const SCANS: [BlockScan; 2] = [BlockScan::Lists, BlockScan::Linear];

fn image(size: u64) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(size));
    let options = mkfs::MkfsOptions {
        size: Some(size),
        zeroed_device: true,
        block_size: Some(4096),
        ..Default::default()
    };
    mkfs::format(&*device, &options).unwrap();
    device
}

fn open(device: &Arc<MemDevice>, scan: BlockScan) -> Volume {
    VolumeOptions::new()
        .background(false)
        .block_scan(scan)
        .open_device(Arc::clone(device) as _)
        .unwrap()
}

const GROW: Fallocate = Fallocate::Allocate { keep_size: false };

/// Returns the runs of blocks of a file, as e2fsprogs reports them.
fn extents(device: &MemDevice, path: &str) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("image");
    write_image(device, &file);
    let out = std::process::Command::new("debugfs")
        .args(["-R", &format!("ex {path}")])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    // Leaves only: "level/depth" with both alike.
    let leaf = |l: &&str| {
        let mut words = l.split_whitespace();
        let level = words.next().and_then(|w| w.strip_suffix('/'));
        level.is_some() && level == words.next()
    };
    text.lines().filter(leaf).count()
}

#[test]
fn files_that_grow_side_by_side_stay_whole() {
    needs::tools!("debugfs", "e2fsck");
    for scan in SCANS {
        let device = image(256 << 20);
        let v = open(&device, scan);
        let files: Vec<_> = (0..8)
            .map(|n| v.create_new_file(format!("/f{n}")).unwrap())
            .collect();
        for n in 0..512u64 {
            for (i, file) in files.iter().enumerate() {
                if i % 2 == 0 {
                    file.fallocate(GROW, n * 8192, 8192).unwrap();
                } else {
                    file.append(&[i as u8; 8192]).unwrap();
                    if n % 16 == 15 {
                        file.sync_all().unwrap();
                    }
                }
            }
        }
        drop(files);
        v.close().unwrap();
        assert_clean(&device, "files side by side");
        for n in 0..8 {
            let count = extents(&device, &format!("/f{n}"));
            assert!(
                (1..=12).contains(&count),
                "{scan:?}: file {n} of 4 MiB has {count} extents"
            );
        }
    }
}

#[test]
fn what_is_set_aside_is_free_and_comes_back() {
    for scan in SCANS {
        let device = image(64 << 20);
        let v = open(&device, scan);
        let file = v.create_new_file("/f").unwrap();
        v.sync().unwrap();
        let free = v.statfs().unwrap().free_blocks;
        for n in 0..5 {
            file.fallocate(GROW, n * 8192, 8192).unwrap();
        }
        // Four blocks of a transaction are reserved for the mapping until a push.
        v.sync().unwrap();
        assert_eq!(v.statfs().unwrap().free_blocks, free - 10);
        file.set_len(0).unwrap();
        v.sync().unwrap();
        assert_eq!(v.statfs().unwrap().free_blocks, free);
        file.fallocate(GROW, 0, 8192).unwrap();
        v.remove_file("/f").unwrap();
        drop(file);
        v.sync().unwrap();
        assert_eq!(v.statfs().unwrap().free_blocks, free);
        v.close().unwrap();
        assert_clean(&device, "set aside");
    }
}

/// Many files grow at once until the space is used up. Then no block is left.
#[test]
fn a_full_volume_is_full_to_the_last_block() {
    needs::tools!("e2fsck");
    for scan in SCANS {
        let device = image(48 << 20);
        let v = open(&device, scan);
        let files: Vec<_> = (0..40)
            .map(|n| v.create_new_file(format!("/f{n}")).unwrap())
            .collect();
        let mut ends = vec![0u64; files.len()];
        let mut full = 0;
        for n in (0..files.len()).cycle() {
            match files[n].fallocate(GROW, ends[n], 4096) {
                Ok(()) => {
                    ends[n] += 4096;
                    full = 0;
                }
                Err(Error::NoSpace(_)) => full += 1,
                Err(e) => panic!("{e}"),
            }
            if full == files.len() {
                break;
            }
        }
        // All but the fiftieth part, which no file may take.
        let held = (48 << 20) / 4096 / 50;
        let left = v.statfs().unwrap().free_blocks;
        assert!(left < held + 8, "{scan:?}: {left} blocks are left");
        // Room again for just what one of them held, while all others are open.
        files[7].set_len(0).unwrap();
        v.sync().unwrap();
        let before = v.statfs().unwrap().free_blocks;
        let mut more = 0;
        while files[8]
            .fallocate(GROW, ends[8] + more * 4096, 4096)
            .is_ok()
        {
            more += 1;
        }
        assert!(before - more < held + 8, "{before} free, {more} taken");
        drop(files);
        v.close().unwrap();
        assert_clean(&device, "full");
    }
}

/// Threads whose files grow, are cut and are removed, on a volume that is full half of the time.
#[test]
fn threads_fight_for_the_last_blocks() {
    needs::tools!("e2fsck");
    for scan in SCANS {
        let device = image(32 << 20);
        let v = open(&device, scan);
        let free = v.statfs().unwrap().free_blocks;
        std::thread::scope(|s| {
            for t in 0..6u64 {
                let v = v.clone();
                s.spawn(move || {
                    let mut rng = Rng::new(t);
                    for round in 0..30 {
                        let name = format!("/t{t}.{round}");
                        let Ok(file) = v.create_new_file(&name) else {
                            continue;
                        };
                        let mut end = 0;
                        for _ in 0..150 {
                            let len = 4096 * (1 + rng.below(20));
                            match rng.below(12) {
                                0 => {
                                    file.set_len(0).unwrap();
                                    end = 0;
                                }
                                1 | 2 => match file.write_at(&[7; 9000], end) {
                                    Ok(n) => end += n as u64,
                                    Err(Error::NoSpace(_)) => {}
                                    Err(e) => panic!("write: {e}"),
                                },
                                _ => match file.fallocate(GROW, end, len) {
                                    Ok(()) => end += len,
                                    Err(Error::NoSpace(_)) => end = file.metadata().unwrap().len(),
                                    Err(e) => panic!("fallocate: {e}"),
                                },
                            }
                        }
                        v.remove_file(&name).unwrap();
                    }
                });
            }
        });
        v.sync().unwrap();
        assert_eq!(
            v.statfs().unwrap().free_blocks,
            free,
            "{scan:?}: every block is back"
        );
        v.close().unwrap();
        assert_clean(&device, "threads");
    }
}

/// Threads that preallocate and remove, on a volume that is never more than half full of live files: no call fails
/// with ENOSPC, whichever thread is pushing the blocks that the others freed.
#[test]
fn what_was_freed_is_there_for_who_waited_for_it() {
    let device = image(48 << 20);
    let v = VolumeOptions::new()
        .open_device(Arc::clone(&device) as _)
        .unwrap();
    std::thread::scope(|s| {
        for t in 0..12u64 {
            let v = v.clone();
            s.spawn(move || {
                for round in 0..200 {
                    let name = format!("/t{t}.{round}");
                    let file = v.create_new_file(&name).unwrap();
                    file.fallocate(GROW, 0, 1_500_000)
                        .unwrap_or_else(|e| panic!("{name}: {e}"));
                    drop(file);
                    v.remove_file(&name).unwrap();
                }
            });
        }
    });
    v.close().unwrap();
}

/// Many steps of a file that grows and is cut use no space and little of the log, because blocks that are allocated and
/// freed inside a context are never logged.
#[test]
fn coming_and_going_inside_a_context_costs_nothing() {
    let device = image(64 << 20);
    let v = open(&device, BlockScan::Lists);
    let file = v.create_new_file("/f").unwrap();
    v.sync().unwrap();
    for _ in 0..5_000u64 {
        for n in 0..128 {
            file.fallocate(GROW, n * 8192, 8192).unwrap();
        }
        file.set_len(0).unwrap();
    }
    // 640,000 steps of two blocks are more than a hundred times the volume; no push made room meanwhile.
    let free = v.statfs().unwrap().free_blocks;
    file.fallocate(GROW, 0, 8192).unwrap();
    assert!(v.statfs().unwrap().free_blocks <= free);
    drop(file);
    v.close().unwrap();
    if needs::have(&["e2fsck"]) {
        assert_clean(&device, "came and went");
    }
}

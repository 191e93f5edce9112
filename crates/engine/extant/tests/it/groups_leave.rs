//! Bitmaps of groups are evicted when there are many, while blocks and inodes of those groups are taken and freed. The
//! volume is clean at the end, and after a cut at any moment.

use crate::common;
use blockdev::{BlockDevice, MemDevice};
use common::*;
use extant::{Fallocate, OpenOptions, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn what_leaves_is_as_in_the_image() {
    // 128 groups of 8 MiB; an eighth of the smallest cache holds 64 bitmaps.
    let device = mem_image("1G", &["-t", "ext4", "-b", "1024", "-J", "size=8"]);
    let volume = VolumeOptions::new()
        .cache_bytes(1 << 20)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    let free = volume.statfs().unwrap().free_blocks;
    let cuts = while_cut(&device, 3, |thread| {
        let mut random = Rng::new(thread + 1);
        let dir = volume.create_dir(format!("/t{thread}")).unwrap();
        for turn in 0..1500 {
            let name = format!("f{}", random.below(40));
            match random.below(4) {
                0 => {
                    if let Err(e) = dir.remove_file(&name) {
                        assert_eq!(e.errno(), 2, "{name} of {thread}: {e}");
                    }
                }
                1 => {
                    let file = dir.open_file_with(&name, &OpenOptions::new().write(true));
                    if let Ok(file) = file {
                        file.set_len(random.below(1 << 20)).unwrap();
                    }
                }
                2 => dir.write(&name, vec![turn as u8; 3000]).unwrap(),
                _ => {
                    // A file over several groups.
                    let options = OpenOptions::new().write(true).create(true);
                    let file = dir.open_file_with(&name, &options).unwrap();
                    let whole = Fallocate::default();
                    let at = random.below(64) << 20;
                    file.fallocate(whole, at, (1 + random.below(12)) << 20)
                        .or_else(|e| if e.errno() == 28 { Ok(()) } else { Err(e) })
                        .unwrap();
                }
            }
            if turn % 50 == 0 {
                volume.sync().unwrap();
            }
        }
    });
    for thread in 0..3 {
        let dir = volume.open_dir(format!("/t{thread}")).unwrap();
        for n in 0..40 {
            // A name may be missing because a turn removed it, or did not make it. Nothing else may fail.
            if let Err(e) = dir.remove_file(format!("f{n}")) {
                assert_eq!(e.errno(), 2, "f{n} of {thread}: {e}");
            }
        }
    }
    volume.sync().unwrap();
    let left = volume.statfs().unwrap().free_blocks;
    assert!(free - left < 100, "{free} blocks were free, {left} are");
    volume.close().unwrap();
    assert_clean(&device, "at the end");
    assert_cuts_clean(cuts);
}

/// Directories are spread over all groups, each with a file. Those of some turns are removed in the context that made
/// them.
#[test]
fn what_leaves_of_inodes_is_as_in_the_image() {
    // 2048 groups of 32 inodes; the smallest cache holds the bitmaps of a hundred.
    let device = mem_image(
        "1G",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "512",
            "-N",
            "65536",
            "-O",
            "^resize_inode",
            "-J",
            "size=8",
        ],
    );
    let volume = VolumeOptions::new()
        .cache_bytes(1 << 20)
        .inodes_in_core(300)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    assert_eq!(volume.geometry().groups, 2048);
    let free = volume.statfs().unwrap().free_inodes;
    let cuts = while_cut(&device, 3, |thread| {
        let mut random = Rng::new(thread + 1);
        let mut there = Vec::new();
        let remove = |n: u64| {
            volume.remove_file(format!("/{thread}-{n}/f")).unwrap();
            volume.remove_dir(format!("/{thread}-{n}")).unwrap();
        };
        for turn in 0..1500 {
            let name = format!("/{thread}-{turn}");
            volume.create_dir(&name).unwrap();
            volume
                .write(format!("{name}/f"), vec![turn as u8; 3000])
                .unwrap();
            there.push(turn);
            for _ in 0..random.below(3) {
                // Remove the last directory at times, otherwise any.
                let at = random.below(there.len() as u64 * 5 / 4) as usize;
                let at = at.min(there.len().saturating_sub(1));
                if !there.is_empty() {
                    remove(there.swap_remove(at));
                }
            }
            if turn % 100 == 0 {
                volume.sync().unwrap();
            }
        }
        there.into_iter().for_each(remove);
    });
    volume.sync().unwrap();
    assert_eq!(volume.statfs().unwrap().free_inodes, free);
    volume.close().unwrap();
    assert_clean(&device, "at the end");
    assert_cuts_clean(cuts);
}

/// Runs this number of threads. Returns images of the device taken meanwhile.
fn while_cut(device: &MemDevice, threads: u64, run: impl Fn(u64) + Sync) -> Vec<MemDevice> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let run = &run;
        let workers: Vec<_> = (0..threads).map(|t| scope.spawn(move || run(t))).collect();
        let cutter = scope.spawn(|| {
            let mut cuts = Vec::new();
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(40));
                cuts.push(device.snapshot());
            }
            cuts
        });
        let ended: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|w| w.unwrap());
        cutter.join().unwrap()
    })
}

/// Checks that each of a few cuts is clean after it was opened and closed again.
fn assert_cuts_clean(cuts: Vec<MemDevice>) {
    assert!(!cuts.is_empty());
    let some = cuts.len().div_ceil(3);
    for (n, cut) in cuts.into_iter().enumerate().step_by(some) {
        let cut = Arc::new(cut);
        open(&cut).close().unwrap();
        assert_clean(&cut, &format!("cut {n}"));
    }
}

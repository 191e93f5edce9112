//! Moving files in use into fewer extents: nothing that callers see of them changes, and no write is lost.

use crate::common;
use blockdev::MemDevice;
use common::*;
use extant::unstable::schedule::{self, Point};
use extant::{Extent, Fallocate, File, OpenOptions, Volume};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;

fn volume(size: &str) -> (Arc<MemDevice>, Volume) {
    let device = mem_image(size, &["-t", "ext4"]);
    let volume = open(&device);
    (device, volume)
}

fn opened(volume: &Volume, path: &str) -> File {
    let options = OpenOptions::new().read(true).write(true).create(true);
    volume.open_file_with(path, &options).unwrap()
}

/// Makes a file of this number of blocks, none of which lies behind its neighbour.
fn scattered(volume: &Volume, path: &str, blocks: u64) -> File {
    let file = opened(volume, path);
    for n in (0..blocks).rev() {
        file.write_all_at(&[n as u8 ^ 0x5A; BLOCK as usize], n * BLOCK)
            .unwrap();
        file.sync_all().unwrap();
    }
    file
}

/// Returns the parts of a file, whether written or not, without their places on the device.
fn parts(file: &File) -> Vec<(u64, u64, bool)> {
    let mut parts: Vec<(u64, u64, bool)> = Vec::new();
    for Extent {
        offset,
        len,
        unwritten,
        ..
    } in file.extents().unwrap()
    {
        match parts.last_mut() {
            Some(last) if last.0 + last.1 == offset && last.2 == unwritten => last.1 += len,
            _ => parts.push((offset, len, unwritten)),
        }
    }
    parts
}

/// Extents of a file on the device, as debugfs reads them.
fn on_disk(device: &MemDevice, path: &str) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    write_image(device, &image);
    let out = Command::new("debugfs")
        .args(["-R", &format!("dump_extents -l {path}")])
        .arg(&image)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.lines()
        .filter(|l| l.trim_start().starts_with(char::is_numeric))
        .count()
}

#[test]
fn holes_unwritten_blocks_sizes_and_times_stay() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let (device, volume) = volume("64M");
    let file = scattered(&volume, "/file", 300);
    for n in (400..440).rev() {
        let keep = Fallocate::Allocate { keep_size: true };
        file.fallocate(keep, n * BLOCK, BLOCK).unwrap();
        volume.write(format!("/between{n}"), [1; 4096]).unwrap();
        volume.sync().unwrap();
    }
    file.fallocate(Fallocate::PunchHole, 100 * BLOCK, 7 * BLOCK)
        .unwrap();
    file.fallocate(Fallocate::ZeroRange { keep_size: true }, 200 * BLOCK, BLOCK)
        .unwrap();
    volume.sync().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let seen = |file: &File| {
        let meta = file.metadata().unwrap();
        let kept = (meta.mtime(), meta.ctime(), meta.len());
        (kept, volume.read("/file").unwrap(), parts(file))
    };
    let before = seen(&file);
    let done = file.defragment().unwrap();
    assert!(done.before > 250, "{done:?}");
    assert_eq!(done.after, done.least, "{done:?}");
    assert!(done.moved >= 290 && done.moved <= done.blocks, "{done:?}");
    // Of the mapping blocks that hundreds of extents needed, one is left.
    volume.sync().unwrap();
    let blocks = file.metadata().unwrap().blocks();
    assert_eq!(blocks, (done.blocks + 1) * BLOCK / 512);
    assert!(seen(&file) == before);
    // The second time, nothing is left to do.
    let again = file.defragment().unwrap();
    assert_eq!((again.before, again.moved), (done.after, 0));
    volume.sync().unwrap();
    assert_eq!(seen(&file).0, before.0);
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "after it was moved");
    assert_eq!(on_disk(&device, "/file") as u64, done.after);
    let volume = open(&device);
    let file = opened(&volume, "/file");
    assert!(volume.read("/file").unwrap() == before.1 && parts(&file) == before.2);
}

/// A write comes between the copy of a chunk and the change of its mapping, and is durable before that change.
#[test]
fn a_write_behind_the_copy_is_not_lost() {
    needs::tools!("mke2fs", "e2fsck");
    for synced in [true, false] {
        let (device, volume) = volume("64M");
        let file = scattered(&volume, "/file", 40);
        let writer = opened(&volume, "/file");
        let held = schedule::at(Point::Copied, move || {
            writer.write_all_at(&[7; 100], 20 * BLOCK + 3).unwrap();
            if synced {
                writer.sync_all().unwrap();
            }
        });
        if !held {
            return;
        }
        let done = file.defragment().unwrap();
        assert_eq!((done.after, done.least), (1, 1));
        let check = |volume: &Volume| {
            let data = volume.read("/file").unwrap();
            assert!(
                data[20 * 4096 + 3..][..100] == [7; 100],
                "the write is lost"
            );
            assert_eq!(
                (data[20 * 4096 + 2], data[21 * 4096]),
                (20 ^ 0x5A, 21 ^ 0x5A)
            );
        };
        check(&volume);
        drop(file);
        // Later reads come from the device.
        volume.sync().unwrap();
        volume.drop_caches();
        check(&volume);
        volume.close().unwrap();
        check(&open(&device));
    }
}

/// Each copy is outdated when it is finished, until one is made with the map held. A file that is cut and punched
/// meanwhile keeps only the rest.
#[test]
fn a_file_that_changes_all_the_time_is_moved_all_the_same() {
    needs::tools!("mke2fs", "e2fsck");
    fn write_again(file: File, times: u8) {
        schedule::at(Point::Copied, move || {
            file.write_all_at(&[times; 10], 5 * BLOCK).unwrap();
            file.sync_all().unwrap();
            if times > 1 {
                write_again(file, times - 1);
            }
        });
    }
    let (device, volume) = volume("64M");
    let file = scattered(&volume, "/file", 40);
    if !schedule::at(Point::Copied, || {}) {
        return;
    }
    // Three copies of the only chunk are outdated. The fourth is made with the map held.
    write_again(opened(&volume, "/file"), 3);
    let done = file.defragment().unwrap();
    assert_eq!((done.after, done.moved), (1, 40));
    assert_eq!(volume.read("/file").unwrap()[5 * 4096..][..10], [1; 10]);

    let file = scattered(&volume, "/cut", 40);
    let other = opened(&volume, "/cut");
    schedule::at(Point::Copied, move || {
        other.set_len(30 * BLOCK).unwrap();
        other
            .fallocate(Fallocate::PunchHole, 10 * BLOCK, 10 * BLOCK)
            .unwrap();
    });
    let done = file.defragment().unwrap();
    assert_eq!(done.blocks, 20, "{done:?}");
    assert_eq!(
        parts(&file),
        [(0, 10 * BLOCK, false), (20 * BLOCK, 10 * BLOCK, false)]
    );
    drop(file);
    volume.close().unwrap();
    assert_clean(&device, "after it was cut");
}

#[test]
fn a_volume_without_a_free_run_is_left_as_it_is() {
    needs::tools!("mke2fs", "e2fsck");
    let (device, volume) = volume("16M");
    let file = scattered(&volume, "/file", 40);
    let filler = opened(&volume, "/filler");
    let (mut n, mut step) = (0, 256);
    while step > 0 {
        match filler.fallocate(Fallocate::default(), n * BLOCK, step * BLOCK) {
            Ok(()) => n += step,
            Err(_) => step /= 2,
        }
    }
    volume.sync().unwrap();
    let done = file.defragment().unwrap();
    assert_eq!((done.moved, done.before), (0, done.after));
    let counts = volume.statfs().unwrap();
    filler.set_len(0).unwrap();
    volume.sync().unwrap();
    assert!(volume.statfs().unwrap().free_blocks > counts.free_blocks);
    assert_eq!(file.defragment().unwrap().after, 1);
    drop((file, filler));
    volume.close().unwrap();
    assert_clean(&device, "full, then moved");
}

/// Two callers write, read and sync the files that move, each its own blocks.
#[test]
fn other_callers_go_on() {
    needs::tools!("mke2fs", "e2fsck");
    const FILES: u64 = 4;
    const BLOCKS: u64 = 1500;
    let (device, volume) = volume("256M");
    let path = |n: u64| format!("/file{n}");
    let files: Vec<File> = (0..FILES)
        .map(|n| scattered(&volume, &path(n), BLOCKS))
        .collect();
    let (end, longest, writes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        let _ends = Ends(&end);
        for writer in 0..2u64 {
            let (volume, end, longest, writes) = (&volume, &end, &longest, &writes);
            s.spawn(move || {
                let files: Vec<File> = (0..FILES).map(|n| opened(volume, &path(n))).collect();
                let mut rng = Rng::new(writer + 1);
                let mut model = vec![0u8; (FILES * BLOCKS) as usize];
                while !end.load(Ordering::Relaxed) {
                    let n = rng.below(FILES * BLOCKS / 2) * 2 + writer;
                    let (file, at) = (&files[(n / BLOCKS) as usize], n % BLOCKS * BLOCK);
                    let value = model[n as usize].wrapping_add(1).max(1);
                    let begun = Instant::now();
                    file.write_all_at(&[value; BLOCK as usize], at).unwrap();
                    longest.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
                    writes.fetch_add(1, Ordering::Relaxed);
                    model[n as usize] = value;
                    assert_eq!(page(file, at), [value; BLOCK as usize], "block {n}");
                    if rng.below(16) == 0 {
                        file.sync_data().unwrap();
                    }
                }
                for (n, value) in (0..).zip(&model).filter(|(_, value)| **value != 0) {
                    let (file, at) = (&files[(n / BLOCKS) as usize], n % BLOCKS * BLOCK);
                    assert_eq!(
                        page(file, at),
                        [*value; BLOCK as usize],
                        "block {n}, at the end"
                    );
                }
            });
        }
        for file in &files {
            let done = file.defragment().unwrap();
            assert!(done.before > BLOCKS / 2 && done.after <= 2, "{done:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let (longest, writes) = (longest.into_inner(), writes.into_inner());
    eprintln!("{writes} writes meanwhile, the longest took {longest} us");
    drop(files);
    volume.close().unwrap();
    assert_clean(&device, "after it was moved under load");
}

fn page(file: &File, at: u64) -> [u8; BLOCK as usize] {
    let mut page = [0; BLOCK as usize];
    assert_eq!(file.read_at(&mut page, at).unwrap(), page.len());
    page
}

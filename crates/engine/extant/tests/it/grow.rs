//! Growing a volume while it is used: either size is clean at every cut, nothing in the volume changes, and its new
//! space is used.

use crate::common;
use blockdev::{BlockDevice, Crash, RecordingDevice};
use common::*;
use extant::{Error, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Shapes of volumes: the arguments of mke2fs, the size before, and MiB afterwards.
const SHAPES: &[(&[&str], &str, u64)] = &[
    // Group by group, and a last group that becomes longer.
    (&["-t", "ext4", "-b", "1024", "-J", "size=1"], "21M", 60),
    (&["-t", "ext4"], "100M", 700),
    // Enough groups that blocks of reserved descriptors are needed.
    (
        &[
            "-t", "ext4", "-b", "1024", "-g", "1024", "-N", "2000", "-J", "size=1",
        ],
        "30M",
        90,
    ),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "1024",
            "-N",
            "2000",
            "-J",
            "size=1",
            "-O",
            "meta_bg,^resize_inode",
        ],
        "30M",
        90,
    ),
    (
        &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg,^64bit"],
        "100M",
        400,
    ),
    (&["-t", "ext3", "-b", "1024", "-J", "size=2"], "21M", 60),
    (
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^flex_bg,^sparse_super,^resize_inode",
        ],
        "21M",
        60,
    ),
];

fn content(n: u64) -> Vec<u8> {
    (0..n * 977 % 50_000).map(|i| (i * 7 + n) as u8).collect()
}

fn fill(volume: &Volume, files: std::ops::Range<u64>) {
    for n in files {
        volume.write(format!("/file{n}"), content(n)).unwrap();
    }
}

fn check(volume: &Volume, files: std::ops::Range<u64>) {
    for n in files {
        assert!(
            volume.read(format!("/file{n}")).unwrap() == content(n),
            "file {n}"
        );
    }
}

#[test]
fn every_shape_grows_and_uses_what_is_new() {
    needs::tools!("mke2fs", "e2fsck");
    for (args, size, mib) in SHAPES {
        let what = format!("{args:?}");
        let device = mem_image(size, args);
        let volume = open(&device);
        fill(&volume, 0..40);
        let before = volume.statfs().unwrap();
        let old = volume.geometry().clone();
        // In two steps, the second with an open transaction.
        let step = (old.blocks_count * u64::from(old.block_size) + (mib << 20)) / 2;
        volume
            .grow(Some(step))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        fill(&volume, 40..60);
        let blocks = volume
            .grow(Some(mib << 20))
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(
            blocks * u64::from(old.block_size) > (mib << 20) - (9 << 20),
            "{what}: {blocks}"
        );
        let after = volume.statfs().unwrap();
        assert!(
            after.blocks > before.blocks && after.free_inodes > before.free_inodes,
            "{what}"
        );
        assert_eq!(volume.geometry().blocks_count, blocks);
        // Most of the new space can be taken, and new numbers too.
        let big = volume.create_new_file("/big").unwrap();
        let most = after.available_blocks * u64::from(after.block_size) / 10 * 9;
        if old.features.has_extents() {
            big.fallocate(extant::Fallocate::default(), 0, most)
                .unwrap()
        } else {
            (0..most >> 20).for_each(|n| big.write_all_at(&[1; 1 << 20], n << 20).unwrap())
        }
        for n in 0..40 {
            volume.create_dir(format!("/dir{n}")).unwrap();
            volume.write(format!("/dir{n}/file"), content(n)).unwrap();
        }
        volume.sync().unwrap();
        let beyond = |offset: u64| offset / u64::from(old.block_size) >= old.blocks_count;
        assert!(
            big.extents().unwrap().iter().any(|e| beyond(e.physical)),
            "{what}"
        );
        drop(big);
        check(&volume, 0..60);
        volume.close().unwrap();
        assert_clean(&device, &what);
        let volume = open(&device);
        check(&volume, 0..60);
        assert_eq!(volume.geometry().blocks_count, blocks);
        volume.remove_file("/big").unwrap();
        volume.close().unwrap();
        assert_clean(&device, &what);
    }
}

#[test]
fn what_cannot_be_is_refused_by_name_and_changes_nothing() {
    needs::tools!("mke2fs", "e2fsck");
    let refused = |args: &[&str], size: &str, mib: u64, want: &str| {
        let device = mem_image(size, args);
        let before = device.snapshot().to_bytes().unwrap();
        let volume = open(&device);
        let Err(Error::Unsupported(why)) = volume.grow(Some(mib << 20)) else {
            panic!("{args:?} grew");
        };
        assert!(why.contains(want), "{args:?}: {why}");
        volume.close().unwrap();
        assert!(
            device.to_bytes().unwrap()[..before.len()] == before,
            "{args:?}"
        );
    };
    let small = [
        "-t", "ext4", "-b", "1024", "-g", "1024", "-N", "2000", "-J", "size=1", "-O",
    ];
    let with = |feature| small.iter().copied().chain([feature]).collect::<Vec<_>>();
    refused(&with("^resize_inode"), "30M", 90, "reserved");
    refused(
        &with("sparse_super2,^resize_inode"),
        "30M",
        40,
        "sparse_super2",
    );
    refused(&["-t", "ext4"], "30M", 20, "no room for more");
    refused(&["-t", "ext2"], "30M", 60, "without a journal");
}

#[test]
fn writers_go_on_while_it_grows() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image("100M", &["-t", "ext4"]);
    let volume = open(&device);
    let (end, longest, made) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut sizes = Vec::new();
    std::thread::scope(|s| {
        let _ends = Ends(&end);
        for writer in 0..3u64 {
            let (volume, end, longest, made) = (&volume, &end, &longest, &made);
            s.spawn(move || {
                volume.create_dir(format!("/{writer}")).unwrap();
                let mut n = 0u64;
                while !end.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let (path, data) = (format!("/{writer}/{}", n % 200), content(n % 200));
                    volume.write(&path, &data).unwrap();
                    if n.is_multiple_of(7) {
                        volume.remove_file(&path).unwrap();
                        volume.write(&path, &data).unwrap();
                    }
                    longest.fetch_max(begun.elapsed().as_micros() as u64, Ordering::Relaxed);
                    made.fetch_add(1, Ordering::Relaxed);
                    n += 1;
                }
                for n in 0..n.min(200) {
                    assert!(volume.read(format!("/{writer}/{n}")).unwrap() == content(n));
                }
            });
        }
        for mib in (150..2000).step_by(150) {
            sizes.push(volume.grow(Some(mib << 20)).unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
    let (longest, made) = (longest.into_inner(), made.into_inner());
    eprintln!(
        "{made} files written while it grew {} times; the longest took {longest} us",
        sizes.len()
    );
    volume.close().unwrap();
    assert_clean(&device, "grown under load");
}

/// Cuts a growth at every write: the image has the old size or the new one, with every file, and is clean.
#[test]
fn cut_at_any_write() {
    needs::tools!("mke2fs", "e2fsck");
    for (args, size, mib) in SHAPES.iter().filter(|(args, ..)| args.contains(&"1024")) {
        let base = mem_image(size, args);
        let options = VolumeOptions::new().background(false);
        let volume = open(&base);
        fill(&volume, 0..20);
        let old = volume.geometry().blocks_count;
        volume.close().unwrap();
        // The replay has a device of one length.
        base.set_len(mib << 20);
        let device = Arc::new(RecordingDevice::new(base.snapshot()));
        let volume = options
            .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
            .unwrap();
        let new = volume.grow(None).unwrap();
        device.mark(1);
        fill(&volume, 20..40);
        volume.sync().unwrap();
        device.mark(2);
        drop(volume);
        let log = device.take_log();
        let (mut replayer, mut reached, mut judged) = (log.replay(&base), 0, 0);
        loop {
            let mut images = vec![replayer.image().snapshot()];
            if replayer.pending().len() > 0 {
                images.push(replayer.crash(&Crash::new(judged)).unwrap());
            }
            for image in images {
                if judged % 7 == 3 {
                    // Other programs replay the journal to the same result.
                    let dir = tempfile::tempdir().unwrap();
                    let path = dir.path().join("image");
                    write_image(&image, &path);
                    repair(&path, &format!("{args:?}, cut {judged}"));
                }
                let image = Arc::new(image);
                let volume = open(&image);
                let found = volume.geometry().blocks_count;
                assert!(
                    found == new || found == old && reached == 0,
                    "{args:?}: {found}"
                );
                check(&volume, 0..if reached == 2 { 40 } else { 20 });
                volume.create_new_file("/after").unwrap();
                volume.close().unwrap();
                if judged % 5 == 0 || torture() {
                    assert_clean(&image, &format!("{args:?}, cut {judged}, {found} blocks"));
                }
            }
            judged += 1;
            match replayer.step().unwrap() {
                None => break,
                Some(blockdev::Event::Mark(mark)) => reached = *mark,
                Some(_) => {}
            }
        }
        eprintln!("{args:?}: {judged} cuts");
    }
}

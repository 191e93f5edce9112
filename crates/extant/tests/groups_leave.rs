//! Bitmaps of groups leave memory when there are many, while blocks of those groups are taken and freed: whatever
//! moment the device is cut at, the volume is clean, and so it is at the end.

mod common;

use blockdev::BlockDevice;
use common::*;
use extant::{Fallocate, OpenOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn what_leaves_is_as_in_the_image() {
    // 128 groups of 8 MiB; an eighth of the smallest cache holds 64 bitmaps.
    let device = mem_image("1G", &["-t", "ext4", "-b", "1024", "-J", "size=8"]);
    let volume = OpenOptions::new()
        .cache_bytes(1 << 20)
        .open_device(Arc::clone(&device) as Arc<dyn BlockDevice>)
        .unwrap();
    let free = volume.statfs().unwrap().free_blocks;
    let done = AtomicBool::new(false);
    let mut cuts = Vec::new();
    std::thread::scope(|scope| {
        let churn = |thread: u64| {
            let mut random = Rng::new(thread + 1);
            let dir = volume.create_dir(format!("/t{thread}"), 0o755).unwrap();
            for turn in 0..1500 {
                let name = format!("f{}", random.below(40));
                match random.below(4) {
                    0 => {
                        if let Err(e) = dir.unlink(&name) {
                            assert_eq!(e.errno(), 2, "{name} of {thread}: {e}");
                        }
                    }
                    1 => {
                        let file = dir.open(&name, extant::OpenFlags::WRITE, 0);
                        if let Ok(file) = file {
                            file.truncate(random.below(1 << 20)).unwrap();
                        }
                    }
                    2 => dir.write_file(&name, &vec![turn as u8; 3000]).unwrap(),
                    _ => {
                        // Several groups of their own.
                        let flags = extant::OpenFlags::WRITE.union(extant::OpenFlags::CREATE);
                        let file = dir.open(&name, flags, 0o644).unwrap();
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
        };
        let workers: Vec<_> = (0..3).map(|t| scope.spawn(move || churn(t))).collect();
        let cutter = scope.spawn(|| {
            let mut cuts = Vec::new();
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(40));
                cuts.push(device.snapshot());
            }
            cuts
        });
        workers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Ordering::Relaxed);
        cuts = cutter.join().unwrap();
    });
    for thread in 0..3 {
        let dir = volume.open_dir(format!("/t{thread}")).unwrap();
        for n in 0..40 {
            // A name that a turn removed, or none made, is not there; nothing else may go wrong.
            if let Err(e) = dir.unlink(format!("f{n}")) {
                assert_eq!(e.errno(), 2, "f{n} of {thread}: {e}");
            }
        }
    }
    volume.sync().unwrap();
    let left = volume.statfs().unwrap().free_blocks;
    assert!(free - left < 100, "{free} blocks were free, {left} are");
    volume.close().unwrap();
    assert_clean(&device, "at the end");
    assert!(!cuts.is_empty());
    let some = cuts.len().div_ceil(3);
    for (n, cut) in cuts.into_iter().enumerate().step_by(some) {
        let cut = Arc::new(cut);
        open(&cut).close().unwrap();
        assert_clean(&cut, &format!("cut {n}"));
    }
}

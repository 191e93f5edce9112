//! Counts how much of a burst an fsync has to wait for.

use crate::log::SMALL;
use crate::mkfs::{self, MkfsOptions};
use crate::volume::engine::Engine;
use crate::{OpenOptions, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Makes a volume whose journal takes contexts of more than [`SMALL`] items, without background pushes.
fn volume() -> Volume {
    let device = Arc::new(blockdev::MemDevice::new(1 << 30));
    let options = MkfsOptions {
        size: Some(1 << 30),
        journal_size: Some(256 << 20),
        zeroed_device: true,
        ..MkfsOptions::default()
    };
    mkfs::format(&*device, &options).unwrap();
    let options = VolumeOptions::new().background(false);
    options.open_device(device).unwrap()
}

/// Makes the file durable, which needs a commit.
fn synced(volume: &Volume, byte: u8) {
    let file = match volume.create_new_file("/synced") {
        Ok(file) => file,
        Err(_) => OpenOptions::new()
            .write(true)
            .open(&volume.root(), "synced")
            .unwrap(),
    };
    file.append(&[byte; 4096]).unwrap();
    file.sync_all().unwrap();
}

/// Returns the number of committed items that are not formatted.
fn pending(engine: &Engine) -> u64 {
    let of = |[a, b]: &[extant_formatter::item::ItemList; 2]| a.len() + b.len();
    engine.log.lists.each(of).iter().sum::<usize>() as u64
}

/// Files for which the volume has inodes.
const FILES: u64 = 60_000;

/// Items of a small context: its bound, what a slot draws at once, and an operation that was open already.
const MOST: u64 = SMALL + SMALL / 32 + 16;

/// The test holds the formatter, so that a context stays in the formatting stage. Meanwhile a burst fills the open
/// context and waits. So an fsync waits for two contexts of at most [`MOST`] items: the one that is being formatted,
/// and its own.
#[test]
fn a_burst_beside_fsyncs_waits_when_its_context_holds_so_many_items() {
    let volume = volume();
    let engine = volume.guard_engine();
    synced(&volume, b'a');
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let formatter = engine.commit.formatter.lock();
        let burst = s.spawn(|| {
            let mut made = 0u64;
            while !over.load(Ordering::Relaxed) && made < FILES {
                volume.create_new_file(format!("/{made}")).unwrap();
                made += 1;
            }
            made
        });
        while pending(engine) < SMALL - SMALL / 16 && !burst.is_finished() {
            std::thread::yield_now();
        }
        // Long enough to log the same number of items again, if nothing held the burst back.
        for _ in 0..100 {
            assert!(pending(engine) <= MOST, "{} items", pending(engine));
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(formatter);
        for n in 0..30 {
            synced(&volume, n);
            assert!(pending(engine) <= 2 * MOST, "{} items", pending(engine));
        }
        over.store(true, Ordering::Relaxed);
        assert!(burst.join().unwrap() > SMALL / 8);
    });
    volume.close().unwrap();
}

/// A thread that finds its context full writes the context into the log and continues without a flush. The blocks that
/// the context freed are free once an fsync has made it durable.
#[test]
fn a_full_context_costs_no_flush() {
    let volume = volume();
    let engine = volume.guard_engine();
    let free = || engine.space.counts.free().0;
    volume.create_dir("/dir").unwrap();
    synced(&volume, b'a');
    volume.write("/dir/large", [b'x'; 1 << 20]).unwrap();
    volume.sync().unwrap();
    volume.remove_file("/dir/large").unwrap();
    let (flushes, durable, before) = (engine.store.flushes.mark(), engine.log.durable(), free());
    let mut made = 0u64;
    while engine.log.formatted() < durable + 3 {
        volume.create_new_file(format!("/dir/{made}")).unwrap();
        made += 1;
    }
    println!("{made} creates filled three contexts");
    assert_eq!(engine.store.flushes.mark(), flushes);
    assert_eq!(engine.log.durable(), durable);
    assert!(free() <= before, "freed blocks are not durable");
    synced(&volume, b'b');
    assert!(engine.log.durable() > durable + 3);
    volume.sync().unwrap();
    // The leaves of the directory and the tables of its inodes are far less than the file.
    assert!(made < 3 * SMALL && engine.commit.releases.lock().is_empty());
    volume.close().unwrap();
}

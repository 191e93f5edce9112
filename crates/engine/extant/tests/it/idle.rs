//! Idle calls do no work: a sync without changes flushes nothing, and a sync with changes is not mistaken for one.

use blockdev::{MemDevice, SlowDevice};
use extant::mkfs::{self, MkfsOptions};
use extant::{OpenOptions, SetAttributes, Volume, VolumeOptions};
use std::io::SeekFrom;
use std::sync::Arc;
use std::time::Duration;

type Counting = SlowDevice<MemDevice>;

fn volume(options: VolumeOptions) -> (Arc<Counting>, Volume) {
    let size = 16 << 20;
    let device = Arc::new(SlowDevice::new(MemDevice::new(size), Duration::ZERO));
    let mkfs = MkfsOptions {
        size: Some(size),
        ..Default::default()
    };
    mkfs::format(&*device, &mkfs).unwrap();
    let shared: Arc<Counting> = Arc::clone(&device);
    let volume = options.open_device(shared).unwrap();
    (device, volume)
}

fn quiet() -> VolumeOptions {
    VolumeOptions::new().background(false)
}

#[test]
fn an_idle_sync_flushes_nothing() {
    let (device, volume) = volume(quiet());
    let file = volume.create_new_file("/file").unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    volume.sync().unwrap();
    let before = device.flushes();
    for _ in 0..10 {
        volume.sync().unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!(device.flushes(), before);
}

#[test]
fn every_kind_of_change_ends_the_rest() {
    let (device, volume) = volume(quiet());
    volume.write("/file", [1; 8192]).unwrap();
    volume.write("/old", b"").unwrap();
    let file = OpenOptions::new()
        .write(true)
        .open(&volume, "/file")
        .unwrap();
    let changes: [(&str, &dyn Fn()); 6] = [
        ("a name", &|| drop(volume.create_new_file("/new").unwrap())),
        ("a removal", &|| volume.remove_file("/old").unwrap()),
        ("an overwrite", &|| {
            file.write_all_at(&[2; 4096], 0).unwrap();
        }),
        ("an overwrite in the same tick", &|| {
            file.write_all_at(&[3; 4096], 4096).unwrap();
        }),
        ("a mode", &|| {
            let mode = SetAttributes {
                mode: Some(0o600),
                ..Default::default()
            };
            file.set_attributes(&mode).unwrap();
        }),
        ("more data", &|| {
            file.append(&[4; 5000]).unwrap();
        }),
    ];
    for (what, change) in changes {
        volume.sync().unwrap();
        let before = device.flushes();
        change();
        volume.sync().unwrap();
        assert!(device.flushes() > before, "{what}");
        let idle = device.flushes();
        volume.sync().unwrap();
        assert_eq!(device.flushes(), idle, "after {what}");
    }
}

#[test]
fn the_timer_rests_too() {
    let (device, volume) = volume(VolumeOptions::new().commit_interval(Duration::from_millis(20)));
    volume.write("/file", [1; 8192]).unwrap();
    volume.sync().unwrap();
    // The tick that was already running.
    std::thread::sleep(Duration::from_millis(100));
    let before = device.flushes();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(device.flushes(), before);
    volume.write("/file", [2; 8192]).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while device.flushes() == before {
        assert!(std::time::Instant::now() < deadline, "the timer sleeps on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Relative seeks are one step each [L9].
#[test]
fn no_relative_seek_is_lost() {
    let (_, volume) = volume(quiet());
    let file = volume.create_new_file("/file").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..50_000 {
                    file.seek(SeekFrom::Current(3)).unwrap();
                }
            });
        }
    });
    assert_eq!(file.stream_position().unwrap(), 300_000);
    assert!(file.seek(SeekFrom::Current(i64::MIN)).is_err());
    assert_eq!(file.stream_position().unwrap(), 300_000);
}

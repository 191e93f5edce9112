//! Reads and announcements of a check on a device that is not in memory.

use blockdev::{BlockDevice, MemDevice};
use extant::mkfs::{self, MkfsOptions};
use extant::{Volume, VolumeOptions};
use extant_check::{CheckOptions, Report, check};
use std::io;
use std::ops::Range;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A call of the device.
#[derive(Clone, Debug)]
enum Call {
    Read(Range<u64>),
    Told(Range<u64>),
}

/// The speed of a device.
#[derive(Clone, Copy)]
struct Speed {
    takes: Duration,
    /// Whether the device can be read past a cache.
    uncached: bool,
}

const FAST: Speed = Speed {
    takes: Duration::ZERO,
    uncached: false,
};
const SLOW: Speed = Speed {
    takes: Duration::from_millis(2),
    uncached: false,
};
const SLOW_UNCACHED: Speed = Speed {
    uncached: true,
    ..SLOW
};

/// Calls are noted.
struct Disk {
    inner: Arc<MemDevice>,
    speed: Speed,
    calls: Mutex<Vec<Call>>,
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + buf.len() as u64;
        self.calls.lock().unwrap().push(Call::Read(range));
        std::thread::sleep(self.speed.takes);
        self.inner.read_at(offset, buf)
    }

    fn will_read(&self, offset: u64, len: u64) {
        let range = offset..offset + len;
        self.calls.lock().unwrap().push(Call::Told(range));
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> io::Result<bool> {
        if self.speed.uncached && !buf.is_empty() {
            self.read_at(offset, buf)?;
        }
        Ok(self.speed.uncached)
    }

    blockdev::only_read!();
}

/// Makes an image with forty directories with an index.
fn image() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(256 << 20));
    let options = MkfsOptions {
        block_size: Some(1024),
        ..MkfsOptions::default()
    };
    mkfs::format(&*device, &options).unwrap();
    let volume: Volume = VolumeOptions::new().open_device(device.clone()).unwrap();
    for d in 0..40 {
        let dir = volume.create_dir(format!("/d{d}")).unwrap();
        (0..300).for_each(|n| drop(dir.create_new_file(format!("file.{n}")).unwrap()));
    }
    volume.close().unwrap();
    device
}

fn checked(device: &Arc<MemDevice>, speed: Speed) -> (Report, Vec<Call>) {
    let disk = Disk {
        inner: device.clone(),
        speed,
        calls: Mutex::default(),
    };
    let options = CheckOptions {
        threads: 1,
        ..CheckOptions::default()
    };
    let report = check(&disk, &options).unwrap();
    (report, disk.calls.into_inner().unwrap())
}

fn calls(speed: Speed) -> Vec<Call> {
    let (report, calls) = checked(&image(), speed);
    assert!(report.is_clean());
    calls
}

/// Returns whether a call reads a piece of an inode table, which is longer than a run of a directory.
fn is_table(call: &Call) -> bool {
    matches!(call, Call::Read(range) if range.end - range.start > 64 << 10)
}

#[test]
fn directories_of_a_slow_device_are_read_among_inode_tables() {
    let calls = calls(SLOW);
    let first = calls.iter().position(is_table).unwrap();
    let last = calls.iter().rposition(is_table).unwrap();
    let reads = calls[first..last].iter();
    let others = reads.filter(|call| matches!(call, Call::Read(_)) && !is_table(call));
    assert!(others.count() > 20);
}

/// Names that lead to nothing, to a directory again, to another type, and links that are not as many as names.
#[test]
fn a_slow_device_has_the_same_findings() {
    needs::tools!("debugfs");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let device = image();
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    for n in 0..40 {
        let request = match n % 6 {
            0 => format!("clri /d{n}/file.7"),
            1 => format!("ln /d{n}/file.8 /d{n}/other"),
            2 => format!("unlink /d{n}/file.9"),
            3 => format!("ln /d{n} /d0/again.{n}"),
            4 => format!("set_inode_field /d{n}/file.10 mode 020644"),
            _ => format!("ln <11> /d{n}/file.11"),
        };
        let mut command = Command::new("debugfs");
        let out = command.args(["-w", "-R", &request]).arg(&path).output();
        assert!(out.unwrap().status.success());
    }
    device.write_at(0, &std::fs::read(&path).unwrap()).unwrap();
    let [fast, slow, uncached] = [FAST, SLOW, SLOW_UNCACHED].map(|speed| {
        let (report, _) = checked(&device, speed);
        let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        (findings, report.names, report.faults)
    });
    assert!(fast.0.len() > 40, "{:#?}", fast.0);
    assert_eq!(fast, slow);
    assert_eq!(fast, uncached);
}

#[test]
fn a_slow_device_is_told_before_most_of_it_is_read() {
    let calls = calls(SLOW);
    let (mut told, mut read, mut read_as_told) = (Vec::new(), 0, 0);
    for call in calls {
        match call {
            Call::Told(range) => told.push(range),
            Call::Read(range) => {
                let len = range.end - range.start;
                read += len;
                let known = |t: &Range<u64>| t.start <= range.start && range.end <= t.end;
                read_as_told += if told.iter().any(known) { len } else { 0 };
            }
        }
    }
    assert!(read_as_told * 10 > read * 8, "{read_as_told} of {read}");
    let bytes: u64 = told.iter().map(|t| t.end - t.start).sum();
    assert!(bytes < 2 * read, "told of {bytes} to read {read}");
}

#[test]
fn metadata_that_is_read_past_a_cache_is_read_once() {
    is_read_once(calls(SLOW_UNCACHED));
}

/// Only the first blocks of directories are read twice, for their indexes.
#[test]
fn metadata_is_read_once() {
    is_read_once(calls(FAST));
}

fn is_read_once(calls: Vec<Call>) {
    let mut ranges: Vec<_> = calls
        .into_iter()
        .filter_map(|call| match call {
            Call::Read(range) => Some(range),
            Call::Told(_) => None,
        })
        .collect();
    let read: u64 = ranges.iter().map(|r| r.end - r.start).sum();
    ranges.sort_by_key(|r| r.start);
    let (mut distinct, mut end) = (0, 0);
    for range in ranges {
        distinct += range.end.max(end) - range.start.max(end);
        end = end.max(range.end);
    }
    assert!(read < distinct + distinct / 10, "{read} for {distinct}");
}

/// A server may refuse reads of less than a sector. The image has a pending journal, so that the check reads records by
/// their numbers.
#[test]
fn whole_sectors_are_read() {
    let args = ["-t", "ext4", "-b", "1024"];
    let device = crate::it::image::populate_sized("16M", &args, true, 40);
    let disk = Disk {
        inner: device,
        speed: FAST,
        calls: Mutex::default(),
    };
    let options = CheckOptions {
        replay: true,
        ..CheckOptions::default()
    };
    check(&disk, &options).unwrap();
    let calls = disk.calls.into_inner().unwrap();
    assert!(calls.len() > 20);
    for call in calls {
        if let Call::Read(range) = call {
            assert!(range.start % 512 == 0 && range.end % 512 == 0, "{range:?}");
        }
    }
}

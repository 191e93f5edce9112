//! A killed server leaves an image that recovers, with all synced data.

use super::random::Random;
use super::support::{Kernel, Mounted, Transport, image, isolated, place, run};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Size of a record of the log: its number, repeated.
const RECORD: usize = 128;
/// Size of a page of the tables: the number of the write, repeated.
const PAGE: usize = 8192;
const PAGES: u64 = 64;
/// Records in one file of the log.
const SEGMENT: u64 = 50;

fn filled(n: u64, len: usize) -> Vec<u8> {
    n.to_le_bytes().repeat(len / 8)
}

/// Writes like a database: appends each record to a log and makes it durable at once. From time to time it writes
/// pages, and a summary: it syncs the pages and replaces a small file that records this. Ends at the first failed
/// write.
pub fn database(dir: &Path, durable: &AtomicU64, seed: u64) -> io::Result<()> {
    let mut random = Random::new(seed);
    let top = File::open(dir)?;
    let table = File::create(dir.join("table"))?;
    table.set_len(PAGES * PAGE as u64)?;
    table.sync_all()?;
    for n in 1.. {
        let segment = dir.join(format!("log{}", (n - 1) / SEGMENT));
        let first = !segment.exists();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&segment)?;
        if first {
            top.sync_all()?;
        }
        io::Write::write_all(&mut &log, &filled(n, RECORD))?;
        log.sync_data()?;
        durable.store(n, Ordering::SeqCst);
        table.write_all_at(&filled(n, PAGE), random.below(PAGES) * PAGE as u64)?;
        if n % 20 == 0 {
            table.sync_all()?;
            fs::write(dir.join("summary.new"), n.to_string())?;
            File::open(dir.join("summary.new"))?.sync_all()?;
            fs::rename(dir.join("summary.new"), dir.join("summary"))?;
            top.sync_all()?;
        }
    }
    Ok(())
}

/// Asserts that all durable data are present and complete.
pub fn check_database(dir: &Path, durable: u64) {
    let mut n = 0;
    for segment in 0..=(durable.saturating_sub(1)) / SEGMENT {
        let log = fs::read(dir.join(format!("log{segment}"))).unwrap();
        for record in log.chunks(RECORD) {
            n += 1;
            if n <= durable {
                assert_eq!(record, filled(n, RECORD), "record {n} of {durable}");
            }
        }
    }
    assert!(n >= durable, "{n} records of {durable}");
    let summary: u64 = match fs::read_to_string(dir.join("summary")) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 0,
    };
    // The summary due at the last durable record may be missing.
    let due = durable.saturating_sub(1) / 20 * 20;
    assert!(summary >= due, "{summary} of {durable}");
    let table = fs::read(dir.join("table")).unwrap();
    assert_eq!(table.len() as u64, PAGES * PAGE as u64);
}

#[test]
fn what_was_synced_survives_a_killed_server() {
    isolated(|| {
        let rounds = if std::env::var_os("EXTANT_TORTURE").is_some() {
            40
        } else {
            4
        };
        for round in 0..rounds {
            let place = place();
            let image = image(place.path(), "64M", &["-J", "size=4"]);
            let mounted = Mounted::new(&image, Transport::Classic, &[]);
            let durable: [AtomicU64; 2] = Default::default();
            thread::scope(|s| {
                for (task, durable) in durable.iter().enumerate() {
                    let dir = mounted.dir().join(format!("task{task}"));
                    fs::create_dir(&dir).unwrap();
                    s.spawn(move || database(&dir, durable, task as u64).unwrap_err());
                }
                // Names are created and removed meanwhile.
                let busy = mounted.dir().join("busy");
                s.spawn(move || {
                    let _ = fs::create_dir(&busy);
                    for n in 0.. {
                        if fs::write(busy.join(format!("{}", n % 100)), "x").is_err() {
                            return;
                        }
                        let _ = fs::remove_file(busy.join(format!("{}", (n + 50) % 100)));
                    }
                });
                let start = Instant::now();
                while durable.iter().any(|n| n.load(Ordering::SeqCst) == 0)
                    && start.elapsed() < Duration::from_secs(30)
                {
                    thread::sleep(Duration::from_millis(5));
                }
                thread::sleep(Duration::from_millis(50 + 170 * (round % 5)));
                mounted.kill();
            });
            let durable = durable.map(AtomicU64::into_inner);
            assert!(
                durable.iter().all(|&n| n > 0),
                "nothing was durable before the kill"
            );
            let copy = place.path().join("copy.img");
            run(Command::new("cp")
                .args(["--sparse=always"])
                .args([&image, &copy]));
            // Recovered by the kernel, and by this engine.
            let kernel = Kernel::new(&image, "rw");
            for (task, &durable) in durable.iter().enumerate() {
                check_database(&kernel.dir().join(format!("task{task}")), durable);
            }
            drop(kernel);
            super::support::assert_clean(&image);
            let again = Mounted::new(&copy, Transport::Classic, &[]);
            for (task, &durable) in durable.iter().enumerate() {
                check_database(&again.dir().join(format!("task{task}")), durable);
            }
            fs::write(again.dir().join("after"), "text").unwrap();
            again.unmount();
        }
    });
}

/// With `-o sync` the changes of every call survive without fsync.
#[test]
fn what_was_done_on_a_synchronous_mount_survives() {
    isolated(|| {
        let place = place();
        let image = image(place.path(), "32M", &[]);
        let mounted = Mounted::new(&image, Transport::Classic, &["sync"]);
        let dir = mounted.dir().join("dir");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("a"), "text").unwrap();
        fs::rename(dir.join("a"), dir.join("b")).unwrap();
        mounted.kill();
        let again = Mounted::new(&image, Transport::Classic, &[]);
        let found = fs::read_to_string(again.dir().join("dir/b")).unwrap();
        assert_eq!(found, "text");
        again.unmount();
    });
}

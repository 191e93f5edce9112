//! Measures the speed of a mounted directory: `rates DIRECTORY [CLIENTS [SECONDS]]`. Each client creates files in a
//! separate directory, writes them durably, and removes them; the example prints the operations per second of all
//! clients.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

type Work = fn(&Path, u64) -> io::Result<()>;

const KINDS: [(&str, Work); 4] = [
    ("create", |dir, number| {
        File::create(dir.join(number.to_string())).map(drop)
    }),
    ("unlink", |dir, number| {
        fs::remove_file(dir.join(number.to_string()))
    }),
    ("create, fsync", |dir, number| {
        let mut file = File::create(dir.join(format!("s{number}")))?;
        file.write_all(b"some bytes")?;
        file.sync_all()
    }),
    ("mkdir, rmdir", |dir, _| {
        fs::create_dir(dir.join("d")).and_then(|()| fs::remove_dir(dir.join("d")))
    }),
];

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(root) = arguments.first().map(Path::new) else {
        eprintln!("usage: rates DIRECTORY [CLIENTS [SECONDS]]");
        std::process::exit(2);
    };
    let number = |at: usize, default| {
        arguments
            .get(at)
            .and_then(|word| word.parse().ok())
            .unwrap_or(default)
    };
    let (clients, seconds) = (number(1, 1.0) as usize, number(2, 2.0));
    let dirs: Vec<_> = (0..clients)
        .map(|client| root.join(format!("client{client}")))
        .collect();
    dirs.iter().try_for_each(fs::create_dir)?;
    let mut made = vec![u64::MAX; clients];
    for (name, work) in KINDS {
        let (stop, start) = (AtomicBool::new(false), Barrier::new(clients + 1));
        let (rate, counts) = thread::scope(|scope| {
            let threads: Vec<_> = dirs
                .iter()
                .zip(&made)
                .map(|(dir, &most)| {
                    let (stop, start) = (&stop, &start);
                    scope.spawn(move || {
                        start.wait();
                        let most = if name == "unlink" { most } else { u64::MAX };
                        let mut count = 0;
                        while count < most && !stop.load(Ordering::Relaxed) {
                            work(dir, count).expect(name);
                            count += 1;
                        }
                        (count, Instant::now())
                    })
                })
                .collect();
            start.wait();
            let began = Instant::now();
            let end = began + Duration::from_secs_f64(seconds);
            while Instant::now() < end && threads.iter().any(|thread| !thread.is_finished()) {
                thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Ordering::Relaxed);
            let ends: Vec<_> = threads
                .into_iter()
                .map(|thread| thread.join().expect("a client ends"))
                .collect();
            let rates = ends
                .iter()
                .map(|(count, ended)| *count as f64 / (*ended - began).as_secs_f64());
            (
                rates.sum::<f64>(),
                ends.iter().map(|(count, _)| *count).collect::<Vec<_>>(),
            )
        });
        if name == "create" {
            made = counts;
        }
        println!("{name:14} {rate:9.0}/s");
    }
    dirs.iter().try_for_each(fs::remove_dir_all)
}

//! Many readers of one image: requests and bytes at its web server.
//!
//! `EXTANT_STORM=1000 cargo test -p extant-remote --test it storm -- --nocapture` prints the table of docs/how-to/objects.md.

use crate::web::Web;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const SIZE: u64 = 8 << 20;
/// Reads of one reader, in bytes each: files of a boot, scattered over the image.
const READS: u64 = 64;
const READ: u64 = 16 << 10;
/// Readers that run at once.
const AT_ONCE: u64 = 16;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at ^ (at >> 11)) as u8).collect()
}

/// Reads what a boot reads, the same for every reader.
fn boot(address: &str, content: &[u8]) {
    let image = extant_remote::Image::open(address, true).unwrap();
    let mut bytes = vec![0; READ as usize];
    for n in 0..READS {
        // Half of the reads are close to the one before.
        let at = (n / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (SIZE - 2 * READ) + n % 2 * READ;
        image.device().read_at(at, &mut bytes).unwrap();
        assert!(bytes == content[at as usize..][..bytes.len()]);
    }
}

/// Runs `readers` readers on hosts of `each` readers, which share a cache on disk unless it is one. Returns requests and bytes of the server.
fn storm(readers: u64, each: u64, dir: &Path) -> (usize, u64) {
    let content = content();
    let (web, url) = Web::start(content.clone());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(readers) {
            scope.spawn(|| {
                loop {
                    let reader = next.fetch_add(1, SeqCst);
                    if reader >= readers {
                        return;
                    }
                    let mut address = format!("{url}/disk?cache=16M");
                    if each > 1 {
                        let cache = dir.join(format!("{readers}-{each}-{}", reader / each));
                        address += &format!("&disk-cache-size=32M&disk-cache={}", cache.display());
                    }
                    boot(&address, &content);
                }
            });
        }
    });
    (web.requests.load(SeqCst), web.sent.load(SeqCst))
}

#[test]
fn readers_that_share_a_cache_ask_the_server_once() {
    let dir = tempfile::tempdir().unwrap();
    let most = std::env::var("EXTANT_STORM").ok();
    let most = most.and_then(|most| most.parse().ok()).unwrap_or(30);
    println!("| readers | on hosts of | requests at the server | bytes, in sizes of the image |");
    println!("|---|---|---|---|");
    let (one_requests, one_bytes) = storm(1, 1, dir.path());
    assert!(one_bytes < SIZE);
    for readers in [1, 10, 30, 100, 300, 1000] {
        for each in [1, 10, 1000] {
            if readers > most || each > 1 && readers == 1 {
                continue;
            }
            let (requests, bytes) = storm(readers, each, dir.path());
            let images = bytes as f64 / SIZE as f64;
            println!("| {readers} | {each} | {requests} | {images:.2} |");
            let hosts = readers.div_ceil(each);
            // Readers that start together fetch the same pieces; the later ones send one request each.
            let cold = (hosts * each.min(AT_ONCE)).min(readers);
            assert!(
                requests as u64 <= cold * one_requests as u64 + readers,
                "{requests}"
            );
            assert!(bytes <= cold * one_bytes + readers, "{bytes}");
        }
    }
}

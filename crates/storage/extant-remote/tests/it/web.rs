//! Files of a web server.

use crate::support::Served;
use blockdev::BlockDevice;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

/// A web server of one file, with faults by the path that is asked for.
pub struct Web {
    bytes: Vec<u8>,
    version: AtomicUsize,
    pub requests: AtomicUsize,
    pub sent: AtomicU64,
}

impl Web {
    pub fn start(bytes: Vec<u8>) -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let web = Arc::new(Self {
            bytes,
            version: AtomicUsize::new(1),
            requests: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
        });
        let serving = Arc::clone(&web);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let web = Arc::clone(&serving);
                std::thread::spawn(move || web.serve(stream));
            }
        });
        (web, url)
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some((path, range)) = request(&mut reader) {
            let number = self.requests.fetch_add(1, SeqCst);
            let (from, to) = range.unwrap_or((0, self.bytes.len() - 1));
            let to = to.min(self.bytes.len() - 1);
            let part = &self.bytes[from..=to];
            let tag = self.version.load(SeqCst);
            let len = self.bytes.len();
            let partial =
                format!("206 x\r\nContent-Range: bytes {from}-{to}/{len}\r\nETag: \"{tag}\"");
            let (head, part) = match path.as_str() {
                "/disk" => (partial, part),
                // Every second request fails.
                "/busy" if number.is_multiple_of(2) => ("503 busy".into(), &b""[..]),
                "/busy" | "/cut" => (partial, part),
                "/untagged" => (
                    format!("206 x\r\nContent-Range: bytes {from}-{to}/{len}"),
                    part,
                ),
                "/whole" => ("200 x".into(), &self.bytes[..]),
                "/denied" => ("403 x".into(), &b""[..]),
                "/lies" => (
                    format!("206 x\r\nContent-Range: bytes 5-9/{len}"),
                    &b"abcde"[..],
                ),
                "/garbage" => ("206 x\r\nContent-Range: bytes x".into(), &b"abcde"[..]),
                _ => ("404 x".into(), &b""[..]),
            };
            self.sent.fetch_add(part.len() as u64, SeqCst);
            let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", part.len());
            // The connection of every third answer is lost in its middle.
            if path == "/cut" && number % 3 == 1 {
                let _ = stream.write_all(head.as_bytes());
                let _ = stream.write_all(&part[..part.len() / 2]);
                return;
            }
            if stream
                .write_all(head.as_bytes())
                .and_then(|()| stream.write_all(part))
                .is_err()
            {
                return;
            }
        }
    }
}

/// Reads a request; returns its path and range.
#[allow(clippy::type_complexity, reason = "a pair of a path and a range")]
fn request(reader: &mut impl BufRead) -> Option<(String, Option<(usize, usize)>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut range = None;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let lower = line.trim_end().to_lowercase();
        if let Some(text) = lower.strip_prefix("range: bytes=") {
            let (from, to) = text.split_once('-')?;
            range = Some((from.parse().ok()?, to.parse().ok()?));
        }
        if lower.is_empty() {
            return Some((path, range));
        }
    }
}

fn content() -> Vec<u8> {
    (0..3_000_001_u32).map(|n| (n ^ (n >> 9)) as u8).collect()
}

#[test]
fn a_file_is_read_by_ranges_which_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (web, url) = Web::start(content());
    let served = Served::start(dir.path(), &format!("{url}/disk?cache=16M"), &[]).unwrap();
    assert_eq!(served.device().len(), 3_000_001);
    let read = |offset: usize, len: usize| {
        let mut bytes = vec![0; len];
        served.device().read_at(offset as u64, &mut bytes).unwrap();
        assert!(bytes == web.bytes[offset..offset + len], "{offset}");
    };
    read(1000, 10);
    let few = web.sent.load(SeqCst);
    assert!(few < 300_000, "{few} bytes for 10");
    for at in (0..3_000_000).step_by(10_000) {
        read(at, 10_000);
    }
    read(2_999_990, 11);
    let (sent, requests) = (web.sent.load(SeqCst), web.requests.load(SeqCst));
    assert!(
        sent < 3_400_000 && requests < 15,
        "{sent} bytes, {requests} requests"
    );
    assert!(served.device().read_only());
    served.end();
}

#[test]
fn a_busy_server_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let (web, url) = Web::start(content());
    let served = Served::start(dir.path(), &format!("{url}/busy"), &[]).unwrap();
    let mut bytes = vec![0; 3_000_001];
    served.device().read_at(0, &mut bytes).unwrap();
    assert!(bytes == web.bytes);
    served.end();
}

#[test]
fn a_lost_connection_is_not_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (web, url) = Web::start(content());
    let served = Served::start(dir.path(), &format!("{url}/cut"), &[]).unwrap();
    let mut bytes = vec![0; 3_000_001];
    served.device().read_at(0, &mut bytes).unwrap();
    assert!(bytes == web.bytes[..3_000_001]);
    served.end();
}

#[test]
fn a_file_that_changes_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (web, url) = Web::start(content());
    let image = extant_remote::Image::open(&format!("{url}/disk"), true).unwrap();
    let mut bytes = [0; 10];
    image.device().read_at(0, &mut bytes).unwrap();
    web.version.store(2, SeqCst);
    let said = image
        .device()
        .read_at(2_000_000, &mut bytes)
        .unwrap_err()
        .to_string();
    assert!(said.contains("changed on the server"), "{said}");
    let served = Served::start(dir.path(), &format!("{url}/disk"), &[]).unwrap();
    web.version.store(3, SeqCst);
    assert!(served.device().read_at(2_000_000, &mut bytes).is_err());
}

#[test]
fn what_is_wrong_with_a_server_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let (_web, url) = Web::start(content());
    for (address, why) in [
        (format!("{url}/missing"), "no such object"),
        (format!("{url}/denied"), "access denied"),
        (format!("{url}/whole"), "does not send ranges"),
        (format!("{url}/lies"), "equested"),
        (format!("{url}/garbage"), "header"),
        ("http://127.0.0.1:1/x".to_owned(), "refused"),
    ] {
        let said = Served::start(dir.path(), &address, &[]).err().expect(why);
        assert!(
            said.contains(why) && said.lines().count() == 1,
            "{address}: {said}"
        );
        assert!(said.starts_with(&format!("error: {address}: ")), "{said}");
    }
}

/// Reads the whole file by a separate program; returns the requests and bytes at the server.
fn boot(dir: &Path, web: &Web, address: &str) -> (usize, u64) {
    let before = (web.requests.load(SeqCst), web.sent.load(SeqCst));
    let served = Served::start(dir, address, &[]).unwrap();
    let mut bytes = vec![0; web.bytes.len()];
    served.device().read_at(0, &mut bytes).unwrap();
    served.end();
    assert!(bytes == web.bytes);
    let (requests, sent) = (web.requests.load(SeqCst), web.sent.load(SeqCst));
    (requests - before.0, sent - before.1)
}

#[test]
fn a_cache_on_disk_serves_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let (web, url) = Web::start(content());
    let path = dir.path().join("pieces");
    let fields = format!("cache=8M&disk-cache={}&disk-cache-size=32M", path.display());
    let address = format!("{url}/disk?{fields}");
    let (requests, sent) = boot(dir.path(), &web, &address);
    assert!(requests > 1 && sent > 3_000_000, "{requests}, {sent}");
    // A second start needs one request, whose answer is that the file has not changed.
    assert_eq!(boot(dir.path(), &web, &address), (1, 1));
    // About every tenth piece is damaged.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let len = file.metadata().unwrap().len();
    for at in (500_000..len).step_by(1_000_000) {
        file.write_all_at(&[0x5a; 10], at).unwrap();
    }
    let (_, sent) = boot(dir.path(), &web, &address);
    assert!(sent > 1, "a damaged piece was not fetched");
    assert_eq!(boot(dir.path(), &web, &address), (1, 1));
    // The version of the file belongs to the key.
    web.version.store(2, SeqCst);
    let (_, sent) = boot(dir.path(), &web, &address);
    assert!(sent > 3_000_000, "{sent}");
    std::fs::remove_file(&path).unwrap();
    let (_, sent) = boot(dir.path(), &web, &address);
    assert!(sent > 3_000_000, "{sent}");
    let said = Served::start(dir.path(), &format!("{url}/untagged?{fields}"), &[]);
    let said = said.err().unwrap();
    assert!(said.contains("remove disk-cache"), "{said}");
}

#[test]
fn two_processes_fill_one_cache() {
    let dir = tempfile::tempdir().unwrap();
    let (web, url) = Web::start(content());
    let address = format!("{url}/disk?disk-cache={}", dir.path().join("p").display());
    std::thread::scope(|scope| {
        for n in 0..3 {
            let (web, address, dir) = (&web, &address, dir.path().join(n.to_string()));
            std::fs::create_dir(&dir).unwrap();
            scope.spawn(move || boot(&dir, web, address));
        }
    });
    // A slot that two processes chose at once has one of the pieces.
    boot(dir.path(), &web, &address);
    assert_eq!(boot(dir.path(), &web, &address), (1, 1));
}

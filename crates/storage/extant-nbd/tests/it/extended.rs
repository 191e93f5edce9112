//! Extended headers: a server of this test that speaks them, because the servers of others here do not, and one that violates them.

use crate::it::fake;
use blockdev::{BlockDevice, conformance};
use extant_nbd::{NbdDevice, NbdUrl, Options};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

const SIZE: u64 = 16 << 20;
const REQUEST: u32 = 0x21e4_1c71;
const REPLY: u32 = 0x6e8a_278c;
/// Flags of the export: fixed ones, flush, trim, zeroes, several connections.
const FLAGS: u16 = 1 | 4 | 32 | 64 | 256;
/// Accepted options: extended headers, contexts.
const OPTIONS: [u32; 2] = [11, 10];

struct Request {
    flags: u16,
    command: u16,
    cookie: [u8; 8],
    offset: u64,
    len: u64,
}

fn request(stream: &mut UnixStream) -> Option<Request> {
    let mut head = [0; 32];
    stream.read_exact(&mut head).ok()?;
    let number = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().unwrap());
    assert_eq!(head[..4], REQUEST.to_be_bytes());
    Some(Request {
        flags: u16::from_be_bytes([head[4], head[5]]),
        command: u16::from_be_bytes([head[6], head[7]]),
        cookie: head[8..16].try_into().unwrap(),
        offset: number(16),
        len: number(24),
    })
}

fn chunk(to: &Request, last: bool, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut reply = REPLY.to_be_bytes().to_vec();
    reply.extend(u16::from(last).to_be_bytes());
    reply.extend(kind.to_be_bytes());
    reply.extend(to.cookie);
    reply.extend(to.offset.to_be_bytes());
    reply.extend((payload.len() as u64).to_be_bytes());
    reply.extend(payload);
    reply
}

/// A disk in memory, of which only the first bytes are not zeros.
#[derive(Default)]
struct Disk {
    bytes: Mutex<Vec<u8>>,
    connections: AtomicUsize,
    longest: AtomicU64,
}

impl Disk {
    fn serve(&self, mut stream: UnixStream, size: u64) {
        fake::greet_with(&mut stream, size, FLAGS, &OPTIONS);
        self.connections.fetch_add(1, SeqCst);
        while let Some(request) = request(&mut stream) {
            let is_write = request.command == 1;
            assert_eq!(request.flags & 32 != 0, is_write, "the flag of a payload");
            let mut data = vec![0; if is_write { request.len as usize } else { 0 }];
            stream.read_exact(&mut data).unwrap();
            if request.command == 2 {
                return;
            }
            self.longest.fetch_max(request.len, SeqCst);
            let reply = self.answer(&request, &data, size);
            stream.write_all(&reply).unwrap();
        }
    }

    fn answer(&self, request: &Request, data: &[u8], size: u64) -> Vec<u8> {
        let mut bytes = self.bytes.lock().unwrap();
        let all = bytes.len() as u64;
        let range = request.offset.min(all) as usize
            ..request.offset.saturating_add(request.len).min(all) as usize;
        match request.command {
            0 => {
                let mut payload = request.offset.to_be_bytes().to_vec();
                payload.extend(&bytes[range]);
                return chunk(request, true, 1, &payload);
            }
            1 => bytes[range].copy_from_slice(data),
            6 => bytes[range].fill(0),
            7 => {
                let mut payload = vec![0, 0, 0, 1, 0, 0, 0, 2];
                for (len, state) in [(all.saturating_sub(request.offset).max(1), 0u64), (size, 3)] {
                    payload.extend(len.to_be_bytes());
                    payload.extend(state.to_be_bytes());
                }
                return chunk(request, true, 6, &payload);
            }
            _ => {}
        }
        chunk(request, true, 0, &[])
    }
}

/// Starts a server of a disk of `size` bytes, and connects to it.
fn start(name: &str, size: u64, fields: &str) -> (Arc<Disk>, NbdDevice) {
    let dir = std::env::temp_dir().join(format!("extant-nbd-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let listener = UnixListener::bind(dir.join("s")).unwrap();
    let disk = Arc::new(Disk {
        bytes: Mutex::new(vec![0; SIZE as usize]),
        ..Disk::default()
    });
    let serving = Arc::clone(&disk);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let disk = Arc::clone(&serving);
            std::thread::spawn(move || disk.serve(stream, size));
        }
    });
    let url = format!("nbd+unix:///disk?socket={}/s{fields}", dir.display());
    let url = NbdUrl::parse(&url).unwrap();
    let device = NbdDevice::connect(&url, &Options::default()).unwrap();
    let _ = std::fs::remove_dir_all(dir);
    (disk, device)
}

#[test]
fn a_device_with_extended_headers_conforms() {
    for (name, fields, connections) in [("ext-1", "", 1), ("ext-4", "&connections=4", 4)] {
        let (disk, device) = start(name, SIZE, fields);
        conformance::check(&device, 1).unwrap();
        assert_eq!(device.connections(), connections);
        assert_eq!(disk.connections.load(SeqCst), connections);
    }
}

#[test]
fn lengths_have_64_bits() {
    let (disk, device) = start("ext-long", 6 << 40, "");
    // Data at the beginning, then zeros of more than 32 bits of length.
    assert_eq!(device.next_data(0).unwrap(), Some(0..SIZE));
    assert_eq!(
        device.next_data(SIZE + (5 << 40)).unwrap(),
        Some(SIZE + (5 << 40)..SIZE + (5 << 40) + 1)
    );
    assert_eq!(disk.longest.load(SeqCst), 1 << 40);
    device.write_at(0, &[1; 4096]).unwrap();
    disk.longest.store(0, SeqCst);
    device.discard(0, 5 << 30).unwrap();
    device.flush().unwrap();
    assert_eq!(disk.longest.load(SeqCst), 64 << 20);
    let mut bytes = [9; 4096];
    device.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4096]);
}

#[test]
fn extended_replies_that_lie_are_errors() {
    type Answer = fn(&Request) -> Vec<u8>;
    let wrong: [(&str, &str, Answer); 5] = [
        ("ext-offset", "offset of another request", |r| {
            let mut reply = chunk(r, true, 0, &[]);
            reply[23] ^= 1;
            reply
        }),
        ("ext-length", "outside", |r| {
            let mut reply = chunk(r, true, 1, &[]);
            reply.truncate(24);
            reply.extend(u64::MAX.to_be_bytes());
            reply.extend([0; 64]);
            reply
        }),
        ("ext-short", "outside", |r| chunk(r, true, 1, &[0; 8])),
        ("ext-simple", "magic", |r| {
            let mut reply = 0x6744_6698u32.to_be_bytes().to_vec();
            reply.extend([0; 4]);
            reply.extend(r.cookie);
            reply.extend([0; 512]);
            reply
        }),
        ("ext-magic", "magic", |r| {
            let mut reply = chunk(r, true, 0, &[]);
            reply[..4].copy_from_slice(&0x668e_33efu32.to_be_bytes());
            reply
        }),
    ];
    for (name, words, answer) in wrong {
        let device = fake::connect(name, move |mut stream| {
            fake::greet_with(&mut stream, SIZE, FLAGS, &OPTIONS);
            let request = request(&mut stream).unwrap();
            let _ = stream.write_all(&answer(&request));
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let error = device.unwrap().read_at(4096, &mut [0; 512]).unwrap_err();
        assert!(error.to_string().contains(words), "{name}: {error}");
    }
    // A status whose count of ranges is wrong.
    let device = fake::connect("ext-count", move |mut stream| {
        fake::greet_with(&mut stream, SIZE, FLAGS, &OPTIONS);
        let request = request(&mut stream).unwrap();
        let mut payload = vec![0, 0, 0, 1, 255, 255, 255, 255];
        payload.extend([0; 32]);
        let _ = stream.write_all(&chunk(&request, true, 6, &payload));
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let error = device.unwrap().next_data(0).unwrap_err().to_string();
    assert!(error.contains("wrong number of ranges"), "{error}");
}

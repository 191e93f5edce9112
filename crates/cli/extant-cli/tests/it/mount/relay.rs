//! A relay between a client and an NBD server that cuts connections, and delays, reorders and fails replies.

use super::random::Random;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const SIMPLE: u32 = 0x6744_6698;
const STRUCTURED: u32 = 0x668e_33ef;
/// Flag of the last chunk of a structured reply.
const DONE: u16 = 1;
const EIO: u32 = 5;
const ACK: u32 = 1;
const ERROR: u32 = 1 << 31;
/// Replies between two cuts, at most.
const MOST_REPLIES: u64 = 120;

/// Faults so far.
#[derive(Default)]
pub struct Faults {
    pub cuts: AtomicU64,
    pub delays: AtomicU64,
    pub reorders: AtomicU64,
    pub errors: AtomicU64,
    /// Whether connections are cut, and replies delayed and reordered.
    pub on: AtomicBool,
    /// Whether the next reply to a write or flush is an error.
    pub fails_next: AtomicBool,
}

/// Commands and lengths of the requests without a reply, by their cookies.
type Open = Arc<Mutex<HashMap<[u8; 8], (u16, u32)>>>;

/// Relays connections to `socket` to the server at `server`.
pub fn relay(socket: &Path, server: &Path) -> Arc<Faults> {
    let faults = Arc::new(Faults::default());
    let listener = UnixListener::bind(socket).unwrap();
    let (of_thread, server) = (Arc::clone(&faults), PathBuf::from(server));
    thread::spawn(move || {
        for (seed, client) in (1..).zip(listener.incoming().flatten()) {
            // A server that is restarted is not there for a moment.
            let Ok(server) = UnixStream::connect(&server) else {
                continue;
            };
            let faults = Arc::clone(&of_thread);
            thread::spawn(move || {
                let _ = connection(&client, &server, &faults, seed);
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    faults
}

fn bytes(from: &mut impl Read, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap())
}

/// Passes the handshake on, up to the reply that ends it.
fn handshake(mut client: &UnixStream, mut server: &UnixStream) -> io::Result<()> {
    client.write_all(&bytes(&mut server, 18)?)?;
    server.write_all(&bytes(&mut client, 4)?)?;
    loop {
        let head = bytes(&mut client, 16)?;
        let option = u32_at(&head, 8);
        let data = bytes(&mut client, u32_at(&head, 12) as usize)?;
        server.write_all(&[head, data].concat())?;
        loop {
            let head = bytes(&mut server, 20)?;
            let kind = u32_at(&head, 12);
            let data = bytes(&mut server, u32_at(&head, 16) as usize)?;
            client.write_all(&[head, data].concat())?;
            // Option 7 chooses the export.
            if kind == ACK && option == 7 {
                return Ok(());
            }
            if kind == ACK || kind & ERROR != 0 {
                break;
            }
        }
    }
}

fn connection(
    client: &UnixStream,
    server: &UnixStream,
    faults: &Faults,
    seed: u64,
) -> io::Result<()> {
    handshake(client, server)?;
    let open = Open::default();
    thread::scope(|s| {
        s.spawn(|| {
            let _ = requests(client, server, &open, faults, seed);
            let _ = server.shutdown(Shutdown::Both);
            let _ = client.shutdown(Shutdown::Both);
        });
        let done = replies(client, server, &open, faults, seed);
        let _ = server.shutdown(Shutdown::Both);
        let _ = client.shutdown(Shutdown::Both);
        done
    })
}

/// Passes a part of a message on, and ends the connection.
fn cut(mut to: &UnixStream, message: &[u8], random: &mut Random, faults: &Faults) -> io::Error {
    let part = random.below(message.len() as u64 + 1) as usize;
    let _ = to.write_all(&message[..part]);
    faults.cuts.fetch_add(1, Ordering::SeqCst);
    io::ErrorKind::ConnectionReset.into()
}

fn requests(
    mut client: &UnixStream,
    mut server: &UnixStream,
    open: &Open,
    faults: &Faults,
    seed: u64,
) -> io::Result<()> {
    let mut random = Random::new(2 * seed);
    // Every other connection is cut at a request.
    let mut left = match seed % 2 {
        0 => random.below(MOST_REPLIES),
        _ => u64::MAX,
    };
    loop {
        let mut message = bytes(&mut client, 28)?;
        let (command, length) = (u16_at(&message, 6), u32_at(&message, 24));
        if command == WRITE {
            message.extend(bytes(&mut client, length as usize)?);
        }
        let cookie = message[8..16].try_into().unwrap();
        open.lock().unwrap().insert(cookie, (command, length));
        if faults.on.load(Ordering::SeqCst) {
            if left == 0 {
                return Err(cut(server, &message, &mut random, faults));
            }
            left -= 1;
        }
        server.write_all(&message)?;
    }
}

/// A reply, or a chunk of one.
struct Reply {
    message: Vec<u8>,
    cookie: [u8; 8],
    command: u16,
    is_last: bool,
}

fn reply(mut server: &UnixStream, open: &Open) -> io::Result<Reply> {
    let mut message = bytes(&mut server, 16)?;
    let cookie: [u8; 8] = message[8..16].try_into().unwrap();
    let is_structured = u32_at(&message, 0) == STRUCTURED;
    let is_last = !is_structured || u16_at(&message, 4) & DONE != 0;
    let mut open = open.lock().unwrap();
    let (command, length) = open[&cookie];
    if is_last {
        open.remove(&cookie);
    }
    drop(open);
    if is_structured {
        message.extend(bytes(&mut server, 4)?);
        let length = u32_at(&message, 16);
        message.extend(bytes(&mut server, length as usize)?);
    } else if command == READ && u32_at(&message, 4) == 0 {
        message.extend(bytes(&mut server, length as usize)?);
    }
    Ok(Reply {
        message,
        cookie,
        command,
        is_last,
    })
}

fn replies(
    mut client: &UnixStream,
    server: &UnixStream,
    open: &Open,
    faults: &Faults,
    seed: u64,
) -> io::Result<()> {
    let mut random = Random::new(2 * seed + 1);
    let mut left = match seed % 2 {
        0 => u64::MAX,
        _ => random.below(MOST_REPLIES),
    };
    let mut held: Option<Reply> = None;
    loop {
        // A reply that is held back waits for another one only for a moment.
        server.set_read_timeout(held.as_ref().map(|_| Duration::from_millis(20)))?;
        let mut first = [0; 1];
        if held.is_some()
            && rustix::net::recv(server, &mut first, rustix::net::RecvFlags::PEEK).is_err()
        {
            if let Some(reply) = held.take() {
                client.write_all(&reply.message)?;
            }
            continue;
        }
        server.set_read_timeout(None)?;
        let mut now = reply(server, open)?;
        let changes = [WRITE, FLUSH].contains(&now.command);
        if changes && now.is_last && faults.fails_next.swap(false, Ordering::SeqCst) {
            now.message = [SIMPLE.to_be_bytes(), EIO.to_be_bytes()].concat();
            now.message.extend(now.cookie);
            faults.errors.fetch_add(1, Ordering::SeqCst);
        }
        if let Some(earlier) = held.take() {
            let pair = if earlier.cookie == now.cookie {
                [earlier, now]
            } else {
                faults.reorders.fetch_add(1, Ordering::SeqCst);
                [now, earlier]
            };
            client.write_all(&pair[0].message)?;
            client.write_all(&pair[1].message)?;
            continue;
        }
        if !faults.on.load(Ordering::SeqCst) {
            client.write_all(&now.message)?;
            continue;
        }
        if left == 0 {
            return Err(cut(client, &now.message, &mut random, faults));
        }
        left -= 1;
        match random.below(8) {
            0 => {
                faults.delays.fetch_add(1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(random.below(20)));
                client.write_all(&now.message)?;
            }
            1 | 2 if now.is_last => held = Some(now),
            _ => client.write_all(&now.message)?,
        }
    }
}

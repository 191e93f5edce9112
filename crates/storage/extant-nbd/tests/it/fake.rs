//! Servers that do what a test wants.

use extant_nbd::{NbdDevice, NbdUrl, Options};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// Connects to a server that `serve` is. The connection is lost for good when `serve` returns.
pub fn connect(
    name: &str,
    serve: impl FnOnce(UnixStream) + Send + 'static,
) -> std::io::Result<NbdDevice> {
    let dir = std::env::temp_dir().join(format!("extant-nbd-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let socket = dir.join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || serve(listener.accept().unwrap().0));
    let options = Options {
        timeout: Duration::from_millis(500),
        reconnect: Duration::ZERO,
        ..Options::default()
    };
    let url = format!("nbd+unix:///disk?socket={}", socket.display());
    let device = NbdDevice::connect(&NbdUrl::parse(&url).unwrap(), &options);
    let _ = std::fs::remove_dir_all(dir);
    device
}

/// Shakes hands for an export of `size` bytes that can be written and flushed, with structured replies or without.
pub fn greet(stream: &mut UnixStream, size: u64, structured: bool) {
    let accepted: &[u32] = if structured { &[8, 10] } else { &[] };
    greet_with(stream, size, 5, accepted);
}

/// Shakes hands for an export with these flags. Options that are not accepted are refused.
pub fn greet_with(stream: &mut UnixStream, size: u64, flags: u16, accepted: &[u32]) {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    loop {
        let mut head = [0; 16];
        stream.read_exact(&mut head).unwrap();
        let option = u32::from_be_bytes(head[8..12].try_into().unwrap());
        let length = u32::from_be_bytes(head[12..].try_into().unwrap());
        stream.read_exact(&mut vec![0; length as usize]).unwrap();
        let mut answer = |kind: u32, data: &[u8]| {
            let mut reply = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
            for number in [option, kind, data.len() as u32] {
                reply.extend(number.to_be_bytes());
            }
            reply.extend(data);
            stream.write_all(&reply).unwrap();
        };
        match option {
            7 => {
                let mut info = vec![0, 0];
                info.extend(size.to_be_bytes());
                info.extend(flags.to_be_bytes());
                answer(3, &info);
                answer(1, &[]);
                return;
            }
            8 | 11 if accepted.contains(&option) => answer(1, &[]),
            10 if accepted.contains(&10) => {
                answer(4, b"\0\0\0\x01base:allocation");
                answer(1, &[]);
            }
            _ => answer(1 << 31 | 1, b"not supported"),
        }
    }
}

/// Request without its data.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    pub command: u16,
    pub cookie: [u8; 8],
    pub offset: u64,
    pub len: u32,
}

/// Reads a request and its data.
pub fn request(stream: &mut UnixStream) -> std::io::Result<Request> {
    let mut head = [0; 28];
    stream.read_exact(&mut head)?;
    let request = Request {
        command: u16::from_be_bytes([head[6], head[7]]),
        cookie: head[8..16].try_into().unwrap(),
        offset: u64::from_be_bytes(head[16..24].try_into().unwrap()),
        len: u32::from_be_bytes(head[24..].try_into().unwrap()),
    };
    if request.command == 1 {
        stream.read_exact(&mut vec![0; request.len as usize])?;
    }
    Ok(request)
}

/// Sends the reply to a request: zeros for a read.
pub fn reply(stream: &mut UnixStream, to: &Request, error: u32) {
    let mut reply = 0x6744_6698u32.to_be_bytes().to_vec();
    reply.extend(error.to_be_bytes());
    reply.extend(to.cookie);
    if to.command == 0 && error == 0 {
        reply.resize(reply.len() + to.len as usize, 0);
    }
    stream.write_all(&reply).unwrap();
}

/// Sends a chunk of a structured reply.
pub fn chunk(stream: &mut UnixStream, to: &Request, last: bool, kind: u16, payload: &[u8]) {
    let mut reply = 0x668e_33efu32.to_be_bytes().to_vec();
    reply.extend(u16::from(last).to_be_bytes());
    reply.extend(kind.to_be_bytes());
    reply.extend(to.cookie);
    reply.extend((payload.len() as u32).to_be_bytes());
    reply.extend(payload);
    stream.write_all(&reply).unwrap();
}

//! A device as the export of an NBD server, over one connection.
//!
//! The handshake is fixed newstyle with any export name. Replies are simple, or structured if the client asks for that. Then the client
//! may ask which ranges are holes. Requests of the connection run on several threads, and each reply is sent when its request ends.

use blockdev::BlockDevice;
use extant_nbd::numbers::{
    ALLOCATION, BLOCK_STATUS, CHUNK_ERROR, CHUNK_NONE, CHUNK_OFFSET_DATA, CHUNK_STATUS, DISCONNECT,
    FLAG_FLUSH, FLAG_FUA, FLAG_HAS_FLAGS, FLAG_READ_ONLY, FLAG_TRIM, FLAG_ZEROES, FLUSH, FUA,
    LAST_CHUNK, OPT_ABORT, OPT_EXPORT_NAME, OPT_GO, OPT_INFO, OPT_MAGIC, OPT_REPLY_MAGIC,
    OPT_SET_META_CONTEXT, OPT_STRUCTURED_REPLY, READ, REP_ACK, REP_ERR_INVALID, REP_ERR_UNSUP,
    REP_INFO, REP_META_CONTEXT, REQUEST_MAGIC, SIMPLE_REPLY, STATE_HOLE, STATE_ZERO,
    STRUCTURED_REPLY, TRIM, WRITE, WRITE_ZEROES,
};
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Longest data of an option or of its reply.
pub(crate) const MAX_OPTION: u32 = 64 << 10;

/// Longest request.
const MAX_REQUEST: u32 = 32 << 20;

/// Most ranges in the reply to a request for the status of blocks.
const MAX_RANGES: usize = 4096;
/// Number that the context of allocation has in replies.
const CONTEXT: u32 = 1;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;

/// Request of a client.
struct Request {
    flags: u16,
    command: u16,
    cookie: [u8; 8],
    offset: u64,
    len: u32,
    data: Vec<u8>,
}

/// Forms of replies that the client has asked for.
#[derive(Clone, Copy, Default)]
struct Forms {
    structured: bool,
    /// Whether the client may ask for the status of blocks.
    status: bool,
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn protocol(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("NBD client: {what}"))
}

fn flags(device: &dyn BlockDevice) -> u16 {
    let common = FLAG_HAS_FLAGS | FLAG_FLUSH;
    if device.read_only() {
        common | FLAG_READ_ONLY
    } else {
        common | FLAG_FUA | FLAG_TRIM | FLAG_ZEROES
    }
}

fn reply(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = OPT_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    // Replies here have at most 19 bytes.
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

/// Negotiates the forms of replies; returns `None` if the client ends the connection.
fn negotiate(
    stream: &mut (impl Read + Write),
    device: &dyn BlockDevice,
) -> io::Result<Option<Forms>> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    let no_zeroes = u32::from_be_bytes(array(stream)?) & 2 != 0;
    let mut forms = Forms::default();
    loop {
        if u64::from_be_bytes(array(stream)?) != OPT_MAGIC {
            return Err(protocol("an option is not valid"));
        }
        let option = u32::from_be_bytes(array(stream)?);
        let len = u32::from_be_bytes(array(stream)?);
        if len > MAX_OPTION {
            return Err(protocol("an option is too long"));
        }
        let mut data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
        match option {
            OPT_EXPORT_NAME => {
                let mut bytes = device.len().to_be_bytes().to_vec();
                bytes.extend(flags(device).to_be_bytes());
                bytes.resize(bytes.len() + if no_zeroes { 0 } else { 124 }, 0);
                stream.write_all(&bytes)?;
                return Ok(Some(forms));
            }
            OPT_ABORT => {
                reply(stream, option, REP_ACK, &[])?;
                return Ok(None);
            }
            OPT_STRUCTURED_REPLY if data.is_empty() => {
                forms.structured = true;
                reply(stream, option, REP_ACK, &[])?;
            }
            OPT_SET_META_CONTEXT => match has_allocation(&data).filter(|_| forms.structured) {
                None => reply(stream, option, REP_ERR_INVALID, &[])?,
                Some(status) => {
                    forms.status = status;
                    if status {
                        let context = [&CONTEXT.to_be_bytes(), ALLOCATION].concat();
                        reply(stream, option, REP_META_CONTEXT, &context)?;
                    }
                    reply(stream, option, REP_ACK, &[])?;
                }
            },
            OPT_INFO | OPT_GO if data.len() < 6 => {
                reply(stream, option, REP_ERR_INVALID, &[])?;
            }
            OPT_INFO | OPT_GO => {
                let mut export = vec![0, 0];
                export.extend(device.len().to_be_bytes());
                export.extend(flags(device).to_be_bytes());
                reply(stream, option, REP_INFO, &export)?;
                let mut limits = vec![0, 3];
                for limit in [1, 4096, MAX_REQUEST] {
                    limits.extend(limit.to_be_bytes());
                }
                reply(stream, option, REP_INFO, &limits)?;
                reply(stream, option, REP_ACK, &[])?;
                if option == OPT_GO {
                    return Ok(Some(forms));
                }
            }
            _ => reply(stream, option, REP_ERR_UNSUP, &[])?,
        }
    }
}

/// Returns whether the queries of an option name the context of allocation; `None` if the option is not valid.
fn has_allocation(data: &[u8]) -> Option<bool> {
    fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (len, after) = rest.split_first_chunk()?;
        let (bytes, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        *rest = after;
        Some(bytes)
    }
    let mut rest = data;
    let _export = counted(&mut rest)?;
    let (_count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut found = false;
    while !rest.is_empty() {
        found |= counted(&mut rest)? == ALLOCATION;
    }
    Some(found)
}

/// Reads a request; `None` when the client disconnects.
fn request(stream: &mut impl Read) -> io::Result<Option<Request>> {
    let magic = match array(stream) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        magic => u32::from_be_bytes(magic?),
    };
    if magic != REQUEST_MAGIC {
        return Err(protocol("a request is not valid"));
    }
    let flags = u16::from_be_bytes(array(stream)?);
    let command = u16::from_be_bytes(array(stream)?);
    let cookie = array(stream)?;
    let offset = u64::from_be_bytes(array(stream)?);
    let len = u32::from_be_bytes(array(stream)?);
    if command == DISCONNECT {
        return Ok(None);
    }
    if matches!(command, READ | WRITE) && len > MAX_REQUEST {
        return Err(protocol("a request is longer than the limit"));
    }
    let mut data = Vec::new();
    if command == WRITE {
        data = vec![0; len as usize];
        stream.read_exact(&mut data)?;
    }
    Ok(Some(Request {
        flags,
        command,
        cookie,
        offset,
        len,
        data,
    }))
}

/// Serves a device to the client of a connection, until the client ends it, with `threads` requests at once. Each different error of the device is passed to `report`
/// once, because the protocol carries only a number. `ended` is called when the client has ended, before its last requests are done.
pub fn serve(
    mut stream: UnixStream,
    device: &dyn BlockDevice,
    threads: usize,
    report: &(dyn Fn(&io::Error) + Sync),
    ended: &(dyn Fn() + Sync),
) -> io::Result<()> {
    let Some(forms) = negotiate(&mut stream, device)? else {
        return Ok(());
    };
    let replies = Mutex::new(stream.try_clone()?);
    let reported = Mutex::new(HashSet::new());
    let (sender, receiver) = sync_channel(threads);
    let receiver = Mutex::new(receiver);
    // When the client is lost, the threads drop the queued requests, because the reader of requests would otherwise wait for
    // room in the queue forever.
    let lost = AtomicBool::new(false);
    let answer = |request: &Request| {
        if lost.load(Ordering::Relaxed) {
            return;
        }
        let done = run(device, request, forms);
        if let Err(error) = &done
            && reported
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(error.to_string())
        {
            report(error);
        }
        let mut stream = replies.lock().unwrap_or_else(PoisonError::into_inner);
        if send(&mut *stream, request, forms, done).is_err() {
            lost.store(true, Ordering::Relaxed);
        }
    };
    let work = || {
        while let Some(request) = next(&receiver) {
            answer(&request);
        }
    };
    std::thread::scope(|scope| {
        // If the system refuses all threads, this one serves alone.
        let started = blockdev::start_threads(scope, 0..threads, |_| work()).len();
        let done = loop {
            match request(&mut stream) {
                Ok(Some(request)) if started == 0 => answer(&request),
                Ok(Some(request)) => {
                    if sender.send(request).is_err() {
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        drop(sender);
        ended();
        done
    })
}

fn next(receiver: &Mutex<Receiver<Request>>) -> Option<Request> {
    let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
    receiver.recv().ok()
}

/// Runs a request; returns the data of its reply.
fn run(device: &dyn BlockDevice, request: &Request, forms: Forms) -> io::Result<Vec<u8>> {
    let (offset, len) = (request.offset, u64::from(request.len));
    match request.command {
        READ => {
            let mut data = vec![0; request.len as usize];
            device.read_at(offset, &mut data)?;
            return Ok(data);
        }
        WRITE => device.write_at(offset, &request.data)?,
        FLUSH => device.flush()?,
        TRIM => device.trim(offset, len)?,
        WRITE_ZEROES => device.discard(offset, len)?,
        BLOCK_STATUS if forms.status => return status(device, offset, len),
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    if request.flags & FUA != 0 {
        device.flush()?;
    }
    Ok(Vec::new())
}

/// Returns descriptors of the ranges from `offset` on: data, or holes that read as zeros.
fn status(device: &dyn BlockDevice, offset: u64, len: u64) -> io::Result<Vec<u8>> {
    let end = offset
        .checked_add(len)
        .filter(|&end| len > 0 && end <= device.len());
    let end = end.ok_or(io::ErrorKind::InvalidInput)?;
    let mut descriptors = Vec::new();
    let mut at = offset;
    while at < end && descriptors.len() < MAX_RANGES * 8 {
        let data = device.next_data(at)?.unwrap_or(end..end);
        let start = data.start.clamp(at, end);
        // The next range begins at least one byte later, whatever the device says.
        let next = data.end.min(end).max(start + u64::from(start == at));
        for (from, to, state) in [(at, start, STATE_HOLE | STATE_ZERO), (start, next, 0)] {
            if from < to {
                // Not longer than the range of a request, which has 32 bits.
                descriptors.extend(((to - from) as u32).to_be_bytes());
                descriptors.extend((state as u32).to_be_bytes());
            }
        }
        at = next;
    }
    Ok(descriptors)
}

fn send(
    stream: &mut impl Write,
    request: &Request,
    forms: Forms,
    done: io::Result<Vec<u8>>,
) -> io::Result<()> {
    let (error, data) = match done {
        Ok(data) => (0, data),
        Err(e) => (number(&e), Vec::new()),
    };
    let mut bytes;
    if forms.structured && matches!(request.command, READ | BLOCK_STATUS) {
        let (kind, head) = match request.command {
            // The number of the error, and no message.
            _ if error != 0 => (
                CHUNK_ERROR | 1,
                [&error.to_be_bytes()[..], &[0; 2]].concat(),
            ),
            READ if data.is_empty() => (CHUNK_NONE, Vec::new()),
            READ => (CHUNK_OFFSET_DATA, request.offset.to_be_bytes().to_vec()),
            _ => (CHUNK_STATUS, CONTEXT.to_be_bytes().to_vec()),
        };
        bytes = STRUCTURED_REPLY.to_be_bytes().to_vec();
        bytes.extend(LAST_CHUNK.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(request.cookie);
        // The data are those of a request, whose length has 26 bits.
        bytes.extend(((head.len() + data.len()) as u32).to_be_bytes());
        bytes.extend(head);
    } else {
        bytes = SIMPLE_REPLY.to_be_bytes().to_vec();
        bytes.extend(error.to_be_bytes());
        bytes.extend(request.cookie);
    }
    bytes.extend(data);
    stream.write_all(&bytes)
}

/// Returns the number of an error in the protocol.
fn number(error: &io::Error) -> u32 {
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => EINVAL,
        io::ErrorKind::ReadOnlyFilesystem => EPERM,
        _ => EIO,
    }
}

#[test]
fn options_that_are_cut_off_are_not_valid() {
    let query = |name: &[u8]| [&(name.len() as u32).to_be_bytes()[..], name].concat();
    let option = [
        query(b"export"),
        vec![0, 0, 0, 2],
        query(b"x:y"),
        query(ALLOCATION),
    ]
    .concat();
    assert_eq!(has_allocation(&option), Some(true));
    assert_eq!(has_allocation(&option[..10 + 4]), Some(false));
    assert_eq!(has_allocation(&option[..10 + 4 + 7]), Some(false));
    let whole = [10 + 4, 10 + 4 + 7];
    for len in (0..option.len()).filter(|len| !whole.contains(len)) {
        assert_eq!(has_allocation(&option[..len]), None, "{len}");
    }
    assert_eq!(has_allocation(&[0xff; 40]), None);
}

/// A client that is killed leaves requests in the socket, more than the queue has room for.
#[test]
fn serving_ends_with_a_client_that_takes_no_replies() {
    const THREADS: usize = 16;
    let (mut client, server) = UnixStream::pair().unwrap();
    let device = blockdev::MemDevice::new(1 << 20);
    let served = std::thread::spawn(move || serve(server, &device, THREADS, &|_| {}, &|| {}));
    client.read_exact(&mut [0; 18]).unwrap();
    let mut hello = 3u32.to_be_bytes().to_vec();
    hello.extend(OPT_MAGIC.to_be_bytes());
    hello.extend([OPT_GO, 6, 0].iter().flat_map(|n| n.to_be_bytes()));
    hello.extend([0, 0]);
    client.write_all(&hello).unwrap();
    client.read_exact(&mut [0; 20 + 12 + 20 + 14 + 20]).unwrap();
    let mut requests = Vec::new();
    for cookie in 0..40 * THREADS as u64 {
        requests.extend(REQUEST_MAGIC.to_be_bytes());
        requests.extend(0u16.to_be_bytes());
        requests.extend(WRITE.to_be_bytes());
        requests.extend(cookie.to_be_bytes());
        requests.extend(0u64.to_be_bytes());
        requests.extend(8u32.to_be_bytes());
        requests.extend([7; 8]);
    }
    client.write_all(&requests).unwrap();
    drop(client);
    // The result depends on whether the reader sees the end of the connection or an error.
    let _ = served.join().unwrap();
}

//! Writes that return before their replies.

use crate::it::fake::{self, Request};
use blockdev::BlockDevice;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SIZE: u64 = 1 << 20;
const FLUSH: u16 = 3;

/// Connects to a server that gets the requests behind the handshake.
fn serve(
    name: &str,
    serve: impl FnOnce(&mut UnixStream) + Send + 'static,
) -> extant_nbd::NbdDevice {
    let device = fake::connect(name, |mut stream| {
        fake::greet(&mut stream, SIZE, false);
        serve(&mut stream);
        // The connection stays until the client closes it.
        while fake::request(&mut stream).is_ok_and(|r| r.command != 2) {}
    });
    device.unwrap()
}

fn take(stream: &mut UnixStream, count: usize) -> Vec<Request> {
    (0..count).map(|_| fake::request(stream).unwrap()).collect()
}

/// A server that answers writes only when it has eight of them, and out of order.
#[test]
fn writes_do_not_wait_for_each_other_and_a_flush_waits_for_all() {
    let device = serve("eight", |stream| {
        let writes = take(stream, 8);
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let early = fake::request(stream);
        assert!(early.is_err(), "{early:?} before the replies");
        stream.set_read_timeout(None).unwrap();
        for write in writes.iter().rev() {
            fake::reply(stream, write, 0);
        }
        let flush = fake::request(stream).unwrap();
        assert_eq!(flush.command, FLUSH);
        fake::reply(stream, &flush, 0);
    });
    for at in 0..8 {
        device.write_at(at * 4096, &[1; 4096]).unwrap();
    }
    device.flush().unwrap();
}

#[test]
fn requests_for_the_same_bytes_wait_for_the_write() {
    let device = serve("same", |stream| {
        for (follower, offset) in [(1, 4096), (0, 12_288)] {
            let first = fake::request(stream).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            let early = fake::request(stream);
            assert!(early.is_err(), "{early:?} overtakes {first:?}");
            stream.set_read_timeout(None).unwrap();
            fake::reply(stream, &first, 0);
            let second = fake::request(stream).unwrap();
            assert_eq!((second.command, second.offset), (follower, offset));
            fake::reply(stream, &second, 0);
        }
    });
    device.write_at(0, &[1; 8192]).unwrap();
    device.write_at(4096, &[2; 4096]).unwrap();
    device.write_at(8192, &[1; 8192]).unwrap();
    device.read_at(12_288, &mut [0; 4096]).unwrap();
}

/// The write has returned, so the flush reports its error, and every later flush fails, too.
#[test]
fn a_write_that_fails_late_fails_every_later_flush() {
    let device = serve("late", |stream| {
        let write = fake::request(stream).unwrap();
        fake::reply(stream, &write, 28);
        let read = fake::request(stream).unwrap();
        fake::reply(stream, &read, 0);
    });
    device.write_at(0, &[1; 4096]).unwrap();
    for _ in 0..2 {
        let error = device.flush().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    }
    let error = device.write_at(8192, &[1; 4096]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    device.read_at(4096, &mut [0; 4096]).unwrap();
}

/// Many pages that are next to each other are one request.
#[test]
fn a_vectored_write_is_one_request() {
    let device = serve("vectored", |stream| {
        let write = fake::request(stream).unwrap();
        assert_eq!((write.offset, write.len), (4096, 5 * 4096));
        fake::reply(stream, &write, 0);
        let flush = fake::request(stream).unwrap();
        fake::reply(stream, &flush, 0);
    });
    let page = [7; 4096];
    device.write_vectored_at(4096, &[&page[..]; 5]).unwrap();
    device.flush().unwrap();
}
